"""Users of the pages: their sessions, their logins by an identity provider, and the names of their identities.

The server's database holds the sessions, and a browser has only a secret that names one.  So logging out ends a session
wherever its secret was copied to, and no browser has a key.

The server knows a login under way by its state and by a secret of the browser.  A state is used once, within ten
minutes.  An identity keeps its first name, even if the provider changes it.  No second identity gets that name, because
stored answers and caps belong to names.

Only the SHA-256 of each secret is stored.
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
from sfumato_server.registry import PREFIX, SECRET_BYTES, Key, Scope, refuse_holder, registered_name, secret_hash

SESSION_LIFETIME = timedelta(hours=12)
_PREFIX = f"{PREFIX}_session_"


class Sessions:
    """The sessions of a server, in a prepared store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def start(self, holder: Key, *, identity: str | None = None) -> str:
        """Start a session for the holder of a key or of a steward's invitation, and return its secret.

        It ends after half a day, or earlier with its key.  With the ``identity`` of a provider, the holder's key is not
        stored.
        """
        secret = _PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        start = datetime.now(UTC)
        by_link = holder.scope is Scope.INVITATION
        row = {
            "hash": secret_hash(secret),
            "id": secrets.token_hex(6),
            "name": holder.name,
            "scope": (Scope.STEWARD if by_link else holder.scope).value,
            "key_id": None if by_link or identity is not None else holder.id,
            "identity": identity,
            "begun": start.isoformat(),
            "expires": (start + SESSION_LIFETIME).isoformat(),
        }
        with self._store.writing() as driver:
            driver.insert("service_session", [row])
        return secret

    def holder(self, secret: str) -> Key | None:
        """Return the key that a session acts with, which is valid while both the session and its own key are.

        It has the id of that key.  All sessions of one key therefore share its rate limit.
        """
        keys = self._keys("session.hash = :hash", {"hash": secret_hash(secret)})
        return keys[0] if keys else None

    def end(self, secret: str) -> None:
        """End one session."""
        self._end("hash = :hash", {"hash": secret_hash(secret)})

    def end_own(self, name: str) -> int:
        """End the sessions of one name, and return how many were open."""
        return self._end("name = :name", {"name": name})

    def end_all(self, *, by: Actor | None = None) -> int:
        """End the sessions of all users, and return how many were open."""
        with self._store.founding() as driver:
            ended = _end(driver, "1 = 1", {})
            record(driver, Change(ActionKind.SESSIONS, "all", {"open": ended}, {"open": 0}), by)
        return ended

    def has_steward(self) -> bool:
        """Return whether a steward has an open session."""
        return any(each.valid for each in self._keys("session.scope = :scope", {"scope": Scope.STEWARD.value}))

    def _keys(self, condition: str, values: Mapping[str, Any]) -> list[Key]:
        query = f"""
        SELECT session.*, held.expires AS key_expires, held.revoked AS key_revoked
        FROM service_session AS session LEFT JOIN service_key AS held ON held.id = session.key_id
        WHERE session.ended IS NULL AND {condition}"""  # noqa: S608
        with self._store.reading() as driver:
            return [_as_key(row) for row in driver.records(query, values)]

    def _end(self, condition: str, values: Mapping[str, Any]) -> int:
        with self._store.writing() as driver:
            return _end(driver, condition, values)


def is_session(secret: str) -> bool:
    """Return whether a secret names a session instead of a key."""
    return secret.startswith(_PREFIX)


def _end(driver: Driver, condition: str, values: Mapping[str, Any]) -> int:
    end = f"UPDATE service_session SET ended = :now WHERE ended IS NULL AND {condition}"  # noqa: S608
    return driver.run(end, {**values, "now": datetime.now(UTC).isoformat()})


