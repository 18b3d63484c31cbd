"""A grammar of statements: each is drawn as it is asked, and as DuckDB answers it over the declared tables.

Nothing here imports the product.
"""

# ruff: noqa: E501, S311, S608 - statements and data of tests are put together here

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date, timedelta

TOP = 2  # a limit of this many groups is written as TOP
OWNERS = {
    name: table
    for table, names in {
        "trips": "age band fare kind flag day seen start",
        "people": "sex town",
        "stops": "wait gate",
    }.items()
    for name in names.split()
}
COLUMN = re.compile(rf"(?<![\w.'\"])(?:{'|'.join(OWNERS)})(?![\w('\"])")


@dataclass(frozen=True)
class Piece:
    """A part of a statement.

    Attributes:
        text, plain: as it is asked, and as DuckDB reads it over the views.
        forms: the documented forms that it uses.
        check: how its answers are compared: ``exact``, ``real``, ``rounded``, ``spread``, ``order`` or ``label``.
        share: of a quantile.
    """

    text: str
    plain: str
    forms: tuple[str, ...]
    check: str = "label"
    share: float = 0.0


def piece(text: str, *forms: str, plain: str | None = None, check: str = "label", share: float = 0.0) -> Piece:
    """Return a part that DuckDB reads as it is asked, unless ``plain`` is given."""
    return Piece(text, text if plain is None else plain, forms, check, share)


@dataclass(frozen=True)
class Source:
    """A FROM clause with its columns."""

    text: str
    forms: tuple[str, ...]
    integers: tuple[str, ...] = ()
    reals: tuple[str, ...] = ()
    trips: bool = False
    people: bool = False
    stops: bool = False
    person: str = "person"
    conditions: tuple[Piece, ...] = ()
    keys: tuple[Piece, ...] = ()
    rich: bool = True
    joined: tuple[str, ...] = ()
    named: str = ""
    plain: str = ""
    items: tuple[Piece, ...] = ()

    @property
    def tables(self) -> bool:
        """True if it has tables under their own names, each of whose columns has one name."""
        return (self.trips or self.people or self.stops) and not {"LEFT JOIN", "RIGHT JOIN"} & set(self.forms)


STYLES = {"table": "table.a", "quotes": '"a"'}


@dataclass(frozen=True)
class Statement:
    """A statement in parts, so that parts can be left out of one that fails."""

    source: Source
    items: tuple[Piece, ...]
    keys: tuple[Piece, ...] = ()
    where: tuple[Piece, ...] = ()
    having: tuple[Piece, ...] = ()
    order: tuple[Piece, ...] = ()
    limit: int | None = None
    style: str = field(default="text", compare=False)

    @property
    def forms(self) -> set[str]:
        """The documented forms that the statement uses."""
        parts = (*self.items, *self.keys, *self.where, *self.having, *self.order)
        used = {form for part in parts for form in part.forms} | set(self.source.forms)
        used |= {"WHERE"} if self.where else set()
        used |= {"AND"} if len(self.where) > 1 else set()
        used |= {"GROUP BY a, b" if len(self.keys) > 1 else "GROUP BY a"} if self.keys else set()
        used |= {"GROUP BY 1"} if self.keys and self.style == "place" else set()
        used |= {"a AS name"} if self.keys and self.style == "alias" else set()
        used |= {"SELECT DISTINCT a, ..."} if self.keys and self.style == "distinct" else set()
        used |= {STYLES[self.style]} if self.named_columns else set()
        used |= {"HAVING"} if self.having else set()
        used |= {"ORDER BY"} if self.order else set()
        return used | ({"TOP n" if self.top else "LIMIT n"} if self.limit is not None else set())

    @property
    def top(self) -> bool:
        """True if the limit is written as TOP, which is read at the beginning of a statement alone."""
        return self.limit == TOP and not self.source.named

    @property
    def named_columns(self) -> bool:
        """True if columns are written with their table, or in quotes."""
        text = " ".join(part.text for part in (*self.items, *self.keys, *self.where))
        return self.style in STYLES and self.source.tables and bool(COLUMN.search(text))

    def styled(self, text: str) -> str:
        """Write the columns of tables in a text as the style says."""
        if not self.named_columns:
            return text
        how = {"table": lambda found: f"{OWNERS[found[0]]}.{found[0]}", "quotes": lambda found: f'"{found[0]}"'}
        return COLUMN.sub(how[self.style], text)

    @property
    def text(self) -> str:
        """The statement as it is asked."""
        alias = self.style == "alias"
        keys = [f"{key.text} AS k{n}" if alias else self.styled(key.text) for n, key in enumerate(self.keys)]
        items = [f"{self.styled(item.text)} AS n{n}" for n, item in enumerate(self.items)]
        by = {"place": [str(n + 1) for n in range(len(self.keys))], "alias": [f"k{n}" for n in range(len(self.keys))]}
        distinct = "DISTINCT " if self.style == "distinct" and self.keys else ""
        text = f"{self.source.named}SELECT {distinct}{', '.join([*keys, *items])} FROM {self.source.text}"
        met = [*self.source.joined, *(self.styled(each.text) for each in self.where)]
        text += f" WHERE {' AND '.join(met)}" if met else ""
        grouped = by.get(self.style, [self.styled(key.text) for key in self.keys])
        text += f" GROUP BY {', '.join(grouped)}" if self.keys else ""
        text += f" HAVING {' AND '.join(each.text for each in self.having)}" if self.having else ""
        text += f" ORDER BY {', '.join(each.text for each in self.order)}" if self.order else ""
        if self.top:
            return re.sub("SELECT( DISTINCT)?", rf"\g<0> TOP {TOP}", text, count=1)
        return text + (f" LIMIT {self.limit}" if self.limit is not None else "")

    @property
    def plain(self) -> str:
        """The statement as DuckDB answers it, without the clauses about answers."""
        keys = [f"{key.plain} AS k{n}" for n, key in enumerate(self.keys)]
        items = [f"{item.plain} AS n{n}" for n, item in enumerate(self.items)]
        text = f"{self.source.named}SELECT {', '.join([*keys, *items])} FROM {self.source.plain or self.source.text}"
        met = [*self.source.joined, *(each.plain for each in self.where)]
        text += f" WHERE {' AND '.join(met)}" if met else ""
        return text + (f" GROUP BY {', '.join(f'k{n}' for n in range(len(self.keys)))}" if self.keys else "")

    @property
    def chosen(self) -> str:
        """The statement of DuckDB with the clauses about answers, over the plain one."""
        text = f"SELECT * FROM ({self.plain}) AS answered"
        text += f" WHERE {' AND '.join(each.plain for each in self.having)}" if self.having else ""
        text += f" ORDER BY {', '.join(each.plain for each in self.order)}" if self.order else ""
        return text + (f" LIMIT {self.limit}" if self.limit is not None else "")

    def smaller(self) -> Iterator[Statement]:
        """Yield statements with one part less."""
        if self.limit is not None:
            yield replace(self, limit=None)
        for name in ("order", "having", "where"):
            parts = getattr(self, name)
            for at in range(len(parts)):
                if name != "order" or at == len(parts) - 1:
                    yield replace(self, **{name: (*parts[:at], *parts[at + 1 :])})
        if not self.order and not self.having:
            for at in range(len(self.keys)):
                yield replace(self, keys=(*self.keys[:at], *self.keys[at + 1 :]))
            for at in range(len(self.items) if len(self.items) > 1 else 0):
                yield replace(self, items=(*self.items[:at], *self.items[at + 1 :]))
        if self.style != "text":
            yield replace(self, style="text")


