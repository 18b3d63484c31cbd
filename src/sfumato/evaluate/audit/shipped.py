"""The mechanisms of Sfumato on neighboring inputs that answer 0 and 1, ready for an audit."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.evaluate.audit.audit import Draw, Subject
from sfumato.local.randomizers.oracles import ORACLES
from sfumato.local.randomizers.randomizer import FrequencyOracle, ReportArray
from sfumato.local.randomizers.two_valued import TwoValued
from sfumato.local.randomizers.unary_encoding import HadamardSketch
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.privacy.noise import Noise
from sfumato.privacy.noise_kinds import NOISES
from sfumato.privacy.selection import Exponential, PermuteAndFlip
from sfumato.privacy.threshold import StabilityThreshold

_COUNTS = 10  # cells of the vector in which one person changes one cell
_CANDIDATES = 8
_CHILDREN = 9  # children of the unit that is added to linked tables
_VALUES = 6  # values of the attribute that a local randomizer reports


def subjects(entropy: Entropy) -> dict[str, Subject]:
    """Return all audited mechanisms by name.

    Args:
        entropy: the operating system's for a real audit, a simulated one for a reproducible test.
    """
    return {subject.name: subject for subject in (*_central(entropy), *_local(entropy))}


def chosen(names: list[str], entropy: Entropy) -> tuple[Subject, ...]:
    """Return the subjects with the given names; ``all`` selects every one.

    Raises:
        InputError: a name is unknown.
    """
    available = subjects(entropy)
    unknown = [name for name in names if name not in available and name != "all"]
    if unknown:
        raise InputError(
            f"no mechanism {unknown[0]!r} to audit; there are all, {', '.join(available)}", culprit=unknown
        )
    return tuple(available.values()) if "all" in names else tuple(available[name] for name in dict.fromkeys(names))


def tightest_mu(noise: Noise, shift: int) -> float:
    """Return the mu of Gaussian differential privacy of discrete Gaussian noise at a given shift.

    It is slightly above shift/sigma if sigma is small.  The best tests are thresholds, and all of them are tried.
    """
    from scipy.special import ndtri

    span = int(12 * noise.variance**0.5) + shift + 1
    mass = np.array([noise.pmf(k) for k in range(-span, span + 1)])
    above = np.cumsum(mass[::-1])[::-1]  # P(noise >= k)
    power, false = above[: len(above) - shift], above[shift:]
    inside = (false > 1e-12) & (power < 1 - 1e-12)  # noqa: PLR2004 (beyond that, doubles hold no tails)
    return float((ndtri(power[inside]) - ndtri(false[inside])).max())


def _central(entropy: Entropy) -> Iterator[Subject]:
    for kind in NOISES:
        yield from _noise_subjects(kind, entropy)
    yield from _linked_tables(entropy)
    up, down = np.array([1] + [0] * _CANDIDATES), np.array([0] + [1] * _CANDIDATES)
    for name, mechanism in (
        ("exponential", Exponential(Epsilon(1), sensitivity=1, monotone=False)),
        ("permute-and-flip", PermuteAndFlip(Epsilon(1), sensitivity=1, monotone=False)),
    ):
        yield Subject(name, Epsilon(1), _choice(mechanism, up, entropy), _choice(mechanism, down, entropy))
    level = np.zeros(_CANDIDATES + 1, dtype=np.int64)
    for name, mechanism in (
        ("exponential-monotone", Exponential(Epsilon(1), sensitivity=1, monotone=True)),
        ("permute-and-flip-monotone", PermuteAndFlip(Epsilon(1), sensitivity=1, monotone=True)),
    ):
        yield Subject(name, Epsilon(1), _choice(mechanism, up, entropy), _choice(mechanism, level, entropy))
    threshold = StabilityThreshold(EpsilonDelta(1, "0.01"), keys_per_unit=1)
    claim = EpsilonDelta(1, "0.01")
    yield Subject(
        "stability-new-key", claim, _noisy_keys(threshold, [9, 1], entropy), _noisy_keys(threshold, [9], entropy)
    )
    yield Subject(
        "stability-known-key", claim, _noisy_keys(threshold, [9, 6], entropy), _noisy_keys(threshold, [9, 5], entropy)
    )


def _noise_subjects(kind: type[Noise], entropy: Entropy) -> Iterator[Subject]:
    """Yield a mechanism at two sensitivities, and once for a vector in which one cell changes, or by its rho alone."""
    name = kind.name.removeprefix("discrete ").lower()
    if kind.loss_type is Rho:
        rho = Rho("0.5")
        for shift, title in ((1, name), (10, f"{name}-sensitivity-10")):
            noise = kind.for_loss(rho, shift**2)
            sides = _added(noise, 0, entropy), _added(noise, shift, entropy)
            yield Subject(title, rho, *sides, mu=tightest_mu(noise, shift))
            if shift == 1:
                yield Subject(f"{name}-rho", rho, *sides)
        return
    for shift, title in ((1, name), (7, f"{name}-sensitivity-7")):
        noise = kind.for_loss(Epsilon(1), shift)
        yield Subject(title, Epsilon(1), _added(noise, 0, entropy), _added(noise, shift, entropy))
    noise = kind.for_loss(Epsilon(1), 1)
    yield Subject(f"{name}-vector", Epsilon(1), _vector(noise, 0, entropy), _vector(noise, 1, entropy))


def _linked_tables(entropy: Entropy) -> Iterator[Subject]:
    """Yield weighted rows of a unit that all fall into one cell: the worst case.

    The rows are its further children, or rows that may have children of their own.
    """
    from sfumato.domain.linked_domain import ChildTable, LinkedTables
    from sfumato.domain.table_schema import parse_schema
    from sfumato.evaluate.audit.unit_audit import gaussian_unit_subject
    from sfumato.vault.unit_measurables import DerivedMarginal

    attributes = {"a": {"type": "integer", "minimum": 0, "maximum": 1, "unknown": "clamp"}}
    schema = parse_schema(
        {
            "sfumato": 2,
            "schema": "audited",
            "unit": {"id": "id", "table": "parents"},
            "tables": {
                "parents": {"key": "id", "attributes": {}},
                "children": {"key": "child", "unit": "id", "rows": _CHILDREN, "attributes": attributes},
                "grandchildren": {"through": {"of": "children"}, "rows": _CHILDREN, "attributes": attributes},
            },
        }
    )
    children = [
        ChildTable(table=schema[name], most=most) for name, most in (("children", _CHILDREN), ("grandchildren", 2))
    ]
    related = LinkedTables(schema=schema, children=tuple(children))
    tail, head = related.next_child(children[0]), related.first_child(children[1])
    assert tail is not None
    assert head is not None
    claim = Rho("0.5")
    for name, table, attribute, rows in (
        ("related-children", tail, "children.this.a", _CHILDREN - 1),  # for a unit with the largest number of children
        ("related-grandchildren", head, "grandchildren.number", _CHILDREN),  # rows that have no children
    ):
        cells = table.domain[attribute].size
        added = np.zeros(cells, dtype=np.int64)
        added[0] = rows * table.weights[-1]
        squared = DerivedMarginal(table, (attribute,)).sensitivity(related.unit_domain)[1]
        yield gaussian_unit_subject(
            name, (np.zeros_like(added), added), squared_sensitivity=squared, claim=claim, entropy=entropy
        )


def _local(entropy: Entropy) -> Iterator[Subject]:
    for method in ORACLES:
        first = (Fraction(1),) if method.memoized else ()
        claimed = Fraction(2) if method.memoized else Fraction(1)
        randomizer = method.best(_VALUES, claimed, *first) if not method.audited else method.audited(_VALUES, claimed)
        # a single report of a memoized method is a first report, so the claim is the loss of the first report
        claim = Epsilon(first[0] if first else claimed)
        reports = _reports(randomizer, 0, entropy), _reports(randomizer, 1, entropy)
        yield Subject(f"local-{method.name}", claim, *reports)


def _added(noise: Noise, answer: int, entropy: Entropy) -> Draw:
    return lambda count: noise.add(np.full(count, answer, dtype=np.int64), entropy)


def _vector(noise: Noise, answer: int, entropy: Entropy) -> Draw:
    def draw(count: int) -> NDArray[np.int64]:
        counts = np.zeros((count, _COUNTS), dtype=np.int64)
        counts[:, 3] = answer
        return noise.add(counts, entropy)

    return draw


def _choice(mechanism: Exponential | PermuteAndFlip, scores: NDArray[np.int64], entropy: Entropy) -> Draw:
    return lambda count: np.array([mechanism.choose(scores, entropy) for _ in range(count)])


def _noisy_keys(mechanism: StabilityThreshold, units: list[int], entropy: Entropy) -> Draw:
    """Return noisy numbers of two keys; -1 for a key that is hidden or absent."""

    def draw(count: int) -> NDArray[np.int64]:
        above, noisy = mechanism.apply(np.tile(np.array(units, dtype=np.int64), count), entropy)
        flat = np.full(len(above), -1, dtype=np.int64)
        flat[above] = noisy
        seen = np.full((count, 2), -1, dtype=np.int64)
        seen[:, : len(units)] = flat.reshape(count, len(units))
        return seen

    return draw


def _reports(randomizer: FrequencyOracle, value: int, entropy: Entropy) -> Draw:
    """Return which values each report supports, followed by the report, byte by byte if it is not one number."""

    def draw(count: int) -> NDArray[np.float64]:
        reports = randomizer.draw(np.full(count, value), entropy)
        return np.column_stack([_supports(randomizer, reports), reports.reshape(count, -1)]).astype(np.float64)

    return draw


def _supports(randomizer: FrequencyOracle, reports: ReportArray) -> NDArray[np.int64]:
    """Return which values each report supports, shape ``(reports, values)``.  Estimates are sums of these."""
    if isinstance(randomizer, TwoValued) and isinstance(randomizer.design, HadamardSketch):  # too large to tally singly
        return randomizer.design.incidence()[:, reports].T.astype(np.int64)
    distinct, places = np.unique(reports, axis=0, return_inverse=True)
    supports = [randomizer.support(randomizer.tally(distinct[n : n + 1])) for n in range(len(distinct))]
    return np.array(supports)[places.ravel()]
