"""At most so many rows a unit, as SQL.

Rows of a unit are ordered by the MD5 (on MySQL the SHA-256) of id, row and repetition.  That order is as
good as random, differs from unit to unit, does not depend on the order in which the engine reads or on other
units, and comes out the same when a task is retried.  Rows that are equal after encoding are told apart by
their number, so a row that stands there a hundred times is a hundred times as likely to be kept.  No privacy
rests on the randomness: any choice that looks at one unit alone bounds its contribution.
"""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

from collections.abc import Sequence

from sfumato.domain import Real
from sfumato.engine.encoding import Encoding
from sfumato.engine.statements import vanishing


def bounded(relation: str, encoding: Encoding, columns: Sequence[str]) -> str:
    """The rows of an encoded ``relation`` that are kept.

    Args:
        relation: what stands after FROM; holds whole units.
        encoding: made the relation.
        columns: columns of the relation to return.
    """
    return f"{_placed(relation, encoding, columns)} <= {encoding.domain.unit.rows}"


def dropped(relation: str, encoding: Encoding, condition: str, most: int) -> str:
    """The number of rows that :func:`bounded` does not keep and that meet a condition, at most ``most`` of one unit.

    Args:
        relation: an encoded relation; holds whole units.
        encoding: made the relation.
        condition: SQL over the codes.
        most: of one unit.
    """
    codes = [f"c{place}" for place in range(len(encoding.domain))]
    beyond = f"{_placed(relation, encoding, [*codes, 'u'])} > {encoding.domain.unit.rows}"
    by_unit = f"SELECT COUNT(*) AS n FROM ({beyond}) AS beyond_rows WHERE {condition} GROUP BY u"
    clamped = f"CASE WHEN n > {most} THEN {most} ELSE n END"
    return f"SELECT COALESCE(SUM({clamped}), 0) AS total FROM ({by_unit}) AS dropped_rows"


def _placed(relation: str, encoding: Encoding, columns: Sequence[str]) -> str:
    """The rows up to the comparison of their place within the unit."""
    listed = ", ".join(columns)
    keyed = f"SELECT {listed}, {_content(encoding)} AS content FROM {relation}"
    numbered = (
        f"SELECT {listed}, content, ROW_NUMBER() OVER (PARTITION BY u, content ORDER BY u) AS repetition "
        f"FROM ({keyed}) AS keyed_rows"
    )
    # The hash is a column before a window orders by it: engines may evaluate it again at every comparison.
    draw = encoding.dialect.digest("CONCAT(content, repetition)")
    drawn = f"SELECT {listed}, {draw} AS draw FROM ({numbered}) AS numbered_rows"
    placed = f"SELECT {listed}, ROW_NUMBER() OVER (PARTITION BY u ORDER BY draw) AS place FROM ({drawn}) AS drawn_rows"
    return f"SELECT {listed} FROM ({placed}) AS placed_rows WHERE place"


def bounded_keys(relation: str, keys: Sequence[str], encoding: Encoding) -> str:
    """Keys with their number of units, each unit counting for at most ``unit.rows`` keys.

    Args:
        relation: an encoded relation that carries the ``keys`` as text, none of them NULL.
        keys: quoted names.
        encoding: made the relation.
    """
    listed = ", ".join(keys)
    if encoding.domain.unit.column is None:
        return f"SELECT {listed}, COUNT(*) AS units FROM {relation} GROUP BY {listed}"
    spelled = ", '|', ".join(keys)
    text = encoding.dialect.digest(f"CONCAT('{encoding.domain.hash[:16]}', u, '|', {spelled})")
    drawn = f"SELECT u, {listed}, {text} AS draw FROM (SELECT DISTINCT u, {listed} FROM {relation}) AS distinct_keys"
    place = f"ROW_NUMBER() OVER (PARTITION BY u ORDER BY draw, {listed})"
    placed = f"SELECT {listed}, {place} AS place FROM ({drawn}) AS drawn_keys"
    return (
        f"SELECT {listed}, COUNT(*) AS units FROM ({placed}) AS placed_keys "
        f"WHERE place <= {encoding.domain.unit.rows} GROUP BY {listed}"
    )


def _content(encoding: Encoding) -> str:
    """Digest of id and encoded row, salted with the domain; equal rows of a unit share it on every engine."""
    dialect, domain = encoding.dialect, encoding.domain
    parts = [dialect.text(f"c{place}") for place in range(len(domain))]
    for place in encoding.values:
        attribute, value = domain.attributes[place], f"v{place}"
        if isinstance(attribute, Real):
            # Engines spell doubles differently, so a real number enters in 2^32 steps of its range.
            span = attribute.maximum - attribute.minimum
            above = vanishing(f"({value} - {attribute.minimum!r})")
            value = dialect.integer(f"FLOOR({above} / {span!r} * 4294967296)")
        parts.append(f"COALESCE({dialect.text(value)}, '')")
    return dialect.digest(f"CONCAT('{domain.hash[:16]}', u, '|', " + ", ' ', ".join(parts) + ")")
