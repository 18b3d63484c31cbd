"""Bounds on the contribution of a unit: the choice of its rows, as SQL, one text for every engine.

Rows of a unit are ordered by the MD5 (on MySQL the SHA-256) of id, row and repetition.  That order is as good as
random.  It differs from unit to unit, does not depend on other units or on the order in which the engine reads, and is
the same when a task is retried.  Rows that are equal after encoding have different numbers of repetition, so a row that
occurs a hundred times is a hundred times as likely to stay.  No privacy depends on the randomness: any choice by one
unit alone bounds its contribution.

Bounds by groups come first, one after the other in the order of their names.  Among the cells that have rows of a unit,
the first by the MD5 of id and cell stay, and the first rows in each of them.  The bound on all rows comes last.  Each
step reads one unit alone and only removes rows, so every bound holds at the end.

DuckDB selects the same rows without these statements (``duckdb/duck_bounding.py``), by the same digests.
"""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sfumato.domain import Attribute, Real
from sfumato.domain.unit import GroupBound, SizeOf, Unit
from sfumato.engine.dialect import Dialect
from sfumato.engine.encoding import RowEncoding, bin_number, stored_values, vanishing


def bounded(relation: str, encoding: RowEncoding, columns: Sequence[str]) -> str:
    """Return the rows of an encoded ``relation`` within the bounds.

    Args:
        relation: a FROM clause of whole units.
        encoding: the encoding of the relation.
        columns: columns of the relation to return.
    """
    return f"{_placed(relation, encoding, columns)} <= {encoding.domain.unit.rows}"


def kept_rows(encoding: RowEncoding, relation: str, raw: Sequence[str]) -> str:
    """Return a statement for the encoded rows of a relation with its ``raw`` columns, bounded if the unit has an id."""
    select = encoding.select(relation, raw)
    if encoding.domain.unit.column is None:
        return select
    columns = [*encoding.stored, *(f"r{place}" for place in range(len(raw)))]
    return bounded(f"({select}) AS encoded_rows", encoding, columns)


def kept_rows_at_once(encoding: RowEncoding, relation: str, raw: Sequence[str]) -> str:
    """Return the rows of :func:`kept_rows`, but sort only units above a bound; common tables are computed once."""
    if encoding.domain.unit.column is None:
        return kept_rows(encoding, relation, raw)
    columns = [*encoding.stored, *(f"r{place}" for place in range(len(raw)))]
    rows_over = "(SELECT * FROM encoded_rows WHERE u IN (SELECT u FROM over_units)) AS rows_over"
    return (
        f"WITH encoded_rows AS ({encoding.select(relation, raw)}), "
        f"over_units AS ({beyond_bounds('encoded_rows', encoding)}) "
        f"SELECT {', '.join(columns)} FROM encoded_rows WHERE u NOT IN (SELECT u FROM over_units) "
        f"UNION ALL {bounded(rows_over, encoding, columns)}"
    )


def dropped(relation: str, encoding: RowEncoding, condition: str, most: int) -> str:
    """Return SQL for the number of rows that :func:`bounded` drops and that meet a condition, at most ``most`` per
    unit.

    Args:
        relation: an encoded relation of whole units.
        encoding: the encoding of the relation.
        condition: SQL over the codes.
        most: the cap per unit.
    """
    codes = [f"c{place}" for place in range(len(encoding.domain))]
    beyond = f"{_placed(relation, encoding, [*codes, 'u'])} > {encoding.domain.unit.rows}"
    by_unit = f"SELECT COUNT(*) AS n FROM ({beyond}) AS beyond_rows WHERE {condition} GROUP BY u"
    clamped = f"CASE WHEN n > {most} THEN {most} ELSE n END"
    return f"SELECT COALESCE(SUM({clamped}), 0) AS total FROM ({by_unit}) AS dropped_rows"


def _placed(relation: str, encoding: RowEncoding, columns: Sequence[str]) -> str:
    """Return the rows with their position within the unit, before it is compared."""
    listed, per = ", ".join(columns), encoding.domain.unit.per
    cells = {f"a{place}": cell_number(encoding, bound.by) for place, bound in enumerate(per)}
    drawn = in_drawn_order(relation, columns, row_content(encoding), encoding.dialect, more=cells)
    if not per:
        return _numbered(drawn, listed)
    carried = ", ".join([listed, *cells])
    drawn = f"SELECT {carried}, draw, 1 AS kept FROM ({drawn}) AS every_draw"
    for number, bound in enumerate(per):
        drawn = _by_groups(drawn, f"{carried}, draw", encoding, number, bound)
    beyond = encoding.domain.unit.rows + 1
    place = f"CASE WHEN kept = 1 THEN ROW_NUMBER() OVER (PARTITION BY u, kept ORDER BY draw) ELSE {beyond} END"
    placed = f"SELECT {listed}, {place} AS place FROM ({drawn}) AS bounded_rows"
    return f"SELECT {listed} FROM ({placed}) AS placed_rows WHERE place"


