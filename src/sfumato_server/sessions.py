"""Users of the page: their sessions, their logins by a provider of identities, and the name of each identity here.

Sessions live in the server's database and end there.  A browser keeps only a secret that names a session, so leaving
ends it wherever the secret was copied to, and a key that a user entered with is in no browser.

The server knows a login under way by its state, which is used once, within ten minutes, and by the browser that began
it.  An identity keeps the name that it had at first, whatever the provider calls it later, and no second identity gets
that name: stored answers and caps go by names.

Of every secret only the SHA-256 is stored.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sfumato.ledger.audit_log import ActionKind, Actor, Change, record
from sfumato.ledger.database import Driver
from sfumato.ledger.store import Store
from sfumato_server.problems import RefusalError
from sfumato_server.registry import PREFIX, SECRET_BYTES, Key, Scope, digest, refuse_holder, spelled

LONGEST = timedelta(hours=12)
_PREFIX = f"{PREFIX}_session_"


class Sessions:
    """Sessions of a server, over a store that is prepared."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def begin(self, holder: Key, *, identity: str | None = None) -> str:
        """Begin a session for whoever holds a key, or followed a steward's link, and return its secret.

        It lasts half a day, and no longer than its key.  With the ``identity`` that a provider vouched for, the holder
        is nobody's key.
        """
        secret = _PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        begun = datetime.now(UTC)
        by_link = holder.scope is Scope.INVITATION
        row = {
            "hash": digest(secret),
            "id": secrets.token_hex(6),
            "name": holder.name,
            "scope": (Scope.STEWARD if by_link else holder.scope).value,
            "key_id": None if by_link or identity is not None else holder.id,
            "identity": identity,
            "begun": begun.isoformat(),
            "expires": (begun + LONGEST).isoformat(),
        }
        with self._store.writing() as driver:
            driver.insert("service_session", [row])
        return secret

    def holder(self, secret: str) -> Key | None:
        """What a session opens, as a key that is valid for as long as the session and its own key are.

        It has the id of the key, so that whoever begins many sessions sends no more than one key may.
        """
        found = self._found("session.hash = :hash", {"hash": digest(secret)})
        return found[0] if found else None

    def end(self, secret: str) -> None:
        """End one session."""
        self._end("hash = :hash", {"hash": digest(secret)})

    def end_own(self, name: str) -> int:
        """End the sessions of one name, and return how many were open."""
        return self._end("name = :name", {"name": name})

    def end_all(self, *, by: Actor | None = None) -> int:
        """End the sessions of everybody, and return how many were open."""
        with self._store.founding() as driver:
            ended = _end(driver, "1 = 1", {})
            record(driver, Change(ActionKind.SESSIONS, "all", {"open": ended}, {"open": 0}), by)
        return ended

    def has_steward(self) -> bool:
        """Whether anybody is in a steward's session now."""
        return any(each.valid for each in self._found("session.scope = :scope", {"scope": Scope.STEWARD.value}))

    def _found(self, which: str, values: Mapping[str, Any]) -> list[Key]:
        joined = f"""
        SELECT session.*, held.expires AS key_expires, held.revoked AS key_revoked
        FROM service_session AS session LEFT JOIN service_key AS held ON held.id = session.key_id
        WHERE session.ended IS NULL AND {which}"""  # noqa: S608
        with self._store.reading() as driver:
            return [_as_key(row) for row in driver.records(joined, values)]

    def _end(self, which: str, values: Mapping[str, Any]) -> int:
        with self._store.writing() as driver:
            return _end(driver, which, values)


def is_session(secret: str) -> bool:
    """Whether a secret names a session, and not a key."""
    return secret.startswith(_PREFIX)


def _end(driver: Driver, which: str, values: Mapping[str, Any]) -> int:
    end = f"UPDATE service_session SET ended = :now WHERE ended IS NULL AND {which}"  # noqa: S608
    return driver.run(end, {**values, "now": datetime.now(UTC).isoformat()})


