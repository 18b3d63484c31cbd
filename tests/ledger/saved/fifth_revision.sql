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
INSERT INTO "ledger_answer" VALUES('old',3,'2026-11-22T17:29:11.587593+00:00',X'6F6C64');
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
INSERT INTO "ledger_dataset" VALUES('old','2026-11-22T17:29:11.578076+00:00','76e5ead142937ad1675ce66ee11ca592932c97e281d655a28a61eaeb818a6646','{"epsilon":"5/4"}',1250000000000,0,'3/4','5/32','0',750000000000,0,3,'79b190334b56633aa3a1d4813c156827be17acbc6dd080fea4c4d4bbd7861795','{"id":"person","kind":"id","rows":2}');
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
INSERT INTO "ledger_entry" VALUES('old',1,'2026-11-22T17:29:11.582093+00:00','release','query','count','baf64b3e63cd5ecc092523fce8d38a6a393e1f3ac0d3b412eb90b495df947d71','{"dataset_version":"c90de1a40bd390b581c0e92e6d44d0148793359b1b0c02770239abded8bb6cbc","family":"query","method":"count","parameters":{"number":0}}','1/4','1/32','0','ann','failed','null','e8b148dc7c3380181de98cd406147c6ccee0683e9dded6c1172bc9776888dda4','c098e6006c09c33b8449e81cde0c3eaf07c146cacbf13a89a79b23afe538436c','{"counted":["1/4","1/32","0"],"fixes_unit":true,"neighbours":"add/remove","unit":"{\"id\":\"person\",\"kind\":\"id\",\"rows\":2}"}');
INSERT INTO "ledger_entry" VALUES('old',2,'2026-11-22T17:29:11.584946+00:00','failed','query','count','baf64b3e63cd5ecc092523fce8d38a6a393e1f3ac0d3b412eb90b495df947d71','{"dataset_version":"c90de1a40bd390b581c0e92e6d44d0148793359b1b0c02770239abded8bb6cbc","family":"query","method":"count","parameters":{"number":0}}','1/4','1/32','0',NULL,'failed','{"release":1}','c098e6006c09c33b8449e81cde0c3eaf07c146cacbf13a89a79b23afe538436c','e0f48f7d3797e9f380337f4475ae436ab25dac3bc879f77b0e3269864ba7ec1d','{"unit":"{\"id\":\"person\",\"kind\":\"id\",\"rows\":2}"}');
INSERT INTO "ledger_entry" VALUES('old',3,'2026-11-22T17:29:11.586647+00:00','release','query','count','56ef51a5ee4f2320b395e91352a80b962f508fdabee0430d52f71c60c2c0d8ed','{"dataset_version":"c90de1a40bd390b581c0e92e6d44d0148793359b1b0c02770239abded8bb6cbc","family":"query","method":"count","parameters":{"number":1}}','1/2','1/8','0','ann','old','null','e0f48f7d3797e9f380337f4475ae436ab25dac3bc879f77b0e3269864ba7ec1d','79b190334b56633aa3a1d4813c156827be17acbc6dd080fea4c4d4bbd7861795','{"counted":["1/2","1/8","0"],"neighbours":"add/remove","unit":"{\"id\":\"person\",\"kind\":\"id\",\"rows\":2}"}');
CREATE TABLE ledger_retry (
    dataset TEXT NOT NULL,
    analyst TEXT NOT NULL,
    retry_key TEXT NOT NULL,
    "key" TEXT NOT NULL,
    PRIMARY KEY (dataset, analyst, retry_key),
    FOREIGN KEY (dataset) REFERENCES ledger_dataset (name)
);
INSERT INTO "ledger_retry" VALUES('old','ann','r','56ef51a5ee4f2320b395e91352a80b962f508fdabee0430d52f71c60c2c0d8ed');
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
