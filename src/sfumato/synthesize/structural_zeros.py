"""Structural zeros: cells that are impossible by the meaning of the attributes, as lists or rules.

They are public knowledge, never derived from the protected table, so they cost no loss.  A model in which they have
probability zero has no such row.  They are checked on *kinds* of codes: codes of one kind have the same impossible
cells.  A hundred ages are two kinds if a rule distinguishes children from others.  So the check that some row is
possible is exact for any number of codes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect_all
from sfumato.domain import Domain, Integer, Real
from sfumato.domain.attribute import Attribute
from sfumato.errors import InfeasibleError, InputError, LossError, QueryError, SizeError
from sfumato.model.coarsening import Coarsening
from sfumato.model.factor import Factor
from sfumato.model.graphical_model import GraphicalModel, calibrate
from sfumato.model.junction_tree import Clique, tree_cells
from sfumato.privacy.loss import exact
from sfumato.strict_documents import read_yaml_texts

_MOST_ZEROS = 1 << 24  # cells of one table of zeros, 16 MiB
_MOST_KINDS = 1 << 22  # cells of the junction tree over kinds in the check of rules, 32 MiB
_SHOWN = 60  # characters of a rule in a message
_TO = ".."
_LARGEST_DOUBLE = 1e308
_FOLDED = 3  # groups per kind of an attribute from which its kind becomes a separate variable

KIND = " kind of "
"""Name prefix of the variable for the kinds of an attribute.  No attribute has a name that begins with a blank."""


@dataclass(frozen=True, eq=False)
class Zeros:
    """Impossible cells: ``impossible`` has one axis per attribute.

    ``rule`` is their name in messages.  Comparisons ignore it.
    """

    attributes: tuple[str, ...]
    impossible: NDArray[np.bool_]
    rule: str = ""

    @property
    def name(self) -> str:
        """The rule, or the attributes."""
        return self.rule or f"the zeros over {', '.join(self.attributes)}"

    @property
    def is_function(self) -> bool:
        """Whether each cell of the first of two attributes has one possible cell of the second."""
        return len(self.attributes) == 2 and bool((np.sum(~self.impossible, axis=1) == 1).all())  # noqa: PLR2004


def load_zeros(path: str | Path, domain: Domain) -> tuple[Zeros, ...]:
    """Read structural zeros from a YAML file with a list of rules in the forms of :func:`read_zeros`.

    Raises:
        QueryError: the file is missing or has no such list, or a label does not exist.
        DomainError: an attribute is not in the domain.
        SizeError, InfeasibleError: :func:`read_zeros` refuses the rules.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise QueryError(f"there is no file {path}", culprit=path) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise QueryError(f"cannot read the structural zeros {path}: {reason}", culprit=path) from None
    try:
        document = read_yaml_texts(text, name="it")
    except InputError as error:
        raise QueryError(f"{path} does not read as structural zeros: {error}", culprit=path) from None
    _refuse_no_rules(document, str(path))
    return read_zeros(document, domain)


def read_zeros(rules: Sequence[Mapping[str, Any]], domain: Domain) -> tuple[Zeros, ...]:
    """Return structural zeros from a list of mappings, each in one of four forms.

    ``{if: {age: 0..14}, then: {marital: [never, divorced]}}``: if the condition holds, the other attributes have one of
    these cells.  ``{impossible: {age: 0..14, marital: married}}``: no row has both.  ``{attributes: [age, marital],
    impossible: [[0..14, married]]}``: the same, combination by combination.
    ``{column: stage, from: age, cells: {child: 0..17, adult: 18..}}``: the column follows from another one, each of
    whose cells is named once.  (missing) and (other) may be left out if the column has the same cell.

    Cells are labels, as ``sfumato domain show --cells`` lists them, ranges of numbers or of declared labels such as
    ``0..14``, ``65..``, or ``..14``, a list of these, or ``{not: [...]}`` for all others.  Missing and other values
    have the cells (missing) and (other).  A rule that lists possible values must name them if they are possible.

    Raises:
        QueryError: the rules have no such form, a label does not exist, a range cuts a cell, or a column does not
            follow from each cell of another.
        DomainError: an attribute is not in the domain.
        SizeError: the cells of a rule, or of all kinds together, are too many to check.
        InfeasibleError: the rules together leave no row possible, or none that meets the condition of a rule.
    """
    _refuse_no_rules(rules, "this")
    tables_of_zeros: list[list[Zeros]] = []
    conditions: list[list[Zeros]] = []
    for number, rule in enumerate(rules, start=1):
        zeros, condition = _read(rule, domain, f"rule {number}")
        tables_of_zeros.append(zeros)
        conditions.append(condition)
    _refuse_contradiction(tables_of_zeros, conditions)
    return tuple(zero for zeros in tables_of_zeros for zero in zeros)


