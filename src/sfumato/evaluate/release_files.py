"""Releases as files: each released cell is read as a set of declared cells.

The reader understands declared values and cell labels, runs of them (``first..last``), raw numbers, ``*`` and the
labels of a hierarchy. It also understands sets (``{a, b}``) and intervals (``[3, 7)``, ``3..7``, ``3-7``, ``>= 3``, ``<
7``).
"""

from __future__ import annotations

import hashlib
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from sfumato.arguments import expect
from sfumato.bounded_cache import cached
from sfumato.domain import Attribute, Categorical, Date, Dated, Domain, Integer, Real, Timestamp, Unknown
from sfumato.domain.attribute import EXTRA, null_code, unknown_code
from sfumato.domain.raw_values import DateFormat, is_missing
from sfumato.engine.table_files import name_columns
from sfumato.errors import InputError, TableError
from sfumato.evaluate.released import Claim, Released, Rows, parse_claim, refuse_large_pairs, spread
from sfumato.evaluate.stated_claims import claim_of_file

Leaves = frozenset[int]

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_BRACKETED = re.compile(rf"([\[(\]])\s*({_NUMBER}|-?inf|)\s*[,;]\s*({_NUMBER}|\+?inf|)\s*([\])\[])")
_RANGE = re.compile(rf"({_NUMBER})\s*(?:\.\.|-|\N{{EN DASH}}|to)\s*({_NUMBER})")
_HALF_LINE = re.compile(rf"(<=|>=|<|>|\N{{LESS-THAN OR EQUAL TO}}|\N{{GREATER-THAN OR EQUAL TO}})\s*({_NUMBER})")
_PLAIN = re.compile(_NUMBER)


def label_codes(attribute: Attribute) -> dict[str, int]:
    """Return the first code of each label of an attribute."""
    labels = attribute.labels()
    return dict(zip(reversed(labels), reversed(range(len(labels))), strict=True))


def compatible(
    attribute: Attribute, text: str | None, labels: Mapping[str, Leaves], own: Mapping[str, int] | None = None
) -> Leaves | None:
    """Return the codes that a released cell may represent, or None if the text has no meaning.

    Args:
        attribute: the column's attribute.
        text: the cell as written; None or an empty text is a missing value.
        labels: leaves under each label of the attribute's hierarchy; empty without a hierarchy.
        own: :func:`label_codes` of the attribute, which may be millions.  Readers of many cells compute them once.

    >>> age = Integer(name="age", minimum=0, maximum=9, unknown=Unknown.CLAMP)
    >>> sorted(compatible(age, "[3, 6)", {})), compatible(age, "x", {})
    ([3, 4, 5], None)
    """
    if text is None or not text.strip() or is_missing(text, attribute.missing, numeric=_is_numeric(attribute)):
        missing = null_code(attribute)
        other = unknown_code(attribute) if missing is None else missing
        return None if other is None else frozenset([other])
    text = text.strip()
    own = label_codes(attribute) if own is None else own
    text = dict(attribute.spellings).get(text, text) if isinstance(attribute, Categorical) else text
    if text in own:
        return frozenset([own[text]])
    if text in labels:
        return labels[text]
    if text == "*":  # any declared value; missing and unknown ones would take a share of its weight
        return frozenset(range(attribute.declared))
    if (run := _run(own, text)) is not None:
        return run
    if text[0] == "{" and text[-1] == "}":
        return _union(attribute, text[1:-1], labels, own)
    leaves = None
    if isinstance(attribute, Integer | Real):
        leaves = _numeric(attribute, text)
    elif isinstance(attribute, Date | Timestamp):
        leaves = _moment(attribute, text)
    if leaves is None and (other := unknown_code(attribute)) is not None:
        return frozenset([other])
    return leaves or None


def _is_numeric(attribute: Attribute) -> bool:
    return isinstance(attribute, Integer | Real)