def in_drawn_order(
    relation: str, columns: Sequence[str], content: str, dialect: Dialect, *, more: Mapping[str, str] | None = None
) -> str:
    """Return the rows of a relation with ``draw``, which orders the rows of a unit.

    Args:
        relation: a FROM clause; has the unit ``u``.
        columns: columns of the relation to return, including ``u``.
        content: SQL for a digest of the unit and of all values of a row.
        dialect: the dialect of the engine.
        more: further columns, computed from each row.
    """
    own = "".join(f", {value} AS {name}" for name, value in (more or {}).items())
    listed = ", ".join([*columns, *(more or {})])
    keyed = f"SELECT {', '.join(columns)}, {content} AS content{own} FROM {relation}"
    numbered = (
        f"SELECT {listed}, content, ROW_NUMBER() OVER (PARTITION BY u, content ORDER BY u) AS repetition "
        f"FROM ({keyed}) AS keyed_rows"
    )
    # The hash is a column before a window orders by it: engines may evaluate it again at every comparison.
    draw = dialect.digest("CONCAT(content, repetition)")
    return f"SELECT {listed}, {draw} AS draw FROM ({numbered}) AS numbered_rows"


def first_rows(
    relation: str, columns: Sequence[str], attributes: Sequence[Attribute], dialect: Dialect, most: int
) -> str:
    """Return the first ``most`` rows of each unit in the order of :func:`in_drawn_order`.

    Args:
        relation: a FROM clause.
        columns: all columns of the relation: codes, numbers, keys ``k0, k1, ...`` and the unit ``u``.
        attributes: the attributes of the codes and numbers.
        dialect: the dialect of the engine.
        most: the most rows of one unit.
    """
    cells = [spelled_row(dialect, attributes, stored_values(attributes))] if attributes else []
    keys = [f"COALESCE({dialect.text(name)}, '')" for name in columns if name.startswith("k")]
    text = ", ' ', ".join([*cells, *keys, "''"])
    content = dialect.digest(f"CONCAT(u, '|', {text})")
    drawn = in_drawn_order(relation, columns, content, dialect)
    return f"{_numbered(drawn, ', '.join(columns))} <= {most}"


def _numbered(drawn: str, listed: str) -> str:
    """Return the rows with their position within the unit, before it is compared."""
    place = "ROW_NUMBER() OVER (PARTITION BY u ORDER BY draw)"
    placed = f"SELECT {listed}, {place} AS place FROM ({drawn}) AS drawn_rows"
    return f"SELECT {listed} FROM ({placed}) AS placed_rows WHERE place"


def _by_groups(rows: str, carried: str, encoding: RowEncoding, number: int, bound: GroupBound) -> str:
    """Return the rows with ``kept`` 0 if a bound by groups drops them too; positions count the remaining rows."""
    cell = f"a{number}"
    if bound.groups is not None:
        drawn = f"SELECT {carried}, kept, {cell_digest(encoding, cell)} AS cell_draw FROM ({rows}) AS every_row"
        rank = f"DENSE_RANK() OVER (PARTITION BY u, kept ORDER BY cell_draw, {cell})"
        ranked = f"SELECT {carried}, kept, {rank} AS cell_rank FROM ({drawn}) AS drawn_cells"
        keeps = f"CASE WHEN kept = 1 AND cell_rank <= {bound.groups} THEN 1 ELSE 0 END"
        rows = f"SELECT {carried}, {keeps} AS kept FROM ({ranked}) AS ranked_cells"
    place = f"ROW_NUMBER() OVER (PARTITION BY u, kept, {cell} ORDER BY draw)"
    placed = f"SELECT {carried}, kept, {place} AS cell_place FROM ({rows}) AS kept_cells"
    keeps = f"CASE WHEN kept = 1 AND cell_place <= {bound.rows} THEN 1 ELSE 0 END"
    return f"SELECT {carried}, {keeps} AS kept FROM ({placed}) AS placed_cells"


def cell_digest(encoding: RowEncoding, cell: str) -> str:
    """Return the digest that orders the cells of a unit, from the unit ``u`` and the number of a cell."""
    return encoding.dialect.digest(f"CONCAT('{encoding.domain.hash[:16]}', u, '|', {encoding.dialect.text(cell)})")


def cell_number(encoding: RowEncoding, by: Sequence[str]) -> str:
    """Return the number of an encoded row's cell, among all joint cells of some groupings."""
    number = "0"
    for name in by:
        grouping = encoding.domain.grouping(name)
        code = f"c{encoding.domain.index(grouping.attribute)}"
        own = encoding.dialect.integer(code if grouping.groups is None else _mapped(code, grouping.groups))
        number = own if number == "0" else f"({number}) * {len(grouping.labels)} + {own}"
    return number


def _mapped(code: str, cells: Sequence[int]) -> str:
    """Return the cell of a code: a balanced tree over runs of consecutive codes with one cell."""
    starts = [place for place, cell in enumerate(cells) if not place or cells[place - 1] != cell]
    return bin_number(code, starts, [cells[start] for start in starts])


