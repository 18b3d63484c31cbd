"""How Spark spells SQL, and what its types mean to a domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sfumato.engine.port import Column, Kind

_KINDS = {
    **dict.fromkeys(("string", "date", "void"), Kind.TEXT),
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), Kind.INTEGER),
    **dict.fromkeys(("float", "double", "decimal"), Kind.REAL),
    "boolean": Kind.BOOLEAN,
}


class SparkDialect:
    """Spark SQL, with or without its ANSI mode."""

    def name(self, identifier: str) -> str:
        """A quoted identifier."""
        return "`" + identifier.replace("`", "``") + "`"

    def string(self, value: str) -> str:
        """A text literal."""
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def text(self, expression: str) -> str:
        """Text; its comparison is bytewise, as columns with a collation are refused."""
        return f"CAST({expression} AS STRING)"

    def telling(self, column: Column) -> str:
        """Its text: numbers are spelled with all digits that they have."""
        return self.text(self.name(column.name))

    def double(self, expression: str) -> str:
        """A double."""
        return f"TRY_CAST({expression} AS DOUBLE)"

    def integer(self, expression: str) -> str:
        """A signed 64-bit integer."""
        return f"CAST({expression} AS BIGINT)"

    def code(self, expression: str, cells: int) -> str:
        """The smallest integer: there are no unsigned types."""
        return f"CAST({expression} AS {'TINYINT' if cells <= 1 << 7 else 'SMALLINT' if cells <= 1 << 15 else 'INT'})"

    def matches(self, expression: str, pattern: str) -> str:
        r"""Whole text, with ``\z``: ``$`` also matches before a last line end."""
        anchored = self.string("^(" + pattern + r")\z")
        return f"({expression} RLIKE {anchored})"

    def is_nan(self, expression: str) -> str:
        """NaN test."""
        return f"ISNAN({expression})"

    def digest(self, expression: str) -> str:
        """MD5."""
        return f"MD5({expression})"

    def sha256(self, expression: str) -> str:
        """SHA-256."""
        return f"SHA2({expression}, 256)"

    def words(self, digest: str) -> tuple[str, str]:
        """Two integers of 60 bits from an MD5."""
        first, second = (f"CAST(CONV(SUBSTR({digest}, {start}, 15), 16, 10) AS BIGINT)" for start in (1, 17))
        return first, second

    def lookup(self, expression: str, codes: Mapping[str, int]) -> str:
        """A CASE."""
        branches = " ".join(f"WHEN {self.string(text)} THEN {code}" for text, code in codes.items())
        return f"CASE {expression} {branches} END"

    def draw(self, columns: Sequence[str], salt: str) -> str:
        """A salted hash of the row: a task that is retried has to draw what it drew before."""
        texts = ", ".join(f"COALESCE({self.text(column)}, '')" for column in columns)
        return self.digest(f"CONCAT_WS('|', '{salt}', {texts})")


DIALECT = SparkDialect()


def column(name: str, kind: str) -> Column:
    """A column as Spark names its type; text with a collation is no text here, as it would compare otherwise."""
    return Column(name, _KINDS.get(kind.partition("(")[0], Kind.OTHER), kind)
