"""The form in which a steward edits a description: from a document to the fields of a form, and back.

Every field is text with a name of its own.  So the form can be shown again with all that was typed, even if it is
invalid.  Parts that the form does not show (hierarchies, derived columns, the format of a file) are in ``base``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
UNKNOWN = {
    "category": "counted in a cell of its own",
    "drop": "leaves the row out",
    "clamp": "moved to the nearest bound",
}
GRAINS = ("hour", "day", "week", "month", "quarter", "year")
KINDS = {"text": "texts", "number": "whole numbers", "truth": "true and false"}
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
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


def form_fields(document: Mapping[str, Any], notes: Sequence[str] = ()) -> dict[str, str]:
    """Return the fields that show a document.  A draft may have gaps.

    Raises:
        DomainError: the document is neither a domain nor a schema.
    """
    try:
        return {**_fields(document), "remarks": json.dumps(list(notes))}
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
    parts = {name: {key: value for key, value in body.items() if key != "attributes"} for name, body in bodies.items()}
    base = {key: value for key, value in document.items() if key not in {"tables", "attributes"}} | {"parts": parts}
    return fields | {"base": json.dumps(base)}


def _tables(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield tables by name; that of a domain has an empty name."""
    if document["sfumato"] == VERSION:
        yield from document["tables"].items()
    else:
        yield "", {"attributes": document["attributes"]}


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
    for index, (name, attribute) in enumerate(body["attributes"].items()):
        fields |= {f"a{index}-{key}": text for key, text in _attribute_fields(str(name), attribute).items()}
    return {prefix + key: text for key, text in fields.items()}


def _attribute_fields(name: str, body: Mapping[str, Any]) -> dict[str, str]:
    fields = {"name": name, "type": str(body["type"]), "unknown": str(body["unknown"]), "role": _text(body.get("role"))}
    fields |= {"nullable": "true"} if body.get("nullable") else {}
    for part in ("minimum", "maximum", "typical", "first", "last", "by", "zone"):
        fields[part] = _text(body.get(part))
    for part in ("edges", "points"):
        fields[part] = ", ".join(map(_text, body.get(part) or ()))
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


def parse_fields(fields: Fields) -> dict[str, Any]:
    """Return the document that the fields state, as a draft.

    Raises:
        InputError: a field is invalid; the message names it.
    """
    base = _base(fields)
    parts = base.pop("parts")
    base.pop("accepted", None)
    if "schema" not in fields:
        attributes = _attributes(fields, "t0-", "")
        _drop_hierarchies(base, attributes)
        return base | {"draft": True, "unit": _unit(fields, base.get("unit")), "attributes": attributes}
    tables = {
        name: _table(fields, f"t{index}-", str(name), body)
        for index, (name, body) in enumerate(parts.items())
        if f"t{index}-leave" not in fields
    }
    unit_table = fields.get("unit-table", "")
    unit = {"id": fields.get("unit-id", "").strip(), **({"table": unit_table} if unit_table else {})}
    return base | {"draft": True, "schema": fields["schema"].strip(), "unit": unit, "tables": tables}


def _base(fields: Fields) -> dict[str, Any]:
    """Return the parts that the form does not show.  The key ``parts`` has the parts of each table.

    Raises:
        InputError: the field was changed.
    """
    base = read_json(fields.get("base", ""), name="the form")
    parts = base.get("parts") if isinstance(base, dict) else None
    if not isinstance(parts, dict) or not all(isinstance(body, dict) for body in parts.values()):
        raise InputError("the form is not as it was sent; draft the description again")
    return dict(base)


def _unit(fields: Fields, former: object) -> Any:  # noqa: ANN401 - JSON
    if fields.get("unit-kind") == "row":
        return "row"
    column = fields.get("unit-id", "").strip()
    if not column:
        raise InputError("say which column tells people apart, or that each row is one person")
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
    attributes = _attributes(fields, prefix, f"{name}.")
    _drop_hierarchies(unchanged, attributes)
    return table | unchanged | {"attributes": attributes}


def _drop_hierarchies(body: dict[str, Any], attributes: Mapping[str, Any]) -> None:
    """Drop the hierarchies of attributes that were left out."""
    if isinstance(body.get("hierarchies"), dict):
        body["hierarchies"] = {name: levels for name, levels in body["hierarchies"].items() if name in attributes}


def _attributes(fields: Fields, table_prefix: str, name_prefix: str) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for prefix in _attribute_prefixes(fields, table_prefix):
        if f"{prefix}leave" in fields:
            continue
        name = fields[f"{prefix}name"]
        if not name or name in attributes:
            label = f"{name_prefix}{name or 'an attribute'}"
            raise InputError(f"{label}: every attribute has a name, and a name of its own")
        attributes[name] = _attribute(fields, prefix, f"{name_prefix}{name}")
    return attributes


