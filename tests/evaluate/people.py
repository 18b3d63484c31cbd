"""A population with structure, for evaluations in tests: columns that depend on one another."""

from __future__ import annotations

import numpy as np

from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.evaluate.released import Rows

DOMAIN = Domain(
    (
        Integer(name="age", minimum=0, maximum=59, unknown=Unknown.CLAMP),
        Categorical(name="town", values=tuple(f"town {n}" for n in range(12)), unknown=Unknown.CATEGORY),
        Categorical(name="job", values=tuple(f"job {n}" for n in range(9)), unknown=Unknown.DROP),
        Integer(name="hours", minimum=0, maximum=49, unknown=Unknown.CLAMP),
        Categorical(name="rich", values=("no", "yes"), unknown=Unknown.DROP),
        Integer(name="rooms", minimum=1, maximum=8, unknown=Unknown.CLAMP),
    )
)


def population(count: int, seed: int) -> Rows:
    luck = np.random.default_rng(seed)
    age = luck.integers(0, 60, count)
    town = luck.choice(12, count, p=np.arange(1, 13) / 78)
    job = (town + luck.integers(0, 4, count) + age // 20) % 9
    hours = np.clip(luck.normal(10 + 4 * job, 6, count), 0, 49).astype(int)
    rich = (hours + age + luck.normal(0, 12, count) > 60).astype(int)
    rooms = np.clip(rich * 3 + luck.integers(0, 5, count), 0, 7)
    return Rows(DOMAIN, np.column_stack([age, town, job, hours, rich, rooms]))
