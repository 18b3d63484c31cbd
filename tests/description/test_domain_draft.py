"""A draft describes what it can, says what it leaves out, and is refused until it is accepted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml

from sfumato.description.domain_fit import BINS, MOST_VALUES, draft_domain
from sfumato.description.draft import describe
from sfumato.description.findings import domain_findings
from sfumato.description.sensitive_columns import FindingKind
from sfumato.domain import Categorical, Domain, Integer, Real, Unit, Unknown
from sfumato.domain.document import accept, parse
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.errors import DomainError, TableError

MANY = MOST_VALUES + 50


def drafted(*, left_out: bool = False, **columns: list[object]):
    draft = draft_domain(open_table(pa.table(columns)))
    return draft.left_out if left_out else draft.domain.attributes


def test_values_that_can_be_listed_are_categories_and_missing_ones_a_cell() -> None:
    (sex,) = drafted(sex=["f", "m", None, "f"])
    assert sex == Categorical(name="sex", values=("f", "m"), unknown=Unknown.CATEGORY, nullable=True)
    (yes,) = drafted(yes=[True, False])
    assert yes == Categorical(name="yes", values=(False, True), unknown=Unknown.CATEGORY)


def test_whole_numbers_are_listed_while_few_and_binned_to_round_bounds_when_many() -> None:
    (age,) = drafted(age=[3, 0, 97])
    assert age == Integer(name="age", minimum=0, maximum=97, unknown=Unknown.CLAMP)
    (pay,) = drafted(pay=[-49_000, 1_345_000])
    assert (pay.minimum, pay.maximum, pay.edges[:3]) == (-50_000, 1_349_999, (-50_000, 0, 50_000))
    assert pay.declared <= 2 * BINS


def test_a_number_that_many_share_has_its_own_cell_and_cells_lie_where_rows_are() -> None:
    random = np.random.default_rng(2)
    gain = np.where(random.random(20_000) < 0.9, 0, random.lognormal(8, 1.2, 20_000).astype(int) + 1)
    (drafted_gain,) = drafted(gain=gain.tolist())
    assert drafted_gain.bounds(0) == (0, 0)
    assert drafted_gain.unknown is Unknown.CLAMP
    assert drafted_gain.declared <= 3 * BINS
    low, high = np.array([drafted_gain.bounds(code) for code in range(drafted_gain.declared)]).T
    codes = np.searchsorted(low, gain, side="right") - 1
    even = ((low + high) / 2)[codes]  # what rows drawn evenly from their cells have on average
    assert even.mean() == pytest.approx(gain.mean(), rel=0.1)
    (income,) = drafted(income=(np.sort(random.lognormal(10, 1, 5000)) + 0.5).tolist())
    counts, _ = np.histogram(random.lognormal(10, 1, 5000), income.edges)
    assert counts.max() < 500  # equal widths would put thousands in one cell


def test_what_the_owner_has_to_look_at_is_said_by_kind() -> None:
    numbers = np.arange(900) * 1_000_003 + 100_000_000
    reals = np.where(np.arange(900) % 3 == 0, 0.0, np.arange(900) + 0.25)
    reals[:90] = 12.5
    draft = draft_domain(open_table(pa.table({"ssn": numbers, "pay": reals, "age": np.arange(900) % 300})))
    columns = {finding.kind: dict(finding.columns) for finding in draft.findings}
    assert columns[FindingKind.IDENTIFIERS] == {"ssn": "nearly every row has a number of its own"}
    assert columns[FindingKind.POINTS] == {"pay": "0.0, 12.5"}
    assert columns[FindingKind.BINS] == {"pay": "", "age": ""}
    assert list(columns) == [FindingKind.IDENTIFIERS, FindingKind.POINTS, FindingKind.BINS]
    texts = [str(number) for number in numbers] + ["N"]
    assert set(draft_domain(open_table(pa.table({"ssn": texts, "sex": ["f"] * 901}))).left_out) == {"ssn"}


def test_real_numbers_that_many_rows_share_are_drafted_as_points() -> None:
    """A third of incomes is exactly 0, and a tenth is the minimum wage."""
    random = np.random.default_rng(3)
    income = random.lognormal(10, 1, 9000)
    income[:3000], income[3000:3900], income[3900:3903] = 0.0, 20_000.5, 12_345.25
    (drafted_income,) = drafted(income=income.tolist(), known=["a"] * 9000)[:1]
    assert drafted_income.points == (0.0, 20_000.5)  # not what three rows share
    table = open_table(pa.table({"income": income}))
    (counts,) = table.encode(Domain((drafted_income,)).accepted()).marginals([("income",)])
    found = dict(zip(drafted_income.labels(), reveal(counts).tolist(), strict=True))
    assert (found["0.0"], found["20000.5"]) == (3000, 900)
    (beside,) = drafted(x=[*[0.3] * 500, *[0.1 + 0.2] * 500, *np.linspace(0, 1, 500).tolist()])
    assert beside.points == (0.3, 0.1 + 0.2)  # neighboring doubles


def test_a_time_is_left_out_with_what_to_do() -> None:
    moments = pa.array([0, 1], pa.time64("us"))
    left_out = drafted(left_out=True, when=moments, known=["a", "b"])
    assert "years, days or hours" in left_out["when"]


def test_real_numbers_are_binned_from_their_finite_extremes() -> None:
    (score,) = drafted(score=[0.5, float("inf"), 2.25, None])
    assert isinstance(score, Real)
    assert score.minimum <= 0.5
    assert 2.25 <= score.maximum < 2.5
    assert score.nullable
    assert drafted(left_out=True, score=[float("inf"), float("nan")], known=["a", "a"]) == {"score": "no finite number"}


@pytest.mark.parametrize("lowest", [-1, 0])
@pytest.mark.parametrize("largest", [2**53 - 1, 1.7e308, 1.7976931348623157e308])
def test_a_number_that_stands_for_none_leaves_out_its_column_and_no_other(largest, lowest) -> None:
    columns = {"x": [*range(MANY), largest, lowest * largest], "known": ["a"] * (MANY + 2)}
    draft = draft_domain(open_table(pa.table(columns)))
    assert draft.domain.names == ("known",)
    assert list(draft.left_out) == ["x"]


def test_numbers_with_a_few_codes_among_them_are_numbers_and_the_codes_are_unknown() -> None:
    texts = [str(number) for number in range(MANY)] * 2 + ["N", "refused", None]
    (income,) = drafted(income=texts)
    assert (type(income), income.unknown, income.nullable) == (Integer, Unknown.CATEGORY, True)
    assert (income.minimum, income.maximum) == (0, 249)
    domain = draft_domain(open_table(pa.table({"income": texts}))).domain.accepted()
    (counts,) = open_table(pa.table({"income": texts})).encode(domain).marginals([("income",)])
    assert reveal(counts)[-2:].tolist() == [1, 2]  # one missing, two codes
    assert reveal(counts)[:-2].sum() == 2 * MANY


def test_a_fraction_among_the_numbers_makes_them_real() -> None:
    texts = [f"{number}.0" for number in range(MANY)] * 2
    assert isinstance(drafted(x=[*texts, "N"])[0], Integer)
    assert isinstance(drafted(x=[*texts, "0.5", "N"])[0], Real)


@pytest.mark.parametrize(
    "texts",
    [
        [f"name {number}" for number in range(MANY)],
        [f"{number:05d}" for number in range(MANY)],  # leading zeros: codes
        [str(number) for number in range(MANY)] + [f"code {number}" for number in range(20)],
    ],
    ids=["names", "codes", "too many codes"],
)
def test_text_that_is_neither_a_list_nor_numbers_is_left_out_and_named(texts) -> None:
    left_out = drafted(left_out=True, text=texts, known=["a"] * len(texts))
    assert left_out["text"] == "nearly every row has a text of its own"
    repeated = drafted(left_out=True, text=texts * 2, known=["a"] * len(texts) * 2)
    assert repeated["text"].startswith(f"text with {len(texts)} different values")
    with pytest.raises(TableError, match="write the domain by hand"):
        drafted(text=texts)


def test_an_empty_column_is_left_out() -> None:
    assert drafted(left_out=True, x=pa.array([None, None], pa.string()), y=["a", "b"]) == {"x": "no values at all"}


def test_a_draft_is_refused_until_it_is_accepted() -> None:
    domain = draft_domain(open_table(pa.table({"sex": ["f", "m"]}))).domain
    with pytest.raises(DomainError, match="draft"):
        domain.refuse_draft()
    domain.accepted().refuse_draft()


def encounters(people: int = 500, rows: int = 800) -> pa.Table:
    """A table of encounters of patients: of one patient 40, of a few ten, of the rest one or two."""
    patients = [0] * 40 + [1 + index // 10 for index in range(30)]
    patients += [10 + index % (people - 10) for index in range(rows - len(patients))]
    return pa.table(
        {
            "encounter_id": np.arange(rows) * 7 + 1_000_000,
            "patient_nbr": [100_000 + 13 * patient for patient in patients],
            "age": [20 + index % 60 for index in range(rows)],
        }
    )


def test_an_id_of_people_is_offered_as_the_unit_with_how_many_rows_it_has() -> None:
    draft = draft_domain(open_table(encounters()))
    assert draft.domain.unit == Unit("patient_nbr", rows=2)
    assert "patient_nbr" not in draft.domain
    told = draft.left_out["patient_nbr"]
    assert "494 values in 800 rows, at most 40 rows each, and for 99 % of the values at most 2" in told
    assert draft_domain(open_table(encounters().drop_columns("patient_nbr"))).domain.unit == Unit()


def test_a_number_of_anything_is_no_person_where_one_value_has_many_rows() -> None:
    years = [9 if index % 3 == 0 else index % 16 for index in range(1000)]
    draft = draft_domain(open_table(pa.table({"education_num": years, "age": [index % 60 for index in range(1000)]})))
    assert draft.domain.unit == Unit()
    assert "education_num" in draft.domain
    assert draft.hints == {
        "education_num": "named like an identifier, but 375 of 1,000 rows have one value: if its values are people, "
        "make it the unit"
    }
    named = draft_domain(open_table(pa.table({"patient_num": years, "age": [index % 60 for index in range(1000)]})))
    assert named.domain.unit.column == "patient_num"


def test_findings_about_a_description_are_named() -> None:
    table = open_table(encounters())
    draft = draft_domain(table)
    assert "encounter_id" not in draft.domain
    told = " ".join(map(str, domain_findings(draft.domain, table)))
    assert "identifier" not in told
    assert "one row is the unit" not in told
    age = Integer(name="age", minimum=0, maximum=120, unknown=Unknown.CLAMP)
    (only,) = domain_findings(Domain((age,)), table)
    assert only.kind is FindingKind.UNIT
    assert "one row is the unit" in str(only)
    assert "at most 40" in str(only)
    assert domain_findings(Domain((age,)), None) == ()
    encounter = Integer(name="encounter_id", minimum=0, maximum=10**8, edges=(0, 10**7), unknown=Unknown.CLAMP)
    assert domain_findings(Domain((encounter,)), None)[0].kind is FindingKind.IDENTIFIERS


def test_a_list_read_off_the_table_is_a_finding_and_a_code_book_is_none() -> None:
    words = open_table(pa.table({"word": ["a", "b", "c"]}))

    def kinds(*values: str, draft: bool) -> list[FindingKind]:
        attribute = Categorical(name="word", values=values, unknown=Unknown.DROP)
        return [finding.kind for finding in domain_findings(Domain((attribute,), draft=draft), words)]

    assert kinds("b", "a", "c", draft=True) == [FindingKind.VALUES]
    assert kinds("a", "b", "c", draft=False) == kinds("a", "b", "c", "d", draft=True) == []


@pytest.mark.parametrize("by_command", [True, False])
def test_an_accepted_description_holds_no_digest_of_what_the_draft_read(tmp_path: Path, *, by_command: bool) -> None:
    """The greatest income of the draft is replaced, because its digest would reveal it to anyone who tries all
    numbers.
    """
    rows = {
        "income": [float(17 * place % 4111) for place in range(900)],
        "age": [20 + place % 60 for place in range(900)],
    }
    draft = describe(pa.table(rows))
    draft["income"].bounds(0, 100_000)
    path = tmp_path / "d.yaml"
    draft.save(path)
    record = yaml.safe_load(path.read_text())["drafted"]
    digests = [record["hash"], *(each for columns in record["findings"].values() for each in columns.values())]
    if by_command:
        accepted = accept(path, by="Ann", confirmed=list(record["findings"]))
    else:
        accepted = json.dumps(draft.accept(by="Ann", confirm=draft.risks).describe())
    assert "Ann" in accepted
    assert "drafted" not in accepted
    assert not any(each in accepted for each in digests)
    assert parse(yaml.safe_load(accepted)).accepted_by is not None
