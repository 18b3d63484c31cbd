"""``sfumato serve``: HTTP, and pages for stewards and analysts."""

from __future__ import annotations

import os
import socket
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.app.cli.options import database, warn_about_unmerged_log
from sfumato.app.cli.output import print_message
from sfumato.errors import InputError
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato_server.application import Settings

_SAMPLE = "children"
_SAMPLE_LIMIT = "10"


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The ledger of a server, where it listens, and how it starts."""

    ledger: Annotated[str, typer.Option(help="Ledger: a SQLite file, or a database URL.")] = "sfumato.ledger"
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8000
    workers: Annotated[int, typer.Option(min=1, max=64, help="Worker processes.")] = 1
    create: Annotated[bool, typer.Option("--create", help="Create the ledger. Fails if there is one already.")] = False
    sample: Annotated[bool, typer.Option("--sample/--no-sample", help="Register a bundled public table.")] = True
    link: Annotated[
        bool, typer.Option("--link/--no-link", help="Print a link for the first steward, if there is no steward.")
    ] = True


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The tables that a server may read, and where it stores their snapshots."""

    tables: Annotated[
        list[str] | None,
        typer.Option(
            help="A folder, or HOST or HOST:PORT of a database, whose tables may be registered. Repeatable. "
            "Default: everything that the server can read."
        ),
    ] = None
    source_passwords: Annotated[
        Path | None,
        typer.Option(
            help="A file with the passwords of databases, one per line: HOST:PORT:DATABASE:USER:PASSWORD. "
            "Registered addresses hold no password."
        ),
    ] = None
    snapshots: Annotated[
        str | None,
        typer.Option(
            help="Folder for copies of the tables, from which the server answers. Default: LEDGER.snapshots next to a "
            "SQLite file, or sfumato/snapshots in the state folder of the server's user."
        ),
    ] = None
    table_memory: Annotated[
        int, typer.Option(min=0, help="MiB of tables that a worker caches. Default: 0, for no limit.")
    ] = 0


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """The limits of keys and of connections."""

    rate: Annotated[int, typer.Option(min=0, help="Requests per minute and key in a worker; 0 for no limit.")] = 3000
    answer_cells: Annotated[
        int, typer.Option(min=0, help="Largest number of cells in an answer, groups times aggregates; 0 for no limit.")
    ] = 1_000_000
    large_questions: Annotated[
        int,
        typer.Option(min=0, help="Questions of 10,000 cells or more at a time, per key in a worker; 0 for no limit."),
    ] = 2
    reply_rate: Annotated[
        int, typer.Option(min=0, help="MiB of replies per minute and key in a worker; 0 for no limit.")
    ] = 256
    arrival: Annotated[
        float, typer.Option(min=0.1, help="Seconds within which a request has to arrive, and a reply to be read.")
    ] = 30.0


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """The addresses, proxies, TLS and logins of a server."""

    base_url: Annotated[
        str | None,
        typer.Option(help="The address by which people reach the server, if it differs: https://HOST."),
    ] = None
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(help="Address or network of a proxy whose X-Forwarded headers are trusted. Repeatable."),
    ] = None
    certificate: Annotated[Path | None, typer.Option(help="TLS certificate of the server.")] = None
    certificate_key: Annotated[Path | None, typer.Option(help="Private key of the certificate.")] = None
    origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin of another site whose pages may send requests with a key: https://HOST. Repeatable."),
    ] = None
    openid: Annotated[
        Path | None, typer.Option(help="A YAML file about the identity provider by which people sign in.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class WebhookOptions:
    """The webhook that gets notices."""

    webhook: Annotated[
        str | None,
        typer.Option(help="Address that gets notices as JSON, such as of a low budget or a release that waits."),
    ] = None
    webhook_ca_file: Annotated[
        Path | None, typer.Option(help="Certificates of the only trusted authorities for the webhook.")
    ] = None
    webhook_proxy: Annotated[
        str | None, typer.Option(help="Proxy through which notices go to the webhook: http://HOST:PORT.")
    ] = None


def serve(
    server: ServerOptions, tables: TableOptions, limits: LimitOptions, network: NetworkOptions, webhook: WebhookOptions
) -> None:
    """Serve datasets over HTTP and on web pages for analysts, stewards and privacy officers.

    If there is no steward, it prints a link that signs a steward in, once and within an hour.  Earlier links end.
    'sfumato key issue' makes keys without the page.
    """
    require("server", "the server")
    from sfumato_server.application import ARRIVAL, LEDGER, run
    from sfumato_server.problems import SHARED
    from sfumato_server.service import create_database, first_invitation

    settings = _settings(tables, limits, network, webhook)
    tls = _tls(network.certificate, network.certificate_key)
    port = _free_port(server.host, server.port)  # refuses a port in use before anything is created
    url = database(server.ledger)
    if server.create:
        create_database(url)
    warn_about_unmerged_log(url)
    if server.sample:
        _register_sample(server.ledger, tables.snapshots)
    address = settings.base_url or f"{'http' if tls is None else 'https'}://{server.host}:{port}"
    invitation = first_invitation(url, address) if server.link else None
    print_message(f"Serving at {address}")
    if invitation is not None:
        print_message(f"Steward, once and within an hour: {invitation}")
    with tempfile.TemporaryDirectory(prefix="sfumato-metrics-") as shared:
        os.environ |= {LEDGER: url, ARRIVAL: str(limits.arrival)}
        replace(settings, address=address).to_environment()
        if server.workers > 1:  # a single worker is this process, which counts in its own memory
            os.environ[SHARED] = shared
        run(
            "sfumato_server.application:application",
            host=server.host,
            port=port,
            workers=server.workers,
            proxies=network.trusted_proxy or (),
            tls=tls,
        )


def _settings(tables: TableOptions, limits: LimitOptions, network: NetworkOptions, webhook: WebhookOptions) -> Settings:
    """Return the settings of the workers, without the server's address.

    Raises:
        InputError: an address or a file cannot be used.
    """
    from sfumato.app.outbound import outbound
    from sfumato_server.application import Settings, refuse_base, refuse_origin
    from sfumato_server.openid import OpenIdSettings, refuse_address
    from sfumato_server.sources import read_passwords

    if webhook.webhook is not None:
        refuse_address(webhook.webhook, "a webhook")
    if tables.source_passwords is not None:
        read_passwords(tables.source_passwords)
    outbound(webhook.webhook_ca_file, webhook.webhook_proxy)  # refuses what would fail at the first notice
    return Settings(
        tables=tuple(tables.tables or ()),
        a_minute=limits.rate,
        base_url=None if network.base_url is None else refuse_base(network.base_url),
        openid=None if network.openid is None else OpenIdSettings.read(network.openid).model_dump(),
        origins=tuple(map(refuse_origin, network.origin or ())),
        webhook=webhook.webhook,
        table_bytes=tables.table_memory << 20,
        snapshots=tables.snapshots,
        source_passwords=_absolute(tables.source_passwords),
        webhook_ca_file=_absolute(webhook.webhook_ca_file),
        webhook_proxy=webhook.webhook_proxy,
        answer_cells=limits.answer_cells,
        large_questions=limits.large_questions,
        reply_bytes=limits.reply_rate << 20,
    )


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.resolve())


def _register_sample(ledger: str, snapshots: str | None) -> None:
    from sfumato_server.service import register_sample

    folder = Path(ledger).parent if "://" not in ledger else Path()
    if not register_sample(database(ledger), _SAMPLE, _SAMPLE_LIMIT, folder, snapshots=snapshots):
        print_message(f"The bundled table is not registered: {folder / _SAMPLE}.parquet is a file of yours.")


def _tls(certificate: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    """Return a certificate and its key; None if neither is given.

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
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise InputError(f"{certificate} and {key} are no certificate and its key", culprit=certificate) from error
    return certificate, key


def _free_port(host: str, port: int) -> int:
    """Return the port, or a free one for 0.

    Raises:
        InputError: this machine has no such address, or another program listens on the port.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            probe.bind(address)
            return int(probe.getsockname()[1])
    except OSError as error:
        reason = error.strerror or "the address cannot be used"
        raise InputError(
            f"cannot listen on {host} port {port}: {reason}; choose another by --port", culprit=port
        ) from None
