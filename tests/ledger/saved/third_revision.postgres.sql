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
INSERT INTO saved.ledger_answer VALUES ('old', 3, '2026-11-22T07:47:10.794225+00:00', 1, 3, 'ada88a8cc937c9963877a85ce8e4f706c97331d51a818eadeddf74ee10c9f65c', 'ed4e105c18eea2c1c26bab14daa85aa72d1ff1036e696cd0c3470dff9af1ad9a', '2026-11-24T22:29:10.268273+00:00', '\x6f6c64');
INSERT INTO saved.ledger_dataset VALUES ('old', '2026-11-22T07:47:10.691341+00:00', 'e033fec777b861e7930288a4eeb5b46817e62dabe01df12d7ec23da62fe91d95', '{"epsilon":"5/4"}', 1250000000000, 0, '3/4', '5/32', '0', 750000000000, 0, 3, 'ed4e105c18eea2c1c26bab14daa85aa72d1ff1036e696cd0c3470dff9af1ad9a', NULL, 1, 0, NULL);
INSERT INTO saved.ledger_entry VALUES ('old', 1, '2026-11-22T07:47:10.709761+00:00', 'release', 'query', 'count', 'f8cc15b2e06930ca1a8ed6fd5b1c68997fa19a10d642f5dfe9c880744c46339d', '{"dataset_version":"7abb760320f3c8e485d632dcf6bd60e6054d0c461ec53ee960f75fcb53fcbd41","family":"query","method":"count","parameters":{"number":0}}', '1/4', '1/32', '0', 'ann', 'old', 'null', '4a149f84c63952a05f1f80c36956da704a20e2dce4053b729861def1b5e8292c', '87b9db9a87620305abf4e7f0607ff2d3d3321106e89f709d4c8a32da666e995b', NULL);
INSERT INTO saved.ledger_entry VALUES ('old', 2, '2026-11-22T07:47:10.768479+00:00', 'failed', 'query', 'count', 'f8cc15b2e06930ca1a8ed6fd5b1c68997fa19a10d642f5dfe9c880744c46339d', '{"dataset_version":"7abb760320f3c8e485d632dcf6bd60e6054d0c461ec53ee960f75fcb53fcbd41","family":"query","method":"count","parameters":{"number":0}}', '1/4', '1/32', '0', NULL, 'old', '{"release":1}', '87b9db9a87620305abf4e7f0607ff2d3d3321106e89f709d4c8a32da666e995b', '33eba56d2256d3e63c18cd9fe1b730253b0c29c60a087a1e2db272c2396c9c0e', NULL);
INSERT INTO saved.ledger_entry VALUES ('old', 3, '2026-11-22T07:47:10.782101+00:00', 'release', 'query', 'count', '01768ebf42396104a9d991d75e8e081d633398e401322e0c58a18a7edec25d1d', '{"dataset_version":"7abb760320f3c8e485d632dcf6bd60e6054d0c461ec53ee960f75fcb53fcbd41","family":"query","method":"count","parameters":{"number":1}}', '1/2', '1/8', '0', 'ann', 'old', 'null', '33eba56d2256d3e63c18cd9fe1b730253b0c29c60a087a1e2db272c2396c9c0e', 'ada88a8cc937c9963877a85ce8e4f706c97331d51a818eadeddf74ee10c9f65c', NULL);
INSERT INTO saved.ledger_retry VALUES ('old', 'ann', 'r', '01768ebf42396104a9d991d75e8e081d633398e401322e0c58a18a7edec25d1d');
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
