"""Several tables about the same people: the public facts about each table, and the owner of every row.

A private row has one owner, named by its unit column or found as the owner of the row that its key names.  Neighboring
databases differ by all rows of one unit, in all private tables at once; public tables are the same in both.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sfumato.arguments import expect_all, listed
from sfumato.domain import document as single
from sfumato.domain.attribute import Attribute
from sfumato.domain.derived import Derived, FactOfUnit, OfUnit, SincePrevious, read_derived, read_of_unit
from sfumato.domain.document import (
    expect_at,
    mapping_at,
    only_at,
    read_acceptance,
    read_drafted,
    refuse_other_content,
    text_at,
    with_acceptance,
)
from sfumato.domain.domain import CsvFormat, Domain
from sfumato.domain.hierarchy import Hierarchy
from sfumato.domain.unit import Acceptance, Drafted, GroupBound, Unit, accepted_now, state_text
from sfumato.errors import DomainError, InputError
from sfumato.notebook_html import html_note, html_table
from sfumato.strict_documents import read_yaml, write_yaml

VERSION = 2
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


@dataclass(frozen=True)
class Link:
    """A column that holds keys of another table."""

    column: str
    table: str


@dataclass(frozen=True, kw_only=True)
class SchemaTable:
    """A table of a schema.

    Attributes:
        name: name in statements and of its file.
        attributes: columns that queries may use; empty if the table only links others.
        key: the column whose values identify the rows.
        unit: the column with the owner of a row.
        through: the column with the key of another private row, whose owner is the owner of the row.
        references: columns that hold keys of public tables.
        rows: the most rows of one unit in a view that begins with this table; None in drafts and public tables.
        per: the most rows of one unit in each cell of a grouping.
        public: True if the whole table is public; its rows have no owner.
        hierarchies: hierarchies of its attributes.
        csv: form of its file.
        derived: columns that are computed from it.
    """

    name: str
    attributes: tuple[Attribute, ...] = ()
    key: str | None = None
    unit: str | None = None
    through: Link | None = None
    references: tuple[Link, ...] = ()
    rows: int | None = None
    per: tuple[GroupBound, ...] = ()
    public: bool = False
    hierarchies: tuple[Hierarchy, ...] = ()
    csv: CsvFormat | None = None
    derived: tuple[Derived, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise DomainError(f"a table is called by a word of letters, digits and _, not {self.name!r}")
        expect_all(self.references, Link, "references are a list of Link")
        if self.public and (self.unit or self.through or self.rows is not None or self.per):
            under = f"remove unit, through, rows and per under tables.{self.name}, or public: true"
            raise DomainError(f"{self.name} is public, so its rows have no owner: {under}", culprit=self)
        if self.unit is not None and self.through is not None:
            raise _two_owners(self.name, f"unit: {self.unit}", f"through: {{{self.through.column}: ...}}")
        linked = [*self.references, *([] if self.through is None else [self.through])]
        if len({link.column for link in linked}) != len(linked) or self.unit in {link.column for link in linked}:
            under = f"name each column once under tables.{self.name}, in unit, through or references"
            raise DomainError(f"a column of {self.name} is declared to hold keys of two tables: {under}", culprit=self)
        self._check_derived()
        if self.rows is not None and (type(self.rows) is not int or self.rows < 1):
            raise DomainError(f"tables.{self.name}.rows is a whole number from 1 on, not {self.rows}", culprit=self)

    def _check_derived(self) -> None:
        expect_all(self.derived, Derived, "derived columns are a list of Derived")
        if len({each.name.casefold() for each in self.derived}) != len(self.derived):
            raise DomainError(f"two columns that are derived from {self.name} have one name", culprit=self)
        attributes = {attribute.name: attribute for attribute in self.attributes}
        for each in self.derived:
            each.check(self.name, attributes)
            if self.public and isinstance(each.what, SincePrevious):
                raise DomainError(f"{self.name} is public: its rows have no unit, so no previous row of the unit")

    @property
    def links(self) -> tuple[Link, ...]:
        """The columns that hold keys of other tables, except the unit's."""
        return (*([] if self.through is None else [self.through]), *self.references)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that link it to other tables, its key first; each once."""
        named = [self.key, *(link.column for link in self.links)]
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def describe(self) -> dict[str, Any]:
        """Return the table in the form of the document."""
        own: dict[str, Any] = {"public": True} if self.public else {}
        own |= {} if self.key is None else {"key": self.key}
        own |= {} if self.unit is None else {"unit": self.unit}
        own |= {} if self.through is None else {"through": {self.through.column: self.through.table}}
        own |= {"references": {link.column: link.table for link in self.references}} if self.references else {}
        own |= {} if self.rows is None else {"rows": self.rows}
        own |= {"per": {bound.name: bound.describe() for bound in self.per}} if self.per else {}
        described: dict[str, Any] = {}
        if self.attributes:
            described = Domain(self.attributes, hierarchies=self.hierarchies, csv=self.csv).describe()
        own |= {part: described[part] for part in _OF_DOMAIN[1:] if part in described}
        own |= {"attributes": described.get("attributes", {})}
        return own | ({"derived": {each.name: each.describe() for each in self.derived}} if self.derived else {})


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Tables, and the unit that owns all private rows in them.

    Attributes:
        name: name of the schema.
        id: name of the id of a unit, such as ``patient_id``.
        tables: private and public tables.
        units: the table that lists all units, by its key; None if there is no such table.
        draft: true if the schema is not accepted yet.
        of_unit: facts that are computed from all rows of each unit, as attributes of the table that lists the units.
        acceptance: the acceptance, if there is one; releases refuse a schema that was changed afterwards.
    """

    name: str
    id: str
    tables: tuple[SchemaTable, ...]
    units: str | None = None
    draft: bool = False
    of_unit: tuple[OfUnit, ...] = ()
    acceptance: Acceptance | None = None
    drafted: Drafted | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or not _NAME.fullmatch(self.id):
            raise DomainError("a schema and its unit are called by words of letters, digits and _", culprit=self)
        expect_all(self.tables, SchemaTable, "the tables of a schema are a list of SchemaTable")
        object.__setattr__(self, "tables", tuple(self.tables))
        if len({table.name.casefold() for table in self.tables}) != len(self.tables):
            raise DomainError("a schema has two tables of one name", culprit=self)
        if all(table.public for table in self.tables):
            raise DomainError("a schema has at least one private table: remove public: true under a table of people")
        if self.units is not None:
            listing = self[self.units]
            if listing.public or listing.key is None or listing.unit not in (None, listing.key) or listing.through:
                raise DomainError(
                    f"{self.units} lists the units: write key: COLUMN, and no unit, through or public there"
                )
        for table in self.tables:
            self._check(table)
        self._check_of_unit()

    def _check_of_unit(self) -> None:
        expect_all(self.of_unit, OfUnit, "of_unit is a list of OfUnit")
        if self.of_unit and self.units is None:
            line = f"unit: {{id: {self.id}, table: TABLE}}"
            raise DomainError(f"of_unit is about every unit, so a table lists them all: write {line}")
        listed = () if self.units is None else (*self[self.units].attributes, *self[self.units].derived)
        taken = [self.id, *(each.name for each in listed)]
        for each in self.of_unit:
            if each.name.casefold() in {name.casefold() for name in taken}:
                raise each.wrong(f"{self.units} has two attributes called {each.name!r}: write another name there")
            taken.append(each.name)
            table = self[each.table]
            if table.public or table.name == self.units:
                raise each.wrong(f"a fact is of a private table with rows of units, not {table.name}: write another")
            held = {column.name for column in (*table.attributes, *table.derived)}
            for column in (each.column, each.by):
                if column is not None and column not in held:
                    under = f"name another, or write {column} under tables.{table.name}.attributes"
                    raise each.wrong(f"{table.name} has no attribute {column!r}: {under}")
            if each.how is FactOfUnit.COUNT and each.maximum is None and table.rows is None and not self.draft:
                raise each.wrong("a count says its maximum: write maximum: N")

    def _check(self, table: SchemaTable) -> None:
        if not table.public and table.name != self.units and table.unit is None and table.through is None:
            raise DomainError(
                f"the owner of the rows of {table.name} is not declared: write unit: COLUMN, through: {{COLUMN: "
                f"TABLE}} or public: true under tables.{table.name}",
                culprit=table,
            )
        if self.id in {each.name for each in (*table.attributes, *table.derived)} and not table.public:
            under = f"remove it under tables.{table.name}.attributes"
            raise DomainError(f"{self.id} identifies people, so it is no attribute: {under}", culprit=table)
        if not table.public and table.rows is None and table.name != self.units and not self.draft:
            raise DomainError(
                f"{table.name} still needs rows: how many rows of one unit a view of it keeps, a number that is not "
                f"taken from the data: write rows: N under tables.{table.name}",
                culprit=table,
            )
        self._check_links(table)
        self._check_owner(table)

    def _check_links(self, table: SchemaTable) -> None:
        for link in table.links:
            if self[link.table].key is None:
                line = f"{link.table}, which declares no key: write key: COLUMN under tables.{link.table}"
                raise DomainError(f"{table.name}.{link.column} holds keys of {line}", culprit=table)
        for link in table.references:
            if not self[link.table].public and table.public:
                under = f"remove {link.column} under tables.{table.name}.references, or public: true"
                raise DomainError(f"{table.name} is public and refers to {link.table}, which is not: {under}")
            if not self[link.table].public:
                raise _two_owners(table.name, f"references: {{{link.column}: {link.table}}}")

    def _check_owner(self, table: SchemaTable) -> None:
        seen, at = {table.name}, table
        while at.through is not None:
            at = self[at.through.table]
            if at.public:
                under = f"write unit: COLUMN or through: {{COLUMN: PRIVATE TABLE}} under tables.{table.name}"
                raise DomainError(f"{table.name} has no owner through {at.name}, which is public: {under}")
            if at.name in seen:
                under = f"write unit: COLUMN instead of through under tables.{at.name}"
                raise DomainError(f"{table.name} belongs to itself through {at.name}: {under}", culprit=table)
            seen.add(at.name)

    def __getitem__(self, name: str) -> SchemaTable:
        match = next((table for table in self.tables if table.name.casefold() == name.casefold()), None)
        if match is None:
            raise DomainError(
                f"no table {name!r} in the schema; it has {listed(table.name for table in self)}", culprit=name
            )
        return match

    def __iter__(self) -> Iterator[SchemaTable]:
        return iter(self.tables)

    def unit_column(self, name: str) -> str | None:
        """Return the column with the id of the unit; None for public tables, and if another table has it."""
        table = self[name]
        return table.key if table.name == self.units else table.unit

    def bounds(self, name: str) -> Unit:
        """Return the unit with the bounds of a view that lists the rows of a private table."""
        table = self[name]
        rows = 1 if table.rows is None and table.name == self.units else table.rows
        if rows is None:
            raise DomainError(f"{name} declares no bound on the rows of a unit", culprit=table)
        return Unit(self.id, rows=rows, per=table.per, schema=self.name)

    def owners(self, tables: Iterable[SchemaTable]) -> dict[str, str]:
        """Return a text about the owners of rows for each of some tables, and for the tables that lead to owners.

        Two schemas give a table the same text if and only if they find its owner by the same columns.  If an owner is
        found through another table, that table's text is needed as well, so the text of each step is returned.

        Args:
            tables: Tables of the schema.
        """
        owners: dict[str, str] = {}
        waiting = list(tables)
        while waiting:
            table = waiting.pop()
            if table.name in owners:
                continue
            if table.public:
                owners[table.name] = "nobody's"
            elif table.through is None:
                owners[table.name] = f"of the unit that {table.unit or table.key} names"
            else:
                above = self[table.through.table]
                named = f"whose {above.key!r} is in {table.through.column!r}"
                owners[table.name] = f"of the row of {above.name.casefold()} {named}"
                waiting.append(above)
        return owners

    def refuse_draft(self) -> None:
        """Refuse to release under a draft.

        Raises:
            DomainError: the schema is a draft.
        """
        remedy = "sfumato schema accept FILE --by NAME"
        if self.draft:
            words = "this schema is a draft made from the data; edit it, then accept it before releasing anything"
            raise DomainError(f"{words}: {remedy}", culprit=self)
        if self.acceptance is not None and self.changed:
            words = f"this schema was changed after {self.acceptance.by} accepted it; check it and accept it again"
            raise DomainError(f"{words}: {remedy}", culprit=self)

    @property
    def accepted_by(self) -> Acceptance | None:
        """The acceptance of the unchanged schema; None for a draft, or after any later edit."""
        return None if self.draft or self.changed else self.acceptance

    @property
    def changed(self) -> bool:
        """True if the schema differs from the accepted one, or the acceptance was edited."""
        accepted = self.acceptance
        return accepted is not None and not accepted.signs(self.hash)

    def _repr_html_(self) -> str:
        owners, rows = self.owners(self), []
        for each in self:
            columns = ", ".join(column.name for column in (*each.attributes, *each.derived))
            rows.append((each.name, owners[each.name], str(each.rows or ""), columns))
        table = html_table(("table", "rows are", "most rows of one unit", "columns"), rows, labels=1)
        state = f"State: {state_text(self.accepted_by, draft=self.draft)}"
        return table + html_note(f"Unit: one {self.id} of {self.name}") + html_note(state)

    def describe(self) -> dict[str, Any]:
        """Return the document as plain dictionaries and lists."""
        return {
            "sfumato": VERSION,
            "schema": self.name,
            "draft": self.draft,
            **({} if self.acceptance is None else {"accepted": self.acceptance.describe()}),
            **({"drafted": asdict(self.drafted)} if self.draft and self.drafted is not None else {}),
            "unit": {"id": self.id, **({} if self.units is None else {"table": self.units})},
            "tables": {table.name: table.describe() for table in self},
            **({"of_unit": {each.name: each.describe() for each in self.of_unit}} if self.of_unit else {}),
        }

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the canonical description, hexadecimal; a draft and its accepted copy share it."""
        document = {name: value for name, value in self.describe().items() if name not in ("accepted", "drafted")}
        document |= {"draft": False}
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _two_owners(name: str, *lines: str) -> DomainError:
    words = f"{name} names two units in a row; leave one column out: it stays unprotected"
    return DomainError(f"{words}; remove the line {' or '.join(lines)} under tables.{name}", culprit=name)


_TOP = {"$schema", "sfumato", "schema", "draft", "accepted", "drafted", "unit", "tables", "of_unit"}
_OF_DOMAIN = ("attributes", "csv", "missing", "hierarchies")  # parts that a domain of one table also has
_OF_TABLE = {"key", "unit", "through", "references", "rows", "per", "public", "derived", *_OF_DOMAIN}


def load_schema(path: str | Path) -> Schema:
    """Read a schema from a YAML (or JSON) file.

    Raises:
        DomainError: the file is missing, not YAML, or no schema; the message names the place.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        document = read_yaml(text, name=str(path))
    except OSError as error:
        raise DomainError(f"cannot read the schema {path}: {error.strerror}", culprit=path) from None
    except UnicodeDecodeError:
        raise DomainError(f"cannot read the schema {path}: it is not UTF-8 text", culprit=path) from None
    except InputError as error:
        raise DomainError(str(error), culprit=path) from None
    return parse_schema(document, folder=Path(path).parent)


