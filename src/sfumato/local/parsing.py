"""Reading specs: from parsed JSON to specs and randomizers, each of which proves its claim again."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from sfumato.local.bits import Coins, Unary
from sfumato.local.choice import Choice, Design
from sfumato.local.composite import Joint, Labelled, Sampled
from sfumato.local.designs import Direct, Hadamard, Projective
from sfumato.local.distribution import Distribution
from sfumato.local.encodings import BucketRun, CountMeanSketch
from sfumato.local.frequency import Frequency
from sfumato.local.graded import Block, GradedMean, PublicLevels
from sfumato.local.hashing import Hashed
from sfumato.local.heavy import HeavyHitters
from sfumato.local.hiera import Hiera
from sfumato.local.keyvalue import KeyValue, SignedUnary
from sfumato.local.mean import Mean, MeanMethod
from sfumato.local.memoised import Loloha, Rappor
from sfumato.local.oracles import Method
from sfumato.local.randomizer import Randomizer
from sfumato.local.ranges import Range
from sfumato.local.several import Several, Sharing
from sfumato.local.sketch import HadamardSketch
from sfumato.local.spec import Spec
from sfumato.local.subset import Subset
from sfumato.local.table import Table
from sfumato.privacy.loss import exact

Document = dict[str, Any]


def parse_spec(document: Document) -> Spec:
    """Make a spec from its JSON.

    Raises:
        KeyError, TypeError, ValueError: the document is no spec; :func:`sfumato.local.document.loads` says so in words.
        InputError: numbers that make no spec, or a table that does not keep its claim.
    """
    return _SPECS[document["kind"]](document)


def parse_randomizer(document: Document) -> Randomizer:
    """Make a randomizer from its JSON.

    Raises:
        KeyError, TypeError, ValueError: the document is no randomizer; ``loads`` says so in words.
        InputError: numerators that make no probability table.
    """
    return _RANDOMIZERS[document["kind"]](document)


def _fraction(text: str) -> Fraction:
    if not isinstance(text, str):
        raise TypeError
    return exact(text, name="epsilon")


def _read_values(values: object) -> Any:  # noqa: ANN401 -- checked by the spec itself
    if isinstance(values, list):
        return tuple(values)
    if isinstance(values, int) and not isinstance(values, bool):
        return values
    raise TypeError


def _frequency(document: Document) -> Frequency:
    randomizer: Any = parse_randomizer(document["randomizer"])
    return Frequency(
        _read_values(document["values"]), _fraction(document["epsilon"]), Method(document["method"]), randomizer
    )


def _mean(document: Document) -> Mean:
    return Mean(
        float(document["low"]),
        float(document["high"]),
        _fraction(document["epsilon"]),
        MeanMethod(document["method"]),
        _table(document["randomizer"]),
        tuple(map(float, document["outputs"])),
    )


def _several(document: Document) -> Several:
    parts = tuple(_frequency(part) if part["kind"] == Frequency.kind else _mean(part) for part in document["parts"])
    return Several(tuple(document["names"]), parts, _fraction(document["epsilon"]), Sharing(document["sharing"]))


def _range(document: Document) -> Range:
    oracles: Any = tuple(parse_randomizer(each) for each in document["oracles"])
    return Range(int(document["size"]), int(document["fanout"]), _fraction(document["epsilon"]), oracles)


def _key_value(document: Document) -> KeyValue:
    return KeyValue(
        _read_values(document["keys"]),
        float(document["low"]),
        float(document["high"]),
        int(document["pairs"]),
        _fraction(document["epsilon"]),
        _signed(document["randomizer"]),
    )


def _heavy(document: Document) -> HeavyHitters:
    randomizer: Any = parse_randomizer(document["randomizer"])
    return HeavyHitters(int(document["bits"]), bool(document["text"]), _fraction(document["epsilon"]), randomizer)


def _graded(document: Document) -> GradedMean:
    return GradedMean(
        tuple(map(float, document["divisions"])),
        tuple(map(_fraction, document["budgets"])),
        _table(document["randomizer"]),
        tuple(map(float, document["outputs"])),
    )


_SPECS: dict[str, Callable[[Document], Spec]] = {
    Frequency.kind: _frequency,
    Mean.kind: _mean,
    Distribution.kind: lambda d: Distribution(
        float(d["low"]), float(d["high"]), _fraction(d["epsilon"]), _table(d["randomizer"])
    ),
    Range.kind: _range,
    KeyValue.kind: _key_value,
    HeavyHitters.kind: _heavy,
    Several.kind: _several,
    Hiera.kind: lambda d: Hiera(
        tuple(map(float, d["divisions"])), tuple(map(_fraction, d["budgets"])), _table(d["randomizer"])
    ),
    GradedMean.kind: _graded,
    PublicLevels.kind: lambda d: PublicLevels(tuple(map(_mean, d["parts"])), bool(d["independent"])),
    Block.kind: lambda d: Block(tuple(map(_mean, d["parts"]))),
}


def _coins(document: Document) -> Coins:
    return Coins(int(document["one"]), int(document["zero"]))


def _table(document: Document) -> Table:
    return Table(tuple(tuple(map(int, row)) for row in document["rows"]))


def _signed(document: Document) -> SignedUnary:
    return SignedUnary(int(document["keys"]), int(document["one"]), int(document["zero"]), int(document["sign"]))


def _design(document: Document) -> Design:
    return _DESIGNS[document["kind"]](document)


def _all_parts(document: Document) -> tuple[Randomizer, ...]:
    return tuple(map(parse_randomizer, document["parts"]))


_DESIGNS: dict[str, Callable[[Document], Design]] = {
    "direct": lambda d: Direct(int(d["inputs"])),
    "subset": lambda d: Subset(int(d["inputs"]), int(d["size"])),
    "projective": lambda d: Projective(int(d["inputs"]), int(d["order"]), int(d["dimension"])),
    "hadamard": lambda d: Hadamard(int(d["inputs"])),
    "hashed": lambda d: Hashed(int(d["inputs"]), int(d["buckets"])),
    "hadamard_sketch": lambda d: HadamardSketch(int(d["inputs"]), int(d["width"])),
}

_RANDOMIZERS: dict[str, Callable[[Document], Randomizer]] = {
    "choice": lambda d: Choice(_design(d["design"]), int(d["truth"])),
    "unary": lambda d: Unary(int(d["inputs"]), _coins(d["coins"])),
    "sketch": lambda d: CountMeanSketch(int(d["inputs"]), int(d["width"]), _coins(d["coins"])),
    "run": lambda d: BucketRun(int(d["inputs"]), int(d["run"]), _coins(d["coins"])),
    "rappor": lambda d: Rappor(int(d["inputs"]), _coins(d["permanent"]), _coins(d["instant"])),
    "loloha": lambda d: Loloha(
        Hashed(int(d["design"]["inputs"]), int(d["design"]["buckets"])), int(d["permanent"]), int(d["instant"])
    ),
    "signed": _signed,
    "table": _table,
    "sampled": lambda d: Sampled(_all_parts(d)),
    "joint": lambda d: Joint(_all_parts(d)),
    "labelled": lambda d: Labelled(_all_parts(d)),
}
