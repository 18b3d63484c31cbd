"""Structural zeros as a file: labels in, cells out, and a sentence that quotes nothing where it is no such file."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.errors import DomainError, InputError, QueryError
from sfumato.synthesize.graphical import describe_zeros, load_zeros

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
        "[" * 5000,
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
    with pytest.raises(QueryError, match="does not read"):
        load_zeros(tmp_path / "absent.yaml", DOMAIN)


def test_a_table_of_zeros_beyond_memory_is_refused(tmp_path: Path) -> None:
    wide = Domain(tuple(Integer(name=name, minimum=0, maximum=9999, unknown=Unknown.DROP) for name in "ab"))
    with pytest.raises(InputError, match="cells"):
        load_zeros(write(tmp_path, "- {attributes: [a, b], impossible: [[0, 0]]}"), wide)
    with pytest.raises(DomainError):
        load_zeros(write(tmp_path, "- {attributes: [a, c], impossible: [[0, 0]]}"), wide)
