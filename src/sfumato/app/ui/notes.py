"""What a page says once after a form was posted.

The reply to the form redirects, so that a reload posts nothing again; the note travels in a cookie that scripts and
other sites cannot read, and is gone when it was shown.
"""

from __future__ import annotations

import base64
import json
from typing import TypedDict

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

COOKIE = "sfumato_note"
_SECONDS = 60
_PATH = "/steward"


class Note(TypedDict, total=False):
    """What was done, and a secret that is shown only now."""

    done: str
    secret: str


def leave(request: Request, path: str, note: Note) -> Response:
    """Go to a page that says it."""
    response = RedirectResponse(path, 303)
    text = base64.urlsafe_b64encode(json.dumps(note).encode()).decode()
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, text, httponly=True, samesite="strict", secure=secure, max_age=_SECONDS, path=_PATH)
    return response


def read(request: Request) -> Note:
    """What is to be said, if anything."""
    try:
        found = json.loads(base64.urlsafe_b64decode(request.cookies.get(COOKIE, "")))
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    note: Note = {"done": str(found.get("done", ""))}
    return note | {"secret": str(found["secret"])} if "secret" in found else note


def shown(response: Response) -> Response:
    """Forget the note."""
    response.delete_cookie(COOKIE, path=_PATH)
    return response