def refuse_impossible(zeros: Sequence[Zeros], domain: Domain, cap: int) -> None:
    """Refuse structural zeros that do not fit the domain, or that inference over ``cap`` cells cannot hold.

    Raises:
        DomainError: an attribute is not in the domain, or is named twice in a table.
        QueryError: a table is not boolean with one axis per attribute.
        SizeError: inference over the zeros alone takes more cells.
        InfeasibleError: no cell is possible.
    """
    expect_all(zeros, Zeros, "structural zeros are a list of Zeros(attributes, impossible)")
    for zero in zeros:
        if not isinstance(zero.attributes, tuple):
            raise QueryError("the attributes of structural zeros are a tuple of names", culprit=zero.attributes)
        shape = domain.project(zero.attributes).shape
        cells = zero.impossible
        if not isinstance(cells, np.ndarray) or cells.dtype != np.bool_ or cells.shape != shape:
            raise QueryError(
                f"the impossible cells of {', '.join(zero.attributes)} must be an array of booleans of shape {shape}",
                culprit=zero.attributes,
            )
    _refuse_many_cells(zeros, domain, cap)
    _refuse_contradiction([[zero] for zero in zeros], [[]] * len(zeros))


def _refuse_many_cells(zeros: Sequence[Zeros], domain: Domain, cap: int) -> None:
    """Refuse zeros that exceed the cap of inference for any groups of codes.

    :func:`apply_zeros` connects an attribute of many groups by its kinds, so a potential has fewer than three groups
    per kind of any attribute.
    """
    tied = [zero for zero in zeros if len(zero.attributes) > 1]
    kinds_of = {name: kinds(name, tied) for zero in tied for name in zero.attributes}
    different = {name: len(np.unique(codes)) for name, codes in kinds_of.items() if codes is not None}
    sizes = {name: domain[name].size for name in different}
    held = {name: min(size, _FOLDED * different[name] - 1) for name, size in sizes.items()}
    links = sum(size * different[name] for name, size in sizes.items() if _FOLDED * different[name] <= size)
    needed = tree_cells([zero.attributes for zero in tied], held) + links
    if needed > max(cap, sum(sizes.values())):
        raise SizeError(
            f"inference over these zeros needs {needed:,} cells, more than the cap of {cap:,}; say them over fewer "
            "attributes together, or part fewer cells",
            culprit=tuple(zero.name for zero in zeros),
        )


def kinds(name: str, zeros: Sequence[Zeros]) -> NDArray[np.int64] | None:
    """Return a kind for each code of an attribute, equal if the same cells are impossible; None if no table has it."""
    patterns = [  # per code, one bit per cell
        np.packbits(np.moveaxis(zero.impossible, zero.attributes.index(name), 0).reshape(size, -1), axis=1)
        for zero in zeros
        if name in zero.attributes
        for size in [zero.impossible.shape[zero.attributes.index(name)]]
    ]
    if not patterns:
        return None
    texts = [row.tobytes() for row in np.concatenate(patterns, axis=1)]  # sorting rows of booleans takes minutes
    numbers = {text: number for number, text in enumerate(sorted(set(texts)))}
    return np.array([numbers[text] for text in texts], dtype=np.int64)


def apply_zeros(model: GraphicalModel, zeros: Sequence[Zeros], coarsenings: Mapping[str, Coarsening]) -> GraphicalModel:
    """Return the model over groups in which the impossible cells have no probability.

    All codes of a group have the same impossible cells, so the first code of each decides.  An attribute of many groups
    and few kinds gets a second variable, its kind, to which the zeros are tied instead.  The cliques of zeros then have
    some kinds of it instead of all its groups, and leave room for measured tables.
    """
    first = {
        name: np.unique(coarsenings[name].groups, return_index=True)[1]
        for name in dict.fromkeys(name for zero in zeros for name in zero.attributes)
    }
    tied = [zero for zero in zeros if len(zero.attributes) > 1]
    kind_of = {
        name: codes_kinds[codes] for name, codes in first.items() if (codes_kinds := kinds(name, tied)) is not None
    }
    folded = {
        name: codes_kinds
        for name, codes_kinds in kind_of.items()
        if _FOLDED * (codes_kinds.max() + 1) <= len(codes_kinds)
    }
    for name, codes_kinds in folded.items():
        size = int(codes_kinds.max()) + 1
        link = Factor((name, KIND + name), np.where(codes_kinds[:, None] == np.arange(size), 0.0, -np.inf))
        model = replace(model, sizes={**model.sizes, KIND + name: size}).times(link)
    for zero in zeros:
        sides, names = [], []
        for name in zero.attributes:
            fold = zero in tied and name in folded
            names.append(KIND + name if fold else name)
            sides.append(first[name][np.unique(folded[name], return_index=True)[1]] if fold else first[name])
        model = model.times(Factor(tuple(names), np.where(zero.impossible[np.ix_(*sides)], -np.inf, 0.0)))
    return model


_FORM = (
    "{if: {a: ..}, then: {b: ..}}, {impossible: {a: .., b: ..}}, {column: b, from: a, cells: {..: ..}} or "
    "{attributes: [a, b], impossible: [[label, label], ...]}"
)


def _refuse_contradiction(rules: Sequence[Sequence[Zeros]], conditions: Sequence[Sequence[Zeros]]) -> None:
    """Refuse rules that leave no row possible, or none that meets the condition of a rule.  The message names the rule.

    Raises:
        InfeasibleError, SizeError: :func:`read_zeros` describes them.
    """
    if (blocked := _blocked(rules, conditions)) is None:
        return
    upto = next(n for n in range(1, len(rules) + 1) if _blocked(rules[:n], conditions[:n]) is not None)
    blocked = _blocked(rules[:upto], conditions[:upto])
    last = rules[upto - 1][0].name
    before = "" if upto == 1 else ", with those before it,"
    left = "no row" if not blocked else f"no row that meets the condition of {blocked}"
    raise InfeasibleError(f"{last}{before} leaves {left} possible; correct or remove one of them", culprit=last)


def _blocked(rules: Sequence[Sequence[Zeros]], conditions: Sequence[Sequence[Zeros]]) -> str | None:
    """Return the first rule whose condition no possible row meets.

    The result is "" if no row is possible at all, and None if there is no contradiction.
    """
    zeros = [zero for rule in rules for zero in rule]
    if not zeros:
        return None
    if not _possible(zeros):
        return ""
    met = (_possible([*zeros, *condition]) for condition in conditions)
    return next((rule[0].name for rule, possible in zip(rules, met, strict=True) if not possible), None)


def _possible(zeros: Sequence[Zeros]) -> bool:
    """Return whether some cell is possible, decided over kinds of codes."""
    names = dict.fromkeys(name for zero in zeros for name in zero.attributes)
    kinds_of = {name: kinds(name, zeros) for name in names}
    folded = {
        name: Coarsening(numbers, np.ones(len(numbers))) for name, numbers in kinds_of.items() if numbers is not None
    }
    sizes = {name: coarsening.size for name, coarsening in folded.items()}
    cliques = [zero.attributes for zero in zeros]
    if (needed := tree_cells(cliques, sizes)) > _MOST_KINDS:
        raise SizeError(
            f"whether these rules leave a row possible takes {needed:,} cells, more than {_MOST_KINDS:,}; say them "
            "over fewer attributes together",
            culprit=zeros[0].name,
        )
    model = apply_zeros(GraphicalModel.uniform(sizes, cliques, 1.0), zeros, folded)
    return calibrate(model.tree, model.factors, model.sizes) is not None


def _read(rule: Mapping[str, Any], domain: Domain, name: str) -> tuple[list[Zeros], list[Zeros]]:
    """Return the tables of one rule, and its condition as tables of the cells that do not meet it."""
    if "attributes" in rule:
        return [_listed(rule["attributes"], rule["impossible"], domain, name)], []
    name = f"{name} ({_words(rule)})"
    if "column" in rule:
        return [_function(rule, domain, name)], []
    if "if" not in rule:
        return [_box(_cells(rule["impossible"], domain), domain, name)], []
    condition, allowed = _cells(rule["if"], domain), _cells(rule["then"], domain)
    if twice := condition.keys() & allowed.keys():
        raise QueryError(f"{name} has {min(twice)!r} in its condition and in what follows", culprit=name)
    zeros = [_box({**condition, each: ~cells}, domain, name) for each, cells in allowed.items()]
    return zeros, [Zeros((each,), ~cells, name) for each, cells in condition.items()]


def _cells(cells_of: Mapping[str, Any], domain: Domain) -> dict[str, NDArray[np.bool_]]:
    return {name: _named_cells(domain[name], cells) for name, cells in cells_of.items()}


def _box(sides: Mapping[str, NDArray[np.bool_]], domain: Domain, rule: str) -> Zeros:
    """Return the combinations of the cells of each attribute."""
    _refuse_large(tuple(sides), domain, rule)
    impossible = np.ones((), dtype=np.bool_)
    for side in sides.values():
        impossible = impossible[..., None] & side
    return Zeros(tuple(sides), impossible, rule)


