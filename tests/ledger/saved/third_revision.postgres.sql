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
    body bytea NOT NULL
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
CREATE TABLE saved.service_dataset (
    name text NOT NULL,
    source text NOT NULL,
    domain text NOT NULL,
    limit_text text NOT NULL,
    rows integer,
    discoverable text NOT NULL,
    registered text NOT NULL
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
    revoked text
);
CREATE TABLE saved.service_reading (
    dataset text NOT NULL,
    number integer NOT NULL,
    version text NOT NULL,
    read text NOT NULL
);
INSERT INTO saved.ledger_analyst VALUES ('old', 'ann', NULL, NULL, NULL, '3/4', '5/32', '0', 750000000000, 0);
INSERT INTO saved.ledger_answer VALUES ('old', 3, '2026-11-22T07:47:10.794225+00:00', '\x6f6c64');
INSERT INTO saved.ledger_dataset VALUES ('old', '2026-11-22T07:47:10.691341+00:00', 'e033fec777b861e7930288a4eeb5b46817e62dabe01df12d7ec23da62fe91d95', '{"epsilon":"5/4"}', 1250000000000, 0, '3/4', '5/32', '0', 750000000000, 0, 3, 'ada88a8cc937c9963877a85ce8e4f706c97331d51a818eadeddf74ee10c9f65c');
INSERT INTO saved.ledger_entry VALUES ('old', 1, '2026-11-22T07:47:10.709761+00:00', 'release', 'query', 'count', 'f8cc15b2e06930ca1a8ed6fd5b1c68997fa19a10d642f5dfe9c880744c46339d', '{"dataset_version":"7abb760320f3c8e485d632dcf6bd60e6054d0c461ec53ee960f75fcb53fcbd41","family":"query","method":"count","parameters":{"number":0}}', '1/4', '1/32', '0', 'ann', 'old', 'null', '4a149f84c63952a05f1f80c36956da704a20e2dce4053b729861def1b5e8292c', '87b9db9a87620305abf4e7f0607ff2d3d3321106e89f709d4c8a32da666e995b');
INSERT INTO saved.ledger_entry VALUES ('old', 2, '2026-11-22T07:47:10.768479+00:00', 'failed', 'query', 'count', 'f8cc15b2e06930ca1a8ed6fd5b1c68997fa19a10d642f5dfe9c880744c46339d', '{"dataset_version":"7abb760320f3c8e485d632dcf6bd60e6054d0c461ec53ee960f75fcb53fcbd41","family":"query","method":"count","parameters":{"number":0}}', '1/4', '1/32', '0', NULL, 'old', '{"release":1}', '87b9db9a87620305abf4e7f0607ff2d3d3321106e89f709d4c8a32da666e995b', '33eba56d2256d3e63c18cd9fe1b730253b0c29c60a087a1e2db272c2396c9c0e');
INSERT INTO saved.ledger_entry VALUES ('old', 3, '2026-11-22T07:47:10.782101+00:00', 'release', 'query', 'count', '01768ebf42396104a9d991d75e8e081d633398e401322e0c58a18a7edec25d1d', '{"dataset_version":"7abb760320f3c8e485d632dcf6bd60e6054d0c461ec53ee960f75fcb53fcbd41","family":"query","method":"count","parameters":{"number":1}}', '1/2', '1/8', '0', 'ann', 'old', 'null', '33eba56d2256d3e63c18cd9fe1b730253b0c29c60a087a1e2db272c2396c9c0e', 'ada88a8cc937c9963877a85ce8e4f706c97331d51a818eadeddf74ee10c9f65c');
INSERT INTO saved.ledger_retry VALUES ('old', 'ann', 'r', '01768ebf42396104a9d991d75e8e081d633398e401322e0c58a18a7edec25d1d');
INSERT INTO saved.ledger_version VALUES ('0003');
ALTER TABLE ONLY saved.ledger_analyst
    ADD CONSTRAINT ledger_analyst_pkey PRIMARY KEY (dataset, name);
