CREATE SCHEMA saved;
CREATE FUNCTION saved.ledger_refuse() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'the journal is append-only'; END $$;
CREATE TABLE saved.ledger_analyst (
    dataset text NOT NULL,
    name text NOT NULL,
    cap_loss text,
    cap_units bigint,
    cap_delta_units bigint,
    epsilon text,
    rho text NOT NULL,
    delta text NOT NULL,
    spent_units bigint NOT NULL,
    spent_delta_units bigint NOT NULL,
    CONSTRAINT within_cap CHECK (((0 <= spent_units) AND ((cap_units IS NULL) OR (spent_units <= cap_units)))),
    CONSTRAINT within_cap_delta CHECK (((0 <= spent_delta_units) AND ((cap_delta_units IS NULL) OR (spent_delta_units <= cap_delta_units))))
);
CREATE TABLE saved.ledger_answer (
    dataset text NOT NULL,
    number integer NOT NULL,
    "time" text NOT NULL,
    place integer NOT NULL,
    entries integer NOT NULL,
    previous text NOT NULL,
    hash text NOT NULL,
    found text,
    body bytea NOT NULL
);
CREATE TABLE saved.ledger_checkpoint (
    dataset text NOT NULL,
    number integer NOT NULL,
    hash text NOT NULL,
    unit_is_fixed integer NOT NULL,
    sums text NOT NULL,
    checked text NOT NULL,
    answers integer DEFAULT 0 NOT NULL
);
CREATE TABLE saved.ledger_dataset (
    name text NOT NULL,
    opened text NOT NULL,
    secret text NOT NULL,
    limit_loss text NOT NULL,
    limit_units bigint NOT NULL,
    limit_delta_units bigint NOT NULL,
    epsilon text,
    rho text NOT NULL,
    delta text NOT NULL,
    spent_units bigint NOT NULL,
    spent_delta_units bigint NOT NULL,
    entries integer NOT NULL,
    head text NOT NULL,
    unit text,
    answers integer DEFAULT 0 NOT NULL,
    version integer DEFAULT 0 NOT NULL,
    version_digest text,
    CONSTRAINT within_delta CHECK (((0 <= spent_delta_units) AND (spent_delta_units <= limit_delta_units))),
    CONSTRAINT within_limit CHECK (((0 <= spent_units) AND (spent_units <= limit_units)))
);
CREATE TABLE saved.ledger_entry (
    dataset text NOT NULL,
    number integer NOT NULL,
    "time" text NOT NULL,
    kind text NOT NULL,
    family text NOT NULL,
    method text NOT NULL,
    key text NOT NULL,
    question text NOT NULL,
    epsilon text,
    rho text,
    delta text,
    analyst text,
    statement text NOT NULL,
    details text NOT NULL,
    previous text NOT NULL,
    hash text NOT NULL,
    stated text,
    CONSTRAINT counts_from_one CHECK ((number > 0))
);
CREATE TABLE saved.ledger_retry (
    dataset text NOT NULL,
    analyst text NOT NULL,
    retry_key text NOT NULL,
    key text NOT NULL
);
CREATE TABLE saved.ledger_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE saved.service_action (
    number integer NOT NULL,
    "time" text NOT NULL,
    actor text NOT NULL,
    through text NOT NULL,
    kind text NOT NULL,
    subject text NOT NULL,
    state_before text NOT NULL,
    state_after text NOT NULL,
    previous text NOT NULL,
    hash text NOT NULL
);
CREATE TABLE saved.service_action_head (
    id integer NOT NULL,
    number integer NOT NULL,
    hash text NOT NULL,
    CONSTRAINT one_head CHECK ((id = 1))
);
CREATE TABLE saved.service_approval (
    id text NOT NULL,
    dataset text NOT NULL,
    release text NOT NULL,
    asked_by text NOT NULL,
    asked text NOT NULL,
    question text NOT NULL,
    cost text NOT NULL,
    approved_by text,
    approved text,
    key_id text,
    expires text,
    closed text
);
CREATE TABLE saved.service_dataset (
    name text NOT NULL,
    source text NOT NULL,
    domain text NOT NULL,
    limit_text text NOT NULL,
    rows integer,
    discoverable text NOT NULL,
    registered text NOT NULL,
    called text,
    retired text
);
CREATE TABLE saved.service_grant (
    dataset text NOT NULL,
    analyst text NOT NULL,
    shut_out integer NOT NULL
);
CREATE TABLE saved.service_identity (
    id text NOT NULL,
    name text NOT NULL,
    first text NOT NULL
);
CREATE TABLE saved.service_job (
    id text NOT NULL,
    dataset text NOT NULL,
    owner text NOT NULL,
    request text NOT NULL,
    state text NOT NULL,
    progress double precision NOT NULL,
    note text NOT NULL,
    updated text NOT NULL,
    statement text,
    rows bytea
);
CREATE TABLE saved.service_key (
    id text NOT NULL,
    hash text NOT NULL,
    name text NOT NULL,
    scope text NOT NULL,
    issued text NOT NULL,
    expires text NOT NULL,
    revoked text,
    used text
);
CREATE TABLE saved.service_login (
    state text NOT NULL,
    browser text NOT NULL,
    nonce text NOT NULL,
    verifier text NOT NULL,
    begun text NOT NULL
);
CREATE TABLE saved.service_name (
    name text NOT NULL,
    dataset text NOT NULL
);
CREATE TABLE saved.service_notice (
    kind text NOT NULL,
    subject text NOT NULL,
    state text NOT NULL,
    told text NOT NULL
);
CREATE TABLE saved.service_probe (
    id text NOT NULL,
    written text NOT NULL
);
CREATE TABLE saved.service_session (
    hash text NOT NULL,
    id text NOT NULL,
    name text NOT NULL,
    scope text NOT NULL,
    key_id text,
    begun text NOT NULL,
    expires text NOT NULL,
    ended text,
    identity text
);
CREATE TABLE saved.service_snapshot (
    dataset text NOT NULL,
    version text NOT NULL,
    folder text NOT NULL,
    copies text NOT NULL,
    files text NOT NULL
);
CREATE TABLE saved.service_terms (
    dataset text NOT NULL,
    granted_only integer NOT NULL,
    default_cap text,
    most text,
    approval_above text
);
INSERT INTO saved.ledger_analyst VALUES ('people', 'ann', NULL, NULL, NULL, '1/2', '1/8', '0', 500000000000, 0);
INSERT INTO saved.ledger_answer VALUES ('people', 1, '2026-11-23T05:05:43.576439+00:00', 1, 1, '44c35e3a9f0be0d5395f28a36085f1f6503850ed0e149ca25082ebad42108228', '645a2ce18752a63cda8387c7d2ccabd3ea81f09a23e5c0978f1905c1a978a3b1', '2026-11-24T22:29:07.469394+00:00', '\x6f6c64');
INSERT INTO saved.ledger_dataset VALUES ('people', '2026-11-23T05:05:43.505716+00:00', 'cacc03eb0217b746034735cc3e655ed7c0aa6e6e6f2f2b20d7a7ee513c79416d', '{"epsilon":"3"}', 3000000000000, 0, '1/2', '1/8', '0', 500000000000, 0, 1, '645a2ce18752a63cda8387c7d2ccabd3ea81f09a23e5c0978f1905c1a978a3b1', '{"kind":"row"}', 1, 0, NULL);
INSERT INTO saved.ledger_entry VALUES ('people', 1, '2026-11-23T05:05:43.555188+00:00', 'release', 'query', 'count', 'b11fe02fb25756ea6e9619e94687fff654adebb6080752777423396140cd37e2', '{"dataset_version":"011753456f4e74ab5309de9ad42a4f86f1e5db59ab810ca894d8f67d04e087c4","family":"query","method":"count","parameters":{"number":1}}', '1/2', '1/8', '0', 'ann', 'old', 'null', '591112c64f0d6eaafec41f972c497c95117d526d3ea1cfa2c765e6312de985da', '44c35e3a9f0be0d5395f28a36085f1f6503850ed0e149ca25082ebad42108228', '{"counted":["1/2","1/8","0"],"neighbours":"add/remove","unit":"{\"kind\":\"row\"}"}');
INSERT INTO saved.ledger_version VALUES ('0008');
INSERT INTO saved.service_action_head VALUES (1, 0, 'fad2c4429e69ccf95429a372036db522b7c50e351538f390fc600884eaf052c1');
INSERT INTO saved.service_dataset VALUES ('people', '/srv/people.parquet', '{"sfumato": 1, "unit": "row", "attributes": {"age": {"type": "integer", "minimum": 0, "maximum": 99, "unknown": "clamp"}, "sex": {"type": "categorical", "values": ["F", "M"], "nullable": true, "unknown": "category"}, "income": {"type": "real", "edges": [0, 1000, 5000], "unknown": "clamp"}}}', '3', 60, '[]', '2026-11-23T05:05:43.503759+00:00', NULL, NULL);
INSERT INTO saved.service_grant VALUES ('people', 'ann', 0);
INSERT INTO saved.service_grant VALUES ('people', 'bob', 1);
INSERT INTO saved.service_job VALUES ('3c181115e929e70f66536c7c', 'people', 'ann', '{"synthesize": {}}', 'done', 1, 'done', '2026-11-23T05:05:43.547704+00:00', '{"of": "nothing"}', '\x726f7773');
INSERT INTO saved.service_key VALUES ('17ba3dca1f09', '3798413572812821ebd8e00385b236fbbd3efdc77eed8a4befb5376859e70a06', 'ann', 'analyst', '2026-11-23T05:05:43.516068+00:00', '2036-11-20T05:05:43.516068+00:00', NULL, NULL);
INSERT INTO saved.service_key VALUES ('9fb95d6888d0', '3838973dce203c14b03f15d6947053e3852716e5b68b80e33f0f3ba1e4df1c29', 'bob', 'analyst', '2026-11-23T05:05:43.520192+00:00', '2036-11-20T05:05:43.520192+00:00', '2026-11-23T05:05:43.523930+00:00', NULL);
INSERT INTO saved.service_name VALUES ('people', 'people');
INSERT INTO saved.service_session VALUES ('c60dea58ab3ad1423b3df42fe9e4ca4622cc6a50c878df4a38ac4a50554f719a', '3eaace11a720', 'ann', 'analyst', '17ba3dca1f09', '2026-11-23T05:05:43.527695+00:00', '2026-11-23T17:05:43.527695+00:00', NULL, NULL);
INSERT INTO saved.service_terms VALUES ('people', 1, '1', '0.5', NULL);
ALTER TABLE ONLY saved.ledger_analyst
    ADD CONSTRAINT ledger_analyst_pkey PRIMARY KEY (dataset, name);
