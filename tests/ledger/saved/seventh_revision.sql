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
    place INTEGER NOT NULL,
    entries INTEGER NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL,
    found TEXT,
    body BLOB NOT NULL,
    PRIMARY KEY (dataset, number),
    UNIQUE (dataset, place),
    FOREIGN KEY (dataset, number) REFERENCES ledger_entry (dataset, number)
);
INSERT INTO "ledger_answer" VALUES('old',3,'2026-11-23T15:29:21.125145+00:00',1,3,'5160af28786d3a425abcb74c8ce7081b3c3b7159d445834b2dbdf3688f6d1189','ee6eacb75085ac30590256f43c6405bad3a89d13c8dd127752b177a63c1c70b2',NULL,X'6F6C64');
CREATE TABLE ledger_checkpoint (
    dataset TEXT NOT NULL,
    number INTEGER NOT NULL,
    hash TEXT NOT NULL,
    unit_is_fixed INTEGER NOT NULL,
    sums TEXT NOT NULL,
    checked TEXT NOT NULL,
    answers INTEGER NOT NULL DEFAULT 0,
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
    answers INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT 0, version_digest TEXT,
    PRIMARY KEY (name),
    CONSTRAINT within_limit CHECK (0 <= spent_units AND spent_units <= limit_units),
    CONSTRAINT within_delta CHECK (0 <= spent_delta_units AND spent_delta_units <= limit_delta_units)
);
INSERT INTO "ledger_dataset" VALUES('old','2026-11-23T15:29:21.076210+00:00','031d77928f69aa83efe880d90e0b400f46a471cab309158f0e93781d912f681b','{"epsilon":"5/4"}',1250000000000,0,'3/4','5/32','0',750000000000,0,3,'ee6eacb75085ac30590256f43c6405bad3a89d13c8dd127752b177a63c1c70b2','{"id":"person","kind":"id","rows":2}',1,0,NULL);
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
INSERT INTO "ledger_entry" VALUES('old',1,'2026-11-23T15:29:21.102725+00:00','release','query','count','50492fd79a4608605af79466f3beb20f0d07a17bef5551c940293f65cb2ec2f6','{"dataset_version":"bf5d7bbf9a30093f58a119c0aaa95c8ae1c8a6002526d009c343ba5aa46d1968","family":"query","method":"count","parameters":{"number":0}}','1/4','1/32','0','ann','failed','null','9978a535800d0852e2aced97b25aa321c5fd7e67cab9ba7a0d54c01eb7740ea3','94d9c0f47c4bdd1ab8e063c99717258716569c7103b93c38725926e99e670722','{"counted":["1/4","1/32","0"],"neighbours":"add/remove","unit":"{\"id\":\"person\",\"kind\":\"id\",\"rows\":2}"}');
INSERT INTO "ledger_entry" VALUES('old',2,'2026-11-23T15:29:21.113279+00:00','failed','query','count','50492fd79a4608605af79466f3beb20f0d07a17bef5551c940293f65cb2ec2f6','{"dataset_version":"bf5d7bbf9a30093f58a119c0aaa95c8ae1c8a6002526d009c343ba5aa46d1968","family":"query","method":"count","parameters":{"number":0}}','1/4','1/32','0',NULL,'failed','{"release":1}','94d9c0f47c4bdd1ab8e063c99717258716569c7103b93c38725926e99e670722','01c760aec226d53f043b9fa5c75f602d76dee1b4267a6b72f606a587e645fa49','{"unit":"{\"id\":\"person\",\"kind\":\"id\",\"rows\":2}"}');
INSERT INTO "ledger_entry" VALUES('old',3,'2026-11-23T15:29:21.121751+00:00','release','query','count','fac1db5f534dda8b23b79359af07fdd2d076ced4310f1d8cc254999e1f291e1d','{"dataset_version":"bf5d7bbf9a30093f58a119c0aaa95c8ae1c8a6002526d009c343ba5aa46d1968","family":"query","method":"count","parameters":{"number":1}}','1/2','1/8','0','ann','old','null','01c760aec226d53f043b9fa5c75f602d76dee1b4267a6b72f606a587e645fa49','5160af28786d3a425abcb74c8ce7081b3c3b7159d445834b2dbdf3688f6d1189','{"counted":["1/2","1/8","0"],"neighbours":"add/remove","unit":"{\"id\":\"person\",\"kind\":\"id\",\"rows\":2}"}');
CREATE TABLE ledger_retry (
    dataset TEXT NOT NULL,
    analyst TEXT NOT NULL,
    retry_key TEXT NOT NULL,
    "key" TEXT NOT NULL,
    PRIMARY KEY (dataset, analyst, retry_key),
    FOREIGN KEY (dataset) REFERENCES ledger_dataset (name)
);
INSERT INTO "ledger_retry" VALUES('old','ann','r','fac1db5f534dda8b23b79359af07fdd2d076ced4310f1d8cc254999e1f291e1d');
CREATE TABLE ledger_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT ledger_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "ledger_version" VALUES('0008');
CREATE TABLE service_action (
    number INTEGER NOT NULL,
    time TEXT NOT NULL,
    actor TEXT NOT NULL,
    through TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    state_before TEXT NOT NULL,
    state_after TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (number)
);
CREATE TABLE service_action_head (
    id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT one_head CHECK (id = 1)
);
INSERT INTO "service_action_head" VALUES(1,0,'fad2c4429e69ccf95429a372036db522b7c50e351538f390fc600884eaf052c1');
CREATE TABLE service_approval (
    id TEXT NOT NULL,
    dataset TEXT NOT NULL,
    release TEXT NOT NULL,
    asked_by TEXT NOT NULL,
    asked TEXT NOT NULL,
    question TEXT NOT NULL,
    cost TEXT NOT NULL,
    approved_by TEXT,
    approved TEXT,
    key_id TEXT,
    expires TEXT,
    closed TEXT,
    PRIMARY KEY (id)
);
CREATE TABLE service_dataset (
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    domain TEXT NOT NULL,
    limit_text TEXT NOT NULL,
    rows INTEGER,
    discoverable TEXT NOT NULL,
    registered TEXT NOT NULL,
    called TEXT,
    retired TEXT,
    PRIMARY KEY (name)
);
CREATE TABLE service_grant (
    dataset TEXT NOT NULL,
    analyst TEXT NOT NULL,
    shut_out INTEGER NOT NULL,
    PRIMARY KEY (dataset, analyst)
);
CREATE TABLE service_identity (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    first TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name)
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
    used TEXT,
    PRIMARY KEY (id),
    UNIQUE (hash)
);
CREATE TABLE service_login (
    state TEXT NOT NULL,
    browser TEXT NOT NULL,
    nonce TEXT NOT NULL,
    verifier TEXT NOT NULL,
    begun TEXT NOT NULL,
    PRIMARY KEY (state)
);
CREATE TABLE service_name (
    name TEXT NOT NULL,
    dataset TEXT NOT NULL,
    PRIMARY KEY (name)
);
CREATE TABLE service_notice (
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    state TEXT NOT NULL,
    told TEXT NOT NULL,
    PRIMARY KEY (kind, subject)
);
CREATE TABLE service_probe (
    id TEXT NOT NULL,
    written TEXT NOT NULL,
    PRIMARY KEY (id)
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
    identity TEXT,
    PRIMARY KEY (hash),
    FOREIGN KEY (key_id) REFERENCES service_key (id)
);
CREATE TABLE service_snapshot (
    dataset TEXT NOT NULL,
    version TEXT NOT NULL,
    folder TEXT NOT NULL,
    copies TEXT NOT NULL,
    files TEXT NOT NULL,
    PRIMARY KEY (dataset)
);
CREATE TABLE service_terms (
    dataset TEXT NOT NULL,
    granted_only INTEGER NOT NULL,
    default_cap TEXT,
    most TEXT,
    approval_above TEXT,
    PRIMARY KEY (dataset)
);
CREATE INDEX ledger_shown ON ledger_entry (dataset, "key", analyst);
CREATE INDEX ledger_asked ON ledger_entry (dataset, analyst, number);
CREATE INDEX service_approval_found ON service_approval (dataset, release);
CREATE TRIGGER ledger_entry_no_update BEFORE UPDATE ON ledger_entry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_entry_no_delete BEFORE DELETE ON ledger_entry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_answer_no_update BEFORE UPDATE ON ledger_answer BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_answer_no_delete BEFORE DELETE ON ledger_answer BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_retry_no_update BEFORE UPDATE ON ledger_retry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_retry_no_delete BEFORE DELETE ON ledger_retry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_dataset_fixed BEFORE UPDATE OF name, opened, secret, limit_loss, limit_units, limit_delta_units ON ledger_dataset BEGIN SELECT RAISE(ABORT, 'a limit never changes'); END;
CREATE TRIGGER ledger_dataset_kept BEFORE DELETE ON ledger_dataset BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_dataset_of_unit BEFORE UPDATE OF unit ON ledger_dataset WHEN OLD.unit IS NOT NULL AND NEW.unit IS NOT OLD.unit BEGIN SELECT RAISE(ABORT, 'a unit never changes'); END;
CREATE INDEX ledger_versions ON ledger_entry (dataset, number) WHERE kind = 'version';
CREATE TRIGGER ledger_dataset_forward BEFORE UPDATE ON ledger_dataset WHEN NEW.spent_units < OLD.spent_units OR NEW.entries < OLD.entries OR NEW.answers < OLD.answers OR NEW.version < OLD.version BEGIN SELECT RAISE(ABORT, 'what was spent is never refunded'); END;
CREATE INDEX ledger_uncharged ON ledger_entry (dataset, number) WHERE rho IS NULL;
CREATE TRIGGER service_action_no_update BEFORE UPDATE ON service_action BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER service_action_no_delete BEFORE DELETE ON service_action BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER service_action_kept BEFORE DELETE ON service_action_head BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER service_action_forward BEFORE UPDATE ON service_action_head WHEN NEW.number <> OLD.number + 1 BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
COMMIT;
