"""A draft of a schema from several tables: the owners of rows, by values, names and keys that a database declares.

It reads the protected tables, so it is marked as a draft, and releases refuse it.  Bounds on the rows of a person are
facts about people, so they are omitted.  The owner also has to declare whether a table without people is public.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from sfumato.description.domain_fit import MOST_VALUES, Draft, draft_profiles
from sfumato.description.findings import DescriptionFinding, digest, grouped
from sfumato.description.linked_keys import (
    GENERIC,
    NameMatch,
    ReferenceSearch,
    best_references,
    may_be_key,
    name_match,
    own_key,
    singular,
    sounds_like_key,
    stem,
)
from sfumato.description.sensitive_columns import FindingKind
from sfumato.domain import CsvFormat
from sfumato.engine.port import Column, ColumnKind, Profile, ProtectedTable
from sfumato.engine.profile import DeclaredKeys, named_like_people
from sfumato.errors import InputError, TableError

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_REPEATED = 0.05  # largest share of the rows of a table that may repeat a key
_OF_PEOPLE = 2
_FEW = 3


@dataclass(frozen=True)
class SchemaDraft:
    """The document of a schema, the notes for its owner as sentences, and the findings by kind.

    ``tables`` are the open tables, by name.
    """

    document: dict[str, Any]
    notes: tuple[str, ...]
    findings: tuple[DescriptionFinding, ...] = ()
    tables: Mapping[str, ProtectedTable] = field(default_factory=dict)


def draft_schema(
    name: str,
    tables: Mapping[str, ProtectedTable],
    *,
    unit: str | None = None,
    formats: Mapping[str, CsvFormat | None] | None = None,
    declared: Mapping[str, DeclaredKeys] | None = None,
) -> SchemaDraft:
    """Draft a schema from the content of several tables.

    Args:
        name: the name of the schema.
        tables: the tables by name.
        unit: the column with the id of a person; None: the column whose name and values suggest it most.
        formats: the forms of CSV files, by table.
        declared: keys that a database declares, by table.

    Raises:
        InputError: a name is invalid, or no table has the column ``unit``.
        TableError: a table cannot be read, or no column seems to name people.
    """
    for each in (name, *tables):
        if not isinstance(each, str) or not _WORD.fullmatch(each):
            raise InputError(f"names of a schema and its tables have only letters, digits and _, unlike {each!r}")
    profiles = {each: table.profile(MOST_VALUES) for each, table in tables.items()}
    drafting = _Drafting(profiles, declared or {}, ReferenceSearch(tables))
    drafting.link()
    drafting.find_unit(unit)
    drafting.note_types({each: {column.name: column for column in table.schema()} for each, table in tables.items()})
    bodies = {}
    for each in tables:
        bodies[each] = drafting.body(each) | _attributes(drafting, each, (formats or {}).get(each))
    units = {} if drafting.units is None else {"table": drafting.units}
    document = {
        "sfumato": 2,
        "schema": name,
        "draft": True,
        "unit": {"id": drafting.id if _WORD.fullmatch(drafting.id) else stem(drafting.id), **units},
        "tables": bodies,
    }
    document["drafted"] = {"hash": digest(repr(document)), "findings": drafting.facts}
    findings = (*grouped(drafting.sensitive, left_out=True), *grouped(drafting.stated))
    return SchemaDraft(document, (*map(str, findings), *drafting.notes), findings, tables)


@dataclass
class _Drafting:
    """The state of a draft, built from the tables step by step."""

    profiles: Mapping[str, Sequence[Profile]]
    declared: Mapping[str, DeclaredKeys]
    search: ReferenceSearch
    keys: dict[str, str] = field(default_factory=dict)  # the key of each table that has one
    lists: dict[str, str] = field(default_factory=dict)  # for each key's name, its table
    links: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # column, table
    id: str = ""
    units: str | None = None  # the table that lists them
    owners: dict[str, tuple[str, str | None]] = field(default_factory=dict)  # column, and its table or the unit
    notes: list[str] = field(default_factory=list)
    sensitive: list[tuple[FindingKind, str, str]] = field(default_factory=list)  # omitted columns
    stated: list[tuple[FindingKind, str, str]] = field(default_factory=list)  # facts of the tables
    facts: dict[str, dict[str, str]] = field(default_factory=dict)  # digests of these facts

    def add_findings(self, table: str, draft: Draft) -> None:
        """Add the findings about a table to the findings about all tables."""
        for finding in draft.findings:
            facts = [(finding.kind, f"{table}.{column}", why) for column, why in finding.columns.items()]
            (self.sensitive if finding.left_out else self.stated).extend(facts)
        assert draft.domain.drafted is not None
        for kind, columns in draft.domain.drafted.findings.items():
            self.facts.setdefault(kind, {}).update({f"{table}.{name}": digest for name, digest in columns.items()})

    def link(self) -> None:
        """Find keys, and the columns that hold keys of other tables."""
        for table, profiles in self.profiles.items():
            known = self.declared.get(table)
            key = known.key if known is not None and known.key is not None else self._key(table, profiles)
            if key is not None:
                self.keys[table] = key
        self._key_by_values()
        self._choose_unit_table()
        for table, key in self.keys.items():
            self._note_repeats(table, key)
        self._link_columns()

    def _link_columns(self) -> None:
        """Find the columns that hold keys of other tables."""
        for table, profiles in self.profiles.items():
            known = self.declared.get(table)
            links = list(known.links) if known is not None and known.links else self._referring(table, profiles)
            self.links[table] = [(column, to) for column, to in links if to != table and to in self.keys]

    def _key_by_values(self) -> None:
        """Choose a key by its values in tables without a column that is named like a key."""
        for table, profiles in self.profiles.items():
            if table in self.keys:
                continue
            scores = {each.column.name: self._referred(table, each) for each in profiles if may_be_key(each)}
            best = max(scores, key=lambda column: scores[column], default=None)
            if best is not None and scores[best]:
                self.keys[table] = best

    def _referred(self, to: str, key: Profile) -> int:
        """Count the columns of other tables that refer to a column."""
        others = ((table, each) for table, profiles in self.profiles.items() for each in profiles if table != to)
        return sum(self.search.reference(table, each, to, key) is not None for table, each in others)

    def _key(self, table: str, profiles: Sequence[Profile]) -> str | None:
        """Return the column that is most likely the key of a table; None if there is none."""
        scored = []
        for place, profile in enumerate(profiles):
            column = profile.column.name
            few = max(1, _REPEATED * profile.held)
            if profile.column.kind not in (ColumnKind.TEXT, ColumnKind.INTEGER) or not profile.distinct:
                continue
            repeated = profile.held - profile.distinct
            if repeated > few or 2 * repeated >= profile.held or not sounds_like_key(column, table):
                continue
            scored.append(
                (own_key(column, table), profile.distinct == profile.held, profile.missing == 0, -place, column)
            )
        return max(scored)[-1] if scored else None

    def _choose_unit_table(self) -> None:
        """Choose the table that lists the most units, among tables with one key; the others refer to it."""
        named: dict[str, list[str]] = {}
        for table, key in self.keys.items():
            if stem(key) not in GENERIC:
                named.setdefault(stem(key), []).append(table)
        for name, tables in named.items():
            self.lists[name] = max(tables, key=self._listing)
            for table in tables:
                known, (exact, *_) = self.declared.get(table), self._listing(table)
                if table != self.lists[name] and not exact and (known is None or known.key is None):
                    del self.keys[table]

    def _listing(self, table: str) -> tuple[bool, bool, int]:
        """Return whether a table's key is unique, whether its name fits the table, and the number of keys."""
        key = self.keys[table]
        profile = self._profile(table, key)
        if profile is None:
            return False, False, 0
        return profile.distinct == profile.held, own_key(key, table), profile.distinct

    def _note_repeats(self, table: str, key: str) -> None:
        profile = self._profile(table, key)
        if profile is None:
            return
        if repeated := profile.held - profile.distinct:
            self.notes.append(
                f"{table}.{key} is drafted as the key, and {repeated:,} of its {profile.held:,} values repeat another: "
                f"a key names one row, so mend the table or remove the line key: {key} under tables.{table}"
            )
        if profile.missing:
            self.notes.append(f"{profile.missing:,} rows of {table} have no {key}, so nothing can refer to them")

    def _referring(self, table: str, profiles: Sequence[Profile]) -> list[tuple[str, str]]:
        """Return the columns of a table that refer to others."""
        references = []
        for profile in profiles:
            for other, key in self.keys.items():
                there = self._profile(other, key)
                same = stem(profile.column.name) == stem(key) and self.lists.get(stem(key), other) != other
                if other == table or there is None or same:
                    continue
                reference = self.search.reference(table, profile, other, there)
                own = self.keys.get(table) == profile.column.name
                if reference is not None and not (own and reference.name < NameMatch.TABLE):
                    references.append(reference)
                elif reference is None and name_match(profile.column.name, other, key) is NameMatch.EXACT:
                    self._note_no_reference(table, profile, other)
        best = best_references(references)
        self.notes += [
            f"Some values of {table}.{each.column} name no row of {each.to}; such rows have no owner or nothing to join"
            for each in best
            if each.share < 1
        ]
        return [(each.column, each.to) for each in best]

    def _note_no_reference(self, table: str, profile: Profile, to: str) -> None:
        there = self._profile(to, self.keys[to])
        if profile.distinct and there is not None and there.column.kind is profile.column.kind:
            self.notes.append(
                f"{table}.{profile.column.name} is named like the key of {to}, but most of its values are no keys of "
                f"it; if it refers to it, write references: {{{profile.column.name}: {to}}} under tables.{table}"
            )

    def find_unit(self, named: str | None) -> None:
        """Find the column with the ids of people, the table that lists them, and the owner of every table."""
        columns = {profile.column.name for profiles in self.profiles.values() for profile in profiles}
        if named is not None and named not in columns:
            raise InputError(f"no table has a column {named!r}, which was named as the unit", culprit=named)
        best = named or self._unit_column(columns)
        listing = [] if best is not None else self._tables_of_people()
        if listing:
            key = self.keys[listing[0]]
            best = f"{singular(listing[0])}_id" if stem(key) in GENERIC else key
        if best is None:
            self._refuse_no_people()
        self.id = best
        if named is not None:
            self._key_by(named)
        led = [to for links in self.links.values() for column, to in links if column == best]
        own = [table for table, key in self.keys.items() if key == best and self._is_referred_to(table)] + listing
        self.units = next((table for table in [*own, *led] if self._has_unique_key(table)), None)
        if self.units is None:
            self.notes.append(
                f"No table lists every {best}, so people without rows are in no answer. If a table lists them, write "
                f"unit: {{id: {best}, table: TABLE}}"
            )
        self._find_owners()
        self._note_people_within()

    def _refuse_no_people(self) -> NoReturn:
        lines = [f"unit: {{id: {key}, table: {table}}}" for table, key in self.keys.items()]
        raise TableError(
            "no column seems to name people; name one by the argument unit (--unit COLUMN), or write a document by "
            f"hand, with the line {' or '.join(lines[:_FEW]) or 'unit: {id: COLUMN, table: TABLE}'}"
        )

    def _tables_of_people(self) -> list[str]:
        """Return the tables with a key that are named like people."""
        return [table for table in self.keys if named_like_people(f"{singular(table)}_id") == _OF_PEOPLE]

    def _note_people_within(self) -> None:
        """Note how to protect each person of a household instead of the household."""
        for table, key in self.keys.items():
            within = self.owners.get(table, ("", ""))[1] is None and table != self.units
            if within and named_like_people(key) == _OF_PEOPLE:
                self.notes.append(
                    f"All rows of one {self.id} are protected together; to protect one row of {table} instead, draft "
                    f"with --unit {key}"
                )

    def _key_by(self, column: str) -> None:
        """Make a column the key of a table: the table with the most rows in which its values are unique."""
        tables = [table for table in self.profiles if self._is_unique(table, column)]
        if tables and column not in self.keys.values():
            self.keys[max(tables, key=lambda table: self._count_values(table, column))] = column
            self._link_columns()

    def _has_unique_key(self, table: str) -> bool:
        """Return whether no key of a table repeats, so that the table may list people."""
        known = self.declared.get(table)
        return (known is not None and known.key is not None) or self._is_unique(table, self.keys.get(table, self.id))

    def _count_values(self, table: str, column: str) -> int:
        profile = self._profile(table, column)
        return 0 if profile is None else profile.distinct

    def _is_unique(self, table: str, column: str) -> bool:
        profile = self._profile(table, column)
        return profile is not None and 0 < profile.held == profile.distinct

    def note_types(self, columns: Mapping[str, Mapping[str, Column]]) -> None:
        """Note keys whose columns have different types in two tables, because such keys never match."""
        ends = [(table, column, to) for table, links in self.links.items() for column, to in links]
        if self.units is not None:
            ends += [(table, column, self.units) for table, (column, to) in self.owners.items() if to is None]
        for table, column, to in dict.fromkeys(ends):
            one, other = columns[table].get(column), columns[to].get(self.keys.get(to, self.id))
            if one is not None and other is not None and one.kind is not other.kind:
                self.notes.append(
                    f"{table}.{column} is of type {one.type} and {to}.{other.name} of type {other.type}: equal keys "
                    "would not be found equal; store both alike"
                )

    def _is_referred_to(self, table: str) -> bool:
        """Return whether other tables refer to a table, or no other table has the unit as its key."""
        return any(to == table for links in self.links.values() for _, to in links) or (
            sum(key == self.id for key in self.keys.values()) == 1
        )

    def _unit_column(self, columns: Iterable[str]) -> str | None:
        def score(column: str) -> tuple[int, int, int]:
            keyed = [table for table, key in self.keys.items() if key == column]
            led = sum(to in keyed for links in self.links.values() for _, to in links)
            held = sum(self._profile(table, column) is not None for table in self.profiles)
            return named_like_people(column), led, held

        likely = [column for column in sorted(columns) if named_like_people(column) == _OF_PEOPLE]
        return max(likely, key=score, default=None)

    def _find_owners(self) -> None:
        """Find the owner of every table that leads to people, beginning with the nearest tables."""
        for table in self.profiles:
            if table == self.units:
                continue
            direct = [column for column, to in self.links[table] if to == self.units]
            direct += [self.id] if not direct and self._profile(table, self.id) is not None else []
            if direct:
                self.owners[table] = (direct[0], None)
                self._note_other_people(table, direct[1:])
        while True:
            reached = {self.units, *self.owners}
            step = {
                table: next((column, to) for column, to in self.links[table] if to in reached)
                for table in self.profiles
                if table not in reached and any(to in reached for _, to in self.links[table])
            }
            if not step:
                break
            self.owners |= step
        for table in self.profiles:
            if table != self.units and table not in self.owners:
                self.notes.append(
                    f"{table} leads to no {self.id}: write public: true under tables.{table} if everybody may know all "
                    "of it, else unit: COLUMN or through: {COLUMN: TABLE}"
                )

    def _note_other_people(self, table: str, columns: Sequence[str]) -> None:
        for column in columns:
            self.notes.append(
                f"{table}.{column} names a further {self.id} in the same row, and is left out: that person stays "
                "unprotected"
            )

    def body(self, table: str) -> dict[str, Any]:
        """Return the table in the form of the document, without its attributes."""
        own: dict[str, Any] = {}
        if table not in self.owners and table != self.units:
            own["public"] = None
        if table in self.keys:
            own["key"] = self.keys[table]
        if table in self.owners:
            column, above = self.owners[table]
            own |= {"unit": column} if above is None else {"through": {column: above}}
            own["rows"] = None  # the owner writes it, because the bound in the data is a fact about people
        public = {to for to in self.keys if to not in self.owners and to != self.units}
        owner = self.owners.get(table, (None, None))[0]
        references = {column: to for column, to in self.links[table] if to in public and column != owner}
        for column, to in self.links[table]:
            if to not in public and column != owner:
                self.notes.append(
                    f"{table}.{column} also leads to {to}, and is left out: a row belongs to one {self.id}"
                )
        if references:
            own["references"] = references
        return own

    def key_columns(self, table: str) -> set[str]:
        """Return the columns of keys, which are no attributes."""
        owner = self.owners.get(table)
        private = {column for column, to in self.links[table] if to in self.owners or to == self.units}
        return (
            {self.id, *private}
            | ({self.keys[table]} if table in self.keys else set())
            | (set() if owner is None else {owner[0]})
        )

    def _profile(self, table: str, column: str) -> Profile | None:
        return next((each for each in self.profiles[table] if each.column.name == column), None)


def _attributes(drafting: _Drafting, name: str, csv: CsvFormat | None) -> dict[str, Any]:
    """Return the attributes of a table that are no keys, and the form of its file, in the form of a document."""
    out = drafting.key_columns(name)
    profiles = tuple(replace(each, repeats=()) for each in drafting.profiles[name] if each.column.name not in out)
    try:
        drafted = draft_profiles(profiles, csv)
    except TableError as error:
        if profiles:
            drafting.notes.append(f"No attribute of {name} is drafted: {error}")
        return {"attributes": {}}
    drafting.add_findings(name, drafted)
    grouped_columns = {column for finding in drafted.findings for column in finding.columns if finding.left_out}
    drafting.notes += [
        f"Left out {name}.{column}: {reason}"
        for column, reason in drafted.left_out.items()
        if column not in grouped_columns
    ]
    drafting.notes += [f"Look at {name}.{column}: {hint}" for column, hint in drafted.hints.items()]
    described = drafted.document()
    return {part: described[part] for part in ("csv", "missing", "attributes") if part in described}