ALTER TABLE ONLY saved.ledger_answer
    ADD CONSTRAINT ledger_answer_dataset_place_key UNIQUE (dataset, place);
ALTER TABLE ONLY saved.ledger_answer
    ADD CONSTRAINT ledger_answer_pkey1 PRIMARY KEY (dataset, number);
ALTER TABLE ONLY saved.ledger_checkpoint
    ADD CONSTRAINT ledger_checkpoint_pkey PRIMARY KEY (dataset);
ALTER TABLE ONLY saved.ledger_dataset
    ADD CONSTRAINT ledger_dataset_pkey PRIMARY KEY (name);
ALTER TABLE ONLY saved.ledger_entry
    ADD CONSTRAINT ledger_entry_pkey PRIMARY KEY (dataset, number);
ALTER TABLE ONLY saved.ledger_retry
    ADD CONSTRAINT ledger_retry_pkey PRIMARY KEY (dataset, analyst, retry_key);
ALTER TABLE ONLY saved.ledger_version
    ADD CONSTRAINT ledger_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY saved.service_action_head
    ADD CONSTRAINT service_action_head_pkey PRIMARY KEY (id);
ALTER TABLE ONLY saved.service_action
    ADD CONSTRAINT service_action_pkey PRIMARY KEY (number);
