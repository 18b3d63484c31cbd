"""Drawn statements over views of one table: what one person moves, and what a repeated question costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from tests.query.declared_tables import ONE_TABLE, data
from tests.query.statement_grammar import statement

import sfumato as sf
from sfumato.domain import parse as parse_domain
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.engine.views.joined import TableViews
from sfumato.errors import QueryError, SfumatoError
from sfumato.query.plan import plan
from sfumato.query.statements.select_statement import parse
from sfumato.query.statements.table_statement import parse_with_view

STATEMENTS = 40
PEOPLE = (1, 3, 33)  # of whom each has more rows than the bound


def asked(domain: Any) -> list[tuple[str, Any, Any, Any]]:
    """Return drawn statements with their views, domains and questions."""
    found = []
    for seed in range(STATEMENTS):
        text = statement(seed, linked=False).text
        try:
            try:
                query, view = parse(text, domain), None
            except QueryError as error:
                query, view = parse_with_view(text, domain, error)
            of = domain if view is None else view.domain
            found.append((text, view, of, plan(query, of, view).questions))
        except SfumatoError:  # no group, or a group that stands twice
            continue
    return found


@pytest.mark.parametrize("bound", [1, 2])
def test_a_person_moves_no_answer_of_a_view_further_than_is_claimed(bound: int) -> None:
    domain = parse_domain(ONE_TABLE | {"unit": {"id": "person", "rows": bound}})
    statements, rows = asked(domain), data()["trips"]
    assert len([view for _, view, _, _ in statements if view is not None]) >= STATEMENTS // 2

    def answers(table: Any) -> list[list[np.ndarray]]:
        encoded, views = open_table(table).encode(domain), TableViews()
        whole = [encoded if view is None else views.encoded(encoded, view, None) for _, view, _, _ in statements]
        return [
            [np.asarray(each.finish(of, reveal(each.table().count(those)))) for each in questions]
            for those, (_, _, of, questions) in zip(whole, statements, strict=True)
        ]

    before, tight = answers(rows), 0
    for person in PEOPLE:
        after = answers(rows.filter(pc.not_equal(rows["person"], person)))
        for (text, _, of, questions), ones, others in zip(statements, before, after, strict=True):
            for question, one, other in zip(questions, ones, others, strict=True):
                change = np.abs(one.astype(object) - other.astype(object)).ravel()
                l1, l2 = question.sensitivity(of)
                assert change.sum() <= l1, (person, text)
                assert (change * change).sum() <= l2, (person, text)
                tight += change.sum() == l1
    assert tight >= 5


def test_a_drawn_statement_asked_twice_is_free_and_the_same(tmp_path: Any) -> None:
    ledger, limit = f"sqlite:///{tmp_path}/drawn.ledger", sf.Epsilon(10**6)
    vault = sf.open(data()["trips"], domain=parse_domain(ONE_TABLE), ledger=ledger, limit=limit, create=True)
    for text, *_ in asked(vault.domain):
        first, spent = sf.query.sql(vault, text, epsilon=1), vault.remaining.spent
        again = sf.query.sql(vault, text, epsilon=1)
        assert (again.keys, again.values) == (first.keys, first.values)
        assert vault.remaining.spent == spent
