"""The declared releases of a frontier: every family over a grid of its privacy parameter.

They are made from codes in memory, with real mechanisms, only to be judged: nothing here is published, so
nothing is charged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from sfumato.arguments import expect_all
from sfumato.engine.arrays import ArrayTable, middle_values
from sfumato.evaluate.claims import Claim
from sfumato.evaluate.frontier import Candidate
from sfumato.evaluate.release_files import from_arrow
from sfumato.evaluate.released import AnsweredWorkload, Perturbed, Released, Rows
from sfumato.model.row_sampling import generator
from sfumato.privacy.entropy import OsEntropy
from sfumato.privacy.loss import Epsilon, EpsilonDelta, plain
from sfumato.vault.questions import Marginal

if TYPE_CHECKING:
    from sfumato.vault.simulated import SimulatedVault
    from sfumato.vault.vault import Vault


EPSILONS = (Fraction(1, 10), Fraction(1), Fraction(10))
LOCAL_EPSILONS = (Fraction(10), Fraction(60))
CLASS_SIZES = (2, 5, 25, 100)
DELTA = "1e-9"


def grid(quasi: Sequence[str]) -> tuple[Candidate, ...]:
    """Candidates of all families.

    Args:
        quasi: the quasi-identifiers that k-anonymity is about; it is also run on all columns.

    Raises:
        InputError: what is no list of names.
    """
    expect_all(quasi, str, "quasi-identifiers are a list of names")
    return (*_synthetic(), *_anonymised(tuple(quasi)), *_answered(), *_local())


def _synthetic() -> Iterator[Candidate]:
    for epsilon in EPSILONS:
        loss = EpsilonDelta(epsilon, DELTA)
        yield Candidate(f"AIM, epsilon {plain(epsilon)}", "synthetic table", Claim(loss), partial(aim, loss=loss))


def _anonymised(quasi: tuple[str, ...]) -> Iterator[Candidate]:
    for k in CLASS_SIZES:
        yield Candidate(f"Mondrian on all columns, k = {k}", "k-anonymity", Claim(class_size=k), partial(mondrian, k=k))
        if quasi:
            # k speaks of the quasi-identifiers only, so it bounds no attacker who knows other columns
            yield Candidate(
                f"Mondrian on {', '.join(quasi)}, k = {k}",
                "k-anonymity",
                Claim(),
                partial(mondrian, k=k, quasi=quasi),
            )


def _answered() -> Iterator[Candidate]:
    for epsilon in EPSILONS:
        loss = EpsilonDelta(epsilon, DELTA)
        yield Candidate(
            f"All pairs answered, epsilon {plain(epsilon)}",
            "answered queries",
            Claim(loss),
            partial(answered_pairs, loss=loss),
        )


def _local() -> Iterator[Candidate]:
    for epsilon in LOCAL_EPSILONS:
        yield Candidate(
            f"Randomised response, epsilon {plain(epsilon)}",
            "local reports",
            Claim(Epsilon(epsilon)),
            partial(randomised, epsilon=epsilon),
        )


def aim(rows: Rows, *, loss: EpsilonDelta, ways: int = 2) -> Released:
    """A synthetic table by AIM for all marginals of ``ways`` attributes."""
    from sfumato.synthesize.aim import aim as method
    from sfumato.synthesize.row_count import NoisyTotal
    from sfumato.workload.counting_queries import all_marginals

    release = method(_in_memory(rows), loss=loss, total=NoisyTotal(), workload=all_marginals(ways))
    return Released.of(Rows(rows.domain, release.model.sample(generator()).astype(np.intp)))


def mondrian(rows: Rows, *, k: int, quasi: tuple[str, ...] | None = None) -> Released:
    """Rows recoded by Mondrian on ``quasi`` (all columns without), the others kept."""
    from sfumato.anonymize import KAnonymity
    from sfumato.anonymize import mondrian as method

    names = rows.domain.names if quasi is None else quasi
    keep = tuple(name for name in rows.domain.names if name not in names)
    with TemporaryDirectory() as folder:
        vault = _on_disk(rows, Path(folder))
        release = method(vault, quasi=names, criteria=[KAnonymity(k)], keep=keep)
        return from_arrow(release.rows.table, rows.domain)


def answered_pairs(rows: Rows, *, loss: EpsilonDelta) -> AnsweredWorkload:
    """Noisy counts of all two-way marginals, and nothing else."""
    cliques = list(combinations(rows.domain.names, 2))
    measured = _in_memory(rows).mechanisms(loss).measure([Marginal(clique) for clique in cliques], loss)
    shapes = [rows.domain.project(clique).shape for clique in cliques]
    answers = [each.values.astype(np.float64).reshape(shape) for each, shape in zip(measured, shapes, strict=True)]
    return AnsweredWorkload(rows.domain, dict(zip(cliques, answers, strict=True)))


def randomised(rows: Rows, *, epsilon: Fraction) -> Perturbed:
    """One report a person and column by generalised randomised response, epsilon split evenly over the columns."""
    from sfumato.local.specs.frequency import Method, oracle

    share, entropy = epsilon / len(rows.domain), OsEntropy()
    reports, channels = rows.codes.copy(), []
    for column, size in enumerate(rows.domain.shape):
        if size == 1:
            channels.append(np.ones((1, 1)))
            continue
        _, randomizer = oracle(size, share, Method.GRR, None)
        reports[:, column] = randomizer.draw(rows.codes[:, column], entropy)
        channels.append(np.array(randomizer.rows(), dtype=np.float64))
    return Perturbed(Released.of(Rows(rows.domain, reports)), tuple(channels))


def _in_memory(rows: Rows) -> SimulatedVault:
    from sfumato.vault.simulated import SimulatedVault

    seed = int(generator().integers(1 << 62))
    table = ArrayTable(rows.domain, rows.codes.astype(np.uint32), values=middle_values(rows.domain, rows.codes))
    return SimulatedVault(table, seed=seed)


def _on_disk(rows: Rows, folder: Path) -> Vault:
    """A vault over the same codes with a journal that is thrown away; k-anonymity charges nothing."""
    from sfumato.engine.open import open_table
    from sfumato.ledger import open_ledger
    from sfumato.synthesize.product import to_arrow
    from sfumato.vault.vault import Vault

    encoded = open_table(to_arrow(rows.domain, rows.codes, generator())).encode(rows.domain)
    journal = open_ledger(f"sqlite:///{folder / 'frontier.ledger'}", dataset="frontier", limit=Epsilon(1), create=True)
    return Vault(encoded, journal)
