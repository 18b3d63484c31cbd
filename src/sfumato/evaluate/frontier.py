"""The utility-risk frontier: releases of every family on one scale."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.arguments import expect, expect_all
from sfumato.errors import InputError, SfumatoError
from sfumato.evaluate.claims import Claim
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
from sfumato.evaluate.released import MarginalSource, Released, Rows
from sfumato.model.row_sampling import generator

VERSION = 5
"""Of the stored results: raise it when their meaning changes."""

_SHOWN_DIGITS = 3
"""Decimals of a distance from the table that leave the owner's hands."""

BASELINES = "baseline"
FLOOR, CEILING, RAW = "independent columns", "other people", "raw table"
_SHOWN = 4  # releases in pictures that show one release a panel


@dataclass(frozen=True)
class Candidate:
    """A release to be made and judged: its name, family and claim, and how it is made from the members."""

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
    """Results in the order of the candidates, the baselines first; ``failed`` says why a release was not made."""

    results: tuple[EvaluationResult, ...]
    failed: tuple[tuple[str, str], ...]


def baselines(split: PopulationSplit, *, seed: int) -> tuple[Candidate, ...]:
    """The ends of both scales: the table itself, other people, and independent columns."""
    return (
        Candidate(RAW, BASELINES, Claim(), Released.of),
        Candidate(CEILING, BASELINES, Claim(), lambda _: Released.of(split.others)),
        Candidate(FLOOR, BASELINES, Claim(), lambda rows: Released.of(independent(rows, generator(seed)))),
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
    """Make and judge every candidate, after the baselines.

    A candidate that cannot be made (infeasible, too large) is left out with its reason; the others go on.

    Args:
        candidates: what to run; names are distinct.
        split: the people.
        target: the attribute that learners predict.
        seed: the same people are attacked, and the same queries asked, for all.
        cache: folder that keeps results, so that an interrupted run goes on where it was; as secret as the table.
        watch: told of each candidate before it starts, ``[1/5] name``, and of each step of judging it.

    Raises:
        InputError: two candidates of one name, what are no candidates, people or target, or a folder that cannot be
            written to.
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
        if path is not None and (kept := _kept(path)) is not None:
            results.append(kept)
            continue
        try:
            release = candidate.make(split.members)
            refuse_wrong_release(release, split.domain)
        except SfumatoError as error:
            failed.append((candidate.name, str(error)))
            continue
        found = judge(
            release,
            split,
            entry=ClaimedRelease(candidate.name, candidate.family, candidate.claim),
            target=target,
            seed=seed,
            watch=lambda step: watch(f"      {step}"),
        )
        results.append(found)
        if path is not None:
            _keep(path, found)
    return Frontier(tuple(results), tuple(failed))


def without_exact_shares(result: EvaluationResult) -> EvaluationResult:
    """The result without shares of real people, for whoever may see scores but not the table.

    Distances from the table are rounded: with all their digits, a released share and its distance give the
    exact one away.
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
    )


def told(result: EvaluationResult) -> dict[str, Any]:
    """What the page shows of a result, as JSON values: no exact shares, and no numbers of people."""
    public = without_exact_shares(result)
    attacks = [_told(each) for each in public.attacks]
    return {
        **public.to_json(),
        "pairs_95_percent": public.most_pairs,
        "worst_pair": public.worst_pair,
        "samples": public.sampled,
        "attacks": attacks,
        "headline": _told(public.headline),
    }


def _told(found: Advantage) -> dict[str, str | float | None]:
    return {
        "attack": found.attack,
        "knowledge": found.knowledge,
        "members": found.members.value,
        "controls": found.controls.value,
        "advantage": found.value,
        "low": found.interval.low,
        "high": found.interval.high,
        "bound": found.bound,
    }


def _rounded(distances: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(distance, _SHOWN_DIGITS) for distance in distances)


def _rounded_gap(found: tuple[float, str, str]) -> tuple[float, str, str]:
    return round(found[0], _SHOWN_DIGITS), *found[1:]


def _opened(cache: str | Path) -> Path:
    """The folder, made if need be."""
    expect(cache, str | Path, "a cache is a folder")
    folder = Path(cache)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot keep results in the folder {folder}: {_reason(error)}", culprit=cache) from None
    return folder


def _keep(path: Path, result: EvaluationResult) -> None:
    """With its digest ahead, whole or not at all: a half-written result would be taken for one."""
    text = json.dumps(result.to_json()).encode()
    partial = path.with_suffix(".partial")
    try:
        partial.write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
        partial.replace(path)
    except OSError as error:
        raise InputError(f"cannot keep results in the folder {path.parent}: {_reason(error)}", culprit=path) from None


def _kept(path: Path) -> EvaluationResult | None:
    """The result that was kept, None where there is none or its digest is another: then it is made anew."""
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
    """Of each family the most useful release, at most four: for pictures with a panel a release."""
    best: dict[str, EvaluationResult] = {}
    for result in results:
        if result.family == BASELINES:
            continue
        kept = best.get(result.family)
        if kept is None or result.marginals[1] > kept.marginals[1]:
            best[result.family] = result
    if len(best) == 1:
        return tuple(result for result in results if result.family != BASELINES)[:_SHOWN]
    return tuple(best.values())[:_SHOWN] or tuple(results)[:1]


def released(results: Sequence[EvaluationResult]) -> tuple[EvaluationResult, ...]:
    """All but the baselines; the baselines where there is nothing else."""
    return tuple(result for result in results if result.family != BASELINES) or tuple(results)


def baseline(results: Sequence[EvaluationResult], name: str) -> EvaluationResult | None:
    """The baseline of that name, where it was judged."""
    return next((result for result in results if result.family == BASELINES and result.name == name), None)
