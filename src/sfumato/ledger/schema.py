"""The tables of a ledger, and of the server that uses it.

Exact amounts are text.  The ``*_units`` columns repeat them as integers, so that the database itself refuses to exceed
a limit.  An entry has no rho if the release has no differential privacy guarantee.  Triggers keep the journal
append-only, limits and units fixed, and charges from being refunded.

There is one revision of the tables.  A ledger with any other revision is refused.
"""

from __future__ import annotations

from sfumato.ledger.database import Driver
from sfumato.ledger.entry import digest

REVISION = "0008"
VERSION_TABLE = "ledger_version"

AUDIT_GENESIS = digest("audit log")
"""The hash to which the first action of the audit log is bound."""

_CHECKPOINTS = """CREATE TABLE ledger_checkpoint (
    dataset TEXT NOT NULL,
    number INTEGER NOT NULL,
    hash TEXT NOT NULL,
    unit_is_fixed INTEGER NOT NULL,
    sums TEXT NOT NULL,
    checked TEXT NOT NULL,
    answers INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (dataset),
    FOREIGN KEY (dataset) REFERENCES ledger_dataset (name)
)"""
# place, entries, previous, hash: see journal; found: null if the answer was bound when it was stored
_ANSWERS = """CREATE TABLE ledger_answer (
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
)"""
_VERSIONS = "CREATE INDEX ledger_versions ON ledger_entry (dataset, number) WHERE kind = 'version'"
_BY_ANALYST = "CREATE INDEX ledger_asked ON ledger_entry (dataset, analyst, number)"
_UNCHARGED = "CREATE INDEX ledger_uncharged ON ledger_entry (dataset, number) WHERE rho IS NULL"
JOURNAL_TABLES = (
    """CREATE TABLE ledger_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT ledger_version_pkc PRIMARY KEY (version_num)
)""",
    # secret: random, see entry.journalled_version; unit: null in an old ledger, until its next release fixes it
    """CREATE TABLE ledger_dataset (
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
    answers INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL DEFAULT 0,
    version_digest TEXT,
    PRIMARY KEY (name),
    CONSTRAINT within_limit CHECK (0 <= spent_units AND spent_units <= limit_units),
    CONSTRAINT within_delta CHECK (0 <= spent_delta_units AND spent_delta_units <= limit_delta_units)
)""",
    """CREATE TABLE ledger_analyst (
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
)""",
    # stated: unit, neighbor relation and the counted charge; null in early entries
    """CREATE TABLE ledger_entry (
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
)""",
    'CREATE INDEX ledger_shown ON ledger_entry (dataset, "key", analyst)',
    _ANSWERS,
    # analyst: empty if the request names none
    """CREATE TABLE ledger_retry (
    dataset TEXT NOT NULL,
    analyst TEXT NOT NULL,
    retry_key TEXT NOT NULL,
    "key" TEXT NOT NULL,
    PRIMARY KEY (dataset, analyst, retry_key),
    FOREIGN KEY (dataset) REFERENCES ledger_dataset (name)
)""",
    _BY_ANALYST,
    _VERSIONS,
    _UNCHARGED,
    _CHECKPOINTS,  # the last verified position of each journal
)
_SESSIONS = """CREATE TABLE service_session (
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
)"""
_TERMS = """CREATE TABLE service_terms (
    dataset TEXT NOT NULL,
    granted_only INTEGER NOT NULL,
    default_cap TEXT,
    most TEXT,
    approval_above TEXT,
    PRIMARY KEY (dataset)
)"""
_GRANTS = """CREATE TABLE service_grant (
    dataset TEXT NOT NULL,
    analyst TEXT NOT NULL,
    shut_out INTEGER NOT NULL,
    PRIMARY KEY (dataset, analyst)
)"""
_NAMES = """CREATE TABLE service_name (
    name TEXT NOT NULL,
    dataset TEXT NOT NULL,
    PRIMARY KEY (name)
)"""
_IDENTITIES = """CREATE TABLE service_identity (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    first TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name)
)"""
_LOGINS = """CREATE TABLE service_login (
    state TEXT NOT NULL,
    browser TEXT NOT NULL,
    nonce TEXT NOT NULL,
    verifier TEXT NOT NULL,
    begun TEXT NOT NULL,
    PRIMARY KEY (state)
)"""
_APPROVALS = """CREATE TABLE service_approval (
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
)"""
_APPROVALS_FOUND = "CREATE INDEX service_approval_found ON service_approval (dataset, release)"
_NOTICES = """CREATE TABLE service_notice (
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    state TEXT NOT NULL,
    told TEXT NOT NULL,
    PRIMARY KEY (kind, subject)
)"""
_PROBES = """CREATE TABLE service_probe (
    id TEXT NOT NULL,
    written TEXT NOT NULL,
    PRIMARY KEY (id)
)"""
_ACTIONS = (  # the audit log, and its last number and hash: one row
    """CREATE TABLE service_action (
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
)""",
    """CREATE TABLE service_action_head (
    id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT one_head CHECK (id = 1)
)""",
)
# version: its number; copies: of its tables, with the digests of their files; files: of its source
_SNAPSHOTS = """CREATE TABLE service_snapshot (
    dataset TEXT NOT NULL,
    version TEXT NOT NULL,
    folder TEXT NOT NULL,
    copies TEXT NOT NULL,
    files TEXT NOT NULL,
    PRIMARY KEY (dataset)
)"""
_OPERATION = (_NAMES, _IDENTITIES, _LOGINS, _APPROVALS, _APPROVALS_FOUND, _NOTICES, _PROBES)
SERVER_TABLES = (  # the tables of a server next to its journals
    # name: the permanent name of its ledger; called: its name, or null if both are equal
    """CREATE TABLE service_dataset (
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
)""",
    _SNAPSHOTS,
    """CREATE TABLE service_key (
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
)""",
    """CREATE TABLE service_job (
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
)""",
    _SESSIONS,  # key_id: null if the session started by a link or by an identity provider
    _TERMS,  # limits have the form of ledger limits
    _GRANTS,
    *_OPERATION,  # the names that a dataset has or had; of a login, until it is over; approvals of one release each
)