def _run(own: Mapping[str, int], text: str) -> Leaves | None:
    """Return the cells of a run of labels as Sfumato's recodings write it: ``first..last``."""
    at = text.find("..")
    while at >= 0:
        first, last = text[:at], text[at + 2 :]
        if first in own and last in own and own[first] < own[last]:
            return frozenset(range(own[first], own[last] + 1))
        at = text.find("..", at + 1)
    return None


def _union(attribute: Attribute, inside: str, labels: Mapping[str, Leaves], own: Mapping[str, int]) -> Leaves | None:
    if (leaves := _leaves_with_extra(own, inside)) is not None:
        return leaves
    if inside.lstrip().startswith("{"):  # nested sets have no meaning
        return None
    members = [compatible(attribute, part, labels, own) for part in inside.split(",")]
    known = [member for member in members if member is not None]
    return frozenset().union(*known) if known and len(known) == len(members) else None


def _leaves_with_extra(own: Mapping[str, int], inside: str) -> Leaves | None:
    """Return the leaves of a value or run with missing or unknown ones. Labels may contain commas."""
    values, _, last = inside.rpartition(", ")
    further: Leaves = frozenset()
    while values and last in EXTRA and last in own:
        further, inside = further | {own[last]}, values
        values, _, last = inside.rpartition(", ")
    run = frozenset([own[inside]]) if inside in own else _run(own, inside)
    return run | further if further and run is not None else None


def _moment(attribute: Dated, text: str) -> Leaves | None:
    """Return the cell of a date or local time in a declared format or in the format of synthetic files."""
    written = (DateFormat(each).read(text) for each in attribute.formats if "%z" not in each)
    try:
        moment = next((each for each in written if each is not None), None) or datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is not None:  # only engines convert times with a zone
        return None
    period = attribute.by.of(moment.date(), moment.hour)
    first, last = attribute.periods
    if attribute.first <= moment.date() <= attribute.last:
        return frozenset([period - first])
    if attribute.unknown is Unknown.CLAMP:
        return frozenset([0 if moment.date() < attribute.first else last - first])
    return None


def _numeric(attribute: Integer | Real, text: str) -> Leaves | None:
    if _PLAIN.fullmatch(text):
        return _point(attribute, float(text))
    if match := _BRACKETED.fullmatch(text):
        opening, low, high, closing = match.groups()
        return _between(
            attribute,
            float(low) if low else -math.inf,
            float(high) if high else math.inf,
            closed=(opening == "[", closing == "]"),
        )
    if match := _RANGE.fullmatch(text):
        return _between(attribute, float(match[1]), float(match[2]), closed=(True, True))
    if match := _HALF_LINE.fullmatch(text):
        sign, bound = match[1], float(match[2])
        inclusive = sign not in {"<", ">"}
        if sign in {"<", "<=", "\N{LESS-THAN OR EQUAL TO}"}:
            return _between(attribute, -math.inf, bound, closed=(True, inclusive))
        return _between(attribute, bound, math.inf, closed=(inclusive, True))
    return None


def _point(attribute: Integer | Real, value: float) -> Leaves | None:
    if attribute.unknown is Unknown.CLAMP:
        value = min(max(value, attribute.minimum), attribute.maximum)
    return _between(attribute, value, value, closed=(True, True)) or None


def _between(attribute: Integer | Real, low: float, high: float, *, closed: tuple[bool, bool]) -> Leaves:
    """Return the declared cells that share a point with the interval."""
    if low == math.inf or high == -math.inf:  # a number beyond the range of floats is in no cell
        return frozenset()
    firsts, lasts = _ends(attribute)
    if isinstance(attribute, Integer):
        smallest = math.ceil(low) if math.isfinite(low) else firsts[0]
        largest = math.floor(high) if math.isfinite(high) else lasts[-1]
        smallest += not closed[0] and smallest == low
        largest -= not closed[1] and largest == high
        start, stop = bisect_left(lasts, smallest), bisect_right(firsts, largest)
        return frozenset(range(start, stop)) if smallest <= largest else frozenset()
    low = low if closed[0] else math.nextafter(low, math.inf)
    start = bisect_right(lasts, low)  # a cell excludes its last number ...
    if closed[0] and low == lasts[-1]:  # ... except the last cell, which includes it
        start -= 1
    stop = (bisect_right if closed[1] else bisect_left)(firsts, high)
    return frozenset(range(start, stop)) if low <= high else frozenset()