class MostFrequent(Statement):
    """A statement of MODE: the first of the groups with a value by their numbers of rows."""

    @property
    def forms(self) -> set[str]:
        """The documented forms that the statement uses."""
        used = {form for part in (*self.keys, *self.where) for form in part.forms} | set(self.source.forms)
        used |= {"AND"} if len(self.where) > 1 else set()
        return used | {self.style} | ({"WHERE"} if self.where else set())

    @property
    def text(self) -> str:
        """The statement as it is asked."""
        asked = re.sub(r"\ba\b", self.keys[0].text, self.style)
        met = " AND ".join([*self.source.joined, *(each.text for each in self.where)])
        return f"{self.source.named}SELECT {asked} FROM {self.source.text}{' WHERE ' if met else ''}{met}"

    def smaller(self) -> Iterator[Statement]:
        """Yield statements with one condition less, and the count by groups."""
        for at in range(len(self.where)):
            yield replace(self, where=(*self.where[:at], *self.where[at + 1 :]))
        yield Statement(self.source, self.items, self.keys, self.where)


def either(chance: random.Random, parts: list[Piece]) -> Piece:
    """Join one or two conditions, or negate one."""
    one, other = chance.choice(parts), chance.choice(parts)
    how = chance.random()
    if "SELECT" in one.text + other.text:
        return one  # IN (SELECT ...) has no further conditions
    if how < 0.15:
        return Piece(
            f"({one.text} OR {other.text})", f"({one.plain} OR {other.plain})", (*one.forms, *other.forms, "OR")
        )
    if how < 0.3:
        return Piece(f"NOT ({one.text})", f"NOT ({one.plain})", (*one.forms, "NOT"))
    return one


TOPS = {"town": 3, "height": 9, "wait": 60}  # the largest value of a column, of others 99
LEVEL = "CASE {0} WHEN 'ale' THEN 'wet' WHEN 'tea' THEN 'wet' WHEN 'rye' THEN 'dry' ELSE {0} END"


