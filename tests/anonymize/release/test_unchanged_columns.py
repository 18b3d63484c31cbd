"""Columns that identify people are not published unchanged unless their owner names them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato import anonymize
from sfumato.anonymize import Anonymized, Cut, KAnonymity, Keep
from sfumato.domain import Categorical, Domain, Integer, Unit, Unknown
from sfumato.errors import InfeasibleError, InputError
from sfumato.ledger import open_ledger
from sfumato.vault.vault import Vault

ROWS = 600
AGE = Integer(name="age", minimum=20, maximum=59, unknown=Unknown.CLAMP)
SEX = Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP)
ILL = Categorical(name="ill", values=("yes", "no"), unknown=Unknown.DROP)
INCOME = Integer(name="income", minimum=0, maximum=10**6, edges=(0, 1000, 10**6), unknown=Unknown.CLAMP)
NOTE = Categorical(name="note", values=("none", "see file"), unknown=Unknown.CATEGORY)
DOMAIN = Domain((AGE, SEX, ILL, INCOME, NOTE))


def table(rows: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(7)
    notes = np.array(["none", "see file", "call 555-0100", "call 555-0199", None], dtype=object)
    return pa.table(
        {
            "age": rng.integers(20, 60, rows),
            "sex": rng.choice(["F", "M"], rows, p=[0.7, 0.3]).tolist(),
            "ill": rng.choice(["yes", "no"], rows).tolist(),
            "income": rng.permutation(rows),
            "note": notes[rng.choice(5, rows)].tolist(),
            "encounter": [f"E{number}" for number in range(rows)],
            "ward": rng.choice(["north", "south"], rows).tolist(),
        }
    )


def opened(folder: Path, source: pa.Table | None = None, domain: Domain = DOMAIN) -> Vault:
    ledger = f"sqlite:///{folder / 'people.ledger'}"
    return sf.open(
        table() if source is None else source, domain=domain, ledger=ledger, limit=sf.Epsilon(1), create=True
    )


def entries(folder: Path) -> list[str]:
    with open_ledger(f"sqlite:///{folder / 'people.ledger'}", dataset="default", limit=None) as ledger:
        return [entry.statement for entry in ledger.journal(after=1)]  # the first is of the version


def mondrian(source: Vault, *keep: str | Keep, quasi: tuple[str, ...] = ("age",)) -> Anonymized:
    return anonymize.mondrian(source, quasi=quasi, criteria=[KAnonymity(5)], keep=keep)


@pytest.mark.parametrize(
    ("column", "why", "distinct"),
    [
        ("encounter", "the domain does not describe it and it is nearly unique", "600 distinct values"),
        ("ward", "the domain does not describe it", "2 distinct values"),
        ("income", "it is nearly unique", "600 distinct values"),
        ("note", "it holds 2 values that the domain does not declare, like free text", "4 distinct values"),
    ],
)
def test_a_column_that_may_tell_people_apart_is_refused_and_its_owner_is_told_why(
    column: str, why: str, distinct: str, tmp_path: Path
) -> None:
    source = opened(tmp_path)
    with pytest.raises(InputError) as caught:
        mondrian(source, "ill", column)
    said = str(caught.value)
    assert f"'{column}' is not published as it is: {why} (for the owner alone: {distinct}" in said
    assert f"--keep-anyway {column}" in said
    assert not any(value in said for value in ("E1", "555", "north"))
    assert entries(tmp_path) == []


def test_columns_of_few_declared_values_are_kept(tmp_path: Path) -> None:
    release = mondrian(opened(tmp_path), "ill", "sex")
    assert Counter(release.rows["ill"].to_pylist()) == Counter(table()["ill"].to_pylist())


def test_a_missing_value_is_no_free_text(tmp_path: Path) -> None:
    place, column = 4, [None, "none", "see file"] * (ROWS // 3)
    release = mondrian(opened(tmp_path, table().set_column(place, "note", pa.array(column))), "note")
    assert release.rows["note"].null_count == ROWS // 3


@pytest.mark.parametrize("visits", [1, 5])
def test_a_value_of_one_person_is_nearly_unique_however_many_rows_repeat_it(visits: int, tmp_path: Path) -> None:
    people = ROWS // visits
    person = np.repeat(np.arange(people), visits)
    source = table().append_column("person", pa.array(person)).set_column(3, "income", pa.array(person))
    domain = Domain(DOMAIN.attributes, unit=Unit("person", rows=visits))
    said = f"'income'.* nearly unique .*{people} distinct values, units per value: 1 on average"
    with pytest.raises(InputError, match=said):
        mondrian(opened(tmp_path, source, domain), "income")


def test_unchanged_columns_are_named_in_the_statement_and_the_journal(tmp_path: Path) -> None:
    release = mondrian(opened(tmp_path), "ill", Keep(name="encounter", anyway=True))
    assert Counter(release.rows["encounter"].to_pylist()) == Counter(table()["encounter"].to_pylist())
    (stated,) = entries(tmp_path)
    assert stated == release.guarantee
    assert "published whatever they hold, by the owner's decision (--keep-anyway): encounter;" in stated
    assert stated.endswith("published as they are: ill, encounter")
    assert release.provenance["parameters"]["keep_anyway"] == ["encounter"]
    assert "--keep-anyway" not in mondrian(opened(tmp_path), "ill").guarantee


def test_the_id_of_people_is_never_kept_as_an_unchanged_column(tmp_path: Path) -> None:
    source = opened(tmp_path, domain=Domain(DOMAIN.attributes, unit=Unit("encounter", rows=1)))
    with pytest.raises(InputError, match="identifies people"):
        mondrian(source, Keep(name="encounter", anyway=True))


def released(method: str, source: Vault) -> Anonymized:
    quasi, criteria, keep = ["age", "sex"], [KAnonymity(5)], ["sex", "ill"]
    match method:
        case "optimal":
            return anonymize.optimal(source, quasi=quasi, criteria=criteria, suppression="0.05", keep=keep)
        case "samarati":
            return anonymize.samarati(source, quasi=quasi, criteria=criteria, suppression="0.05", keep=keep)
        case "k-member":
            return anonymize.k_member(source, quasi=quasi, k=5, keep=keep)
        case _:
            return anonymize.mondrian(source, quasi=quasi, criteria=criteria, keep=keep, cut=Cut(method))


@pytest.mark.parametrize("method", ["optimal", "samarati", "k-member", *Cut])
def test_a_quasi_identifier_that_is_kept_counts_and_is_generalised_by_nothing(method: str, tmp_path: Path) -> None:
    release = released(method, opened(tmp_path))
    rows = release.rows.to_arrow()
    assert rows.column_names == ["age", "sex", "ill"]
    sizes = Counter(zip(rows["age"].to_pylist(), rows["sex"].to_pylist(), strict=True))
    assert set(rows["sex"].to_pylist()) == {"F", "M"}
    assert min(sizes.values()) == release.facts["smallest_class"] >= 5
    assert len(sizes) <= release.facts["classes"]  # two classes may have the same labels
    assert release.facts["loss_metric"]["sex"] == release.facts["suppressed"] / ROWS
    assert release.guarantee.endswith("published as they are: sex, ill")


def test_the_means_of_microaggregation_are_of_rows_that_agree_in_what_is_kept(tmp_path: Path) -> None:
    release = anonymize.microaggregate(opened(tmp_path), quasi=["age", "income"], k=4, keep=["age"])
    assert set(release.rows["age"].to_pylist()) <= {str(age) for age in range(20, 60)}
    assert release.facts["loss_metric"]["age"] == 0


def test_too_few_rows_of_a_kept_value_are_refused_by_methods_that_suppress_nothing(tmp_path: Path) -> None:
    few = table().set_column(1, "sex", pa.array(["F"] * (ROWS - 3) + ["M"] * 3))
    with pytest.raises(InfeasibleError, match="equal values of the kept sex do not satisfy 5-anonymity"):
        mondrian(opened(tmp_path, few), "sex", quasi=("age", "sex"))
    source = opened(tmp_path, few)
    release = anonymize.optimal(
        source, quasi=["age", "sex"], criteria=[KAnonymity(5)], suppression="0.01", keep=["sex"]
    )
    assert set(release.rows["sex"].to_pylist()) == {"F"}


def test_a_recoding_refuses_to_keep_what_it_recodes(tmp_path: Path) -> None:
    source = opened(tmp_path)
    saved = mondrian(source).recoding
    with pytest.raises(InputError, match="published as the recoding says"):
        anonymize.apply(source, saved, keep=["age"])
    with pytest.raises(InputError, match="for the owner alone"):
        anonymize.apply(source, saved, keep=["encounter"])
    assert "encounter" in anonymize.apply(source, saved, keep=[Keep(name="encounter", anyway=True)]).guarantee
