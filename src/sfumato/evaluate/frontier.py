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
from sfumato.evaluate.attacks.advantage import Advantage
from sfumato.evaluate.checks import refuse_wrong_panel, refuse_wrong_release
from sfumato.evaluate.claims import Claim
from sfumato.evaluate.panel import Panel
from sfumato.evaluate.released import Marginals, Released
from sfumato.evaluate.rows import Rows
from sfumato.evaluate.utility.baselines import independent
from sfumato.evaluate.verdict import Entry, Verdict, judge
from sfumato.evaluate.watching import Watch, unwatched
from sfumato.model.simulation import generator

VERSION = 3
"""Of the stored verdicts: raise it when their meaning changes."""

_SHOWN_DIGITS = 3
"""Decimals of a distance from the table that leave the owner's hands."""

BASELINES = "baseline"
FLOOR, CEILING, RAW = "independent columns", "other people", "raw table"


@dataclass(frozen=True)
class Contender:
    """A release to be made and judged: its name, family and claim, and how it is made from the members."""

    name: str
    family: str
    claim: Claim
    make: Callable[[Rows], Marginals]

    def __post_init__(self) -> None:
        _ = Entry(self.name, self.family, self.claim)
        if not callable(self.make):
            raise InputError("a contender is made by a function of the members", culprit=self.make)


@dataclass(frozen=True)
class Frontier:
    """Verdicts in the order of the contenders, the baselines first; ``failed`` says why a release was not made."""

    verdicts: tuple[Verdict, ...]
    failed: tuple[tuple[str, str], ...]


def baselines(panel: Panel, *, seed: int) -> tuple[Contender, ...]:
    """The ends of both scales: the table itself, other people, and independent columns."""
    return (
        Contender(RAW, BASELINES, Claim(), Released.of),
        Contender(CEILING, BASELINES, Claim(), lambda _: Released.of(panel.others)),
        Contender(FLOOR, BASELINES, Claim(), lambda rows: Released.of(independent(rows, generator(seed)))),
    )


def frontier(
    contenders: Sequence[Contender],
    panel: Panel,
    *,
    target: str,
    seed: int,
    cache: str | Path | None = None,
    watch: Callable[[str, int, int], None] | None = None,
    stage: Watch = unwatched,
) -> Frontier:
    """Make and judge every contender, after the baselines.

    A contender that cannot be made (infeasible, too large) is left out with its reason; the others go on.

    Args:
        contenders: what to run; names are distinct.
        panel: the people.
        target: the attribute that learners predict.
        seed: the same people are attacked, and the same queries asked, for all.
        cache: folder that keeps verdicts, so that an interrupted run goes on where it was; as secret as the table.
        watch: told the name of each contender before it starts, its number and how many there are.
        stage: told what comes next for that contender.

    Raises:
        InputError: two contenders of one name, what are no contenders, people or target, or a folder that cannot be
            written to.
    """
    refuse_wrong_panel(panel, target=target, seed=seed)
    expect_all(contenders, Contender, "contenders are a list of Contender, such as grid returns")
    folder = None if cache is None else _opened(cache)
    everyone = (*baselines(panel, seed=seed), *contenders)
    if len({contender.name for contender in everyone}) != len(everyone):
        raise InputError("two contenders of a frontier have the same name", culprit=tuple(c.name for c in everyone))
    people = _fingerprint(panel)
    verdicts, failed = [], []
    for number, contender in enumerate(everyone):
        if watch is not None:
            watch(contender.name, number, len(everyone))
        key = json.dumps([VERSION, people, contender.name, contender.family, str(contender.claim), target, seed])
        path = None if folder is None else folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
        if path is not None and (kept := _kept(path)) is not None:
            verdicts.append(kept)
            continue
        try:
            release = contender.make(panel.members)
            refuse_wrong_release(release, panel.domain)
        except SfumatoError as error:
            failed.append((contender.name, str(error)))
            continue
        found = judge(
            release,
            panel,
            entry=Entry(contender.name, contender.family, contender.claim),
            target=target,
            seed=seed,
            watch=stage,
        )
        verdicts.append(found)
        if path is not None:
            _keep(path, found)
    return Frontier(tuple(verdicts), tuple(failed))


def without_exact_shares(verdict: Verdict) -> Verdict:
    """The verdict without shares of real people, for whoever may see scores but not the table.

    Distances from the table are rounded: with all their digits, a released share and its distance give the
    exact one away.
    """
    exact = verdict.family == BASELINES
    one, two, three = _rounded(verdict.marginals)
    return replace(
        verdict,
        real_columns={},
        columns={} if exact else verdict.columns,
        marginals=(one, two, three),
        pair_distance=tuple(map(_rounded, verdict.pair_distance)),
        association_difference=tuple(map(_rounded, verdict.association_difference)),
    )


def told(verdict: Verdict) -> dict[str, Any]:
    """What the page shows of a verdict, as JSON values: no exact shares, and no numbers of people."""
    public = without_exact_shares(verdict)
    attacks = [_told(each) for each in public.attacks]
    return {**public.to_json(), "samples": public.sampled, "attacks": attacks, "headline": _told(public.headline)}


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


def _opened(cache: str | Path) -> Path:
    """The folder, made if need be."""
    expect(cache, str | Path, "a cache is a folder")
    folder = Path(cache)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot keep verdicts in the folder {folder}: {_reason(error)}", culprit=cache) from None
    return folder


def _keep(path: Path, verdict: Verdict) -> None:
    """With its digest ahead, whole or not at all: a half-written verdict would be taken for one."""
    text = json.dumps(verdict.to_json()).encode()
    partial = path.with_suffix(".partial")
    try:
        partial.write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
        partial.replace(path)
    except OSError as error:
        raise InputError(f"cannot keep verdicts in the folder {path.parent}: {_reason(error)}", culprit=path) from None


def _kept(path: Path) -> Verdict | None:
    """The verdict that was kept, None where there is none or its digest is another: then it is made anew."""
    try:
        digest, _, text = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    if hashlib.sha256(text).hexdigest().encode() != digest:
        return None
    return Verdict.from_json(json.loads(text))


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "it cannot be written"


def _fingerprint(panel: Panel) -> str:
    digest = hashlib.sha256(panel.domain.hash.encode())
    for rows in (panel.members, panel.controls, panel.others):
        digest.update(np.ascontiguousarray(rows.codes, dtype=np.int64).tobytes())
        digest.update(b"|")
    return digest.hexdigest()
