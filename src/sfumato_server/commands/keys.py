"""``sfumato key``: the keys of a server, in its ledger, whether or not it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.app.cli.options import JsonOption, database
from sfumato.app.cli.output import columns, print_message, result
from sfumato.errors import InputError
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato_server.registry import Key, Registry

app = typer.Typer(no_args_is_help=True, help="Keys of a server: issue, rotate, list, revoke.")

ServerLedger = Annotated[str, typer.Option(help="The server's ledger: a SQLite file, or a database URL.")]
_LEDGER = "sfumato.ledger"


class HolderScope(StrEnum):
    """The scope of a key."""

    STEWARD = "steward"
    ANALYST = "analyst"
    OFFICER = "officer"
    MONITOR = "monitor"


class KeyState(StrEnum):
    """The state of the keys to list."""

    ALL = "all"
    VALID = "valid"
    ENDED = "ended"


@app.command()
def issue(
    name: Annotated[str, typer.Argument(help="Name of the holder. Caps and charges of an analyst belong to the name.")],
    days: Annotated[int, typer.Option(min=1, max=3650, help="Days for which the key is valid.")],
    scope: Annotated[
        HolderScope,
        typer.Option(
            help="What the key may do. An officer reads journals and sign-off pages, a monitor reads metrics."
        ),
    ] = HolderScope.ANALYST,
    ledger: ServerLedger = _LEDGER,
    create: Annotated[bool, typer.Option("--create", help="Create the ledger. Fails if there is one already.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Issue a key and print it. It is shown only once."""
    if create:
        require("server", "the server")
        from sfumato_server.service import create_database

        create_database(database(ledger))
    with _registry(ledger) as registry:
        from sfumato_server.registry import Scope

        key, secret = registry.issue(name, Scope(scope.value), timedelta(days=days))
    _print_secret(key, secret, as_json=as_json)


@app.command()
def rotate(
    key_id: Annotated[str, typer.Argument(help="Id of the key, from 'sfumato key list'.")],
    overlap: Annotated[int, typer.Option(min=0, max=720, help="Hours for which the old key still works.")] = 0,
    ledger: ServerLedger = _LEDGER,
    as_json: JsonOption = False,
) -> None:
    """Replace a key by a new one with the same lifetime, and print the new one. It is shown only once."""
    with _registry(ledger) as registry:
        rotated = registry.rotate(key_id, overlap=timedelta(hours=overlap))
        if rotated is None:
            raise InputError("there is no such key, or it has ended", culprit=key_id)
    key, secret = rotated
    _print_secret(key, secret, as_json=as_json)


@app.command("list")
def listed(
    name: Annotated[str, typer.Option(help="Only keys whose holder's name contains this text.")] = "",
    state: Annotated[KeyState, typer.Option(help="Only keys of this state.")] = KeyState.ALL,
    ending: Annotated[int | None, typer.Option(min=0, help="Only valid keys that end within so many days.")] = None,
    ledger: ServerLedger = _LEDGER,
    as_json: JsonOption = False,
) -> None:
    """List keys, newest first, without their secrets."""
    with _registry(ledger) as registry:
        from sfumato_server.stewards import search_keys

        keys = [
            {"id": each.id, "name": each.name, "scope": each.scope.value, "expires": f"{each.expires:%Y-%m-%d %H:%M}"}
            | {"used": "-" if each.used is None else f"{each.used:%Y-%m-%d %H:%M}"}
            | {"state": "valid" if each.valid else "ended"}
            for each in search_keys(registry, name, state.value, ending)
        ]
    result(keys, columns(keys), as_json=as_json)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="Id of the key, from 'sfumato key list'.")],
    ledger: ServerLedger = _LEDGER,
) -> None:
    """End a key and its sessions. A running server follows within two seconds."""
    with _registry(ledger) as registry:
        if not registry.revoke(key_id):
            raise InputError("there is no such key, or it was revoked before", culprit=key_id)
    print_message(f"The key {key_id} is revoked.")


def _print_secret(key: Key, secret: str, *, as_json: bool) -> None:
    if not as_json:
        print_message(
            f"A key of {key.name}, {key.scope}, valid until {key.expires:%Y-%m-%d %H:%M} UTC, shown only once:"
        )
    result({"id": key.id, "name": key.name, "scope": key.scope.value, "secret": secret}, secret, as_json=as_json)


@contextmanager
def _registry(ledger: str) -> Iterator[Registry]:
    require("server", "the server")
    from sfumato.ledger.store import Store
    from sfumato_server.registry import Registry

    with closing(Store(database(ledger))) as store:
        store.prepare(create=False)
        yield Registry(store)
