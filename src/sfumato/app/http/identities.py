"""Who entered by a provider of identities: logins under way, and the name that each identity has here.

A login under way is known by its state, which is used once, within ten minutes, and by the browser that began it.  Of
both only the SHA-256 is stored.  An identity keeps the name that it had at first, whatever the provider calls it later,
and no second identity gets that name: stored answers and caps go by names.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sfumato.app.http.problems import RefusalError
from sfumato.app.http.registry import SECRET_BYTES, digest, refuse_holder, spelled
from sfumato.ledger.store import Store

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
