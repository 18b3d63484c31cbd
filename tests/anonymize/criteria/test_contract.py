"""The contract of criteria: what it refuses of every class, when the class is made, in Python and in text."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.anonymize.criteria.test_criteria import KINDS, NOBODY, classes_of, instances, tally

import sfumato as sf
from sfumato import anonymize
from sfumato.anonymize.criteria import (
    CRITERIA,
    AlphaK,
    CountedIn,
    Criterion,
    DeltaPresence,
    DistinctDiversity,
    KAnonymity,
    KMap,
    RecursiveDiversity,
    TCloseness,
)
from sfumato.anonymize.criteria.criterion import safe
from sfumato.anonymize.criteria.parameters import split_optional
from sfumato.anonymize.release.request import check_columns, parse_criterion
from sfumato.domain import Categorical, Domain, Unknown
from sfumato.errors import DomainError, InputError

TRIED: list[Any] = [
    None, True, np.True_, "rows", "nonsense", "2", b"s", 0, -1, 3, 10**400, 2.5, float("nan"), float("inf"), 0.5,
    Fraction(1, 3), Fraction(10**400), 1 + 2j, ["ill"], ("ill",), {}, CountedIn.ROWS, NOBODY, object(),
]  # fmt: skip
TEXTS = ["", "x", "rows", "2.5", "-1", "0", "nan", "inf", "1/0", "1/3", "1e999999999", "1e-9_9_9_9_9_9", "True", "None"]
FIELDS = [
    pytest.param(kind, name, id=f"{kind.name}-{name}") for kind in CRITERIA for name in kind.field_types
]  # fmt: skip


def is_of_type(value: object, hint: object) -> bool:
    of_type, optional = split_optional(hint)
    if value is None or isinstance(value, bool | np.bool_):
        return value is None and optional
    numbers: dict[object, Any] = {float: int | float, Fraction: int | float | Fraction}
    return isinstance(value, numbers.get(of_type, of_type))


def refuse_unusable(criterion: Criterion) -> None:
    """Fail for a criterion that cannot be stated, computed twice or read back from the journal."""
    assert str(criterion)
    if criterion.population is None:
        assert parse_criterion(criterion.spell()) == criterion
    if criterion.sensitive in (None, "s"):
        holds = bool(safe([criterion], classes_of([[2, 1, 0]], [4, 4, 4], [1]))[0])
        assert criterion.is_safe(tally([2, 1, 0], [4, 4, 4], 4, 3)) is holds


@pytest.mark.parametrize(("kind", "name"), FIELDS)
def test_a_wrong_value_of_any_field_is_refused_or_harmless(kind: type[Criterion], name: str) -> None:
    some = instances(kind)[-1]
    for value in TRIED:
        if is_of_type(value, kind.field_types[name]):
            with suppress(InputError):  # out of range
                refuse_unusable(replace(some, **{name: value}))
        else:
            with pytest.raises(InputError, match=rf"^{kind.name}: {name} is a"):
                replace(some, **{name: value})


@pytest.mark.parametrize(("kind", "name"), [each for each in FIELDS if "population" not in each.values[0].field_types])
def test_a_wrong_text_of_any_field_is_refused_or_harmless(kind: type[Criterion], name: str) -> None:
    parameters = {each.partition("=")[0]: each for each in instances(kind)[-1].spell().partition(":")[2].split(",")}
    for text in TEXTS:
        others = [each for key, each in parameters.items() if key != name]
        with suppress(InputError):
            refuse_unusable(parse_criterion(f"{kind.name}:{','.join([*others, f'{name}={text}'])}"))


@pytest.mark.parametrize("count", ["rows", "nonsense", None, True])
def test_what_is_counted_is_no_text(count: Any) -> None:
    """A text was counted as rows and stated as units."""
    with pytest.raises(InputError, match=r"^k-anonymity: count is a CountedIn \(units, rows\), not"):
        KAnonymity(5, count=count)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TCloseness(0.2, "ill", "nonsense"), "t-closeness: distance is a GroundDistance (equal, ordered)"),
        (lambda: TCloseness(0.2, "ill", "equal"), "t-closeness: distance is a GroundDistance (equal, ordered)"),
        (lambda: TCloseness("0.2", "ill", "equal"), "t-closeness: t is a number, not str"),
        (lambda: DistinctDiversity(2.5, "ill"), "distinct-diversity: l is a whole number, not float"),
        (lambda: DistinctDiversity(2, None), "distinct-diversity: sensitive is a text, not NoneType"),
        (lambda: DistinctDiversity(2, ["ill"]), "distinct-diversity: sensitive is a text, not list"),
        (lambda: RecursiveDiversity("3", 2, "ill"), "recursive-diversity: c is a number, not str"),
        (lambda: RecursiveDiversity(3, 2.5, "ill"), "recursive-diversity: l is a whole number, not float"),
        (lambda: AlphaK("0.5", 2, "ill"), "alpha-k: alpha is a number, not str"),
        (lambda: DeltaPresence("a", 1, NOBODY), "delta-presence: low is a number, not str"),
        (
            lambda: KMap(3, None),
            "k-map: population is a population, as sf.anonymize.population counts it, not NoneType",
        ),
    ],
)
def test_the_refusal_names_the_criterion_and_the_parameter(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        make()


def test_numbers_of_numpy_are_spelled_as_before() -> None:
    made = AlphaK(np.float64(0.5), np.int64(3), "ill", np.int8(1))
    assert (made.spell(), type(made.k)) == ("alpha-k:alpha=0.5,k=3,sensitive=ill,code=1", int)
    assert TCloseness(1, "ill", anonymize.GroundDistance.EQUAL).spell().startswith("t-closeness:t=1,")


@pytest.mark.parametrize(
    "text", ["k-anonymity:k=6,k=3", "distinct-diversity:l=2,l=1,sensitive=s", "k-anonymity:k=3,k=3"]
)
def test_a_parameter_that_is_given_twice_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"'[kl]' is given twice"):
        parse_criterion(text)


names = st.text(alphabet=st.one_of(st.sampled_from(',"= \t\n'), st.characters(exclude_categories=["Cs"])), max_size=8)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "sensitive" in kind.values[0].field_types])
@given(name=names)
@example("ill,ness")
@example('"ill","l=2')
@example('a"",b=""c')
@example("ill ")
def test_any_name_of_a_column_is_read_back(kind: type[Criterion], name: str) -> None:
    for count in CountedIn:
        criterion = replace(instances(kind)[-1], sensitive=name, count=count)
        assert parse_criterion(criterion.spell()) == criterion


@given(name=names.filter(lambda name: "," not in name and not name.startswith('"') and name == name.rstrip()))
def test_other_names_are_spelled_without_quotes(name: str) -> None:
    assert DistinctDiversity(2, name).spell() == f"distinct-diversity:l=2,sensitive={name}"


def test_text_may_have_spaces_and_a_comma_too_many() -> None:
    read = parse_criterion('distinct-diversity: l=2 , sensitive="ill, or ""well""" ,')
    assert read == DistinctDiversity(2, 'ill, or "well"')


