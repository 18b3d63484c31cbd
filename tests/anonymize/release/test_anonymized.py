from __future__ import annotations

import csv
import itertools
import math
import resource
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import sfumato as sf
from sfumato import anonymize
from sfumato.anonymize import Anonymized, KAnonymity, Keep, KMap, Missing, Quasi, parse_criterion
from sfumato.anonymize.criteria.criterion import Criterion
from sfumato.anonymize.full_domain import Extent
from sfumato.anonymize.release.recoding import FullDomainRecoding, load_recoding, parse_recoding
from sfumato.anonymize.release.request import population
from sfumato.domain import Categorical, Domain, Integer, Unit, Unknown
from sfumato.domain.hierarchy.builders import flat
from sfumato.engine.open import open_table
from sfumato.errors import DomainError, InfeasibleError, InputError, SfumatoError
from sfumato.vault.vault import Vault

ROWS = 400
DOMAIN = Domain(
    (
        Integer(name="age", minimum=20, maximum=59, unknown=Unknown.CLAMP),
        Categorical(name="town", values=("Aix", "Brest", "Caen"), unknown=Unknown.DROP, nullable=True),
        Categorical(name="ill", values=("yes", "no"), unknown=Unknown.DROP),
    )
)
K3: list[Criterion] = [KAnonymity(3)]


def people(seed: int = 0, rows: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(seed)
    towns = np.array(["Aix", "Brest", "Caen", None], dtype=object)
    return pa.table(
        {
            "name": [f"person {number}" for number in range(rows)],
            "age": rng.integers(20, 60, rows),
            "town": towns[rng.choice(4, rows, p=[0.6, 0.3, 0.08, 0.02])].tolist(),
            "ill": rng.choice(["yes", "no"], rows).tolist(),
        }
    )


def vault(folder: Path, table: pa.Table | None = None, domain: Domain = DOMAIN) -> Vault:
    ledger = f"sqlite:///{folder / 'people.ledger'}"
    return sf.open(people() if table is None else table, domain=domain, ledger=ledger, limit=sf.Epsilon(1), create=True)


def classes(rows: pa.Table, names: tuple[str, ...] = ("age", "town")) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(rows[name].to_pylist() for name in names), strict=True))


METHODS = ["optimal", "samarati", "mondrian", "relaxed", "k_member"]


def released(method: str, source: Vault, k: int = 3) -> Anonymized:
    quasi, keep = ["age", "town"], ["ill"]
    criteria = [KAnonymity(k)]
    match method:
        case "optimal":
            return anonymize.optimal(source, quasi=quasi, criteria=criteria, suppression="0.05", keep=keep)
        case "samarati":
            return anonymize.samarati(source, quasi=quasi, criteria=criteria, suppression="0.05", keep=keep)
        case "mondrian":
            return anonymize.mondrian(source, quasi=quasi, criteria=criteria, keep=keep)
        case "relaxed":
            return anonymize.mondrian(source, quasi=quasi, criteria=criteria, keep=keep, cut=anonymize.Cut.RELAXED)
        case _:
            return anonymize.k_member(source, quasi=quasi, k=k, keep=keep)


@pytest.mark.parametrize("method", METHODS)
def test_every_class_of_the_released_rows_is_large_enough(method: str, tmp_path: Path) -> None:
    release = released(method, vault(tmp_path))
    rows = release.rows.to_arrow()
    assert rows.column_names == ["age", "town", "ill"]
    assert min(classes(rows).values()) >= 3
    assert len(rows) == ROWS - release.facts["suppressed"]
    assert "name" not in rows.column_names


@pytest.mark.parametrize("method", METHODS)
def test_rows_keep_their_sensitive_values(method: str, tmp_path: Path) -> None:
    """Each published row is one row of the table: its cells hold the original values, one for one."""
    source = people()
    rows = released(method, vault(tmp_path, source)).rows.to_arrow()
    if len(rows) == ROWS:
        assert Counter(rows["ill"].to_pylist()) == Counter(source["ill"].to_pylist())
    exact = rows.filter(pa.compute.invert(pa.compute.match_substring(rows["age"], "..")))
    exact = exact.filter(pa.compute.is_in(exact["town"], pa.array(["Aix", "Brest", "Caen"])))
    original = Counter(zip(map(str, source["age"].to_pylist()), source["town"].to_pylist(), strict=True))
    assert classes(exact) <= original