_FROZEN = ("ledger_entry", "ledger_answer", "ledger_retry")
_FIXED = "name, opened, secret, limit_loss, limit_units, limit_delta_units"
_TRIGGERS = {
    "sqlite": (
        *(
            f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
            "BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"
            for table in _FROZEN
            for verb in ("UPDATE", "DELETE")
        ),
        (
            f"CREATE TRIGGER ledger_dataset_fixed BEFORE UPDATE OF {_FIXED} ON ledger_dataset "
            "BEGIN SELECT RAISE(ABORT, 'a limit never changes'); END"
        ),
        (
            "CREATE TRIGGER ledger_dataset_kept BEFORE DELETE ON ledger_dataset "
            "BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"
        ),
        (
            "CREATE TRIGGER ledger_dataset_forward BEFORE UPDATE ON ledger_dataset "
            "WHEN NEW.spent_units < OLD.spent_units OR NEW.entries < OLD.entries OR NEW.answers < OLD.answers "
            "OR NEW.version < OLD.version BEGIN SELECT RAISE(ABORT, 'what was spent is never refunded'); END"
        ),
    ),
    "postgresql": (
        (
            "CREATE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'the journal is append-only'; END $$"
        ),
        *(
            f"CREATE TRIGGER {table}_frozen BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse()"
            for table in _FROZEN
        ),
        (
            f"CREATE TRIGGER ledger_dataset_fixed BEFORE UPDATE OF {_FIXED} ON ledger_dataset "
            "FOR EACH ROW EXECUTE FUNCTION ledger_refuse()"
        ),
        (
            "CREATE TRIGGER ledger_dataset_kept BEFORE DELETE OR TRUNCATE ON ledger_dataset "
            "FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse()"
        ),
        (
            "CREATE TRIGGER ledger_dataset_forward BEFORE UPDATE ON ledger_dataset FOR EACH ROW "
            "WHEN (NEW.spent_units < OLD.spent_units OR NEW.entries < OLD.entries OR NEW.answers < OLD.answers "
            "OR NEW.version < OLD.version) EXECUTE FUNCTION ledger_refuse()"
        ),
    ),
}
_UNIT_TRIGGER = {
    "sqlite": "CREATE TRIGGER ledger_dataset_of_unit BEFORE UPDATE OF unit ON ledger_dataset "
    "WHEN OLD.unit IS NOT NULL AND NEW.unit IS NOT OLD.unit "
    "BEGIN SELECT RAISE(ABORT, 'a unit never changes'); END",
    "postgresql": "CREATE TRIGGER ledger_dataset_of_unit BEFORE UPDATE OF unit ON ledger_dataset FOR EACH ROW "
    "WHEN (OLD.unit IS NOT NULL AND NEW.unit IS DISTINCT FROM OLD.unit) EXECUTE FUNCTION ledger_refuse()",
}

_AUDIT_TRIGGERS = {
    "sqlite": (
        *(
            f"CREATE TRIGGER service_action_no_{verb.lower()} BEFORE {verb} ON service_action "
            "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
            for verb in ("UPDATE", "DELETE")
        ),
        (
            "CREATE TRIGGER service_action_kept BEFORE DELETE ON service_action_head "
            "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
        ),
        (
            "CREATE TRIGGER service_action_forward BEFORE UPDATE ON service_action_head "
            "WHEN NEW.number <> OLD.number + 1 BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
        ),
    ),
    "postgresql": (
        (
            "CREATE TRIGGER service_action_frozen BEFORE UPDATE OR DELETE OR TRUNCATE ON service_action "
            "FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse()"
        ),
        (
            "CREATE TRIGGER service_action_kept BEFORE DELETE OR TRUNCATE ON service_action_head "
            "FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse()"
        ),
        (
            "CREATE TRIGGER service_action_forward BEFORE UPDATE ON service_action_head FOR EACH ROW "
            "WHEN (NEW.number <> OLD.number + 1) EXECUTE FUNCTION ledger_refuse()"
        ),
    ),
}


def create_tables(driver: Driver) -> None:
    """Create all tables of a ledger and its server, within a transaction in which no other process creates them."""
    on_postgresql = driver.database == "postgresql"
    for table in (*JOURNAL_TABLES, *SERVER_TABLES, *_ACTIONS):
        driver.run(table.replace(" BLOB", " BYTEA") if on_postgresql else table)
    for trigger in (*_TRIGGERS[driver.database], _UNIT_TRIGGER[driver.database], *_AUDIT_TRIGGERS[driver.database]):
        driver.run(trigger)
    driver.insert("service_action_head", [{"id": 1, "number": 0, "hash": AUDIT_GENESIS}])
    driver.insert(VERSION_TABLE, [{"version_num": REVISION}])
