"""The utility-risk frontier: releases of every family over a grid of privacy parameters, on common scales.

The releases are made in memory with real mechanisms, only to be judged. None is published, so none is charged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.arguments import expect, expect_all
from sfumato.engine.arrays import ArrayTable, middle_values
from sfumato.errors import InputError, SfumatoError
from sfumato.evaluate.evaluation_result import ClaimedRelease, EvaluationResult, judge
from sfumato.evaluate.intervals import Advantage
from sfumato.evaluate.population_split import (
    PopulationSplit,
    Progress,
    independent,
    no_progress,
    refuse_wrong_release,
    refuse_wrong_split,
)
from sfumato.evaluate.release_files import from_arrow
from sfumato.evaluate.released import AnsweredWorkload, Claim, MarginalSource, Perturbed, Released, Rows
from sfumato.model.row_sampling import generator
from sfumato.privacy.entropy import OsEntropy
from sfumato.privacy.loss import Epsilon, EpsilonDelta, plain
from sfumato.vault.measurables import Marginal

if TYPE_CHECKING:
    from sfumato.domain import Unit
    from sfumato.vault.simulated import SimulatedVault
    from sfumato.vault.vault import Vault

VERSION = 5
"""Version of the stored results. Raise it when their meaning changes."""

_SHOWN_DIGITS = 3
"""Decimals of a distance from the table that others than the data owner may see."""

BASELINES = "baseline"
FLOOR, CEILING, RAW = "independent columns", "other people", "raw table"
_MOST_PANELS = 4  # largest number of releases in pictures with one panel per release


@dataclass(frozen=True)
class Candidate:
    """A release to be made and judged: its name, family and claim, and a function that makes it from the members."""

    name: str
    family: str
    claim: Claim
    make: Callable[[Rows], MarginalSource]

    def __post_init__(self) -> None:
        _ = ClaimedRelease(self.name, self.family, self.claim)
        if not callable(self.make):
            raise InputError("a candidate is made by a function of the members", culprit=self.make)


@dataclass(frozen=True)
class Frontier:
    """Results in the order of the candidates, the baselines first; ``failed`` has the reason for each release not
    made.
    """

    results: tuple[EvaluationResult, ...]
    failed: tuple[tuple[str, str], ...]


def baselines(split: PopulationSplit, *, seed: int) -> tuple[Candidate, ...]:
    """Return the baselines: the table itself, other people if there is a holdout, and independent columns."""
    others = (Candidate(CEILING, BASELINES, Claim(), lambda _: Released.raw(split.others)),)
    return (
        Candidate(RAW, BASELINES, Claim(), Released.raw),
        *(others if split.has_holdout else ()),
        Candidate(FLOOR, BASELINES, Claim(), lambda rows: Released.raw(independent(rows, generator(seed)))),
    )


def frontier(
    candidates: Sequence[Candidate],
    split: PopulationSplit,
    *,
    target: str,
    seed: int,
    cache: str | Path | None = None,
    watch: Progress = no_progress,
) -> Frontier:
    """Make and judge the baselines and every candidate.

    A candidate that cannot be made (infeasible, too large) is skipped, and its reason is reported.

    Args:
        candidates: releases to make; names are distinct.
        split: the people.
        target: the attribute that learners predict.
        seed: all candidates face the same attacked people and the same queries.
        cache: folder of stored results, as secret as the table. An interrupted run continues from it.
        watch: receives ``[1/5] name`` before each candidate, and the name of each step.

    Raises:
        InputError: two candidates have the same name, an argument has the wrong type, or the folder is not writable.
    """
    refuse_wrong_split(split, target=target, seed=seed)
    expect_all(candidates, Candidate, "candidates are a list of Candidate, such as grid returns")
    folder = None if cache is None else _opened(cache)
    everyone = (*baselines(split, seed=seed), *candidates)
    if len({candidate.name for candidate in everyone}) != len(everyone):
        raise InputError("two candidates of a frontier have the same name", culprit=tuple(c.name for c in everyone))
    people = _fingerprint(split)
    results, failed = [], []
    for number, candidate in enumerate(everyone, start=1):
        watch(f"[{number}/{len(everyone)}] {candidate.name}")
        key = json.dumps([VERSION, people, candidate.name, candidate.family, str(candidate.claim), target, seed])
        path = None if folder is None else folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
        result = None if path is None else _stored_result(path)
        if result is None:
            try:
                release = candidate.make(split.members)
                refuse_wrong_release(release, split.domain)
            except SfumatoError as error:
                failed.append((candidate.name, str(error)))
                continue
            entry = ClaimedRelease(candidate.name, candidate.family, candidate.claim)
            step = partial(_watch_step, watch)
            result = judge(release, split, entry=entry, target=target, seed=seed, watch=step)
            if path is not None:
                _store_result(path, result)
        results.append(result)
    return Frontier(tuple(results), tuple(failed))


def _watch_step(watch: Progress, step: str) -> None:
    watch(f"      {step}")


def without_exact_shares(result: EvaluationResult) -> EvaluationResult:
    """Return the result without shares of real people, for readers who may see scores but not the table.

    Distances from the table are rounded. With all digits, a released share and its distance reveal the exact share.
    """
    exact = result.family == BASELINES
    one, two, three = _rounded(result.marginals)
    return replace(
        result,
        real_columns={},
        columns={} if exact else result.columns,
        marginals=(one, two, three),
        pair_distance=tuple(map(_rounded, result.pair_distance)),
        association_difference=tuple(map(_rounded, result.association_difference)),
        association_gap=_rounded_gap(result.association_gap),
        correlation_gap=None if result.correlation_gap is None else _rounded_gap(result.correlation_gap),
        point_gap=None if result.point_gap is None else _rounded_gap(result.point_gap),
    )


def judged_by_rows(unit: Unit) -> str:
    """Return a warning for tables whose unit has several rows: scores, classes and attacks count rows."""
    return (
        f"Scores, classes and attacks count rows, and one {unit.column} has up to {unit.rows} of them: a class of k "
        "rows may be of fewer people, and an attack on all rows of one person may succeed more often."
    )


def result_json(result: EvaluationResult) -> dict[str, Any]:
    """Return the public part of a result as JSON values: no exact shares, and no numbers of people."""
    public = without_exact_shares(result)
    attacks = [_attack_json(each) for each in public.attacks]
    return {
        **public.to_json(),
        "pairs_95_percent": public.most_pairs,
        "worst_pair": public.worst_pair,
        "samples": public.sampled,
        "attacks": attacks,
        "headline": None if public.headline is None else _attack_json(public.headline),
    }


def _attack_json(result: Advantage) -> dict[str, str | float | None]:
    return {
        "attack": result.attack,
        "knowledge": result.knowledge,
        "members": result.members.value,
        "controls": result.controls.value,
        "advantage": result.value,
        "low": result.interval.low,
        "high": result.interval.high,
        "bound": result.bound,
    }


def _rounded(distances: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(distance, _SHOWN_DIGITS) for distance in distances)


def _rounded_gap(gap: tuple[float, str, str]) -> tuple[float, str, str]:
    return round(gap[0], _SHOWN_DIGITS), *gap[1:]


def _opened(cache: str | Path) -> Path:
    """Return the folder, and create it if it is missing."""
    expect(cache, str | Path, "a cache is a folder")
    folder = Path(cache)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot keep results in the folder {folder}: {_reason(error)}", culprit=cache) from None
    return folder


def _store_result(path: Path, result: EvaluationResult) -> None:
    """Write a result after its digest, atomically, so that a partial file is never read as a result."""
    text = json.dumps(result.to_json()).encode()
    partial = path.with_suffix(".partial")
    try:
        partial.write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
        partial.replace(path)
    except OSError as error:
        raise InputError(f"cannot keep results in the folder {path.parent}: {_reason(error)}", culprit=path) from None


def _stored_result(path: Path) -> EvaluationResult | None:
    """Return the stored result; None if there is none, or if its digest differs."""
    try:
        digest, _, text = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    if hashlib.sha256(text).hexdigest().encode() != digest:
        return None
    return EvaluationResult.from_json(json.loads(text))


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "it cannot be written"


def _fingerprint(split: PopulationSplit) -> str:
    digest = hashlib.sha256(split.domain.hash.encode())
    for rows in (split.members, split.controls, split.others):
        digest.update(np.ascontiguousarray(rows.codes, dtype=np.int64).tobytes())
        digest.update(b"|")
    return digest.hexdigest()


def selected(results: Sequence[EvaluationResult]) -> tuple[EvaluationResult, ...]:
    """Return the most useful release of each kind, at most four, for pictures with one panel per release."""
    best: dict[str, EvaluationResult] = {}
    for result in results:
        if result.family == BASELINES:
            continue
        best_so_far = best.get(result.family)
        if best_so_far is None or result.marginals[1] > best_so_far.marginals[1]:
            best[result.family] = result
    if len(best) == 1:
        return tuple(result for result in results if result.family != BASELINES)[:_MOST_PANELS]
    return tuple(best.values())[:_MOST_PANELS] or tuple(results)[:1]


def released(results: Sequence[EvaluationResult]) -> tuple[EvaluationResult, ...]:
    """Return the results without baselines; only baselines if there is nothing else."""
    return tuple(result for result in results if result.family != BASELINES) or tuple(results)


def baseline(results: Sequence[EvaluationResult], name: str) -> EvaluationResult | None:
    """Return the baseline of that name, or None."""
    return next((result for result in results if result.family == BASELINES and result.name == name), None)


EPSILONS = (Fraction(1, 10), Fraction(1), Fraction(10))
LOCAL_EPSILONS = (Fraction(10), Fraction(60))
CLASS_SIZES = (2, 5, 25, 100)
DELTA = "1e-9"


def grid(quasi: Sequence[str]) -> tuple[Candidate, ...]:
    """Return candidates of all families.

    Args:
        quasi: the quasi-identifiers of k-anonymity, which is also run on all columns.

    Raises:
        InputError: the argument is no list of names.
    """
    expect_all(quasi, str, "quasi-identifiers are a list of names")
    return (*_synthetic(), *_anonymised(tuple(quasi)), *_answered(), *_local())


def _synthetic() -> Iterator[Candidate]:
    for epsilon in EPSILONS:
        loss = EpsilonDelta(epsilon, DELTA)
        yield Candidate(
            f"batched, epsilon {plain(epsilon)}", "synthetic table", Claim(loss), partial(batched, loss=loss)
        )


def _anonymised(quasi: tuple[str, ...]) -> Iterator[Candidate]:
    for k in CLASS_SIZES:
        yield Candidate(f"Mondrian on all columns, k = {k}", "k-anonymity", Claim(class_size=k), partial(mondrian, k=k))
        if quasi:
            # k is about the quasi-identifiers only, so it bounds no attacker who knows other columns
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
            f"Randomized response, epsilon {plain(epsilon)}",
            "local reports",
            Claim(Epsilon(epsilon)),
            partial(randomised, epsilon=epsilon),
        )


def batched(rows: Rows, *, loss: EpsilonDelta, ways: int = 2) -> Released:
    """Return a synthetic table by ``batched`` for all marginals of ``ways`` attributes."""
    from sfumato.synthesize.budget_allocation import NoisyTotal
    from sfumato.synthesize.methods.batched import batched as method
    from sfumato.workload.counting_queries import all_marginals

    release = method(_in_memory(rows), loss=loss, total=NoisyTotal(), workload=all_marginals(ways))
    return Released.raw(Rows(rows.domain, release.model.sample(generator()).astype(np.intp)))


def mondrian(rows: Rows, *, k: int, quasi: tuple[str, ...] | None = None) -> Released:
    """Return rows recoded by Mondrian on ``quasi``, with the other columns unchanged. Default: all columns."""
    from sfumato.anonymize import KAnonymity, Keep
    from sfumato.anonymize import mondrian as method

    names = rows.domain.names if quasi is None else quasi
    kept_columns = tuple(
        Keep(name=name, anyway=True) for name in rows.domain.names if name not in names
    )  # the rows are never published
    with TemporaryDirectory() as folder:
        vault = _on_disk(rows, Path(folder))
        release = method(vault, quasi=names, criteria=[KAnonymity(k)], keep=kept_columns)
        return from_arrow(release.rows.table, rows.domain)


def answered_pairs(rows: Rows, *, loss: EpsilonDelta) -> AnsweredWorkload:
    """Return noisy counts of all two-way marginals, and nothing else."""
    cliques = list(combinations(rows.domain.names, 2))
    measured = _in_memory(rows).mechanisms(loss).measure([Marginal(clique) for clique in cliques], loss)
    shapes = [rows.domain.project(clique).shape for clique in cliques]
    answers = [each.values.astype(np.float64).reshape(shape) for each, shape in zip(measured, shapes, strict=True)]
    return AnsweredWorkload(rows.domain, dict(zip(cliques, answers, strict=True)))


def randomised(rows: Rows, *, epsilon: Fraction) -> Perturbed:
    """Report each cell by generalized randomized response, with epsilon split evenly over the columns."""
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
    return Perturbed(Released.raw(Rows(rows.domain, reports)), tuple(channels))


def _in_memory(rows: Rows) -> SimulatedVault:
    from sfumato.vault.simulated import SimulatedVault

    seed = int(generator().integers(1 << 62))
    table = ArrayTable(rows.domain, rows.codes.astype(np.uint32), values=middle_values(rows.domain, rows.codes))
    return SimulatedVault(table, seed=seed)


def _on_disk(rows: Rows, folder: Path) -> Vault:
    """Return a vault over the same codes with a temporary journal. k-anonymity charges nothing."""
    from sfumato.engine.open import open_table
    from sfumato.ledger import open_ledger
    from sfumato.ledger.database import file_address
    from sfumato.ledger.dataset_terms import UNDECLARED
    from sfumato.synthesize.product import to_arrow
    from sfumato.vault.vault import Vault

    encoded = open_table(to_arrow(rows.domain, rows.codes, generator())).encode(rows.domain)
    journal = open_ledger(file_address(folder / "frontier.ledger"), dataset="frontier", limit=Epsilon(1), create=True)
    return Vault(encoded, journal, UNDECLARED)
