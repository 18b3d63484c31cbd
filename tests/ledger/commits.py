"""Commits that PostgreSQL refuses, does not live to see, or makes without the news coming back."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from sqlalchemy.engine import make_url
from tests.ledger.asking import behind_its_back

_MOST = 1 << 16


@contextmanager
def failing(url: str, how: str) -> Iterator[None]:
    """Make every commit that adds an entry do something in PL/pgSQL first."""
    behind_its_back(
        url,
        f"CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {how}; RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER failing AFTER INSERT ON ledger_entry DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION fail()",
    )
    yield
    behind_its_back(url, "DROP FUNCTION fail CASCADE")


class Wire:
    """A connection to PostgreSQL that breaks at a commit if ``breaks`` returns True.

    The commit reaches the server, which makes it; the news is lost with the connection.
    """

    def __init__(self, url: str) -> None:
        address = make_url(url)
        self._server = (address.host, address.port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        plain = {"sslmode": "disable", "gssencmode": "disable"}  # so that a commit can be seen
        through = address.set(host="127.0.0.1", port=self._listening.getsockname()[1]).update_query_dict(plain)
        self.url = through.render_as_string(hide_password=False)
        self.breaks: Callable[[], bool] = lambda: False
        self.broken = 0
        self._clients: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Let nobody in any longer."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def cut(self) -> None:
        """Break every connection that there is."""
        while self._clients:
            with suppress(OSError):  # it has ended
                self._clients.pop().shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                client, _ = self._listening.accept()
                self._clients.append(client)
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with (
            suppress(OSError),
            client,
            socket.create_connection(self._server) as server,
            selectors.DefaultSelector() as selector,  # `select.select` fails for descriptors above 1023
        ):
            selector.register(client, selectors.EVENT_READ)
            selector.register(server, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                for end, other in ((client, server), (server, client)):
                    if end not in ready:
                        continue
                    sent = end.recv(_MOST)
                    if not sent:
                        return
                    other.sendall(sent)
                    if end is client and sent.endswith(b"COMMIT\0") and self.breaks():
                        assert server.recv(_MOST)  # the commit is made
                        self.broken += 1
                        return
