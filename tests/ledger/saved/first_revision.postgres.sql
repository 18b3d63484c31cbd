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
INSERT INTO saved.ledger_analyst VALUES ('old', 'ann', NULL, NULL, NULL, '1/2', '1/8', '0', 500000000000, 0);
INSERT INTO saved.ledger_answer VALUES ('old', 1, '2026-11-22T04:24:26.253416+00:00', '\x6f6c64');
INSERT INTO saved.ledger_dataset VALUES ('old', '2026-11-22T04:24:26.108266+00:00', '6347d86a0180ca0541ff6db7c1e3e5163735b6a8ecebac36521587943c7e1f82', '{"epsilon":"1"}', 1000000000000, 0, '1/2', '1/8', '0', 500000000000, 0, 1, '1eda3e643c6249fee8bf2f7315c1b580e2f7debd1fee0075e86cdfe95b7adaed');
INSERT INTO saved.ledger_entry VALUES ('old', 1, '2026-11-22T04:24:26.190177+00:00', 'release', 'query', 'count', '28b498d2066b53747ac2ca0c93fd26eb2e7ee186906abcc54ded69aeda32a728', '{"dataset_version":"0e6eb692a21ba8fe76badd691519a6b52467ea0dc32ad8b288bc166768e9152e","family":"query","method":"count","parameters":{"number":1}}', '1/2', '1/8', '0', 'ann', 'old', 'null', '1a59207e6bc2a021c60ea244d357b237d3fec7d11a1d840a4136dc2e91ad7a0a', '1eda3e643c6249fee8bf2f7315c1b580e2f7debd1fee0075e86cdfe95b7adaed');
INSERT INTO saved.ledger_retry VALUES ('old', 'ann', 'r', '28b498d2066b53747ac2ca0c93fd26eb2e7ee186906abcc54ded69aeda32a728');
INSERT INTO saved.ledger_version VALUES ('0001');
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
CREATE UNIQUE INDEX ledger_release ON saved.ledger_entry USING btree (dataset, key) WHERE (kind = 'release'::text);
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