def conditions(source: Source, chance: random.Random) -> list[Piece]:
    """Return comparisons of the columns of a source."""
    found = list(source.conditions) * 8  # few sources have them
    for name in source.integers:
        top = TOPS.get(name, 99)
        least, most = sorted(chance.sample(range(-2, top + 5), 2))
        values = ", ".join(map(str, chance.sample(range(top + 1), 4)))
        found += [
            piece(f"{name} = {least}", "="),
            piece(f"{name} <> {most}", "<>"),
            piece(f"{name} < {most}", "<"),
            piece(f"{name} <= {most}", "<="),
            piece(f"{name} > {least}", ">"),
            piece(f"{name} >= {least}", ">="),
            piece(f"{name} BETWEEN {least} AND {most}", "BETWEEN"),
            piece(f"{name} NOT BETWEEN {least} AND {most}", "BETWEEN", "NOT"),
            piece(f"{name} IN ({values})", "IN (...)"),
            piece(f"{name} NOT IN ({values})", "IN (...)", "NOT"),
            piece(f"{name} IS NULL", "IS NULL"),
            piece(f"{name} IS NOT NULL", "IS NULL", "NOT"),
        ]
    if source.trips:
        found += _trip_conditions(chance)
    if source.people:
        found += [
            piece("sex = 'F'", "="),
            piece("sex <> 'M'", "<>"),
            piece("sex IS NULL", "IS NULL"),
            piece("sex LIKE 'F%'", "LIKE"),
            piece("sex ILIKE '_m%'", "ILIKE"),
            piece("NOT sex ILIKE 'm'", "ILIKE", "NOT"),
            piece("town >= 2", ">="),
        ]
        found += _text_conditions() if source.rich else []
    if source.stops:
        found += [piece("gate = 'A'", "="), piece("gate IN ('A', 'B')", "IN (...)"), piece("wait * 2 >= 31", "a + 1")]
    if source.rich and source.trips:
        number = chance.randrange(100)
        found += [
            piece(f"age + 2 > {number}", "a + 1"),
            piece(f"2 * age - 7 <= {number}", "a + 1"),
            piece(f"LEAST(age, 40) >= {number}", "LEAST(a, 1)"),
            piece(f"GREATEST(age, 40) < {number}", "GREATEST(a, 1)"),
            piece(f"CASE WHEN flag THEN age ELSE 7 END > {number}", "CASE WHEN"),
            piece(f"fare / 2 >= {number / 4}", "a / 2"),
            *(each for each, place in _row_numbers(chance) if place == "condition"),
            piece(f"fare + 0 > {number / 4}", "a + 0 > 1"),
        ]
    return found


ROW_NUMBERS = [
    piece("LEAST(age, fare)", "LEAST(a, b)"),
    piece("COALESCE(age, 0)", "COALESCE(a, 0)"),
    piece("COALESCE(fare, age)", "COALESCE(a, 0)"),
    piece("NULLIF(age, 40)", "NULLIF(a, 0)"),
    piece("IF(flag, age, 7)", "IF(condition, a, b)"),
    piece("ABS(age - 50)", "ABS(a)"),
    piece("SIGN(age - 50)", "SIGN(a)"),
    piece("ROUND(fare)", "ROUND(a)"),
    piece("ROUND(fare - 50, 1)", "ROUND(a)"),
    piece("FLOOR(fare / 10)", "FLOOR(a)"),
    piece("CEIL(fare - 20)", "CEIL(a)"),
    piece("TRUNC(fare - 50)", "TRUNC(a)"),
    piece("CAST(fare AS INTEGER)", "CAST(a AS INTEGER)"),
    piece("POWER(age - 50, 2)", "POWER(a, 2)"),
    piece("(age - 50) // 25", "a // 25"),
    piece("(age - 50) % 7", "a % 2"),
    piece("COALESCE(age % 5, 3) * 2", "a % 2", "COALESCE(a, 0)"),
]


def _row_numbers(chance: random.Random) -> Iterator[tuple[Piece, str]]:
    """Yield conditions and sums of functions of the numbers of a row."""
    for each in chance.sample(ROW_NUMBERS, 4):
        least = chance.choice([-3, 0, 1, 20, 60])
        yield replace(each, text=f"{each.text} >= {least}", plain=f"{each.plain} >= {least}"), "condition"
        for call in ("SUM", "AVG", "COUNT"):
            check = "exact" if call == "COUNT" else "real"
            yield replace(each, text=f"{call}({each.text})", plain=f"{call}({each.plain})", check=check), "item"
    year = chance.choice(["17", "40", "99"])
    yield piece(f"CAST(age AS VARCHAR) = '{year}'", "CAST(a AS VARCHAR)"), "condition"


