"""The acceptance of a description by a person, and the record of the draft that it was made from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from sfumato.errors import DomainError


@dataclass(frozen=True)
class Acceptance:
    """The person who accepted a description, the time (UTC, ISO 8601), and a hash of the content and all other parts.

    ``confirmed`` are the kinds of findings that the person confirmed.  ``edited`` tells whether a draft was changed
    before; None if no draft is known.
    """

    by: str
    at: str
    hash: str
    confirmed: tuple[str, ...] = ()
    edited: bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "confirmed", tuple(self.confirmed))
        if not self.by.strip() or not self.by.isprintable():
            raise DomainError("name who accepts the domain, in one line", culprit=self.by)

    @staticmethod
    def sign(content: str, by: str, at: str, *, confirmed: Sequence[str] = (), edited: bool | None = None) -> str:
        """Return the hash of an acceptance of a description with the hash ``content``, hexadecimal."""
        more = [] if not confirmed and edited is None else [list(confirmed), edited]
        text = json.dumps([content, by, at, *more], separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def signs(self, content: str) -> bool:
        """Return whether the description with the hash ``content`` was accepted so."""
        return self.hash == self.sign(content, self.by, self.at, confirmed=self.confirmed, edited=self.edited)

    def describe(self) -> dict[str, Any]:
        """The acceptance as it stands in a document."""
        entry = self.journal_entry()
        return {"by": entry.pop("by"), "at": entry.pop("at"), "hash": self.hash, **entry}

    def journal_entry(self) -> dict[str, Any]:
        """The acceptance as it stands in the journal, without its hash."""
        confirmed = {"confirmed": list(self.confirmed)} if self.confirmed else {}
        edited = {} if self.edited is None else {"edited": self.edited}
        return {"by": self.by, "at": self.at, **confirmed, **edited}


@dataclass(frozen=True)
class Drafted:
    """A record of a draft: the hash of its content, and a digest of each fact that it read off the table.

    ``findings`` has the digests by kind of finding and column.
    """

    hash: str
    findings: Mapping[str, Mapping[str, str]]


class Described(Protocol):
    """A domain or a schema: a description with a hash, and the record of the draft that it was made from."""

    @property
    def hash(self) -> str:
        """The hash of its content."""

    @property
    def drafted(self) -> Drafted | None:
        """The record of its draft, if there is one."""


def accepted_now(description: Described, *, by: str, confirmed: Sequence[str] = ()) -> Acceptance:
    """Return the acceptance of a domain or schema by a person, at this time.

    Args:
        description: the domain or schema.
        by: the person who accepts it.
        confirmed: the kinds of findings that the person confirms.

    Raises:
        DomainError: nobody is named.
    """
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    edited = None if description.drafted is None else description.drafted.hash != description.hash
    signed = Acceptance.sign(description.hash, by.strip(), at, confirmed=confirmed, edited=edited)
    return Acceptance(by.strip(), at, signed, tuple(confirmed), edited)
