"""The SQL of PostgreSQL, MariaDB and MySQL that differs from the SQL of all engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sfumato.domain import Domain
from sfumato.engine.dialect import LONGEST_ID, smallest_bits
from sfumato.engine.port import Column, ColumnKind


def cases(expression: str, codes: Mapping[str, int], dialect: PostgresDialect | MariaDialect) -> str:
    """Return a look-up as CASE, which every engine has."""
    branches = " ".join(f"WHEN {dialect.string(text)} THEN {code}" for text, code in codes.items())
    return f"CASE {expression} {branches} END"


_MOST = "1.7976931348623157e308"  # the largest double
_LEAST = "2.4703282292062328e-324"  # smaller numbers are rounded to 0


class PostgresDialect:
    """PostgreSQL with ``standard_conforming_strings``, which the session sets."""

    whole_ids: frozenset[str] = frozenset()
    common_once = True  # a common table with several uses is computed once
    lasting_snapshots = True  # all statements of a transaction read one state

    def day(self, column: Column) -> str | None:
        """Return the difference to a day; its calendar is always the Gregorian one, as in Python."""
        if column.type.upper() != "DATE":
            return None
        name = self.name(column.name)
        return (
            f"CASE WHEN {name} BETWEEN DATE '0001-01-01' AND DATE '9999-12-31' THEN {name} - DATE '0001-01-01' + 1 END"
        )

    def distinct(self, key: str, low: int, high: int) -> str | None:
        """Use the general count."""

    session = (
        "SET standard_conforming_strings = on",
        "SET DateStyle = 'ISO, YMD'",
        "SET extra_float_digits = 1",
        "SET work_mem = '256MB'",  # hash tables of large marginals stay in memory
    )
    read_only = ("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",)
    read_write = ("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE",)
    text_type = "TEXT"
    drop = "DROP TABLE IF EXISTS"

    def name(self, identifier: str) -> str:
        """Return a quoted identifier."""
        return '"' + identifier.replace('"', '""') + '"'

    def string(self, value: str) -> str:
        """Return a text literal; PostgreSQL holds no NUL, so text with one equals nothing."""
        return "NULL" if "\0" in value else "'" + value.replace("'", "''") + "'"

    def text(self, expression: str) -> str:
        """Return text, compared byte by byte."""
        return f'CAST({expression} AS TEXT) COLLATE "C"'

    def timestamp(self, column: Column) -> str:
        """Return the text of a time stamp; moments are in UTC."""
        name = self.name(column.name)
        moment = self.text(f"({name} AT TIME ZONE 'UTC')")
        return f"({moment} || 'Z')" if column.moments else self.text(name)

    def telling(self, column: Column) -> str:
        """Return the text of a value; numbers have all their digits."""
        return self.text(self.name(column.name))

    def exact(self, column: Column) -> str:
        """Return the text of a value; moments are in UTC, which does not depend on the session's clock."""
        return self.timestamp(column) if column.moments else self.telling(column)

    def computed_once(self, select: str) -> str:
        """Return a subquery with OFFSET, which is planned separately."""
        return f"{select} OFFSET 0"

    def double(self, expression: str) -> str:
        """Return a double."""
        return f"CAST({expression} AS DOUBLE PRECISION)"

    def decimal(self, name: str) -> str:
        """Return a double; the cast fails on a number that is infinite or 0 as a double, so such numbers are tested
        first.

        NaN comes first because it is greater than every number here.
        """
        return (
            f"CASE WHEN {name} = 'NaN' THEN {self.double(self.string('NaN'))} "
            f"WHEN {name} > {_MOST} THEN {self.double(self.string('Infinity'))} "
            f"WHEN {name} < -{_MOST} THEN {self.double(self.string('-Infinity'))} "
            f"WHEN ABS({name}) < {_LEAST} THEN 0e0 ELSE {self.double(self.text(name))} END"
        )

    def integer(self, expression: str) -> str:
        """Return a signed 64-bit integer."""
        return f"CAST({expression} AS BIGINT)"

    def code(self, expression: str, cells: int) -> str:
        """Return the smallest integer: there are no unsigned types."""
        kind = "SMALLINT" if cells <= 1 << 15 else "INTEGER" if cells <= 1 << 31 else "BIGINT"
        return f"CAST({expression} AS {kind})"

    def definition(self, domain: Domain) -> str:
        """Return no columns: the types follow from the query."""
        del domain
        return ""

    def key(self, columns: Sequence[str]) -> str:
        """Return no key, because joins are by hash."""
        del columns
        return ""

    def indexed(self, table: str, columns: Sequence[str]) -> tuple[str, ...]:
        """Return no index, because joins are by hash."""
        del table, columns
        return ()

    def analyzed(self, table: str) -> tuple[str, ...]:
        """Return the statement for statistics on a temporary table, which are not automatic."""
        return (f"ANALYZE {table}",)

    def matches(self, expression: str, pattern: str) -> str:
        """Return a match of the whole text; ``$`` does not match before a last line end here."""
        return f"({expression} ~ {self.string(f'^({pattern})$')})"

    def is_nan(self, expression: str) -> str:
        """Return an equality with NaN, which equals itself here."""
        return f"({expression} = CAST('NaN' AS DOUBLE PRECISION))"

    def digest(self, expression: str) -> str:
        """Return the MD5."""
        return f"MD5({expression})"

    def sha256(self, expression: str) -> str:
        """Return the SHA-256."""
        return f"ENCODE(SHA256(CONVERT_TO({expression}, 'UTF8')), 'hex')"

    def lookup(self, expression: str, codes: Mapping[str, int]) -> str:
        """Return a CASE."""
        return cases(expression, codes, self)

    def filtered(self, relation: str, condition: str) -> str:
        """Return the condition unchanged."""
        return f"{relation} WHERE {condition}"

    def draw(self, columns: Sequence[str], salt: str) -> str:
        """Return the engine's own randomness."""
        del columns, salt
        return "RANDOM()"

    def words(self, digest: str) -> tuple[str, str]:
        """Return two integers of 60 bits from an MD5."""
        halves = (f"SUBSTR({digest}, {start}, 15)" for start in (1, 17))
        first, second = (f"CAST(CAST(('x' || LPAD({half}, 16, '0')) AS BIT(64)) AS BIGINT)" for half in halves)
        return first, second