def _as_key(row: Mapping[str, Any]) -> Key:
    start, expires = (datetime.fromisoformat(row[name]) for name in ("begun", "expires"))
    if row["key_expires"] is not None:
        expires = min(expires, datetime.fromisoformat(row["key_expires"]))
    id_ = row["key_id"] or row["identity"] or row["id"]
    revoked = row["key_revoked"] is not None
    return Key(id_, row["name"], Scope(row["scope"]), start, expires, revoked=revoked, session=row["id"])


LOGIN_LIFETIME = timedelta(minutes=10)
_MAX_LOGINS = 10_000  # logins under way; of more, the oldest end


@dataclass(frozen=True)
class Login:
    """A login under way.  Each part is a secret.

    Attributes:
        state: comes back with the provider's reply.
        browser: stays in a cookie of the browser that started the login.
        nonce: comes back in the provider's token.
        verifier: proves to the provider that this server started the login (PKCE).
    """

    state: str
    browser: str
    nonce: str
    verifier: str


class Identities:
    """The identities and logins of a server, in a prepared store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def start_login(self) -> Login:
        """Start a login."""
        login = Login(*(secrets.token_urlsafe(SECRET_BYTES) for _ in range(4)))
        now = datetime.now(UTC)
        row = {
            "state": secret_hash(login.state),
            "browser": secret_hash(login.browser),
            "nonce": login.nonce,
            "verifier": login.verifier,
            "begun": now.isoformat(),
        }
        delete_expired = "DELETE FROM service_login WHERE begun < :start"
        newest = "SELECT state FROM service_login ORDER BY begun DESC LIMIT :most"
        with self._store.writing() as driver:
            driver.run(delete_expired, {"start": (now - LOGIN_LIFETIME).isoformat()})
            if driver.value("SELECT COUNT(*) FROM service_login") >= _MAX_LOGINS:
                driver.run(f"DELETE FROM service_login WHERE state NOT IN ({newest})", {"most": _MAX_LOGINS // 2})  # noqa: S608
            driver.insert("service_login", [row])
        return login

    def take(self, state: str, browser: str) -> Login | None:
        """Return the login of a state and end it; None if there is none for this browser, or it has expired."""
        values = {"state": secret_hash(state), "browser": secret_hash(browser)}
        condition = "WHERE state = :state AND browser = :browser"
        with self._store.writing() as driver:
            row = driver.record(f"SELECT * FROM service_login {condition}", values)  # noqa: S608
            if row is None or not driver.run(f"DELETE FROM service_login {condition}", values):  # noqa: S608
                return None
        if datetime.now(UTC) - datetime.fromisoformat(row["begun"]) > LOGIN_LIFETIME:
            return None
        return Login(state, browser, row["nonce"], row["verifier"])

    def assign_name(self, identity: str, provider_name: str, *, names_of_keys: bool) -> str:
        """Return the name of an identity in this server: its first name, or for a new identity the provider's name.

        Args:
            identity: the id of the identity, unique over all providers.
            provider_name: the name that the provider states.
            names_of_keys: whether the name may be that of a key's holder, who is then the same analyst.

        Raises:
            InputError: the name cannot be used.
            RefusalError: another identity or holder of a key has the name.
        """
        refuse_holder(provider_name)
        with self._store.founding() as driver:
            known: str | None = driver.value("SELECT name FROM service_identity WHERE id = :id", {"id": identity})
            if known is not None:
                return known
            taken = [name for (name,) in driver.rows("SELECT name FROM service_identity")]
            holders = [name for (name,) in driver.rows("SELECT DISTINCT name FROM service_key ORDER BY name")]
            name = registered_name(provider_name, (*taken, *holders))
            if name in taken or (name in holders and not names_of_keys):
                raise RefusalError(
                    "name-taken",
                    "Another person has this name here",
                    403,
                    "the operator can declare that names of keys and of the provider mean the same people",
                )
            row = {"id": identity, "name": name, "first": datetime.now(UTC).isoformat()}
            driver.insert("service_identity", [row])
        return name
