"""Findings about a description, by kind: the columns that its owner should check, and the remedy.

Some kinds report facts of the table in the description.  The owner has to confirm each of them by name before the
description is accepted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sfumato.arguments import expect_all
from sfumato.description.sensitive_columns import FindingKind, People, detail_of, people_of, sensitive_kind
from sfumato.domain import Attribute, Categorical, Dated, Domain, Integer, Real
from sfumato.domain.attribute import EXTRA
from sfumato.domain.unit import Drafted
from sfumato.engine.port import Profile, ProtectedTable
from sfumato.engine.profile import named_like_people
from sfumato.errors import DomainError, InputError

RARE = 20  # a value that this many rows have is no fact about one person
_MOST_VALUES = 200  # values of a column, to count their rows
_SCALE = 10  # the last value of a scale, such as answers from 1 to 5
_MANY_NUMBERS = 30  # distinct numbers of a measurement; a code book seldom lists as many
_TWO = 2  # yes and no are two values
_OF_PEOPLE = 2  # the result of named_like_people for names of ids of people
_MOST_POINTS = 4  # points in the text of a finding
_MOST_NAMED = 12  # columns in the text of a finding


_WORDS = {
    FindingKind.IDENTIFIERS: ("looks like an identifier", "look like identifiers"),
    FindingKind.NAMES: ("seems to have names of people", "seem to have names of people"),
    FindingKind.FREE_TEXT: ("seems to have free text", "seem to have free text"),
    FindingKind.UNIT: ("decides whom releases protect", "decide whom releases protect"),
    FindingKind.VALUES: (
        f"lists only values of the table, and fewer than {RARE} rows have some of them",
        f"list only values of the table, and fewer than {RARE} rows have some of them",
    ),
    FindingKind.BOUNDS: ("has bounds taken from the table", "have bounds taken from the table"),
    FindingKind.DAYS: (
        "has its first or last day taken from the table",
        "have first or last days taken from the table",
    ),
    FindingKind.POINTS: ("has points that are frequent in the table", "have points that are frequent in the table"),
    FindingKind.BINS: ("has edges of bins taken from the table", "have edges of bins taken from the table"),
}
_ACTIONS = {
    FindingKind.IDENTIFIERS: "leave them out, or make one the unit: unit: {id: NAME, rows: N}",
    FindingKind.NAMES: "leave them out",
    FindingKind.FREE_TEXT: "leave them out",
    FindingKind.UNIT: "check that an id is one person, and write the rows to keep of it: unit: {id: NAME, rows: N}",
    FindingKind.VALUES: "list all values that are possible, such as those of a code book",
    FindingKind.BOUNDS: "write bounds that everybody knows",
    FindingKind.DAYS: "write days that everybody knows the table to be about",
    FindingKind.POINTS: "keep only points that everybody knows to be common",
    FindingKind.BINS: "write edges that everybody knows, such as tens",
}


Fact = tuple[FindingKind, str, str]  # a kind, a column, and a detail, which may be empty


@dataclass(frozen=True)
class DescriptionFinding:
    """Columns with one kind of finding.

    Attributes:
        kind: the kind.
        columns: the columns, each with a detail, which may be empty.
        left_out: true if the description omits the columns, so that no confirmation is needed.
    """

    kind: FindingKind
    columns: Mapping[str, str]
    left_out: bool = False

    @property
    def action(self) -> str:
        """The sentence that tells the owner how to act."""
        if self.left_out:
            return "Left out; declare a column by hand if its values are public"
        action = _ACTIONS[self.kind]
        return action[0].upper() + action[1:]

    def __str__(self) -> str:
        one, several = _WORDS[self.kind]
        count = len(self.columns)
        words = f"1 column {one}" if count == 1 else f"{count} columns {several}"
        named = [f"{name} ({why})" if why else name for name, why in list(self.columns.items())[:_MOST_NAMED]]
        more = f", and {count - _MOST_NAMED} more" if count > _MOST_NAMED else ""
        return f"{words}: {', '.join(named)}{more}. {self.action}"


def grouped(findings: Iterable[Fact], *, left_out: bool = False) -> tuple[DescriptionFinding, ...]:
    """Return findings by kind, the most harmful first.

    Args:
        findings: kind, column and detail of each.
        left_out: true if the description omits the columns.
    """
    columns: dict[FindingKind, dict[str, str]] = {}
    for kind, column, detail in findings:
        columns.setdefault(kind, {})[column] = detail
    return tuple(DescriptionFinding(kind, columns[kind], left_out) for kind in FindingKind if kind in columns)


def to_confirm(findings: Iterable[DescriptionFinding]) -> tuple[FindingKind, ...]:
    """Return the kinds that acceptance has to confirm."""
    return tuple(finding.kind for finding in findings if not finding.left_out)


def confirm_option(findings: Iterable[DescriptionFinding]) -> str:
    """Return the option of a command that confirms findings; empty if none needs it."""
    kinds = to_confirm(findings)
    return f" --confirm {','.join(kinds)}" if kinds else ""


def confirmed_kinds(texts: Iterable[str]) -> tuple[FindingKind, ...]:
    """Read names of kinds; a text may have several names with commas between.

    Raises:
        InputError: there is no such kind.
    """
    listed = tuple(texts) if isinstance(texts, Iterable) else (texts,)
    expect_all(listed, str, "kinds of findings are confirmed by their names")
    names = [name.strip() for text in listed for name in text.split(",") if name.strip()]
    known = {kind.value for kind in FindingKind}
    for name in names:
        if name not in known:
            raise InputError(
                f"there is no kind of finding named {name!r}; there are {', '.join(FindingKind)}", culprit=name
            )
    return tuple(kind for kind in FindingKind if kind.value in names)


def refuse_unconfirmed(findings: Iterable[DescriptionFinding], confirmed: Collection[FindingKind]) -> tuple[str, ...]:
    """Return the kinds that the description has and its owner confirmed.

    Raises:
        DomainError: a kind is not confirmed; the message names all of them.
    """
    findings = tuple(findings)
    kinds = to_confirm(findings)
    if missing := [finding for finding in findings if finding.kind in kinds and finding.kind not in confirmed]:
        lines = "".join(f"\n  {finding.kind}: {finding}." for finding in missing)
        raise DomainError(
            "the description is not accepted: edit the findings below, or confirm each kind by name:"
            f"{confirm_option(missing)}{lines}",
            culprit=tuple(finding.kind.value for finding in missing),
        )
    return tuple(kind.value for kind in kinds)


def confirmed_findings(findings: Sequence[DescriptionFinding], confirm: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds of findings that a person confirms.

    Raises:
        DomainError: a kind is not confirmed; the message lists the findings.
        InputError: there is no such kind.
    """
    kinds = confirmed_kinds([confirm] if isinstance(confirm, str) else confirm)
    try:
        return refuse_unconfirmed(findings, kinds)
    except DomainError as error:
        missing = [kind.value for kind in to_confirm(findings) if kind not in kinds]
        argument = f" confirm={[*map(str, kinds), *missing]}"
        raise DomainError(str(error).replace(confirm_text(missing), argument), culprit=error.culprit) from None


