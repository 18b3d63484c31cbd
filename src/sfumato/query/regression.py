"""Linear regression on noisy moments, with intervals that cover both the noise and the sample.

Coefficients computed from synthetic rows as if they were data have intervals that hold in a few percent of all cases:
they include neither the noise nor the error of the model.  Here the moments themselves are measured: sums over all rows
of the products of two variables, each scaled to [-1, 1] by its declared bounds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any as Json
from typing import Unpack

import numpy as np

from sfumato.domain import Date, Domain, Integer, Real, Timestamp
from sfumato.domain.predicate import describe_condition, holds_at_cells, named
from sfumato.errors import QueryError
from sfumato.model.factor import FloatArray
from sfumato.notebook_html import html_note, html_table
from sfumato.privacy.loss import Number
from sfumato.privacy.noise import Noise
from sfumato.query.aggregates import Confidence
from sfumato.query.aggregates.contract import NoisyValue
from sfumato.query.ask import CONFIDENCE
from sfumato.query.question import count
from sfumato.vault.interface import (
    Mechanisms,
    Payload,
    ReleaseRequest,
    StatedLoss,
    VaultInterface,
    refuse_no_vault,
    stated_loss,
    states_loss,
)
from sfumato.vault.measurables import IntegerArray, Weighted, cells
from sfumato.vault.mechanisms import noises
from sfumato.vault.release import Release

CONSTANT = "(constant)"

_FINEST = 1 << 12  # steps from the middle of a variable to its end
_LEAST = 10.0  # the smallest eigenvalue of the moments must be this many times the noise
_MOST_VARIABLES = 32
_MOST_CELLS = 1 << 22


@dataclass(frozen=True)
class Coefficient:
    """The change of the outcome per unit of one variable, with the others held fixed.

    Attributes:
        variable: an attribute, a condition (rows that meet it against all others), or the constant.
        table: estimate and interval of the coefficient of the table itself.
        population: the same for the population that the rows are a random sample of; None if the privacy unit is not a
            row.
    """

    variable: str
    table: NoisyValue
    population: NoisyValue | None


_NOISE_WORDS = "standard deviation of the noise on a sum of products, each from -1 to 1"


@dataclass(frozen=True, kw_only=True, repr=False)
class Regression(Release):
    """A linear regression by least squares; ``coefficients`` is empty if the noise is too large.

    Attributes:
        outcome: the explained variable.
        coefficients: the coefficients of the constant and of each input.
        confidence: the confidence of each interval.
        notes: remarks on the answer.
    """

    outcome: str
    coefficients: tuple[Coefficient, ...]
    confidence: Fraction
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Json]:
        """Return plain JSON values."""
        fields = {"outcome": self.outcome, "coefficients": [asdict(each) for each in self.coefficients]}
        return {**fields, "confidence": float(self.confidence), "remarks": list(self.notes), **self.statement()}

    @property
    def headline(self) -> str:
        """The outcome and its inputs."""
        return f"{self.outcome} by {', '.join(each.variable for each in self.coefficients) or 'nothing'}"

    def to_html(self) -> str:
        """Return a table of the coefficients with their intervals, and the statement."""
        rows = [(one.variable, str(one.table), str(one.population or "")) for one in self.coefficients]
        table = html_table((self.outcome, "in the table", "in the population"), rows, labels=1)
        return table + "".join(map(html_note, self.notes)) + super().to_html()


@dataclass(frozen=True, eq=False)
class _Variable:
    """A variable over the codes of an attribute: ``middle + half * steps / grid``, steps whole from -grid to grid."""

    words: str
    attribute: str | None
    steps: IntegerArray
    grid: int
    middle: float
    half: float
    binned: str


@states_loss
def linear_regression(
    vault: VaultInterface,
    outcome: str,
    inputs: Sequence[str],
    *,
    confidence: Number = CONFIDENCE,
    retry_key: str | None = None,
    **stated: Unpack[StatedLoss],
) -> Regression:
    """Explain an outcome by inputs, by least squares on noisy moments, charged before the data is touched.

    With p variables, the constant and the outcome among them, p(p+1)/2 sums of products are measured, each at an equal
    share of the loss.

    Neighboring tables differ in one unit (added or removed).  A row moves each sum by at most one, in units of the
    product of two ranges.  So discrete Gaussian noise on each has variance p(p+1)/(4 rho) for a unit of one row, and
    m^2 as much for a unit of m rows.

    The coefficients are b = Y_xx^-1 Y_xy.  The covariance of their noise is Y_xx^-1 C Y_xx^-1, with C the covariance of
    (noise of the moments)(-b, 1).  A population adds s^2 Y_xx^-1, with s^2 the noisy variance of the residuals.
    Source: sufficient-statistics perturbation (Wang 2018,
    "Revisiting differentially private linear regression", section 4), with intervals of the linearized solution.

    Args:
        vault: the protected table.
        outcome: an attribute of numbers, or a condition, which counts as 1 where it holds and 0 elsewhere.
        inputs: the same, each once; a constant is added.
        confidence: the confidence of each interval, strictly between 0 and 1.
        retry_key: the same for all attempts at one request.
        **stated: ``loss``, or ``epsilon`` with or without ``delta``: the total loss of the release, for the unit of
            the vault's domain.

    Raises:
        QueryError, DomainError: a variable that is neither, that may be missing, or that is named twice; nothing was
            spent.
        LossError: no loss, or a confidence outside (0, 1); nothing was spent.
        BudgetError: the ledger refuses the charge; nothing was spent.
    """
    loss = stated_loss(stated)
    refuse_no_vault(vault)
    level = Confidence.from_number(confidence)
    domain = vault.domain
    variables = _variables(domain, outcome, inputs)
    pairs = list(combinations_with_replacement(range(len(variables)), 2))
    products = [_product(domain, variables[one], variables[other]) for one, other in pairs]
    added = noises(domain, products, loss, None)  # refuse before the charge if the noise cannot be drawn

    def run(mechanisms: Mechanisms) -> Payload:
        measured = mechanisms.measure(products, loss)
        return {"moments": np.concatenate([measurement.values for measurement in measured])}

    parameters = {"outcome": outcome, "inputs": list(inputs), "moments": [product.canonical() for product in products]}
    words = f"linear regression of {variables[-1].words} by {', '.join(each.words for each in variables[1:-1])}"
    released = vault.release(ReleaseRequest("query", "regression", parameters, words), loss, run, retry_key=retry_key)
    moments, variances = _moments(variables, pairs, released.payload["moments"], added)
    deviations, population = max(map(level.standard_deviations, added)), domain.unit.column is None
    coefficients = _coefficients(variables, moments, variances, deviations=deviations, population=population)
    return Regression(
        guarantee=released.guarantee,
        cost=released.cost,
        accepted=released.accepted,
        expected_error={_NOISE_WORDS: math.sqrt(variances.max())},
        provenance=released.provenance,
        outcome=variables[-1].words,
        coefficients=coefficients,
        confidence=level.probability,
        notes=_notes(domain, variables, coefficients),
    )


def _moments(
    variables: Sequence[_Variable],
    pairs: Sequence[tuple[int, int]],
    measured: IntegerArray,
    added: Sequence[Noise],
) -> tuple[FloatArray, FloatArray]:
    """Return the noisy moments and the variances of their noise: symmetric matrices of the variables."""
    size = len(variables)
    moments, variances = np.zeros((size, size)), np.zeros((size, size))
    for (one, other), value, noise in zip(pairs, measured, added, strict=True):
        scale = variables[one].grid * variables[other].grid
        moments[one, other] = moments[other, one] = value / scale
        variances[one, other] = variances[other, one] = noise.variance / scale**2
    return moments, variances


def _variables(domain: Domain, outcome: str, inputs: Sequence[str]) -> tuple[_Variable, ...]:
    """Return the constant, the inputs and the outcome.

    Raises:
        QueryError, DomainError: see :func:`linear_regression`.
    """
    if isinstance(inputs, str) or not inputs or not all(isinstance(each, str) for each in (outcome, *inputs)):
        raise QueryError("a regression has an outcome and one or more inputs: attributes, or conditions as text")
    if len(inputs) + 2 > _MOST_VARIABLES:
        raise QueryError(f"a regression has at most {_MOST_VARIABLES - 2} inputs", culprit=inputs)
    constant = _Variable(CONSTANT, None, np.ones(1, dtype=np.int64), 1, 0.0, 1.0, binned="")
    variables = (constant, *(_variable(domain, text) for text in (*inputs, outcome)))
    words = [each.words for each in variables]
    if twice := [each for each in words if words.count(each) > 1]:
        raise QueryError(f"{twice[0]} is repeated; name each variable of a regression once", culprit=twice)
    return variables


def _variable(domain: Domain, text: str) -> _Variable:
    if text in domain:
        attribute = domain[text]
        if isinstance(attribute, Date | Timestamp):
            raise QueryError(f"{text} has dates, not numbers; take a condition{_example(domain, text)}", culprit=text)
        if not isinstance(attribute, Integer | Real):
            raise QueryError(f"{text} has no numbers; take a condition, such as \"{text} = '...'\"", culprit=text)
        if attribute.size > attribute.declared:
            raise QueryError(
                f"{text} may be missing or unknown, and a regression needs a value in every row; declare it without "
                "such cells, or use a condition, which such rows do not meet",
                culprit=text,
            )
        low, high = float(attribute.minimum), float(attribute.maximum)
        if not low < high:
            raise QueryError(f"{text} has a single value, which explains nothing", culprit=text)
        places, binned = _places(attribute)
        middle, half = (low + high) / 2, (high - low) / 2
        exact_grid = isinstance(attribute, Integer) and high - low <= _FINEST
        grid = int(high - low) * (1 if attribute.declared == high - low + 1 else 2) if exact_grid else _FINEST
        steps = np.rint(grid * (places - middle) / half).astype(np.int64)
        return _Variable(text, text, steps, grid, middle, half, binned)
    if (of := _PART_OF_DATES.fullmatch(text)) and of[1] in domain and isinstance(domain[of[1]], Date | Timestamp):
        raise QueryError(
            f"{text} is a part of a date; use a condition on it as a variable{_example(domain, of[1])}", culprit=text
        )
    condition = count(text).condition(domain)
    attributes = sorted(named(condition))
    if len(attributes) > 1:
        raise QueryError(f"a condition of a regression is about one attribute: {text}", culprit=text)
    if condition is not None and attributes:
        meets = holds_at_cells(condition, attributes, domain)
    if condition is None or not attributes or meets.all() or not meets.any():
        raise QueryError(f"{text} holds for all rows or for none, which explains nothing", culprit=text)
    words = describe_condition(condition, domain)
    return _Variable(words, attributes[0], np.where(meets, 1, -1), 1, 0.5, 0.5, binned="")


def _places(attribute: Integer | Real) -> tuple[FloatArray, str]:
    """Return the number of each declared cell, and its explanation if it is not the value itself."""
    bounds = np.array([attribute.bounds(code) for code in range(attribute.declared)], dtype=np.float64)
    places = bounds.mean(axis=1)
    if attribute.typical is not None:
        places[-1] = attribute.typical
        return places, f"the middles of their bins, and at {attribute.typical} in the open last one"
    return places, "the middles of their bins" if (bounds[:, 0] < bounds[:, 1]).any() else ""


_PART_OF_DATES = re.compile(r"\w+\((\w+)\)")


def _example(domain: Domain, dates: str) -> str:
    """Return a condition on dates that holds for some and not for others; nothing if all are of one year."""
    years = domain.grouping(f"year({dates})").labels[: domain[dates].declared]
    known = [year for year in years if year.isdecimal()]
    return (
        f', such as "year({dates}) = {known[len(known) // 2]}"' if len(known) > 1 else ", on parts of them or a range"
    )


def _product(domain: Domain, one: _Variable, other: _Variable) -> Weighted:
    """Return the sum of the products of two variables, in steps, as a weighted sum of the cells of one marginal.

    Raises:
        QueryError: the two attributes have too many cells together.
    """
    names = tuple(dict.fromkeys(each.attribute for each in (one, other) if each.attribute is not None))
    if cells(domain, names) > _MOST_CELLS:
        raise QueryError(f"{' and '.join(names)} have too many cells together; declare coarser bins", culprit=names)
    weights = np.multiply.outer(one.steps, other.steps) if len(names) > 1 else one.steps * other.steps
    return Weighted(names, weights.reshape(1, -1).astype(np.int64))


def _coefficients(
    variables: Sequence[_Variable], moments: FloatArray, variances: FloatArray, *, deviations: float, population: bool
) -> tuple[Coefficient, ...]:
    """Return the coefficients in the units of the variables; none if the noise is too large."""
    inner = moments[:-1, :-1]
    noise = math.sqrt(float(variances.max()) * len(inner))
    if np.linalg.eigvalsh(inner)[0] < max(_LEAST * noise, np.finfo(float).tiny):
        return ()
    inverse = np.linalg.inv(inner)
    b = inverse @ moments[:-1, -1]
    g = np.append(-b, 1.0)
    mixed = variances[:-1, :-1] * np.multiply.outer(g[:-1], g[:-1])  # each moment is in two of these sums
    np.fill_diagonal(mixed, variances[:-1] @ g**2)
    of_noise = inverse @ mixed @ inverse
    rows = moments[0, 0]
    residual = max(0.0, float(g @ moments @ g)) / max(1.0, rows - len(inner))
    # to the variables' own units: an input x is middle + half x'
    outcome = variables[-1]
    halves = np.array([each.half for each in variables[:-1]])
    own = np.diag(outcome.half / halves)
    own[0, 1:] = [-outcome.half * each.middle / each.half for each in variables[1:-1]]
    estimates = own @ b
    estimates[0] += outcome.middle
    errors = [np.sqrt(np.diag(own @ each @ own.T)) for each in (of_noise, of_noise + residual * inverse)]
    return tuple(
        Coefficient(
            each.words,
            _value(float(estimate), float(in_table), deviations),
            _value(float(estimate), float(beyond), deviations) if population else None,
        )
        for each, estimate, in_table, beyond in zip(variables[:-1], estimates, *errors, strict=True)
    )


def _value(estimate: float, error: float, deviations: float) -> NoisyValue:
    return NoisyValue(estimate, error, estimate - deviations * error, estimate + deviations * error)


def _notes(domain: Domain, variables: Sequence[_Variable], coefficients: Sequence[Coefficient]) -> tuple[str, ...]:
    notes = [
        f"values of {each.words} are taken at {each.binned}; coefficients and their intervals are of these values"
        for each in variables
        if each.binned
    ]
    if domain.unit.column is not None:
        notes.append(f"none of a population: rows of one {domain.unit.column} are no independent draws")
    else:
        notes.append("intervals of a population take what is left unexplained to spread alike at all inputs")
    notes.append("rows are those that the domain reads: numbers beyond declared bounds count as the bounds")
    if not coefficients:
        notes.append("the noise is too large beside what the inputs tell apart: no coefficient can be told")
    return tuple(notes)