@cached()  # uncached, the evaluation of linked tables takes 1.07 times the CPU
def _ends(attribute: Integer | Real) -> tuple[Sequence[float], Sequence[float]]:
    """Return the first and last numbers of all declared cells. A real cell ends where the next one begins."""
    if isinstance(attribute, Real):
        return attribute.edges[:-1], attribute.edges[1:]
    if attribute.edges is None:
        return (numbers := range(attribute.minimum, attribute.maximum + 1)), numbers
    firsts, lasts = zip(*(attribute.bounds(code) for code in range(attribute.declared)), strict=True)
    return firsts, lasts


Hierarchies = Mapping[str, Mapping[str, Leaves]]


def read_release(path: str | Path, domain: Domain, *, hierarchies: Hierarchies | None = None) -> Released:
    """Read released rows from a CSV or Parquet file. Columns outside the domain are ignored.

    Args:
        path: the file; its columns have the names of the domain's attributes.
        domain: the common domain of table and release.
        hierarchies: for each generalized column, the leaves under every label (``read_hierarchy``).

    Raises:
        InputError: the domain or a hierarchy has the wrong type.
        TableError: the file cannot be read, lacks a column, or a cell has no meaning in the domain.
    """
    expect(domain, Domain, "a release is described by a Domain, such as sfumato.domain.load returns")
    _refuse_wrong_labels(hierarchies, domain)
    return from_arrow(_read_named(path, domain), domain, hierarchies=hierarchies)


@dataclass(frozen=True)
class Oddities:
    """The parts of a file that the domain does not explain: ignored columns, and numbers of cells read as unknown."""

    ignored: tuple[str, ...]
    unknown: Mapping[str, int]


def oddities(path: str | Path, domain: Domain, release: Released) -> Oddities:
    """Return the ignored columns of a file, and the number of cells per column that were read as unknown.

    Args:
        path: the file, which is read once more.
        domain: the domain used to read it.
        release: the rows that were read.

    Raises:
        TableError: the file cannot be read.
    """
    table = _read_named(path, domain)
    unknown = {}
    for column, attribute in enumerate(domain):
        other = unknown_code(attribute)
        if other is None:
            continue
        only = np.flatnonzero(release.cells[column][:, other] == 1)
        # cells written as unknown, or missing without a cell for missing values, are expected
        distinct, places = _distinct(table[attribute.name])
        strange = np.array([(text or "").strip() not in ("", attribute.label(other)) for text in distinct])
        if strange_cells := int((np.isin(release.codes[:, column], only) & strange[places]).sum()):
            unknown[attribute.name] = strange_cells
    return Oddities(tuple(name for name in table.column_names if name not in domain.names), unknown)


def from_arrow(table: pa.Table, domain: Domain, *, hierarchies: Hierarchies | None = None) -> Released:
    """Read released rows from an Arrow table, like ``read_release``."""
    lacking = [name for name in domain.names if name not in table.column_names]
    if lacking:
        raise TableError(
            f"the release lacks the columns {', '.join(lacking)} of the domain; name a domain without them",
            culprit=tuple(lacking),
        )
    twice = [name for name in domain.names if table.column_names.count(name) > 1]
    if twice:
        raise TableError(f"the release has the columns {', '.join(twice)} twice", culprit=tuple(twice))
    if not table.num_rows:
        raise TableError("the release has no rows", culprit=None)
    codes = np.empty((table.num_rows, len(domain)), dtype=np.intp, order="F")
    cells = []
    for column, attribute in enumerate(domain):
        distinct, places = _distinct(table[attribute.name])
        labels = (hierarchies or {}).get(attribute.name, {})
        own = label_codes(attribute)
        leaves = [compatible(attribute, text, labels, own) for text in distinct]
        if None in leaves:
            raise TableError(
                f"row {1 + int(np.argmax(places == leaves.index(None)))} of the release has a cell in "
                f"{attribute.name!r} that is no value, interval, set or label of the domain",
                culprit=attribute,
            )
        codes[:, column], sets = _share_leaves(attribute, [leaf_set for leaf_set in leaves if leaf_set], places)
        cells.append(spread(sets))
    return Released(domain, codes, tuple(cells))