def _trip_conditions(chance: random.Random) -> Iterator[Piece]:
    on = (date(2023, 11, 1) + timedelta(days=chance.randrange(152))).isoformat()
    hour = f"2024-01-{chance.randrange(1, 32):02} {chance.randrange(24):02}:00"
    month, part = chance.choice(["2023-11", "2023-12", "2024-01", "2024-03"]), chance.randrange(1, 13)
    yield piece("band >= 18", ">=")
    yield piece("band < 65", "<")
    yield piece("fare >= 25", ">=")
    yield piece("fare < 50", "<")
    yield piece("kind = 'ale'", "=")
    yield piece("kind <> 'rye'", "<>")
    yield piece("kind IN ('ale', 'tea')", "IN (...)")
    yield piece("kind IS NULL", "IS NULL")
    yield piece("drink(kind) = 'wet'", "level(a)", plain=f"{LEVEL.format('kind')} = 'wet'")
    yield piece("drink(kind) <> 'wet'", "level(a)", plain=f"{LEVEL.format('kind')} <> 'wet'")
    yield piece("flag", "WHERE flag")
    yield piece("NOT flag", "WHERE flag", "NOT")
    yield piece("flag = TRUE", "=")
    yield piece("flag = 1", "flag = 1")
    yield piece("flag IS TRUE", "IS TRUE")
    yield piece("flag IS NOT TRUE", "IS TRUE", "NOT")
    yield piece(f"day >= DATE '{on}'", "DATE '2023-03-01'")
    yield piece(f"day < DATE '{on}'", "DATE '2023-03-01'")
    yield piece(f"day <> '{on}'", "<>")
    yield piece(f"day BETWEEN DATE '2023-12-03' AND DATE '{on}'", "DATE '2023-03-01'", "BETWEEN")
    yield piece(f"seen < TIMESTAMP '{hour}'", "TIMESTAMP '2023-03-01 08:00'")
    yield piece(f"seen >= TIMESTAMP '{hour}'", "TIMESTAMP '2023-03-01 08:00'")
    yield piece(f"month(day) >= '{month}'", "month(d)", plain=f"STRFTIME(day, '%Y-%m') >= '{month}'")
    yield piece(f"DATE_TRUNC('month', day) = DATE '{month}-01'", "DATE_TRUNC('month', d)")
    yield piece(f"EXTRACT(MONTH FROM day) = {1 + part % 3}", "EXTRACT(MONTH FROM d)")
    yield piece("EXTRACT(HOUR FROM seen) BETWEEN 8 AND 17", "EXTRACT(HOUR FROM t)")
    yield piece("weekday(day) = 'Sunday'", "weekday(d)", plain="DAYNAME(day) = 'Sunday'")
    yield piece("start >= DATE '2023-06-01'", "DATE '2023-03-01'")


def _text_conditions() -> list[Piece]:
    """Return comparisons of functions of a declared text."""
    return [
        piece("UPPER(sex) = 'F'", "UPPER(a)"),
        piece("LOWER(sex) <> 'm'", "LOWER(a)"),
        piece("TRIM(sex) = 'F'", "TRIM(a)"),
        piece("SUBSTRING(sex, 1, 1) = 'M'", "SUBSTRING(a, 1, 1)"),
        piece("LEFT(sex, 1) IN ('F', 'M')", "LEFT(a, 1)"),
        piece("RIGHT(sex, 1) <> 'F'", "RIGHT(a, 1)"),
        piece("REPLACE(sex, 'F', 'x') = 'x'", "REPLACE(a, 'x', 'y')"),
        piece("REVERSE(sex) = 'M'", "REVERSE(a)"),
        piece("LENGTH(sex) = 1", "LENGTH(a)"),
        piece("CONCAT(sex, '-', sex) = 'F-F'", "CONCAT(a, b)"),
        piece("COALESCE(sex, 'x') <> 'F'", "COALESCE(a, 'x')"),
        piece("NULLIF(sex, 'F') IS NULL", "NULLIF(a, 'x')"),
        piece("sex SIMILAR TO '[A-F]'", "SIMILAR TO"),
        piece("REGEXP_MATCHES(sex, '^M')", "REGEXP_MATCHES"),
    ]


def keys(source: Source) -> list[Piece]:
    """Return what a source may be grouped by."""
    found = list(source.keys)
    if source.people:
        found += [piece("sex"), piece("town")]
    if source.stops:
        found += [piece("gate"), piece("wait")]
    if source.trips:
        band = "CASE WHEN band < 18 THEN '0..17' WHEN band < 65 THEN '18..64' WHEN band <= 99 THEN '65..99' END"
        fare = "CASE WHEN fare < 25 THEN '[0.0, 25.0)' WHEN fare < 50 THEN '[25.0, 50.0)' WHEN fare <= 100 THEN '[50.0, 100.0]' END"
        found += [
            piece("age"),
            piece("band", plain=band),
            piece("fare", plain=fare),
            piece("kind"),
            piece("flag"),
            piece("drink(kind)", "level(a)", plain=LEVEL.format("kind")),
            piece("day"),
            piece("start", plain="STRFTIME(start, '%Y-%m')"),
            piece("month(day)", "month(d)", plain="STRFTIME(day, '%Y-%m')"),
            piece("DATE_TRUNC('month', day)", "DATE_TRUNC('month', d)", plain="STRFTIME(day, '%Y-%m')"),
            piece("DATE_TRUNC('week', day)", "DATE_TRUNC('week', d)", plain="STRFTIME(day, '%G-W%V')"),
            piece(
                "DATE_TRUNC('quarter', start)",
                "DATE_TRUNC('quarter', d)",
                plain="YEAR(start) || '-Q' || QUARTER(start)",
            ),
            piece("DATE_TRUNC('year', day)", "DATE_TRUNC('year', d)", plain="YEAR(day)"),
            piece("DATE_TRUNC('day', seen)", "DATE_TRUNC('day', t)", plain="STRFTIME(seen, '%Y-%m-%d')"),
            piece("weekday(day)", "weekday(d)", plain="DAYNAME(day)"),
            piece("EXTRACT(YEAR FROM day)", "EXTRACT(YEAR FROM d)"),
            piece("EXTRACT(QUARTER FROM day)", "EXTRACT(QUARTER FROM d)"),
            piece("EXTRACT(MONTH FROM day)", "EXTRACT(MONTH FROM d)"),
            piece("EXTRACT(WEEK FROM day)", "EXTRACT(WEEK FROM d)"),
            piece("EXTRACT(ISOYEAR FROM day)", "EXTRACT(ISOYEAR FROM d)"),
            piece("EXTRACT(DAY FROM day)", "EXTRACT(DAY FROM d)"),
            piece("EXTRACT(DOY FROM day)", "EXTRACT(DOY FROM d)"),
            piece("EXTRACT(HOUR FROM seen)", "EXTRACT(HOUR FROM t)"),
        ]
        if source.rich:
            case = "CASE WHEN age >= 65 THEN 'old' WHEN age >= 18 THEN 'grown' ELSE 'young' END"
            named = "CASE kind WHEN 'tea' THEN 'hot' ELSE 'cold' END"
            found += [
                piece("age // 25", "a // 25"),
                piece("age % 3", "a % 2"),
                piece("IF(flag, 'much', 'little')", "IF(condition, a, b)"),
                piece(named, "CASE x WHEN"),
            ]
            found += [piece(case, "CASE WHEN"), piece("CASE WHEN flag THEN 'yes' END", "CASE WHEN")]
    return found