_KEY_COLUMNS = 16  # the limit of an index of MariaDB


class MariaDialect:
    """MariaDB or MySQL, under the SQL mode that the session sets."""

    whole_ids: frozenset[str] = frozenset()

    common_once = False
    lasting_snapshots = False  # CREATE … SELECT reads the latest rows, and locks them

    def day(self, column: Column) -> str | None:
        """Return None: dates are read as text."""

    def distinct(self, key: str, low: int, high: int) -> str | None:
        """Use the general count."""

    session = (
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES'",
        "SET NAMES utf8mb4",
        f"SET SESSION max_sort_length = {4 * LONGEST_ID}",  # bytes beyond are not compared by GROUP BY and windows
    )
    # Under READ COMMITTED a statement still reads one snapshot, and CREATE … SELECT takes no locks.
    read_only = ("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY",)
    read_write = ("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",)
    text_type = "LONGTEXT CHARACTER SET utf8mb4"
    drop = "DROP TEMPORARY TABLE IF EXISTS"

    def __init__(self, *, collation: str, digest: str) -> None:
        """Take the differences between MariaDB and MySQL.

        Args:
            collation: the bytewise one that does not pad.
            digest: SQL of a hash in lower-case hexadecimal digits, with ``{}`` for the text.
        """
        self._collation = collation
        self._digest = digest

    def name(self, identifier: str) -> str:
        """Return a quoted identifier."""
        return "`" + identifier.replace("`", "``") + "`"

    def string(self, value: str) -> str:
        """Return a text literal."""
        return "'" + value.replace("'", "''") + "'"

    def text(self, expression: str) -> str:
        """Return text in UTF-8, compared byte by byte and without padding."""
        return f"CONVERT({expression} USING utf8mb4) COLLATE {self._collation}"

    def timestamp(self, column: Column) -> str:
        """Return the text of a time stamp; moments are in UTC, because a clock shows some of them twice."""
        name = self.name(column.name)
        if not column.moments:
            return self.text(name)
        seconds = f"FLOOR(NULLIF(UNIX_TIMESTAMP({name}), 0))"  # without strict mode, zero means no moment
        moment = f"TIMESTAMPADD(SECOND, {seconds}, '1970-01-01 00:00:00')"
        return self.text(f"CASE WHEN {name} IS NOT NULL THEN CONCAT(COALESCE({moment}, ''), 'Z') END")

    def telling(self, column: Column) -> str:
        """Return the text of a value, for a FLOAT as a double: a FLOAT alone has six digits in text."""
        name = self.name(column.name)
        return self.text(self.double(name) if column.type.upper().startswith("FLOAT") else name)

    def exact(self, column: Column) -> str:
        """Return the text of a value; moments by their number, and bytes and other types in hexadecimal digits."""
        name = self.name(column.name)
        if column.moments:
            return self.text(f"UNIX_TIMESTAMP({name})")
        return self.text(f"HEX({name})") if column.kind is ColumnKind.OTHER else self.telling(column)

    def computed_once(self, select: str) -> str:
        """Return a subquery with LIMIT, which MariaDB does not merge."""
        return f"{select} LIMIT {(1 << 64) - 1}"

    def double(self, expression: str) -> str:
        """Return a double."""
        return f"CAST({expression} AS DOUBLE)"

    def decimal(self, name: str) -> str:
        """Return a double, by way of text: no decimal has more than 65 digits."""
        return self.double(self.text(name))

    def integer(self, expression: str) -> str:
        """Return a signed 64-bit integer."""
        return f"CAST({expression} AS SIGNED)"

    def code(self, expression: str, cells: int) -> str:
        """Return the expression unchanged: the table has the type, because CAST knows one unsigned type only."""
        del cells
        return f"CAST({expression} AS UNSIGNED)"

    def definition(self, domain: Domain) -> str:
        """Return the columns of the encoded table whose types the query cannot give."""
        types = {8: "TINYINT UNSIGNED", 16: "SMALLINT UNSIGNED", 32: "INT UNSIGNED", 64: "BIGINT"}
        sizes = enumerate(domain.shape)
        return "(" + ", ".join(f"c{place} {types[smallest_bits(size)]} NOT NULL" for place, size in sizes) + ")"

    def key(self, columns: Sequence[str]) -> str:
        """Return an index in the definition of a small table: MariaDB would join by the product of all such tables."""
        return f", KEY ({', '.join(columns[:_KEY_COLUMNS])})" if columns else ""

    def indexed(self, table: str, columns: Sequence[str]) -> tuple[str, ...]:
        """Return an index for each key, because MariaDB would compare all pairs of rows; few letters are enough."""
        return tuple(f"ALTER TABLE {table} ADD INDEX ({column}(64))" for column in columns)

    def analyzed(self, table: str) -> tuple[str, ...]:
        """Return nothing, because tallies read the whole table anyway."""
        del table
        return ()

    def matches(self, expression: str, pattern: str) -> str:
        r"""Return a match of the whole text, with ``\z``: ``$`` also matches before a last line end."""
        anchored = self.string("^(" + pattern + r")\z")
        return f"({expression} REGEXP {anchored})"

    def is_nan(self, expression: str) -> str:
        """Return false, because these databases have no NaN."""
        del expression
        return "(1 = 0)"

    def digest(self, expression: str) -> str:
        """Return the MD5, or the server's substitute."""
        return self._digest.format(expression)

    def sha256(self, expression: str) -> str:
        """Return the SHA-256."""
        return f"SHA2({expression}, 256)"

    def lookup(self, expression: str, codes: Mapping[str, int]) -> str:
        """Return a CASE."""
        return cases(expression, codes, self)

    def filtered(self, relation: str, condition: str) -> str:
        """Return the condition unchanged."""
        return f"{relation} WHERE {condition}"

    def draw(self, columns: Sequence[str], salt: str) -> str:
        """Return the engine's own randomness."""
        del columns, salt
        return "RAND()"

    def words(self, digest: str) -> tuple[str, str]:
        """Return two integers of 60 bits from a digest."""
        first, second = (f"CAST(CONV(SUBSTR({digest}, {start}, 15), 16, 10) AS SIGNED)" for start in (1, 17))
        return first, second