def test_rows_come_in_random_order(tmp_path: Path) -> None:
    release = released("mondrian", vault(tmp_path), k=1)
    orders = {tuple(released("mondrian", vault(tmp_path), k=1).rows.to_arrow()["age"].to_pylist()) for _ in range(2)}
    assert release.facts["loss_metric_sum"] == 0
    assert len(orders) == 2
    assert tuple(map(str, people()["age"].to_pylist())) not in orders


def test_the_journal_says_what_is_promised(tmp_path: Path) -> None:
    from sfumato.ledger import open_ledger

    release = released("optimal", vault(tmp_path))
    with open_ledger(f"sqlite:///{tmp_path / 'people.ledger'}", dataset="default", limit=None) as ledger:
        (entry,) = ledger.journal(after=1)  # the first entry is of the table's version
    assert entry.statement == release.guarantee
    for words in (
        "no DP guarantee",
        "3-anonymity",
        "quasi-identifiers age, town",
        "attacker: prosecutor",
        f"{release.facts['suppressed']} of {ROWS} rows are suppressed",
        f"Loss Metric is {release.facts['loss_metric_sum']:.6g}",
    ):
        assert words in release.guarantee


def test_every_set_of_kept_columns_is_a_release_of_its_own(tmp_path: Path) -> None:
    from sfumato.ledger import open_ledger

    source = vault(tmp_path)
    bare = anonymize.k_member(source, quasi=["age", "town"], k=3)
    kept = anonymize.k_member(source, quasi=["age", "town"], k=3, keep=["ill"])
    assert bare.recoding.describe() == kept.recoding.describe()  # nothing to intersect
    with open_ledger(f"sqlite:///{tmp_path / 'people.ledger'}", dataset="default", limit=None) as ledger:
        said = [entry.statement for entry in ledger.journal(after=1)]
    assert [statement.rpartition("; ")[2] for statement in said] == [
        "published as they are: none",
        "published as they are: ill",
    ]
    assert kept.provenance["parameters"]["keep"] == ["ill"]


def test_the_column_that_tells_people_apart_is_never_kept(tmp_path: Path) -> None:
    source = vault(tmp_path, domain=Domain(DOMAIN.attributes, unit=Unit("name", rows=1)))
    with pytest.raises(InputError, match="'name' identifies people"):
        anonymize.mondrian(source, quasi=["age"], criteria=K3, keep=["name"])


def test_a_recoding_that_keeps_no_class_of_the_new_rows_suppresses_them_all(tmp_path: Path) -> None:
    young = pa.table({"age": [20] * 5, "town": ["Aix"] * 5, "ill": ["no"] * 5})
    quasi = [Quasi(name="town", hierarchy=flat("town", ["Aix", "Brest", "Caen"]))]
    saved = anonymize.optimal(vault(tmp_path, young), quasi=quasi, criteria=K3, suppression="0").recoding
    (tmp_path / "new").mkdir()
    new = vault(tmp_path / "new", young.set_column(1, "town", pa.array(["Caen"] * 5)))
    release = anonymize.apply(new, saved, keep=["ill"])
    assert len(release.rows) == 0
    assert release.facts["suppressed"] == 5
    assert release.facts["loss_metric_sum"] == 1
    release.write(tmp_path / "none.csv")
    assert (tmp_path / "none.csv").read_text(encoding="utf-8").count("\n") <= 1