def fewest_cut(unit: Unit) -> int:
    """Return the largest number of rows per unit that no bound can cut."""
    bounds = [most for bound in unit.per for most in (bound.rows, bound.groups)]
    return min(most for most in (unit.rows, *bounds) if most is not None)


def beyond_bounds(relation: str, encoding: RowEncoding) -> str:
    """Return the units that lose rows by a bound, for engines that order the rows of these units only.

    Args:
        relation: an encoded relation of whole units.
        encoding: the encoding of the relation.
    """
    unit = encoding.domain.unit
    selects = [f"SELECT u FROM {relation} GROUP BY u HAVING COUNT(*) > {unit.rows}"]
    for bound in unit.per:
        fewest = min(bound.rows, bound.rows if bound.groups is None else bound.groups)  # without any cut
        many = f"SELECT u FROM {relation} GROUP BY u HAVING COUNT(*) > {fewest}"
        rows = f"SELECT u, {cell_number(encoding, bound.by)} AS cell FROM {relation} WHERE u IN ({many})"
        cells = f"SELECT u, COUNT(*) AS n FROM ({rows}) AS cell_rows GROUP BY u, cell"
        groups = "" if bound.groups is None else f" OR COUNT(*) > {bound.groups}"
        selects.append(f"SELECT u FROM ({cells}) AS unit_cells GROUP BY u HAVING MAX(n) > {bound.rows}{groups}")
    return " UNION ".join(selects)


def unit_sizes(relation: str, encoding: RowEncoding, starts: Sequence[int], of: SizeOf) -> str:
    """Return SQL for the number of units by size: pairs of a bin's index and its units.

    Args:
        relation: an encoded relation of whole units.
        encoding: the encoding of the relation.
        starts: the smallest size of each bin, increasing from 1; the last bin is open.
        of: the size to count.
    """
    place = bin_number("n", starts, range(len(starts)))
    sizes = f"SELECT u, COUNT(*) AS n FROM {relation} GROUP BY u"
    if of.by:
        rows = f"SELECT u, {cell_number(encoding, of.by)} AS cell FROM {relation}"
        cells = f"SELECT u, COUNT(*) AS held FROM ({rows}) AS cell_rows GROUP BY u, cell"
        sizes = f"SELECT u, {'COUNT(*)' if of.cells else 'MAX(held)'} AS n FROM ({cells}) AS unit_cells GROUP BY u"
    binned = f"SELECT {place} AS size FROM ({sizes}) AS sizes"
    return f"SELECT size, COUNT(*) AS units FROM ({binned}) AS binned GROUP BY size"


def bounded_keys(relation: str, keys: Sequence[str], encoding: RowEncoding) -> str:
    """Return SQL for keys with their number of units, each unit counting for at most ``unit.rows`` keys.

    Args:
        relation: an encoded relation with the ``keys`` as text, none of them NULL.
        keys: quoted names.
        encoding: the encoding of the relation.
    """
    listed = ", ".join(keys)
    if encoding.domain.unit.column is None:
        return f"SELECT {listed}, COUNT(*) AS units FROM {relation} GROUP BY {listed}"
    joined_keys = ", '|', ".join(keys)
    text = encoding.dialect.digest(f"CONCAT('{encoding.domain.hash[:16]}', u, '|', {joined_keys})")
    drawn = f"SELECT u, {listed}, {text} AS draw FROM (SELECT DISTINCT u, {listed} FROM {relation}) AS distinct_keys"
    place = f"ROW_NUMBER() OVER (PARTITION BY u ORDER BY draw, {listed})"
    placed = f"SELECT {listed}, {place} AS place FROM ({drawn}) AS drawn_keys"
    return (
        f"SELECT {listed}, COUNT(*) AS units FROM ({placed}) AS placed_keys "
        f"WHERE place <= {encoding.domain.unit.rows} GROUP BY {listed}"
    )


def row_content(encoding: RowEncoding) -> str:
    """Return the digest of id and encoded row, salted with the domain; equal rows of a unit share it everywhere."""
    row = spelled_row(encoding.dialect, encoding.domain.attributes, encoding.values)
    return encoding.dialect.digest(f"CONCAT('{encoding.domain.hash[:16]}', u, '|', {row})")


def spelled_row(dialect: Dialect, attributes: Sequence[Attribute], values: Sequence[int]) -> str:
    """Return SQL for the codes of a row and the numbers of some attributes, as text that is equal on all engines.

    Args:
        dialect: the dialect of the engine.
        attributes: the attributes of the row.
        values: positions of the attributes whose number is stored next to the code.
    """
    parts = [dialect.text(f"c{place}") for place in range(len(attributes))]
    for place in values:
        attribute, value = attributes[place], f"v{place}"
        if isinstance(attribute, Real):
            # Engines write doubles differently, so a real number is written in 2^32 steps of its range.
            span = attribute.maximum - attribute.minimum
            above = vanishing(f"({value} - {attribute.minimum!r})")
            value = dialect.integer(f"FLOOR({above} / {span!r} * 4294967296)")
        parts.append(f"COALESCE({dialect.text(value)}, '')")
    return ", ' ', ".join(parts)
