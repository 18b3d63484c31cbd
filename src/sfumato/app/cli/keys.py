"""``sfumato key``: who may enter a server, kept in its ledger, whether or not it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.app.cli.conventions import JsonOption, columns, database, remark, result
from sfumato.errors import InputError
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato.app.http.registry import Registry

app = typer.Typer(no_args_is_help=True, help="Keys of a server: issue, list, revoke.")

Ledger = Annotated[str, typer.Option(help="The server's ledger: a SQLite file, or a database URL.")]
_LEDGER = "sfumato.ledger"


class HolderScope(StrEnum):
    """What a key may do."""

    STEWARD = "steward"
    ANALYST = "analyst"


@app.command()
def issue(
    name: Annotated[str, typer.Argument(help="Name of its holder; an analyst's caps and charges go by it.")],
    days: Annotated[int, typer.Option(min=1, max=3650, help="Days for which it is valid.")],
    scope: Annotated[HolderScope, typer.Option(help="What it may do.")] = HolderScope.ANALYST,
    ledger: Ledger = _LEDGER,
    as_json: JsonOption = False,
) -> None:
    """Issue a key and print it, this once: the first steward needs no page for it."""
    with _registry(ledger) as registry:
        from sfumato.app.http.registry import Scope

        key, secret = registry.issue(name, Scope(scope.value), timedelta(days=days))
    if not as_json:
        remark(f"A key of {key.name}, {key.scope}, valid until {key.expires:%Y-%m-%d %H:%M} UTC, shown only now:")
    result({"id": key.id, "name": key.name, "scope": key.scope.value, "secret": secret}, secret, as_json=as_json)


@app.command("list")
def listed(ledger: Ledger = _LEDGER, as_json: JsonOption = False) -> None:
    """List all keys, newest first, without their secrets."""
    with _registry(ledger) as registry:
        keys = [
            {"id": each.id, "name": each.name, "scope": each.scope.value, "expires": f"{each.expires:%Y-%m-%d %H:%M}"}
            | {"state": "valid" if each.valid else "ended"}
            for each in registry.all_keys()
        ]
    result(keys, columns(keys), as_json=as_json)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="Id of the key, as the list has it.")], ledger: Ledger = _LEDGER
) -> None:
    """End a key and the sessions that were begun with it; a server that runs forgets it within two seconds."""
    with _registry(ledger) as registry:
        if not registry.revoke(key_id):
            raise InputError("there is no such key, or it was revoked before", culprit=key_id)
    remark(f"The key {key_id} is revoked.")


@contextmanager
def _registry(ledger: str) -> Iterator[Registry]:
    require("server", "the server")
    from sfumato.app.http.registry import Registry
    from sfumato.ledger.store import Store

    with closing(Store(database(ledger))) as store:
        store.prepare(create=False)
        yield Registry(store)
