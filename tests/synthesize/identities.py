"""Syntheses of every kind, and how to catch what the journal would call them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from sfumato.domain import Categorical, Domain, Integer, Real, Unknown
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.synthesize import (
    BudgetShare,
    NoisyTotal,
    PublicTotal,
    Schedule,
    aim,
    all_marginals,
    all_ranges,
    auto,
    batched,
    histogram,
    marginals,
    matrix,
    mst,
    mwem,
    prefixes,
    ranges,
    rectangles,
)
from sfumato.synthesize.binning import private_edges
from sfumato.synthesize.marginal_selection import SizeLimits
from sfumato.synthesize.methods.mwem import Output
from sfumato.synthesize.structural_zeros import Zeros
from sfumato.vault.release import loss_json
from sfumato.workload.counting_queries import Explicit, Marginals

DOMAIN = Domain(
    (
        Categorical(name="sex", values=("F", "M"), unknown=Unknown.CATEGORY, nullable=True),
        Integer(name="age", minimum=0, maximum=9, unknown=Unknown.CLAMP),
        Integer(name="band", minimum=0, maximum=99, edges=(0, 18, 65), unknown=Unknown.CLAMP),
        Real(name="income", edges=(0.0, 100.0, 1000.0, 5000.0), unknown=Unknown.CATEGORY),
    )
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
        if parameters.get("strategy") == "p-identity":  # found by a search, whose last bits differ between machines
            parameters["measured"] = None
        digest = hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()
        raise CaughtError(f"{request.family} {request.method} {digest}")


def identity(asking: Callable[[Catcher], object]) -> str:
    """Family, method and a digest of everything that names a synthesis, except the data."""
    try:
        asking(Catcher())
    except CaughtError as caught:
        return str(caught)
    raise AssertionError("nothing was asked")


ONE, RHO, BOTH = Epsilon(1), Rho("0.5"), EpsilonDelta(1, "1e-9")
SOME = Marginals(cliques=(("age", "sex"), ("band",)))
RECTANGLES = rectangles(["sex", "band"], [[0, 0], [1, 1]], [[1, 2], [3, 1]])
ZEROS = (Zeros(("sex", "band"), np.eye(4, 3, dtype=bool)),)
TOTALS = {"summed": NoisyTotal(), "charged": BudgetShare(Fraction(1, 20)), "public": PublicTotal(500)}


def identities() -> dict[str, str]:
    """Return the identity of every synthesis."""
    found: dict[str, str] = {}

    def note(name: str, asking: Callable[[Any], object]) -> None:
        found[name] = identity(asking)

    for name, total in TOTALS.items():
        note(f"histogram, {name}", lambda vault, t=total: histogram(vault, loss=ONE, total=t))
        note(
            f"matrix, {name}", lambda vault, t=total: matrix(vault, loss=ONE, total=t, workload=prefixes(DOMAIN, "age"))
        )
        note(f"mst, {name}", lambda vault, t=total: mst(vault, loss=RHO, total=t))
        note(f"batched, {name}", lambda vault, t=total: batched(vault, loss=BOTH, total=t, workload=all_marginals(2)))
    note("histogram of some", lambda vault: histogram(vault, loss=RHO, total=NoisyTotal(), attributes=["band", "sex"]))
    note("marginals", lambda vault: marginals(vault, loss=ONE, total=NoisyTotal(), cliques=[["age"], ["sex", "band"]]))
    note(
        "matrix of ranges",
        lambda vault: matrix(vault, loss=RHO, total=NoisyTotal(), workload=all_ranges(DOMAIN, "age")),
    )
    note("matrix of boxes", lambda vault: matrix(vault, loss=ONE, total=NoisyTotal(), workload=RECTANGLES))
    note("matrix of marginals", lambda vault: matrix(vault, loss=ONE, total=NoisyTotal(), workload=SOME))
    note(
        "matrix of rows",
        lambda vault: matrix(
            vault, loss=ONE, total=NoisyTotal(), workload=Explicit(("age",), np.tri(10, dtype=bool)[::2])
        ),
    )
    for output in Output:
        schedule = Schedule(rounds=3, repetitions=2, output=output)
        note(
            f"mwem, {output.value}",
            lambda vault, s=schedule: mwem(
                vault, loss=ONE, total=PublicTotal(500), workload=ranges("age", [(0, 1), (2, 5), (3, 9)]), schedule=s
            ),
        )
    note(
        "mst with zeros",
        lambda vault: mst(vault, loss=RHO, total=NoisyTotal(), limits=SizeLimits(cells=900), zeros=ZEROS),
    )
    note("batched of some", lambda vault: batched(vault, loss=RHO, total=NoisyTotal(), workload=SOME, zeros=ZEROS))
    note("aim", lambda vault: aim(vault, loss=ONE, total=PublicTotal(9), workload=all_marginals(3)))
    note("auto of ranges", lambda vault: auto(vault, loss=ONE, total=NoisyTotal(), workload=all_ranges(DOMAIN, "age")))
    note("auto of pairs", lambda vault: auto(vault, loss=ONE, total=NoisyTotal(), workload=all_marginals(2)))
    note("auto of some", lambda vault: auto(vault, loss=ONE, total=PublicTotal(9), workload=SOME))
    note("private edges", lambda vault: private_edges(vault, "income", loss=ONE, bins=4))
    return found
