"""A spec that was changed in any one place is refused, or keeps what it states.

Each kind of spec, over a small domain, is changed field by field and word by word.  Derived fields (the proven epsilon
in the document) are corrected, as an attacker would do.  If the changed spec is accepted, two judges without the code
of the proofs check it.  One computes every probability from the document by the published definitions.  The other sends
many values through a client and compares the reports byte by byte.
"""

from __future__ import annotations

import copy
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import combinations, islice, product
from typing import Any

import numpy as np
import pytest

from sfumato.errors import InputError
from sfumato.local import (
    Block,
    Distribution,
    Frequency,
    GradedMean,
    HeavyHitters,
    Hiera,
    KeyValue,
    Mean,
    PublicLevels,
    Range,
    Several,
    Sharing,
    audit,
    dumps,
    loads,
)
from sfumato.local.protocol.device import simulate
from sfumato.local.protocol.reports import restore
from sfumato.local.randomizers.composite import Joint, Labelled, Sampled
from sfumato.local.randomizers.integer_table import IntegerTable
from sfumato.local.specs.frequency import Method
from sfumato.local.specs.mean import MeanMethod
from sfumato.local.specs.spec import Spec

UNIT = 1 << 64
DRAWN = 2_000  # reports of each value that the second judge compares
WRITTEN_OUT = 64  # values of a part that the first judge writes out
SLACK = 6.5  # standard deviations: below one false alarm in 10^10 comparisons; there are some 10^5
KINDS = (
    *("choice", "unary", "sketch", "run", "rappor", "loloha", "signed", "table", "sampled", "joint", "labelled"),
    *("direct", "subset", "projective", "hadamard", "hashed", "hadamard_sketch"),
    *("frequency", "mean", "distribution", "range", "key_value", "heavy_hitters", "several"),
    *("hiera", "graded_mean", "public_levels", "block"),
)

Row = dict[Any, Fraction]


def duchi(low: float, high: float, epsilon: int) -> Mean:
    return Mean.design(low, high, epsilon=epsilon, method=MeanMethod.DUCHI)


def small_specs() -> dict[str, Spec]:
    table = IntegerTable.windows(5, 6, Fraction(1))
    graded = GradedMean((0.0, 1.0), (Fraction(1),), table, (0.5,) * 6)
    memoized = (Method.RAPPOR, Method.LOLOHA)
    specs: dict[str, Spec] = {
        method.value: Frequency.design(
            3, epsilon=1, method=method, instantaneous_epsilon="0.4" if method in memoized else None
        )
        for method in Method
        if method is not Method.CMS
    }
    return specs | {
        "texts": Frequency.design(["a", "b"], epsilon=1),
        "mean": duchi(0, 1, 1),
        "distribution": Distribution.design(0, 1, bins=3, epsilon=1),
        "range": Range.design(4, epsilon=1, fanout=2),
        "key_value": KeyValue.design(("k", "l"), 0, 1, pairs=1, epsilon=1),
        "sample": Several(("a", "b"), (Frequency.design(2, epsilon=1), duchi(0, 1, 1)), Fraction(1), Sharing.SAMPLE),
        "split": Several.design({"a": 2, "b": 3}, epsilon=1, sharing=Sharing.SPLIT),
        "hiera": Hiera.design(0, 1, divisions=(0, 0.5, 1), budgets=(2, 1)),
        "graded_mean": graded,
        "public_levels": PublicLevels((duchi(0, 1, 2), duchi(0, 1, 1)), independent=True),
        "block": Block((duchi(0, 1, 2), duchi(1, 2, 1))),
        "heavy_hitters": HeavyHitters.design(bits=8, text=False, epsilon=1),
        "long_heavy_hitters": HeavyHitters.design(bits=16, text=False, epsilon=1),
    }


SPECS = small_specs()


