"""The privacy unit, which is the largest change by one person, and the acceptance of a description by its owner."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from sfumato.arguments import expect, expect_all
from sfumato.errors import DomainError

_BETWEEN = re.compile(r"\s*,\s*")


@dataclass(frozen=True)
class GroupBound:
    """A bound on the rows of a unit: at most ``rows`` in each cell of a grouping, in at most ``groups`` of its cells.

    Attributes:
        by: names of groupings, such as ``month(admitted)`` or ``drug``; several have the combinations of their cells.
        rows: the most rows of one unit in one cell.
        groups: the most cells with rows of one unit; None: any number.

    >>> str(GroupBound(("month(admitted)",), rows=4, groups=12))
    'at most 4 in one month(admitted), in at most 12 of them'
    """

    by: tuple[str, ...]
    rows: int
    groups: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", tuple(sorted(self.by)))
        if not self.by or len(set(self.by)) != len(self.by):
            raise DomainError("a bound by groups names each grouping once, at least one", culprit=self.by)
        for most in (self.rows, self.groups):
            if most is not None and (type(most) is not int or most < 1):
                raise DomainError(
                    f"a unit has at least one row in a cell and at least one cell, not {most}", culprit=self
                )

    @property
    def name(self) -> str:
        """The groupings in the notation of a document."""
        return ", ".join(self.by)

    @staticmethod
    def named(name: str, *, rows: int, groups: int | None = None) -> GroupBound:
        """Return the bound for groupings in the notation of a document, separated by commas."""
        return GroupBound(tuple(_BETWEEN.split(name.strip())), rows=rows, groups=groups)

    def describe(self) -> int | dict[str, int]:
        """Return the bound in the notation of a document."""
        return self.rows if self.groups is None else {"rows": self.rows, "groups": self.groups}

    def __str__(self) -> str:
        within = "" if self.groups is None else f", in at most {self.groups} of them"
        return f"at most {self.rows} in one {' and '.join(self.by)}{within}"


@dataclass(frozen=True)
class SizeOf:
    """A size of a unit: the number of rows in its fullest cell of some groupings, or the number of its cells.

    Attributes:
        by: names of groupings; without any, all rows are in one cell.
        cells: True for the number of cells with rows of the unit.

    >>> str(SizeOf()), str(SizeOf(("month(admitted)",), cells=True)), str(SizeOf(("kind", "drug")))
    ('rows', 'cells of month(admitted)', 'rows in one cell of drug and kind')
    """

    by: tuple[str, ...] = ()
    cells: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", tuple(sorted(self.by)))
        if len(set(self.by)) != len(self.by) or (self.cells and not self.by):
            raise DomainError("sizes by groups name each grouping once, at least one", culprit=self.by)

    def __str__(self) -> str:
        named = " and ".join(self.by)
        return f"cells of {named}" if self.cells else f"rows in one cell of {named}" if self.by else "rows"


@dataclass(frozen=True)
class Unit:
    """A privacy unit: one row, or all rows of one id up to declared bounds.

    Neighboring tables differ by adding or removing one unit: one row if ``column`` is None, otherwise all rows that
    share a value of ``column``.  Engines keep at most ``rows`` rows per unit, and of these at most the number that each
    bound of ``per`` allows.  The rows are chosen at random, and the rest is dropped before anything is counted.

    With ``schema``, neighbors differ by the rows of the id in all private tables of that schema, and the bounds are the
    bounds of one view.  In a table of whole units, ``kept`` has the number of rows of each further table that one row
    represents.  It is for readers of the guarantee, and is not compared.

    >>> Unit.row()
    Unit(column=None, rows=1, per=())
    >>> Unit("patient", rows=3).rows
    3
    """

    column: str | None
    rows: int
    per: tuple[GroupBound, ...]
    schema: str | None = field(default=None, repr=False)
    kept: tuple[tuple[str, int], ...] = field(default=(), repr=False, compare=False)

    def __init__(
        self,
        column: str | None = None,
        rows: int = 1,
        per: Sequence[GroupBound] = (),
        *,
        schema: str | None = None,
        kept: Sequence[tuple[str, int]] = (),
    ) -> None:
        if not isinstance(rows, int) or rows < 1:
            raise DomainError(f"a unit contributes at least one row, not {rows}", culprit=rows)
        if column is None and (rows != 1 or per):
            raise DomainError("a bound on rows needs the column that identifies a person", culprit=rows)
        expect_all(per, GroupBound, "bounds by groups are a list of GroupBound")
        bounds = tuple(sorted(per, key=lambda bound: bound.by))
        if len({bound.by for bound in bounds}) != len(bounds):
            raise DomainError("a unit has two bounds by the same groups", culprit=bounds)
        object.__setattr__(self, "column", column)
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "per", bounds)
        if schema is not None and column is None:
            raise DomainError("people of a schema have an id", culprit=schema)
        object.__setattr__(self, "schema", schema)
        object.__setattr__(self, "kept", tuple(kept))

    @staticmethod
    def row() -> Unit:
        """Return the unit of a table with one row per person."""
        return Unit()

    def bounded(self, *, rows: int, per: Sequence[GroupBound]) -> Unit:
        """Return the same unit under other bounds."""
        return Unit(self.column, rows, per, schema=self.schema)

    @property
    def by_groups(self) -> str:
        """The bounds by groups in words, each after a comma; empty without such bounds."""
        return "".join(f", {bound}" for bound in self.per)

    def describe(self) -> str | dict[str, Any]:
        """Return the unit in the notation of a document."""
        if self.column is None:
            return "row"
        per = {bound.name: bound.describe() for bound in self.per}
        of = {} if self.schema is None else {"schema": self.schema}
        return {"id": self.column, "rows": self.rows, **({"per": per} if per else {}), **of}

    def __str__(self) -> str:
        if self.column is None:
            return "adding or removing one row"
        of = "" if self.schema is None else f" of {self.schema}, in all its tables"
        bound = f"{self.rows}{self.by_groups}"
        if self.kept:
            bound = ", ".join(f"{rows} of {table}" for table, rows in self.kept) + " are kept"
        return f"adding or removing all rows of one {self.column}{of} (at most {bound})"


# --- the acceptance of a description ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Acceptance:
    """The acceptance of a description: the person, the time (UTC, ISO 8601), and a hash of the content and all parts.

    ``confirmed`` are the kinds of findings that the person confirmed.  ``edited`` is true if the draft was changed
    before its acceptance; it is None if no draft is known.
    """

    by: str
    at: str
    hash: str
    confirmed: tuple[str, ...] = ()
    edited: bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "confirmed", tuple(self.confirmed))
        if not self.by.strip() or not self.by.isprintable():
            raise DomainError("name the person who accepts the description, in one line", culprit=self.by)

    @staticmethod
    def sign(content: str, by: str, at: str, *, confirmed: Sequence[str] = (), edited: bool | None = None) -> str:
        """Return the hash of an acceptance of a description with the hash ``content``, hexadecimal."""
        more = [] if not confirmed and edited is None else [list(confirmed), edited]
        text = json.dumps([content, by, at, *more], separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def signs(self, content: str) -> bool:
        """Return whether this is the acceptance of the description with the hash ``content``."""
        return self.hash == self.sign(content, self.by, self.at, confirmed=self.confirmed, edited=self.edited)

    def __str__(self) -> str:
        """Return the person and the time, the confirmed kinds, and the state of the draft."""
        confirmed = f"confirmed {', '.join(self.confirmed)}" if self.confirmed else "nothing to confirm"
        edited = "" if self.edited is None else f"; the draft was {'' if self.edited else 'not '}edited"
        return f"{self.by}, {self.at}; {confirmed}{edited}"

    def describe(self) -> dict[str, Any]:
        """Return the acceptance for a document."""
        entry = self.journal_entry()
        return {"by": entry.pop("by"), "at": entry.pop("at"), "hash": self.hash, **entry}

    def journal_entry(self) -> dict[str, Any]:
        """Return the acceptance for the journal, without its hash."""
        confirmed = {"confirmed": list(self.confirmed)} if self.confirmed else {}
        edited = {} if self.edited is None else {"edited": self.edited}
        return {"by": self.by, "at": self.at, **confirmed, **edited}


@dataclass(frozen=True)
class Drafted:
    """The record of a draft: the hash of its content, and a digest of each fact that it took from the table.

    ``findings`` has the digests by kind of finding and column.
    """

    hash: str
    findings: Mapping[str, Mapping[str, str]]


class Described(Protocol):
    """A domain or a schema: a description with a hash, the record of its draft, and its earlier acceptance."""

    @property
    def hash(self) -> str:
        """The hash of its content."""

    @property
    def drafted(self) -> Drafted | None:
        """The record of its draft, if there is one."""

    @property
    def acceptance(self) -> Acceptance | None:
        """The earlier acceptance, if there is one."""


def state_text(accepted: Acceptance | None, *, draft: bool) -> str:
    """Return the state of a description in words."""
    if accepted is not None:
        return f"accepted by {accepted}"
    return "a draft, which releases refuse" if draft else "changed after its acceptance, or never accepted"


def accepted_now(description: Described, *, by: str, confirmed: Sequence[str] = ()) -> Acceptance:
    """Return the acceptance of a domain or schema by a person, at the current time.

    Kinds of an earlier acceptance stay confirmed, because that acceptance removed the record of the draft.

    Args:
        description: the domain or schema.
        by: the person who accepts it.
        confirmed: the kinds of findings that the person confirms.

    Raises:
        DomainError: ``by`` is empty, or has several lines.
    """
    expect(by, str, "a person who accepts a description is named by a text")
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    edited = None if description.drafted is None else description.drafted.hash != description.hash
    if (earlier := description.acceptance) is not None:
        confirmed = tuple(dict.fromkeys((*earlier.confirmed, *confirmed)))
        if edited is None and earlier.edited is not None:
            edited = earlier.edited or not earlier.signs(description.hash)
    signed = Acceptance.sign(description.hash, by.strip(), at, confirmed=confirmed, edited=edited)
    return Acceptance(by.strip(), at, signed, tuple(confirmed), edited)
