"""Structural zeros in a file: labels become cells, and a wrong file is refused without a quotation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sfumato.domain import Categorical, Domain, Integer, Real, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import DomainError, InfeasibleError, InputError, QueryError
from sfumato.privacy.loss import Rho
from sfumato.synthesize import NoisyTotal, auto, prefixes
from sfumato.synthesize.structural_zeros import load_zeros, read_zeros
from sfumato.synthesize.synthetic import describe_zeros
from sfumato.vault.simulated import SimulatedVault
from sfumato.workload.counting_queries import Marginals

DOMAIN = Domain(
    (
        Integer(name="age", minimum=0, maximum=99, edges=(0, 15, 65), unknown=Unknown.CLAMP, nullable=True),
        Categorical(name="married", values=("no", "yes", "17"), unknown=Unknown.CATEGORY),
        Categorical(name="retired", values=(False, True), unknown=Unknown.DROP),
    )
)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "zeros.yaml"
    path.write_text(text)
    return path


def test_combinations_are_read_in_the_labels_of_the_domain(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
- attributes: [married, age]
  impossible:
    - [yes, 0..14]       # a text here, whatever YAML makes of it elsewhere
    - ["17", (missing)]
- {attributes: [retired, age], impossible: [["True", [0..14, 15..64]]]}
""",
    )
    first, second = load_zeros(path, DOMAIN)
    assert first.attributes == ("married", "age")
    assert first.impossible.shape == (4, 4)
    assert first.impossible.nonzero()[0].tolist() == [1, 2]
    assert first.impossible.nonzero()[1].tolist() == [0, 3]
    assert describe_zeros([second]) == [[["retired", "age"], [4, 5]]]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "age,married\n34,yes\n",
        "- secret",
        "[]",
        "{attributes: [age], impossible: [[secret]]}",
        "- {attributes: [age], impossible: [secret]}",
        "- {attributes: [age, married], impossible: [[secret]]}",
        "- {attributes: [age], impossible: [[0..14]], why: secret}",
        "- {attributes: secret, impossible: [[0..14]]}",
        "- [unclosed secret",
        "[" * 1000,
    ],
)
def test_what_is_no_such_file_is_refused_and_not_quoted(text, tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="does not read as structural zeros") as caught:
        load_zeros(write(tmp_path, text), DOMAIN)
    assert "secret" not in str(caught.value)
    assert "34" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- {attributes: [age, height], impossible: [[0..14, tall]]}", "height"),
        ("- {attributes: [age], impossible: [[12]]}", "--cells age"),
        ("- {attributes: [age], impossible: [[{a: b}]]}", "--cells age"),
        ("- {attributes: [age, age], impossible: [[0..14, 0..14]]}", "twice"),
    ],
)
def test_what_the_domain_does_not_know_is_named(text, says, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        load_zeros(write(tmp_path, text), DOMAIN)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="there is no file"):
        load_zeros(tmp_path / "absent.yaml", DOMAIN)


def test_a_table_of_zeros_beyond_memory_is_refused(tmp_path: Path) -> None:
    wide = Domain(tuple(Integer(name=name, minimum=0, maximum=9999, unknown=Unknown.DROP) for name in "ab"))
    with pytest.raises(InputError, match="cells"):
        load_zeros(write(tmp_path, "- {attributes: [a, b], impossible: [[0, 0]]}"), wide)
    with pytest.raises(DomainError):
        load_zeros(write(tmp_path, "- {attributes: [a, c], impossible: [[0, 0]]}"), wide)


def rules(text: str, tmp_path: Path, domain: Domain = DOMAIN):
    return load_zeros(write(tmp_path, text), domain)


def test_rules_and_boxes_take_ranges_lists_and_all_others(tmp_path: Path) -> None:
    zeros = rules(
        """
- if: {age: ..14}
  then: {married: no, retired: "False"}
- impossible: {age: [15..64, (missing)], married: {not: [no, "17"]}}
- {attributes: [married, age], impossible: [["17", 15..99]]}
""",
        tmp_path,
    )
    assert [zero.attributes for zero in zeros] == [
        ("age", "married"),
        ("age", "retired"),
        ("age", "married"),
        ("married", "age"),
    ]
    first, second, third, fourth = (zero.impossible for zero in zeros)
    assert np.argwhere(first).tolist() == [[0, 1], [0, 2], [0, 3]]  # other values are no "no"
    assert np.argwhere(second).tolist() == [[0, 1]]
    assert np.argwhere(third).tolist() == [[1, 1], [1, 3], [3, 1], [3, 3]]
    assert np.argwhere(fourth).tolist() == [[2, 1], [2, 2]]


def test_a_rule_over_three_attributes_has_a_table_of_three(tmp_path: Path) -> None:
    (zero,) = rules('- {if: {age: ..14, married: {not: [no]}}, then: {retired: "True"}}', tmp_path)
    assert zero.attributes == ("age", "married", "retired")
    assert np.argwhere(zero.impossible).tolist() == [[0, 1, 0], [0, 2, 0], [0, 3, 0]]