def _attribute_prefixes(fields: Fields, table_prefix: str) -> Iterator[str]:
    index = 0
    while f"{table_prefix}a{index}-name" in fields:
        yield f"{table_prefix}a{index}-"
        index += 1


def _attribute(fields: Fields, prefix: str, name: str) -> dict[str, Any]:
    kind, text = fields.get(f"{prefix}type", ""), {part: fields.get(prefix + part, "").strip() for part in _PARTS}
    body: dict[str, Any] = {"type": kind}
    if kind == "categorical":
        body["values"] = _values(fields.get(f"{prefix}values", ""), fields.get(f"{prefix}kind", "text"), name)
    elif kind == "integer":
        body |= {part: _integer_field(fields, prefix + part, f"{name}: the {part}") for part in ("minimum", "maximum")}
        edges = [_integer(each, f"{name}: a first value of a bin") for each in _split(text["edges"])]
        body |= {"edges": edges} if edges else {}
        body |= {"typical": _integer(text["typical"], f"{name}: the typical value")} if text["typical"] else {}
    elif kind == "real":
        body["edges"] = [_number(each, f"{name}: an edge") for each in _split(text["edges"])]
        points = [_number(each, f"{name}: a point") for each in _split(text["points"])]
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


_WRITTEN = {"missing": tuple(TYPES), "format": ("date", "timestamp"), "spellings": ("categorical",)}
"""The parts that state how values are written, with the types of attributes that have them."""
_PARTS = ("edges", "points", "typical", "first", "last", "by", "zone", "unknown", "role")


def _values(text: str, kind: str, name: str) -> list[Any]:
    values: list[Any] = []
    for line in map(str.strip, text.replace("\r\n", "\n").split("\n")):
        if not line:
            continue
        if kind == "number":
            values.append(_integer(line, f"{name}: a value"))
        elif kind == "truth":
            if line not in ("true", "false"):
                raise InputError(f"{name}: a value is true or false, where all of them are")
            values.append(line == "true")
        elif line.startswith('"'):
            values.append(str(read_json(line, name=f"{name}: a value in quotes")))
        else:
            values.append(line)
    return values


def _split(text: str) -> list[str]:
    return [each for each in re.split(r"[\s,;]+", text) if each]


def _integer_field(fields: Fields, key: str, label: str) -> int:
    return _integer(fields.get(key, "").strip(), label)


def _integer(text: str, label: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise InputError(f"{label} is a whole number, such as 12{'' if text else ', and is not said'}")
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


def table_forms(fields: Fields) -> list[TableForm]:
    """Return the tables of a form, with their attributes and the notes of the draft.

    Raises:
        InputError: a hidden field was changed.
    """
    notes = draft_notes(fields)
    return [_table_form(fields, f"t{index}-", name, notes) for index, name in enumerate(_base(fields)["parts"])]


def draft_notes(fields: Fields) -> list[str]:
    """Return the notes of the draft."""
    notes = read_json(fields.get("remarks", "[]"), name="the form")
    return [str(note) for note in notes] if isinstance(notes, list) else []


def _table_form(fields: Fields, table_prefix: str, name: str, notes: Sequence[str]) -> TableForm:
    name_prefix = f"{name}." if name else ""
    attributes = []
    for prefix in _attribute_prefixes(fields, table_prefix):
        attribute = fields[f"{prefix}name"]
        mark = f"Look at {name_prefix}{attribute}: "
        hint = next((note.removeprefix(mark) for note in notes if note.startswith(mark)), None)
        incomplete = fields.get(f"{prefix}type") in ("date", "timestamp") and not (
            fields.get(f"{prefix}first") and fields.get(f"{prefix}last")
        )
        is_open = incomplete or hint is not None
        attributes.append(AttributeForm(prefix, attribute, summary(fields, prefix), hint, is_open))
    return TableForm(table_prefix, name, tuple(attributes))


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
        edges = _split(fields.get(f"{prefix}edges", ""))
        return f"{words}, {edges[0]} to {edges[-1]}" if edges else words
    first, last = fields.get(f"{prefix}first"), fields.get(f"{prefix}last")
    return f"{words}, {first} to {last}" if first and last else f"{words}: write the first and the last day"


def with_attribute(fields: Fields, table_prefix: str) -> dict[str, str]:
    """Return the fields with one more attribute in a table, named by its field ``new``.

    Raises:
        InputError: the name is empty, or an attribute has it.
    """
    name = fields.get(f"{table_prefix}new", "").strip()
    prefixes = list(_attribute_prefixes(fields, table_prefix))
    if not name or name in {fields[f"{prefix}name"] for prefix in prefixes}:
        raise InputError("name the column to add, one that is not here yet")
    added = _attribute_fields(name, {"type": "categorical", "unknown": "category"})
    others = {key: text for key, text in fields.items() if key != f"{table_prefix}new"}
    return others | {f"{table_prefix}a{len(prefixes)}-{key}": text for key, text in added.items()}
