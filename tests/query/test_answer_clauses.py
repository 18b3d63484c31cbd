"""HAVING, ORDER BY, LIMIT, names and places of one table, against DuckDB at a very large epsilon."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.errors import QueryError
from sfumato.privacy.loss import Epsilon, EpsilonDelta

HUGE = Epsilon(10**5)
DOMAIN = Domain(
    (
        Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP, nullable=True),
        Integer(name="age", minimum=0, maximum=9, unknown=Unknown.CLAMP),
        Integer(name="income", minimum=0, maximum=100, unknown=Unknown.CLAMP, nullable=True),
        Categorical(name="member", values=(True, False), unknown=Unknown.DROP),
    )
)
PEOPLE = pa.table(
    {
        "sex": [None if n % 11 == 0 else "FMM"[n % 3] for n in range(300)],
        "age": [n * n % 8 for n in range(300)],  # no row has all ages, so groups are empty
        "income": [None if n % 8 == 0 else n % 97 for n in range(300)],
        "member": [n % 3 == 0 for n in range(300)],
        "city": [f"city {n % 2}" for n in range(300)],
    }
)
BY_SEX = "SELECT sex, COUNT(*) AS n, SUM(income) FROM t GROUP BY sex"
BY_AGE = "SELECT age, COUNT(*) AS n, AVG(income) AS pay FROM t GROUP BY age"
STATEMENTS = [
    "SELECT COUNT(*) AS n FROM t LIMIT 1",
    "SELECT COUNT(*) FROM t ORDER BY 1",
    "SELECT COUNT(*) FROM t HAVING COUNT(*) > 1",
    "SELECT COUNT(*) FROM t HAVING COUNT(*) > 1000",
    "SELECT sex, age, COUNT(*) FROM t GROUP BY 1, 2 HAVING COUNT(*) > 0 ORDER BY 1, 2",
    "SELECT age, sex, COUNT(*) FROM t GROUP BY 2, 1 HAVING COUNT(*) > 0 ORDER BY 2, 1",
    "SELECT sex AS s, COUNT(*) FROM t GROUP BY s ORDER BY s",
    "SELECT sex AS s, COUNT(*) FROM t GROUP BY sex ORDER BY s DESC",
    "SELECT sex AS age, COUNT(*) FROM t GROUP BY sex ORDER BY age",
    f"{BY_SEX} ORDER BY n",
    f"{BY_SEX} ORDER BY 2 DESC",
    f"{BY_SEX} ORDER BY COUNT(*) DESC, sex",
    f"{BY_SEX} ORDER BY SUM(income) LIMIT 2",
    f"{BY_SEX} ORDER BY sum(INCOME) DESC LIMIT 1",
    f"{BY_SEX} ORDER BY sex DESC NULLS FIRST",
    f"{BY_SEX} ORDER BY sex NULLS FIRST FETCH FIRST 2 ROWS ONLY",
    f"{BY_SEX} HAVING n > 50 ORDER BY sex",
    f"{BY_SEX} HAVING 50 < COUNT(*) ORDER BY sex",
    f"{BY_SEX} HAVING sex = 'F'",
    f"{BY_SEX} HAVING 'F' = sex",
    f"{BY_SEX} HAVING sex <> 'F'",
    f"{BY_SEX} HAVING NOT sex = 'F'",
    f"{BY_SEX} HAVING sex IN ('F', 'M') AND n > 0 ORDER BY n",
    f"{BY_SEX} HAVING sex IS NULL",
    f"{BY_SEX} HAVING sex IS NOT NULL ORDER BY sex",
    f"{BY_SEX} HAVING NOT (sex = 'F' OR COUNT(*) < 100)",
    f"{BY_SEX} HAVING SUM(income) > COUNT(*) AND (n BETWEEN 20 AND 400) ORDER BY n",
    f"{BY_SEX} HAVING n NOT IN (1, 2, 3) ORDER BY sex",
    f"{BY_SEX} ORDER BY -COUNT(*)",
    f"{BY_SEX} HAVING n + 1 > 51 AND SUM(income) / COUNT(*) < 49 ORDER BY SUM(income) / n DESC",
    f"{BY_SEX} HAVING COUNT(*) * 2 > COALESCE(SUM(income), 0) / 100 ORDER BY ABS(n - 150)",
    f"{BY_AGE} HAVING pay > 1 ORDER BY age",
    f"{BY_AGE} HAVING AVG(income) > 1 ORDER BY pay DESC, age",
    f"{BY_AGE} HAVING NOT AVG(income) > 50 ORDER BY age",
    f"{BY_AGE} HAVING NOT (pay > 50 AND n > 30) AND n > 0 ORDER BY age",
    f"{BY_AGE} HAVING pay IS NOT NULL ORDER BY age",
    f"{BY_AGE} HAVING age BETWEEN 1 AND 4 AND n > 0 ORDER BY age DESC",
    f"{BY_AGE} HAVING (age < 2 OR age >= 4) AND n > 0 ORDER BY 1",
    f"{BY_AGE} HAVING 4 >= age AND n > 0 ORDER BY 1",
    "SELECT member, COUNT(*) AS n FROM t GROUP BY member HAVING member",
    "SELECT member, COUNT(*) AS n FROM t GROUP BY member HAVING NOT member OR n > 99 ORDER BY n",
    "SELECT member, COUNT(*) AS n FROM t GROUP BY member HAVING member = 1",
    "SELECT member, COUNT(*) AS n FROM t GROUP BY member HAVING member IS NOT TRUE",
    f"{BY_SEX} HAVING (SUM(income) > 5000) IS NOT TRUE ORDER BY n",
    f"{BY_SEX} HAVING AVG(age) > 3 ORDER BY n",
    f"{BY_SEX} HAVING SUM(age) + n > 500 ORDER BY -SUM(age)",
    "SELECT age, COUNT(income) AS n FROM t GROUP BY age HAVING COUNT(*) > 30 ORDER BY SUM(income) DESC, age",
    "SELECT COUNT(*) AS n, sex FROM t GROUP BY sex HAVING n > 3 ORDER BY 1 LIMIT 2",
    "SELECT age, MEDIAN(income) AS middle FROM t GROUP BY age HAVING middle >= 0 ORDER BY age",
    "SELECT age, VAR_POP(income) AS spread FROM t GROUP BY age HAVING spread >= 0 ORDER BY age",
    "SELECT age, MAX(income) AS most FROM t GROUP BY age HAVING most >= 0 ORDER BY age",
]


@pytest.fixture
def vault(tmp_path: Path):
    ledger = f"sqlite:///{tmp_path / 'a.ledger'}"
    return sf.open(PEOPLE, domain=DOMAIN, ledger=ledger, limit=Epsilon(10**6), create=True)


def ours(answer: sf.query.Answer) -> list[tuple[str, ...]]:
    return [
        (*key, *(f"{value.estimate:.0f}" for value in values))
        for key, values in zip(answer.keys, answer.values, strict=True)
    ]


def theirs(text: str, answer: sf.query.Answer) -> list[tuple[str, ...]]:
    t = PEOPLE  # noqa: F841  (DuckDB finds it by its name)
    found = duckdb.sql(text)
    own = [name for name in found.columns if name in answer.groups]
    places = [*(found.columns.index(name) for name in answer.groups if name in own)]
    places += [place for place in range(len(found.columns)) if place not in places]
    rows = [tuple(row[place] for place in places) for row in found.fetchall()]
    groups = len(answer.groups)
    return [
        (*("(missing)" if label is None else str(label) for label in row[:groups]), *(f"{x:.0f}" for x in row[groups:]))
        for row in rows
    ]


@pytest.fixture(scope="module")
def open_vault(tmp_path_factory: pytest.TempPathFactory):
    place = tmp_path_factory.mktemp("ledger") / "a.ledger"
    return sf.open(PEOPLE, domain=DOMAIN, ledger=f"sqlite:///{place}", limit=Epsilon(10**8), create=True)


@pytest.mark.parametrize("text", STATEMENTS, ids=range(len(STATEMENTS)))
def test_the_groups_are_those_of_duckdb_in_its_order(open_vault, text: str) -> None:
    answer = sf.query.sql(open_vault, text, loss=HUGE)
    if "MEDIAN" in text or "VAR_POP" in text or "MAX" in text:  # derived from bins: only the groups are compared
        assert [row[:1] for row in ours(answer)] == [row[:1] for row in theirs(text, answer)]
    else:
        assert ours(answer) == theirs(text, answer)


def test_what_is_done_after_the_noise_is_the_same_release_and_is_stated(vault) -> None:
    plain = sf.query.sql(vault, BY_SEX, loss=Epsilon(1))
    more = "HAVING n > -1000 OR sex = 'F' ORDER BY 2 DESC LIMIT 2"
    chosen = sf.query.sql(vault, f"{BY_SEX} {more}", loss=Epsilon(1))
    top = sf.query.sql(
        vault, "SELECT TOP 2 sex AS s, COUNT(*) AS n, SUM(income) FROM t GROUP BY 1 ORDER BY n DESC", loss=Epsilon(1)
    )
    assert vault.remaining.spent.epsilon == 1
    assert chosen.provenance == plain.provenance
    largest = sorted(plain.values, key=lambda row: -row[0].estimate)[:2]
    assert list(chosen.values) == list(top.values) == largest
    assert (chosen.groups, top.groups) == (("sex",), ("s",))
    assert top.to_json()["groups"] == ["s"]
    note = f"after the noise, groups were chosen and ordered by their noisy answers: {more}"
    assert chosen.notes[-1] == f"{note}; the intervals of chosen groups hold less often"
    assert chosen.notes[:-1] == plain.notes


def test_an_aggregate_that_is_not_selected_is_charged_as_if_it_were_and_not_shown(vault) -> None:
    chosen = sf.query.sql(vault, f"{BY_SEX} HAVING AVG(age) > 0", loss=Epsilon(1))
    selected = sf.query.sql(
        vault, "SELECT sex, COUNT(*) AS n, SUM(income), AVG(age) FROM t GROUP BY sex", loss=Epsilon(1)
    )
    assert vault.remaining.spent.epsilon == 1
    assert chosen.provenance == selected.provenance
    assert chosen.columns == ("n", "sum(income)")
    passed = [row[:2] for row in selected.values if row[2] is not None and row[2] > 0]  # noise may empty a group
    assert passed == list(chosen.values)
    assert any("for HAVING or ORDER BY mean(age) took a part of the loss" in note for note in chosen.notes)


def test_values_found_in_the_data_are_ordered_and_cut(tmp_path: Path) -> None:
    loss, limit = EpsilonDelta(10, "1e-9"), EpsilonDelta(1000, "1e-6")
    vault = sf.open(PEOPLE, domain=DOMAIN, ledger=f"sqlite:///{tmp_path / 'a.ledger'}", limit=limit, create=True)
    text = "SELECT city AS place, COUNT(*) AS n FROM t GROUP BY 1"
    found = sf.query.sql(vault, f"{text} HAVING n > 1 ORDER BY place DESC", loss=loss, groupable_undeclared=["city"])
    assert (found.groups, found.keys) == (("place",), (("city 1",), ("city 0",)))
    first = sf.query.sql(vault, f"{text} ORDER BY 1 LIMIT 1", loss=loss, groupable_undeclared=["city"])
    assert first.keys == (("city 0",),)
    second = sf.query.sql(vault, f"{text} HAVING city = 'city 1'", loss=loss, groupable_undeclared=["city"])
    assert second.keys == (("city 1",),)


def test_values_found_in_the_data_that_look_like_huge_numbers_are_texts(tmp_path: Path) -> None:
    """One row decides what a label is, so no label may end a query or fill the memory."""
    labels = ["1/0", "1e999999999", "7", "x"]
    cities = pa.table({"city": labels * 300, "sex": ["F", "M"] * 600})
    domain = Domain((DOMAIN["sex"],))
    loss, limit = EpsilonDelta(10, "1e-9"), EpsilonDelta(1000, "1e-6")
    vault = sf.open(cities, domain=domain, ledger=f"sqlite:///{tmp_path / 'a.ledger'}", limit=limit, create=True)
    text = "SELECT city, COUNT(*) AS n FROM t GROUP BY city HAVING city > 3"
    assert sf.query.sql(vault, text, loss=loss, groupable_undeclared=["city"]).keys == (("7",),)


REFUSED = [
    (f"{BY_SEX} HAVING age > 3", "compares what is selected or grouped by"),
    (f"{BY_SEX} HAVING nobody > 3", "no attribute 'nobody'"),
    (f"{BY_SEX} HAVING n LIKE 'x'", "HAVING compares what is selected"),
    (f"{BY_SEX} ORDER BY age", "ORDER BY names what is selected, or what is grouped by"),
    (f"{BY_SEX} LIMIT 1.5", "LIMIT takes a whole number"),
    (f"{BY_SEX} LIMIT 10%", "LIMIT takes a whole number"),
]


@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_a_refusal_names_a_statement_that_works(vault, text: str, reason: str) -> None:
    with pytest.raises(QueryError, match=reason) as refused:
        sf.query.sql(vault, text, loss=Epsilon(1))
    suggested = re.search(r"; ask (SELECT .*)", str(refused.value))
    assert suggested is not None
    assert sf.query.sql(vault, suggested[1], loss=Epsilon(1)).columns[:2] == ("n", "sum(income)")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT sex, COUNT(*) FROM t GROUP BY 3", "line 1, column 38: 2 columns are selected"),
        ("SELECT sex, COUNT(*) FROM t GROUP BY 2", "GROUP BY 2 is an answer"),
        ("SELECT sex, COUNT(*) FROM t GROUP BY sex ORDER BY 0", "2 columns are selected"),
        ("SELECT TOP 3 sex, COUNT(*) FROM t GROUP BY sex LIMIT 2", "TOP or LIMIT, and not both"),
        ("SELECT sex AS n, COUNT(*) AS n FROM t GROUP BY sex", "two columns have the same name"),
        ("SELECT sex, COUNT(*) FROM t GROUP BY sex HAVING sex = 'Q'", "'F', 'M'"),
    ],
)
def test_a_clause_that_means_nothing_is_refused(vault, text: str, reason: str) -> None:
    with pytest.raises(QueryError, match=reason):
        sf.query.sql(vault, text, loss=Epsilon(1))
    assert not vault.remaining.spent.epsilon
