"""The limit of a new dataset and the caps of its analysts, as the pages read, explain and propose them.

A limit has no default.  While a steward types one, the page shows what it promises and what a cap would be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from markupsafe import Markup
from pydantic import BaseModel

from sfumato.app.api.questions import limit_of
from sfumato.errors import InputError
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss, plain
from sfumato.report.drawing import guess_scale, percent_up
from sfumato_server.problems import problem
from sfumato_server.registry import Key
from sfumato_server.rules import total_of
from sfumato_server.service import Service
from sfumato_server.ui.budgets import loss_within, loss_words
from sfumato_server.ui.question_form import Short
from sfumato_server.ui.rendering import REFUSALS

CAP_SHARES = {
    "1/10": "a tenth of the limit",
    "1/4": "a quarter of the limit",
    "1/2": "half of the limit",
    "none": "no cap",
}
"""The caps per analyst that the pages propose for a new dataset."""
CapShare: TypeAlias = Literal["1/10", "1/4", "1/2", "none"]


class LimitForm(BaseModel):
    """The fields of a limit: an epsilon with or without a delta, or a limit as text, and the share of a cap."""

    epsilon: Short = ""
    delta: Short = ""
    limit: Short = ""
    cap_share: CapShare = "none"

    def stated(self) -> str:
        """Return the limit as text.

        Raises:
            InputError: no limit is stated, or it is stated in two ways.
        """
        epsilon, delta, limit = self.epsilon.strip(), self.delta.strip(), self.limit.strip()
        if epsilon and limit:
            raise InputError("write the limit as an epsilon or in another way, and leave the other field empty")
        if not epsilon and not limit:
            raise InputError("write an epsilon: the limit for all releases together")
        return limit or (f"{epsilon},{delta}" if delta else epsilon)


@dataclass(frozen=True)
class LimitMeaning:
    """The promise of a limit.

    Attributes:
        limit: the limit in words.
        right_guesses: the largest chance to guess a person's presence after all releases, if the odds are even before.
        cap: the cap of an analyst in words; None for no cap.
        monthly: whether the limit is the sum of amounts by months.
    """

    limit: str
    right_guesses: float
    cap: str | None
    monthly: bool

    @property
    def at_most(self) -> str:
        """The largest chance as a percentage, rounded up."""
        return percent_up(self.right_guesses)

    @property
    def scale(self) -> Markup:
        """The scale from an even guess to the largest chance."""
        return Markup(guess_scale(self.right_guesses))  # noqa: S704  (numbers only)


def meaning_of(form: LimitForm) -> LimitMeaning:
    """Return what a limit means.

    Raises:
        InputError, LossError: the form states no limit.
    """
    text = form.stated()
    total = total_of(text)
    assert total is not None  # the text is not empty
    cap = None
    if form.cap_share != "none":
        share = limit_of(limit_share(total, Fraction(form.cap_share)))
        assert share is not None  # its text is not empty
        cap = loss_words(share)
    return LimitMeaning(loss_words(total), total.right_guesses(), cap, "month" in text)


def described_limit(form: LimitForm) -> dict[str, Any]:
    """Return the meaning of a limit for the template, or the reason why there is none."""
    try:
        return {"meaning": meaning_of(form), "reason": "", "cap_words": CAP_SHARES[form.cap_share]}
    except REFUSALS as error:
        empty = not (form.epsilon.strip() or form.limit.strip())
        return {"meaning": None, "reason": "" if empty else problem(error)["detail"], "cap_words": ""}


def cap_of(limit: Loss, text: str) -> Loss:
    """Return the cap of a text: a number in the measure of the limit, or a loss in the form of a limit.

    Raises:
        LossError: the text is neither.
    """
    if isinstance(limit, EpsilonDelta) or text.startswith("rho="):
        loss = limit_of(text)
        assert loss is not None  # only an empty text has none
        return loss
    return type(limit.divisible)(text)


def set_default_cap(service: Service, name: str, share: CapShare, key: Key) -> None:
    """Set the cap of each new analyst of a dataset to a share of its limit."""
    if share != "none":
        loaded = service.loaded(name)
        terms = replace(
            service.grants.terms(loaded.dataset.name), default_cap=limit_share(loaded.ledger.limit, Fraction(share))
        )
        service.grants.set_terms(loaded.dataset.name, terms, by=key.actor)


def limit_share(limit: Loss, share: Fraction) -> str:
    """Return a share of a limit as the text of a limit.

    An epsilon with a delta is the largest one of three digits whose rho is at most the share of the limit's rho.

    >>> limit_share(Epsilon(2), Fraction(1, 4))
    '0.5'
    >>> limit_share(EpsilonDelta(2, "1e-9"), Fraction(1, 4))
    '0.966,1e-09'
    """
    loss = loss_within(limit, limit.most * share)
    if isinstance(loss, EpsilonDelta):
        return f"{plain(loss.epsilon)},{plain(loss.delta)}"
    return plain(limit.most * share) if isinstance(loss, Epsilon) else f"rho={plain(limit.most * share)}"