def test_a_watched_value_is_named_and_is_one_of_the_domain() -> None:
    ill = Categorical(name="ill", values=("flu", "cold"), unknown=Unknown.CATEGORY)
    domain = Domain((ill, Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP)))
    alpha = Fraction(3, 10)
    assert AlphaK(alpha, 2, "ill").state(domain) == "(0.3, 2)-anonymity of ill"
    assert AlphaK(alpha, 2, "ill", 1).state(domain) == "(0.3, 2)-anonymity of ill (its value 'cold' alone)"
    assert str(AlphaK(alpha, 2, "ill", 1)) == "(0.3, 2)-anonymity of ill (its value of code 1 alone)"
    check_columns([AlphaK(alpha, 2, "ill", 2)], ["sex"], domain)
    with pytest.raises(InputError, match="code is at most 2, the last cell of 'ill', not 3"):
        check_columns([AlphaK(alpha, 2, "ill", 3)], ["sex"], domain)
    with pytest.raises(InputError, match="code must be at least 0"):
        AlphaK(alpha, 2, "ill", -1)
    with pytest.raises(InputError, match="both a quasi-identifier and sensitive"):
        check_columns([AlphaK(alpha, 2, "ill", 1)], ["ill"], domain)
    with pytest.raises(DomainError):
        check_columns([AlphaK(alpha, 2, "well", 1)], ["sex"], domain)