def test_asking_twice_gives_the_same_classes_and_one_entry(tmp_path: Path) -> None:
    first, second = released("k_member", vault(tmp_path)), released("k_member", vault(tmp_path))
    assert first.recoding.describe() == second.recoding.describe()
    assert first.provenance["journal_entry"] == second.provenance["journal_entry"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_written_files_hold_the_same_classes(method: str, suffix: str, tmp_path: Path) -> None:
    release = released(method, vault(tmp_path))
    path = tmp_path / f"out{suffix}"
    release.write(path)
    read = pyarrow.parquet.read_table(path) if suffix == ".parquet" else None
    if read is None:
        with path.open(encoding="utf-8") as file:
            read = pa.Table.from_pylist(list(csv.DictReader(file)))
    assert classes(read) == classes(release.rows.to_arrow())
    assert sorted(p.name for p in tmp_path.iterdir() if "out" in p.name) == [path.name]
    with pytest.raises(InputError, match="exists"):
        release.write(path)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_kept_text_may_hold_line_ends_and_quotes(suffix: str, tmp_path: Path) -> None:
    notes = ["two\nlines", 'a "quote", and a comma', "", "\r\n"] * (ROWS // 4)
    source = vault(tmp_path, people().append_column("note", pa.array(notes)))
    release = anonymize.mondrian(source, quasi=["age"], criteria=K3, keep=[Keep(name="note", anyway=True)])
    path = tmp_path / f"out{suffix}"
    release.write(path)
    if suffix == ".parquet":
        found = pyarrow.parquet.read_table(path)["note"].to_pylist()
    else:
        with path.open(encoding="utf-8", newline="") as file:
            found = [row["note"] for row in csv.DictReader(file)]
    assert Counter(found) == Counter(notes)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_release_without_rows_is_a_file_with_a_header(suffix: str, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    recoding = released("optimal", vault(tmp_path, people())).recoding
    release = anonymize.apply(vault(tmp_path / "new", people(1, 2)), recoding)
    assert release.facts["suppressed"] == 2
    path = tmp_path / f"out{suffix}"
    release.write(path)
    read = pyarrow.parquet.read_table(path) if suffix == ".parquet" else pyarrow.csv.read_csv(path)
    assert (len(read), read.column_names) == (0, ["age", "town"])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_full_disk_is_named_and_nothing_is_left(suffix: str, tmp_path: Path) -> None:
    keep = [Keep(name="name", anyway=True)]
    release = anonymize.mondrian(vault(tmp_path, people(0, 40_000)), quasi=["age"], criteria=K3, keep=keep)
    before = sorted(tmp_path.iterdir())
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 13, most))  # a file that grows beyond fails, as on a full disk
    try:
        with pytest.raises(SfumatoError, match=f"cannot write .*out{suffix}: ") as failure:
            release.write(tmp_path / f"out{suffix}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert failure.value.exit_code == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_column_cannot_pass_for_the_number_of_rows(tmp_path: Path) -> None:
    table = people().append_column("rows of the class", pa.array([1] * ROWS))
    with pytest.raises(InputError, match="rename it"):
        anonymize.mondrian(vault(tmp_path, table), quasi=["age"], criteria=K3, keep=["rows of the class"])


def test_a_planted_broken_rewriting_never_leaves(tmp_path: Path) -> None:
    release = released("optimal", vault(tmp_path))
    decision = release.decision
    level = decision.recode.levels[1].copy()
    level[0], level[1] = level[1], level[0]  # two towns swapped, after the plan was verified
    recode = replace(decision.recode, levels=(decision.recode.levels[0], level))
    broken = replace(release, decision=replace(decision, recode=recode))
    with pytest.raises(InfeasibleError, match="not those that were verified"):
        _ = broken.rows
    with pytest.raises(InfeasibleError, match="not those that were verified"):
        broken.write(tmp_path / "out.parquet")
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


@pytest.mark.parametrize("method", ["optimal", "mondrian", "k_member"])
def test_a_saved_recoding_is_applied_to_new_rows(method: str, tmp_path: Path) -> None:
    release = released(method, vault(tmp_path))
    release.save_recoding(tmp_path / "recoding.json")
    saved = load_recoding(tmp_path / "recoding.json")
    assert saved.describe() == release.recoding.describe()
    (tmp_path / "new").mkdir()
    new = anonymize.apply(vault(tmp_path / "new", people(seed=1, rows=150)), saved, keep=["ill"])
    rows = new.rows.to_arrow()
    assert 0 < len(rows) == 150 - new.facts["suppressed"]
    assert min(classes(rows).values()) >= 3
    assert set(classes(rows)) <= set(classes(release.rows.to_arrow())) or method != "optimal"
    again = anonymize.apply(vault(tmp_path, people()), saved).rows.to_arrow()
    if method == "optimal":
        assert classes(again) == classes(release.rows.to_arrow())


def test_damaged_recodings_are_refused(tmp_path: Path) -> None:
    document = released("optimal", vault(tmp_path)).recoding.describe()
    for change in ({"sfumato_recoding": 9}, {"kept": [[99, 99]]}, {"kept": [[0]]}, {"criteria": []}, {"kind": "other"}):
        with pytest.raises(InputError, match="recoding"):
            parse_recoding(document | change)
    with pytest.raises(InputError, match="recoding"):
        parse_recoding({})
    with pytest.raises(InputError, match="damaged"):
        parse_recoding(document | {"kept": [[10**30]]})
    for text in ("no", "[" * 100_000, "9" * 5000, '{"kind": "local", "kind": "full_domain"}'):
        (tmp_path / "text.json").write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match="cannot read"):
            load_recoding(tmp_path / "text.json")


def test_a_recoding_whose_losses_or_boxes_were_changed_states_no_loss(tmp_path: Path) -> None:
    full = released("optimal", vault(tmp_path)).recoding.describe()
    local = released("mondrian", vault(tmp_path)).recoding.describe()
    parse_recoding(full)
    parse_recoding(local)
    for loss in (float("nan"), float("inf"), -0.5, 5.0):
        first, *others = full["attributes"]
        changed = {**first, "losses": [loss, *first["losses"][1:]]}
        with pytest.raises(InputError, match="damaged"):
            parse_recoding(full | {"attributes": [changed, *others]})
        row, *rows = local["losses"]
        with pytest.raises(InputError, match="damaged"):
            parse_recoding(local | {"losses": [[loss, *row[1:]], *rows]})
    low, *lows = local["low"]
    with pytest.raises(InputError, match="damaged"):
        parse_recoding(local | {"low": [[10**6, *low[1:]], *lows]})
    with pytest.raises(InputError, match="damaged"):
        parse_recoding(local | {"names": ["ab", *local["names"][1:]]})


def test_missing_values_are_a_category_or_suppress_their_rows(tmp_path: Path) -> None:
    missing = people()["town"].null_count
    assert missing
    hierarchy = flat("town", ["Aix", "Brest", "Caen"])
    own = anonymize.optimal(
        vault(tmp_path),
        quasi=[Quasi(name="town", hierarchy=hierarchy)],
        criteria=[KAnonymity(1)],
        suppression="0",
    )
    assert classes(own.rows.to_arrow(), ("town",))["(missing)",] == missing
    quasi = [Quasi(name="town", hierarchy=hierarchy, missing=Missing.SUPPRESS)]
    out = anonymize.optimal(vault(tmp_path), quasi=quasi, criteria=[KAnonymity(1)], suppression="0.5")
    assert out.facts["suppressed"] == missing
    assert len(out.rows) == ROWS - missing
    top = anonymize.optimal(vault(tmp_path), quasi=quasi, criteria=[KAnonymity(ROWS // 2 + 90)], suppression="0.5")
    assert isinstance(top.recoding, FullDomainRecoding)
    assert len(top.rows) == ROWS - missing
    with pytest.raises(InfeasibleError, match="the nearest limit is"):
        anonymize.optimal(vault(tmp_path), quasi=quasi, criteria=[KAnonymity(1)], suppression="0")
    local = anonymize.mondrian(vault(tmp_path), quasi=["age", *quasi], criteria=K3)
    assert len(local.rows) == ROWS - missing


@pytest.mark.parametrize("method", ["optimal", "mondrian", "k_member"])
def test_a_recoding_that_suppresses_missing_values_does_so_among_new_rows(method: str, tmp_path: Path) -> None:
    hierarchy = flat("town", ["Aix", "Brest", "Caen"])
    quasi, source = [Quasi(name="town", hierarchy=hierarchy, missing=Missing.SUPPRESS)], vault(tmp_path)
    match method:
        case "optimal":
            made = anonymize.optimal(source, quasi=quasi, criteria=[KAnonymity(60)], suppression="0.05")
        case "mondrian":
            made = anonymize.mondrian(source, quasi=quasi, criteria=[KAnonymity(60)])
        case _:
            made = anonymize.k_member(source, quasi=quasi, k=60)
    assert ("*",) in classes(made.rows.to_arrow(), ("town",))
    again = anonymize.apply(source, made.recoding)
    assert again.facts["suppressed"] >= people()["town"].null_count == made.facts["suppressed"]


def test_rows_that_the_domain_drops_count_as_suppressed(tmp_path: Path) -> None:
    strict = Domain(tuple(replace(attribute, nullable=False) for attribute in DOMAIN), unit=DOMAIN.unit)
    missing, source = people()["town"].null_count, vault(tmp_path, domain=strict)
    with pytest.raises(InfeasibleError, match=f"of {ROWS} rows suppressed: the nearest limit is {missing / ROWS:g}"):
        anonymize.optimal(source, quasi=["town"], criteria=K3, suppression="0")
    made = anonymize.optimal(source, quasi=["town"], criteria=K3, suppression="0.05")
    assert (made.facts["rows"], made.facts["suppressed"], made.facts["left_out"]) == (ROWS, missing, missing)
    said = f"{missing} of {ROWS} rows are suppressed ({missing} of them left out by the domain)"
    assert said in made.guarantee
    assert len(made.rows) == ROWS - missing
    again = anonymize.apply(source, made.recoding)
    assert said in again.guarantee
    local = anonymize.mondrian(source, quasi=["town"], criteria=K3)
    assert said in local.guarantee
    assert "at most a share" in made.guarantee
    for unlimited in (again, local):
        assert "at most a share" not in unlimited.guarantee


def test_criteria_on_sensitive_values_hold_in_the_released_rows(tmp_path: Path) -> None:
    diverse = parse_criterion("distinct-diversity:l=2,sensitive=ill")
    for release in (
        anonymize.optimal(vault(tmp_path), quasi=["age", "town"], criteria=[diverse], suppression="0.1", keep=["ill"]),
        anonymize.mondrian(vault(tmp_path), quasi=["age", "town"], criteria=[*K3, diverse], keep=["ill"]),
    ):
        rows = release.rows.to_arrow()
        found = classes(rows, ("age", "town", "ill"))
        for age, town in classes(rows):
            assert found[age, town, "yes"]
            assert found[age, town, "no"]


@pytest.mark.parametrize("spelled", ["entropy-diversity:l=1.99,sensitive=ill", "alpha-k:alpha=0.52,k=4,sensitive=ill"])
def test_the_limit_that_a_refusal_names_works_when_it_is_typed_back(spelled: str, tmp_path: Path) -> None:
    """Half of the hundred younger people are ill, all of the others: in one class, both fail."""
    ages = [30] * 100 + [50] * 301
    table = pa.table({"age": ages, "town": ["Aix"] * 401, "ill": ["yes", "no"] * 50 + ["yes"] * 301})
    source, criteria = vault(tmp_path, table), [parse_criterion(spelled)]
    with pytest.raises(InfeasibleError, match=r"the nearest limit is 0.750624$"):
        anonymize.optimal(source, quasi=["age"], criteria=criteria, suppression="0.7")
    with pytest.raises(InfeasibleError, match=r"the nearest limit is 0.750624, and takes the optimal search$"):
        anonymize.samarati(source, quasi=["age"], criteria=criteria, suppression="0")
    made = anonymize.optimal(source, quasi=["age"], criteria=criteria, suppression="0.750624")
    assert len(made.rows) == 100
    with pytest.raises(InfeasibleError, match=r"of height 999 satisfies .* no limit below 1 would do"):
        anonymize.optimal(source, quasi=["age"], criteria=criteria, suppression="0.9", extent=Extent(height=999))
    with pytest.raises(InfeasibleError, match=r"of height 1 that satisfies .* was found in 0 s: allow more"):
        anonymize.optimal(
            source, quasi=["age"], criteria=criteria, suppression="0.8", extent=Extent(height=1, seconds=0)
        )


def test_k_map_looks_at_the_population(tmp_path: Path) -> None:
    everyone = pa.concat_tables([people(), people(seed=7, rows=1600)])
    counted = population(open_table(everyone).encode(DOMAIN), ["age", "town"])
    release = anonymize.optimal(vault(tmp_path), quasi=["age", "town"], criteria=[KMap(4, counted)], suppression="0.02")
    strict = anonymize.optimal(vault(tmp_path), quasi=["age", "town"], criteria=[KAnonymity(4)], suppression="0.02")
    assert release.facts["loss_metric_sum"] < strict.facts["loss_metric_sum"]
    assert "journalist" in release.guarantee


def test_microaggregation_publishes_means(tmp_path: Path) -> None:
    release = anonymize.microaggregate(vault(tmp_path), quasi=["age"], k=5)
    sizes = classes(release.rows.to_arrow(), ("age",))
    assert min(sizes.values()) >= 5
    mean = sum(float(age) * size for (age,), size in sizes.items()) / ROWS
    assert mean == pytest.approx(np.mean(people()["age"].to_numpy()), rel=1e-5)
    with pytest.raises(InputError, match="no mean"):
        anonymize.microaggregate(vault(tmp_path), quasi=["town"], k=5)


def test_what_cannot_be_meant_is_refused_and_leaves_the_journal_alone(tmp_path: Path) -> None:
    source = vault(tmp_path)
    diverse = parse_criterion("distinct-diversity:l=3,sensitive=ill")
    asks = [
        ({"quasi": []}, InputError, "at least one quasi-identifier"),
        ({"quasi": ["age", "age"]}, InputError, "named twice"),
        ({"quasi": ["height"]}, DomainError, "height"),
        ({"quasi": [Quasi(name="age", weight=0.0)]}, InputError, "weight above zero"),
        ({"criteria": []}, InputError, "at least one criterion"),
        ({"criteria": [KAnonymity(ROWS + 1)]}, InfeasibleError, f"largest k that this table can meet is {ROWS}"),
        ({"criteria": [diverse]}, InfeasibleError, "no limit below 1"),
        ({"criteria": [parse_criterion("distinct-diversity:l=2,sensitive=age")]}, InputError, "both"),
        ({"suppression": "1.5"}, InputError, "suppression limit"),
        ({"keep": ["name"]}, InputError, "the domain does not describe it"),
        ({"keep": ["ill", "ill"]}, InputError, "twice"),
        ({"quasi": [Quasi(name="town", hierarchy=flat("town", ["Aix"]))]}, DomainError, "misses 2 declared values"),
    ]
    for ask, error, message in asks:
        given = {"quasi": ["age", "town"], "criteria": K3, "suppression": "0.05"} | ask
        with pytest.raises(error, match=message):
            anonymize.optimal(source, **given)
    counted = population(source.encoded, ["age"])
    with pytest.raises(InputError, match="population"):
        anonymize.mondrian(source, quasi=["age"], criteria=[KMap(3, counted)])
    with pytest.raises(InputError, match="deals equal rows"):
        anonymize.mondrian(
            source,
            quasi=["age"],
            criteria=[parse_criterion("distinct-diversity:l=2,sensitive=ill")],
            cut=anonymize.Cut.RELAXED,
        )
    released("optimal", source)
    from sfumato.ledger import open_ledger

    with open_ledger(f"sqlite:///{tmp_path / 'people.ledger'}", dataset="default", limit=None) as ledger:
        assert len(list(ledger.journal(after=1))) == 1


def test_weights_move_the_loss_to_what_matters_less(tmp_path: Path) -> None:
    def loss(age: float, town: float) -> dict[str, float]:
        quasi = [Quasi(name="age", weight=age), Quasi(name="town", weight=town)]
        return anonymize.mondrian(vault(tmp_path), quasi=quasi, criteria=[KAnonymity(8)]).facts["loss_metric"]

    equal, old, local = loss(1.0, 1.0), loss(20.0, 1.0), loss(0.0, 1.0)
    assert old["age"] < equal["age"]
    assert local["town"] <= equal["town"]
    assert local["age"] > 0  # it does not count, and is reported all the same
    with pytest.raises(InputError, match="finite and not negative"):
        Quasi(name="age", weight=float("nan"))


def test_strict_mondrian_regions_do_not_overlap(tmp_path: Path) -> None:
    release = anonymize.mondrian(vault(tmp_path), quasi=["age"], criteria=K3)
    spans = sorted(tuple(map(int, (label.split("..") * 2)[:2])) for (label,) in classes(release.rows.table, ("age",)))
    assert all(high < low for (_, high), (low, _) in itertools.pairwise(spans))


def test_full_disclosure_is_not_close_under_a_drafted_domain(tmp_path: Path) -> None:
    """Ten of A ill, ten of B not: a domain with a cell for unknown values, as drafts have, changes nothing."""
    told = pa.table({"group": ["A"] * 10 + ["B"] * 10, "ill": ["yes"] * 10 + ["no"] * 10})
    drafted = Domain(
        (
            Categorical(name="group", values=("A", "B"), unknown=Unknown.CATEGORY, nullable=True),
            Categorical(name="ill", values=("yes", "no"), unknown=Unknown.CATEGORY, nullable=True),
        )
    )
    for distance in ("equal", "ordered"):
        criteria = [KAnonymity(2), parse_criterion(f"t-closeness:t=0.3,sensitive=ill,distance={distance}")]
        made = anonymize.optimal(
            vault(tmp_path, told, drafted), quasi=["group"], criteria=criteria, suppression="0", keep=["ill"]
        )
        assert classes(made.rows.to_arrow(), ("group",)) == {("*",): 20}


def test_a_search_that_is_wrong_about_a_criterion_releases_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recount does not believe what the search believes."""
    diverse = parse_criterion("distinct-diversity:l=2,sensitive=ill")
    one_sided = people().set_column(
        3, "ill", pa.array(["yes" if age < 40 else "no" for age in people()["age"].to_pylist()])
    )
    monkeypatch.setattr(type(diverse), "safe_classes", lambda _, classes: np.ones(len(classes), dtype=bool))
    for make in (
        lambda: anonymize.optimal(vault(tmp_path, one_sided), quasi=["age"], criteria=[diverse], suppression="0"),
        lambda: anonymize.mondrian(vault(tmp_path, one_sided), quasi=["age"], criteria=[*K3, diverse]),
    ):
        with pytest.raises(InfeasibleError, match=r"counted again, .* do not satisfy .*distinct 2-diversity"):
            make()


def test_rows_over_the_bound_of_their_unit_count_as_suppressed(tmp_path: Path) -> None:
    """Every fourth row belongs to a person with two earlier rows: a quarter is suppressed, and counts toward the
    limit.
    """
    names = [f"person {number // 4 * 4 + min(number % 4, 2) % 2}" for number in range(ROWS)]
    table = people().set_column(0, "name", pa.array([*names[:-1], None]))
    rows_of = Counter(names[:-1])
    over = sum(max(rows - 1, 0) for rows in rows_of.values()) + 1  # and the one without an id
    loose = Domain(tuple(replace(attribute, nullable=True) for attribute in DOMAIN), unit=Unit("name", rows=1))
    source, share = vault(tmp_path, table, loose), over / ROWS
    with pytest.raises(InfeasibleError, match=f"of {ROWS} rows suppressed: the nearest limit is {share:g}"):
        anonymize.optimal(source, quasi=["town"], criteria=[KAnonymity(1)], suppression=f"{share - 0.01:g}")
    made = anonymize.optimal(source, quasi=["town"], criteria=[KAnonymity(1)], suppression=f"{share:g}")
    assert (made.facts["rows"], made.facts["suppressed"], made.facts["over_bound"]) == (ROWS, over, over)
    said = f"{over} of {ROWS} rows are suppressed ({over} of them over the rows that a unit may have)"
    for release in (made, anonymize.apply(source, made.recoding), anonymize.k_member(source, quasi=["town"], k=3)):
        assert said in release.guarantee
        assert len(release.rows) == ROWS - over


def test_closeness_compares_with_all_rows_that_count(tmp_path: Path) -> None:
    """The six rows without a town are suppressed from the start, and are in the table all the same."""
    towns, ill = ["Aix"] * 20 + [None] * 20, ["yes", "no"] * 10 + ["yes"] * 20
    table = pa.table({"age": [30] * 40, "town": towns, "ill": ill})
    quasi = [Quasi(name="town", missing=Missing.SUPPRESS)]

    def made(t: str) -> Anonymized:
        close = parse_criterion(f"t-closeness:t={t},sensitive=ill,distance=equal")
        return anonymize.optimal(vault(tmp_path, table), quasi=quasi, criteria=[close], suppression="0.5")

    assert len(made("0.25").rows) == 20  # half against three quarters
    with pytest.raises(InfeasibleError, match=r"no recoding satisfies"):  # the search says so itself
        made("0.24")


def test_classes_with_a_single_value_are_told(tmp_path: Path) -> None:
    ages = [30] * 30 + [50] * 10
    table = pa.table({"age": ages, "town": ["Aix"] * 40, "ill": ["yes", "no"] * 15 + ["yes"] * 10})
    release = anonymize.mondrian(vault(tmp_path, table), quasi=["age"], criteria=K3, keep=["ill"])
    assert release.facts["homogeneous"] == {"ill": 10}
    assert "share of published rows in a class with a single value: 25.000% for ill" in release.guarantee
    bare = anonymize.mondrian(vault(tmp_path, table), quasi=["age"], criteria=K3)
    assert bare.facts["homogeneous"] == {}
    assert "single value" not in bare.guarantee


def test_missing_numbers_have_no_mean(tmp_path: Path) -> None:
    table = people().set_column(1, "age", pa.array([None] * 5 + [30] * (ROWS - 5), pa.int64()))
    nullable = Domain((replace(DOMAIN["age"], nullable=True), *tuple(DOMAIN)[1:]))
    release = anonymize.microaggregate(vault(tmp_path, table, nullable), quasi=["age"], k=5)
    assert classes(release.rows.to_arrow(), ("age",)) == {("30",): ROWS - 5}
    assert release.facts["suppressed"] == 5


def test_a_missing_value_is_not_next_to_the_greatest(tmp_path: Path) -> None:
    """An interval that also holds missing values says nothing of a value, and loses everything."""
    table = people().set_column(1, "age", pa.array([59] * (ROWS // 2) + [None] * (ROWS // 2), pa.int64()))
    nullable = Domain((replace(DOMAIN["age"], nullable=True), *tuple(DOMAIN)[1:]))
    release = anonymize.mondrian(vault(tmp_path, table, nullable), quasi=["age"], criteria=[KAnonymity(ROWS)])
    assert release.facts["loss_metric"] == {"age": 1.0}


def test_a_search_that_the_clock_ended_says_so(tmp_path: Path) -> None:
    source = vault(tmp_path)

    def made(seconds: float) -> Anonymized:
        search = anonymize.Search(effort=1, seconds=seconds)
        return anonymize.k_member(source, quasi=["age", "town"], k=3, search=search)

    stopped = made(0.0)
    assert stopped.facts["search"] == {"seconds": 0.0, "stopped": True}
    assert "the search was stopped after 0 s" in stopped.guarantee
    done = made(1e6)
    assert done.facts["search"] == {"seconds": 1e6, "stopped": False}
    assert "stopped" not in done.guarantee
    assert "search" not in made(math.inf).facts
