"""Reconstruct secrets from answers to random subset queries by linear programming."""

from __future__ import annotations

import numpy as np

from sfumato.errors import SizeError
from sfumato.evaluate.attacks.interface import Ask, Reconstruction

LARGEST = 200  # people; beyond that the programme takes minutes


def linear_reconstruction(ask: Ask, *, people: int, queries: int, generator: np.random.Generator) -> Reconstruction:
    """The fractional secrets with the least total error over random subsets, rounded (Dinur and Nissim 2003).

    The L1 decoder of Dwork, McSherry and Talwar 2007: minimise sum |A x - answers| over 0 <= x <= 1.  With
    noise far below sqrt(people) an answer, it recovers nearly every secret from a few times ``people`` queries.

    Args:
        ask: the query interface, called once.
        people: number of secrets, at most 200.
        queries: number of random subsets.
        generator: draws the subsets.

    Raises:
        SizeError: more than 200 people.
    """
    if people > LARGEST:
        raise SizeError(f"linear reconstruction is for at most {LARGEST} people, not {people}", culprit=people)
    from scipy.optimize import linprog

    subsets = generator.random((queries, people)) < 1 / 2
    answers = np.asarray(ask(subsets), dtype=np.float64)
    matrix, slack = subsets.astype(np.float64), np.eye(queries)
    lower = np.zeros(people + queries)
    upper = np.concatenate([np.ones(people), np.full(queries, np.inf)])
    solved = linprog(
        np.concatenate([np.zeros(people), np.ones(queries)]),
        A_ub=np.block([[matrix, -slack], [-matrix, -slack]]),  # |A x - answers| <= slack
        b_ub=np.concatenate([answers, -answers]),
        bounds=list(zip(lower, upper, strict=True)),
        method="highs",
    )
    assert solved.x is not None  # any x between 0 and 1 is feasible, and errors are not below zero
    return Reconstruction(np.asarray(solved.x[:people] > 1 / 2))
