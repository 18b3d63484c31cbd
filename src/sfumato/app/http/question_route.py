"""The way of a well-formed question through the server, past the framework, which takes as long as the answer.

What is asked a thousand times a second is one kind of request: a question of the right form with a key.  It is read
here and handed to the function that the framework would call (:func:`sfumato.app.http.datasets.answer`).  Whatever is
not of that form goes on to the framework, which refuses it in its own words, so that no refusal is said twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sfumato.app.http.access import anyone, holder
from sfumato.app.http.datasets import answer, begin
from sfumato.app.http.problems import RefusalError, refused
from sfumato.app.http.registry import Key
from sfumato.app.http.service import Service
from sfumato.app.http.together import Begun, Together
from sfumato.app.requests.queries import AskRequest
from sfumato.errors import InputError, SfumatoError
from sfumato.strict_documents import read_json

QUESTIONS: Final = "/v1/datasets/{name}/query"
_LONGEST = 200  # characters of an Idempotency-Key
_JSON: Final = b"application/json"

Beginning = Callable[[str, AskRequest, Key, Service, str | None, str | None], Begun | None]
Answering = Callable[[str, AskRequest, Key, Service, str | None, str | None], Response]


class QuestionRoute:
    """Answers well-formed questions to paths of one form.

    Args:
        app: what all other requests are passed on to.
        path: how the paths are made, as the framework writes it, with one ``{name}``: of the dataset.
        beginning: what begins a question, or leaves it to ``answering``; runs in a thread.
        answering: what answers a question that may take long; runs in a thread of its own.
    """

    def __init__(
        self, app: ASGIApp, *, path: str = QUESTIONS, beginning: Beginning = begin, answering: Answering = answer
    ) -> None:
        self.path = path  # by which figures of the server name it
        self._app = app
        self._pattern = re.compile(path.replace("{name}", "([^/]+)"))
        self._together = Together(beginning, answering)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        named = scope["type"] == "http" and scope["method"] == "POST" and self._pattern.fullmatch(scope["path"])
        if not named or scope.get("root_path"):
            await self._app(scope, receive, send)
            return
        message = await receive()
        retry_keys = [value for name, value in scope["headers"] if name == b"idempotency-key"]
        form = _form(scope, message)
        if form is None or retry_keys[1:] or any(not 1 <= len(value) <= _LONGEST for value in retry_keys):
            await self._app(scope, _again(message, receive), send)
            return
        scope["route"] = self
        request = Request(scope)
        try:
            key = await anyone(await holder(request))
            retry_key = retry_keys[0].decode("latin-1") if retry_keys else None
            worker, accept = request.app.state.service, request.headers.get("accept")
            response = await self._together.answer(named[1], form, key, worker, retry_key, accept)
        except (SfumatoError, RefusalError) as error:
            response = refused(request, error)
        await response(scope, receive, send)


def _form(scope: Scope, message: Message) -> AskRequest | None:
    """The question of a request; None where it has none of the right form."""
    kinds = [value for name, value in scope["headers"] if name == b"content-type"]
    if kinds != [_JSON] or message["type"] != "http.request" or message.get("more_body", False):
        return None
    try:
        return AskRequest.model_validate(read_json(message["body"], name="the body"))
    except (InputError, ValidationError):
        return None


def _again(message: Message, receive: Receive) -> Receive:
    """The message once more, and then whatever comes."""
    waiting = [message]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay
