"""Questions by the levels of declared hierarchies: what they mean, what they are called, what they cost."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from sfumato.domain import Domain, parse
from sfumato.domain.predicate import Among, Predicate
from sfumato.engine.arrays import ArrayTable
from sfumato.engine.open import open_table
from sfumato.errors import DomainError, QueryError
from sfumato.privacy.loss import Epsilon
from sfumato.query import ask, sql, table
from sfumato.query.aggregates import Average, Count, Distinct, Quantile, Total, Variance
from sfumato.query.plan import plan
from sfumato.query.question import Query, count
from sfumato.query.statements.select_statement import parse as statement
from sfumato.vault.simulated import SimulatedVault

DOCUMENT = {
    "sfumato": 1,
    "unit": "row",
    "attributes": {
        "diag": {
            "type": "categorical",
            "values": ["I10", "I21", "J01", "K35"],
            "unknown": "category",
            "nullable": True,
        },
        "age": {"type": "integer", "minimum": 0, "maximum": 29, "unknown": "category"},
    },
    "hierarchies": {
        "diag": {
            "levels": ["block", "chapter"],
            "rows": [["I10", "I1", "IX"], ["I21", "I2", "IX"], ["J01", "J0", "X"], ["K35", "K3", "XI"]],
        },
        "age": {"draft": True},
    },
}
DOMAIN = parse(DOCUMENT)
CELLS = np.random.default_rng(3).integers(0, 60, DOMAIN.shape)
HUGE = Epsilon(10**7)  # so that noise is none


def vault(domain: Domain = DOMAIN) -> SimulatedVault:
    codes = np.indices(domain.shape).reshape(len(domain), -1).T
    return SimulatedVault(ArrayTable(domain, codes, weights=CELLS.astype(np.int64).ravel()), seed=4)


def where(text: str) -> Predicate | None:
    return count(text).condition(DOMAIN)


def test_a_statement_by_chapter_counts_the_codes_of_each() -> None:
    found = sql(vault(), "SELECT Chapter(diag), COUNT(*) FROM t GROUP BY chapter(diag)", loss=HUGE)
    by_code = CELLS.sum(axis=1)
    assert found.groups == ("chapter(diag)",)
    assert {key: row[0].estimate for key, row in zip(found.keys, found.values, strict=True)} == {
        ("IX",): by_code[0] + by_code[1],
        ("X",): by_code[2],
        ("XI",): by_code[3],
        ("(missing)",): by_code[4],
        ("(other)",): by_code[5],
    }


@pytest.mark.parametrize("by", [("chapter(diag)",), ("level_1(age)", "block(diag)"), ("diag", "level_2(age)")])
def test_every_aggregate_of_a_group_is_that_of_its_codes_together(by) -> None:
    """The same question of each group, as a filter, has the same answer: exactly, as there is no noise."""
    aggregates = (
        Count(),
        Count("diag"),
        Total("age"),
        Average("age"),
        Variance("age"),
        Quantile("age", Fraction(1, 3)),
    )
    found = ask(vault(), Query(aggregates, by=by), loss=HUGE)
    groupings = [DOMAIN.grouping(name) for name in by]
    assert len(found.keys) == np.prod([len(each.labels) for each in groupings])
    for key, row in zip(found.keys, found.values, strict=True):
        parts = []
        for label, grouping in zip(key, groupings, strict=True):
            groups = grouping.groups or range(len(grouping.labels))
            parts.append(frozenset(c for c, cell in enumerate(groups) if grouping.labels[cell] == label))
        one, *rest = [Among(each.attribute, codes) for each, codes in zip(groupings, parts, strict=True)]
        narrowed = one if not rest else _all(one, *rest)
        alone = ask(vault(), Query(aggregates, where=narrowed), loss=HUGE)
        assert [value.estimate for value in row] == pytest.approx([value.estimate for value in alone.values[0]])


def _all(*parts: Predicate) -> Predicate:
    from sfumato.domain.predicate import All

    return All(parts)


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("chapter(diag) = 'IX'", {0, 1}),
        ("'IX' = chapter(diag)", {0, 1}),
        ("chapter(diag) <> 'IX'", {2, 3, 5}),  # a missing value is unknown, another is not of the chapter
        ("NOT chapter(diag) = 'IX'", {2, 3, 5}),
        ("chapter(diag) IN ('IX', 'X')", {0, 1, 2}),
        ("chapter(diag) NOT IN ('IX', 'X')", {3, 5}),
        ("chapter(diag) IS NULL", {4}),
        ("chapter(diag) IS NOT NULL", {0, 1, 2, 3, 5}),
        ("BLOCK(diag) = 'I2'", {1}),
    ],
)
def test_a_condition_on_a_level_is_one_on_its_codes(text, codes) -> None:
    assert where(text) == Among("diag", frozenset(codes))


def test_of_a_number_out_of_bounds_no_level_is_known() -> None:
    assert where("level_1(age) = '5..9'") == Among("age", frozenset(range(5, 10)))
    assert where("level_1(age) <> '5..9'") == Among("age", frozenset(range(30)) - frozenset(range(5, 10)))


def test_a_condition_by_fields_is_that_of_the_statement() -> None:
    from sfumato.app.api.questions import ConditionFields

    fields = ConditionFields(attribute="chapter(diag)", comparison="in", values=["IX", "X"])
    assert count(fields.read(DOMAIN).true).condition(DOMAIN) == where("diag IN ('I10', 'I21', 'J01')")
    assert count("chapter(diag) = 'IX'").describe(DOMAIN) == "count(*) where diag in I10, I21"


def test_a_filter_by_a_level_is_the_same_question_as_one_by_its_codes() -> None:
    """So a question that was paid for in one form is free in the other."""
    one, other = (plan(count(text), DOMAIN) for text in ("chapter(diag) = 'IX'", "diag IN ('I10', 'I21')"))
    assert one.parameters == other.parameters


def test_questions_by_attributes_are_called_as_they_always_were() -> None:
    """A ledger of a domain without hierarchies knows them by these names."""
    aggregates = (Count(), Total("age"), Average("age"), Quantile("age", Fraction(1, 2)))
    plain = parse({key: value for key, value in DOCUMENT.items() if key != "hierarchies"})
    query = Query(aggregates, by=("diag",))
    assert plan(query, DOMAIN).parameters == plan(query, plain).parameters
    kinds = {said["kind"]: said for said in plan(query, DOMAIN).parameters["questions"]}
    assert kinds["marginal"]["groups"] is None
    assert all("groups" not in said for kind, said in kinds.items() if kind != "marginal")


def test_a_group_costs_and_errs_like_a_cell() -> None:
    for aggregate in (Count(), Total("age"), Average("age"), Variance("age"), Quantile("age", Fraction(1, 2))):
        by_level, by_code = (plan(Query((aggregate,), by=(name,)), DOMAIN) for name in ("chapter(diag)", "diag"))
        assert [question.sensitivity(DOMAIN) for question in by_level.questions] == [
            question.sensitivity(DOMAIN) for question in by_code.questions
        ]


@pytest.mark.parametrize("rows", [2, 30])
def test_one_unit_moves_the_answers_by_no_more_than_is_claimed(rows) -> None:
    """All tables of a unit's rows over three codes and two ages are tried; the largest change reaches the claim if
    possible.
    """
    domain = parse(DOCUMENT | {"unit": {"id": "person", "rows": rows}})
    groups = domain.grouping("chapter(diag)").groups
    queries = [Query((each,), by=("chapter(diag)",)) for each in (Count(), Distinct(), Total("age"))]
    for query in queries:
        (question,) = plan(query, domain).questions
        claimed = question.sensitivity(domain)[0]
        largest = 0
        for held in itertools.combinations_with_replacement(itertools.product((0, 1, 2), (0, 29)), min(rows, 3)):
            cells = np.zeros(5, dtype=np.int64)
            for code, age in held:
                cells[groups[code]] += age if query.aggregates[0] == Total("age") else 1
            largest = max(largest, int((np.minimum(cells, 1) if query.aggregates[0] == Distinct() else cells).sum()))
        assert largest <= claimed
        if rows == 2:
            assert largest == claimed
    (units,) = plan(queries[1], domain).questions
    assert units.sensitivity(domain)[0] == min(rows, 5)


def test_distinct_units_of_a_chapter_are_counted_once() -> None:
    domain = parse(DOCUMENT | {"unit": {"id": "person", "rows": 4}})
    rows = [("a", "I10"), ("a", "I21"), ("a", "J01"), ("b", "I10"), ("b", None), ("c", "I21"), ("c", "I21"), ("b", "Z")]
    frame = pa.table({"person": [p for p, _ in rows], "diag": [d for _, d in rows], "age": [5] * len(rows)})
    held = SimulatedVault(open_table(frame).encode(domain), seed=1)
    found = sql(held, "SELECT chapter(diag), COUNT(DISTINCT person) FROM t GROUP BY chapter(diag)", loss=HUGE)
    assert [row[0].estimate for row in found.values] == [3, 1, 0, 1, 1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT COUNT(*) FROM t WHERE chapter(diag) = 'Q'", r"column 46: this is not a cell of chapter\(diag\)"),
        ("SELECT COUNT(*) FROM t WHERE chapter(diag) = '(other)'", "this is not a cell"),
        ("SELECT COUNT(*) FROM t WHERE chapter(diag) < 'IX'", "have no order"),
        ("SELECT COUNT(*) FROM t WHERE chapter(diag) = 1", "this is not a cell"),
        ("SELECT COUNT(*) FROM t GROUP BY verse(diag)", "column 33: no level 'verse' of 'diag'"),
        ("SELECT COUNT(*) FROM t GROUP BY chapter(diag), chapter(diag)", "an attribute is repeated"),
        ("SELECT chapter(diag), COUNT(*) FROM t", "must also be in GROUP BY"),
        ("SELECT SUM(chapter(diag)) FROM t", "expressions are not allowed"),
        ("SELECT COUNT(*) FROM t WHERE chapter(diag) = block(diag)", "compare with a literal"),
        ("SELECT COUNT(*) FROM t GROUP BY chapter(lower(diag))", "expressions are not allowed"),
    ],
)
def test_what_a_level_cannot_mean_is_refused_with_its_place(text, says) -> None:
    with pytest.raises(QueryError, match=says):
        statement(text, DOMAIN)


def test_a_level_of_an_attribute_without_a_hierarchy_is_named() -> None:
    bare = parse({key: value for key, value in DOCUMENT.items() if key != "hierarchies"})
    for text in ("SELECT COUNT(*) FROM t GROUP BY chapter(diag)", "SELECT COUNT(*) FROM t WHERE chapter(diag) = 'IX'"):
        with pytest.raises(QueryError, match="no level 'chapter' of 'diag', which has no hierarchy"):
            statement(text, bare)
    with pytest.raises(QueryError, match="expressions are not allowed"):  # a function of SQL
        statement("SELECT COUNT(*) FROM t GROUP BY lower(diag)", bare)


def test_a_level_that_is_not_there_is_refused_before_the_charge() -> None:
    held = vault()
    for query in (table("verse(diag)"), table("chapter(diag)", "CHAPTER(diag)")):
        with pytest.raises((DomainError, QueryError), match=r"verse|repeated"):
            ask(held, query, loss=Epsilon(1))
    assert held.reserved == []
