"""Files of the page: each at an address that names its content, which browsers keep for good; compressed once."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request
from fastapi.responses import Response

from sfumato.bounded_cache import cached
from sfumato_server.problems import RefusalError

_MEDIA = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
_KEPT = "public, max-age=31536000, immutable"
_LONG = 12  # digits of a hash in an address

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class StaticFile:
    """A file as it is sent, and its address."""

    address: str
    media: str
    content: bytes
    compressed: bytes


@cache
def _files() -> dict[str, StaticFile]:
    """All files by name; compressed when the first of them is asked for."""
    found = resources.files("sfumato_server.ui").joinpath("static")
    scripts = [each for folder in (found, found.joinpath("vendor")) for each in folder.iterdir() if _media(each)]
    return {each.name: _file(each) for each in scripts}


@cached(2_000)
def address(name: str) -> str:
    """Where a browser finds a file of that name, which changes with what is in it.

    >>> address("page.css").startswith("/static/") and address("page.css").endswith("/page.css")
    True
    """
    return _files()[name].address


@router.get("/static/{digest}/{name}")
@router.head("/static/{digest}/{name}")
def static_file(digest: str, name: str, request: Request) -> Response:
    """A file; one of another version is not there."""
    found = _files().get(name)
    if found is None or found.address != f"/static/{digest}/{name}":
        raise RefusalError("not-found", "There is no such file", 404, "load the page again")
    headers = {"Cache-Control": _KEPT, "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(found.content, media_type=found.media, headers=headers)
    return Response(found.compressed, media_type=found.media, headers=headers | {"Content-Encoding": "gzip"})


def _media(file: Traversable) -> str | None:
    return next((media for ending, media in _MEDIA.items() if file.name.endswith(ending)), None)


def _file(file: Traversable) -> StaticFile:
    content, media = file.read_bytes(), _media(file)
    assert media is not None
    digest = hashlib.sha256(content).hexdigest()[:_LONG]
    return StaticFile(f"/static/{digest}/{file.name}", media, content, gzip.compress(content, mtime=0))
