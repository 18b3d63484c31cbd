from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tests.app.test_cli import sfumato

import sfumato as sf
from sfumato.domain import Categorical, CsvFormat, Domain, Integer, Real, Unit, Unknown, dump, load, parse
from sfumato.domain.attribute import Attribute, null_code, unknown_code
from sfumato.domain.document import accept, schema
from sfumato.errors import DomainError, InputError

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8)
ANY = st.sampled_from(Unknown)
FOR_VALUES = st.sampled_from([Unknown.CATEGORY, Unknown.DROP])


@st.composite
def attributes(draw: st.DrawFn) -> Attribute:
    name, nullable = draw(NAMES), draw(st.booleans())
    match draw(st.sampled_from(["categorical", "integer", "binned", "real"])):
        case "categorical":
            values = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
            return Categorical(name=name, values=tuple(values), unknown=draw(FOR_VALUES), nullable=nullable)
        case "integer":
            low = draw(st.integers(-100, 100))
            return Integer(
                name=name, minimum=low, maximum=low + draw(st.integers(0, 50)), unknown=draw(ANY), nullable=nullable
            )
        case "binned":
            edges = sorted(draw(st.sets(st.integers(-100, 100), min_size=1, max_size=6)))
            return Integer(
                name=name,
                minimum=edges[0],
                maximum=edges[-1] + draw(st.integers(0, 9)),
                edges=tuple(edges),
                unknown=draw(ANY),
                nullable=nullable,
            )
        case _:
            cuts = draw(st.sets(st.floats(-1e6, 1e6), min_size=2, max_size=6))
            return Real(name=name, edges=tuple(sorted(cuts)), unknown=draw(ANY), nullable=nullable)


@st.composite
def domains(draw: st.DrawFn) -> Domain:
    drawn = draw(st.lists(attributes(), min_size=1, max_size=4, unique_by=lambda attribute: attribute.name))
    unit = draw(st.sampled_from([Unit.row(), Unit("person", rows=3)]))
    return Domain(tuple(drawn), unit=unit, draft=draw(st.booleans()))


@given(domains())
def test_a_document_reads_back_to_an_equal_domain(domain: Domain) -> None:
    assert parse(yaml.safe_load(dump(domain))) == domain
    assert parse(json.loads(json.dumps(domain.describe()))) == domain


@given(domains())
def test_cells_labels_and_codes_agree(domain: Domain) -> None:
    for attribute in domain:
        assert len(attribute.labels()) == attribute.size
        extra = [code for code in (null_code(attribute), unknown_code(attribute)) if code is not None]
        assert extra == list(range(attribute.declared, attribute.size))


@given(domains(), st.data())
def test_projection_keeps_attributes_and_multiplies_to_the_size(domain: Domain, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(domain.names), min_size=1, unique=True))
    marginal = domain.project(names)
    rest = [name for name in domain.names if name not in names]
    assert marginal.names == tuple(names)
    assert marginal.size * (domain.project(rest).size if rest else 1) == domain.size


@given(domains())
def test_the_hash_ignores_acceptance_and_nothing_else(domain: Domain) -> None:
    assert domain.hash == domain.accepted().hash
    assert domain.hash != Domain(domain.attributes, unit=Unit("somebody", rows=7)).hash


@given(attributes())
def test_bounds_of_neighbouring_cells_meet(attribute: Attribute) -> None:
    if isinstance(attribute, Categorical):
        return
    cells = [attribute.bounds(code) for code in range(attribute.declared)]
    step = 1 if isinstance(attribute, Integer) else 0
    assert cells[0][0] == attribute.minimum
    assert cells[-1][1] == attribute.maximum
    assert all(left[1] + step == right[0] for left, right in pairwise(cells))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"type": "integer", "maximum": 3, "unknown": "drop"}, "minimum"),
        ({"type": "integer", "minimum": 4, "maximum": 3, "unknown": "drop"}, "minimum above maximum"),
        ({"type": "integer", "minimum": 0, "maximum": 9, "edges": [1, 5], "unknown": "drop"}, "edges"),
        ({"type": "real", "edges": [1], "unknown": "drop"}, "edges"),
        ({"type": "real", "edges": [1, 1], "unknown": "drop"}, "increasing"),
        ({"type": "categorical", "values": [], "unknown": "drop"}, "values"),
        ({"type": "categorical", "values": ["a", "a"], "unknown": "drop"}, "twice"),
        ({"type": "categorical", "values": ["1", 1], "unknown": "drop"}, "twice"),
        ({"type": "categorical", "values": ["a"], "unknown": "clamp"}, "unknown"),
        ({"type": "categorical", "values": ["a"]}, "unknown"),
        ({"type": "text", "unknown": "drop"}, "text"),
        ({"type": "categorical", "values": ["a"], "unknown": "drop", "colour": 1}, "colour"),
    ],
)
def test_a_wrong_attribute_is_refused_with_its_reason(body: dict[str, object], says: str) -> None:
    with pytest.raises(DomainError, match=says):
        parse({"sfumato": 1, "unit": "row", "attributes": {"x": body}})


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"sfumato": 2, "unit": "row", "attributes": {}}, {"sfumato": 1, "unit": "row", "attributes": {}}],
)
def test_a_wrong_document_is_refused(document: object) -> None:
    with pytest.raises(DomainError):
        parse(document)


