"""Replies that hold an answer: as JSON, an Arrow stream or a Parquet file; in pieces if the answer is large.

One thread of a worker writes the pieces of all large answers.  So small questions get the interpreter soon, and a large
answer is never held as text.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Final

from fastapi import Header
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from sfumato.app.http.work import LARGE, Permit
from sfumato.query import Answer
from sfumato.query.answer_formats import FORMATS, JSON

_WRITING: Final = ThreadPoolExecutor(1, "reply")

Accept = Annotated[str | None, Header(alias="Accept", include_in_schema=False)]


def answer_reply(answer: Answer, accept: str | None, permit: Permit | None = None) -> Response:
    """Return the reply that holds an answer.

    Args:
        answer: what it holds.
        accept: the header of the request: the first kind in it that the server writes is taken, else JSON.
        permit: of a large question, which is closed when the reply is sent or lost.
    """
    kinds = (each.partition(";")[0].strip().lower() for each in (accept or "").split(","))
    kind = next((each for each in kinds if each in FORMATS), JSON)
    pieces = FORMATS[kind](answer)
    if len(answer) * len(answer.columns) < LARGE:
        if permit is not None:
            permit.close()
        return Response(b"".join(pieces), media_type=kind)
    return _InPieces(_written(pieces), permit, kind)


class _InPieces(StreamingResponse):
    def __init__(self, pieces: AsyncIterator[bytes], permit: Permit | None, kind: str) -> None:
        super().__init__(pieces, media_type=kind)
        self._permit = permit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self._permit is not None:
                self._permit.close()


async def _written(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    while (piece := await loop.run_in_executor(_WRITING, next, pieces, None)) is not None:
        yield piece