@pytest.mark.parametrize(
    ("said", "cells"),
    [
        ("15..64", [1]),
        ("15..", [1, 2]),
        ("..64", [0, 1]),
        ("-5..14", [0]),
        ("65..200", [2]),
        ("[(missing), 65..]", [2, 3]),
        ("{not: 0..64}", [2, 3]),
    ],
)
def test_a_range_of_numbers_is_the_cells_in_it(said, cells, tmp_path: Path) -> None:
    (zero,) = rules(f"- impossible: {{age: {said}}}", tmp_path)
    assert np.flatnonzero(zero.impossible).tolist() == cells


def test_ranges_of_real_numbers_end_where_the_next_cell_begins(tmp_path: Path) -> None:
    domain = Domain((Real(name="pay", edges=(0.0, 0.5, 1.0, 2.0), unknown=Unknown.CLAMP),))
    (zero,) = rules("- impossible: {pay: 0.5..2}", tmp_path, domain)
    assert np.flatnonzero(zero.impossible).tolist() == [1, 2]
    with pytest.raises(QueryError, match="cuts the cell"):
        rules("- impossible: {pay: 0.5..1.5}", tmp_path, domain)


def test_ranges_of_declared_values_follow_their_order(tmp_path: Path) -> None:
    domain = Domain((Categorical(name="size", values=("s", "m", "l", "a..b"), unknown=Unknown.CATEGORY),))
    for said, cells in (("m..l", [1, 2]), ("l..", [2, 3]), ("..m", [0, 1]), ("a..b", [3])):
        (zero,) = rules(f"- impossible: {{size: {said}}}", tmp_path, domain)
        assert np.flatnonzero(zero.impossible).tolist() == cells


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- impossible: {age: 0..20}", "0..20 cuts the cell 15..64 of age"),
        ("- impossible: {age: 10..14}", "10..14 cuts the cell 0..14 of age"),
        ("- impossible: {age: 64..15}", "holds no cell of age"),
        ("- impossible: {age: 100..}", "holds no cell of age"),
        ("- impossible: {age: young..15}", "numbers at its ends"),
        ("- impossible: {married: no..maybe}", "married declares no 'maybe'"),
        ("- impossible: {married: yes..no}", "holds no cell of married"),
        ("- impossible: {height: 3}", "no attribute 'height'"),
        ("- {if: {age: ..14, height: 3}, then: {married: no}}", "no attribute 'height'"),
        ("- {if: {age: ..14}, then: {age: 15..}}", "has 'age' in its condition and in what follows"),
    ],
)
def test_what_a_rule_cannot_mean_is_said(text, says, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        rules(text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "- {if: {age: ..14}}",
        "- {then: {age: ..14}}",
        "- {if: {}, then: {married: no}}",
        "- {if: {age: ..14}, then: {}}",
        "- {if: secret, then: {married: no}}",
        "- {if: {age: ..14}, then: {married: no}, why: secret}",
        "- {impossible: {age: ..14}, why: secret}",
        "- {impossible: {}}",
    ],
)
def test_half_a_rule_is_refused_and_not_quoted(text, tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="does not read as structural zeros") as caught:
        rules(text, tmp_path)
    assert "secret" not in str(caught.value)


def test_rules_that_leave_no_row_are_refused_by_the_name_of_the_one_that_does(tmp_path: Path) -> None:
    first = '- impossible: {age: [..14, (missing)], retired: "True"}'
    second = '- {if: {married: [yes, "17"]}, then: {retired: "True"}}'
    third = '- impossible: {age: 15.., retired: "True"}'
    with pytest.raises(
        InfeasibleError,
        match=r"^rule 3 \(impossible: age 15.., retired True\), with those before it, leaves no row that meets the "
        r"condition of rule 2 \(if married yes or 17 then retired True\) possible; correct or remove one of them$",
    ):
        rules(f"{first}\n{second}\n{third}", tmp_path)
    with pytest.raises(InfeasibleError, match=r"^rule 3 .*, with those before it, leaves no row possible; correct"):
        rules(f'{first}\n- impossible: {{retired: "False"}}\n{third}', tmp_path)
    with pytest.raises(InfeasibleError, match=r"^rule 2 .* leaves no row possible"):
        rules('- impossible: {married: no}\n- impossible: {retired: ["True", "False"]}', tmp_path)


