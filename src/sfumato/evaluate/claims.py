"""What a release promises about one person, and what that promise bounds."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.arguments import expect, whole
from sfumato.errors import InputError
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss, Rho

_LARGEST = 10**18  # rows of a class
_DIGITS = 19
_SHOWN = 60


@dataclass(frozen=True)
class Claim:
    """The guarantee of a release: a differential privacy loss, a smallest class size, both, or neither.

    Raises:
        InputError: what is no loss, or a class size below one.
    """

    loss: Loss | None = None
    class_size: int | None = None

    def __post_init__(self) -> None:
        expect(self.loss, Loss | None, "a claim has a loss: Epsilon(...), EpsilonDelta(..., ...), Rho(...) or None")
        if self.class_size is None:
            return
        size = whole(self.class_size, "a class size is a whole number")
        if not 1 <= size <= _LARGEST:
            raise InputError(f"a class holds at least one row, and at most {_LARGEST:.0e}", culprit=size)

    def __str__(self) -> str:
        words = [] if self.loss is None else [str(self.loss)]
        if self.class_size is not None:
            words.append(f"k = {self.class_size}")
        return ", ".join(words) or "no guarantee"


def parse_claim(text: str) -> Claim:
    """Read a claim as people type it: ``epsilon=1``, ``epsilon=1,delta=1e-9``, ``rho=0.5``, ``k=5`` or ``none``.

    Raises:
        InputError: anything else; a release without its guarantee cannot be judged by it.

    >>> str(parse_claim("epsilon=0.5,delta=1e-9")), str(parse_claim("k=5")), str(parse_claim("none"))
    ('epsilon = 0.5, delta = 1e-09', 'k = 5', 'no guarantee')
    """
    if text.strip() == "none":
        return Claim()
    given = [part.strip().partition("=")[::2] for part in text.split(",")]
    parts = dict(given) if len(dict(given)) == len(given) else {}
    match parts:
        case {"epsilon": epsilon, "delta": delta} if len(parts) == 2:  # noqa: PLR2004
            return Claim(EpsilonDelta(epsilon, delta))
        case {"epsilon": epsilon} if len(parts) == 1:
            return Claim(Epsilon(epsilon))
        case {"rho": rho} if len(parts) == 1:
            return Claim(Rho(rho))
        case {"k": k} if len(parts) == 1 and k.isdecimal() and len(k) <= _DIGITS:
            return Claim(class_size=int(k))
        case _:
            raise InputError(
                f"{text[:_SHOWN]!r} is no guarantee; say epsilon=1, epsilon=1,delta=1e-9, rho=0.5, k=5 or none",
                culprit=text,
            )
