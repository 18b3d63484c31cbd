"""Who has entered the page: sessions that live in the server's database, and end there.

What a browser keeps names a session and nothing else, so that leaving ends it wherever it was copied to, and a key
that somebody entered with is in no browser.  Of a session's secret only the SHA-256 is stored.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sfumato.app.http.registry import PREFIX, SECRET_BYTES, Key, Scope, digest
from sfumato.ledger.audit_log import ActionKind, Actor, Change, record
from sfumato.ledger.dbapi import Driver
from sfumato.ledger.store import Store

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
        by_link = holder.scope is Scope.LINK
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