def _function(rule: Mapping[str, Any], domain: Domain, name: str) -> Zeros:
    """Return the zeros of a column that follows from another: axes of the other and of the column."""
    source, column = domain[rule["from"]], domain[rule["column"]]
    if source == column:
        raise QueryError(f"{name} lets a column follow from itself; name another column in 'from'", culprit=name)
    _refuse_large((source.name, column.name), domain, name)
    possible = np.zeros((source.size, column.size), dtype=np.bool_)
    for label, cells in rule["cells"].items():
        possible[np.ix_(_named_cells(source, cells), _named_cells(column, label))] = True
    labels = column.labels()
    for code in range(source.declared, source.size):
        if not possible[code].any() and source.label(code) in labels:
            possible[code, labels.index(source.label(code))] = True
    several = possible.sum(axis=1)
    if (wrong := np.flatnonzero(several != 1)).size:
        count = "no cell" if several[wrong[0]] == 0 else "several cells"
        raise QueryError(
            f"{name} gives {source.name} {source.label(int(wrong[0]))} {count} of {column.name}; name each cell of "
            f"{source.name} once",
            culprit=name,
        )
    return Zeros((source.name, column.name), ~possible, name)


def without_implied(
    candidates: Mapping[Clique, float], measured: Collection[Clique], zeros: Sequence[Zeros], sizes: Mapping[str, int]
) -> dict[Clique, float]:
    """Return the candidate marginals without those that follow from others.

    A column follows from another one if a table of zeros leaves one cell of it for each cell of the other.  If it has
    more than half as many groups, its marginals repeat those of the other column.
    """
    source_of: dict[str, str] = {}
    for zero in zeros:
        source, *columns = zero.attributes
        if zero.is_function and 2 * sizes[columns[0]] > sizes[source] and source not in source_of:
            source_of.setdefault(columns[0], source)
    others = {frozenset(clique) for clique in (*candidates, *measured)}

    def is_implied(clique: Clique) -> bool:
        sources = frozenset(source_of.get(name, name) for name in clique)
        return sources != frozenset(clique) and (len(sources) == 1 or sources in others)

    return {clique: weight for clique, weight in candidates.items() if not is_implied(clique)}


def _listed(names: Sequence[str], combinations: Sequence[Sequence[Any]], domain: Domain, rule: str) -> Zeros:
    """Return zeros from combinations that are listed one by one."""
    if len(set(names)) < len(names):
        raise QueryError(f"{rule} names a column twice; name each of its attributes once", culprit=names)
    projected = domain.project(names)
    _refuse_large(tuple(names), domain, rule)
    impossible = np.zeros(projected.shape, dtype=np.bool_)
    for combination in combinations:
        sides = [_named_cells(attribute, part) for attribute, part in zip(projected, combination, strict=True)]
        impossible[np.ix_(*sides)] = True
    return Zeros(tuple(names), impossible, rule)


def _refuse_large(names: tuple[str, ...], domain: Domain, rule: str) -> None:
    shape = domain.project(names).shape
    if (size := math.prod(shape)) > _MOST_ZEROS:
        raise SizeError(
            f"{rule} is over {size:,} cells, more than {_MOST_ZEROS:,}; say it over fewer attributes", culprit=names
        )


def _named_cells(attribute: Attribute, labels: object) -> NDArray[np.bool_]:
    """Return a mask of the cells of an attribute that a rule names: shape ``(codes,)``."""
    others = False
    while isinstance(labels, Mapping) and set(labels) == {"not"}:  # without recursion: a request may nest deeply
        labels, others = labels["not"], not others
    items = labels if isinstance(labels, list | tuple) and labels else [labels]
    named = np.zeros(attribute.size, dtype=np.bool_)
    for item in items:
        named[_label_cells(attribute, item)] = True
    return named ^ others


def _label_cells(attribute: Attribute, item: object) -> slice | list[int]:
    """Return the codes of one label, or of a range."""
    labels = attribute.labels()
    point = isinstance(attribute, Real) and type(item) in (int, float) and item in attribute.points
    text = str(float(item) if point else item) if isinstance(item, str | int | float) else None
    if text in labels:
        return [labels.index(text)]
    first, to, last = (part.strip() for part in (text or "").partition(_TO))
    if not to or not first + last:
        raise QueryError(
            f"{attribute.name} has no cell {item!r}; 'sfumato domain show DOMAIN --cells {attribute.name}' lists them",
            culprit=item,
        )
    ends = _number_range if isinstance(attribute, Integer | Real) else _declared_range
    start, stop = ends(attribute, first, last)
    if start >= stop:
        raise QueryError(f"the range {text} holds no cell of {attribute.name}", culprit=item)
    return slice(start, stop)


