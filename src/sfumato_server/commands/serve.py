"""``sfumato serve``: HTTP, and a page for stewards and analysts."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sfumato.app.cli.options import (
    database,
    remark_log,
)
from sfumato.app.cli.output import (
    print_message,
)
from sfumato.errors import InputError
from sfumato.extras import require

_SAMPLE = "children"
_SAMPLE_LIMIT = "10"


def serve(
    ledger: Annotated[str, typer.Option(help="Ledger: a SQLite file, or a database URL.")] = "sfumato.ledger",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Worker processes.")] = 1,
    create: Annotated[bool, typer.Option("--create", help="Begin the ledger; only where there is none.")] = False,
    sample: Annotated[bool, typer.Option("--sample/--no-sample", help="Register a bundled public table.")] = True,
    link: Annotated[
        bool, typer.Option("--link/--no-link", help="Print a steward's link where there is no steward.")
    ] = True,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            help="A folder, or HOST or HOST:PORT of a database, whose tables may be registered; several times. "
            "Without, anything that this server can read may."
        ),
    ] = None,
    source_passwords: Annotated[
        Path | None,
        typer.Option(
            help="A file with passwords of databases whose tables are registered, a line each: "
            "HOST:PORT:DATABASE:USER:PASSWORD. Addresses of tables hold none."
        ),
    ] = None,
    rate: Annotated[
        int, typer.Option(min=0, help="Requests a minute that a worker takes of one key; 0 for any number.")
    ] = 3000,
    answer_cells: Annotated[
        int, typer.Option(min=0, help="Cells of one answer, groups times aggregates, at most; 0 for any number.")
    ] = 1_000_000,
    large_questions: Annotated[
        int,
        typer.Option(
            min=0, help="Questions of 10,000 cells and more that a worker takes of one key at a time; 0 for any number."
        ),
    ] = 2,
    reply_rate: Annotated[
        int, typer.Option(min=0, help="MiB of replies a minute that a worker sends to one key; 0 for any number.")
    ] = 256,
    snapshots: Annotated[
        str | None,
        typer.Option(
            help="Folder for the rows of declared versions, which the server answers from; without, LEDGER.snapshots "
            "next to a SQLite file, or sfumato/snapshots in the state folder of the server's user."
        ),
    ] = None,
    table_memory: Annotated[
        int, typer.Option(min=0, help="MiB that a worker's tables may hold before it forgets some; 0 for any number.")
    ] = 0,
    base_url: Annotated[
        str | None,
        typer.Option(help="The address under which people reach the server, where that is another: https://HOST."),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(help="Address or network of a proxy whose X-Forwarded headers say who asks; several times."),
    ] = None,
    arrival: Annotated[
        float, typer.Option(min=0.1, help="Seconds within which a request has to arrive, and a reply to be read.")
    ] = 30.0,
    webhook: Annotated[
        str | None,
        typer.Option(help="Address that is sent notices as JSON, such as of a low budget or a release that waits."),
    ] = None,
    webhook_ca_file: Annotated[
        Path | None, typer.Option(help="Certificates of the only authorities trusted for the webhook.")
    ] = None,
    webhook_proxy: Annotated[
        str | None, typer.Option(help="Proxy through which notices go to the webhook: http://HOST:PORT.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="Certificate by which the server itself speaks TLS.")] = None,
    certificate_key: Annotated[Path | None, typer.Option(help="Its private key.")] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin of another site whose pages may use HTTP with a key: https://HOST; several times."),
    ] = None,
    openid: Annotated[
        Path | None, typer.Option(help="A YAML file that names the provider of identities by which people log in.")
    ] = None,
) -> None:
    """Serve datasets: HTTP, and a page for stewards and analysts.

    While nobody holds a steward's key, it prints a link that opens the page for a steward, once and within an hour;
    links that were printed before end.  'sfumato key issue' makes keys without the page.
    """
    require("server", "the server")
    import os
    import tempfile

    from sfumato.app.outbound import outbound
    from sfumato_server.application import ARRIVAL, LEDGER, Settings, refuse_base, refuse_origin, run
    from sfumato_server.openid import OpenIdSettings, refuse_address
    from sfumato_server.problems import SHARED
    from sfumato_server.service import begin, first_invitation, register_sample
    from sfumato_server.sources import read_passwords

    base = None if base_url is None else refuse_base(base_url)
    origins = tuple(map(refuse_origin, origin or ()))
    provider = None if openid is None else OpenIdSettings.read(openid).model_dump()
    if webhook is not None:
        refuse_address(webhook, "a webhook")
    if source_passwords is not None:
        read_passwords(source_passwords)
    outbound(webhook_ca_file, webhook_proxy)  # refuses what would fail at the first notice
    ca_file, passwords = (None if each is None else str(each.resolve()) for each in (webhook_ca_file, source_passwords))
    tls = _tls(certificate, certificate_key)
    port = _free(host, port)  # before anything is made or shown that would be of no use
    url = database(ledger)
    if create:
        begin(url)
    remark_log(url)
    if sample:
        folder = Path(ledger).parent if "://" not in ledger else Path()
        if not register_sample(url, _SAMPLE, _SAMPLE_LIMIT, folder, snapshots=snapshots):
            print_message(f"The bundled table is not registered: {folder / _SAMPLE}.parquet is a file of yours.")
    scheme = "http" if tls is None else "https"
    address = f"{scheme}://{host}:{port}" if base is None else base
    entrance = first_invitation(url, address) if link else None
    print_message(f"Serving at {address}")
    if entrance is not None:
        print_message(f"Steward, once and within an hour: {entrance}")
    with tempfile.TemporaryDirectory(prefix="sfumato-metrics-") as shared:
        os.environ |= {LEDGER: url, ARRIVAL: str(arrival)}
        bytes_kept = table_memory << 20
        settings = Settings(tuple(tables or ()), rate, address, base, provider, origins, webhook, bytes_kept, snapshots)
        settings = replace(settings, source_passwords=passwords, webhook_ca_file=ca_file, webhook_proxy=webhook_proxy)
        cells, at_once = answer_cells, large_questions
        settings = replace(settings, answer_cells=cells, large_questions=at_once, reply_bytes=reply_rate << 20)
        settings.to_environment()
        if workers > 1:  # a single worker is this process, which counts in its own memory
            os.environ[SHARED] = shared
        run(
            "sfumato_server.application:application",
            host=host,
            port=port,
            workers=workers,
            proxies=trusted_proxy or (),
            tls=tls,
        )


def _tls(certificate: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    """A certificate and its key, of which both or none are named.

    Raises:
        InputError: one is missing, or they cannot be read or do not belong together.
    """
    import ssl

    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise InputError("TLS needs both --certificate and --certificate-key")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:  # as SSLError is
        raise InputError(f"{certificate} and {key} are no certificate and its key", culprit=certificate) from error
    return certificate, key


def _free(host: str, port: int) -> int:
    """The port, or any free one for 0.

    Raises:
        InputError: this machine has no such address, or another program listens there.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as found:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            found.bind(address)
            return int(found.getsockname()[1])
    except OSError as error:
        reason = error.strerror or "the address cannot be used"
        raise InputError(
            f"cannot listen on {host} port {port}: {reason}; choose another by --port", culprit=port
        ) from None