# ---------------------------------------------------------------------------------------------- changing a document


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield every place of a document, leaves and branches."""
    yield path
    if isinstance(document, dict):
        for key in document:
            yield from places(document[key], (*path, key))
    elif isinstance(document, list):
        for index in range(min(len(document), 3)):  # entries of long lists are alike
            yield from places(document[index], (*path, index))


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


def others(value: Any, donors: list[Any]) -> list[Any]:
    """Return values that might replace a value."""
    match value:
        case bool():
            return [not value, int(value)]
        case int():
            return [value + 1, value - 1, 2 * value, 0, -1, 1 << 70, float(value), str(value)]
        case float():
            return [value + 1, -value, 0.0, 5e-324, 1e308, 10**400, int(value), str(value)]
        case str() if value.isdigit():
            number = int(value)
            changed = [number + 1, number - 1, number * 2, number // 2, UNIT - number, number + UNIT // 50, 0, UNIT, -1]
            return [*map(str, changed), number, "1/2", "1e99999999"]
        case str():
            return [word for word in (*KINDS, "", "2", "1/3", "1e99999999", "split", "sample", "auto") if word != value]
        case list():
            return [value[:-1], [*value, value[-1]] if value else [1], value[::-1], [], *value[:1]]
        case dict():
            return [donor for donor in donors if donor != value]
        case _:
            return [0]


def with_change(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(document)
    at(changed, path[:-1])[path[-1]] = value
    return changed


def changes(document: dict[str, Any], donors: list[Any]) -> Iterator[dict[str, Any]]:
    for path in places(document):
        if not path:
            continue
        for value in others(at(document, path), donors):
            yield with_change(document, path, value)
        if isinstance(at(document, path[:-1]), dict):
            changed = copy.deepcopy(document)
            del at(changed, path[:-1])[path[-1]]
            yield changed


def parts_of(spec: Spec) -> list[Any]:
    """Randomizers, designs and coins of other specs, to stand where they do not belong."""
    found = []
    for path in places(json.loads(dumps(spec))):
        part = at(json.loads(dumps(spec)), path)
        if path and isinstance(part, dict):
            found.append(part)
    return found


DONORS = [
    part for name in ("grr", "olh", "oue", "dbitflip", "loloha", "key_value", "mean") for part in parts_of(SPECS[name])
]
COIN = {"kind": "choice", "design": {"kind": "direct", "inputs": 3}, "truth": str(UNIT // 2)}
DONORS += [{"kind": kind, "parts": [COIN, COIN]} for kind in ("sampled", "joint", "labelled")]


def accepted(document: dict[str, Any]) -> Spec | None:
    """The spec that a forger can make of a document, with the proven epsilon that the code itself would state."""
    try:
        return loads(json.dumps(document))
    except InputError:
        pass  # the proven epsilon may be another now
    try:
        return loads(dumps(restore(document)))
    except InputError:
        return None


# -------------------------------------------------------------------------------------- the first judge: definitions


@cache
def field(size: int) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]]:
    """Sums and products of a finite field, from polynomials over its prime."""
    prime = next(p for p in range(2, size + 1) if size % p == 0)
    degree = round(math.log(size, prime))

    def digits(number: int) -> list[int]:
        return [number // prime**place % prime for place in range(degree)]

    def number(coefficients: list[int]) -> int:
        return sum(c % prime * prime**place for place, c in enumerate(coefficients))

    pairs = list(product(range(size), repeat=2))
    add = {(a, b): number([x + y for x, y in zip(digits(a), digits(b), strict=True)]) for a, b in pairs}
    for lower in product(range(prime), repeat=degree):
        multiply = {}
        for a, b in pairs:
            wide = [0] * (2 * degree - 1)
            for (i, x), (j, y) in product(enumerate(digits(a)), enumerate(digits(b))):
                wide[i + j] += x * y
            for top in range(2 * degree - 2, degree - 1, -1):
                for place in range(degree):
                    wide[top - degree + place] -= lower[place] * wide[top]
            multiply[a, b] = number(wide[:degree])
        if all(multiply[a, b] for a in range(1, size) for b in range(1, size)):
            return add, multiply
    raise AssertionError


def hashes(inputs: int, buckets: int) -> list[list[int]]:
    """Return all linear maps of a value's digits, one list of buckets per function."""
    add, multiply = field(buckets)
    count = 1
    while buckets**count < inputs:
        count += 1
    made = []
    for coefficients in product(range(buckets), repeat=count):
        row = []
        for value in range(inputs):
            total = 0
            for place, c in enumerate(coefficients):
                total = add[total, multiply[c, value // buckets**place % buckets]]
            row.append(total)
        made.append(row)
    return made


def supporters(design: dict[str, Any]) -> list[set[int]]:
    """Return, for every report of a design, the values that it supports."""
    return _supporters(json.dumps(design))


@cache
def _supporters(text: str) -> list[set[int]]:
    design = json.loads(text)
    inputs = design["inputs"]
    match design["kind"]:
        case "direct":
            return [{value} for value in range(inputs)]
        case "subset":
            return [set(chosen) for chosen in combinations(range(inputs), design["size"])]
        case "hadamard":
            rows = 1 << inputs.bit_length()
            return [{v for v in range(inputs) if (r & (v + 1)).bit_count() % 2 == 0} for r in range(rows)]
        case "hashed":
            buckets = range(design["buckets"])
            maps = hashes(inputs, design["buckets"])
            return [{v for v in range(inputs) if row[v] == bucket} for row in maps for bucket in buckets]
        case "hadamard_sketch":
            width = design["width"]
            return [
                {v for v in range(inputs) if (row[v] & coefficient).bit_count() % 2 == bit}
                for row in hashes(inputs, width)
                for coefficient in range(width)
                for bit in range(2)
            ]
        case "projective":
            add, multiply = field(design["order"])
            vectors = [v for v in product(range(design["order"]), repeat=design["dimension"]) if any(v)]
            points = [v for v in vectors if next(x for x in v if x) == 1]
            # the assignment of points to values makes no difference: all hyperplanes are alike

            def met(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
                total = 0
                for x, y in zip(a, b, strict=True):
                    total = add[total, multiply[x, y]]
                return total == 0

            return [{v for v in range(inputs) if met(points[v], report)} for report in points]
        case kind:
            supporters_of: list[set[int]] = of_own_test(kind, "supporters")(inputs)
            return supporters_of


def of_own_test(kind: str, name: str) -> Callable[..., Any]:
    """Return a function of the test of a randomizer, which says once more what its class computes."""
    file = f"test_{kind.replace('-', '_')}"
    wanted = {
        "supporters": "supporters(inputs) for a SupportDesign: for every report, the values that it supports",
        "channel": "channel(document) for a FrequencyOracle: for every value, the probability of each report",
    }
    if find_spec(f"tests.local.{file}") is not None:
        function: Callable[..., Any] | None = getattr(import_module(f"tests.local.{file}"), name, None)
        if function is not None:
            return function
    raise AssertionError(f"write tests/local/{file}.py with the function {wanted[name]}, by the published definition")


def bits_of(chances: list[Fraction]) -> Row:
    return {
        bits: math.prod((p if bit else 1 - p for p, bit in zip(chances, bits, strict=True)), start=Fraction(1))
        for bits in product((0, 1), repeat=len(chances))
    }


def share(numerator: str) -> Fraction:
    return Fraction(int(numerator), UNIT)


def unary(width: int, value: int, coins: dict[str, str]) -> Row:
    return bits_of([share(coins["one"] if place == value else coins["zero"]) for place in range(width)])


def two_valued(design: dict[str, Any], numerator: str) -> list[Row]:
    sets = supporters(design)
    rows = []
    for value in range(design["inputs"]):
        inside = sum(value in each for each in sets)
        p = share(numerator)
        rows.append({r: p / inside if value in each else (1 - p) / (len(sets) - inside) for r, each in enumerate(sets)})
    return rows


def channel(part: dict[str, Any]) -> list[Row]:
    """P(report | input) of a scalar randomizer, from its document."""
    match part["kind"]:
        case "choice":
            return two_valued(part["design"], part["truth"])
        case "loloha":  # all reports about a value together tell its permanent answer, and no more
            return two_valued(part["design"], part["permanent"])
        case "unary":
            return [unary(part["inputs"], value, part["coins"]) for value in range(part["inputs"])]
        case "rappor":
            return [unary(part["inputs"], value, part["permanent"]) for value in range(part["inputs"])]
        case "sketch":
            width, coins = part["width"], part["coins"]
            maps = hashes(part["inputs"], width)
            return [
                {
                    (f, bits): p / len(maps)
                    for f, row in enumerate(maps)
                    for bits, p in unary(width, row[v], coins).items()
                }
                for v in range(part["inputs"])
            ]
        case "run":
            inputs, run = part["inputs"], part["run"]
            return [
                {
                    (start, bits): p / inputs
                    for start in range(inputs)
                    for bits, p in unary(run, (v - start) % inputs, part["coins"]).items()
                }
                for v in range(inputs)
            ]
        case "signed":
            return [signed(part, code) for code in range(2 * part["keys"] + 1)]
        case "table":
            return [{output: share(n) for output, n in enumerate(row)} for row in part["rows"]]
        case kind:
            rows: list[Row] = of_own_test(kind, "channel")(part)
            return rows


def signed(part: dict[str, Any], code: int) -> Row:
    own, positive = divmod(code, 2)
    cells = []
    for key in range(part["keys"]):
        there = share(part["one"] if key == own else part["zero"])
        sign = share(part["sign"]) if key == own else Fraction(1, 2)
        plus = sign if positive or key != own else 1 - sign
        cells.append({"+": there * plus, "-": there * (1 - plus), "0": 1 - there})
    return {
        states: math.prod((cell[state] for cell, state in zip(cells, states, strict=True)), start=Fraction(1))
        for states in product("+-0", repeat=part["keys"])
    }


def ratio_of(rows: list[Row]) -> Fraction | None:
    """Return the largest likelihood ratio; None if it is infinite."""
    for row in rows:
        assert sum(row.values()) == 1
    reports = set().union(*rows)
    if any(row.get(report, 0) <= 0 for row in rows for report in reports):
        return None
    return max(max(row[r] for row in rows) / min(row[r] for row in rows) for r in reports)


def randomizers(document: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """Return the way in which the parts of a spec are reported, and the parts."""
    match document["kind"]:
        case "range":
            return "one", document["oracles"]
        case "heavy_hitters":
            assert document["randomizer"]["kind"] == "sampled"
            return "one", document["randomizer"]["parts"]
        case "public_levels" | "block":  # the label is public, and so no part of what is protected
            return "one", [part["randomizer"] for part in document["parts"]]
        case "several":
            return ("one" if document["sharing"] == "sample" else "all"), [p["randomizer"] for p in document["parts"]]
        case _:
            return "one", [document["randomizer"]]


def stated(document: dict[str, Any]) -> float:
    return float(Fraction(document["epsilon"]))


def judged_by_definition(document: dict[str, Any]) -> None:
    how, parts = randomizers(document)
    if any(part.get("inputs", part.get("design", {}).get("inputs", 0)) > WRITTEN_OUT for part in parts):
        return  # left to the second judge
    ratios = [ratio_of(channel(part)) for part in parts]
    assert all(ratio is not None for ratio in ratios)
    found = [ratio for ratio in ratios if ratio is not None]
    worst = max(found) if how == "one" else math.prod(found, start=Fraction(1))
    proven = float(Fraction(document["proven_epsilon"]))
    assert math.log(worst) <= stated(document) * (1 + 1e-12)
    assert math.log(worst) == pytest.approx(proven, abs=2e-12)


# ----------------------------------------------------------------------------------- the second judge: many reports


def two_people(spec: Spec) -> list[Any]:
    """Return values that the spec must hardly distinguish, each of them many times."""
    many = np.ones(DRAWN)
    match spec:
        case Frequency() | Range():
            domain = list(spec.values if isinstance(spec, Frequency) and isinstance(spec.values, tuple) else range(2))
            return [np.array([domain[0]] * DRAWN), np.array([domain[-1]] * DRAWN)]
        case HeavyHitters():
            ends = ["a", "~" * (spec.bits // 8)] if spec.text else [3, (1 << spec.bits) - 5]
            return [np.array([end] * DRAWN, dtype=object if spec.text else np.uint64) for end in ends]
        case KeyValue():
            names = list(spec.keys) if isinstance(spec.keys, tuple) else [0]
            first = (np.array([names[0]] * DRAWN), spec.low * many, np.ones(DRAWN, dtype=int))
            last = (np.array([names[-1]] * DRAWN), spec.high * many, np.ones(DRAWN, dtype=int))
            return [first, last]
        case PublicLevels():
            return [(bound * many, np.zeros(DRAWN, dtype=int)) for bound in (spec.parts[0].low, spec.parts[0].high)]
        case Block():
            return [spec.parts[0].low * many, (spec.parts[0].high - 1e-6) * many]
        case Several():
            named = dict(zip(spec.names, spec.parts, strict=True))
            return [{name: end_of(part, end) for name, part in named.items()} for end in (0, -1)]
        case Mean() | Distribution():
            return [spec.low * many, spec.high * many]
        case Hiera() | GradedMean():
            return [spec.divisions[0] * many, spec.divisions[-1] * many]
        case _:
            raise AssertionError


def end_of(part: Frequency | Mean, end: int) -> np.ndarray:
    if isinstance(part, Mean):
        return np.full(DRAWN, (part.low, part.high)[end])
    domain = part.values if isinstance(part.values, tuple) else range(part.values)
    return np.array([domain[end]] * DRAWN)


def judged_by_reports(spec: Spec) -> None:
    counts = []
    for seed, values in enumerate(two_people(spec)):
        data = simulate(spec, values, seed=seed).data
        packed = data.reshape(DRAWN, -1).view(np.uint8)
        counts.append([Counter(column.tolist()) for column in packed.T])
    factor = math.exp(float(spec.epsilon))
    for first, second in zip(*counts, strict=True):
        for byte in set(first) | set(second):
            for one, two in ((first[byte], second[byte]), (second[byte], first[byte])):
                assert one - factor * two <= SLACK * math.sqrt(one + factor**2 * (two + 1)) + SLACK**2


# -------------------------------------------------------------------------------------------------------- the tests


def test_a_randomizer_without_its_definition_is_refused_in_words() -> None:
    for part, words in (
        ({"kind": "choice", "design": {"kind": "two-way", "inputs": 3}, "truth": "1"}, "supporters.inputs. for a Supp"),
        ({"kind": "two-way", "inputs": 3}, "channel.document. for a Freq"),
    ):
        with pytest.raises(AssertionError, match=rf"write tests/local/test_two_way.py with the function {words}"):
            channel(part)
    assert of_own_test("paley", "supporters")(3) == [{2}, {0}, {1}]


@pytest.mark.parametrize("name", SPECS)
def test_honest_specs_pass_both_judges(name: str) -> None:
    judged_by_definition(json.loads(dumps(SPECS[name])))
    judged_by_reports(SPECS[name])


def forge(name: str, every: int) -> None:
    """Try every so-manieth change of a spec."""
    for changed in islice(changes(json.loads(dumps(SPECS[name])), DONORS), len(name) % every, None, every):
        spec = accepted(changed)
        if spec is not None:
            judged_by_definition(json.loads(dumps(spec)))
            judged_by_reports(spec)
            assert audit(spec).holds


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_changed_in_one_place_is_refused_or_keeps_what_it_states(name: str) -> None:
    forge(name, every=7)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_no_change_in_any_one_place_makes_a_spec_state_too_little(name: str) -> None:
    forge(name, every=1)


@pytest.mark.parametrize("kind", ["labelled", "joint"])
def test_heavy_hitters_do_not_report_their_first_character_in_the_open(kind: str) -> None:
    document = json.loads(dumps(HeavyHitters.design(bits=48, text=True, epsilon=1)))
    document["randomizer"]["kind"] = kind
    with pytest.raises(InputError):
        loads(json.dumps(document))


@pytest.mark.parametrize("kind", ["sampled", "joint", "labelled"])
@pytest.mark.parametrize("name", ["grr", "mean", "distribution", "range", "hiera", "graded_mean", "key_value"])
def test_scalar_specs_take_no_composite(name: str, kind: str) -> None:
    document = json.loads(dumps(SPECS[name]))
    places = [(document["oracles"], 0)] if name == "range" else [(document, "randomizer")]
    for where, place in places:
        where[place] = {"kind": kind, "parts": [where[place]]}
    with pytest.raises(InputError):
        loads(json.dumps(document))


def test_composites_are_not_made_of_composites() -> None:
    scalar = SPECS["grr"].randomizer
    for outer, inner in product((Sampled, Joint, Labelled), repeat=2):
        with pytest.raises(InputError, match="no part is made of parts"):
            outer((scalar, inner((scalar, scalar))))
        with pytest.raises(InputError, match="at least one part"):
            outer(())
