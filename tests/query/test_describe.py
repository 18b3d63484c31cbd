"""The words of the journal name declared cells, and are short."""

from __future__ import annotations

import pytest
from tests.query.conftest import DOMAIN

from sfumato.domain import Categorical, Domain, Unknown
from sfumato.domain.predicate import Among
from sfumato.privacy.loss import Epsilon, EpsilonDelta
from sfumato.query import ask, count, sql
from sfumato.query.aggregates import Distinct
from sfumato.query.question import Query
from sfumato.query.statements.select_statement import parse


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT COUNT(*) FROM t", "count(*)"),
        ("SELECT sex, COUNT(*) AS n, AVG(age) FROM t GROUP BY sex", "count(*), mean(age) by sex"),
        ("SELECT COUNT(*) FROM t WHERE sex = 'F'", "count(*) where sex in F"),
        ("SELECT COUNT(*) FROM t WHERE sex IS NULL", "count(*) where sex in missing"),
        ("SELECT COUNT(*) FROM t WHERE sex IS NOT NULL", "count(*) where sex not in missing"),
        ("SELECT COUNT(*) FROM t WHERE band IS NULL", "count(*) where band in missing"),
        ("SELECT COUNT(*) FROM t WHERE band IS NOT NULL", "count(*) where band in 0 to 99"),
        ("SELECT COUNT(*) FROM t WHERE band < 65", "count(*) where band in 0 to 64"),
        ("SELECT COUNT(*) FROM t WHERE age IN (3, 4, 7)", "count(*) where age in 3 to 4, 7"),
        ("SELECT COUNT(*) FROM t WHERE age <> 7", "count(*) where age not in 7"),
        ("SELECT COUNT(*) FROM t WHERE income < 100", "count(*) where income in 0.0 to below 100.0"),
        (
            "SELECT COUNT(*) FROM t WHERE age = 3 AND (sex = 'F' OR band < 18)",
            "count(*) where (age in 3 and (sex in F or band in 0 to 17))",
        ),
        ("SELECT COUNT(*) FROM t WHERE age = 3 AND age = 4", "count(*) where nothing holds"),
    ],
)
def test_a_question_is_said_by_its_declared_cells(statement, words):
    assert parse(statement, DOMAIN).describe(DOMAIN) == words


def test_words_are_short_and_printable_however_the_domain_is():
    values = tuple(f"a\nvery long name of a place, number {place}" for place in range(100))
    domain = Domain((Categorical(name="place", values=values, unknown=Unknown.DROP),))
    words = count(Among("place", frozenset(range(0, 100, 2)))).describe(domain)
    assert len(words) == 300
    assert words.isprintable()


def test_the_journal_says_what_was_asked_and_the_words_do_not_make_another_question(vault):
    sql(vault, "SELECT COUNT(*) AS a FROM t WHERE age < 40", loss=Epsilon(1))
    again = sql(vault.for_analyst("ann"), "SELECT COUNT(*) FROM t WHERE NOT age >= 40", loss=Epsilon(1))
    assert again.cost == "nothing of the dataset; your account: epsilon 1"
    assert vault.ledger.remaining("ann").spent.epsilon == 1
    free = sql(vault.for_analyst("ann"), "SELECT COUNT(*) FROM t WHERE age < 40", loss=Epsilon(1))
    assert free.cost == "nothing: asked and answered before"
    found = [(entry.kind.value, entry.asked) for entry in vault.ledger.journal()]
    words = parse("SELECT COUNT(*) FROM t WHERE age < 40", DOMAIN).describe(DOMAIN)
    assert found == [("release", words), ("repeat", words)]
    vault.ledger.verify()


def test_values_found_in_the_data_are_said_to_be(simulated):
    query = Query((Distinct(),), data_dependent_groups=("sex",))
    assert query.describe(DOMAIN) == "count(distinct unit) by sex as found in the data"
    ask(simulated, query, loss=EpsilonDelta(1, "1e-6"))
