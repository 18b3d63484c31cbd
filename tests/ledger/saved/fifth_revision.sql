BEGIN TRANSACTION;
CREATE TABLE ledger_analyst (
    dataset TEXT NOT NULL,
    name TEXT NOT NULL,
    cap_loss TEXT,
    cap_units BIGINT,
    cap_delta_units BIGINT,
    epsilon TEXT,
    rho TEXT NOT NULL,
    delta TEXT NOT NULL,
    spent_units BIGINT NOT NULL,
    spent_delta_units BIGINT NOT NULL,
    PRIMARY KEY (dataset, name),
    CONSTRAINT within_cap CHECK (0 <= spent_units AND (cap_units IS NULL OR spent_units <= cap_units)),
    CONSTRAINT within_cap_delta CHECK (
        0 <= spent_delta_units AND (cap_delta_units IS NULL OR spent_delta_units <= cap_delta_units)
    ),
    FOREIGN KEY (dataset) REFERENCES ledger_dataset (name)
);
INSERT INTO "ledger_analyst" VALUES('old','ann',NULL,NULL,NULL,'3/4','5/32','0',750000000000,0);
CREATE TABLE ledger_answer (
    dataset TEXT NOT NULL,
    number INTEGER NOT NULL,
    time TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (dataset, number),
    FOREIGN KEY (dataset, number) REFERENCES ledger_entry (dataset, number)
);
INSERT INTO "ledger_answer" VALUES('old',3,'2026-11-22T17:44:15.716820+00:00',X'6F6C64');
CREATE TABLE ledger_checkpoint (
    dataset TEXT NOT NULL,
    number INTEGER NOT NULL,
    hash TEXT NOT NULL,
    unit_is_fixed INTEGER NOT NULL,
    sums TEXT NOT NULL,
    checked TEXT NOT NULL,
    PRIMARY KEY (dataset),
    FOREIGN KEY (dataset) REFERENCES ledger_dataset (name)
);
CREATE TABLE ledger_dataset (
    name TEXT NOT NULL,
    opened TEXT NOT NULL,
    secret TEXT NOT NULL,
    limit_loss TEXT NOT NULL,
    limit_units BIGINT NOT NULL,
    limit_delta_units BIGINT NOT NULL,
    epsilon TEXT,
    rho TEXT NOT NULL,
    delta TEXT NOT NULL,
    spent_units BIGINT NOT NULL,
    spent_delta_units BIGINT NOT NULL,
    entries INTEGER NOT NULL,
    head TEXT NOT NULL,
    unit TEXT,
    PRIMARY KEY (name),
    CONSTRAINT within_limit CHECK (0 <= spent_units AND spent_units <= limit_units),
    CONSTRAINT within_delta CHECK (0 <= spent_delta_units AND spent_delta_units <= limit_delta_units)
);
INSERT INTO "ledger_dataset" VALUES('old','2026-11-22T17:44:15.665766+00:00','9b770b794e01f8db75f1f7b66a5c006228038d9b73f0cf4c5602e3ae1549cb06','{"epsilon":"5/4"}',1250000000000,0,'3/4','5/32','0',750000000000,0,3,'0db65cc9a38adb3a5f23c55a4894f77cd5aad6a847bbdd54881ba4ace5c614db','{"id":"person","kind":"id","rows":2}');
CREATE TABLE ledger_entry (
    dataset TEXT NOT NULL,
    number INTEGER NOT NULL,
    time TEXT NOT NULL,
    kind TEXT NOT NULL,
    family TEXT NOT NULL,
    method TEXT NOT NULL,
    "key" TEXT NOT NULL,
    question TEXT NOT NULL,
    epsilon TEXT,
    rho TEXT,
    delta TEXT,
    analyst TEXT,
    statement TEXT NOT NULL,
    details TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL,
    stated TEXT,
    PRIMARY KEY (dataset, number),
    CONSTRAINT counts_from_one CHECK (number > 0),
    FOREIGN KEY (dataset) REFERENCES ledger_dataset (name)
);
INSERT INTO "ledger_entry" VALUES('old',1,'2026-11-22T17:44:15.688239+00:00','release','query','count','e2cf461f7a2d7f895f0067ccf7568abaa49e27fb44162041797ea98a5c5df743','{"dataset_version":"abfa54a8580266750c62431ed5bd7c091385e4d096b9728da9831817be00d7bc","family":"query","method":"count","parameters":{"number":0}}','1/4','1/32','0','ann','failed','null','4b5f5d32e5cca2fee58f84922ea91c26898bf839f044d6cb1c58439caf3c4f02','1134cb50730693204dc3b9c8828cedd08691226aff0cdf46b457ba2ecf4e79e5','{"counted":["1/4","1/32","0"],"fixes_unit":true,"neighbours":"add/remove","unit":"{\"id\":\"person\",\"kind\":\"id\",\"rows\":2}"}');
INSERT INTO "ledger_entry" VALUES('old',2,'2026-11-22T17:44:15.706074+00:00','failed','query','count','e2cf461f7a2d7f895f0067ccf7568abaa49e27fb44162041797ea98a5c5df743','{"dataset_version":"abfa54a8580266750c62431ed5bd7c091385e4d096b9728da9831817be00d7bc","family":"query","method":"count","parameters":{"number":0}}','1/4','1/32','0',NULL,'failed','{"release":1}','1134cb50730693204dc3b9c8828cedd08691226aff0cdf46b457ba2ecf4e79e5','3c4533ceb0c3990950ad38b4af85e572fe4646e20e5c458ed0399c8c93ba2892','{"unit":"{\"id\":\"person\",\"kind\":\"id\",\"rows\":2}"}');
INSERT INTO "ledger_entry" VALUES('old',3,'2026-11-22T17:44:15.710573+00:00','release','query','count','c1fde5d7ec2051b78c1011151a87d7cfbc327cd3c780c263844b5be388b074e3','{"dataset_version":"abfa54a8580266750c62431ed5bd7c091385e4d096b9728da9831817be00d7bc","family":"query","method":"count","parameters":{"number":1}}','1/2','1/8','0','ann','old','null','3c4533ceb0c3990950ad38b4af85e572fe4646e20e5c458ed0399c8c93ba2892','0db65cc9a38adb3a5f23c55a4894f77cd5aad6a847bbdd54881ba4ace5c614db','{"counted":["1/2","1/8","0"],"neighbours":"add/remove","unit":"{\"id\":\"person\",\"kind\":\"id\",\"rows\":2}"}');
CREATE TABLE ledger_retry (
    dataset TEXT NOT NULL,
    analyst TEXT NOT NULL,
    retry_key TEXT NOT NULL,
    "key" TEXT NOT NULL,
    PRIMARY KEY (dataset, analyst, retry_key),
    FOREIGN KEY (dataset) REFERENCES ledger_dataset (name)
);
INSERT INTO "ledger_retry" VALUES('old','ann','r','c1fde5d7ec2051b78c1011151a87d7cfbc327cd3c780c263844b5be388b074e3');
CREATE TABLE ledger_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT ledger_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "ledger_version" VALUES('0005');
CREATE TABLE service_dataset (
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    domain TEXT NOT NULL,
    limit_text TEXT NOT NULL,
    rows INTEGER,
    discoverable TEXT NOT NULL,
    registered TEXT NOT NULL,
    PRIMARY KEY (name)
);
CREATE TABLE service_job (
    id TEXT NOT NULL,
    dataset TEXT NOT NULL,
    owner TEXT NOT NULL,
    request TEXT NOT NULL,
    state TEXT NOT NULL,
    progress FLOAT NOT NULL,
    note TEXT NOT NULL,
    updated TEXT NOT NULL,
    statement TEXT,
    rows BLOB,
    PRIMARY KEY (id)
);
CREATE TABLE service_key (
    id TEXT NOT NULL,
    hash TEXT NOT NULL,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    issued TEXT NOT NULL,
    expires TEXT NOT NULL,
    revoked TEXT,
    PRIMARY KEY (id),
    UNIQUE (hash)
);
CREATE TABLE service_reading (
    dataset TEXT NOT NULL,
    number INTEGER NOT NULL,
    version TEXT NOT NULL,
    read TEXT NOT NULL,
    content TEXT,
    PRIMARY KEY (dataset)
);
CREATE TABLE service_session (
    hash TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    key_id TEXT,
    begun TEXT NOT NULL,
    expires TEXT NOT NULL,
    ended TEXT,
    PRIMARY KEY (hash),
    FOREIGN KEY (key_id) REFERENCES service_key (id)
);
CREATE INDEX ledger_shown ON ledger_entry (dataset, "key", analyst);
CREATE INDEX ledger_asked ON ledger_entry (dataset, analyst, number);
CREATE TRIGGER ledger_entry_no_update BEFORE UPDATE ON ledger_entry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_entry_no_delete BEFORE DELETE ON ledger_entry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_answer_no_update BEFORE UPDATE ON ledger_answer BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_answer_no_delete BEFORE DELETE ON ledger_answer BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_retry_no_update BEFORE UPDATE ON ledger_retry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_retry_no_delete BEFORE DELETE ON ledger_retry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_dataset_fixed BEFORE UPDATE OF name, opened, secret, limit_loss, limit_units, limit_delta_units ON ledger_dataset BEGIN SELECT RAISE(ABORT, 'a limit never changes'); END;
CREATE TRIGGER ledger_dataset_kept BEFORE DELETE ON ledger_dataset BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_dataset_forward BEFORE UPDATE ON ledger_dataset WHEN NEW.spent_units < OLD.spent_units OR NEW.entries < OLD.entries BEGIN SELECT RAISE(ABORT, 'what was spent is never refunded'); END;
CREATE TRIGGER ledger_dataset_of_unit BEFORE UPDATE OF unit ON ledger_dataset WHEN OLD.unit IS NOT NULL AND NEW.unit IS NOT OLD.unit BEGIN SELECT RAISE(ABORT, 'a unit never changes'); END;
COMMIT;
