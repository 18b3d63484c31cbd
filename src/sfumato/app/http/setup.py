"""What a new server starts with: a public sample table, and a link for its first steward."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from sfumato.app.http.service import Service
from sfumato.errors import InputError
from sfumato.ledger.registry import Scope
from sfumato.ledger.store import Store

_LINK = timedelta(hours=1)


def begin(url: str) -> None:
    """Make the database of a new server.

    Raises:
        InputError: there is one already.
    """
    with closing(Store(url)) as store:
        if store.exists():
            raise InputError("there is a ledger already; leave out --create, which begins a new one", culprit=url)
        store.prepare(create=True)


def register_sample(url: str, name: str, limit: str, folder: Path) -> bool:
    """Write the bundled table of a million children to a file, and register it, unless that was done before.

    Returns:
        Whether it is registered now: it is not where the file of that name holds something else.
    """
    from pyarrow import parquet

    from sfumato import data

    path = folder.resolve() / f"{name}.parquet"
    with closing(Service(url)) as service:
        if service.registry.dataset(name) is not None:
            return True
        bundled = data.child_mental_health()
        if not path.exists():
            parquet.write_table(bundled, path)
        elif not _holds(path, bundled):
            return False
        described = data.domain("child_mental_health")
        more = {"rows": int(data.child_mental_health_counts().sum())}  # published
        service.register(name, source=str(path), domain=described.describe(), limit=limit, more=more)
    return True


def _holds(path: Path, table: pa.Table) -> bool:
    from pyarrow import parquet

    try:
        return bool(parquet.read_table(path).equals(table))
    except (pa.ArrowException, OSError):
        return False


def first_link(url: str, address: str) -> str:
    """A link that opens the page for a steward, once."""
    with closing(Service(url)) as service:
        _, secret = service.registry.issue("steward", Scope.LINK, _LINK)
    return f"{address}/enter?link={secret}"
