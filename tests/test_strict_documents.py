"""Documents mean one thing: keys twice, NaN and nonsense are refused, wherever a document is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.domain import Domain, Integer, Unknown
from sfumato.domain import load as load_domain
from sfumato.domain.hierarchy import Hierarchy
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import InputError
from sfumato.privacy.loss import Epsilon
from sfumato.strict_documents import read_json, read_yaml, read_yaml_texts, write_yaml
from sfumato.synthesize import NoisyTotal, histogram
from sfumato.synthesize.structural_zeros import load_zeros
from sfumato.synthesize.synthetic import load as load_release
from sfumato.synthesize.synthetic import save
from sfumato.vault.interface import decode, encode
from sfumato.vault.simulated import SimulatedVault
from sfumato_server.stewards import read_document as document

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("day", ["2023-02-30", "2023-13-01", "2023-02-30 08:00:00", "2023-01-01T25:00:00Z"])
def test_a_date_that_no_calendar_has_is_named_with_its_line(day: str) -> None:
    with pytest.raises(InputError, match=r"^zoo\.yaml has a date that no calendar has, at line 3$"):
        read_yaml(f"sfumato: 1\nattributes:\n  born: {{first: {day}}}\n", name="zoo.yaml")


@given(VALUES)
def test_what_python_writes_is_read_back(value: object) -> None:
    assert read_json(json.dumps(value)) == value
    assert read_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 1}',
        '[{"b": {"a": 1, "c": 2, "a": 3}}]',
        '{"a": 1, "\\u0061": 2}',
        "NaN",
        "[-Infinity]",
        '{"a": Infinity}',
        "",
        "{",
        "[1,]",
        "[" * 100_000,
        "1" * 5_000,
        b"\xff\xfe\xfa",
        '["\\ud800"]',
        '{"a": {"\\uDFFFx": 1}}',
        b'"\xed\xa0\x80"',
    ],
    ids=lambda text: str(text)[:20],
)
def test_what_is_not_one_document_is_refused_in_one_sentence(text: str | bytes) -> None:
    with pytest.raises(InputError) as caught:
        read_json(text, name="the request")
    assert str(caught.value).startswith("the request ")
    assert "\n" not in str(caught.value)


@given(VALUES)
def test_what_is_written_as_yaml_is_read_back(value: object) -> None:
    assert read_yaml(write_yaml(value)) == value


REPEATED = "a0: &a0 [1, 1]\n" + "".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(9))
"""A few lines that say a thousand million values."""


@pytest.mark.parametrize("read", [read_yaml, read_yaml_texts])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\na: 1\n", "repeats a key, at line 2"),
        ("x:\n- {b: {a: 1,\n  a: 3}}", "repeats a key, at line 3"),
        ('{"a": 1, "\\u0061": 2}', "repeats a key, at line 1"),
        ("a: !!set {b, b}", "repeats a key, at line 1"),
        ("a: 1\nb: {", "not YAML at line 2"),
        ("[" * 5_000, "is nested too deeply"),
        ('{a: ["\\ud800"]}', "half a letter; write the letter itself"),
        ('{"\\U0000dc00": 1}', "half a letter; write the letter itself"),
        (REPEATED, "repeats parts of itself too often"),
    ],
)
def test_yaml_that_is_not_one_document_is_refused_at_its_line(read: Callable, text: str, says: str) -> None:
    with pytest.raises(InputError, match=f"^the file .*{says}$"):
        read(text, name="the file")


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {b: *a}"])
def test_yaml_that_is_a_part_of_itself_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="repeats parts of itself"):
        read_yaml(text)


@pytest.mark.parametrize("text", ["a: 2024-99-99", "1: a\n1.0: b", "n: " + "1" * 5_000])
def test_values_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        read_yaml(text)


@pytest.mark.parametrize("text", ["010", "00", "0x1F", "0b11", "1_000", "1:30", "190:20:30", "01.5", "1_0.5", "1:30.5"])
def test_numbers_that_are_not_decimal_are_texts(text: str) -> None:
    assert read_yaml(f"[{text}, 0, -7, +12, 2.5, -0.25, .5, 1.0e+300, .inf]") == [
        *(text, 0, -7, 12, 2.5, -0.25, 0.5, 1e300, float("inf"))
    ]


def test_letters_that_utf_16_writes_in_two_are_read() -> None:
    assert read_json('["\\ud83d\\ude00"]') == read_json(b'["\xf0\x9f\x98\x80"]') == ["\U0001f600"]
    assert read_yaml('["\\U0001f600", "\\u00e9"]') == ["\U0001f600", "\u00e9"]


def test_what_yaml_may_repeat_is_read() -> None:
    assert read_yaml("x: &x {a: 1}\ny: {<<: *x, a: 2}\nz: [{a: yes}, {a: off}]") == {
        "x": {"a": 1},
        "y": {"a": 2},
        "z": [{"a": "yes"}, {"a": "off"}],
    }


DOMAIN = Domain((Integer(name="a", minimum=0, maximum=3, unknown=Unknown.CLAMP),))
DOCUMENT = "sfumato: 1\nunit: row\n{}attributes:\n  a: {{type: integer, minimum: 0, maximum: 3, unknown: clamp}}\n"


def _file(read: Callable[[Path], object], name: str, text: str) -> Callable[[Path, str], object]:
    def entrance(folder: Path, said: str) -> object:
        path = folder / name
        path.write_text(text.format(said), encoding="utf-8")
        return read(path)

    return entrance


def _saved_model(folder: Path, said: str) -> object:
    """Return a saved release with an edited domain and a recomputed digest."""
    table = ArrayTable(DOMAIN, np.zeros((10, 1), dtype=np.int64))
    save(
        histogram(SimulatedVault(table, seed=1), loss=Epsilon(1), total=NoisyTotal()), folder / "model", overwrite=True
    )
    payload = decode((folder / "model").read_bytes()[32:])
    payload["release"]["domain"] = DOCUMENT.format(said)
    stored = encode(payload)
    (folder / "edited").write_bytes(hashlib.sha256(stored).digest() + stored)
    return load_release(folder / "edited")


ROWS = "rows: [['0', '*'], ['1', '*']]\n"
ENTRANCES = {
    "a domain in YAML": (_file(load_domain, "a.yaml", DOCUMENT), "draft: true\n"),
    "a domain in JSON": (_file(load_domain, "a.json", json.dumps(
        {"sfumato": 1, "unit": "row", "attributes": {"a": {"type": "integer", "minimum": 0, "maximum": 3,
         "unknown": "clamp"}}}).replace("{", "{{").replace("}", "}}").replace("{{", "{{{}", 1)), '"draft": true, '),
    "a domain on the page": (lambda _, said: document(DOCUMENT.format(said)), "draft: true\n"),
    "a domain in a saved model": (_saved_model, "draft: false\n"),
    "a hierarchy in YAML": (_file(Hierarchy.read, "a.yaml", "attribute: a\n{}"), ROWS),
    "a hierarchy in JSON": (_file(Hierarchy.read, "a.json", '{{{}"attribute": "a"}}'), '"rows": [["0", "*"]], '),
    "structural zeros": (
        _file(lambda path: load_zeros(path, DOMAIN), "z.yaml", "- attributes: [a]\n{}"),
        "  impossible: [['0']]\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_key_said_twice_is_refused_wherever_a_document_comes_in(entrance: str, tmp_path: Path) -> None:
    enter, key = ENTRANCES[entrance]
    enter(tmp_path, key)
    with pytest.raises(InputError) as refused:
        enter(tmp_path, 2 * key)
    said = refused.value if entrance != "a domain in a saved model" else refused.value.__cause__
    assert "repeats a key" in str(said)
