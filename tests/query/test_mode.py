"""The mode comes from one noisy histogram, with the noise of a count by groups."""

from __future__ import annotations

from fractions import Fraction

import duckdb
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.domain import Categorical, Domain, Integer, Unit, Unknown
from sfumato.errors import QueryError
from sfumato.privacy.loss import Epsilon
from sfumato.query import sql
from sfumato.query.plan import plan
from sfumato.query.statements.select_statement import parse

SURE = sf.Epsilon(10**6)  # so little noise that answers are exact after rounding
DOMAIN = Domain(
    (
        Integer(name="age", minimum=0, maximum=9, unknown=Unknown.CLAMP, nullable=True),
        Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP),
    ),
    unit=Unit("pid", rows=3),
)
ROWS = pa.table(
    {
        "pid": [n // 3 for n in range(600)],
        "age": [None if n % 3 == 0 else 7 if n % 4 == 0 else n * 7 % 10 for n in range(600)],
        "sex": ["F" if n % 5 else "M" for n in range(600)],
    }
)


@pytest.fixture
def vault(tmp_path):
    return sf.open(ROWS, domain=DOMAIN, ledger=f"sqlite:///{tmp_path}/p.ledger", limit=sf.Epsilon(10**9), create=True)


@pytest.mark.parametrize(
    ("mode", "rest"),
    [
        ("MODE(age)", "FROM people"),
        ("MODE() WITHIN GROUP (ORDER BY age)", "FROM people WHERE sex = 'M'"),
        ("MODE(sex)", "FROM people WHERE age < 5"),
        ("MODE(p.age)", "FROM people AS p WHERE p.age IN (1, 7)"),
        ("MODE(a)", "FROM (SELECT age AS a FROM people WHERE sex = 'F') AS t"),
    ],
)
def test_the_mode_is_that_of_duckdb_and_ignores_missing_values(vault, mode, rest):
    column = "a" if "(a)" in mode else "sex" if "sex)" in mode else "age"
    people = duckdb.from_arrow(ROWS)
    counts = people.query("people", f"SELECT {column}, COUNT({column}) AS n {rest} GROUP BY 1 ORDER BY n DESC LIMIT 2")
    (value, rows), (_, second) = counts.fetchall()
    assert rows > second  # else any of them is right
    answer = sql(vault, f"SELECT {mode} {rest}", loss=SURE)
    assert answer.labels[0].to_pylist() == [str(value)]
    assert round(answer.values[0][0].estimate) == rows


def test_the_mode_takes_the_noise_and_the_charge_of_one_histogram(vault):
    query = parse("SELECT MODE(sex) FROM people", DOMAIN)
    (noise,) = plan(query, DOMAIN).noises(Epsilon(1))
    ratio = float(noise.variance) / (2 * 3**2)  # Laplace of scale rows / epsilon
    assert ratio == pytest.approx(1, rel=0.02)  # 30 % less noise has a ratio of .49
    answer = sql(vault, "SELECT MODE(sex) FROM people", epsilon=Fraction(1, 2))
    assert vault.ledger.remaining().spent.epsilon == Fraction(1, 2)
    again = sql(vault, "SELECT sex, COUNT(*) FROM people WHERE sex IS NOT NULL GROUP BY sex", epsilon=Fraction(1, 2))
    assert vault.ledger.remaining().spent.epsilon == Fraction(1, 2)  # the same noisy table
    assert answer.values[0][0].estimate == max(value.estimate for (value,) in again.values)


@pytest.mark.parametrize(
    ("statement", "works"),
    [
        (
            "SELECT sex, MODE(age) FROM people GROUP BY sex",
            "SELECT sex, age, COUNT(*) AS n FROM people GROUP BY sex, age ORDER BY n DESC",
        ),
        (
            "SELECT MODE(age), COUNT(*) FROM people",
            "SELECT age, COUNT(*) AS n FROM people GROUP BY age ORDER BY n DESC",
        ),
    ],
)
def test_a_mode_of_groups_is_refused_with_the_counts_of_values(vault, statement, works):
    with pytest.raises(QueryError, match="MODE") as error:
        sql(vault, statement, loss=SURE)
    assert error.value.statements == (works,)
    sql(vault, works, loss=SURE)