def items(source: Source, chance: random.Random) -> list[Piece]:
    """Return aggregates."""
    found = [piece("COUNT(*)", "COUNT(*)", check="exact"), piece("COUNT(1)", "COUNT(*)", check="exact")]
    found += [piece(f"COUNT(DISTINCT {source.person})", "COUNT(DISTINCT id)", check="exact")] * 2
    found += [
        piece("COUNT(*) + 100", "COUNT(*) + 100", check="exact"),
        piece("ABS(COUNT(*) - 40)", "ABS(...)", check="exact"),
        piece("GREATEST(COUNT(*), 5)", "GREATEST(..., 5)", check="exact"),
        piece("FLOOR(COUNT(*) / 7)", "FLOOR(...)", check="exact"),
        piece("CEIL(COUNT(*) / 7)", "CEIL(...)", check="exact"),
        piece("TRUNC(COUNT(*) / 7)", "TRUNC(...)", check="exact"),
        piece("COUNT(*) // 7", "... // 7", check="exact"),
        piece("SIGN(COUNT(*) - 40)", "SIGN(...)", check="exact"),
        piece("POWER(COUNT(*) - 40, 2)", "POWER(..., 2)", check="exact"),
        piece("CAST(COUNT(*) AS DOUBLE) / 2", "CAST(... AS DOUBLE)", check="exact"),
        piece("NULLIF(COUNT(*), 3)", "NULLIF(..., 0)", check="exact"),
    ]
    for name in source.integers:
        found += [
            piece(f"SUM({name}) / COUNT(*)", "SUM(a) / COUNT(*)", check="real"),
            piece(f"100.0 * COUNT({name}) / COUNT(*)", "100.0 * COUNT(a) / COUNT(*)", check="real"),
            piece(f"ROUND(AVG({name}), 2)", "ROUND(..., 2)", check="rounded"),
            piece(f"COALESCE(SUM({name}), 0)", "COALESCE(..., 0)", check="exact"),
        ]
    found += source.items * 20  # few sources have them
    found += _filtered(source, chance)
    numbers = [(name, "exact", "order") for name in source.integers] + [(name, "real", "bins") for name in source.reals]
    if source.trips:
        found += [piece(f"COUNT({name})", "COUNT(a)", check="exact") for name in ("age", "kind", "day", "seen", "flag")]
    if source.rich and source.trips:
        found += [
            piece("SUM(2 * age + 1)", "SUM(a)", "a + 1", check="exact"),
            piece("SUM(LEAST(age, 40))", "SUM(a)", "LEAST(a, 1)", check="exact"),
            piece("AVG(GREATEST(age, 40))", "AVG(a)", "GREATEST(a, 1)", check="exact"),
            piece("SUM(CASE WHEN flag THEN age ELSE 7 END)", "SUM(a)", "CASE WHEN", check="exact"),
            piece("COUNT(CASE WHEN flag THEN age END)", "COUNT(a)", "CASE WHEN", check="exact"),
            piece("SUM(age / 4)", "SUM(a)", "a / 2", check="real"),
            *(each for each, place in _row_numbers(chance) if place == "item"),
        ]
    for name, how, order in numbers:
        share = chance.choice([0.1, 0.25, 0.75, 0.9])
        ordered = f"LIST({name})"
        found += [
            piece(f"SUM({name})", "SUM(a)", check=how),
            piece(f"AVG({name})", "AVG(a)", check=how),
            piece(f"VAR_POP({name})", "VAR_POP(a)", check="spread"),
            piece(f"STDDEV_POP({name})", "STDDEV_POP(a)", check="spread"),
            piece(f"MEAN({name})", "MEAN(a)", check=how),
            piece(f"VAR_SAMP({name})", "VAR_SAMP(a)", check="spread"),
            piece(f"STDDEV_SAMP({name})", "STDDEV_SAMP(a)", check="spread"),
            piece(f"VARIANCE({name})", "VARIANCE(a)", check="spread"),
            piece(f"STDDEV({name})", "STDDEV(a)", check="spread"),
            *(
                piece(f"{call}({name})", f"{call}(a)", plain=f"{plain}({name})", check="spread")
                for call, plain in chance.sample(OTHERS, 1)
            ),
            *(
                piece(f"{call}({name}, {share})", f"{call}(a, p)", plain=ordered, check=order, share=share)
                for call in chance.sample(QUANTILES, 1)
            ),
            piece(
                f"PERCENTILE_DISC({share}) WITHIN GROUP (ORDER BY {name} DESC)",
                "PERCENTILE_DISC(p) WITHIN GROUP (ORDER BY a)",
                plain=ordered,
                check=order,
                share=1 - share,
            ),
            piece(f"MEDIAN({name})", "MEDIAN(a)", plain=ordered, check=order, share=0.5),
            piece(f"QUANTILE({name}, {share})", "QUANTILE(a, p)", plain=ordered, check=order, share=share),
            piece(
                f"PERCENTILE_CONT({share}) WITHIN GROUP (ORDER BY {name})",
                "PERCENTILE_CONT(p) WITHIN GROUP (ORDER BY a)",
                plain=ordered,
                check=order,
                share=share,
            ),
            piece(f"MIN({name})", "MIN(a)", plain=ordered, check=order, share=0.0),
            piece(f"MAX({name})", "MAX(a)", plain=ordered, check=order, share=1.0),
            piece(f"IQR({name})", "IQR(a)", plain=ordered, check="iqr"),
        ]
    return found