ALTER TABLE ONLY saved.service_approval
    ADD CONSTRAINT service_approval_pkey PRIMARY KEY (id);
ALTER TABLE ONLY saved.service_dataset
    ADD CONSTRAINT service_dataset_pkey PRIMARY KEY (name);
ALTER TABLE ONLY saved.service_grant
    ADD CONSTRAINT service_grant_pkey PRIMARY KEY (dataset, analyst);
ALTER TABLE ONLY saved.service_identity
    ADD CONSTRAINT service_identity_name_key UNIQUE (name);
ALTER TABLE ONLY saved.service_identity
    ADD CONSTRAINT service_identity_pkey PRIMARY KEY (id);
ALTER TABLE ONLY saved.service_job
    ADD CONSTRAINT service_job_pkey PRIMARY KEY (id);
ALTER TABLE ONLY saved.service_key
    ADD CONSTRAINT service_key_hash_key UNIQUE (hash);
ALTER TABLE ONLY saved.service_key
    ADD CONSTRAINT service_key_pkey PRIMARY KEY (id);
ALTER TABLE ONLY saved.service_login
    ADD CONSTRAINT service_login_pkey PRIMARY KEY (state);
ALTER TABLE ONLY saved.service_name
    ADD CONSTRAINT service_name_pkey PRIMARY KEY (name);
ALTER TABLE ONLY saved.service_notice
    ADD CONSTRAINT service_notice_pkey PRIMARY KEY (kind, subject);
ALTER TABLE ONLY saved.service_probe
    ADD CONSTRAINT service_probe_pkey PRIMARY KEY (id);
ALTER TABLE ONLY saved.service_session
    ADD CONSTRAINT service_session_pkey PRIMARY KEY (hash);
