"""Functions of declared texts, and comparisons of declared values with literals of another kind.

A statement's reader computes both from the values in the domain, so no row is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import product
from math import prod
from typing import Any, Protocol

from sfumato.domain import Attribute, Categorical, Integer, Unknown
from sfumato.domain.attribute import null_code
from sfumato.domain.expression import Cases, Constant, Expression, Labels
from sfumato.domain.predicate import All, Among, CodeRanges, Predicate
from sfumato.domain.predicate import Any as AnyOf
from sfumato.domain.view import View
from sfumato.errors import QueryError

_Literal = str | bool | int | Fraction
_Results = dict[_Literal | None, dict[tuple[int, ...], list[int]]]

_MOST_VALUES = 10_000  # combinations of declared values per function
_MOST_RESULTS = 1000  # distinct results, which become labels
_INTEGER_TEXT = re.compile(r"[+-]?[0-9]{1,18}")
_TRUTH = {"true": True, "false": False, "1": True, "0": False}
_BLANKS = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"


class _Rows(Protocol):
    """The rows of a statement; see :class:`sfumato.query.statements.unit_rows.UnitRows`."""

    view: View

    def attribute(self, node: Any) -> str:  # noqa: ANN401
        """Return the attribute of the view that a column names."""

    def lowered(self, node: Any) -> Any:  # noqa: ANN401
        """Return a node over attributes of the view."""


def codes_meeting(
    attribute: Categorical, literal: _Literal, meets: Callable[[Fraction, Fraction], bool]
) -> CodeRanges | None:
    """Return the codes of declared values that meet a comparison with a literal of another kind.

    As in DuckDB, a comparison with a number reads texts as numbers, and truth values are 0 and 1.  Each declared value
    has to be such a number.

    Args:
        attribute: the attribute; a cell for undeclared values compares with its own kind only.
        literal: the literal.
        meets: compares the number of a value with the number of the literal.

    Returns:
        None if the values and the literal are not comparable.
    """
    if attribute.unknown is Unknown.CATEGORY:
        return None
    truths = isinstance(literal, bool) or isinstance(attribute.values[0], bool)
    read = _as_truth if truths else _as_number
    numbers, other = _read(attribute.values, read), (_as_number if isinstance(literal, Fraction) else read)(literal)
    if numbers is None or other is None:
        return None
    return CodeRanges.of(code for code, value in enumerate(numbers) if meets(value, other))


def _read(values: Sequence[_Literal], read: Callable[[_Literal], Fraction | None]) -> list[Fraction] | None:
    numbers = [number for value in values if (number := read(value)) is not None]
    return numbers if len(numbers) == len(values) else None


def _as_truth(value: _Literal) -> Fraction | None:
    truth = _TRUTH.get(str(value).lower())
    return None if truth is None else Fraction(truth)


def _as_number(value: _Literal) -> Fraction | None:
    if isinstance(value, str):
        return Fraction(value) if _INTEGER_TEXT.fullmatch(value) else None
    return Fraction(value)


# --- functions of texts -----------------------------------------------------------------------------------------------


def is_text_function(node: Any) -> bool:  # noqa: ANN401  (sqlglot's own)
    """Return whether a node is a function of texts by its name."""
    return type(node) in _functions()


def text_constant(node: Any) -> Any:  # noqa: ANN401
    """Return the value of a function of literals as a literal; None for other nodes.

    >>> from sqlglot import parse_one
    >>> text_constant(parse_one("UPPER('a') || 'b'", read="duckdb")).sql()
    "'Ab'"
    """
    from sqlglot import exp

    if not is_text_function(node):
        return None
    try:
        value = _evaluated(node, {})
    except QueryError:
        return None
    return exp.Literal.string(value) if isinstance(value, str) else None


def text_value(rows: _Rows, node: Any) -> Expression | None:  # noqa: ANN401
    """Return the labels, or the numbers, of a function of declared texts for each row.

    Returns:
        None if a node is no such function, but for example one of numbers.

    Raises:
        QueryError: the values are not declared one by one, or too many; or the function does not take them.
    """
    from sqlglot import exp

    if not (is_text_function(node) or (isinstance(node, exp.Coalesce | exp.Nullif) and _is_text(rows, node))):
        return None
    lowered = _with_columns(rows, node)
    names = list(dict.fromkeys(column.name for column in lowered.find_all(exp.Column)))
    if not names:
        raise QueryError("a text that is the same in all rows groups and counts nothing")
    values = [_declared_values(rows.view.domain[name]) for name in names]
    if prod(map(len, values)) > _MOST_VALUES:
        raise QueryError(f"it has more than {_MOST_VALUES:,} combinations of declared values")
    results: _Results = {}
    for codes in product(*(range(len(each)) for each in values)):
        row = {name: each[code] for name, each, code in zip(names, values, codes, strict=True)}
        results.setdefault(_evaluated(lowered, row), {}).setdefault(codes[:-1], []).append(codes[-1])
    if len(results) > _MOST_RESULTS:
        raise QueryError(f"it has more than {_MOST_RESULTS:,} different results")
    return _by_result(names, results)


def _by_result(names: Sequence[str], results: _Results) -> Expression:
    """Return the value of each row by the results of the combinations of codes."""
    cases = [(_met(names, codes), result) for result, codes in results.items() if result is not None]
    if not cases:
        raise QueryError("it is NULL in all rows")
    rest = None if None in results else cases[-1][1]
    if len(cases) > 1 and rest is not None:
        cases.pop()
    kinds = {isinstance(result, str) for result in results if result is not None}
    if kinds == {True}:
        return Labels(tuple((met, str(result)) for met, result in cases), None if rest is None else str(rest))
    if kinds != {False}:
        raise QueryError("it is a text for some values and a number for others")
    numbers = tuple((met, Constant(Fraction(result))) for met, result in cases)
    return Cases(numbers, None if rest is None else Constant(Fraction(rest)))


def _met(names: Sequence[str], combinations: Mapping[tuple[int, ...], list[int]]) -> Predicate:
    """Return the condition that the codes of attributes are one of the given combinations."""
    parts: list[Predicate] = []
    for before, last in combinations.items():
        singles = [Among(name, [code]) for name, code in zip(names, before, strict=False)]
        among = Among(names[-1], last)
        parts.append(All((*singles, among)) if singles else among)
    return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))


def _is_text(rows: _Rows, node: Any) -> bool:  # noqa: ANN401
    """Return whether a node is about texts: a text function, or a general function of texts."""
    from sqlglot import exp

    match node:
        case exp.Paren(this=inner):
            return _is_text(rows, inner)
        case exp.Literal():
            return bool(node.is_string)
        case exp.Column():
            return isinstance(rows.view.domain[rows.attribute(node)], Categorical)
        case exp.Cast():
            return bool(node.is_type(*exp.DataType.TEXT_TYPES))
        case exp.Coalesce() | exp.Nullif():
            return any(_is_text(rows, part) for part in [node.this, node.expression, *node.expressions] if part)
        case exp.Case():
            return all(_is_text(rows, each.args["true"]) for each in node.args["ifs"])
    return is_text_function(node)


def _with_columns(rows: _Rows, node: Any) -> Any:  # noqa: ANN401
    """Return a function of columns of the view alone: CASE and CAST inside become such columns."""
    from sqlglot import exp

    if isinstance(node, exp.Literal | exp.Null | exp.Neg):
        return node
    if not is_text_function(node) and not isinstance(node, exp.Coalesce | exp.Nullif | exp.Paren):
        return rows.lowered(node)
    fresh = node.copy()
    for name, value in node.args.items():
        if isinstance(value, exp.Expression):
            fresh.set(name, _with_columns(rows, value))
        elif isinstance(value, list):
            fresh.set(name, [_with_columns(rows, each) for each in value])
    return fresh


def _declared_values(attribute: Attribute) -> list[_Literal | None]:
    """Return the value of each code of an attribute, None for the code of missing values.

    Raises:
        QueryError: a cell has several values, or is for values that are not declared.
    """
    if attribute.unknown is Unknown.CATEGORY:
        raise QueryError(f"{attribute.name!r} has a cell for values that are not declared")
    single = isinstance(attribute, Integer) and attribute.edges is None and attribute.declared <= _MOST_VALUES
    if isinstance(attribute, Categorical):
        values: list[_Literal | None] = list(attribute.values)
    elif isinstance(attribute, Integer) and single:
        values = list(range(attribute.minimum, attribute.maximum + 1))
    else:
        raise QueryError(f"the cells of {attribute.name!r} are no single values that could be texts")
    return values if null_code(attribute) is None else [*values, None]


def _evaluated(node: Any, row: Mapping[str, _Literal | None]) -> _Literal | None:  # noqa: ANN401
    """Evaluate a function of the values of one row like DuckDB.

    Raises:
        QueryError: the node is no function of texts, or its number arguments are no numbers.
    """
    from sqlglot import exp

    match node:
        case exp.Column() if node.name in row:
            return row[node.name]
        case exp.Paren(this=inner):
            return _evaluated(inner, row)
        case exp.Literal() if node.is_string:
            return str(node.this)
        case exp.Literal() | exp.Neg(this=exp.Literal()) if _INTEGER_TEXT.fullmatch(node.sql()):
            return int(node.sql())
        case exp.Coalesce() | exp.Concat():
            parts = [node.this, *node.expressions] if isinstance(node, exp.Coalesce) else node.expressions
            values = [value for part in parts if (value := _evaluated(part, row)) is not None]
            first = values[0] if values else None
            return first if isinstance(node, exp.Coalesce) else "".join(map(_text, values))
        case exp.Nullif():
            one, other = _evaluated(node.this, row), _evaluated(node.expression, row)
            return None if one is not None and other is not None and _text(one) == _text(other) else one
    if isinstance(node, exp.Null):
        return None
    if not is_text_function(node):
        raise QueryError(f"{node.sql(dialect='duckdb')} is no function of declared texts")
    return _called(
        node, [_evaluated(part, row) for name in _functions()[type(node)][0] if (part := node.args.get(name))]
    )


def _called(node: Any, given: Sequence[_Literal | None]) -> _Literal | None:  # noqa: ANN401
    from sqlglot import exp

    names, compute = _functions()[type(node)]
    if None in given:
        return None
    sizes = ("start", "length") if isinstance(node, exp.Substring) else ("expression",)
    numbers = isinstance(node, exp.Substring | exp.Left | exp.Right)
    arguments: list[Any] = []
    for name, value in zip(names, given, strict=False):
        is_size = numbers and name in sizes
        if is_size and (isinstance(value, str | bool) or not isinstance(value, int)):
            raise QueryError("this must be a number of letters")
        arguments.append(value if is_size else _text(value))
    if isinstance(node, exp.Trim):
        arguments = [str(node.args.get("position") or "").upper(), *arguments]
    return compute(*arguments)


@cache
def _functions() -> Mapping[Any, tuple[tuple[str, ...], Callable[..., _Literal]]]:
    """Return the functions of texts: the names of their arguments, and their implementations."""
    from sqlglot import exp

    return {
        exp.Upper: (("this",), lambda text: "".join(map(_upper, text))),
        exp.Lower: (("this",), lambda text: "".join(letter.lower()[0] for letter in text)),
        exp.Trim: (("this", "expression"), _trimmed),
        exp.Left: (("this", "expression"), lambda text, size: text[:size]),
        exp.Right: (("this", "expression"), lambda text, size: text[-size:] if size else ""),
        exp.Substring: (("this", "start", "length"), _substring),
        exp.DPipe: (("this", "expression"), str.__add__),
        exp.Concat: ((), str),
        exp.Replace: (("this", "expression", "replacement"), _replaced),
        exp.Reverse: (("this",), lambda text: text[::-1]),
        exp.Length: (("this",), len),
    }


def _text(value: _Literal | None) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _upper(letter: str) -> str:
    """Return the upper case of a letter if it is one letter, like DuckDB."""
    if letter == "\u00df":
        return "\u1e9e"
    return next((each for each in (letter.upper(), letter.title()) if len(each) == 1), letter)


def _replaced(text: str, old: str, new: str = "") -> str:
    return text.replace(old, new) if old else text


def _trimmed(side: str, text: str, letters: str = _BLANKS) -> str:
    text = text if side == "TRAILING" else text.lstrip(letters)
    return text if side == "LEADING" else text.rstrip(letters)


def _substring(text: str, start: int, size: int | None = None) -> str:
    """Return a part of a text: positions count from 1, negative positions from its end."""
    first = start - 1 if start > 0 else len(text) + start if start else -1
    after = len(text) if size is None else first + size
    if size is not None and size < 0:
        first, after = after, first
    return text[max(first, 0) : max(after, 0)]


def matching(values: Sequence[str], pattern: str) -> list[str]:
    """Return the texts that match a regular expression in DuckDB's syntax.

    Raises:
        QueryError: it is no regular expression.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        met = pc.match_substring_regex(pa.array(values, pa.string()), pattern).to_pylist()
    except pa.ArrowInvalid:
        raise QueryError("this is no regular expression", culprit=pattern) from None
    return [value for value, matches in zip(values, met, strict=True) if matches]