def _filtered(source: Source, chance: random.Random) -> Iterator[Piece]:
    """Yield aggregates of rows that meet a condition of their own."""
    plain = [each for each in conditions(source, chance) if "SELECT" not in each.text]
    for _ in range(3 if plain else 0):
        where = chance.choice(plain)
        yield Piece(f"COUNT_IF({where.text})", f"COUNT_IF({where.plain})", ("COUNT_IF(...)",), "exact")
        calls = [("COUNT(*)", "exact")]
        for name in source.integers:
            calls += [(f"SUM({name})", "exact"), (f"AVG({name})", "exact"), (f"VAR_SAMP({name})", "spread")]
            calls += [(f"COUNT(DISTINCT {name})", "exact")]
        text, check = chance.choice(calls)
        filtered, theirs = (f"{text} FILTER (WHERE {each})" for each in (where.text, where.plain))
        yield Piece(filtered, theirs, ("FILTER (WHERE ...)", *where.forms), check)
        share = f"100.0 * COUNT_IF({where.text}) / COUNT(*)", f"100.0 * COUNT_IF({where.plain}) / COUNT(*)"
        yield Piece(*share, ("COUNT_IF(...)",), "real")
    for name in source.integers:
        yield piece(f"COUNT(DISTINCT {name})", "COUNT(DISTINCT a)", check="exact")
    if source.trips:
        kinds = "COUNT(DISTINCT CASE WHEN kind <> '(other)' THEN kind END)"
        yield piece("COUNT(DISTINCT kind)", "COUNT(DISTINCT a)", plain=kinds, check="exact")
        yield piece("COUNT(DISTINCT day)", "COUNT(DISTINCT a)", check="exact")


