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
INSERT INTO saved.ledger_analyst VALUES ('old', 'ann', NULL, NULL, NULL, '3/4', '5/32', '0', 750000000000, 0);
INSERT INTO saved.ledger_answer VALUES ('old', 3, '2026-11-22T07:47:13.661087+00:00', 1, 3, 'ee848b490a1e67612855666d04cf3b80e2157abb86e608aca14069f41c000317', '04034fcead0630a382cef144528c7701db16bd7af6a4b801f7a77966b60da085', '2026-11-24T22:29:08.617316+00:00', '\x6f6c64');
INSERT INTO saved.ledger_dataset VALUES ('old', '2026-11-22T07:47:13.574690+00:00', '2985d19c02f05cb8c17bf6e57cdd43f4b447f41ce96240f96acbe2714fd572e2', '{"epsilon":"5/4"}', 1250000000000, 0, '3/4', '5/32', '0', 750000000000, 0, 3, '04034fcead0630a382cef144528c7701db16bd7af6a4b801f7a77966b60da085', '{"id":"person","kind":"id","rows":2}', 1, 0, NULL);
INSERT INTO saved.ledger_entry VALUES ('old', 1, '2026-11-22T07:47:13.589631+00:00', 'release', 'query', 'count', 'c1290dceea23a03588e7e9c972a9b9ab5f268bc20381cd65b4c327368d8a864c', '{"dataset_version":"920a115ef56936de5a92e1dd0170b4e618a950671ff6ff06433dbb90316e1e8f","family":"query","method":"count","parameters":{"number":0}}', '1/4', '1/32', '0', 'ann', 'old', 'null', '02572f944a8baca3a7c25006d478a1e075469614259e17ec4f4b26b753c5fee9', '1795b25a6a2308e8d25a3efedb1c92c70621550aa0e2f6a7bfacfd890444e039', '{"counted":["1/4","1/32","0"],"neighbours":"add/remove","unit":"{\"id\":\"person\",\"kind\":\"id\",\"rows\":2}"}');
INSERT INTO saved.ledger_entry VALUES ('old', 2, '2026-11-22T07:47:13.637436+00:00', 'failed', 'query', 'count', 'c1290dceea23a03588e7e9c972a9b9ab5f268bc20381cd65b4c327368d8a864c', '{"dataset_version":"920a115ef56936de5a92e1dd0170b4e618a950671ff6ff06433dbb90316e1e8f","family":"query","method":"count","parameters":{"number":0}}', '1/4', '1/32', '0', NULL, 'old', '{"release":1}', '1795b25a6a2308e8d25a3efedb1c92c70621550aa0e2f6a7bfacfd890444e039', '70bcb5cf9317763acff93c6904b8ed2c78481d6b9224cb57d4c3706349d3cf23', '{"unit":"{\"id\":\"person\",\"kind\":\"id\",\"rows\":2}"}');
INSERT INTO saved.ledger_entry VALUES ('old', 3, '2026-11-22T07:47:13.649601+00:00', 'release', 'query', 'count', '027ad8b39104f9d513fdfa1eadf6f89610583981af3a69731f58b69124567011', '{"dataset_version":"920a115ef56936de5a92e1dd0170b4e618a950671ff6ff06433dbb90316e1e8f","family":"query","method":"count","parameters":{"number":1}}', '1/2', '1/8', '0', 'ann', 'old', 'null', '70bcb5cf9317763acff93c6904b8ed2c78481d6b9224cb57d4c3706349d3cf23', 'ee848b490a1e67612855666d04cf3b80e2157abb86e608aca14069f41c000317', '{"counted":["1/2","1/8","0"],"neighbours":"add/remove","unit":"{\"id\":\"person\",\"kind\":\"id\",\"rows\":2}"}');
INSERT INTO saved.ledger_retry VALUES ('old', 'ann', 'r', '027ad8b39104f9d513fdfa1eadf6f89610583981af3a69731f58b69124567011');
INSERT INTO saved.ledger_version VALUES ('0008');
INSERT INTO saved.service_action_head VALUES (1, 0, 'fad2c4429e69ccf95429a372036db522b7c50e351538f390fc600884eaf052c1');
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