class Unordered(Enum):
    ONE = 1


WRONG_FIELDS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"sensitive": str}, {}, r"Wrong\.sensitive needs '= field\(\)', or None is its default"),
    ({"least_rows": int}, {}, r"Wrong\.least_rows needs '= field\(\)'"),
    ({"strict": bool}, {}, r"Wrong\.strict has a type that no criterion can have: <class 'bool'>"),
    ({"columns": tuple[str, ...]}, {}, r"Wrong\.columns has a type that no criterion can have: tuple"),
    ({"way": Unordered}, {}, r"Wrong\.way has a type that no criterion can have"),
    ({"either": int | str}, {}, r"Wrong\.either has a type that no criterion can have"),
    ({"either": int | str | None}, {"either": None}, r"Wrong\.either has a type that no criterion can have"),
    ({"population": int}, {"population": field()}, r"Wrong\.population has a type that no criterion can have"),
    ({"code": int | None}, {}, r"Wrong\.code needs '= None'"),
    ({"code": int | None}, {"code": 3}, r"Wrong\.code needs '= None'"),
    ({}, {"__post_init__": None}, "Wrong checks its values in _check_values"),
]


@pytest.mark.parametrize(("annotations", "members", "message"), WRONG_FIELDS)
def test_a_class_whose_fields_would_be_wrong_cannot_be_made(
    annotations: dict[str, Any], members: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        type("Wrong", (Criterion,), {"__annotations__": annotations, **members})


def test_a_class_of_supported_fields_can_be_made() -> None:
    members = {"__annotations__": {"sensitive": str, "code": int | None}, "sensitive": field(), "code": None}
    made = dataclass(frozen=True)(type("Right", (Criterion,), members))
    assert list(made.field_types) == ["count", "sensitive", "code"]


def test_every_criterion_is_exported() -> None:
    for kind in CRITERIA:
        assert getattr(anonymize, kind.__name__) is kind
        assert kind.__name__ in anonymize.__all__


ILL = Categorical(name="ill,ness", values=("flu", "cold"), unknown=Unknown.DROP)
TOWN = Categorical(name="town", values=("A", "B"), unknown=Unknown.DROP)


def opened(folder: Path) -> sf.Vault:
    table = pa.table({"town": ["A", "B"] * 10, "ill,ness": ["flu", "flu", "cold", "cold"] * 5})
    url = f"sqlite:///{folder / 'l.ledger'}"
    return sf.open(table, domain=Domain((TOWN, ILL)), ledger=url, limit=sf.Epsilon(1), create=True)


def test_a_recoding_of_a_column_with_a_comma_is_applied(tmp_path: Path) -> None:
    vault, diverse = opened(tmp_path), parse_criterion('distinct-diversity:l=2,sensitive="ill,ness"')
    release = anonymize.optimal(vault, quasi=["town"], criteria=[diverse], suppression="0", keep=["ill,ness"])
    release.save_recoding(tmp_path / "r.json")
    applied = anonymize.apply(vault, anonymize.load_recoding(tmp_path / "r.json"), keep=["ill,ness"])
    assert "distinct 2-diversity of ill,ness over" in applied.guarantee


def test_a_release_names_the_watched_value_and_refuses_one_that_is_not_there(tmp_path: Path) -> None:
    vault = opened(tmp_path)

    def release(code: int) -> anonymize.Anonymized:
        watched = AlphaK(Fraction(1, 2), 2, "ill,ness", code)
        return anonymize.optimal(vault, quasi=["town"], criteria=[watched], suppression="0", keep=["ill,ness"])

    assert "(0.5, 2)-anonymity of ill,ness (its value 'cold' alone) over" in release(1).guarantee
    entries = len(list(vault.ledger.journal()))
    with pytest.raises(InputError, match="code is at most 1, the last cell of 'ill,ness', not 99"):
        release(99)
    assert len(list(vault.ledger.journal())) == entries
