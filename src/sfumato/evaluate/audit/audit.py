"""An empirical lower bound on the loss of a mechanism: what it provably exceeds is not private.

The bound is one-sided.  A mechanism that passes has not been proved private; one that fails is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.arguments import expect, expect_all, whole
from sfumato.errors import InputError
from sfumato.evaluate.audit.bounds import lower_bounds, measure_of
from sfumato.evaluate.audit.events import best_event
from sfumato.evaluate.audit.subject import Subject, outputs

FALSE_ALARMS = 1e-3
"""Probability that a whole run rejects at least one mechanism that keeps its word."""
FEWEST = 20
_MOST = 10**9
_ERROR = "the error of an audit is a probability between 0 and 1"


@dataclass(frozen=True)
class Finding:
    """Claimed and proven loss of one mechanism, in the unit ``measure`` (epsilon, rho or mu)."""

    name: str
    measure: str
    claimed: float
    proven: float
    event: str
    draws: int

    @property
    def passed(self) -> bool:
        """Whether the outputs are compatible with the claim."""
        return self.proven <= self.claimed


def audit(subject: Subject, *, draws: int, error: float = FALSE_ALARMS) -> Finding:
    """Bound the loss of one mechanism from below.

    ``draws`` outputs are taken on each of two neighbouring inputs.  The first half finds the event that
    tells them apart best; the second half, which chose nothing, gives the bound, by Clopper and Pearson's
    intervals, so that it exceeds the true loss with probability at most ``error``.

    Raises:
        InputError: fewer than 20 draws, no probability, or outputs that are not numbers.
    """
    draws = whole(draws, "draws are a whole number")
    _refuse_wrong_error(error)
    if not FEWEST <= draws <= _MOST:
        raise InputError(f"an audit needs at least {FEWEST} draws on each input, and at most {_MOST:,}", culprit=draws)
    first, second = outputs(subject.first, draws), outputs(subject.second, draws)
    if first.shape != second.shape or not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise InputError(f"{subject.name} returns outputs of different shapes, infinite or NaN", culprit=subject)
    half = draws // 2
    measure = measure_of(subject.claim, subject.mu)
    event, _ = best_event(first[:half], second[:half], measure, error=error)
    held = [np.array([np.count_nonzero(event.holds(side[half:]))]) for side in (first, second)]
    more, less = reversed(held) if event.reverse else held
    proven = float(lower_bounds(measure, more, less, draws - half, error=error)[0])
    return Finding(subject.name, measure.name, measure.claimed, max(proven, 0.0), str(event), draws)


def audit_all(
    subjects: Sequence[Subject], *, draws: int, error: float = FALSE_ALARMS, watch: Callable[[str], None] | None = None
) -> tuple[Finding, ...]:
    """Audit several mechanisms so that all honest ones pass with probability at least 1 - ``error``.

    The error is split evenly over the subjects (Bonferroni).  ``watch`` is told the name of each before it starts.

    Raises:
        InputError: what are no subjects, and as ``audit`` says.
    """
    expect_all(subjects, Subject, "what is audited is a list of Subject, such as subject_of returns")
    _refuse_wrong_error(error)
    findings = []
    for subject in subjects:
        if watch is not None:
            watch(subject.name)
        findings.append(audit(subject, draws=draws, error=error / len(subjects)))
    return tuple(findings)


def _refuse_wrong_error(error: float) -> None:
    expect(error, int | float, _ERROR)
    if not 0 < error < 1:
        raise InputError(_ERROR, culprit=error)
