"""Classes that count units: whole releases by every method, the lattice search, the recount, applied recodings."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.anonymize.criteria.test_units import CELLS, Row, grouped, slow

import sfumato as sf
from sfumato import anonymize
from sfumato.anonymize import Anonymized, CountedIn, Cut, KAnonymity, Keep, KMap, population
from sfumato.anonymize.criteria.closeness import GroundDistance, TCloseness
from sfumato.anonymize.criteria.criterion import Criterion
from sfumato.anonymize.criteria.diversity import AlphaK, DistinctDiversity, EntropyDiversity
from sfumato.anonymize.microdata import CountedTable, Microdata, from_groups
from sfumato.anonymize.release.recount import count, homogeneous, refuse_unsafe
from sfumato.anonymize.search import lattice_search
from sfumato.anonymize.search.lattice import Lattice, Problem, Vector
from sfumato.anonymize.search.lattice_search import least_loss
from sfumato.domain import Categorical, Domain, Integer, Unit, Unknown
from sfumato.domain.hierarchy.builders import order
from sfumato.engine.port import Recode, SparseTable
from sfumato.errors import InfeasibleError, InputError
from sfumato.vault.vault import Vault

AGE = Integer(name="age", minimum=20, maximum=59, unknown=Unknown.CLAMP)
TOWN = Categorical(name="town", values=("Aix", "Brest", "Caen"), unknown=Unknown.DROP)
ILL = Categorical(name="ill", values=("flu", "cold", "none"), unknown=Unknown.DROP)
WHO = Categorical(name="who", values=tuple(str(number) for number in range(300)), unknown=Unknown.DROP)
PATIENTS = Domain((AGE, TOWN, ILL, WHO), unit=Unit("patient", rows=6))
ONE = Keep(name="who", anyway=True)


def visits(seed: int, patients: int = 120) -> pa.Table:
    """Patients with one visit to six, mostly of one age and town, and a copy of their id that is published."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(patients), rng.integers(1, 7, patients))
    age, town = rng.integers(20, 60, patients)[patient], rng.integers(0, 3, patients)[patient]
    moved = rng.random(len(patient)) < 0.2
    return pa.table(
        {
            "patient": [f"p{number}" for number in patient],
            "who": [str(number) for number in patient],
            "age": np.where(moved, np.minimum(age + 1, 59), age),
            "town": np.array(TOWN.values)[np.where(moved, 0, town)].tolist(),
            "ill": rng.choice(ILL.values, len(patient)).tolist(),
        }
    )


def opened(folder: Path, table: pa.Table, domain: Domain = PATIENTS) -> Vault:
    folder.mkdir(exist_ok=True)
    ledger = f"sqlite:///{folder / 'visits.ledger'}"
    return sf.open(table, domain=domain, ledger=ledger, limit=sf.Epsilon(1), create=True)


def classes(release: Anonymized, names: tuple[str, ...] = ("age", "town")) -> dict[tuple[str, ...], list[str]]:
    rows = release.rows.to_arrow()
    found: dict[tuple[str, ...], list[str]] = {}
    for *key, who in zip(*(rows[name].to_pylist() for name in names), rows["who"].to_pylist(), strict=True):
        found.setdefault(tuple(key), []).append(who)
    return found


METHODS = ["optimal", "samarati", "k-member", "microaggregate", *Cut]


def released(method: str, source: Vault, k: int | KAnonymity) -> Anonymized:
    quasi, keep = ["age", "town"], ["ill", ONE]
    criteria = [k if isinstance(k, KAnonymity) else KAnonymity(k)]
    match method:
        case "optimal":
            return anonymize.optimal(source, quasi=quasi, criteria=criteria, suppression="0.1", keep=keep)
        case "samarati":
            return anonymize.samarati(source, quasi=quasi, criteria=criteria, suppression="0.1", keep=keep)
        case "k-member":
            return anonymize.k_member(source, quasi=quasi, k=k, keep=keep)
        case "microaggregate":
            return anonymize.microaggregate(source, quasi=["age"], k=k, keep=keep)
        case _:
            return anonymize.mondrian(source, quasi=quasi, criteria=criteria, keep=keep, cut=Cut(method))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(3))