def _declared_range(attribute: Attribute, first: str, last: str) -> tuple[int, int]:
    labels = attribute.labels()[: attribute.declared]
    for end in filter(None, (first, last)):
        if end not in labels:
            raise QueryError(
                f"{attribute.name} declares no {end!r}; 'sfumato domain show DOMAIN --cells {attribute.name}' lists "
                "its values",
                culprit=end,
            )
    return labels.index(first) if first else 0, labels.index(last) + 1 if last else attribute.declared


def _number_range(attribute: Attribute, first: str, last: str) -> tuple[int, int]:
    """Return the cells between two numbers, including the last integer.  The range may end beyond the bounds."""
    assert isinstance(attribute, Integer | Real)
    try:
        low, high = exact(first or attribute.minimum), exact(last or attribute.maximum)
    except LossError:
        raise QueryError(f"a range of {attribute.name} has numbers at its ends", culprit=attribute.name) from None
    if isinstance(attribute, Real):  # its edges are doubles
        low, high = (Fraction(float(end)) if abs(end) < _LARGEST_DOUBLE else end for end in (low, high))
    integer = isinstance(attribute, Integer)
    if isinstance(attribute, Integer):
        bounds: list[tuple[float, float]] = [attribute.bounds(code) for code in range(attribute.declared)]
    else:  # a cell of real numbers ends where the next begins
        bounds, high = (
            list(pairwise(attribute.edges)),
            high if high < attribute.maximum else Fraction(attribute.edges[-1]),
        )
    beyond = [high < start if integer else high <= start for start, _ in bounds]
    before = [end < low if integer else end <= low for _, end in bounds]
    inside = [low <= high and not late and not early for late, early in zip(beyond, before, strict=True)]
    for (start, end), within in zip(bounds, inside, strict=True):
        if within and (max(low, attribute.minimum) > start or end > high):
            raise QueryError(
                f"the range {first}{_TO}{last} cuts the cell {start}{_TO}{end} of {attribute.name}; use the "
                "ends of cells",
                culprit=attribute.name,
            )
    start = inside.index(True) if any(inside) else 0
    return start, start + sum(inside)


def _words(rule: Mapping[str, Any]) -> str:
    """Return a rule in words, shortened."""
    if "column" in rule:
        text = f"{rule['column']} from {rule['from']}"
    elif "if" in rule:
        text = f"if {_sides(rule['if'])} then {_sides(rule['then'])}"
    else:
        text = f"impossible: {_sides(rule['impossible'])}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]} ..."


def _sides(cells_of: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_side(cells)}" for name, cells in cells_of.items())


def _side(cells: object) -> str:
    negated = ""
    while isinstance(cells, Mapping):  # without recursion: a request may nest deeply
        cells, negated = cells.get("not"), f"{negated}not "
    return negated + (" or ".join(map(str, cells)) if isinstance(cells, list | tuple) else str(cells))


def _refuse_no_rules(document: object, name: str) -> None:
    """Refuse a document that is no list of rules.

    The message quotes nothing of the document, which may be the protected table by mistake.

    Raises:
        QueryError: the document is no list, is empty, or holds something else than a rule.
    """
    why = f"{'' if document else 'it has no rule; '}write a list of {_FORM}"
    if isinstance(document, list | tuple) and document:
        wrong = [number for number, rule in enumerate(document, start=1) if not _is_rule(rule)]
        if not wrong:
            return
        why = f"rule {wrong[0]} is none of {_FORM}"
    raise QueryError(f"{name} does not read as structural zeros: {why}", culprit=document)


def _is_rule(rule: object) -> bool:
    match rule:
        case {"attributes": [*names], "impossible": [*cells], **others}:
            return (
                bool(names and cells and not others)
                and all(isinstance(name, str) for name in names)
                and all(isinstance(cell, list | tuple) and len(cell) == len(names) for cell in cells)
            )
        case {"impossible": dict() as sides, **others} if sides and not others:
            return _are_sides(sides)
        case {"if": dict() as one, "then": dict() as other, **others} if one and other and not others:
            return _are_sides(one) and _are_sides(other)
        case {"column": str(), "from": str(), "cells": dict() as cells, **others}:
            return bool(cells) and not others
        case _:
            return False


def _are_sides(sides: Mapping[Any, Any]) -> bool:
    return all(isinstance(name, str) for name in sides)
