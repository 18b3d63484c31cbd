"""What the server itself refuses, before any data is touched."""

from __future__ import annotations

from sfumato.errors import DomainError, EngineError, TableError


class RefusalError(Exception):
    """A refusal with the parts of its problem document; nothing was charged.

    Attributes:
        kind: the last part of the problem's type.
        title: the same for every refusal of the kind.
        status: of the reply.
        detail: one sentence on this refusal.
    """

    def __init__(self, kind: str, title: str, status: int, detail: str) -> None:
        super().__init__(detail)
        self.kind, self.title, self.status, self.detail = kind, title, status, detail


def unreadable(error: TableError | EngineError) -> RefusalError:
    """Why a table cannot be read, for its steward: our own sentence, which quotes no value and no password."""
    if isinstance(error, EngineError):
        return RefusalError("data-unavailable", "The data cannot be read now", 503, str(error))
    return RefusalError("table-unusable", "The table cannot be used", 422, str(error))


def unusable(error: DomainError) -> RefusalError:
    """Why a table cannot be registered with a domain, of which nothing was asked yet."""
    return RefusalError("domain-unusable", "The domain cannot be used", 422, str(error))
