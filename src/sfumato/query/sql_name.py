"""The names of columns in a statement."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def name(column: Any, known: Iterable[str]) -> str | None:  # noqa: ANN401  (sqlglot's own)
    """The name that a plain column stands for; None where it is an expression, or names its table.

    Unquoted names are those of SQL, in upper or lower case: one that is not ``known`` as it is written stands for
    the known name that differs from it in case only, if there is one such name.  A quoted name is taken as written.
    """
    from sqlglot import exp

    plain = isinstance(column, exp.Column) and isinstance(column.this, exp.Identifier)
    if not plain or any(column.args.get(part) for part in ("table", "db", "catalog")):
        return None
    written, names = str(column.this.this), tuple(known)
    if column.this.quoted or written in names:
        return written
    alike = [each for each in names if each.casefold() == written.casefold()]
    return alike[0] if len(alike) == 1 else written