def read_hierarchy(path: str | Path, attribute: Attribute) -> dict[str, Leaves]:
    """Return the leaves under every label of a hierarchy: a CSV file with one row per leaf and one column per level.

    Rows with an undeclared leaf are skipped, because hierarchies often cover more than a domain declares.

    Raises:
        InputError: the attribute has the wrong type.
        TableError: the file cannot be read, or none of its leaves is declared.
    """
    expect(attribute, Attribute, "a hierarchy is of an attribute, such as domain['age']")
    table = _read_text(path)
    if not table.num_columns:
        raise TableError(f"the hierarchy {path} has no columns", culprit=attribute)
    leaves, *levels = ([_text(value) for value in _values(column)] for column in table.columns)
    under: dict[str, set[int]] = {}
    own = label_codes(attribute)
    for place, leaf in enumerate(leaves):
        codes = compatible(attribute, leaf, {}, own)
        if codes is None:
            continue
        for level in levels:
            if label := (level[place] or "").strip():
                under.setdefault(label, set()).update(codes)
    if not under:
        raise TableError(f"the hierarchy {path} names no declared value of {attribute.name!r}", culprit=attribute)
    return {label: frozenset(codes) for label, codes in under.items()}


def _refuse_wrong_labels(hierarchies: object, domain: Domain) -> None:
    form = "hierarchies are given as {column: read_hierarchy(file, domain[column])}"
    if hierarchies is None:
        return
    expect(hierarchies, Mapping, form)
    assert isinstance(hierarchies, Mapping)
    for name, labels in hierarchies.items():
        expect(labels, Mapping, form)
        codes = range(domain[name].size)
        for leaves in labels.values():
            expect(leaves, frozenset, form)
            if not leaves or not all(leaf in codes for leaf in leaves):
                raise InputError(f"{form}; one of {name!r} has leaves that the domain does not have", culprit=labels)


def _share_leaves(
    attribute: Attribute, leaves: list[Leaves], places: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:  # codes (rows,), sets (distinct cells, leaves)
    """Assign numbers to the distinct sets. If every cell is one leaf, the code is the leaf."""
    if all(len(leaf_set) == 1 for leaf_set in leaves):
        own = np.array([next(iter(leaf_set)) for leaf_set in leaves], dtype=np.intp)
        return own[places], np.eye(attribute.size, dtype=np.bool_)
    order = {leaf_set: number for number, leaf_set in enumerate(dict.fromkeys(leaves))}
    sets = np.zeros((len(order), attribute.size), dtype=np.bool_)
    for leaf_set, number in order.items():
        sets[number, sorted(leaf_set)] = True
    return np.array([order[leaf_set] for leaf_set in leaves], dtype=np.intp)[places], sets


def _distinct(column: pa.ChunkedArray) -> tuple[list[str | None], np.ndarray]:
    """Return the distinct cells as text, and the position of each row's cell among them."""
    import pyarrow.compute as pc

    if pa.types.is_nested(column.type):
        column = pa.chunked_array([[_text(value) for value in _values(column)]], type=pa.string())
    encoded = pc.dictionary_encode(column.combine_chunks(), null_encoding="encode")
    places = encoded.indices.to_numpy(zero_copy_only=False).astype(np.intp)
    return [_text(value) for value in _values(encoded.dictionary)], places


def _values(column: pa.Array | pa.ChunkedArray) -> list[object]:
    try:
        values: list[object] = column.to_pylist()
    except (ValueError, OverflowError):  # dates outside all calendars
        raise TableError(f"a column of {column.type} holds values that cannot be read", culprit=None) from None
    return values


def _text(value: object) -> str | None:
    if value is None or (isinstance(value, float) and value != value):  # noqa: PLR0124 (NaN differs from itself)
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Iterable):
        return "{" + ",".join(str(part) for part in value) + "}"
    return str(value)


