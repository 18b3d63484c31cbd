"""A quantile that is chosen: scores by brute force, privacy by enumeration, and the sampler against both."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato.domain import Domain, Real, Unit, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.engine.contingency import even_width
from sfumato.errors import BudgetError, QueryError, SizeError
from sfumato.ledger import open_ledger
from sfumato.ledger.dataset_terms import UNDECLARED
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.loss import NOTHING, Epsilon, Rho
from sfumato.privacy.selection import Exponential
from sfumato.vault.mechanisms import ExactTables, selection
from sfumato.vault.scores import RankErrors
from sfumato.vault.simulated import SimulatedVault
from sfumato.vault.value_measurables import Bins
from sfumato.vault.vault import Vault

EDGES = (0.0, 2.0, 4.0, 8.0)
PARTS = 4
GRID = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0]
VALUES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.9, 2.0, 3.9, 4.0, 6.5, 7.0, 8.0]), max_size=8)
PROBABILITIES = st.sampled_from([Fraction(1, 2), Fraction(1, 3), Fraction(9, 10)])


def domain(unit_rows=1):
    attributes = (Real(name="x", edges=(0.0, 8.0), unknown=Unknown.CLAMP),)
    return Domain(attributes, unit=Unit("person", rows=unit_rows)) if unit_rows > 1 else Domain(attributes)


def table(values, unit_rows=1):
    numbers = np.array(values, dtype=float)
    return ArrayTable(domain(unit_rows), np.zeros((len(values), 1), dtype=np.int64), values={"x": numbers})


def brute(values, probability):
    """The errors of all cells, from their definition."""
    a, b = probability.numerator, probability.denominator

    def missed(edge):
        below = len(values) if edge == GRID[-1] else sum(value < edge for value in values)
        return (b - a) * below - a * (len(values) - below)

    return [max(0, missed(low), -missed(high)) for low, high in pairwise(GRID)]


@given(VALUES, PROBABILITIES)
def test_cells_of_a_bin_have_the_defined_errors_and_none_less_than_the_bin(values, probability):
    tallies = ExactTables(table(values))
    asked = RankErrors("x", probability, EDGES, PARTS)
    counts = np.histogram(values, EDGES)[0]
    below = np.concatenate([[0], np.cumsum(counts)])
    bins = asked.errors(below, len(values))
    cells = [asked.cell_errors(tallies, bin_, below).tolist() for bin_ in range(3)]
    assert list(chain.from_iterable(cells)) == brute(values, probability)
    assert [min(each) for each in cells] == bins.tolist()


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(2, 4096))
def test_engines_find_the_cells_of_a_bin_by_division(start, width, parts):
    edges = RankErrors("x", Fraction(1, 2), (start, start + width), parts).edges_of(0)
    assert even_width(edges) is not None


@given(VALUES, PROBABILITIES, VALUES.filter(lambda more: len(more) == 1), st.integers(1, 3))
def test_one_unit_moves_no_score_further_than_the_sensitivity(values, probability, more, unit_rows):
    asked = RankErrors("x", probability, EDGES, PARTS)
    bound = asked.sensitivity(domain(unit_rows))
    moved = np.abs(np.array(brute(values, probability)) - brute(values + more * unit_rows, probability))
    assert moved.max() <= bound


def test_the_sensitivity_is_reached():
    for probability in (Fraction(1, 2), Fraction(9, 10)):
        moved = np.array(brute([1.0] * 9 + [7.0], probability)) - brute([1.0] * 9 + [7.0, 8.0], probability)
        assert np.abs(moved).max() == RankErrors("x", probability, EDGES, PARTS).sensitivity(domain())


def exact(values, probability, epsilon, sensitivity):
    logs = -epsilon * np.array(brute(values, probability), dtype=float) / (2 * float(sensitivity))
    return np.exp(logs - np.logaddexp.reduce(logs))


def chosen(values, probability, epsilon, count):
    asked = RankErrors("x", probability, EDGES, PARTS)
    mechanism = Exponential(Epsilon(epsilon), sensitivity=asked.sensitivity(domain()), monotone=False)
    entropy, tallies = SimulatedEntropy(9), ExactTables(table(values))
    cells = [asked.choose(tallies, mechanism, entropy) for _ in range(count)]
    return np.bincount(cells, minlength=12)


@pytest.mark.parametrize("epsilon", ["0.05", "1", "3"])
@pytest.mark.parametrize("probability", [Fraction(1, 2), Fraction(9, 10)], ids=str)
def test_bins_that_are_opened_when_drawn_change_nothing_in_the_distribution(epsilon, probability):
    """A false alarm has probability 1e-6 by case; scores 30 % off are found out."""
    values = [0.25, 0.25, 1.9, 2.0, 2.0, 3.9, 4.0, 6.5]
    counts = chosen(values, probability, epsilon, 4000)
    expected = exact(values, probability, float(epsilon), RankErrors("x", probability, EDGES, 4).sensitivity(domain()))
    assert stats.chisquare(counts, 4000 * expected).pvalue > 1e-6
    if epsilon == "3":
        off = exact(values, probability, 0.7 * float(epsilon), 1 if probability == Fraction(1, 2) else 9)
        assert stats.chisquare(counts, 4000 * off).pvalue < 1e-6


def logarithms(values, asked, mechanism):
    """Return logarithms of the probabilities of all cells, by the counts and the weights of the mechanism."""
    tallies = ExactTables(table(values))
    below = np.concatenate([[0], np.cumsum(tallies.answers([Bins("x", EDGES, ())])[0])])
    scores = np.concatenate([-asked.cell_errors(tallies, bin_, below) for bin_ in range(len(EDGES) - 1)])
    logs = float(mechanism.epsilon.value / (2 * mechanism.sensitivity)) * scores.astype(float)
    return logs - np.logaddexp.reduce(logs)


@given(VALUES, PROBABILITIES, VALUES.filter(lambda more: len(more) == 1), st.integers(1, 3))
def test_no_cell_tells_neighbours_apart_by_more_than_epsilon(values, probability, more, unit_rows):
    asked = RankErrors("x", probability, EDGES, PARTS)
    mechanism = selection(domain(unit_rows), asked, Epsilon("0.9"))
    left, right = (logarithms(rows, asked, mechanism) for rows in (values, values + more * unit_rows))
    assert np.abs(left - right).max() <= 0.9 + 1e-12


@pytest.mark.parametrize("loss", [Epsilon("0.5"), Rho("0.125")], ids=str)
def test_the_mechanism_charges_what_it_was_given(loss):
    simulated = SimulatedVault(table([1.0, 2.0, 3.0]), seed=0)
    mechanisms = simulated.mechanisms(loss)
    assert 0 <= mechanisms.select(RankErrors("x", Fraction(1, 2), EDGES, PARTS), loss) < 12
    with pytest.raises(BudgetError):
        mechanisms.select(RankErrors("x", Fraction(1, 2), EDGES, PARTS), loss)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (RankErrors("x", Fraction(1), EDGES, PARTS), QueryError),
        (RankErrors("x", Fraction(1, 10**9), EDGES, PARTS), QueryError),
        (RankErrors("x", Fraction(1, 2), (0.0,), PARTS), QueryError),
        (RankErrors("x", Fraction(1, 2), EDGES, 0), SizeError),
        (RankErrors("x", Fraction(1, 2), EDGES, 1 << 26), SizeError),
        (RankErrors("x", Fraction(1, 2), (1.0, 1.0 + 2.0**-40), 1 << 12), QueryError),
        (RankErrors("x", Fraction(1, 2), (0.0, 1e-320), 1 << 12), QueryError),
    ],
    ids=range(7),
)
def test_what_cannot_be_chosen_is_refused_before_the_charge(tmp_path, asked, error):
    with open_ledger(f"sqlite:///{tmp_path}/x.ledger", dataset="x", limit=Epsilon(1), create=True) as ledger:
        with pytest.raises(error):
            Vault(table([1.0]), ledger, UNDECLARED).select(asked, Epsilon(1))
        assert ledger.remaining().spent == NOTHING
