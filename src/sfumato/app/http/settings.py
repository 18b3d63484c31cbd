"""What an operator settles for a server when it starts, in one line of text for the environment of its workers."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from sfumato.app.http.openid import OpenIdSettings
from sfumato.app.http.sources import TablePlaces
from sfumato.app.http.work import KeyLimits
from sfumato.errors import InputError

_SETTINGS = "SFUMATO_SETTINGS"
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


@dataclass(frozen=True)
class Settings:
    """What holds for all workers.

    Attributes:
        tables: folders and hosts whose tables may be registered; anything where none is named.
        a_minute: requests that a worker takes of one key in a minute; 0 for any number.
        address: of the server, without a slash at its end.
        base_url: the same, where people reach it under that address alone, maybe by a proxy.
        table_bytes: that the tables of a worker may hold; 0 for any number.
        answer_cells, large_questions, reply_bytes: the limits of a key, see :class:`.quotas.KeyLimits`.
        snapshots: a folder for snapshots; None for the usual place.
        source_passwords: a file of passwords of databases whose tables are registered.
        webhook: where notices are sent; None for the log alone.
        webhook_ca_file, webhook_proxy: how it is reached, as :func:`sfumato.app.outbound.outbound` takes them.
        openid: the provider of identities, as a document; None where people enter by keys alone.
        origins: of other sites' pages that may send requests with a key to ``/v1``.
    """

    tables: tuple[str, ...] = ()
    a_minute: int = 0
    address: str = ""
    base_url: str | None = None
    openid: dict[str, Any] | None = None
    origins: tuple[str, ...] = ()
    webhook: str | None = None
    table_bytes: int = 0
    snapshots: str | None = None
    source_passwords: str | None = None
    webhook_ca_file: str | None = None
    webhook_proxy: str | None = None
    answer_cells: int = KeyLimits.cells
    large_questions: int = KeyLimits.at_once
    reply_bytes: int = KeyLimits.bytes_a_minute

    @classmethod
    def of_environment(cls) -> Settings:
        """What the process that started this worker settled."""
        found = json.loads(os.environ.get(_SETTINGS, "{}"))
        return cls(**found | {name: tuple(found.get(name, ())) for name in ("tables", "origins")})

    def to_environment(self) -> None:
        """Settle them for processes that this one starts."""
        os.environ[_SETTINGS] = json.dumps(asdict(self))

    @property
    def places(self) -> TablePlaces:
        """Where tables may lie."""
        return TablePlaces(self.tables, self.source_passwords)

    @property
    def limits(self) -> KeyLimits:
        """The quotas of each key."""
        return KeyLimits(self.answer_cells, self.large_questions, self.reply_bytes)

    @property
    def provider(self) -> OpenIdSettings | None:
        """The provider of identities."""
        return None if self.openid is None else OpenIdSettings(**self.openid)


def refuse_base(address: str) -> str:
    """The address under which people reach a server, without a slash at its end.

    Raises:
        InputError: it is not one of a whole host.
    """
    parts = urlsplit(address)
    if (
        parts.scheme not in {"http", "https"}
        or not parts.netloc
        or parts.path.strip("/")
        or parts.query
        or parts.fragment
    ):
        raise InputError("a server is reached at http(s)://HOST[:PORT], not below a path", culprit=address)
    return f"{parts.scheme}://{parts.netloc}"


def refuse_origin(origin: str) -> str:
    """The origin of a page, exactly as browsers send it.

    >>> refuse_origin("https://app.example")
    'https://app.example'

    Raises:
        InputError: no browser sends it so, and it would never be equal to one.
    """
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    sent = f"{parts.scheme}://{parts.hostname}{'' if port in (None, usual) else f':{port}'}"
    if usual is None or not parts.hostname or sent != origin or not _HOST.fullmatch(parts.hostname):
        raise InputError(
            "an origin is http(s)://HOST[:PORT], in lower case, without a path or the usual port", culprit=origin
        )
    return origin