def test_every_class_has_k_different_units_whatever_the_method(method: str, seed: int, tmp_path: Path) -> None:
    release = released(method, opened(tmp_path, visits(seed)), 4)
    found = classes(release, ("age",) if method == "microaggregate" else ("age", "town"))
    sizes = [len(set(who)) for who in found.values()]
    assert min(sizes) == release.facts["smallest_class"] >= 4
    assert release.facts["counted"] == "units"
    assert sum(map(len, found.values())) == release.facts["rows"] - release.facts["suppressed"]
    assert "counted in units: one patient counts once in a class" in release.guarantee
    if method not in ("optimal", "samarati"):
        assert release.facts["suppressed"] == 0
        assert len(found) > 1


@pytest.mark.parametrize("method", METHODS)
def test_rows_are_counted_on_request_and_the_statement_says_what_that_means(method: str, tmp_path: Path) -> None:
    source = opened(tmp_path, visits(1))
    release = released(method, source, KAnonymity(4, count=CountedIn.ROWS))
    found = classes(release, ("age",) if method == "microaggregate" else ("age", "town"))
    assert min(map(len, found.values())) == release.facts["smallest_class"] >= 4
    assert min(len(set(who)) for who in found.values()) < 4
    assert "counted in rows (--count rows), so that all rows of a class may be of one patient" in release.guarantee
    assert release.facts["counted"] == "rows"
    asked = release.provenance["parameters"]["criteria"]
    assert asked == ["k-anonymity:k=4,count=rows"]
    by_unit = released(method, source, 4)
    assert by_unit.provenance["parameters"]["criteria"] == ["k-anonymity:k=4"]
    if method == "optimal":
        assert by_unit.facts["loss_metric_sum"] >= release.facts["loss_metric_sum"]


def test_units_of_one_row_each_are_divided_as_rows_are(tmp_path: Path) -> None:
    table = visits(2).group_by("patient").aggregate([(name, "min") for name in ("who", "age", "town", "ill")])
    table = table.rename_columns(["patient", "who", "age", "town", "ill"])
    for method in METHODS:
        units = released(method, opened(tmp_path / f"{method}-u", table), 4)
        rows = released(method, opened(tmp_path / f"{method}-r", table), KAnonymity(4, count=CountedIn.ROWS))
        assert units.facts["loss_metric_sum"] == pytest.approx(rows.facts["loss_metric_sum"], rel=0.2)
        if method != "k-member":
            ours, theirs = units.recoding.describe(), rows.recoding.describe()
            assert {**ours, "criteria": []} == {**theirs, "criteria": []}


def test_criteria_of_one_release_count_the_same(tmp_path: Path) -> None:
    criteria = [KAnonymity(2), DistinctDiversity(2, "ill", count=CountedIn.ROWS)]
    with pytest.raises(InputError, match="all criteria of a release count units, or all count rows"):
        anonymize.mondrian(opened(tmp_path, visits(0)), quasi=["age"], criteria=criteria)


@pytest.mark.parametrize("method", ["optimal", "mondrian"])
def test_a_sensitive_value_that_all_units_of_a_class_have_is_no_diversity(method: str, tmp_path: Path) -> None:
    """Everybody has flu in one row and something else in another: rows are diverse, people are not."""
    rng = np.random.default_rng(3)
    patient = np.repeat(np.arange(60), 2)
    ill = np.where(np.arange(120) % 2, "flu", rng.choice(["cold", "none"], 120))
    age = rng.integers(20, 60, 60)[patient]
    who = patient.astype(str)
    town = ["Aix"] * 120
    table = pa.table({"patient": patient, "who": who, "age": age, "town": town, "ill": ill.tolist()})

    def release(count: CountedIn, folder: str) -> Anonymized:
        criteria = [KAnonymity(2, count=count), DistinctDiversity(2, "ill", count=count)]
        source = opened(tmp_path / folder, table)
        if method == "optimal":
            return anonymize.optimal(source, quasi=["age"], criteria=criteria, suppression="0", keep=["ill"])
        return anonymize.mondrian(source, quasi=["age"], criteria=criteria, keep=["ill"])

    assert "counted in rows" in release(CountedIn.ROWS, "rows").guarantee
    with pytest.raises(InfeasibleError, match="distinct 2-diversity"):
        release(CountedIn.UNITS, "units")
    bare = anonymize.mondrian(opened(tmp_path / "bare", table), quasi=["age"], criteria=[KAnonymity(3)], keep=["ill"])
    assert bare.facts["homogeneous"]["ill"] == 120  # an attacker who finds a class knows that its people have flu
    assert "100.000% for ill" in bare.guarantee