def _read_named(path: str | Path, domain: Domain) -> pa.Table:
    """Read a file with the column names that engines give to blank and repeated headers.

    Raises:
        TableError: the file cannot be read, or has a column of the domain twice.
    """
    table = _read_text(path)
    named = name_columns(table.column_names)
    extra = [name for name, header in named.items() if name != header and name not in domain.names]
    if twice := sorted({named[name] for name in extra} & set(domain.names)):
        raise TableError(f"the release has the columns {', '.join(twice)} twice", culprit=tuple(twice))
    return table.rename_columns(list(named))


def _read_text(given: str | Path) -> pa.Table:
    import pyarrow.csv
    import pyarrow.parquet

    expect(given, str | Path, "a file is named by its path")
    path = Path(given)
    if not path.exists():
        raise TableError(f"there is no file {path}", culprit=str(path))
    try:
        if path.suffix.lower() in {".parquet", ".pq"}:
            return pyarrow.parquet.read_table(path)
        with pyarrow.csv.open_csv(path) as reader:
            names = reader.schema.names
        convert = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""]
        )
        lines = pyarrow.csv.ParseOptions(newlines_in_values=True)
        return pyarrow.csv.read_csv(path, convert_options=convert, parse_options=lines)
    except (OSError, pa.ArrowException, UnicodeDecodeError):
        raise TableError(f"cannot read {path} as CSV or Parquet", culprit=str(path)) from None


# released files with their guarantees


@dataclass(frozen=True)
class Submitted:
    """A released file with its name, its SHA-256 and its guarantee."""

    name: str
    digest: str
    claim: Claim
    release: Released
    oddities: Oddities

    def made(self, _: Rows) -> Released:
        """Return the release. A frontier calls this to make each of its candidates."""
        return self.release


def submissions(
    releases: Sequence[Path], claims: Sequence[str], hierarchies: Sequence[str], domain: Domain
) -> tuple[Submitted, ...]:
    """Read released files with their guarantees, one claim per file in the same order.

    Args:
        releases: CSV or Parquet files.
        claims: in the syntax of ``parse_claim``. Default: the statement in each file.
        hierarchies: ``column=file``, for generalized cells written as labels.
        domain: maps the cells.

    Raises:
        InputError: there is not one claim per release, a release states no guarantee, or a hierarchy is not
            ``column=file``.
        SizeError: a pair of columns has too many cells to be compared.
        TableError: a file cannot be read or mapped.
    """
    refuse_large_pairs(domain)
    if claims and len(claims) != len(releases):
        raise InputError(
            f"{len(releases)} releases and {len(claims)} guarantees: give one guarantee for each release, in order, "
            "by the argument claims ('none' for a release that promises nothing)",
            culprit=tuple(claims),
        )
    parsed: Sequence[Claim | None] = [parse_claim(text) for text in claims] or [None] * len(releases)
    labels = _labels(hierarchies, domain)
    names = [path.name if [each.name for each in releases].count(path.name) == 1 else str(path) for path in releases]
    submitted = []
    for name, claim, path in zip(names, parsed, releases, strict=True):
        release = read_release(path, domain, hierarchies=labels)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        submitted.append(Submitted(name, digest, claim_of_file(path, claim), release, oddities(path, domain, release)))
    return tuple(submitted)


def _labels(hierarchies: Sequence[str], domain: Domain) -> Hierarchies:
    hierarchy_of = {}
    for text in hierarchies:
        column, equals, path = text.partition("=")
        if not equals:
            raise InputError(f"{text!r} is no hierarchy; write column=file", culprit=text)
        hierarchy_of[column] = read_hierarchy(path, domain[column])
    return hierarchy_of
