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
	CONSTRAINT within_cap_delta CHECK (0 <= spent_delta_units AND (cap_delta_units IS NULL OR spent_delta_units <= cap_delta_units)), 
	FOREIGN KEY(dataset) REFERENCES ledger_dataset (name)
);
INSERT INTO "ledger_analyst" VALUES('old','ann',NULL,NULL,NULL,'1/2','1/8','0',500000000000,0);
CREATE TABLE ledger_answer (
	dataset TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	time TEXT NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (dataset, number), 
	FOREIGN KEY(dataset, number) REFERENCES ledger_entry (dataset, number)
);
INSERT INTO "ledger_answer" VALUES('old',1,'2026-11-22T04:23:56.205285+00:00',X'6F6C64');
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
	PRIMARY KEY (name), 
	CONSTRAINT within_limit CHECK (0 <= spent_units AND spent_units <= limit_units), 
	CONSTRAINT within_delta CHECK (0 <= spent_delta_units AND spent_delta_units <= limit_delta_units)
);
INSERT INTO "ledger_dataset" VALUES('old','2026-11-22T04:23:56.142705+00:00','eed13779d3959f19e1540d24d616e56242a178d14a43b6ee50bce64fd220bcd8','{"epsilon":"1"}',1000000000000,0,'1/2','1/8','0',500000000000,0,1,'b196bc981c10f7db2f78233625ab227379ffac9216550efcf501bc36115c9d66');
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
	PRIMARY KEY (dataset, number), 
	CONSTRAINT counts_from_one CHECK (number > 0), 
	FOREIGN KEY(dataset) REFERENCES ledger_dataset (name)
);
INSERT INTO "ledger_entry" VALUES('old',1,'2026-11-22T04:23:56.176006+00:00','release','query','count','e079668a0c2aa5950d9bf1d1afc7e87503c17235bdf1a3ea41fc288c8b685c78','{"dataset_version":"16532327836bf7cafcf5d99687313ecce4332ff5afa32e8ff4a38b7e32e6bc6d","family":"query","method":"count","parameters":{"number":1}}','1/2','1/8','0','ann','old','null','584a1d7cc8fe96caf5b57ec1b65634b74d37463cdcd6bdfee8d0a5c83222d86d','b196bc981c10f7db2f78233625ab227379ffac9216550efcf501bc36115c9d66');
CREATE TABLE ledger_retry (
	dataset TEXT NOT NULL, 
	analyst TEXT NOT NULL, 
	retry_key TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	PRIMARY KEY (dataset, analyst, retry_key), 
	FOREIGN KEY(dataset) REFERENCES ledger_dataset (name)
);
INSERT INTO "ledger_retry" VALUES('old','ann','r','e079668a0c2aa5950d9bf1d1afc7e87503c17235bdf1a3ea41fc288c8b685c78');
CREATE TABLE ledger_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT ledger_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "ledger_version" VALUES('0001');
CREATE UNIQUE INDEX ledger_release ON ledger_entry (dataset, "key") WHERE kind = 'release';
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
COMMIT;
