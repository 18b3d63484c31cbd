"""The marginals that a workload names, and the room that exact inference has for them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import pytest

from sfumato.domain import Categorical, Domain, Integer, Role, Unknown
from sfumato.errors import QueryError, SizeError
from sfumato.model.junction_tree import tree_cells
from sfumato.workload import all_marginals, cells_of
from sfumato.workload.counting_queries import Marginals
from sfumato.workload.named_marginals import (
    REST,
    TargetMarginals,
    column_weights,
    fit_together,
    most_cuts,
    named_marginals,
    relevant,
    workload_cliques,
)

CAPS = {"cells": 400_000, "marginal": 1 << 22}


def numbers(*sizes: int) -> Domain:
    return Domain(
        tuple(
            Integer(name=f"a{place}", minimum=0, maximum=size - 1, unknown=Unknown.DROP)
            for place, size in enumerate(sizes)
        )
    )


def categories(*sizes: int) -> Domain:
    return Domain(
        tuple(
            Categorical(name=f"a{place}", values=tuple(map(str, range(size))), unknown=Unknown.DROP)
            for place, size in enumerate(sizes)
        )
    )


def test_named_marginals_have_their_weights_in_the_order_of_the_domain() -> None:
    domain = numbers(2, 2, 2)
    workload = all_marginals(2, named={("a2", "a0"): "4", ("a0", "a2"): 0.5, ("a1",): 9})
    assert named_marginals(workload, domain) == {("a0", "a2"): 4.0}
    assert column_weights(workload, domain) == (1.0, 9.0, 1.0)
    assert workload.weights == (Fraction(4), Fraction(1, 2), Fraction(9))
    assert workload.marginal_attributes(domain)[-2:] == (("a0", "a2"), ("a1",))


def test_equal_weights_are_no_weights() -> None:
    assert cells_of({("a0", "a1"): 1}) == cells_of([("a0", "a1")])


@pytest.mark.parametrize("weight", [0, -1, "x", "1/0", True, 1001, None])
def test_a_weight_is_a_positive_number(weight: object) -> None:
    with pytest.raises(QueryError, match=r"the weight of a marginal is a number from 0\.001 to 1,000"):
        cells_of({("a0", "a1"): weight})


def test_weights_are_one_for_each_named_marginal() -> None:
    with pytest.raises(QueryError, match="each named marginal needs one weight"):
        Marginals(2, (("a0", "a1"),), (Fraction(2), Fraction(3)))


def test_a_workload_that_only_names_marginals_wants_the_other_pairs_less() -> None:
    domain = numbers(2, 2, 2, 2)
    targets = TargetMarginals.of_workload(cells_of([("a0", "a1", "a2")]), domain)
    assert set(targets.pairs) == set(combinations(domain.names, 2))
    assert {pair: targets.pairs[pair] for pair in [("a0", "a1"), ("a0", "a3")]} == {("a0", "a1"): 1, ("a0", "a3"): REST}
    assert targets.most == 2


def test_the_others_can_be_left_out_or_wanted_alike() -> None:
    domain = numbers(2, 2, 2, 2)
    alone = TargetMarginals.of_workload(all_marginals(1, named=[("a0", "a1", "a2")]), domain)
    assert alone.pairs == {("a0", "a1"): 1, ("a0", "a2"): 1, ("a1", "a2"): 1}
    alike = TargetMarginals.of_workload(all_marginals(2, named=[("a0", "a1", "a2")]), domain)
    assert alike.pairs == dict.fromkeys(combinations(domain.names, 2), 1)


@pytest.mark.parametrize("many", [2, 3, 5])
@pytest.mark.parametrize("target", [None, 0, 1])
def test_all_marginals_are_those_inside_a_list_of_them_in_the_same_order(many: int, target: int | None) -> None:
    roles = [Role.TARGET if place == target else None for place in range(many)]
    domain = Domain(tuple(replace(each, role=role) for each, role in zip(numbers(*[2] * many), roles, strict=True)))
    for ways in range(1, many + 1):
        listed = workload_cliques(all_marginals(ways), domain)
        targets = TargetMarginals.of_workload(all_marginals(ways), domain)
        assert targets.most == min(3, max(map(len, listed)))
        for size, others in targets.others.items():
            weights = relevant(listed, size)
            largest = max(weights.values(), default=1)
            assert list(others.by_name().items()) == [(each, weight / largest) for each, weight in weights.items()]


def test_marginals_are_chosen_by_their_places() -> None:
    others = TargetMarginals.of_workload(all_marginals(3), numbers(2, 3, 4, 5)).others[3]
    left = others.without([("a0", "a1", "a3"), ("a0", "a1")])
    assert list(left.by_name()) == [("a0", "a1", "a2"), ("a0", "a2", "a3"), ("a1", "a2", "a3")]
    assert left.cells({"a0": 2, "a1": 3, "a2": 4, "a3": 5}).tolist() == [24, 40, 60]
    assert left.pair_sums({("a0", "a2"): 0.5, ("a2", "a3"): 4.0}).tolist() == [0.5, 4.5, 4.0]


def test_a_marginal_of_seven_columns_is_refused() -> None:
    domain = numbers(*[2] * 7)
    with pytest.raises(
        QueryError, match=r"the marginal of .* has 7 columns, and a marginal that is measured first has at most 6"
    ):
        most_cuts(domain, [domain.names], **CAPS)
    assert most_cuts(domain, [domain.names[:6]], **CAPS) == {}


def test_a_refusal_names_the_cells_and_the_cap() -> None:
    with pytest.raises(
        SizeError, match="the marginal of a0, a1 has 490,000 cells, more than the cap of 400,000 cells for inference"
    ):
        most_cuts(categories(700, 700), [("a0", "a1")], **CAPS)
    with pytest.raises(SizeError, match=r"a0, a1 has 9,000,000 cells, more than the 4,194,304 of one marginal"):
        most_cuts(numbers(3000, 3000), [("a0", "a1")], **CAPS)
    ring = [("a0", "a1"), ("a1", "a2"), ("a0", "a2")]
    with pytest.raises(SizeError, match="the 3 named marginals need 1,000,000 cells of inference together"):
        most_cuts(categories(100, 100, 100), ring, **CAPS)
    assert not fit_together(categories(100, 100, 100), cells_of(ring), **CAPS)
    assert fit_together(categories(100, 100, 100), cells_of(ring[:2]), **CAPS)


def test_wide_numbers_are_joined_until_the_named_marginals_fit() -> None:
    domain = numbers(2000, 2000, 9)
    cuts = most_cuts(domain, [("a0", "a1")], **CAPS)
    assert cuts == {"a0": 500, "a1": 500}
    assert tree_cells([("a0", "a1")], cuts) <= CAPS["cells"] < 1000 * 500