def test_an_applied_recoding_counts_what_it_was_made_to_count(tmp_path: Path) -> None:
    for number, k in enumerate((KAnonymity(4), KAnonymity(4, count=CountedIn.ROWS))):
        saved = released("optimal", opened(tmp_path / f"old{number}", visits(0)), k).recoding
        release = anonymize.apply(opened(tmp_path / f"new{number}", visits(5, 80)), saved, keep=[ONE])
        by_class = classes(release)
        counted = [len(set(who)) if number == 0 else len(who) for who in by_class.values()]
        assert min(counted) == release.facts["smallest_class"] >= 4
        assert ("--count rows" in release.guarantee) == (number == 1)


def test_people_of_a_population_are_its_units(tmp_path: Path) -> None:
    everybody = visits(0)
    table = everybody.take(np.flatnonzero(np.array(everybody["who"].to_pylist(), dtype=int) % 2))
    around = sf.open_table(everybody).encode(PATIENTS)
    source, quasi = opened(tmp_path, table), ["age", "town"]
    release = anonymize.optimal(
        source, quasi=quasi, criteria=[KMap(6, population(around, quasi))], suppression="0.2", keep=[ONE]
    )
    levels = release.facts["levels"]
    by_rows = anonymize.optimal(
        source,
        quasi=quasi,
        criteria=[KMap(6, population(around, quasi), count=CountedIn.ROWS)],
        suppression="0.2",
        keep=[ONE],
    )
    assert sum(levels.values()) > sum(by_rows.facts["levels"].values())


def test_too_few_units_are_told_as_units(tmp_path: Path) -> None:
    source = opened(tmp_path, visits(0, 20))
    with pytest.raises(InfeasibleError, match="the largest k that this table can meet is 20"):
        released("optimal", source, 21)
    with pytest.raises(InfeasibleError, match="the largest k that this table can meet is 20"):
        released("k-member", source, 21)


SIZES = (4, 3)
TABLES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 7), st.integers(0, CELLS - 1)),
    min_size=4,
    max_size=24,
)
SETS: list[tuple[Criterion, ...]] = [
    (KAnonymity(2),),
    (KAnonymity(3),),
    (KAnonymity(2), DistinctDiversity(2, "s")),
    (KAnonymity(2), EntropyDiversity(1.7, "s")),
    (AlphaK(Fraction(2, 3), 2, "s"),),
    (KAnonymity(2), TCloseness(0.4, "s", GroundDistance.ORDERED)),
]


def counted(table: list[tuple[int, int, int, int]]) -> Microdata:
    groups = grouped([(a, unit, b, s) for a, b, unit, s in table], ("a", "b", "s"))
    return from_groups(groups, ("a", "b"), sizes={"a": 4, "b": 3, "s": CELLS}, declared={"s": CELLS})


def brute(task: Problem, table: list[tuple[int, int, int, int]], vector: Vector) -> tuple[int, Fraction]:
    """Suppressed rows and loss of one vector, from the rows themselves."""
    found: dict[tuple[int, ...], list[Row]] = {}
    for a, b, unit, s in table:
        cells = zip(task.hierarchies, vector, (a, b), strict=True)
        found.setdefault(tuple(int(h.levels[v].cells[code]) for h, v, code in cells), []).append((0, unit, s))
    rows: list[Row] = [(0, unit, s) for _, _, unit, s in table]
    suppressed, loss = 0, Fraction(0)
    for key, part in found.items():
        if all(slow(criterion, part, rows, 0, CELLS) for criterion in task.criteria):
            levels = [hierarchy.levels[level] for hierarchy, level in zip(task.hierarchies, vector, strict=True)]
            loss += len(part) * sum(
                Fraction(float(level.losses[cell])) for level, cell in zip(levels, key, strict=True)
            )
        else:
            suppressed, loss = suppressed + len(part), loss + 2 * len(part)
    return suppressed, loss


