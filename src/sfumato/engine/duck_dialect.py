"""How DuckDB spells SQL, and what its types mean to a domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sfumato.engine.dialect import smallest_bits
from sfumato.engine.files import quoted
from sfumato.engine.port import Column, Kind

_KINDS = {
    **dict.fromkeys(("VARCHAR", "ENUM", "UUID", "DATE", '"NULL"'), Kind.TEXT),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), Kind.INTEGER),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), Kind.INTEGER),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), Kind.REAL),
    "BOOLEAN": Kind.BOOLEAN,
}
_CODE_TYPES = {8: "UTINYINT", 16: "USMALLINT", 32: "UINTEGER"}


class DuckDialect:
    """DuckDB's SQL."""

    def name(self, identifier: str) -> str:
        """A quoted identifier."""
        return '"' + identifier.replace('"', '""') + '"'

    def string(self, value: str) -> str:
        """A text literal."""
        return quoted(value)

    def text(self, expression: str) -> str:
        """Text; its comparison is bytewise already."""
        return f"CAST({expression} AS VARCHAR)"

    def telling(self, column: Column) -> str:
        """Its text: numbers are spelled with all digits that they have."""
        return self.text(self.name(column.name))

    def double(self, expression: str) -> str:
        """A double."""
        return f"CAST({expression} AS DOUBLE)"

    def integer(self, expression: str) -> str:
        """A signed 64-bit integer."""
        return f"CAST({expression} AS BIGINT)"

    def code(self, expression: str, cells: int) -> str:
        """The smallest unsigned integer."""
        return f"CAST({expression} AS {_CODE_TYPES[smallest_bits(cells)]})"

    def matches(self, expression: str, pattern: str) -> str:
        """RE2, whole text."""
        return f"regexp_full_match({expression}, {quoted(pattern)})"

    def is_nan(self, expression: str) -> str:
        """NaN test."""
        return f"isnan({expression})"

    def digest(self, expression: str) -> str:
        """MD5."""
        return f"md5({expression})"

    def sha256(self, expression: str) -> str:
        """SHA-256."""
        return f"sha256({expression})"

    def draw(self, columns: Sequence[str], salt: str) -> str:
        """The engine's own randomness."""
        del columns, salt
        return "RANDOM()"

    def words(self, digest: str) -> tuple[str, str]:
        """Two integers of 60 bits from an MD5."""
        first, second = (f"CAST('0x' || substr({digest}, {start}, 15) AS BIGINT)" for start in (1, 17))
        return first, second

    def lookup(self, expression: str, codes: Mapping[str, int]) -> str:
        """A cast to an ENUM is a hash look-up; booleans have several spellings and take CASE."""
        if list(codes.values()) == list(range(len(codes))):
            return f"enum_code(TRY_CAST({expression} AS ENUM({', '.join(map(quoted, codes))})))"
        cases = " ".join(f"WHEN {quoted(text)} THEN {code}" for text, code in codes.items())
        return f"CASE {expression} {cases} END"


DIALECT = DuckDialect()


def column(name: str, kind: str) -> Column:
    """A column as DESCRIBE names its type."""
    return Column(name, _KINDS.get(kind.partition("(")[0], Kind.OTHER) if not kind.endswith("[]") else Kind.OTHER, kind)