@pytest.mark.parametrize("name", ["2023", "2023-01-01", "true", "null"])
def test_a_name_that_yaml_reads_as_no_text_is_refused_unless_quoted(tmp_path: Path, name: str) -> None:
    path, body = tmp_path / "odd.yaml", "{type: categorical, values: [a], unknown: drop}"
    path.write_text(f"sfumato: 1\nunit: row\nattributes: {{{name}: {body}}}\n", encoding="utf-8")
    with pytest.raises(DomainError, match=r"the name of an attribute is text: write .* in quotes"):
        load(path)
    path.write_text(f"sfumato: 1\nunit: row\nattributes: {{'{name}': {body}}}\n", encoding="utf-8")
    assert load(path).names == (name,)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DomainError, match="cannot read"):
        load(tmp_path / "absent.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DomainError, match="not UTF-8"):
        load(tmp_path / "binary.yaml")
    (tmp_path / "broken.yaml").write_text("a: [1, 2\nb: 3\n")
    with pytest.raises(DomainError, match="not YAML at line"):
        load(tmp_path / "broken.yaml")
    for text in ("[" * 1000, "{a: " * 1000):
        (tmp_path / "odd.yaml").write_text(text)
        with pytest.raises(DomainError, match="has a number of thousands of digits"):
            load(tmp_path / "odd.yaml")
    (tmp_path / "odd.yaml").write_text("a: 1\nb: {first: 2024-99-99}\n")
    with pytest.raises(DomainError, match=r"odd\.yaml has a date that no calendar has, at line 2$"):
        load(tmp_path / "odd.yaml")


def test_a_table_in_the_place_of_a_domain_is_not_quoted(tmp_path: Path) -> None:
    table = tmp_path / "people.csv"
    for text in (
        "name,age\nmiller,41\n" * 1000,
        "miller: 41\nmiller: 42\n",
        "{miller: 41}\n",
        "{[miller]: 41}\n",
        "? 1923-02-30\n: miller\n",
    ):
        table.write_text(text)
        with pytest.raises(DomainError) as refused:
            load(table)
        assert "miller" not in str(refused.value)
        assert "1923" not in str(refused.value)
        assert len(str(refused.value)) < 300


def test_a_long_wrong_value_of_a_domain_is_not_repeated() -> None:
    with pytest.raises(DomainError, match="attributes: what stands there is not of type 'object'"):
        parse({"sfumato": 1, "unit": "row", "attributes": "miller " * 1000})


def test_a_draft_is_refused_until_it_is_accepted() -> None:
    draft = Domain((Integer(name="age", minimum=0, maximum=9, unknown=Unknown.CLAMP),), draft=True)
    with pytest.raises(DomainError, match="draft"):
        draft.refuse_draft()
    draft.accepted().refuse_draft()


def test_an_unknown_attribute_is_named_with_those_that_exist() -> None:
    domain = Domain((Integer(name="age", minimum=0, maximum=9, unknown=Unknown.CLAMP),))
    with pytest.raises(DomainError, match=r"no attribute 'height'.*age"):
        domain["height"]


def test_units_say_what_one_person_can_change() -> None:
    assert str(Unit.row()) == "adding or removing one row"
    assert "at most 3" in str(Unit("person", rows=3))
    with pytest.raises(DomainError):
        Unit("person", rows=0)
    with pytest.raises(DomainError):
        Unit(None, rows=2)


ODD = [None, True, 0, 1, 1.0, -1, "", "row", "clamp", "real", [], [1, 2], ["a"], {}, {"id": "a", "rows": 1}]


def places(node: object) -> list[tuple[Any, Any]]:
    """Return every mapping or list of a document with each of its keys."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [pair for key, each in inner for pair in [(node, key), *places(each)]]


@given(domains(), st.data())
def test_a_document_that_breaks_the_schema_is_refused_in_a_sentence(domain: Domain, data: st.DataObject) -> None:
    document = json.loads(json.dumps(domain.describe()))
    assert parse(document) == domain
    parent, key = data.draw(st.sampled_from(places(document)))
    how = data.draw(st.sampled_from(["replaced", "removed", "added"]))
    if how == "replaced":
        parent[key] = data.draw(st.sampled_from(ODD))
    elif how == "removed":
        del parent[key]
    elif isinstance(parent, dict):
        parent[data.draw(st.sampled_from(["more", "edges", "values", "minimum", "draft"]))] = data.draw(
            st.sampled_from(ODD)
        )
    if not Draft202012Validator(schema()).is_valid(document):
        with pytest.raises(DomainError):
            parse(document)


def test_the_published_schema_is_valid_and_matches_its_docs() -> None:
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("rows", [0, -1, 1.5, "3", None])
def test_a_bound_on_rows_is_a_whole_number(rows: object) -> None:
    with pytest.raises(DomainError, match="at least one row"):
        Unit("person", rows=rows)  # type: ignore[arg-type]


def test_a_list_of_attributes_makes_the_domain_that_a_tuple_makes() -> None:
    age = Integer(name="age", minimum=0, maximum=9, unknown=Unknown.CLAMP)
    assert Domain([age]) == Domain((age,))
    assert {Domain([age])} == {Domain((age,))}


@pytest.mark.parametrize("attributes", [None, "age", {"age": 1}, ["age"], [None]], ids=repr)
def test_what_are_no_attributes_is_refused(attributes: object) -> None:
    with pytest.raises(InputError, match="the attributes of a domain are a list of"):
        Domain(attributes)


WRITTEN = """# who made this
sfumato: 1
draft: true   # not yet
unit: row
attributes:
  sex: {type: categorical, values: [F, M], unknown: drop}  # by law
"""


@pytest.mark.parametrize(
    "text", [WRITTEN, WRITTEN.replace("draft: true   # not yet\n", ""), json.dumps(yaml.safe_load(WRITTEN))]
)
def test_an_accepted_file_says_by_whom_and_keeps_its_comments(tmp_path, text):
    path = tmp_path / "d.yaml"
    path.write_text(text, encoding="utf-8")
    before = load(path)
    path.write_text(accept(path, by="Ann \u00dc: 'x'"), encoding="utf-8")
    domain = load(path)
    assert not domain.draft
    assert domain.accepted_by is not None
    assert domain.accepted_by.by == "Ann \u00dc: 'x'"
    assert domain.hash == before.hash
    assert all(line.partition("#")[2] in path.read_text(encoding="utf-8") for line in text.splitlines())
    path.write_text(accept(path, by="Bea"), encoding="utf-8")
    assert load(path).accepted_by.by == "Bea"
    assert path.read_text(encoding="utf-8").count("accepted") == 1
    path.write_text(path.read_text(encoding="utf-8").replace("M", "X"), encoding="utf-8")
    assert load(path).accepted_by is None  # nobody accepted this
    with pytest.raises(DomainError, match="name the person who"):
        accept(path, by=" ")


@pytest.mark.parametrize(
    ("word", "other"), [("Ann", "Bob"), ('"at": "2', '"at": "1'), ("F, M", "F, X"), ("row", "{id: p, rows: 3}")]
)
def test_a_file_in_which_any_word_was_changed_is_refused(tmp_path, word, other):
    path = tmp_path / "d.yaml"
    path.write_text(WRITTEN, encoding="utf-8")
    path.write_text(accept(path, by="Ann"), encoding="utf-8")
    changed = path.read_text(encoding="utf-8").replace(word, other, 1)
    assert load(path).accepted_by is not None
    load(path).refuse_changed()
    assert changed != path.read_text(encoding="utf-8")
    path.write_text(changed, encoding="utf-8")
    assert not load(path).draft
    assert load(path).accepted_by is None
    with pytest.raises(DomainError, match=r"was changed after (Ann|Bob) accepted it; check it and accept it again"):
        load(path).refuse_changed()
    with pytest.raises(DomainError, match="was changed after"):
        sf.open(pa.table({"sex": ["F"]}), domain=path, limit=sf.Epsilon(1), create=True)
    assert not path.with_suffix(".ledger").exists()


@pytest.mark.parametrize("unknown", ["drop", "anything", None])
def test_what_becomes_of_unknown_values_is_one_of_three(unknown) -> None:
    with pytest.raises(DomainError, match=r"the treatment of unknown values of 'a' is Unknown\.DROP"):
        Categorical(name="a", values=("x",), unknown=unknown)
    with pytest.raises(DomainError, match=r"Unknown\.CLAMP"):
        Integer(name="a", minimum=0, maximum=1, unknown=unknown)


def test_a_file_that_was_accepted_by_the_hash_of_its_description_stays_so(tmp_path):
    path = tmp_path / "d.yaml"
    path.write_text(WRITTEN, encoding="utf-8")
    said = {"by": "Ann", "at": "2026-01-01T00:00:00Z", "hash": load(path).hash}
    path.write_text(WRITTEN.replace("true", "false") + f"accepted: {json.dumps(said)}\n", encoding="utf-8")
    assert load(path).accepted_by.by == "Ann"


def test_how_a_file_is_written_and_who_accepted_it_do_not_name_the_domain():
    plain = yaml.safe_load(WRITTEN)
    other = plain | {"csv": {"delimiter": ";", "decimal": ","}}
    assert parse(plain).hash == parse(other).hash
    assert parse(plain) == parse(other)
    assert parse(other).csv == CsvFormat(delimiter=";", decimal=",")
    assert parse(parse(other).describe()).csv == parse(other).csv
    with pytest.raises(DomainError):
        parse(plain | {"csv": {"decimal": ";"}})


_AGE = "attributes:\n  age: {type: integer, minimum: 0, maximum: 99, unknown: clamp, nullable: false}\n"


@pytest.mark.parametrize(
    "text",
    [
        f"sfumato: 1\nunit: row\n<<: {{draft: true}}\n{_AGE}",
        f"<<: {{sfumato: 1}}\nunit: row\n{_AGE}",
        f"sfumato: 1\ndraft: &yes true\nunit: row\n{_AGE.replace('false', '*yes')}",
        (
            f"sfumato: 1\ndrafted: {{hash: &h a, findings: {{}}}}\nunit: row\n{_AGE}  c: {{type: categorical, "
            "values: [*h, b], unknown: drop}\n"
        ),
    ],
)
def test_a_document_without_a_place_for_its_acceptance_is_refused_and_stays(text, tmp_path):
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    with pytest.raises(DomainError, match="no place for its acceptance"):
        accept(path, by="Ann")
    assert path.read_text() == text


def test_an_acceptance_leaves_indents_and_all_comments(tmp_path):
    path = tmp_path / "indented.yaml"
    record = "drafted:\n  hash: a\n  findings: {}\n"
    text = f"sfumato: 1\ndraft: true\n{record}# of whom\nunit: row  # each\n{_AGE}"
    path.write_text("".join(f"  {line}\n" for line in text.splitlines()))
    path.write_text(accept(path, by="Ann"))
    assert load(path).accepted_by.by == "Ann"
    left = [line for line in path.read_text().splitlines() if "accepted:" not in line]
    assert left == [f"  {line}" for line in text.replace(record, "").replace("true", "false").splitlines()]


def test_a_file_that_changes_while_it_is_looked_at_is_not_accepted(tmp_path):
    path = tmp_path / "moving.yaml"
    path.write_text(f"sfumato: 1\nunit: row\n{_AGE}")
    looked_at = load(path)
    path.write_text(path.read_text().replace("99", "87"))
    with pytest.raises(DomainError, match="changed while it was checked"):
        accept(path, by="Ann", described=looked_at)


def test_the_bare_hash_of_a_description_confirms_nothing(tmp_path):
    path = tmp_path / "forged.yaml"
    path.write_text(f"sfumato: 1\nunit: row\n{_AGE}")
    body = {"by": "Ann", "at": "2026-01-01T00:00:00Z", "hash": load(path).hash}
    for parts, accepted in (({}, True), ({"confirmed": ["bounds"]}, False), ({"edited": False}, False)):
        path.write_text(f"sfumato: 1\nunit: row\naccepted: {json.dumps(body | parts)}\n{_AGE}")
        assert (load(path).accepted_by is not None) is accepted


def test_an_acceptance_leaves_links_and_permissions(tmp_path):
    path, link = tmp_path / "people.yaml", tmp_path / "link.yaml"
    path.write_text(f"sfumato: 1\ndraft: true\nunit: row\n{_AGE}")
    path.chmod(0o600)
    link.symlink_to(path)
    sfumato("domain", "accept", str(link), "--by", "Ann", cwd=tmp_path, code=0)
    assert load(path).accepted_by.by == "Ann"
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_marginal_that_names_an_attribute_twice_is_not_said_to_be_a_declaration():
    domain = Domain((Integer(name="age", minimum=0, maximum=9, unknown=Unknown.CLAMP),))
    with pytest.raises(DomainError, match="the attribute 'age' is named twice; name it once"):
        domain.project(("age", "age"))
