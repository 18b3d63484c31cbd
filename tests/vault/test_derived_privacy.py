"""Weighted derived tables are as private as they say: every small unit on top of others, exactly."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.families import Families, Family, every_family, related

from sfumato.domain import Domain, Integer, Unit, Unknown
from sfumato.domain.linked_domain import WHOLE, ChildTable, LinkedTables, link_tables
from sfumato.engine.exact import reveal
from sfumato.errors import DomainError, QueryError
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.vault import contribution
from sfumato.vault.measurables import Marginal
from sfumato.vault.simulated import SimulatedVault
from sfumato.vault.unit_measurables import DerivedDistance, DerivedMarginal

TABLES = related(3)
(TAIL,) = TABLES.derived
AGES = ("persons.previous.age", "persons.this.age")
COARSE = ((0, 0, 1, 1, 1), None)
DERIVED = [
    DerivedMarginal(TAIL, AGES),
    DerivedMarginal(TAIL, ("persons.number", "persons.this.work")),
    DerivedMarginal(TAIL, AGES, COARSE),
    DerivedMarginal(TAIL, ()),
    DerivedDistance(TAIL, ("persons.this.work",), np.array([WHOLE, 0, 3])),
]
UNITS = [*every_family(4)]  # one child more than is kept
LIKELY = UNITS[:: len(UNITS) // 5]


def moved(question, tables, before, unit) -> list[int]:
    """Return the change of each number of the exact answer when a unit is added to others."""
    left, right = (Families(families, tables) for families in (before, [*before, unit]))
    exact = [question.finish(tables.unit_domain, reveal(question.table().count(each))) for each in (left, right)]
    return [int(value) for value in exact[1] - exact[0]]


@pytest.mark.parametrize("place", range(len(DERIVED)))
def test_a_unit_moves_an_answer_by_no_more_than_is_said_and_some_by_all_of_it(place) -> None:
    question = DERIVED[place]
    most = [0, 0]
    for unit in UNITS:
        for before in ([], [unit], [LIKELY[-1]]):
            change = moved(question, TABLES, before, unit)
            most = [max(most[0], sum(map(abs, change))), max(most[1], sum(value**2 for value in change))]
    assert (most[0], most[1]) == question.sensitivity(TABLES.unit_domain) == (WHOLE, WHOLE**2)


@pytest.mark.parametrize("shape", [related(4, tau=1), related(4, tau=3), related(3, memory=2), related(2)], ids=str)
def test_other_bounds_weights_and_memories_hold_as_well(shape) -> None:
    (tail,) = shape.derived
    this = DerivedMarginal(tail, ("persons.this.work",))
    most = max(sum(map(abs, moved(this, shape, [], unit))) for unit in every_family(4))
    assert max(tail.weights) <= most <= WHOLE == this.sensitivity(shape.unit_domain)[0]


@pytest.mark.parametrize("loss", [Epsilon(1), Rho(1)], ids=str)
@pytest.mark.parametrize("place", range(len(DERIVED)))
def test_noise_is_scaled_to_it_so_that_30_percent_less_would_lose_more(place, loss, monkeypatch) -> None:
    question, recorded = DERIVED[place], []
    for kind in (DiscreteLaplace, DiscreteGaussian):
        monkeypatch.setattr(kind, "add", lambda noise, counts, _: recorded.append((noise, counts)) or counts)
    losses = []
    for unit in UNITS:
        recorded.clear()
        for families in ([LIKELY[2]], [LIKELY[2], unit]):
            SimulatedVault(Families(families, TABLES), seed=0).mechanisms(loss).measure([question], loss)
        (noise, before), (same, after) = recorded
        assert noise == same, "the noise may not depend on the data"
        change = [abs(int(value)) for value in after - before]
        losses.append(
            Fraction(sum(change)) / noise.scale
            if isinstance(noise, DiscreteLaplace)
            else Fraction(sum(value**2 for value in change)) / (2 * noise.sigma_squared)
        )
    assert loss.value * Fraction(7, 10) < max(losses) <= loss.value


def test_weights_are_the_largest_that_the_bound_allows() -> None:
    (tail,) = related(20, tau=2).derived
    assert tail.weights[:3] == (WHOLE // 2, WHOLE // 2, WHOLE // 3)
    assert all(
        rows * weight <= WHOLE < rows * (weight + 1)
        for rows, weight in zip(tail.rows[1:], tail.weights[1:], strict=True)
    )
    assert math.gcd(WHOLE, *range(1, 17)) == 1
    assert tail.counted.unit.rows == 19


def test_weights_that_add_up_to_more_are_refused() -> None:
    with pytest.raises(DomainError, match="would weigh more"):
        replace(TAIL, weights=(WHOLE, WHOLE))
    with pytest.raises(DomainError, match="weight for each"):
        replace(TAIL, weights=(1,))
    with pytest.raises(DomainError, match="weight for each"):
        replace(TAIL, weights=(-1, 1))


def test_tables_of_other_units_are_refused_before_anything_is_spent() -> None:
    other = Domain((Integer(name="a", minimum=0, maximum=1, unknown=Unknown.CLAMP),), unit=Unit("person", rows=2))
    for question in DERIVED:
        with pytest.raises(QueryError, match="other units"):
            question.sensitivity(other)
        with pytest.raises(QueryError, match="other units"):
            question.sensitivity(Domain(other.attributes))
    vault = SimulatedVault(Families([Family(0, ())], TABLES), seed=0)
    wrong = DerivedDistance(TAIL, ("persons.this.work",), np.zeros(2, dtype=np.int64))
    with pytest.raises(QueryError, match="flat table of 3"):
        vault.mechanisms(Rho(1)).measure([wrong], Rho(1))
    assert vault.spent.rho == 0


@pytest.mark.parametrize(
    "table",
    [
        replace(TAIL, rows=(1, 1), weights=(WHOLE, WHOLE)),  # whose second unit has two rows of that weight
        replace(TAIL, name="persons.other"),
        *(
            shape.derived[0]
            for shape in (related(3, order=None, falling=False), related(3, memory=2), related(3, tau=1))
        ),
    ],
    ids=["weights", "name", "order", "memory", "tau"],
)
def test_tables_described_otherwise_than_what_was_derived_cost_nothing(table) -> None:
    vault = SimulatedVault(Families([Family(0, ((0, 0), (2, 1)))], TABLES), seed=0)
    reference = np.zeros(table.domain["persons.this.work"].size, dtype=np.int64)
    for asked in (
        DerivedMarginal(table, ("persons.this.work",)),
        DerivedDistance(table, ("persons.this.work",), reference),
    ):
        mechanisms = vault.mechanisms(Rho(1))
        with pytest.raises(QueryError, match="described otherwise"):
            mechanisms.measure([asked], Rho(1))
        mechanisms.measure([Marginal(("persons.number",))], Rho(1))  # all of it is left


def test_heads_of_other_tables_are_other_domains() -> None:
    shapes = [related(3), related(3, falling=False), related(3, memory=2), related(3, tau=1)]
    shapes += [related(1), related(1, falling=False)]
    assert len({shape.unit_domain.hash for shape in shapes}) == len(shapes)


def test_weights_come_out_in_the_answer() -> None:
    families = [Family(0, ((3, 0), (2, 1), (1, 1))), Family(1, ((1, 0), (0, 0))), Family(1, ((0, 2),))]
    exact = DerivedMarginal(TAIL, ("persons.this.work",)).count(Families(families, TABLES))
    assert reveal(exact).tolist() == [WHOLE // 2, WHOLE, 0]
    head = SimulatedVault(Families(families, TABLES), seed=0).mechanisms(Rho(10**6))
    (counted,) = head.measure([Marginal(("persons.number",))], Rho(10**6))
    assert counted.values.tolist() == [0, 1, 1, 1]


def test_what_is_derived_is_named_in_the_journal() -> None:
    said = DERIVED[0].canonical()
    assert said["of"]["whole"] == WHOLE
    for word in ('"most": 3', '"by": "age"', '"falling": true', '"tau": 2', '"memory": 1'):
        assert word in said["of"]["of"]
    assert DERIVED[0].canonical() != DerivedMarginal(related(3, tau=1).derived[0], AGES).canonical()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"order": "work"}, "no number"),
        ({"order": "name"}, "none of its attributes"),
        ({"order": None}, "cannot fall without an order"),
        ({"most": 0}, "1 to"),
        ({"memory": 3}, "one or two"),
    ],
    ids=str,
)
def test_wrong_child_tables_are_refused(wrong, words) -> None:
    right = {"table": TABLES.children[0].table, "order": "age", "falling": True, "most": 3}
    with pytest.raises(DomainError, match=words):
        ChildTable(**{**right, **wrong})


def test_wrong_related_tables_are_refused() -> None:
    child = TABLES.children[0]
    for children, words in ([(), "at least one"], [(child, child), "twice"]):
        with pytest.raises(DomainError, match=words):
            LinkedTables(schema=TABLES.schema, children=children)
    with pytest.raises(DomainError, match="tau"):
        LinkedTables(schema=TABLES.schema, children=(child,), tau=0)
    houses = ChildTable(table=TABLES.schema["houses"], most=1)
    with pytest.raises(DomainError, match="lists the units"):
        LinkedTables(schema=TABLES.schema, children=(houses,))
    assert link_tables(TABLES.schema).children[0].most == 6


@pytest.mark.parametrize("of", [("persons.previous.age", "persons.this.age"), ("persons.number", "persons.this.age")])
def test_tables_that_are_counted_over_groups_have_the_same_counts_and_sensitivity(of, monkeypatch) -> None:
    groups = tuple(tuple(code % 2 for code in range(TAIL.domain[name].size)) for name in of)
    marginal = DerivedMarginal(TAIL, of, groups)
    questions = [marginal, DerivedDistance(TAIL, of, np.array([WHOLE, 0, 3, 1]), groups)]
    over_codes = [moved(each, TABLES, UNITS, LIKELY[-1]) for each in questions]
    assert marginal.table().groups is None
    monkeypatch.setattr(contribution, "DENSE_CELLS", 4)
    assert marginal.table().groups == groups
    assert [moved(each, TABLES, UNITS, LIKELY[-1]) for each in questions] == over_codes
    for question in questions:
        changes = [moved(question, TABLES, [], unit) for unit in UNITS]
        most = max(sum(map(abs, change)) for change in changes), max(sum(x**2 for x in change) for change in changes)
        assert all(one <= stated for one, stated in zip(most, question.sensitivity(TABLES.unit_domain), strict=True))
