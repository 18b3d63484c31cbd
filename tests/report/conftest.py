from __future__ import annotations

import numpy as np
import pytest

from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.evaluate.frontier import Candidate, Frontier, frontier
from sfumato.evaluate.population_split import split_population
from sfumato.evaluate.released import Claim, Released, Rows
from sfumato.privacy.loss import Epsilon

DOMAIN = Domain(
    (
        Integer(name="age", minimum=0, maximum=79, unknown=Unknown.CLAMP),
        Categorical(name="</script><b>town", values=("Ulm", "Bern", "Oslo"), unknown=Unknown.DROP),
        Categorical(name="rich", values=("no", "yes"), unknown=Unknown.DROP),
    )
)


@pytest.fixture(scope="session")
def breaking_domain() -> Domain:
    """The domain of ``judged``."""
    return DOMAIN


@pytest.fixture(scope="session")
def judged() -> Frontier:
    """Two releases and the baselines, over a domain whose names try to break out of the page."""
    luck = np.random.default_rng(0)
    age = luck.integers(0, 80, 900)
    rows = Rows(DOMAIN, np.column_stack([age, luck.integers(0, 3, 900), age + luck.integers(0, 60, 900) > 70]))
    people = split_population(rows.take(np.arange(300)), rows.take(np.arange(300, 900)), seed=1)
    candidates = [
        Candidate("half, epsilon 3", "sample", Claim(Epsilon(3)), lambda rows: Released.raw(rows.take(np.arange(150)))),
        Candidate("<i>quarter", "sample", Claim(), lambda rows: Released.raw(rows.take(np.arange(75)))),
    ]
    return frontier(candidates, people, target="rich", seed=0)
