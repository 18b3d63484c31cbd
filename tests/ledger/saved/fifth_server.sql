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
INSERT INTO "ledger_analyst" VALUES('people','ann',NULL,NULL,NULL,'1/2','1/8','0',500000000000,0);
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
INSERT INTO "ledger_answer" VALUES('people',1,'2026-11-23T05:05:43.110999+00:00',1,1,'ed082b41ebc27f86be324770f56a70e4d9ef1b78535102cffe812f5b1b2c030e','0888bc4cbd9f508454e426155b276bcd154684e62f05e412be02dce6903d4229','2026-11-24T22:29:06.022465+00:00',X'6F6C64');
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
INSERT INTO "ledger_dataset" VALUES('people','2026-11-23T05:05:43.084276+00:00','7908149375ae49dc755695ddcf692571607a2000e454c0c1a3cab323a03f78b7','{"epsilon":"3"}',3000000000000,0,'1/2','1/8','0',500000000000,0,1,'0888bc4cbd9f508454e426155b276bcd154684e62f05e412be02dce6903d4229','{"kind":"row"}',1,0,NULL);
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
INSERT INTO "ledger_entry" VALUES('people',1,'2026-11-23T05:05:43.104639+00:00','release','query','count','5e53dd272218343f550b962f6c5462768cfd62d8ba12e8c21f409d0a6580962c','{"dataset_version":"a1c955c63c7ddcbe588764708f7c81483b4dfc31bebed08c8a9e06696dacbc24","family":"query","method":"count","parameters":{"number":1}}','1/2','1/8','0','ann','old','null','c012a31ae9e12e5929c4751457dfb656ded958216257415449f86874e6f58060','ed082b41ebc27f86be324770f56a70e4d9ef1b78535102cffe812f5b1b2c030e','{"counted":["1/2","1/8","0"],"neighbours":"add/remove","unit":"{\"kind\":\"row\"}"}');
CREATE TABLE ledger_retry (
    dataset TEXT NOT NULL,
    analyst TEXT NOT NULL,
    retry_key TEXT NOT NULL,
    "key" TEXT NOT NULL,
    PRIMARY KEY (dataset, analyst, retry_key),
    FOREIGN KEY (dataset) REFERENCES ledger_dataset (name)
);
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
    registered TEXT NOT NULL, called TEXT, retired TEXT,
    PRIMARY KEY (name)
);
INSERT INTO "service_dataset" VALUES('people','/srv/people.parquet','{"sfumato": 1, "unit": "row", "attributes": {"age": {"type": "integer", "minimum": 0, "maximum": 99, "unknown": "clamp"}, "sex": {"type": "categorical", "values": ["F", "M"], "nullable": true, "unknown": "category"}, "income": {"type": "real", "edges": [0, 1000, 5000], "unknown": "clamp"}}}','3',60,'[]','2026-11-23T05:05:43.083958+00:00',NULL,NULL);
CREATE TABLE service_grant (
    dataset TEXT NOT NULL,
    analyst TEXT NOT NULL,
    shut_out INTEGER NOT NULL,
    PRIMARY KEY (dataset, analyst)
);
INSERT INTO "service_grant" VALUES('people','ann',0);
INSERT INTO "service_grant" VALUES('people','bob',1);
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
INSERT INTO "service_job" VALUES('80eb7ee98607cd9043389313','people','ann','{"synthesize": {}}','done',1.0,'done','2026-11-23T05:05:43.099658+00:00','{"of": "nothing"}',X'726F7773');
CREATE TABLE service_key (
    id TEXT NOT NULL,
    hash TEXT NOT NULL,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    issued TEXT NOT NULL,
    expires TEXT NOT NULL,
    revoked TEXT, used TEXT,
    PRIMARY KEY (id),
    UNIQUE (hash)
);
INSERT INTO "service_key" VALUES('5174f982d249','6dfff908b77d295517437dc20c18dc74f503c6e96097813b7140c228b3987ba4','ann','analyst','2026-11-23T05:05:43.087441+00:00','2036-11-20T05:05:43.087441+00:00',NULL,NULL);
INSERT INTO "service_key" VALUES('788825110d86','e25999537f83f64fe3f4829f51ac149c64ed4bd5d527e676f9de88c299b673af','bob','analyst','2026-11-23T05:05:43.088011+00:00','2036-11-20T05:05:43.088011+00:00','2026-11-23T05:05:43.088382+00:00',NULL);
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
INSERT INTO "service_name" VALUES('people','people');
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
    ended TEXT, identity TEXT,
    PRIMARY KEY (hash),
    FOREIGN KEY (key_id) REFERENCES service_key (id)
);
INSERT INTO "service_session" VALUES('a663eb256bed179a5ba564f0297c8bf5a35c78531a6d82baa2a2bc0916963654','c9b4b368b9b8','ann','analyst','5174f982d249','2026-11-23T05:05:43.088758+00:00','2026-11-23T17:05:43.088758+00:00',NULL,NULL);
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
    most TEXT, approval_above TEXT,
    PRIMARY KEY (dataset)
);
INSERT INTO "service_terms" VALUES('people',1,'1','0.5',NULL);
CREATE INDEX ledger_shown ON ledger_entry (dataset, "key", analyst);
CREATE INDEX ledger_asked ON ledger_entry (dataset, analyst, number);
CREATE TRIGGER ledger_entry_no_update BEFORE UPDATE ON ledger_entry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_entry_no_delete BEFORE DELETE ON ledger_entry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_retry_no_update BEFORE UPDATE ON ledger_retry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_retry_no_delete BEFORE DELETE ON ledger_retry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_dataset_fixed BEFORE UPDATE OF name, opened, secret, limit_loss, limit_units, limit_delta_units ON ledger_dataset BEGIN SELECT RAISE(ABORT, 'a limit never changes'); END;
CREATE TRIGGER ledger_dataset_kept BEFORE DELETE ON ledger_dataset BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_dataset_of_unit BEFORE UPDATE OF unit ON ledger_dataset WHEN OLD.unit IS NOT NULL AND NEW.unit IS NOT OLD.unit BEGIN SELECT RAISE(ABORT, 'a unit never changes'); END;
CREATE INDEX service_approval_found ON service_approval (dataset, release);
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