def dump_schema(schema: Schema) -> str:
    """Return the YAML document of a schema; :func:`parse_schema` reads it back to an equal schema."""
    return write_yaml(schema.describe())


def parse_schema(document: object, *, folder: Path | None = None) -> Schema:
    """Make a schema from a parsed YAML or JSON document.

    Args:
        document: the document as plain dictionaries and lists.
        folder: the folder of the hierarchy files that it names; None: it may name none.

    Raises:
        DomainError: the document does not follow the format; the message names the place.
    """
    if not isinstance(document, dict) or "sfumato" not in document:
        raise DomainError("this is no schema: a schema is a mapping with 'sfumato: 2', 'schema', 'unit' and 'tables'")
    if document["sfumato"] != VERSION or isinstance(document["sfumato"], bool):
        raise DomainError(
            "this describes no schema of several tables, which begins with 'sfumato: 2'; of one table it is a domain"
        )
    only_at(document, _TOP, "the top", required={"schema", "unit", "tables"})
    unit = mapping_at(document["unit"], "unit")
    only_at(unit, {"id", "table"}, "unit", required={"id"})
    draft = document.get("draft", False)
    expect_at(draft, bool, "draft", "true or false")
    accepted = document.get("accepted")
    tables = mapping_at(document["tables"], "tables")
    return Schema(
        name=text_at(document["schema"], "schema"),
        id=text_at(unit["id"], "unit.id"),
        units=text_at(unit["table"], "unit.table") if "table" in unit else None,
        draft=draft,
        acceptance=None if accepted is None else read_acceptance(accepted),
        drafted=read_drafted(document["drafted"]) if "drafted" in document else None,
        of_unit=read_of_unit(document.get("of_unit", {})),
        tables=tuple(_table(text_at(name, "tables"), body, folder, draft=draft) for name, body in tables.items()),
    )


