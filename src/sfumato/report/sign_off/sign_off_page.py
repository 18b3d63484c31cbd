"""The content of a sign-off page, on which a privacy officer decides about a release, and its HTML.

A tile without figures reads "Not evaluated".  Nothing on the page calls a release safe or anonymous.  All text is
escaped, because any program may have written the file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Any

from sfumato.errors import InputError, budget_percent, pluralize, short_deltas
from sfumato.evaluate.verdicts import THRESHOLD_SET, WEAK_GUARANTEE, Judgement, Verdict, worst
from sfumato.report.drawing import (
    BudgetShares,
    DrawnInterval,
    budget_bar,
    guess_scale,
    interval_drawing,
    palette,
    percent_up,
)
from sfumato.strict_documents import read_json

NOT_EVALUATED = "Not evaluated"
NOT_PROTECTED = (
    "Facts about a whole group. The release is meant to show them.",
    "The description of the table (columns, values, bounds). It is published.",
    "People who are also in a release outside this ledger.",
)
ONE_ROW = "A person with several rows: the guarantee is for one row."
NOT_COPIED = "No row is copied from a person."
UNCONFIRMED_ROWS = "It was not confirmed that no row was changed."


class Tone(StrEnum):
    """The color of a tile or a verdict."""

    GOOD = "good"
    CARE = "care"
    BAD = "bad"
    NONE = "none"


_TONES = {
    Verdict.GOOD: Tone.GOOD,
    Verdict.NO_LEAK: Tone.GOOD,
    Verdict.WITH_CARE: Tone.CARE,
    Verdict.LEAK: Tone.CARE,
    Verdict.NOT_FOR_USE: Tone.BAD,
    Verdict.BROKEN: Tone.BAD,
    Verdict.UNKNOWN: Tone.NONE,
}


@dataclass(frozen=True)
class Tile:
    """A conclusion at the top of the page, with one sentence about it."""

    label: str
    conclusion: str
    sentence: str
    tone: Tone


@dataclass(frozen=True)
class Check:
    """A fact that was checked, or one that needs the officer's judgment.

    ``public_text`` replaces the text in the public edition.  None: the same text.  Empty: the check is left out.
    ``contradicts`` is True if the content differs from the entry of the ledger.
    """

    text: str
    to_judge: bool = False
    public_text: str | None = None
    contradicts: bool = False


_PRIVATE_TERMS = ("Recipients", "Purpose")
_UNCHECKED_EVALUATION = Check(
    "The verdicts of the evaluation are those of its file; they were not computed again",
    to_judge=True,
)


@dataclass(frozen=True)
class Budget:
    """The shares of the limit, in its own measure, the sentences next to them, and the name of the release."""

    shares: BudgetShares
    sentences: tuple[str, ...]
    release: str = "This release"


@dataclass(frozen=True)
class Purpose:
    """The recipients, the purpose, and the name of the person who asks for the signature; each may be empty."""

    recipients: str = ""
    purpose: str = ""
    requested_by: str = ""

    def terms(self) -> tuple[tuple[str, str], ...]:
        """Return the recipients and the purpose as terms of the page."""
        stated = zip(_PRIVATE_TERMS, (self.recipients, self.purpose), strict=True)
        return tuple((term, text or "Not stated") for term, text in stated)

    def checks(self) -> tuple[Check, ...]:
        """Return a point to judge if the recipients or the purpose are not stated."""
        missing = [term for term, text in self.terms() if text == "Not stated"]
        text = f"{' and '.join(missing).capitalize()}: not stated. Ask who receives the release, and for what"
        return (Check(text, to_judge=True, public_text=""),) if missing else ()


@dataclass(frozen=True)
class RiskLine:
    """A measure of the risk of re-identification, before and after anonymization."""

    measure: str
    before: str
    after: str


@dataclass(frozen=True)
class Overleaf:
    """A table that follows the page, because it is too long for it."""

    heading: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class SignOff:
    """The content of a sign-off page.

    Attributes:
        title: name of the release.
        kind: kind of the release, which is its title in the public edition.
        subtitle: size of the release.
        requested_by: the person who asks for the signature, or empty.
        tiles: privacy, accuracy and measured risk.
        content: what is released to whom, as terms with their texts.
        guarantee: sentences.
        right_guesses: largest probability that an observer of the release guesses rightly whether a unit is in the
            table, if both cases were equally likely before; None: no differential privacy.
        not_protected: sentences.
        budget: None without a ledger.
        accuracy: verdicts on questions.
        risk: verdicts on attacks; empty: no attack was run.
        risk_lines: risk of re-identification before and after; empty for releases with differential privacy.
        confirmed: whether the guarantee was confirmed for this content.
        checks: the points to judge, then checked facts.
        digest: SHA-256 of the file, or empty.
        head: last hash of the ledger, or empty.
        internal: whether the page has figures that were computed from the protected table.
        public: whether this is the edition that may be published.
        overleaf: long tables after the page.
        takes_evaluation: whether ``sfumato evaluate`` judges such a release.
    """

    title: str
    kind: str
    subtitle: str
    tiles: tuple[Tile, ...]
    content: tuple[tuple[str, str], ...]
    guarantee: tuple[str, ...]
    right_guesses: float | None
    not_protected: tuple[str, ...]
    budget: Budget | None
    accuracy: tuple[Judgement, ...]
    risk: tuple[Judgement, ...] = ()
    risk_lines: tuple[RiskLine, ...] = ()
    checks: tuple[Check, ...]
    digest: str
    head: str
    internal: bool
    requested_by: str = ""
    public: bool = False
    overleaf: tuple[Overleaf, ...] = ()
    takes_evaluation: bool = False
    confirmed: bool = True

    @property
    def to_judge(self) -> int:
        """The number of checks that need judgment."""
        return sum(check.to_judge for check in self.checks)

    def published(self) -> SignOff:
        """Return the public edition: only what the release and its ledger state, and no name, purpose or decision.

        Raises:
            InputError: the page has figures that were computed from the protected table.
        """
        if self.internal:
            raise InputError(
                "an evaluation, or the risk of the protected table, is computed from its rows and cannot be published; "
                "leave out --evaluation and --table, or --public"
            )
        texts = ((each.text if each.public_text is None else each.public_text, each.to_judge) for each in self.checks)
        checks = tuple(Check(text, to_judge) for text, to_judge in texts if text)
        content = tuple((term, text) for term, text in self.content if term not in _PRIVATE_TERMS)
        return replace(self, public=True, requested_by="", checks=checks, content=content)

    def to_json(self) -> dict[str, Any]:
        """Return the conclusions as JSON values."""
        return {
            "file": self.title,
            "sha256": self.digest,
            "internal": self.internal,
            "public": self.public,
            "tiles": {tile.label: tile.conclusion for tile in self.tiles},
            "right_guesses": self.right_guesses,
            "accuracy": [each.to_json() for each in self.accuracy],
            "risk": [each.to_json() for each in self.risk],
            "reidentification": [vars(each) for each in self.risk_lines],
            "checks": [{"text": each.text, "to_judge": each.to_judge} for each in self.checks],
        }


def ordered_checks(*checks: Check) -> tuple[Check, ...]:
    """Return the checks, with the points to judge first."""
    return tuple(sorted(checks, key=lambda check: not check.to_judge))


def points_to_judge(
    tiles: Sequence[Tile],
    judgements: Sequence[Judgement] = (),
    *,
    purpose: Purpose,
    right: float | None = None,
    evaluated: bool = False,
) -> tuple[Check, ...]:
    """Return a weak guarantee, bad verdicts, tiles without figures, a missing purpose, and an unchecked evaluation."""
    questions = {
        Verdict.LEAK: "an attack did better on people in the table than on others. Is that acceptable?",
        Verdict.BROKEN: "an attack did better than the guarantee allows. Find out why before any release",
    }
    unusable = [each.question for each in judgements if each.verdict is Verdict.NOT_FOR_USE]
    bad = [f"Not for use: {'; '.join(unusable)}. Does the purpose need this?"] if unusable else []
    bad += [f"{each.question}: {questions[each.verdict]}" for each in judgements if each.verdict in questions]
    empty = [f"{each.label}: not evaluated. {each.sentence}" for each in tiles if each.conclusion == NOT_EVALUATED]
    evaluation = (_UNCHECKED_EVALUATION,) if evaluated else ()
    weak = [f"{weakness(right)} Is this guarantee enough?"] if weakness(right) else []
    return (*(Check(text, to_judge=True) for text in (*weak, *bad, *empty)), *purpose.checks(), *evaluation)


def weakness(right: float | None) -> str:
    """Return a sentence about a weak guarantee, with its threshold; empty if the guarantee is not weak."""
    if right is None or right <= WEAK_GUARANTEE:
        return ""
    return f"A guess may be right up to {percent_up(right)} of the time (weak above {percent_up(WEAK_GUARANTEE)})."


def guaranteed_tile(sentence: str, right: float | None) -> Tile:
    """Return the tile of a guarantee that holds for the content of the page."""
    if weak := weakness(right):
        return Tile("Privacy", "Guaranteed, but weak", f"{sentence} {weak}", Tone.CARE)
    return Tile("Privacy", "Guaranteed", sentence, Tone.GOOD)


def guess_sentences(right: float, unit: str, release: str, *, unconfirmed: str = "") -> tuple[str, ...]:
    """Return sentences about the chance that a guess about a unit of the table is right.

    ``unconfirmed`` names who states a guarantee that was not confirmed for the release.
    """
    if unconfirmed:
        promise = f"{unconfirmed} that the guess is right with a chance of at most {percent_up(right)}"
        return (
            f"Suppose that an observer guesses if a unit ({unit}) is in the table, and that both are equally likely.",
            f"{promise}; whether this holds for the {release} was not confirmed.",
        )
    return (
        f"The guarantee limits what can be learned from the {release} about one unit of the table: {unit}.",
        "Suppose that an observer guesses whether the unit is in the table, and that both are equally likely.",
        f"With the {release}, the guess is right with a chance of at most {percent_up(right)}.",
        "This holds whatever else the observer knows.",
    )


def accuracy_tile(judgements: Sequence[Judgement]) -> Tile:
    """Return the tile of accuracy verdicts: the worst of them, never a mean."""
    if not judgements:
        return Tile("Accuracy", NOT_EVALUATED, "No error was judged for this release.", Tone.NONE)
    good = sum(each.verdict is Verdict.GOOD for each in judgements)
    verdict = worst(judgements)
    weakest = next((each.question for each in judgements if each.verdict is verdict), "")
    sentence = f"{good} of {pluralize(len(judgements), 'question')} answered well."
    if verdict is Verdict.GOOD:
        return Tile("Accuracy", verdict.value, sentence, Tone.GOOD)
    mostly = 2 * good >= len(judgements)
    conclusion, tone = ("Good with limits", Tone.CARE) if mostly else (verdict.value, _TONES[verdict])
    return Tile("Accuracy", conclusion, f"{sentence} Weakest: {weakest[:1].lower()}{weakest[1:]}.", tone)


def judgement_tone(judgement: Judgement, *, confirmed: bool) -> Tone:
    """Return the color of a verdict.

    An attack that found nothing is neutral, unless a confirmed guarantee limits what attacks can find.
    """
    if judgement.verdict is Verdict.NO_LEAK and not (confirmed and judgement.is_limited):
        return Tone.NONE
    return _TONES[judgement.verdict]


def attack_tile(attacks: Sequence[Judgement], release: str, *, confirmed: bool = True) -> Tile:
    """Return the tile of attacks.  ``confirmed``: the guarantee was confirmed for this content."""
    if not attacks:
        return Tile("Risk measured", NOT_EVALUATED, f"No result of an attack on this {release} was given.", Tone.NONE)
    verdict, one = worst(attacks), len(attacks) == 1
    ran = f"{pluralize(len(attacks), 'attack')} {'was' if one else 'were'} run"
    better = f"{ran}. {'It' if one else 'At least one'} did better"
    sentence = {
        Verdict.NO_LEAK: f"{ran}: no difference beyond chance between people in the table and others",
        Verdict.LEAK: f"{better} on people in the table than on others",
        Verdict.BROKEN: f"{better} than the guarantee allows",
    }.get(verdict, f"{ran} on too few people to judge {'it' if one else 'them'}")
    limited = confirmed and any(each.is_limited for each in attacks)  # attacks without a known limit are also run
    if verdict is not Verdict.NO_LEAK or limited:
        return Tile("Risk measured", verdict.value, f"{sentence}.", _TONES[verdict])
    why = "no limit below 1.00 is known" if confirmed else "the guarantee was not confirmed"
    return Tile("Risk measured", verdict.value, f"{sentence}. This is no evidence of protection: {why}.", Tone.NONE)


def verdicts_of_file(path: Path, name: str, digests: Sequence[str]) -> tuple[str, list[Judgement]]:
    """Return the first of these hashes of files that an evaluation has judged, with its verdicts.

    Raises:
        InputError: the file is no evaluation, or evaluates other files.
    """
    try:
        document: Any = read_json(path.read_bytes())
        files, lines = document["files"], document["verdicts"]
        digest = next((each for each in digests if each in files.values()), None)
        judgements = [Judgement.from_json(each) for each in lines if files.get(each["release"]) == digest]
    except (OSError, KeyError, TypeError, ValueError, AttributeError, InputError):
        raise InputError(f"{path} is not what 'sfumato evaluate --json' prints", culprit=path) from None
    if digest is None:
        raise InputError(f"{path} evaluates other files than {name}; evaluate this one", culprit=path)
    return digest, judgements


def render_sign_off(page: SignOff) -> str:
    """Return the page as one HTML document that prints on one A4 page and runs no script.

    Raises:
        MissingExtraError: the extra ``plots`` is not installed.
    """
    from sfumato.extras import require

    require("plots", "the sign-off page", ["jinja2"])
    from jinja2 import Environment
    from markupsafe import Markup

    template = resources.files(__package__).joinpath("sign_off_page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "tone": lambda judgement: judgement_tone(judgement, confirmed=page.confirmed).value,
        "percent": budget_percent,
        "unbroken": _unbroken,
    }
    drawings = {
        "guess": None if page.right_guesses is None or not page.confirmed else guess_scale(page.right_guesses),
        "budget": None if page.budget is None else budget_bar(page.budget.shares, page.budget.release.lower()),
        "attacks": _attack_drawing(page.risk, confirmed=page.confirmed),
    }
    safe_drawings = {name: drawn and Markup(drawn) for name, drawn in drawings.items()}  # noqa: S704  (text is escaped)
    context = {"page": page, "drawings": safe_drawings, "palette": Markup(palette()), "thresholds": THRESHOLD_SET}  # noqa: S704
    return environment.from_string(template).render(**context)


def _unbroken(text: str) -> str:
    """Return a text with short deltas, in which no line breaks within 1e-9 or 2026-11-28."""
    return re.sub(r"(?<=[0-9e])-(?=[0-9])", "\N{NON-BREAKING HYPHEN}", short_deltas(text))


def _attack_drawing(attacks: Sequence[Judgement], *, confirmed: bool) -> str | None:
    """Return the intervals of attacks; None if one of them has no numbers, such as in an older file format."""
    if not attacks or any(each.interval is None for each in attacks):
        return None
    drawn = [
        DrawnInterval(each.question, *each.interval, judgement_tone(each, confirmed=confirmed).value, each.limit)
        for each in attacks
        if each.interval is not None
    ]
    return interval_drawing("Success on members minus others, 95 % intervals", drawn)