def confirm_text(kinds: Sequence[str]) -> str:
    """Return the option of a command that confirms kinds, for the message of a refusal."""
    return f" --confirm {','.join(kinds)}"


# --- the record of the facts that a draft took from a table -----------------------------------------------------------


def stated_fact(kind: FindingKind, attribute: Attribute) -> object:
    """Return the values, bounds, edges or points that an attribute states; None if it states none of this kind."""
    match kind, attribute:
        case FindingKind.VALUES, Categorical(values=values):
            return list(values)
        case FindingKind.BOUNDS, Integer(minimum=low, maximum=high) | Real(minimum=low, maximum=high):
            return [low, high]
        case FindingKind.BINS, Integer(edges=edges) | Real(edges=edges):
            return None if edges is None else list(edges)
        case FindingKind.POINTS, Real(points=points):
            return list(points)
        case _:
            return None


def digest(fact: object) -> str:
    """Return a short hash of a fact."""
    return hashlib.sha256(json.dumps(fact).encode()).hexdigest()[:8]


def drafted_record(domain: Domain, findings: Iterable[DescriptionFinding]) -> Drafted:
    """Return the record of a draft and of the facts that it took from the table."""
    facts: dict[str, dict[str, str]] = {}
    for finding in findings:
        if finding.left_out:
            continue
        for column in finding.columns:
            fact = (
                domain.unit.describe()
                if finding.kind is FindingKind.UNIT
                else stated_fact(finding.kind, domain[column])
            )
            facts.setdefault(finding.kind.value, {})[column] = digest(fact)
    return Drafted(domain.hash, facts)


