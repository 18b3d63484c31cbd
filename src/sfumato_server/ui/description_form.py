"""The form in which a steward edits a description: from a document to the fields of a form, and back.

Every field is text with a name of its own.  So the form can be shown again with all typed text, even if it is invalid.
Fields change a document that the server stores.  Its other parts, such as hierarchies, derived columns and the format
of a file, stay equal to the byte.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.description.draft import ColumnDraft
from sfumato.description.redraft import EditedTable, OpenTable
from sfumato.domain.table_schema import VERSION
from sfumato.errors import DomainError, InputError
from sfumato.strict_documents import read_json, read_yaml, write_yaml

Fields = Mapping[str, str]
TYPES = {
    "categorical": "a list of values",
    "integer": "whole numbers",
    "real": "numbers in bins",
    "date": "dates",
    "timestamp": "times",
}
_OF_ATTRIBUTE = re.compile(r"t\d+-(a\d+-|new$)")
_SIMPLE = {"minimum", "maximum", "edges", "missing", "nullable", "values", "first", "last"}
"""The fields whose changes leave the other parts of an attribute as they are."""
_UNIT = ("unit-kind", "unit-id", "unit-rows", "unit-per")
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL = re.compile(r"[+-]?[0-9]*\.[0-9]+([eE][+-]?[0-9]+)?")
_CODE = re.compile(r'\s*"(?:[^"\\]|\\.)*"\s*(?=,|$)|[^,]+')
_LISTED = re.compile(r"[^\s,;]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MAX_VALUES = 4  # in the summary of an attribute


@dataclass(frozen=True)
class AttributeForm:
    """An attribute in the form.

    Attributes:
        at: the prefix of its fields.
        name: the name of the attribute.
        summary: its values in a few words.
        hint: a note of the draft; None if there is none.
        open: whether the form shows its fields at first.
    """

    at: str
    name: str
    summary: str
    hint: str | None
    open: bool


@dataclass(frozen=True)
class TableForm:
    """A table in the form, with the prefix of its fields.  The table of a domain has no name."""

    at: str
    name: str
    attributes: tuple[AttributeForm, ...]


def form_fields(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields that show a document.  A draft may have gaps.

    Raises:
        DomainError: the document is neither a domain nor a schema.
    """
    try:
        return _fields(document)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise DomainError(
            "this is no domain and no schema, or one whose parts stand in the wrong places; draft one from the table"
        ) from None


def _fields(document: Mapping[str, Any]) -> dict[str, str]:
    bodies = dict(_tables(document))
    fields: dict[str, str] = {}
    if document["sfumato"] == VERSION:
        fields |= {"schema": str(document["schema"]), "unit-id": str(document["unit"]["id"])}
        fields |= {"unit-table": _text(document["unit"].get("table"))}
    else:
        unit = document["unit"]
        fields["unit-kind"] = "row" if unit == "row" else "id"
        if unit != "row":
            fields |= {"unit-id": str(unit["id"]), "unit-rows": str(unit["rows"]), "unit-per": _lines(unit.get("per"))}
    for index, body in enumerate(bodies.values()):
        fields |= _table_fields(f"t{index}-", body)
    return fields


