"""Questions of every kind, and how to catch what the journal would call them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from sfumato.domain import Categorical, Domain, Integer, Real, Unit, Unknown
from sfumato.domain.predicate import All, Among, Not
from sfumato.domain.predicate import Any as Either
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.query import all_ranges, answer_batch, ask, cells_of, choose_quantile, prefixes, ranges, rectangles, sql
from sfumato.query.aggregates import Average, Count, Distinct, Extreme, Quantile, Total, Variance
from sfumato.query.question import Query
from sfumato.vault.release import loss_json

DOMAIN = Domain(
    (
        Categorical(name="sex", values=("F", "M"), unknown=Unknown.CATEGORY, nullable=True),
        Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP),
        Integer(name="band", minimum=0, maximum=99, edges=(0, 18, 65), unknown=Unknown.CLAMP, nullable=True),
        Real(name="income", edges=(0.0, 100.0, 1000.0, 5000.0), unknown=Unknown.CATEGORY, nullable=True),
        Categorical(name="member", values=(True, False), unknown=Unknown.CATEGORY),
    ),
    unit=Unit("id", rows=3),
)


class CaughtError(Exception):
    """The recorded request."""


class Catcher:
    """A vault that answers nothing and says what the journal would call the question."""

    domain = DOMAIN
    limit = None
    view = None

    def refuse_keys(self, columns: tuple[str, ...]) -> None:
        """Accept every column."""

    def release(self, request: Any, loss: Any, run: Any, *, charge: Any = None, retry_key: str | None = None) -> Any:  # noqa: ARG002
        parameters = {**request.parameters, "loss": loss_json(loss)}
        digest = hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()
        raise CaughtError(f"{request.family} {request.method} {digest}")


def identity(asking: Callable[[Catcher], object]) -> str:
    """Family, method and a digest of everything that names a question, except the data."""
    try:
        asking(Catcher())
    except CaughtError as caught:
        return str(caught)
    raise AssertionError("nothing was asked")


ADULTS = Among("age", frozenset(range(18, 100)))
WOMEN = Among("sex", frozenset({0}))

QUERIES: dict[str, Query] = {
    "count": Query((Count(),)),
    "count of a column": Query((Count("income"),)),
    "count where": Query((Count(),), where=ADULTS),
    "count by": Query((Count(),), by=("sex", "member")),
    "count, nested condition": Query((Count(),), where=All((Not(WOMEN), Either((ADULTS, Not(WOMEN)))))),
    "distinct": Query((Distinct(),), by=("sex",), where=WOMEN),
    "sum of integers": Query((Total("age"),)),
    "sum of reals by": Query((Total("income"),), by=("band",)),
    "mean": Query((Average("age"),), by=("sex",)),
    "mean of reals": Query((Average("income"),), where=ADULTS),
    "variance": Query((Variance("income"),)),
    "deviation": Query((Variance("age", root=True),)),
    "median": Query((Quantile("income", Fraction(1, 2)),)),
    "quantile by": Query((Quantile("age", Fraction(1, 10)),), by=("sex",)),
    "minimum and maximum": Query((Extreme("age", largest=False), Extreme("age", largest=True))),
    "several": Query((Average("age"), Count(), Total("income"), Quantile("age", Fraction(9, 10)), Count("sex"))),
    "names are no part": Query((Average("age"), Count()), names=("a", "b")),
}

STATEMENTS = (
    "SELECT COUNT(*) FROM t WHERE age >= 18 AND sex = 'F'",
    "SELECT sex, AVG(income), COUNT(DISTINCT id) FROM t WHERE NOT (age < 18 OR member) GROUP BY sex",
    "SELECT MEDIAN(age), QUANTILE(age, 0.25), MIN(age), STDDEV_POP(income) FROM t WHERE income IS NOT NULL",
    "SELECT COUNT(*) FROM t WHERE age BETWEEN 20 AND 29 AND sex IN ('F', 'M')",
)

LOSSES = {"epsilon": Epsilon("0.1"), "rho": Rho("0.05"), "delta": EpsilonDelta(1, "1e-6")}


def batches() -> dict[str, Any]:
    """Batches over one attribute and over two."""
    return {
        "all ranges of sex": all_ranges(DOMAIN, "sex"),
        "prefixes of age": prefixes(DOMAIN, "age"),
        "ranges of band": ranges("band", [(0, 1), (1, 2), (2, 2)]),
        "rectangles": rectangles(("sex", "band"), [[0, 0], [1, 1]], [[1, 2], [2, 1]]),
        "marginals": cells_of([("sex",), ("sex", "band")]),
    }


def identities() -> dict[str, str]:
    """Return the identity of every question."""
    found: dict[str, str] = {}
    for name, query in QUERIES.items():
        for measure, loss in LOSSES.items():
            found[f"{name}, {measure}"] = identity(lambda vault, q=query, at=loss: ask(vault, q, loss=at))
    for statement in STATEMENTS:
        found[statement] = identity(lambda vault, text=statement: sql(vault, text, loss=Epsilon(1)))
    towns = Query((Distinct(),), data_dependent_groups=("town", "street"))
    found["discovered"] = identity(lambda vault: ask(vault, towns, loss=LOSSES["delta"]))
    for name, batch in batches().items():
        found[f"batch: {name}"] = identity(lambda vault, of=batch: answer_batch(vault, of, loss=Epsilon(1)))
        found[f"batch: {name}, rho"] = identity(lambda vault, of=batch: answer_batch(vault, of, loss=Rho(1)))
    for of in ("age", "income", "band"):
        quantile = Quantile(of, Fraction(3, 4))
        found[f"chosen quantile of {of}"] = identity(
            lambda vault, asked=quantile: choose_quantile(vault, asked, loss=Epsilon(1), where=WOMEN)
        )
    return found