def unchanged_facts(domain: Domain, drafted: Drafted) -> Iterable[Fact]:
    """Yield the findings of a draft whose facts the description still states."""
    for kind in FindingKind:
        for column, recorded in drafted.findings.get(kind.value, {}).items():
            fact: object
            if kind is FindingKind.UNIT:
                fact = domain.unit.describe()
            elif column in domain.names:
                fact = stated_fact(kind, domain[column])
            else:
                continue
            if digest(fact) == recorded:
                yield kind, column, ""


# --- findings about a domain ------------------------------------------------------------------------------------------


def drafted_facts(domain: Domain, profiles: Sequence[Profile], people: People | None) -> tuple[DescriptionFinding, ...]:
    """Return the facts of a table in its draft that may be facts about single persons.

    Bounds that many rows have, minimums of 0 or 1, yes and no, and scales such as 1 to 5 are not reported.

    Args:
        domain: the draft.
        profiles: the profiles of its columns.
        people: the column that the draft offers as the unit, if there is one.
    """
    by_name = {profile.column.name: profile for profile in profiles}
    facts = [fact for attribute in domain for fact in _stated(attribute, by_name[attribute.name])]
    if people is not None:
        facts.append((FindingKind.UNIT, people.column, str(people)))
    return grouped(facts)


def domain_findings(domain: Domain, table: ProtectedTable | None) -> tuple[DescriptionFinding, ...]:
    """Return the findings that the owner of a description should check before accepting it.

    Args:
        domain: the description.
        table: the table that it describes; None to check the description without its table.

    Raises:
        TableError: the table cannot be read.
    """
    facts = list(_facts_of_document(domain))
    if table is None:
        return grouped([*facts, *_named_like_identifiers(domain)])
    profiles = table.profile(_MOST_VALUES)
    people = people_of(profiles)
    if domain.unit.column is None and people is not None:
        detail = f"one row is the unit, so that a person with several rows is protected less: {people}"
        facts.append((FindingKind.UNIT, people.column, detail))
    by_name = {profile.column.name: profile for profile in profiles}
    for attribute in domain:
        if (profile := by_name.get(attribute.name)) is None:
            continue
        identifies = sensitive_kind(profile)
        if identifies is not None and not _from_code_book(attribute, profile):
            facts.append((identifies[0], attribute.name, detail_of(*identifies)))
        elif named_like_people(attribute.name) == _OF_PEOPLE:
            facts.append((FindingKind.IDENTIFIERS, attribute.name, "by its name"))
        if isinstance(attribute, Dated):
            facts += _days(attribute, profile)
        elif domain.drafted is None:
            stated = _stated(attribute, profile) if domain.draft else _declared_by_hand(attribute, profile)
            facts += [fact for fact in stated if fact[0] in (FindingKind.VALUES, FindingKind.BOUNDS)]
        elif attribute.name in domain.drafted.findings.get(FindingKind.VALUES, {}):  # also if only codes were removed
            facts += [fact for fact in _stated(attribute, profile) if fact[0] is FindingKind.VALUES]
    return grouped(facts)


def _facts_of_document(domain: Domain) -> Iterator[Fact]:
    """Yield the findings from the document alone: unchanged facts of its draft, and an attribute that is the unit."""
    if domain.drafted is not None:
        yield from unchanged_facts(domain, domain.drafted)
    if domain.unit.column is not None and domain.unit.column in domain.names:
        yield FindingKind.IDENTIFIERS, domain.unit.column, "it is the id of the unit"


def _named_like_identifiers(domain: Domain) -> Iterator[Fact]:
    for name in domain.names:
        if named_like_people(name) == _OF_PEOPLE or name.casefold().endswith(("_id", "uuid", "guid")):
            yield FindingKind.IDENTIFIERS, name, "by its name"