def _tables(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield tables by name; that of a domain has an empty name."""
    if document["sfumato"] == VERSION:
        yield from document["tables"].items()
    else:
        yield "", {"attributes": document["attributes"], "missing": document.get("missing", [])}


def _table_fields(prefix: str, body: Mapping[str, Any]) -> dict[str, str]:
    public = body.get("public", False)
    (column, to) = next(iter((body.get("through") or {}).items()), ("", ""))
    fields = {
        "public": "" if public is None else "public" if public else "private",
        "key": _text(body.get("key")),
        "unit": _text(body.get("unit")),
        "through": _text(column),
        "through-table": _text(to),
        "rows": _text(body.get("rows")),
        "per": _lines(body.get("per")),
        "references": _lines(body.get("references")),
    }
    shared = body.get("missing", [])
    for index, (name, attribute) in enumerate(body["attributes"].items()):
        fields |= {f"a{index}-{key}": text for key, text in _attribute_fields(str(name), attribute, shared).items()}
    return {prefix + key: text for key, text in fields.items()}


def _attribute_fields(name: str, body: Mapping[str, Any], shared: Sequence[Any] = ()) -> dict[str, str]:
    fields = {"name": name, "type": str(body["type"]), "unknown": str(body["unknown"]), "role": _text(body.get("role"))}
    fields |= {"nullable": "true"} if body.get("nullable") else {}
    for part in ("minimum", "maximum", "typical", "first", "last", "by", "zone"):
        fields[part] = _text(body.get(part))
    for part in ("edges", "points"):
        fields[part] = ", ".join(map(_text, body.get(part) or ()))
    if body["type"] == "real" and body.get("edges"):
        fields |= {"minimum": _text(body["edges"][0]), "maximum": _text(body["edges"][-1])}
    fields["missing"] = ", ".join(map(_code, body.get("missing", shared)))
    fields["written"] = _lines({part: body[part] for part in _WRITTEN if part in body})
    values = body.get("values") or ()
    kinds = {bool: "truth", int: "number"}
    fields["kind"] = kinds.get(type(values[0]), "text") if values else "text"
    fields["values"] = "\n".join(map(_line, values))
    return fields


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _line(value: object) -> str:
    """Return a value as a line.  A text that would not be read back unchanged is in quotes."""
    if not isinstance(value, str):
        return str(value).lower()
    needs_quotes = not value or value != value.strip() or value.startswith('"') or _CONTROL.search(value)
    return json.dumps(value, ensure_ascii=False) if needs_quotes else value


def _lines(mapping: Mapping[str, Any] | None) -> str:
    """Return a mapping with one line per key.  PyYAML alone would write a short mapping in one line."""
    lines = [write_yaml({key: value}).strip() for key, value in (mapping or {}).items()]
    return "\n".join(line[1:-1] if line.startswith("{") else line for line in lines)


# --- from fields to a document ---------------------------------------------------------------------------------------


def edited_document(document: Mapping[str, Any], fields: Fields, open_table: OpenTable | None = None) -> dict[str, Any]:
    """Return a draft with the changes of the fields.  All other parts stay equal.

    Bounds and codes for missing values change as they do by the methods of a draft in Python.

    Args:
        document: the draft.
        fields: the fields of the form.
        open_table: opens a table to draft a column again; None keeps the column as it is.

    Raises:
        InputError, DomainError: a field is invalid; the message names it.
    """
    before = form_fields(document)
    result = {key: value for key, value in document.items() if key != "accepted"} | {"draft": True}
    if "schema" not in before:
        edited = _edited_attributes(
            EditedTable(result, record=result.get("drafted"), open_table=open_table), before, fields, "t0-", ""
        )
        table = edited.document | ({} if edited.record is None else {"drafted": edited.record})
        if any(part in fields and fields[part] != before.get(part, "") for part in _UNIT):
            table["unit"] = _unit(fields, document.get("unit"))
            column = None if table["unit"] == "row" else table["unit"]["id"]
            table["attributes"] = {name: body for name, body in table["attributes"].items() if name != column}
        _drop_hierarchies(table, table["attributes"])
        return table
    tables = {}
    for index, (name, body) in enumerate(document["tables"].items()):
        if f"t{index}-leave" not in fields:
            edited = EditedTable(body, name=name, record=result.get("drafted"), open_table=open_table)
            tables[name] = _edited_table(edited, before, fields, f"t{index}-", str(name))
            result |= {} if edited.record is None else {"drafted": edited.record}
    if "schema" in fields:
        unit_table = fields.get("unit-table", "")
        unit = {"id": fields.get("unit-id", "").strip(), **({"table": unit_table} if unit_table else {})}
        result |= {"schema": fields["schema"].strip(), "unit": unit}
    return result | {"tables": tables}


def _edited_table(edited: EditedTable, before: Fields, fields: Fields, prefix: str, name: str) -> dict[str, Any]:
    table = _edited_attributes(edited, before, fields, prefix, f"{name}.").document
    own = (key for key in before if key.startswith(prefix) and not _OF_ATTRIBUTE.match(key))
    if all(fields.get(key, before[key]) == before[key] for key in own):
        _drop_hierarchies(table, table["attributes"])
        return table
    return _table(fields, prefix, name, table)


def _edited_attributes(
    table: EditedTable, before: Fields, fields: Fields, table_prefix: str, name_prefix: str
) -> EditedTable:
    names = list(table.document["attributes"])
    for index, prefix in enumerate(_attribute_prefixes(before, table_prefix)):
        if f"{prefix}name" in fields:  # else the form does not show the attribute
            label = f"{name_prefix}{names[index]}"
            _edit_attribute(table, names[index], before, fields, prefix=prefix, label=label)
    return table


def _edit_attribute(table: EditedTable, name: str, before: Fields, fields: Fields, *, prefix: str, label: str) -> None:
    """Change one attribute of a table, or leave it out."""
    column = ColumnDraft(table, name)
    if f"{prefix}leave" in fields:
        column.drop()
        return
    parts = {key.removeprefix(prefix) for key in before if key.startswith(prefix)}
    changed = {part for part in parts if fields.get(prefix + part, before[prefix + part]) != before[prefix + part]}
    if (f"{prefix}nullable" in fields) != (f"{prefix}nullable" in before):
        changed.add("nullable")
    text = {part: fields.get(prefix + part, before[prefix + part]).strip() for part in parts}
    if changed - _SIMPLE:
        codes = {"missing": column.body["missing"]} if "missing" in column.body else {}
        table.change_attribute(name, _attribute(fields, prefix, label) | codes)
        changed &= {"missing"}
    if "nullable" in changed:
        body = {key: value for key, value in column.body.items() if key != "nullable"}
        table.change_attribute(name, body | ({"nullable": True} if f"{prefix}nullable" in fields else {}))
    if "values" in changed:
        table.change_attribute(name, column.body | {"values": _values(text["values"], text["kind"], label)})
    if changed & {"first", "last"}:
        column.days(text["first"], text["last"])
    if changed & {"minimum", "maximum", "edges"}:
        _change_bins(column, text, changed, label)
    if "missing" in changed:
        _change_codes(table, column, _codes(text["missing"], label))


def _change_bins(column: ColumnDraft, text: Mapping[str, str], changed: Collection[str], label: str) -> None:
    """State the bounds of a column of numbers, or its bins."""
    read = _integer if column.body["type"] == "integer" else _number
    edges = [read(each, f"{label}: an edge") for each in _LISTED.findall(text["edges"])]
    if "edges" not in changed or not edges:
        low, high = (read(text[part], f"{label}: the {part}") for part in ("minimum", "maximum"))
        column.bounds(low, high)
    elif column.body["type"] == "integer":
        column.bins([*edges, _integer(text["maximum"], f"{label}: the maximum")])
    else:
        column.bins(edges)


def _change_codes(table: EditedTable, column: ColumnDraft, codes: list[Any]) -> None:
    """Declare the codes that stand for a missing value; codes that are no longer listed are values again."""
    listed = column.body.get("missing", table.document.get("missing", []))
    if all(code in codes for code in listed):
        column.missing(*(code for code in codes if code not in listed))
        return
    table.change_attribute(column.name, column.body | {"missing": codes})


def _codes(text: str, label: str) -> list[str | int | float]:
    """Read codes with commas between: numbers, texts, and in quotes any text."""
    codes: list[str | int | float] = []
    for part in map(str.strip, _CODE.findall(text)):
        if part.startswith('"'):
            codes.append(str(read_json(part, name=f"{label}: a code in quotes")))
        elif _INTEGER.fullmatch(part) or _DECIMAL.fullmatch(part):
            codes.append(_number(part, f"{label}: a code"))
        elif part:
            codes.append(part)
    return codes


def _code(code: str | float) -> str:
    """Return a code as text that is read back unchanged."""
    text = _text(code)
    return text if _codes(text, "") == [code] else json.dumps(code, ensure_ascii=False)


def _unit(fields: Fields, former: object) -> Any:  # noqa: ANN401 - JSON
    if fields.get("unit-kind") == "row":
        return "row"
    column = fields.get("unit-id", "").strip()
    if not column:
        raise InputError("write the column with the id of a person, or choose that each row is one person")
    unit: dict[str, Any] = {"id": column, "rows": _integer_field(fields, "unit-rows", "the rows kept of one person")}
    per = _mapping(fields, "unit-per", "the bounds by groups")
    schema = {"schema": former["schema"]} if isinstance(former, dict) and "schema" in former else {}
    return unit | ({"per": per} if per else {}) | schema


def _table(fields: Fields, prefix: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    editable = {"public", "key", "unit", "through", "references", "rows", "per"}
    unchanged = {key: value for key, value in body.items() if key not in editable}
    table: dict[str, Any] = {}
    text = {
        part: fields.get(prefix + part, "").strip() for part in ("public", "key", "unit", "through", "through-table")
    }
    if text["public"] != "private":
        table["public"] = True if text["public"] == "public" else None
    table |= {"key": text["key"]} if text["key"] else {}
    if text["public"] == "private":
        table |= {"unit": text["unit"]} if text["unit"] else {}
        table |= {"through": {text["through"]: text["through-table"]}} if text["through"] else {}
        if fields.get(f"{prefix}rows", "").strip():
            table["rows"] = _integer_field(fields, f"{prefix}rows", f"the rows of {name} kept of one person")
        table |= {"per": per} if (per := _mapping(fields, f"{prefix}per", f"{name}: the bounds by groups")) else {}
    references = _mapping(fields, f"{prefix}references", f"{name}: the columns with keys of public tables")
    table |= {"references": references} if references else {}
    attributes = unchanged.pop("attributes")
    _drop_hierarchies(unchanged, attributes)
    return table | unchanged | {"attributes": attributes}


def _drop_hierarchies(body: dict[str, Any], attributes: Mapping[str, Any]) -> None:
    """Drop the hierarchies of attributes that were left out."""
    if isinstance(body.get("hierarchies"), dict):
        body["hierarchies"] = {name: levels for name, levels in body["hierarchies"].items() if name in attributes}


def _attribute_prefixes(fields: Fields, table_prefix: str) -> Iterator[str]:
    index = 0
    while f"{table_prefix}a{index}-name" in fields:
        yield f"{table_prefix}a{index}-"
        index += 1


def _attribute(fields: Fields, prefix: str, name: str) -> dict[str, Any]:
    kind, text = fields.get(f"{prefix}type", ""), {part: fields.get(prefix + part, "").strip() for part in _PARTS}
    if kind not in TYPES:
        raise InputError(f"{name}: choose what it holds: {', '.join(TYPES)}")
    body: dict[str, Any] = {"type": kind}
    if kind == "categorical":
        body["values"] = _values(fields.get(f"{prefix}values", ""), fields.get(f"{prefix}kind", "text"), name)
    elif kind == "integer":
        body |= {part: _integer_field(fields, prefix + part, f"{name}: the {part}") for part in ("minimum", "maximum")}
        edges = [_integer(each, f"{name}: a first value of a bin") for each in _LISTED.findall(text["edges"])]
        body |= {"edges": edges} if edges else {}
        body |= {"typical": _integer(text["typical"], f"{name}: the typical value")} if text["typical"] else {}
    elif kind == "real":
        body["edges"] = [_number(each, f"{name}: an edge") for each in _LISTED.findall(text["edges"])]
        points = [_number(each, f"{name}: a point") for each in _LISTED.findall(text["points"])]
        body |= {"points": points} if points else {}
        body |= {"typical": _number(text["typical"], f"{name}: the typical value")} if text["typical"] else {}
    else:
        body |= {"first": text["first"] or None, "last": text["last"] or None, "by": text["by"]}
        body |= {"zone": text["zone"]} if kind == "timestamp" else {}
    body |= {"nullable": True} if f"{prefix}nullable" in fields else {}
    written = _mapping(fields, f"{prefix}written", f"{name}: how its values are written")
    body |= {part: value for part, value in written.items() if kind in _WRITTEN.get(part, (kind,))}
    body |= {"unknown": text["unknown"]}
    return body | ({"role": text["role"]} if text["role"] else {})


_WRITTEN = {"format": ("date", "timestamp"), "spellings": ("categorical",)}
"""The parts that state how values are written, with the types of attributes that have them."""
_PARTS = ("edges", "points", "typical", "first", "last", "by", "zone", "unknown", "role")


def _values(text: str, kind: str, name: str) -> list[Any]:
    values: list[Any] = []
    for line in map(str.strip, text.split("\n")):
        if not line:
            continue
        if kind == "number":
            values.append(_integer(line, f"{name}: a value"))
        elif kind == "truth":
            if line not in ("true", "false"):
                raise InputError(f"{name}: each value is true or false, because the values are truth values")
            values.append(line == "true")
        elif line.startswith('"'):
            values.append(str(read_json(line, name=f"{name}: a value in quotes")))
        else:
            values.append(line)
    return values


def _integer_field(fields: Fields, key: str, label: str) -> int:
    return _integer(fields.get(key, "").strip(), label)


def _integer(text: str, label: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise InputError(f"{label} is a whole number, such as 12{'' if text else ', and is empty'}")
    return int(text)


def _number(text: str, label: str) -> int | float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{label} is a number with a decimal point, such as 0.5")
    return int(text) if _INTEGER.fullmatch(text) else number


def _mapping(fields: Fields, key: str, label: str) -> dict[str, Any]:
    text = fields.get(key, "").strip()
    if not text:
        return {}
    mapping = read_yaml(text, name=label)
    if not isinstance(mapping, dict):
        raise InputError(f"{label} are lines such as 'month(admitted): 2'")
    return {str(name): value for name, value in mapping.items()}


# --- tables and attributes for the template --------------------------------------------------------------------------


def table_forms(document: Mapping[str, Any], fields: Fields, notes: Sequence[str]) -> list[TableForm]:
    """Return the tables of a form, with their attributes and the notes of the draft."""
    return [
        _table_form(fields, f"t{index}-", str(name), body["attributes"], notes)
        for index, (name, body) in enumerate(_tables(document))
    ]


def _table_form(
    fields: Fields, table_prefix: str, name: str, attributes: Iterable[str], notes: Sequence[str]
) -> TableForm:
    name_prefix = f"{name}." if name else ""
    forms = []
    for index, attribute in enumerate(attributes):
        prefix = f"{table_prefix}a{index}-"
        mark = f"Look at {name_prefix}{attribute}: "
        hint = next((note.removeprefix(mark) for note in notes if note.startswith(mark)), None)
        incomplete = fields.get(f"{prefix}type") in ("date", "timestamp") and not (
            fields.get(f"{prefix}first") and fields.get(f"{prefix}last")
        )
        is_open = incomplete or hint is not None
        forms.append(AttributeForm(prefix, attribute, summary(fields, prefix), hint, is_open))
    return TableForm(table_prefix, name, tuple(forms))


def summary(fields: Fields, prefix: str) -> str:
    """Return the values of an attribute in a few words."""
    kind = fields.get(f"{prefix}type", "")
    words = TYPES.get(kind, kind)
    if f"{prefix}leave" in fields:
        return "left out"
    if kind == "categorical":
        values = [line.strip() for line in fields.get(f"{prefix}values", "").splitlines() if line.strip()]
        more = f" and {len(values) - _MAX_VALUES} more" if len(values) > _MAX_VALUES else ""
        return f"{', '.join(values[:_MAX_VALUES])}{more}" if values else words
    if kind == "integer":
        return f"{words}, {fields.get(f'{prefix}minimum', '')} to {fields.get(f'{prefix}maximum', '')}"
    if kind == "real":
        edges = _LISTED.findall(fields.get(f"{prefix}edges", ""))
        return f"{words}, {edges[0]} to {edges[-1]}" if edges else words
    first, last = fields.get(f"{prefix}first"), fields.get(f"{prefix}last")
    return f"{words}, {first} to {last}" if first and last else f"{words}: write the first and the last day"


def with_attribute(document: Mapping[str, Any], table: str, name: str) -> dict[str, Any]:
    """Return the document with one more attribute, which has no values yet.  Tables have numbers from 0.

    Raises:
        InputError: there is no such table, the name is empty, or an attribute has it.
    """
    tables = {str(number): each for number, each in enumerate(_tables(document))}
    name = name.strip()
    if table not in tables or not name or name in tables[table][1]["attributes"]:
        raise InputError("name the column to add; the form must not have it already")
    key, body = tables[table]
    attributes = body["attributes"] | {name: {"type": "categorical", "values": [], "unknown": "category"}}
    if not key:
        return {**document, "attributes": attributes}
    return {**document, "tables": {**document["tables"], key: {**document["tables"][key], "attributes": attributes}}}