ALTER TABLE ONLY saved.service_snapshot
    ADD CONSTRAINT service_snapshot_pkey PRIMARY KEY (dataset);
ALTER TABLE ONLY saved.service_terms
    ADD CONSTRAINT service_terms_pkey PRIMARY KEY (dataset);
CREATE INDEX ledger_asked ON saved.ledger_entry USING btree (dataset, analyst, number);
CREATE INDEX ledger_shown ON saved.ledger_entry USING btree (dataset, key, analyst);
CREATE INDEX ledger_uncharged ON saved.ledger_entry USING btree (dataset, number) WHERE (rho IS NULL);
CREATE INDEX ledger_versions ON saved.ledger_entry USING btree (dataset, number) WHERE (kind = 'version'::text);
CREATE INDEX service_approval_found ON saved.service_approval USING btree (dataset, release);
CREATE TRIGGER ledger_answer_frozen BEFORE DELETE OR UPDATE OR TRUNCATE ON saved.ledger_answer FOR EACH STATEMENT EXECUTE FUNCTION saved.ledger_refuse();
CREATE TRIGGER ledger_dataset_fixed BEFORE UPDATE OF name, opened, secret, limit_loss, limit_units, limit_delta_units ON saved.ledger_dataset FOR EACH ROW EXECUTE FUNCTION saved.ledger_refuse();
CREATE TRIGGER ledger_dataset_forward BEFORE UPDATE ON saved.ledger_dataset FOR EACH ROW WHEN (((new.spent_units < old.spent_units) OR (new.entries < old.entries) OR (new.answers < old.answers) OR (new.version < old.version))) EXECUTE FUNCTION saved.ledger_refuse();
CREATE TRIGGER ledger_dataset_kept BEFORE DELETE OR TRUNCATE ON saved.ledger_dataset FOR EACH STATEMENT EXECUTE FUNCTION saved.ledger_refuse();
CREATE TRIGGER ledger_dataset_of_unit BEFORE UPDATE OF unit ON saved.ledger_dataset FOR EACH ROW WHEN (((old.unit IS NOT NULL) AND (new.unit IS DISTINCT FROM old.unit))) EXECUTE FUNCTION saved.ledger_refuse();
CREATE TRIGGER ledger_entry_frozen BEFORE DELETE OR UPDATE OR TRUNCATE ON saved.ledger_entry FOR EACH STATEMENT EXECUTE FUNCTION saved.ledger_refuse();
CREATE TRIGGER ledger_retry_frozen BEFORE DELETE OR UPDATE OR TRUNCATE ON saved.ledger_retry FOR EACH STATEMENT EXECUTE FUNCTION saved.ledger_refuse();
CREATE TRIGGER service_action_forward BEFORE UPDATE ON saved.service_action_head FOR EACH ROW WHEN ((new.number <> (old.number + 1))) EXECUTE FUNCTION saved.ledger_refuse();
CREATE TRIGGER service_action_frozen BEFORE DELETE OR UPDATE OR TRUNCATE ON saved.service_action FOR EACH STATEMENT EXECUTE FUNCTION saved.ledger_refuse();
CREATE TRIGGER service_action_kept BEFORE DELETE OR TRUNCATE ON saved.service_action_head FOR EACH STATEMENT EXECUTE FUNCTION saved.ledger_refuse();
ALTER TABLE ONLY saved.ledger_analyst
    ADD CONSTRAINT ledger_analyst_dataset_fkey FOREIGN KEY (dataset) REFERENCES saved.ledger_dataset(name);
ALTER TABLE ONLY saved.ledger_answer
    ADD CONSTRAINT ledger_answer_dataset_number_fkey1 FOREIGN KEY (dataset, number) REFERENCES saved.ledger_entry(dataset, number);
ALTER TABLE ONLY saved.ledger_checkpoint
    ADD CONSTRAINT ledger_checkpoint_dataset_fkey FOREIGN KEY (dataset) REFERENCES saved.ledger_dataset(name);
ALTER TABLE ONLY saved.ledger_entry
    ADD CONSTRAINT ledger_entry_dataset_fkey FOREIGN KEY (dataset) REFERENCES saved.ledger_dataset(name);
ALTER TABLE ONLY saved.ledger_retry
    ADD CONSTRAINT ledger_retry_dataset_fkey FOREIGN KEY (dataset) REFERENCES saved.ledger_dataset(name);
ALTER TABLE ONLY saved.service_session
    ADD CONSTRAINT service_session_key_id_fkey FOREIGN KEY (key_id) REFERENCES saved.service_key(id);