@pytest.mark.parametrize("seed", range(25))
def test_whether_anything_is_left_is_found_as_by_trying_every_row(seed) -> None:
    random = np.random.default_rng(seed)
    domain = Domain(tuple(Integer(name=name, minimum=0, maximum=2, unknown=Unknown.DROP) for name in "abcd"))

    def side() -> list[str]:
        return [str(code) for code in random.permutation(3)[: random.integers(1, 3)]]

    said = []
    for _ in range(random.integers(3, 9)):
        one, *others = random.permutation(list("abcd"))[: random.integers(2, 4)]
        if random.random() < 0.5:
            said.append({"impossible": {name: side() for name in (one, *others)}})
        else:
            said.append({"if": {name: side() for name in others}, "then": {one: side()}})

    def meets(row, sides) -> bool:
        return all(str(row[name]) in cells for name, cells in sides.items())

    def kept(row) -> bool:
        return all(
            not meets(row, rule["impossible"])
            if "impossible" in rule
            else not meets(row, rule["if"]) or meets(row, rule["then"])
            for rule in said
        )

    left = [row for row in (dict(zip("abcd", cell, strict=True)) for cell in np.ndindex(3, 3, 3, 3)) if kept(row)]
    fine = bool(left) and all(any(meets(row, rule["if"]) for row in left) for rule in said if "if" in rule)
    if fine:
        zeros = read_zeros(said, domain)
        possible = np.ones((3, 3, 3, 3), dtype=bool)
        for zero in zeros:
            axes = [domain.index(name) for name in zero.attributes]
            shape = [3 if axis in axes else 1 for axis in range(4)]
            possible &= ~np.transpose(zero.impossible, np.argsort(axes)).reshape(shape)
        assert {tuple(row.values()) for row in left} == set(map(tuple, np.argwhere(possible).tolist()))
    else:
        with pytest.raises(InfeasibleError, match="rule"):
            read_zeros(said, domain)


def test_the_automatic_choice_keeps_zeros_out_for_marginals_of_some_attributes() -> None:
    """It releases all attributes then, as the methods that keep impossible cells out do."""
    domain = Domain(
        (
            Integer(name="age", minimum=0, maximum=9, unknown=Unknown.DROP),
            Categorical(name="married", values=("no", "yes"), unknown=Unknown.DROP),
            Categorical(name="town", values=("a", "b", "c"), unknown=Unknown.DROP),
        )
    )
    codes = np.random.default_rng(1).integers(0, domain.shape, (3000, 3))
    codes[:, 1] &= codes[:, 0] >= 5
    zeros = read_zeros([{"impossible": {"age": "0..4", "married": "yes"}}], domain)
    workload = Marginals(cliques=(("age", "town"),))
    vault = SimulatedVault(ArrayTable(domain, codes), seed=1)
    release = auto(vault, loss=Rho("0.1"), total=NoisyTotal(), workload=workload, zeros=zeros)
    rows = release.codes()
    assert rows.shape[1] == 3
    assert ("age", "town") in {table.attributes for table in release.model.measured}
    assert not ((rows[:, 0] < 5) & (rows[:, 1] == 1)).any()
    with pytest.raises(QueryError, match="model the whole table"):
        auto(vault, loss=Rho(1), total=NoisyTotal(), workload=prefixes(domain, "age"), zeros=zeros)


RULE = "- {column: retired, from: married, cells: {False: [no, (other)], True: [yes, '17']}}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- {column: age, from: age, cells: {0..14: 0..14}}", "rule 1 (age from age) lets a column follow from itself"),
        ("- {attributes: [age, age], impossible: [[0..14, 0..14]]}", "rule 1 names a column twice"),
        (f"{RULE}\n- {{column: secret", "zeros.yaml does not read as structural zeros: it is not YAML at line 2"),
        (f"{RULE}\n- {{column: a, column: b}}", "it repeats a key, at line 2"),
        (f"{RULE}\n- {{columns: secret}}", "rule 2 is none of {if:"),
        ("", "it has no rule; write a list of {if:"),
        ("age,married\n34,yes\n", "zeros: write a list of {if:"),
        (f"{RULE}\n- {{column: retired, from: size, cells: {{False: 1}}}}", "no attribute 'size'"),
    ],
)
def test_a_refusal_says_which_rule_or_line_is_wrong(text, says, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_zeros(write(tmp_path, text), DOMAIN)
    assert says in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_not_said_to_be_wrong(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match=r"cannot read the structural zeros .*: Is a directory"):
        load_zeros(tmp_path, DOMAIN)
    (tmp_path / "zeros.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(QueryError, match="it is not UTF-8 text"):
        load_zeros(tmp_path / "zeros.yaml", DOMAIN)


@pytest.mark.parametrize("text", ["1e999999999..", "..-1e999999999", "1/0..3", "..x", "nan..", "..inf"])
def test_ends_of_a_range_that_would_fill_the_memory_or_are_no_number_are_refused(text) -> None:
    with pytest.raises(QueryError, match="has numbers at its ends"):
        read_zeros([{"impossible": {"age": text}}], DOMAIN)


@pytest.mark.parametrize(
    ("text", "cells"), [("..0.3", [0, 1]), ("0.1..0.3", [1]), ("0.3..1e400", [2, 3]), ("0.7..1.1", [3])]
)
def test_a_range_of_real_numbers_ends_at_edges_that_are_no_exact_doubles(text, cells) -> None:
    domain = Domain((Real(name="r", edges=(0.0, 0.1, 0.3, 0.7, 1.1), unknown=Unknown.CLAMP),))
    (zero,) = read_zeros([{"impossible": {"r": text}}], domain)
    assert np.flatnonzero(zero.impossible).tolist() == cells


def test_others_of_others_are_read_at_any_depth() -> None:
    cells: object = "0..14"
    for _ in range(3001):
        cells = {"not": cells}
    (zero,) = read_zeros([{"impossible": {"age": cells}}], DOMAIN)
    assert zero.impossible.tolist() == [False, True, True, True]