MODES = ("MODE(a)", "MODE() WITHIN GROUP (ORDER BY a)")
QUANTILES = ("QUANTILE_CONT", "QUANTILE_DISC", "APPROX_QUANTILE", "APPROX_PERCENTILE")
OTHERS = [
    ("VAR", "VAR_SAMP"),
    ("VARIANCE_SAMP", "VAR_SAMP"),
    ("VARP", "VAR_POP"),
    ("STDEV", "STDDEV_SAMP"),
    ("STDEV_SAMP", "STDDEV_SAMP"),
    ("STDEV_POP", "STDDEV_POP"),
    ("STDEVP", "STDDEV_POP"),
]
LARGE = ("day", "age", "years", "wait", "EXTRACT(DOY FROM day)", "DATE_TRUNC('day', seen)")
ALONE = Source("trips", ("FROM table",), ("age",), ("fare",), trips=True)
KINDS = "CASE kind WHEN 'ale' THEN 0 WHEN 'rye' THEN 1 WHEN 'tea' THEN 2 END"  # an undeclared first value is missing
MATCHED = (
    piece("trip IN (SELECT trip FROM stops WHERE wait >= 30)", "key IN (SELECT ...)"),
    piece("trip NOT IN (SELECT trip FROM stops WHERE wait >= 30)", "key IN (SELECT ...)", "NOT"),
    piece("EXISTS (SELECT * FROM stops s WHERE s.trip = trips.trip AND s.gate = 'A')", "EXISTS (SELECT ...)"),
    piece("person IN (SELECT person FROM people WHERE sex = 'F')", "id IN (SELECT ...)"),
    piece(
        "EXISTS (SELECT * FROM trips o WHERE o.person = trips.person AND o.trip <> trips.trip)", "EXISTS (SELECT ...)"
    ),
)
IN = [
    piece(
        "person IN (SELECT person FROM trips t WHERE t.person = people.person AND t.age >= 40)", "id IN (SELECT ...)"
    ),
    piece("person IN (SELECT person FROM trips WHERE age >= 40)", "id IN (SELECT ...)"),
    piece("person NOT IN (SELECT person FROM trips WHERE flag)", "id NOT IN (SELECT ...)"),
    piece("EXISTS (SELECT * FROM trips t WHERE t.person = people.person AND t.age >= 40)", "EXISTS (SELECT ...)"),
    piece("NOT EXISTS (SELECT * FROM trips t WHERE t.person = people.person AND t.flag)", "EXISTS (SELECT ...)", "NOT"),
]
PER_PERSON = (
    "(SELECT person, COUNT(*) AS n, SUM(age) AS total, MAX(age) AS most, MIN(fare) AS least, BOOL_OR(flag) AS ever, MIN(day) AS began, MAX(day) AS ended, "
    "BOOL_AND(age >= 20) AS every FROM trips GROUP BY person) AS t"
)
LISTED = "(SELECT person, age AS years, fare AS price, flag FROM trips WHERE kind <> 'rye')"
OF_LISTED = Source(
    f"{LISTED} AS t", ("SELECT ... FROM (SELECT a, ...)",), ("years",), ("price",),
    conditions=(piece("flag", "WHERE flag"), piece("price >= 25", ">=")), keys=(piece("flag"), piece("years")),
)  # fmt: skip
WITHIN = replace(OF_LISTED, text="t", forms=("WITH t AS (SELECT ...)",), named=f"WITH t AS {LISTED} ")
FURTHER = replace(
    OF_LISTED, text="s", forms=("WITH t AS (...), s AS (...)",),
    named=f"WITH t AS {LISTED}, s AS (SELECT person, years + 1 AS years, price, flag FROM t WHERE years < 90) ",
)  # fmt: skip
UNITS = Source(
    PER_PERSON, ("SELECT ... FROM (SELECT id, ... GROUP BY id)", "BOOL_OR(a)", "BOOL_AND(a)"),
    ("most",), conditions=(
        piece("n >= 3", ">="), piece("total > 99", ">"), piece("ever", "WHERE flag"), piece("NOT every", "NOT"),
        piece("total IS NULL", "IS NULL"), piece("least >= 25", ">="), piece("most < 50", "<"),
        piece("DATEDIFF('day', began, ended) >= 20", "DATEDIFF('day', a, b)"),
    ),
    keys=(piece("n"), piece("ever"), piece("every"), piece("most")),
)  # fmt: skip
DISTINCT = Source(
    "(SELECT DISTINCT person, kind, flag FROM trips) AS t", ("SELECT DISTINCT id, a FROM ...",),
    conditions=(piece("flag", "WHERE flag"), piece("kind = 'ale'", "=")), keys=(piece("kind"), piece("flag")),
)  # fmt: skip
ENDS = Source(
    "(SELECT person, FIRST(kind ORDER BY day) AS began, LAST(flag ORDER BY day) AS ended, FIRST(age ORDER BY day) AS "
    "young FROM trips GROUP BY person) AS t",
    ("FIRST(a ORDER BY d)", "LAST(a ORDER BY d)"), ("young",),
    plain=f"(SELECT person, FIRST(NULLIF(kind, '(other)') ORDER BY day, {KINDS} NULLS LAST) FILTER (WHERE day IS NOT NULL) AS began, "
    "FIRST(flag ORDER BY day DESC, flag NULLS LAST) FILTER (WHERE day IS NOT NULL) AS ended, "
    "FIRST(age ORDER BY day, age NULLS LAST) FILTER (WHERE day IS NOT NULL) AS young FROM trips GROUP BY person) AS t",
    conditions=(piece("began = 'ale'", "="), piece("ended", "WHERE flag"), piece("began IS NULL", "IS NULL")),
    keys=(piece("began"), piece("ended")),
)  # fmt: skip
QUALIFIED = replace(ALONE, text="main.trips", forms=("FROM schema.table",))
ONE = [ALONE, ALONE, QUALIFIED, OF_LISTED, WITHIN, FURTHER, UNITS, DISTINCT, ENDS]
PLACES = (
    piece("height > (SELECT AVG(height) FROM places)", "a > (SELECT AVG(b) FROM public)"),
    piece("wait >= 3 * (SELECT MAX(height) FROM places WHERE side = 'west')", "a > (SELECT MAX(b) FROM public)"),
    piece("wait - 20 > (SELECT MIN(height) FROM places)", "a > (SELECT MIN(b) FROM public)"),
    piece("side = 'west'", "="),
    piece("height IS NULL", "IS NULL"),
)
PUBLIC = Source(
    "stops JOIN places USING (place)", ("JOIN public",), ("wait", "height"), stops=True,
    conditions=PLACES, keys=(piece("side"), piece("height")),
)  # fmt: skip
LINKED = [
    *ONE[2:],
    PUBLIC,
    replace(PUBLIC, text="places JOIN stops ON places.place = stops.place", forms=("FROM public JOIN ...",)),
    replace(PUBLIC, text="stops LEFT JOIN places USING (place)", forms=("LEFT JOIN", "JOIN public")),
    Source("trips NATURAL JOIN people", ("NATURAL JOIN",), ("age", "town"), ("fare",), trips=True, people=True),
    Source("people LEFT JOIN trips ON people.person = trips.person AND trips.age >= 50",
           ("LEFT JOIN", "ON ... AND a >= 1"), ("age", "town"), trips=True, people=True, person="people.person"),
    Source("people", ("FROM table",), ("town",), people=True, conditions=tuple(IN)),
    replace(ALONE, conditions=MATCHED, items=(piece("COUNT(trip)", "COUNT(key)", check="exact"),)),
    Source("stops", ("FROM table",), ("wait",), stops=True),
    Source("trips JOIN people USING (person)", ("JOIN ... USING (id)",), ("age", "town"), ("fare",), trips=True, people=True),
    Source(
        "trips JOIN people ON trips.person = people.person", ("JOIN ... ON a.key = b.key",), ("age",), ("fare",),
        trips=True, people=True, person="trips.person",
    ),
    Source("trips, people", ("FROM a, b WHERE a.key = b.key",), ("age", "town"), trips=True, people=True,
           person="trips.person", joined=("trips.person = people.person",)),
    Source("trips JOIN people ON people.person = trips.person AND people.town >= 2", ("ON ... AND a >= 1",), ("age",),
           trips=True, people=True, person="trips.person"),
    Source("trips RIGHT JOIN people ON trips.person = people.person", ("RIGHT JOIN",), ("age", "town"), trips=True,
           people=True, person="people.person"),
    Source("people LEFT JOIN trips USING (person)", ("LEFT JOIN",), ("age", "town"), trips=True, people=True),
    Source("stops JOIN trips USING (trip)", ("JOIN ... USING (id)",), ("wait", "age"), trips=True, stops=True,
           person="trips.person"),
    Source("stops JOIN trips USING (trip) JOIN people ON trips.person = people.person", ("three tables",),
           ("wait", "age"), trips=True, stops=True, people=True, person="trips.person"),
]  # fmt: skip