ALTER TABLE ONLY saved.ledger_answer
    ADD CONSTRAINT ledger_answer_pkey PRIMARY KEY (dataset, number);
ALTER TABLE ONLY saved.ledger_dataset
    ADD CONSTRAINT ledger_dataset_pkey PRIMARY KEY (name);
ALTER TABLE ONLY saved.ledger_entry
    ADD CONSTRAINT ledger_entry_pkey PRIMARY KEY (dataset, number);
ALTER TABLE ONLY saved.ledger_retry
    ADD CONSTRAINT ledger_retry_pkey PRIMARY KEY (dataset, analyst, retry_key);
ALTER TABLE ONLY saved.ledger_version
    ADD CONSTRAINT ledger_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY saved.service_dataset
    ADD CONSTRAINT service_dataset_pkey PRIMARY KEY (name);
ALTER TABLE ONLY saved.service_job
    ADD CONSTRAINT service_job_pkey PRIMARY KEY (id);
ALTER TABLE ONLY saved.service_key
    ADD CONSTRAINT service_key_hash_key UNIQUE (hash);
ALTER TABLE ONLY saved.service_key
    ADD CONSTRAINT service_key_pkey PRIMARY KEY (id);
ALTER TABLE ONLY saved.service_reading
    ADD CONSTRAINT service_reading_pkey PRIMARY KEY (dataset);
CREATE INDEX ledger_shown ON saved.ledger_entry USING btree (dataset, key, analyst);
CREATE TRIGGER ledger_answer_frozen BEFORE DELETE OR UPDATE OR TRUNCATE ON saved.ledger_answer FOR EACH STATEMENT EXECUTE FUNCTION saved.ledger_refuse();
CREATE TRIGGER ledger_dataset_fixed BEFORE UPDATE OF name, opened, secret, limit_loss, limit_units, limit_delta_units ON saved.ledger_dataset FOR EACH ROW EXECUTE FUNCTION saved.ledger_refuse();
CREATE TRIGGER ledger_dataset_forward BEFORE UPDATE ON saved.ledger_dataset FOR EACH ROW WHEN (((new.spent_units < old.spent_units) OR (new.entries < old.entries))) EXECUTE FUNCTION saved.ledger_refuse();
CREATE TRIGGER ledger_dataset_kept BEFORE DELETE OR TRUNCATE ON saved.ledger_dataset FOR EACH STATEMENT EXECUTE FUNCTION saved.ledger_refuse();
CREATE TRIGGER ledger_entry_frozen BEFORE DELETE OR UPDATE OR TRUNCATE ON saved.ledger_entry FOR EACH STATEMENT EXECUTE FUNCTION saved.ledger_refuse();
CREATE TRIGGER ledger_retry_frozen BEFORE DELETE OR UPDATE OR TRUNCATE ON saved.ledger_retry FOR EACH STATEMENT EXECUTE FUNCTION saved.ledger_refuse();
ALTER TABLE ONLY saved.ledger_analyst
    ADD CONSTRAINT ledger_analyst_dataset_fkey FOREIGN KEY (dataset) REFERENCES saved.ledger_dataset(name);
ALTER TABLE ONLY saved.ledger_answer
    ADD CONSTRAINT ledger_answer_dataset_number_fkey FOREIGN KEY (dataset, number) REFERENCES saved.ledger_entry(dataset, number);
ALTER TABLE ONLY saved.ledger_entry
    ADD CONSTRAINT ledger_entry_dataset_fkey FOREIGN KEY (dataset) REFERENCES saved.ledger_dataset(name);
ALTER TABLE ONLY saved.ledger_retry
    ADD CONSTRAINT ledger_retry_dataset_fkey FOREIGN KEY (dataset) REFERENCES saved.ledger_dataset(name);