@pytest.mark.parametrize("small", [0, 1 << 16])  # a lattice above it is large
@settings(max_examples=80, deadline=None)
@given(table=TABLES, criteria=st.sampled_from(SETS), allowed=st.sampled_from([0, 1, 3, 30]))
def test_the_search_finds_the_least_loss_of_all_recodings(
    small: int, table: list[tuple[int, int, int, int]], criteria: tuple[Criterion, ...], allowed: int
) -> None:
    """The search runs over boxes, and over targets and buckets as in large lattices."""
    data = counted(table)
    assume(data.holders >= 3)
    hierarchies = tuple(
        order(name, [str(code) for code in range(size)], fanout=2) for name, size in zip(("a", "b"), SIZES, strict=True)
    )
    most = min(allowed, len(table))
    task = Problem(data=data, hierarchies=hierarchies, criteria=criteria, allowed=most, weights=(1.0, 1.0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lattice_search, "SMALL_LATTICE", small)
        found = least_loss(Lattice(task))
    vectors = itertools.product(*(range(top + 1) for top in task.heights))
    judged = {vector: brute(task, table, vector) for vector in vectors}
    feasible = {vector: loss for vector, (out, loss) in judged.items() if out <= most}
    assert found.certificate.proven
    if not feasible:
        assert found.node is None
        return
    assert found.node is not None
    assert found.node.suppressed == judged[found.node.vector][0] <= most
    assert math.isclose(found.node.loss, min(feasible.values()), abs_tol=1e-9)


TABLE = SparseTable(
    ("a", "s"),
    np.array([[0, 0], [0, 0], [0, 1], [1, 0], [1, 0], [2, 1]], dtype=np.uint8),
    np.array([3, 1, 1, 1, 1, 1]),
    np.array([7, 8, 7, 8, 9, 10]),
)


def recode(classes_of: list[int], names: list[str], rows: list[int] | None = None) -> Recode:
    return Recode(
        attributes=("a",),
        levels=(np.arange(3, dtype=np.uint32),),
        classes=np.array(classes_of, dtype=np.uint32)[:, None],
        labels=pa.table({"a": names}),
        rows=None if rows is None else np.array(rows),
    )


def test_the_recount_counts_units_by_itself() -> None:
    found = count(CountedTable(TABLE), recode([0, 1, 2], ["x", "x", "y"]))
    assert (found.counts.tolist(), found.sizes.tolist()) == ([7, 1], [3, 1])
    assert [held.having for held in found.values["s"]] == [[3, 1], [0, 1]]
    assert found.values["s"][0].several == {frozenset({0, 1}): 1}
    assert (found.everyone["s"].having, found.everyone["s"].total) == ([3, 2], 4)
    alone = count(CountedTable(TABLE), recode([0], ["x"]))
    refuse_unsafe(alone, [KAnonymity(2)], {})
    with pytest.raises(InfeasibleError, match="counted again, 1 classes do not satisfy 3-anonymity"):
        refuse_unsafe(alone, [KAnonymity(3)], {})  # of five rows


def test_the_recount_deals_no_rows_of_units_that_have_several() -> None:
    whole = recode([0, 1, 2], ["x", "x", "y"], [5, 2, 1])
    assert count(CountedTable(TABLE), whole).sizes.tolist() == [3, 1]
    with pytest.raises(InfeasibleError, match="deals rows of units that have several"):
        count(CountedTable(TABLE), recode([0, 0, 1], ["x", "y", "y"], [3, 2, 2]))
    sole = SparseTable(("a",), np.zeros((4, 1), np.uint8), np.ones(4, np.int64), np.arange(4))
    assert count(CountedTable(sole), recode([0, 0], ["x", "y"], [3, 1])).sizes.tolist() == [3, 1]


def test_a_class_is_homogeneous_if_all_its_units_share_a_value() -> None:
    assert homogeneous(TABLE, recode([0, 1, 2], ["x", "x", "y"]), 2) == 8  # all of x have the first value
    other = SparseTable(TABLE.attributes, TABLE.codes, TABLE.counts)
    assert homogeneous(other, recode([0, 1, 2], ["x", "x", "y"]), 2) == 1


def test_a_patient_with_five_visits_is_no_class_of_five(tmp_path: Path) -> None:
    many = [("p0", "0", 50, "Aix", "flu")] * 5 + [(f"p{n}", str(n), 20 + n % 3, "Aix", "cold") for n in range(1, 61)]
    table = pa.table(
        dict(zip(("patient", "who", "age", "town", "ill"), map(list, zip(*many, strict=True)), strict=True))
    )
    release = anonymize.optimal(
        opened(tmp_path, table), quasi=["age"], criteria=[KAnonymity(5)], suppression="0.1", keep=["ill", ONE]
    )
    assert "0" not in release.rows["who"].to_pylist()
    assert Counter(release.rows["age"].to_pylist()) == {"20": 20, "21": 20, "22": 20}