def _from_code_book(attribute: Attribute, profile: Profile) -> bool:
    """Return whether an attribute lists all values of the table and further ones, like a code book."""
    if not isinstance(attribute, Categorical) or profile.values is None:
        return False
    return set(map(str, profile.values)) < set(map(str, attribute.values))


def _stated(attribute: Attribute, profile: Profile) -> Iterator[Fact]:
    """Yield the facts of a table that an attribute of a draft repeats."""
    name = attribute.name
    if isinstance(attribute, Categorical):
        rows = _rows_by_value(attribute, profile)
        rare = sum(times < RARE for times in rows.values())
        if len(rows) > _TWO and rare and set(rows) == set(map(str, attribute.values)):
            yield FindingKind.VALUES, name, f"{rare} of {len(rows)}"
        return
    numbers = profile if profile.numbers is None else profile.numbers
    if isinstance(attribute, Real):
        if attribute.points not in ((), (0.0,)):
            named = ", ".join(map(str, attribute.points[:_MOST_POINTS]))
            yield FindingKind.POINTS, name, f"{named}, ..." if len(attribute.points) > _MOST_POINTS else named
        yield FindingKind.BINS, name, ""
    elif isinstance(attribute, Integer):
        if attribute.edges is not None:
            yield FindingKind.BINS, name, ""
        elif ends := _extremes(attribute, numbers):
            yield FindingKind.BOUNDS, name, " and ".join(ends)


def _rows_by_value(attribute: Categorical, profile: Profile) -> dict[str, int]:
    """Return the number of rows with each value of a table, or 0 if it is unknown.

    Spellings count for their value.  Codes for missing values and labels common to all attributes do not count.
    """
    spellings, uncounted = dict(attribute.spellings), {*EXTRA, *map(str, attribute.missing)}
    values = profile.values or ()
    rows: dict[str, int] = {}
    for value, times in zip(map(str, values), profile.counts or (0,) * len(values), strict=True):
        if value not in uncounted:
            listed = spellings.get(value, value)
            rows[listed] = rows.get(listed, 0) + times
    return rows


def _extremes(attribute: Integer | Real, profile: Profile) -> list[str]:
    """Return the bounds that are extremes of the table and that few rows have."""
    counts = dict(zip(profile.values or (), profile.counts, strict=False))
    low, high = attribute.minimum, attribute.maximum
    if low in (0, 1) and high <= _SCALE:
        return []
    ends = {"minimum": (low, profile.minimum), "maximum": (high, profile.maximum)}
    return [
        end
        for end, (declared, in_table) in ends.items()
        if declared == in_table and counts.get(in_table, 0) < RARE and not (end == "minimum" and declared in (0, 1))
    ]


def _declared_by_hand(attribute: Attribute, profile: Profile) -> Iterator[Fact]:
    """Yield bounds that were probably taken from the table: both are its extremes, and neither is round."""
    numbers = profile if profile.numbers is None else profile.numbers
    if isinstance(attribute, Integer | Real) and numbers.distinct > _MANY_NUMBERS:
        ends = _extremes(attribute, numbers)
        bounds = {"minimum": attribute.minimum, "maximum": attribute.maximum}
        if len(ends) == _TWO and not any(_is_round(bounds[end]) for end in ends):
            yield FindingKind.BOUNDS, attribute.name, " and ".join(ends)


def _is_round(value: float) -> bool:
    return abs(value) <= 1 or value % 5 == 0 or value % 10 == 9  # noqa: PLR2004 - 0, 25, 99


def _days(attribute: Dated, profile: Profile) -> Iterator[Fact]:
    """Yield the first or last day if it is the table's own, and no month begins or ends there."""
    ends = {"first": (attribute.first, profile.minimum), "last": (attribute.last, profile.maximum)}
    equal = [
        name
        for name, (declared, in_table) in ends.items()
        if declared.isoformat() == str(in_table)[:10] and 1 not in (declared.day, (declared + timedelta(days=1)).day)
    ]
    if equal:
        yield FindingKind.DAYS, attribute.name, " and ".join(equal)
