"""The description of a table: attributes in order, the privacy unit, the form of its file, and its acceptance."""

from __future__ import annotations

import codecs
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sfumato.arguments import expect_all, listed
from sfumato.bounded_cache import Shared, cached
from sfumato.domain.attribute import Attribute, Categorical, Date, Dated, Integer, Numeric, Real, Role, Timestamp
from sfumato.domain.calendar import CalendarMap, calendar_map, maps
from sfumato.domain.unit import Acceptance, Drafted, Unit, state_text
from sfumato.errors import DomainError, QueryError
from sfumato.notebook_html import html_note, html_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sfumato.domain.hierarchy.levels import Hierarchy

SCHEMA_VERSION = 1
_MOST_CELLS = 1 << 53  # cells that a double distinguishes
_MOST_LISTED = 1 << 22  # cells of a grouped attribute, because each has a label
_LEVEL_OF = re.compile(r"\s*(?P<level>\w+)\s*\(\s*(?P<of>.*?\S)\s*\)\s*")


@dataclass(frozen=True, kw_only=True)
class CsvFormat:
    """The form of a CSV file that differs from UTF-8 with decimal points and commas (in .tsv, tabs) between fields.

    Attributes:
        delimiter: one character between fields; None: a comma, in .tsv a tab.
        decimal: the decimal separator, a point or a comma.
        thousands: the separator between groups of three digits; empty for none.
        encoding: the encoding of the text: utf-8, utf-16, cp1252, latin-1 and others that Python knows.
        trim: true to remove blanks around a field; then a field of blanks is missing.

    >>> CsvFormat(delimiter=";", decimal=",").encoding
    'utf-8'
    """

    delimiter: str | None = None
    decimal: str = "."
    thousands: str = ""
    encoding: str = "utf-8"
    trim: bool = False

    def __post_init__(self) -> None:
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n\0'):
            raise DomainError("the delimiter of a CSV file is one character, no quote and no line end", culprit=self)
        if self.decimal not in (".", ","):
            raise DomainError(f"a decimal sign is '.' or ',', not {self.decimal!r}", culprit=self)
        if self.thousands not in THOUSANDS or self.thousands == self.decimal:
            raise DomainError(
                "the thousands separator is one of . , ' _, a blank or nothing, and not the decimal sign", culprit=self
            )
        try:
            codecs.lookup(self.encoding).encode("")
        except (LookupError, TypeError, ValueError):
            raise DomainError(f"no encoding {self.encoding!r} is known", culprit=self) from None


THOUSANDS = ("", ".", ",", "'", "\u2019", "_", " ", "\u00a0", "\u202f")


@dataclass(frozen=True)
class Grouping:
    """Cells that group rows: the cells of an attribute, or coarser cells of a hierarchy or the calendar.

    Attributes:
        name: name in queries: ``diag``, ``chapter(diag)`` or ``month(admitted)``.
        attribute: the grouped attribute.
        labels: the label of each cell.
        groups: the cell of each code of the attribute; None: each code is a cell.
        calendar: the map from the periods of a date to the cells; None for other groupings.
    """

    name: str
    attribute: str
    labels: tuple[str, ...]
    groups: tuple[int, ...] | None = None
    calendar: CalendarMap | None = None

    def __post_init__(self) -> None:
        if len(set(self.labels)) < len(self.labels):
            twice = next(label for label, times in Counter(self.labels).items() if times > 1)
            reason = f"two cells of {self.name} are called {twice!r}; give one of them another name"
            raise DomainError(reason, culprit=self)

    @property
    def cell_of_code(self) -> NDArray[np.int32]:
        """The cell of each code, as an array; for a plain attribute the codes themselves."""
        import numpy as np  # imported here because most domains do not need it

        return np.array(range(len(self.labels)) if self.groups is None else self.groups, dtype=np.int32)


@dataclass(frozen=True)
class Axis:
    """The cells of one attribute that group rows, from one or several groupings.

    The cells of several groupings are the combinations that some code has, such as the days of a month on a weekday.

    Attributes:
        attribute: the grouped attribute.
        groupings: one or more groupings.
        groups: the cell of each code; None: each code is a cell.
        cells: for each grouping, the cell of that grouping for each cell of the axis.
    """

    attribute: str
    groupings: tuple[Grouping, ...]
    groups: tuple[int, ...] | None
    cells: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(groupings: Sequence[Grouping]) -> Axis:
        """Return the cells of several groupings of one attribute."""
        first = groupings[0]
        if len(groupings) == 1:
            return Axis(first.attribute, (first,), first.groups, (tuple(range(len(first.labels))),))
        size = max(len(each.groups or each.labels) for each in groupings)  # the number of codes, from any grouping
        codes = list(zip(*(each.groups or range(size) for each in groupings), strict=True))
        pairs = sorted(set(codes))
        place = {cell: number for number, cell in enumerate(pairs)}
        groups = tuple(place[code] for code in codes)
        finest = groups == tuple(range(size))
        return Axis(first.attribute, tuple(groupings), None if finest else groups, tuple(zip(*pairs, strict=True)))

    @property
    def size(self) -> int:
        """The number of cells."""
        return len(self.cells[0])


