"""``sfumato serve``: answer questions over HTTP, with a page for stewards and analysts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.app.cli.output import remark
from sfumato.errors import InputError

_SAMPLE = "children"
_SAMPLE_LIMIT = "10"


def serve(
    ledger: Annotated[str, typer.Option(help="Ledger: a SQLite file, or a database URL.")] = "sfumato.ledger",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Worker processes.")] = 1,
    sample: Annotated[bool, typer.Option("--sample/--no-sample", help="Register a bundled public table.")] = True,
) -> None:
    """Serve datasets: HTTP, and a page for stewards and analysts.

    Prints a link that opens the page for a steward, once and within an hour.
    """
    try:
        import uvicorn
    except ImportError:
        raise InputError("the server is an extra; install sfumato[server]") from None
    import os
    import tempfile

    from sfumato.app.cli.ledger import database
    from sfumato.app.http.server import LEDGER
    from sfumato.app.http.setup import first_link, register_sample

    url = database(ledger)
    if sample:
        register_sample(url, _SAMPLE, _SAMPLE_LIMIT, Path(ledger).parent if "://" not in ledger else Path())
    remark(f"Steward, once and within an hour: {first_link(url, f'http://{host}:{port}')}")
    with tempfile.TemporaryDirectory(prefix="sfumato-metrics-") as shared:
        os.environ[LEDGER] = url
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = shared
        uvicorn.run(
            "sfumato.app.http.server:application",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            access_log=False,
            log_level="warning",
            server_header=False,
        )
