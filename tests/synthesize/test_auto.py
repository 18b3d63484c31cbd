"""The choice of a synthesizer: by what is public, and by figures that come true."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from sfumato import data
from sfumato.domain import Domain, Integer, Unknown
from sfumato.errors import SizeError
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.synthesize import (
    BudgetShare,
    NoisyTotal,
    PublicTotal,
    all_marginals,
    all_ranges,
    auto,
    ranges,
    rectangles,
    without_delta,
)
from sfumato.synthesize.auto import options
from sfumato.synthesize.budget_allocation import BudgetSplit
from sfumato.workload.counting_queries import Marginals


def wide(*sizes):
    return Domain(
        tuple(
            Integer(name=f"a{axis}", minimum=0, maximum=size - 1, unknown=Unknown.DROP)
            for axis, size in enumerate(sizes)
        )
    )


def best(domain, workload, *, loss=None, total=None):
    return options(domain, loss=loss or Epsilon(1), total=total or NoisyTotal(), workload=workload)[0].method


def test_noise_on_the_cells_wins_on_the_published_experiments():
    domain = data.domain("child_mental_health")
    assert best(domain, ranges("age", data.child_mental_health_queries())) == "histogram"
    every = [
        (low, high) for low in np.ndindex(14, 4) for high in np.ndindex(14, 4) if low <= high and low[1] <= high[1]
    ]
    low, high = np.array(every).transpose(1, 0, 2)
    assert best(domain, rectangles(("age", "satisfaction"), low, high)) == "histogram"


def test_one_way_marginals_of_a_wide_table_are_measured_apart():
    assert best(wide(30, 30, 30), all_marginals(1)) == "marginals"


def test_few_queries_over_many_cells_are_left_to_mwem():
    domain = wide(1000, 1000)
    halves = rectangles(domain.names, [[0, 0], [0, 500]], [[499, 999], [999, 999]])
    assert best(domain, halves) == "mwem"


def test_marginals_of_a_very_wide_table_are_left_to_batched():
    assert best(wide(*[100] * 8), all_marginals(2)) == "batched"


def test_overlapping_pairs_of_some_columns_are_no_histogram_of_their_product():
    domain = wide(20, 8, 14, 50, 3, 4, 20, 20)
    some = Marginals(cliques=tuple(("a0", f"a{other}") for other in range(1, 6)))
    found = options(domain, loss=EpsilonDelta("1", "1e-6"), total=NoisyTotal(), workload=some)
    errors = {option.method: option.error for option in found}
    assert found[0].method == "batched"
    assert errors["histogram"] > 5 * errors["batched"]


def test_marginals_of_some_columns_that_share_none_are_left_to_dense_methods():
    domain = wide(20, 8, 14, 50)
    assert best(domain, Marginals(cliques=(("a0", "a1"),))) == "histogram"
    assert best(domain, Marginals(cliques=(("a0", "a1"), ("a2",)))) == "marginals"


def test_weighted_marginals_are_left_to_batched_which_weighs_them():
    weighted = Marginals(cliques=(("a0", "a1"),), weights=(Fraction(4),))
    assert best(wide(20, 8, 14, 50), weighted) == "batched"


def test_no_method_takes_boxes_over_a_very_wide_table():
    domain = wide(*[100] * 8)
    with pytest.raises(SizeError, match="mst or batched"):
        best(domain, rectangles(domain.names, [[0] * 8], [[50] * 8]))


def test_sums_optimised_for_the_workload_win_on_many_ranges():
    domain = wide(64)
    assert best(domain, all_ranges(domain, "a0")) == "matrix"


def test_every_option_says_why():
    (first, *_) = options(wide(5), loss=Rho(1), total=PublicTotal(10), workload=all_ranges(wide(5), "a0"))
    assert str(first).startswith("histogram: noise of about ")


def named(method, domain, workload, *, loss, total):
    found = options(domain, loss=loss, total=total, workload=workload)
    return next(option for option in found if option.method == method)


def test_figures_say_what_they_do_not_count():
    domain = wide(6, 4, 3)
    found = options(domain, loss=Epsilon(1), total=NoisyTotal(), workload=all_marginals(2))
    said = {option.method: str(option) for option in found}
    assert "; not counted: its model answers marginals " in said["batched"]
    assert "; not counted: " not in said["histogram"]
    assert said["mwem"].startswith("mwem: cannot be compared without data (noise of about ")
    assert "on 30 of 54 queries; its table answers the others" in said["mwem"]


def test_a_method_that_measures_a_part_of_the_workload_has_no_figure():
    domain = wide(400)
    workload = ranges("a0", [(low, low + 350) for low in range(50)])
    found = options(domain, loss=Epsilon(1), total=NoisyTotal(), workload=workload)
    mwem = named("mwem", domain, workload, loss=Epsilon(1), total=NoisyTotal())
    assert math.isinf(mwem.error)
    assert found[-1] is not found[0]
    assert found[-1].method == "mwem"
    few = ranges("a0", [(0, 350), (5, 355), (9, 399)])
    assert named("mwem", domain, few, loss=Epsilon(1), total=NoisyTotal()).error < math.inf  # it measures all three


def test_marginals_that_batched_does_not_measure_get_no_figure_of_batched():
    found = options(wide(*[4] * 5), loss=Epsilon(1), total=NoisyTotal(), workload=all_marginals(4))
    assert [option.method for option in found] == ["histogram", "batched", "mst", "aim", "mwem"]
    assert str(found[1]).startswith("batched: cannot be compared without data (it measures marginals of at most three")
    assert best(wide(*[100] * 8), all_marginals(4)) == "batched"  # nothing else can hold the table


BINARY = wide(*[2] * 21)


@pytest.mark.parametrize("ways", [2, 3, 4])
@pytest.mark.parametrize("loss", [Epsilon("0.1"), Epsilon(1), Epsilon(10), EpsilonDelta(1, "1e-9")])
@pytest.mark.parametrize("total", [NoisyTotal(), PublicTotal(32_000)])
def test_noise_drowns_a_histogram_of_two_million_cells(ways, loss, total):
    """A table of 32,000 rows over 21 columns of two values: noise at epsilon 10 does not hide its histogram."""
    found = {o.method: o for o in options(BINARY, loss=loss, total=total, workload=all_marginals(ways))}
    holds = loss == Epsilon(10) and isinstance(total, PublicTotal)
    assert found["histogram"].hidden_by_noise is not holds
    if not holds:
        assert best(BINARY, all_marginals(ways), loss=loss, total=total) == "batched"
        assert str(found["histogram"]).startswith("histogram: noise hides a table of fewer than ")


def test_a_histogram_that_noise_drowns_is_wrong_by_more_than_its_noise(vault_over):
    """The rule that leaves it out: above the rows that it needs, the noise is the error, and far below it is not."""
    domain = wide(*[10] * 4)
    workload = all_marginals(1)
    option = named("histogram", domain, workload, loss=Epsilon(1), total=NoisyTotal())
    errors = []
    for rows in (30 * int(option.rows_needed), int(option.rows_needed) // 30):
        drawn = np.random.default_rng(3).multinomial(rows, skewed(domain.shape))
        truth = workload.answers(domain, drawn)
        answers = option.run(vault_over(domain, drawn.reshape(domain.shape))).model.answers(workload)
        errors.append(float(np.abs(answers - truth).sum()) / (2 * len(domain) * rows))  # share of the rows misplaced
    assert errors[0] < 0.02
    assert errors[1] > 0.2


def skewed(shape):
    one = np.array([0.5**place for place in range(shape[0])])
    cells = one
    for _ in shape[1:]:
        cells = np.multiply.outer(cells, one).ravel()
    return cells / cells.sum()


def test_ranges_over_more_cells_than_a_table_has_rows_are_left_to_mwem():
    domain = wide(10_000)
    workload = ranges("a0", [(low, low + 5_000) for low in range(0, 5_000, 50)])
    assert best(domain, workload) == "mwem"
    assert best(domain, workload, total=PublicTotal(1_000_000)) == "histogram"


def test_if_noise_drowns_every_method_the_one_of_fewest_rows_is_taken(vault_over):
    domain = wide(8, 8)
    counts = np.full((8, 8), 3)
    release = auto(vault_over(domain, counts), loss=Epsilon("0.01"), total=PublicTotal(192), workload=all_marginals(2))
    first, *others = release.provenance["chosen_among"]
    assert first.startswith("batched: noise hides a table of fewer than ")
    rule = "taken because noise hides a table of 192 rows in every method; this method needs the fewest rows"
    assert rule in first
    assert all("noise hides" in other for other in others)


@pytest.mark.parametrize("loss", [Epsilon(1), Rho("0.1")])
def test_the_figure_of_batched_counts_the_shares_that_go_elsewhere(loss):
    domain = wide(6, 4, 3)
    sizes = np.array([24.0, 18.0, 12.0])
    split = BudgetSplit(loss, 1)
    whole = [split.deviation(float(share)) ** 2 for share in split.shares(sizes.tolist())]
    free = np.sqrt((sizes * whole).sum() / sizes.sum())  # if all of the loss went to the pairs
    plenty, few = (
        named("batched", domain, all_marginals(2), loss=loss, total=PublicTotal(rows)).error for rows in (10**12, 100)
    )
    unknown = named("batched", domain, all_marginals(2), loss=loss, total=BudgetShare(Fraction(1, 2))).error
    assert 1.02 * free < plenty < 1.1 * free
    assert plenty < few < unknown


@pytest.mark.parametrize("total", [NoisyTotal(), PublicTotal(50_000), BudgetShare(Fraction(1, 2))])
def test_the_error_of_a_histogram_is_what_was_expected(vault_over, total):
    domain = wide(10)
    workload = all_ranges(domain, "a0")
    vault = vault_over(domain, np.full(10, 5000))
    truth = workload.answers(domain, np.full(10, 5000))
    option = next(
        option
        for option in options(domain, loss=Epsilon("0.1"), total=total, workload=workload)
        if option.method == "histogram"
    )
    squares = [np.square(option.run(vault).model.answers(workload) - truth).mean() for _ in range(400)]
    # BudgetShare adds the noise of the row count, which is shared by all cells, and takes out the sum of theirs
    slack = 0.35 if isinstance(total, BudgetShare) else 0.2
    assert np.sqrt(np.mean(squares)) == pytest.approx(option.error, rel=slack)


def test_the_error_of_marginals_is_what_was_expected(vault_over):
    domain = wide(6, 4)
    counts = np.full((6, 4), 1000)
    workload = all_marginals(1)
    truth = workload.answers(domain, counts.ravel())
    option = next(
        option
        for option in options(domain, loss=Epsilon("0.5"), total=PublicTotal(24_000), workload=workload)
        if option.method == "marginals"
    )
    vault = vault_over(domain, counts)
    squares = [np.square(option.run(vault).model.answers(workload) - truth).mean() for _ in range(400)]
    assert np.sqrt(np.mean(squares)) == pytest.approx(option.error, rel=0.2)


def test_the_release_says_what_it_was_chosen_among(vault_over, drawn_whole, domain, counts):
    vault = vault_over(domain, counts)
    release = auto(vault, loss=Epsilon(1), total=NoisyTotal(), workload=all_marginals(1))
    chosen = release.provenance["chosen_among"]
    assert chosen[0].startswith(release.provenance["method"])
    assert [choice.partition(":")[0] for choice in chosen] == [
        *("histogram", "batched", "marginals", "mwem"),  # MWEM measures all of nine queries
        *("mst", "aim"),  # without a figure
    ]
    assert "; taken because its noise over the whole workload is the least of " in chosen[0]
    assert not any("; taken because " in other for other in chosen[1:])
    assert drawn_whole(vault)


@pytest.mark.parametrize("method", ["auto", "batched", "mst", "aim"])
def test_a_delta_is_advised_where_it_takes_much_of_the_noise(method):
    (said,) = without_delta(BINARY, loss=Epsilon(1), total=NoisyTotal(), workload=all_marginals(2), method=method)
    assert said == (
        "epsilon = 1 without a delta (rho = 0.5) leaves noise of about 642 in a count; "
        "with a delta of 1e-9 (rho = 0.015) the same epsilon leaves about 123"
    )
    for loss in (EpsilonDelta(1, "1e-9"), Rho("0.015")):
        assert without_delta(BINARY, loss=loss, total=NoisyTotal(), workload=all_marginals(2), method=method) == ()


def test_no_delta_is_advised_where_it_would_add_noise():
    few = wide(8, 8)
    assert without_delta(few, loss=Epsilon(1), total=NoisyTotal(), workload=all_marginals(2)) == ()
    some = wide(10, 10, 10)
    (pure, *_), (other, *_) = (
        options(some, loss=loss, total=NoisyTotal(), workload=all_marginals(2))
        for loss in (Epsilon(1), EpsilonDelta(1, "1e-9"))
    )
    assert pure.error < other.error
    assert without_delta(some, loss=Epsilon(1), total=NoisyTotal(), workload=all_marginals(2)) == ()