def statement(seed: int, *, linked: bool) -> Statement:
    """Return the statement of a seed."""
    chance = random.Random(seed)
    source = chance.choice(LINKED if linked else ONE)
    pool = keys(source)
    by = chance.sample(pool, min(len(pool), chance.choice([0, 0, 1, 1, 1, 2])))
    if len(by) == 2 and (by[0].plain == by[1].plain or any(each.text in LARGE for each in by)):
        by = by[:1]
    asked = items(source, chance)
    if len(by) == 2 or any(each.text in LARGE for each in by):  # a quantile of each of many groups takes a second
        asked = [each for each in asked if each.check not in ("order", "bins", "iqr")]
    wanted = list(dict.fromkeys(chance.sample(asked, chance.choice([1, 1, 2, 3]))))
    where = [either(chance, conditions(source, chance)) for _ in range(chance.choice([0, 1, 1, 2]))]
    drawn = Statement(
        source,
        tuple(wanted),
        tuple(by),
        tuple(where),
        style=chance.choice(["text", "place", "alias", "distinct", *STYLES]),
    )
    if len(by) == 1 and chance.random() < 0.15 and not re.search(r"CASE|IF\(|//|%", by[0].text):
        return MostFrequent(
            source,
            (piece("COUNT(*)", check="exact"),),
            drawn.keys,
            drawn.where,
            having=(piece("k0 IS NOT NULL"),),
            order=(piece("n0 DESC"),),
            limit=1,
            style=chance.choice(MODES),
        )
    if not by or chance.random() < 0.6:
        return drawn
    return _with_clauses(drawn, chance)


SORTED = ("age", "flag", "sex", "town", "wait", "height", "most")  # the declared order is that of DuckDB


def _with_clauses(drawn: Statement, chance: random.Random) -> Statement:
    """Add HAVING, ORDER BY and LIMIT; the first answer is then the number of rows."""
    counted = piece("COUNT(*)", "COUNT(*)", check="exact")
    drawn = replace(drawn, items=(counted, *(each for each in drawn.items if each.text != "COUNT(*)")))
    many = chance.choice([0.5, 2.5, 9.5])
    having = [piece(f"{chance.choice(['COUNT(*)', 'n0'])} > {many}", plain=f"n0 > {many}")]
    if chance.random() < 0.4:
        having.append(piece("(n0 <= 40 OR n0 BETWEEN 50 AND 90)", "OR", "BETWEEN"))
    order = []
    if chance.random() < 0.7:
        down = chance.random() < 0.6
        by = chance.choice(["COUNT(*)", "n0", str(len(drawn.keys) + 1)])
        order = [piece(f"{by}{' DESC' if down else ''}", plain=f"n0{' DESC' if down else ''}")]
    elif len(drawn.keys) == 1 and drawn.keys[0].text in SORTED:
        nulls = f"NULLS {chance.choice(['FIRST', 'LAST'])}"
        way = f" {chance.choice(['ASC', 'DESC'])} {nulls}"
        by = chance.choice(["1", "k0" if drawn.style == "alias" else drawn.keys[0].text])
        order = [piece(by + way, f"ORDER BY a {nulls}", plain="k0" + way)]
    limit = chance.choice([1, 2, 5]) if order and chance.random() < 0.6 else None
    return replace(drawn, having=tuple(having), order=tuple(order), limit=limit)