def _as_key(row: Mapping[str, Any]) -> Key:
    begun, expires = (datetime.fromisoformat(row[name]) for name in ("begun", "expires"))
    if row["key_expires"] is not None:
        expires = min(expires, datetime.fromisoformat(row["key_expires"]))
    of = row["key_id"] or row["identity"] or row["id"]
    revoked = row["key_revoked"] is not None
    return Key(of, row["name"], Scope(row["scope"]), begun, expires, revoked=revoked, session=row["id"])


LOGIN_LASTS = timedelta(minutes=10)
_MOST_OPEN = 10_000  # logins under way; beyond, the oldest end


@dataclass(frozen=True)
class Login:
    """A login under way; its parts are secrets of the browser, of this server, and of what they ask the provider.

    Attributes:
        state: comes back with the provider's reply.
        browser: what the browser that began it keeps.
        nonce: comes back in the provider's token.
        verifier: of the code that the provider hands out (PKCE).
    """

    state: str
    browser: str
    nonce: str
    verifier: str


class Identities:
    """Identities and logins of a server, over a store that is prepared."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def begin(self) -> Login:
        """Begin a login."""
        login = Login(*(secrets.token_urlsafe(SECRET_BYTES) for _ in range(4)))
        now = datetime.now(UTC)
        row = {
            "state": digest(login.state),
            "browser": digest(login.browser),
            "nonce": login.nonce,
            "verifier": login.verifier,
            "begun": now.isoformat(),
        }
        over = "DELETE FROM service_login WHERE begun < :over"
        newest = "SELECT state FROM service_login ORDER BY begun DESC LIMIT :most"
        with self._store.writing() as driver:
            driver.run(over, {"over": (now - LOGIN_LASTS).isoformat()})
            if driver.value("SELECT COUNT(*) FROM service_login") >= _MOST_OPEN:
                driver.run(f"DELETE FROM service_login WHERE state NOT IN ({newest})", {"most": _MOST_OPEN // 2})  # noqa: S608
            driver.insert("service_login", [row])
        return login

    def take(self, state: str, browser: str) -> Login | None:
        """The login of a state, once, for the browser that began it; None where there is none, or it is over."""
        mine = {"state": digest(state), "browser": digest(browser)}
        which = "WHERE state = :state AND browser = :browser"
        with self._store.writing() as driver:
            row = driver.record(f"SELECT * FROM service_login {which}", mine)  # noqa: S608
            if row is None or not driver.run(f"DELETE FROM service_login {which}", mine):  # noqa: S608
                return None
        if datetime.now(UTC) - datetime.fromisoformat(row["begun"]) > LOGIN_LASTS:
            return None
        return Login(state, browser, row["nonce"], row["verifier"])

    def named(self, identity: str, wanted: str, *, names_of_keys: bool) -> str:
        """The name that an identity has here: the one it had at first, or the wanted one.

        Args:
            identity: what no other identity of any provider has.
            wanted: what the provider calls it.
            names_of_keys: whether it may be the name of somebody who has or had a key: it is then the same analyst.

        Raises:
            InputError: it is no name.
            RefusalError: the name is somebody else's.
        """
        refuse_holder(wanted)
        with self._store.founding() as driver:
            found: str | None = driver.value("SELECT name FROM service_identity WHERE id = :id", {"id": identity})
            if found is not None:
                return found
            taken = [name for (name,) in driver.rows("SELECT name FROM service_identity")]
            holders = [name for (name,) in driver.rows("SELECT DISTINCT name FROM service_key ORDER BY name")]
            name = spelled(wanted, (*taken, *holders))
            if name in taken or (name in holders and not names_of_keys):
                raise RefusalError(
                    "name-taken",
                    "The name is somebody else's here",
                    403,
                    "whoever runs the server can say that names of keys and of the provider are the same people",
                )
            row = {"id": identity, "name": name, "first": datetime.now(UTC).isoformat()}
            driver.insert("service_identity", [row])
        return name