def _refuse_many(attribute: Attribute) -> None:
    """Refuse an attribute with too many cells to list in memory."""
    if attribute.size > _MOST_LISTED:
        raise DomainError(
            f"{attribute.name!r} has {attribute.size:,} cells, and rows can be grouped by at most {_MOST_LISTED:,}; "
            "declare fewer cells",
            culprit=attribute,
        )


def _maps(attribute: Dated, level: str, names: tuple[str, ...]) -> bool:
    """Return whether a level belongs to the calendar: by its name, or because the attribute has no other levels."""
    return not names or level.lower() in maps(attribute.by)


def _calendar_grouping(attribute: Dated, name: str) -> Grouping:
    """Return the cells of a calendar map, followed by the unchanged cells for missing and undeclared values."""
    periods = calendar_map(name, attribute.by, *attribute.periods)
    extra = range(len(periods.labels), len(periods.labels) + attribute.size - attribute.declared)
    more = map(attribute.label, range(attribute.declared, attribute.size))
    groups = (*periods.cells.tolist(), *extra)
    return Grouping(f"{name}({attribute.name})", attribute.name, (*periods.labels, *more), groups, periods)


@dataclass(frozen=True)
class Domain(Shared):
    """Attributes in order, the privacy unit, and the state of acceptance by the owner.

    ``hierarchies`` group the values of some attributes into coarser cells, level by level.  ``derives`` are the hashes
    of tables derived from the same units: see :class:`sfumato.domain.linked_domain.LinkedTables`.

    Public knowledge: nothing here may be taken from the protected table without the owner's consent.  ``csv`` is the
    form of the file, and ``acceptance`` names the person who accepted the rest: they are neither compared nor hashed.

    >>> from sfumato.domain import Categorical, Unknown
    >>> sex = Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP)
    >>> age = Categorical(name="age", values=("young", "old"), unknown=Unknown.CATEGORY)
    >>> domain = Domain((sex, age))
    >>> domain.shape, domain.size, domain.project(["age"]).names
    ((2, 3), 6, ('age',))
    """

    attributes: tuple[Attribute, ...]
    unit: Unit = field(default_factory=Unit.row)
    draft: bool = False
    csv: CsvFormat | None = field(default=None, compare=False)
    acceptance: Acceptance | None = field(default=None, compare=False)
    hierarchies: tuple[Hierarchy, ...] = ()
    derives: tuple[str, ...] = field(default=(), repr=False)
    drafted: Drafted | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        expect_all(
            self.attributes,
            Attribute,
            "the attributes of a domain are a list of Categorical, Integer, Real, Date, ...",
        )
        object.__setattr__(self, "attributes", tuple(self.attributes))
        if not self.attributes:
            raise DomainError("a domain needs at least one attribute", culprit=self)
        if len(set(self.names)) != len(self.names):
            raise DomainError("a domain declares an attribute twice", culprit=self.names)
        for role in Role:
            if len(named := [attribute.name for attribute in self if attribute.role is role]) > 1:
                raise DomainError(f"one attribute is the {role}, not {' and '.join(named)}", culprit=named)
        if self.hierarchies != ():
            self._check_hierarchies()
        for bound in self.unit.per:
            if math.prod(len(self.grouping(name).labels) for name in bound.by) > _MOST_CELLS:
                raise DomainError(f"a bound by {bound.name} has too many cells to be distinguished", culprit=bound)

    def _check_hierarchies(self) -> None:
        from sfumato.domain.hierarchy.levels import Hierarchy  # imports NumPy, which most domains do not need

        expect_all(self.hierarchies, Hierarchy, "the hierarchies of a domain are a list of Hierarchy")
        object.__setattr__(self, "hierarchies", tuple(self.hierarchies))
        of = [hierarchy.attribute for hierarchy in self.hierarchies]
        if len(set(of)) != len(of):
            raise DomainError("a domain declares two hierarchies of one attribute", culprit=of)
        for name in of:
            self.hierarchy(name)

    def __hash__(self) -> int:
        return self._hash

    @cached_property  # without it a query over 74 attributes takes 2.9 CPU ms, not 2.0: domains are keys of caches
    def _hash(self) -> int:
        return hash((self.attributes, self.unit, self.draft, self.hierarchies, self.derives))

    def __iter__(self) -> Iterator[Attribute]:
        return iter(self.attributes)

    def __len__(self) -> int:
        return len(self.attributes)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Attribute:
        return self.attributes[self.index(name)]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The attribute names in order."""
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells of each attribute, in order."""
        return tuple(attribute.size for attribute in self.attributes)

    def in_role(self, role: Role) -> str | None:
        """Return the name of the attribute in a role, or None."""
        return next((attribute.name for attribute in self if attribute.role is role), None)

    @property
    def held_bytes(self) -> int:
        """The approximate size in bytes, with its hierarchies."""
        levels = [level for hierarchy in self.hierarchies for level in hierarchy.levels]
        coarser = sum(level.cells.nbytes + 120 * level.size for level in levels)
        values = sum(len(each.values) for each in self if isinstance(each, Categorical))
        edges = sum(len(each.edges or ()) for each in self if isinstance(each, Integer | Real))
        return 1_000 + 400 * len(self) + 120 * values + 40 * edges + coarser

    @property
    def size(self) -> int:
        """The number of cells of the full contingency table."""
        return math.prod(self.shape)

    def index(self, name: str) -> int:
        """Return the index of an attribute.

        Raises:
            DomainError: no attribute has that name.
        """
        try:
            return self.names.index(name)
        except ValueError:
            raise DomainError(
                f"no attribute {name!r} in the domain; it has {listed(self.names)}", culprit=name
            ) from None

    def project(self, names: Iterable[str]) -> Domain:
        """Return the domain of a marginal: the named attributes in the given order, and the bounds by their groups.

        Raises:
            DomainError: an attribute does not exist, or is named twice.
        """
        chosen = tuple(names)
        if twice := {name for name in chosen if chosen.count(name) > 1}:
            raise DomainError(f"the attribute {min(twice)!r} is named twice; name it once", culprit=chosen)
        hierarchies = tuple(hierarchy for hierarchy in self.hierarchies if hierarchy.attribute in chosen)
        bounds = [bound for bound in self.unit.per if all(self.grouping(name).attribute in chosen for name in bound.by)]
        unit = self.unit.bounded(rows=self.unit.rows, per=bounds)
        return replace(self, attributes=tuple(self[name] for name in chosen), hierarchies=hierarchies, unit=unit)

    def hierarchy(self, name: str) -> Hierarchy | None:
        """Return the hierarchy of an attribute over its cells, in the order of their codes; None if none is declared.

        Raises:
            DomainError: no attribute has that name, or its hierarchy misses a declared value.
        """
        attribute = self[name]
        declared = next((each for each in self.hierarchies if each.attribute == name), None)
        return None if declared is None else declared.align(attribute.labels())

    def grouping(self, name: str) -> Grouping:
        """Return the grouping by ``diag``, ``chapter(diag)`` or ``month(admitted)``; names of levels ignore case.

        Raises:
            DomainError: the attribute, or its level or calendar map, does not exist, or it has more than 2^22 cells.
        """
        return _grouping(self, name)

    def _grouping(self, name: str) -> Grouping:
        if name in self:
            _refuse_many(self[name])
            return Grouping(name, name, self[name].labels())
        match = _LEVEL_OF.fullmatch(name)
        if match is None:
            self.index(name)
        assert match is not None
        level, of = match["level"], match["of"]
        _refuse_many(self[of])
        hierarchy = self.hierarchy(of)
        names = () if hierarchy is None else hierarchy.level_names
        place = next((n for n, each in enumerate(names, start=1) if each.casefold() == level.casefold()), None)
        attribute = self[of]
        if isinstance(attribute, Date | Timestamp) and place is None and _maps(attribute, level, names):
            return _calendar_grouping(attribute, level.lower())
        if hierarchy is None or place is None:
            has = f"; it has {listed(names)}" if names else ", which has no hierarchy in the domain"
            raise DomainError(f"no level {level!r} of {of!r}{has}", culprit=name)
        cells, labels = hierarchy.levels[place].cells.tolist(), hierarchy.levels[place].labels
        return Grouping(f"{names[place - 1]}({of})", of, labels, tuple(cells))

    def axes(self, names: Iterable[str]) -> tuple[Axis, ...]:
        """Return the axes of several groupings: one per attribute, in the order of first mention.

        Raises:
            DomainError: see :meth:`grouping`.
        """
        by_attribute: dict[str, list[Grouping]] = {}
        for each in map(self.grouping, names):
            by_attribute.setdefault(each.attribute, []).append(each)
        return tuple(map(Axis.of, by_attribute.values()))

    def _repr_html_(self) -> str:
        rows = [
            (each.name, type(each).__name__.lower(), f"{each.size:,}", each.label(0), each.label(each.declared - 1))
            for each in self
        ]
        state = state_text(self.accepted_by, draft=self.draft)
        table = html_table(("attribute", "type", "cells", "first cell", "last cell"), rows, labels=1)
        return table + html_note(f"Unit: {self.unit}") + html_note(f"State: {state}")

    def accepted(self) -> Domain:
        """Return the same description, no longer a draft."""
        return replace(self, draft=False)

    @property
    def accepted_by(self) -> Acceptance | None:
        """The acceptance of the unchanged description; None for a draft, or after any later edit."""
        accepted = self.acceptance
        if self.draft or accepted is None:
            return None
        # in old files without confirmed kinds, the hash covers the description alone
        earlier = accepted.hash == self.hash and not accepted.confirmed and accepted.edited is None
        return accepted if earlier or accepted.signs(self.hash) else None

    def refuse_changed(self) -> None:
        """Refuse to release under a description that was changed after its acceptance.

        Raises:
            DomainError: the description changed, or the record of its acceptance was edited.
        """
        if not self.draft and self.acceptance is not None and self.accepted_by is None:
            raise DomainError(
                f"this domain was changed after {self.acceptance.by} accepted it; check it and accept it again: "
                "sfumato domain accept FILE --by NAME",
                culprit=self,
            )

    def refuse_draft(self) -> None:
        """Refuse to release under a draft.

        Raises:
            DomainError: the domain is a draft.
        """
        if self.draft:
            raise DomainError(
                "this domain is a draft made from the data; edit it, then accept it before releasing anything: "
                "sfumato domain accept FILE --by NAME",
                culprit=self,
            )

    @cached_property  # without it a query takes 2.0 CPU ms, not 1.8, and 5.4, not 2.0, over 74 attributes
    def hash(self) -> str:
        """The SHA-256 of the canonical description, hexadecimal; a draft and its accepted copy share it."""
        described = self._described(draft=False) | ({"derives": self.derives} if self.derives else {})
        text = json.dumps(described, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """Return the document of the domain as plain dictionaries and lists."""
        document = _with_shared_codes(self._described(draft=self.draft))
        if self.csv is not None:
            changed = {key: value for key, value in asdict(self.csv).items() if value != getattr(CsvFormat(), key)}
            document |= {"csv": changed} if changed else {}
        if self.acceptance is not None:
            document |= {"accepted": self.acceptance.describe()}
        if self.draft and self.drafted is not None:  # an accepted description has no digests of table facts
            document |= {"drafted": asdict(self.drafted)}
        return document

    def _described(self, *, draft: bool) -> dict[str, Any]:
        return {
            "sfumato": SCHEMA_VERSION,
            "draft": draft,
            "unit": self.unit.describe(),
            "attributes": {attribute.name: attribute.describe() for attribute in self},
            **({"hierarchies": described} if (described := self._hierarchies_described()) else {}),
        }

    def _hierarchies_described(self) -> dict[str, Any]:
        described = {hierarchy.attribute: hierarchy.describe() for hierarchy in self.hierarchies}
        return {
            name: {key: value for key, value in body.items() if key != "attribute"} for name, body in described.items()
        }


def _with_shared_codes(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document that lists the codes for missing values once, if most attributes have the same list.

    Attributes with another list keep their own, which may be empty.
    """
    bodies = document["attributes"]
    lists = {name: body.get("missing", []) for name, body in bodies.items()}
    ((shared, times),) = Counter(map(json.dumps, lists.values())).most_common(1)
    if shared == "[]" or times <= len(lists) / 2 or len(lists) == 1:
        return document
    codes = json.loads(shared)
    rest = {name: {key: value for key, value in body.items() if key != "missing"} for name, body in bodies.items()}
    own = {name: body | ({} if lists[name] == codes else {"missing": lists[name]}) for name, body in rest.items()}
    return (
        {key: document[key] for key in ("sfumato", "draft", "unit")}
        | {"missing": codes}
        | document
        | {"attributes": own}
    )


# Without this cache a query by groups takes 9 % longer, and 6.4 CPU ms, not 2.4, by months of ten years of days.
@cached(lambda _, grouping: 500 + 70 * len(grouping.labels) + 20 * len(grouping.groups or ()))
def _grouping(domain: Domain, name: str) -> Grouping:
    return domain._grouping(name)  # noqa: SLF001  (its own)


def numeric(domain: Domain, name: str) -> Numeric:
    """Return an attribute that has numbers.

    Raises:
        QueryError: the attribute has categories or dates.
        DomainError: no attribute has that name.
    """
    attribute = domain[name]
    if isinstance(attribute, Integer | Real):
        return attribute
    held = "is categorical" if isinstance(attribute, Categorical) else "holds dates"
    raise QueryError(
        f"{name!r} {held}: it can be counted, but has no sum, mean, MIN, MAX, MEDIAN or quantile", culprit=name
    )
