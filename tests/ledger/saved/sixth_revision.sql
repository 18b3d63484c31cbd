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
INSERT INTO "ledger_answer" VALUES('old',3,'2026-11-23T05:06:33.827769+00:00',1,3,'d5ba783a8e5018532364984e3c0df3da67ab3446aba5390d8a44ad4fc4be40a0','5d0cff80e07263fec60122f663d38eca9fad65fe615c4ca38c4177f21f5057ab','2026-11-24T22:29:06.323423+00:00',X'6F6C64');
CREATE TABLE ledger_checkpoint (
    dataset TEXT NOT NULL,
    number INTEGER NOT NULL,
    hash TEXT NOT NULL,
    unit_is_fixed INTEGER NOT NULL,
    sums TEXT NOT NULL,
    checked TEXT NOT NULL, answers INTEGER NOT NULL DEFAULT 0,
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
    unit TEXT, answers INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT 0, version_digest TEXT,
    PRIMARY KEY (name),
    CONSTRAINT within_limit CHECK (0 <= spent_units AND spent_units <= limit_units),
    CONSTRAINT within_delta CHECK (0 <= spent_delta_units AND spent_delta_units <= limit_delta_units)
);
INSERT INTO "ledger_dataset" VALUES('old','2026-11-23T05:06:33.803840+00:00','3a6eb9a94cdd8e52a132333bcec7144252c4797d9c31269f73ef56b710ad1cd7','{"epsilon":"5/4"}',1250000000000,0,'3/4','5/32','0',750000000000,0,3,'5d0cff80e07263fec60122f663d38eca9fad65fe615c4ca38c4177f21f5057ab','{"id":"person","kind":"id","rows":2}',1,0,NULL);
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
INSERT INTO "ledger_entry" VALUES('old',1,'2026-11-23T05:06:33.812525+00:00','release','query','count','318738c4f6abab6c7aab516b3ed85d2de6313a4702550fe3f39c61f75574eb70','{"dataset_version":"17b44ac0a356205f2c21c2711f34ebd98404a9cca1f7f62763c1736e32a21c6d","family":"query","method":"count","parameters":{"number":0}}','1/4','1/32','0','ann','old','null','ded5ac33ed393cfaf2cbb1b2a89dc593488f488364cfdf4e92b40d477dd7110a','ebd3921d113d4137268d29a51a7ef7c9bd75b7edb51559ff5ee3052bfed17bf2','{"counted":["1/4","1/32","0"],"fixes_unit":true,"neighbours":"add/remove","unit":"{\"id\":\"person\",\"kind\":\"id\",\"rows\":2}"}');
INSERT INTO "ledger_entry" VALUES('old',2,'2026-11-23T05:06:33.819891+00:00','failed','query','count','318738c4f6abab6c7aab516b3ed85d2de6313a4702550fe3f39c61f75574eb70','{"dataset_version":"17b44ac0a356205f2c21c2711f34ebd98404a9cca1f7f62763c1736e32a21c6d","family":"query","method":"count","parameters":{"number":0}}','1/4','1/32','0',NULL,'old','{"release":1}','ebd3921d113d4137268d29a51a7ef7c9bd75b7edb51559ff5ee3052bfed17bf2','60d6919ba7355b0d59bb3199e59cbbc38b07a6175f673210fe690b507dbd19a8','{"unit":"{\"id\":\"person\",\"kind\":\"id\",\"rows\":2}"}');
INSERT INTO "ledger_entry" VALUES('old',3,'2026-11-23T05:06:33.824043+00:00','release','query','count','29753db0c1bd1e0a9791b6985439f2713ca37f68450da17fdf98f5700bff0787','{"dataset_version":"17b44ac0a356205f2c21c2711f34ebd98404a9cca1f7f62763c1736e32a21c6d","family":"query","method":"count","parameters":{"number":1}}','1/2','1/8','0','ann','old','null','60d6919ba7355b0d59bb3199e59cbbc38b07a6175f673210fe690b507dbd19a8','d5ba783a8e5018532364984e3c0df3da67ab3446aba5390d8a44ad4fc4be40a0','{"counted":["1/2","1/8","0"],"neighbours":"add/remove","unit":"{\"id\":\"person\",\"kind\":\"id\",\"rows\":2}"}');
CREATE TABLE ledger_retry (
    dataset TEXT NOT NULL,
    analyst TEXT NOT NULL,
    retry_key TEXT NOT NULL,
    "key" TEXT NOT NULL,
    PRIMARY KEY (dataset, analyst, retry_key),
    FOREIGN KEY (dataset) REFERENCES ledger_dataset (name)
);
INSERT INTO "ledger_retry" VALUES('old','ann','r','29753db0c1bd1e0a9791b6985439f2713ca37f68450da17fdf98f5700bff0787');
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
CREATE TRIGGER ledger_retry_no_update BEFORE UPDATE ON ledger_retry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_retry_no_delete BEFORE DELETE ON ledger_retry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_dataset_fixed BEFORE UPDATE OF name, opened, secret, limit_loss, limit_units, limit_delta_units ON ledger_dataset BEGIN SELECT RAISE(ABORT, 'a limit never changes'); END;
CREATE TRIGGER ledger_dataset_kept BEFORE DELETE ON ledger_dataset BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_dataset_of_unit BEFORE UPDATE OF unit ON ledger_dataset WHEN OLD.unit IS NOT NULL AND NEW.unit IS NOT OLD.unit BEGIN SELECT RAISE(ABORT, 'a unit never changes'); END;
CREATE TRIGGER ledger_answer_no_update BEFORE UPDATE ON ledger_answer BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_answer_no_delete BEFORE DELETE ON ledger_answer BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE INDEX ledger_versions ON ledger_entry (dataset, number) WHERE kind = 'version';
CREATE TRIGGER ledger_dataset_forward BEFORE UPDATE ON ledger_dataset WHEN NEW.spent_units < OLD.spent_units OR NEW.entries < OLD.entries OR NEW.answers < OLD.answers OR NEW.version < OLD.version BEGIN SELECT RAISE(ABORT, 'what was spent is never refunded'); END;
CREATE INDEX ledger_uncharged ON ledger_entry (dataset, number) WHERE rho IS NULL;
CREATE TRIGGER service_action_no_update BEFORE UPDATE ON service_action BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER service_action_no_delete BEFORE DELETE ON service_action BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER service_action_kept BEFORE DELETE ON service_action_head BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER service_action_forward BEFORE UPDATE ON service_action_head WHEN NEW.number <> OLD.number + 1 BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
COMMIT;