def _table(name: str, body: object, folder: Path | None, *, draft: bool) -> SchemaTable:
    at = f"tables.{name}"
    fields = mapping_at(body, at)
    only_at(fields, _OF_TABLE, at, required={"attributes"})
    through = _links(fields.get("through", {}), f"{at}.through")
    if len(through) > 1:
        raise _two_owners(name, *(f"through: {{{link.column}: {link.table}}}" for link in through))
    public = fields.get("public", False)
    if public is None:  # open in drafts
        raise DomainError(
            f"{at} still needs an owner of its rows: write unit: COLUMN or through: {{COLUMN: TABLE}}, or public: "
            "true if the whole table is public",
            culprit=name,
        )
    expect_at(public, bool, f"{at}.public", "true or false")
    rows = fields.get("rows")
    if rows is not None:
        expect_at(rows, int, f"{at}.rows", "a whole number")
    domain = _described(fields, at, folder, draft=draft)
    return SchemaTable(
        name=name,
        attributes=() if domain is None else domain.attributes,
        hierarchies=() if domain is None else domain.hierarchies,
        csv=None if domain is None else domain.csv,
        key=text_at(fields["key"], f"{at}.key") if "key" in fields else None,
        unit=text_at(fields["unit"], f"{at}.unit") if "unit" in fields else None,
        through=next(iter(through), None),
        references=tuple(_links(fields.get("references", {}), f"{at}.references")),
        rows=rows,
        per=tuple(
            _bound(each, most, f"{at}.per") for each, most in mapping_at(fields.get("per", {}), f"{at}.per").items()
        ),
        public=public,
        derived=read_derived(fields.get("derived", {}), f"{at}.derived"),
    )


