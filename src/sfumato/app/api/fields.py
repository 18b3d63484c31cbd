"""Fields that several requests share: exact numbers, losses, and how a front end fills them in."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from sfumato.bounded_cache import cached
from sfumato.errors import InputError, LossError
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss, Rho, exact, plain

_LEAST, _MOST = 1e-12, 1e6
_PLACES = 10**18
Filled = TypeVar("Filled", bound="StrictModel")


def _spelled(value: object) -> object:
    """A number as the shortest decimal that prints it; text stays as it is."""
    match value:
        case bool():
            return value
        case float():
            return repr(float(value))  # of NumPy's as well
        case int():
            return repr(int(value))
        case Decimal() | Fraction():
            return plain(exact(value))
        case _:
            return value


_Text = Annotated[str, Field(max_length=60)]
NumberText = Annotated[_Text, BeforeValidator(_spelled, json_schema_input_type=_Text | float), Field(examples=["0.1"])]
Name = Annotated[str, Field(min_length=1, max_length=200)]


def _confidence(text: str) -> str:
    try:
        found = exact(text)
    except LossError:
        found = Fraction(0)
    if not 0 < found < 1:
        raise ValueError("a confidence is a number between 0 and 1, such as 0.95")
    return text


ConfidenceText = Annotated[NumberText, AfterValidator(_confidence)]


class StrictModel(BaseModel):
    """Nothing that is not understood is accepted."""

    model_config = ConfigDict(extra="forbid", strict=True)


def filled(kind: type[Filled], fields: Mapping[str, Any]) -> Filled:
    """A request from fields that a front end filled in.

    Raises:
        InputError: a field is beyond its limits; the sentence names it, and quotes nothing.
    """
    try:
        return kind(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        raise InputError(f"{place}: {reason[:1].lower()}{reason[1:]}" if place else reason, culprit=place) from None


@cached(8_000)  # the same few are asked for again and again
def loss_of(epsilon: str | None, delta: str | None, rho: str | None) -> Loss:
    """The loss that the three texts spell.

    Raises:
        LossError: none, or a combination that has no meaning.
    """
    loss: Loss
    match epsilon, delta, rho:
        case str(), None, None:
            loss = Epsilon(epsilon)
        case str(), str(), None:
            loss = EpsilonDelta(epsilon, delta)
        case None, None, str():
            loss = Rho(rho)
        case str(), _, str():
            raise LossError("epsilon and rho are two ways to say what the release may cost; give one of them")
        case None, str(), _:
            raise LossError("a delta alone does not say what the release may cost; give epsilon with it")
        case _:
            raise LossError("say what the release may cost: epsilon, epsilon with delta, or rho")
    if not _LEAST <= next(iter(loss.amounts.values())) <= _MOST:
        raise LossError("a loss above a million protects nobody, and one below 1e-12 says nothing; choose another")
    return loss


def limit_of(text: str | None) -> Loss | None:
    """The limit that a text spells: ``1``, ``1,1e-9`` or ``rho=0.5``.

    Raises:
        LossError: anything else.
    """
    if text is None:
        return None
    epsilon, _, delta = text.partition(",")
    try:
        if text.startswith("rho="):
            return loss_of(None, None, text.removeprefix("rho="))
        return loss_of(epsilon, delta or None, None)
    except LossError as error:
        raise LossError(f"a limit is EPSILON, EPSILON,DELTA or rho=RHO, not {text[:40]!r}: {error}") from None


class LossFields(StrictModel):
    """A privacy loss: epsilon, epsilon with delta, or rho, as text or as numbers; 0.1 is one tenth."""

    epsilon: NumberText | None = None
    delta: NumberText | None = None
    rho: NumberText | None = None

    def loss(self) -> Loss:
        """The exact loss.

        Raises:
            LossError: none, a combination that has no meaning, or more places than accounts add up exactly.
        """
        for name, text in (("epsilon", self.epsilon), ("delta", self.delta), ("rho", self.rho)):
            if text is not None and _PLACES % exact(text, name=name).denominator:
                raise LossError(f"state {name} as a decimal of at most 18 places, such as 0.333", culprit=text)
        return loss_of(self.epsilon, self.delta, self.rho)