def _described(body: Mapping[str, Any], at: str, folder: Path | None, *, draft: bool) -> Domain | None:
    """Return attributes, hierarchies and format of the file as the domain of one table; None without attributes."""
    if not mapping_at(body["attributes"], f"{at}.attributes"):
        return None
    parts = {part: body[part] for part in _OF_DOMAIN if part in body}
    try:
        return single.parse({"sfumato": 1, "draft": draft, "unit": "row", **parts}, folder=folder)
    except DomainError as error:
        raise DomainError(f"{at}: {error}", culprit=error.culprit) from None


def _bound(name: object, body: object, at: str) -> GroupBound:
    if isinstance(body, int) and not isinstance(body, bool):
        return GroupBound.named(text_at(name, at), rows=body)
    most = mapping_at(body, f"{at}.{name}")
    only_at(most, {"rows", "groups"}, f"{at}.{name}", required={"rows"})
    return GroupBound.named(text_at(name, at), rows=most["rows"], groups=most.get("groups"))


def _links(body: object, at: str) -> list[Link]:
    return [
        Link(text_at(column, at), text_at(table, f"{at}.{column}")) for column, table in mapping_at(body, at).items()
    ]


def accept_schema(
    path: str | Path, *, by: str, confirmed: Sequence[str] = (), described: Schema | None = None
) -> tuple[str, Acceptance]:
    """Return the text of a schema's file with the acceptance of its content, and the acceptance; comments stay.

    Args:
        path: the file, which is only read.
        by: the person who accepts it.
        confirmed: the kinds of findings that the person confirms.
        described: the schema whose findings the person checked; None: the schema of the file.

    Raises:
        DomainError: the file cannot be read, lacks required facts, or changed; or ``by`` is empty.
    """
    schema = replace(described or load_schema(path), draft=False)  # refuse gaps of a draft
    acceptance = accepted_now(schema, by=by, confirmed=confirmed)
    described_then = replace(schema, acceptance=acceptance).describe()
    text = with_acceptance(Path(path).read_text(encoding="utf-8"), acceptance, described_then)
    refuse_other_content(parse_schema(read_yaml(text), folder=Path(path).parent), schema, path)
    return text, acceptance
