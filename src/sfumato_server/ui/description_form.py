"""The form in which a steward edits a description: the fields of a document, and the document that fields say.

Every field is text under a name of its own, so that the form is shown again as it was sent, whatever is wrong in it.
What the form does not show (hierarchies, derived columns, how a file is written) goes along unchanged in ``base``.
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
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SHOWN = 4  # values that a summary names
_UNLISTED = ("attributes",)


@dataclass(frozen=True)
class AttributeForm:
    """An attribute as the form shows it: the prefix of its fields, and what to look at."""

    at: str
    name: str
    summary: str
    hint: str | None
    open: bool


@dataclass(frozen=True)
class TableForm:
    """A table as the form shows it; without a name where it is the only one."""

    at: str
    name: str
    attributes: tuple[AttributeForm, ...]
    remarks: tuple[str, ...] = ()


def fields_of(document: Mapping[str, Any], remarks: Sequence[str] = ()) -> dict[str, str]:
    """The fields that show a document, which a draft may have left open in places.

    Raises:
        DomainError: it is not of the form of a domain or a schema, so that no form shows it.
    """
    try:
        return {**_fields(document), "remarks": json.dumps(list(remarks))}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise DomainError(
            "this is no domain and no schema, or one whose parts stand in the wrong places; draft one from the table"
        ) from None


def _fields(document: Mapping[str, Any]) -> dict[str, str]:
    bodies = dict(_tables(document))
    found: dict[str, str] = {}
    if document["sfumato"] == VERSION:
        found |= {"schema": str(document["schema"]), "unit-id": str(document["unit"]["id"])}
        found |= {"unit-table": _text(document["unit"].get("table"))}
    else:
        unit = document["unit"]
        found["unit-kind"] = "row" if unit == "row" else "id"
        if unit != "row":
            found |= {"unit-id": str(unit["id"]), "unit-rows": str(unit["rows"]), "unit-per": _lines(unit.get("per"))}
    for place, (_, body) in enumerate(bodies.items()):
        found |= _table_fields(f"t{place}-", body)
    tables = {name: {key: each for key, each in body.items() if key not in _UNLISTED} for name, body in bodies.items()}
    base = {key: each for key, each in document.items() if key not in {"tables", *_UNLISTED}} | {"parts": tables}
    return found | {"base": json.dumps(base)}


def _tables(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Tables by name; a domain is of one, which has none."""
    if document["sfumato"] == VERSION:
        yield from document["tables"].items()
    else:
        yield "", {"attributes": document["attributes"]}


def _table_fields(at: str, body: Mapping[str, Any]) -> dict[str, str]:
    public = body.get("public", False)
    (column, to) = next(iter((body.get("through") or {}).items()), ("", ""))
    found = {
        "public": "" if public is None else "public" if public else "private",
        "key": _text(body.get("key")),
        "unit": _text(body.get("unit")),
        "through": _text(column),
        "through-table": _text(to),
        "rows": _text(body.get("rows")),
        "per": _lines(body.get("per")),
        "references": _lines(body.get("references")),
    }
    for place, (name, said) in enumerate(body["attributes"].items()):
        found |= {f"a{place}-{key}": text for key, text in _attribute_fields(str(name), said).items()}
    return {at + key: text for key, text in found.items()}


def _attribute_fields(name: str, body: Mapping[str, Any]) -> dict[str, str]:
    found = {"name": name, "type": str(body["type"]), "unknown": str(body["unknown"]), "role": _text(body.get("role"))}
    found |= {"nullable": "true"} if body.get("nullable") else {}
    for part in ("minimum", "maximum", "typical", "first", "last", "by", "zone"):
        found[part] = _text(body.get(part))
    for part in ("edges", "points"):
        found[part] = ", ".join(map(_text, body.get(part) or ()))
    values = body.get("values") or ()
    kinds = {bool: "truth", int: "number"}
    found["kind"] = kinds.get(type(values[0]), "text") if values else "text"
    found["values"] = "\n".join(map(_line, values))
    return found


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _line(value: object) -> str:
    """A value in a line of its own; texts that would not come back as they are stand in quotes."""
    if not isinstance(value, str):
        return str(value).lower()
    odd = not value or value != value.strip() or value.startswith('"') or _CONTROL.search(value)
    return json.dumps(value, ensure_ascii=False) if odd else value


def _lines(mapping: Mapping[str, Any] | None) -> str:
    """A mapping with a line for each key, which one of plain values alone does not get from PyYAML."""
    found = [write_yaml({key: each}).strip() for key, each in (mapping or {}).items()]
    return "\n".join(each[1:-1] if each.startswith("{") else each for each in found)


# --- back -------------------------------------------------------------------------------------------------------------


def document_of(fields: Fields) -> dict[str, Any]:
    """The document that the fields say, as a draft.

    Raises:
        InputError: a field is no number, no value, or no list; the message names it.
    """
    base = _base(fields)
    parts = base.pop("parts")
    base.pop("accepted", None)
    if "schema" not in fields:
        attributes = _attributes(fields, "t0-", "")
        _keep_hierarchies(base, attributes)
        return base | {"draft": True, "unit": _unit(fields, base.get("unit")), "attributes": attributes}
    tables = {
        name: _table(fields, f"t{place}-", str(name), body)
        for place, (name, body) in enumerate(parts.items())
        if f"t{place}-leave" not in fields
    }
    listing = fields.get("unit-table", "")
    unit = {"id": fields.get("unit-id", "").strip(), **({"table": listing} if listing else {})}
    return base | {"draft": True, "schema": fields["schema"].strip(), "unit": unit, "tables": tables}


def _base(fields: Fields) -> dict[str, Any]:
    """What goes along with the fields, with all but the attributes of each table under ``parts``.

    Raises:
        InputError: it is no form of a description.
    """
    base = read_json(fields.get("base", ""), name="the form")
    parts = base.get("parts") if isinstance(base, dict) else None
    if not isinstance(parts, dict) or not all(isinstance(body, dict) for body in parts.values()):
        raise InputError("the form is not as it was sent; draft the description again")
    return dict(base)


def _unit(fields: Fields, before: object) -> Any:  # noqa: ANN401 - JSON
    if fields.get("unit-kind") == "row":
        return "row"
    column = fields.get("unit-id", "").strip()
    if not column:
        raise InputError("say which column tells people apart, or that each row is one person")
    unit: dict[str, Any] = {"id": column, "rows": _whole(fields, "unit-rows", "the rows kept of one person")}
    per = _mapping(fields, "unit-per", "the bounds by groups")
    schema = {"schema": before["schema"]} if isinstance(before, dict) and "schema" in before else {}
    return unit | ({"per": per} if per else {}) | schema


def _table(fields: Fields, at: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    edited = {"public", "key", "unit", "through", "references", "rows", "per"}
    kept = {key: each for key, each in body.items() if key not in edited}
    found: dict[str, Any] = {}
    text = {part: fields.get(at + part, "").strip() for part in ("public", "key", "unit", "through", "through-table")}
    if text["public"] != "private":
        found["public"] = True if text["public"] == "public" else None
    found |= {"key": text["key"]} if text["key"] else {}
    if text["public"] == "private":
        found |= {"unit": text["unit"]} if text["unit"] else {}
        found |= {"through": {text["through"]: text["through-table"]}} if text["through"] else {}
        rows = fields.get(f"{at}rows", "").strip()
        found |= {"rows": _whole(fields, f"{at}rows", f"the rows of {name} kept of one person")} if rows else {}
        found |= {"per": per} if (per := _mapping(fields, f"{at}per", f"{name}: the bounds by groups")) else {}
    references = _mapping(fields, f"{at}references", f"{name}: the columns with keys of public tables")
    found |= {"references": references} if references else {}
    attributes = _attributes(fields, at, f"{name}.")
    _keep_hierarchies(kept, attributes)
    return found | kept | {"attributes": attributes}


def _keep_hierarchies(body: dict[str, Any], attributes: Mapping[str, Any]) -> None:
    """Leave out those of attributes that are left out."""
    if isinstance(body.get("hierarchies"), dict):
        body["hierarchies"] = {name: said for name, said in body["hierarchies"].items() if name in attributes}


def _attributes(fields: Fields, at: str, of: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for here in _places(fields, at):
        if f"{here}leave" in fields:
            continue
        name = fields[f"{here}name"]
        if not name or name in found:
            raise InputError(f"{of}{name or 'an attribute'}: every attribute has a name, and a name of its own")
        found[name] = _attribute(fields, here, f"{of}{name}")
    return found


def _places(fields: Fields, at: str) -> Iterator[str]:
    place = 0
    while f"{at}a{place}-name" in fields:
        yield f"{at}a{place}-"
        place += 1


def _attribute(fields: Fields, at: str, name: str) -> dict[str, Any]:
    kind, text = fields.get(f"{at}type", ""), {part: fields.get(at + part, "").strip() for part in _PARTS}
    body: dict[str, Any] = {"type": kind}
    if kind == "categorical":
        body["values"] = _values(fields.get(f"{at}values", ""), fields.get(f"{at}kind", "text"), name)
    elif kind == "integer":
        body |= {part: _whole(fields, at + part, f"{name}: the {part}") for part in ("minimum", "maximum")}
        edges = [_integer(each, f"{name}: a first value of a bin") for each in _listed(text["edges"])]
        body |= {"edges": edges} if edges else {}
        body |= {"typical": _integer(text["typical"], f"{name}: the typical value")} if text["typical"] else {}
    elif kind == "real":
        body["edges"] = [_number(each, f"{name}: an edge") for each in _listed(text["edges"])]
        points = [_number(each, f"{name}: a point") for each in _listed(text["points"])]
        body |= {"points": points} if points else {}
        body |= {"typical": _number(text["typical"], f"{name}: the typical value")} if text["typical"] else {}
    else:
        body |= {"first": text["first"] or None, "last": text["last"] or None, "by": text["by"]}
        body |= {"zone": text["zone"]} if kind == "timestamp" else {}
    body |= {"nullable": True} if f"{at}nullable" in fields else {}
    body |= {"unknown": text["unknown"]}
    return body | ({"role": text["role"]} if text["role"] else {})


_PARTS = ("edges", "points", "typical", "first", "last", "by", "zone", "unknown", "role")


def _values(text: str, kind: str, name: str) -> list[Any]:
    found: list[Any] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        said = line.strip()
        if not said:
            continue
        if kind == "number":
            found.append(_integer(said, f"{name}: a value"))
        elif kind == "truth":
            if said not in ("true", "false"):
                raise InputError(f"{name}: a value is true or false, where all of them are")
            found.append(said == "true")
        elif said.startswith('"'):
            quoted = read_json(said, name=f"{name}: a value in quotes")
            found.append(str(quoted))
        else:
            found.append(said)
    return found


def _listed(text: str) -> list[str]:
    return [each for each in re.split(r"[\s,;]+", text) if each]


def _whole(fields: Fields, place: str, what: str) -> int:
    return _integer(fields.get(place, "").strip(), what)


def _integer(text: str, what: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise InputError(f"{what} is a whole number, such as 12{'' if text else ', and is not said'}")
    return int(text)


def _number(text: str, what: str) -> int | float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise InputError(f"{what} is a number with a decimal point, such as 0.5")
    return int(text) if _WHOLE.fullmatch(text) else found


def _mapping(fields: Fields, place: str, what: str) -> dict[str, Any]:
    text = fields.get(place, "").strip()
    if not text:
        return {}
    found = read_yaml(text, name=what)
    if not isinstance(found, dict):
        raise InputError(f"{what} are lines such as 'month(admitted): 2'")
    return {str(key): each for key, each in found.items()}


# --- what is shown ----------------------------------------------------------------------------------------------------


def tables_of(fields: Fields) -> list[TableForm]:
    """The tables of a form with their attributes, and what was said of each when they were drafted.

    Raises:
        InputError: it is no form of a description.
    """
    remarks = remarks_of(fields)
    return [_shown_table(fields, f"t{place}-", name, remarks) for place, name in enumerate(_base(fields)["parts"])]


def remarks_of(fields: Fields) -> list[str]:
    """What was said when the description was drafted."""
    found = read_json(fields.get("remarks", "[]"), name="the form")
    return [str(each) for each in found] if isinstance(found, list) else []


def _shown_table(fields: Fields, at: str, name: str, remarks: Sequence[str]) -> TableForm:
    of = f"{name}." if name else ""
    shown = []
    for here in _places(fields, at):
        attribute = fields[f"{here}name"]
        mark = f"Look at {of}{attribute}: "
        hint = next((each.removeprefix(mark) for each in remarks if each.startswith(mark)), None)
        lacking = fields.get(f"{here}type") in ("date", "timestamp") and not (
            fields.get(f"{here}first") and fields.get(f"{here}last")
        )
        shown.append(AttributeForm(here, attribute, summary(fields, here), hint, lacking or hint is not None))
    return TableForm(at, name, tuple(shown))


def summary(fields: Fields, at: str) -> str:
    """What an attribute is, in a few words."""
    kind = fields.get(f"{at}type", "")
    words = TYPES.get(kind, kind)
    if f"{at}leave" in fields:
        return "left out"
    if kind == "categorical":
        values = [line.strip() for line in fields.get(f"{at}values", "").splitlines() if line.strip()]
        more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
        return f"{', '.join(values[:_SHOWN])}{more}" if values else words
    if kind == "integer":
        return f"{words}, {fields.get(f'{at}minimum', '')} to {fields.get(f'{at}maximum', '')}"
    if kind == "real":
        edges = _listed(fields.get(f"{at}edges", ""))
        return f"{words}, {edges[0]} to {edges[-1]}" if edges else words
    first, last = fields.get(f"{at}first"), fields.get(f"{at}last")
    return f"{words}, {first} to {last}" if first and last else f"{words}: write the first and the last day"


def with_attribute(fields: Fields, at: str) -> dict[str, str]:
    """The fields with one attribute more in a table, as its field for a new one names it.

    Raises:
        InputError: no name, or one that there is.
    """
    name = fields.get(f"{at}new", "").strip()
    here = list(_places(fields, at))
    if not name or name in {fields[f"{each}name"] for each in here}:
        raise InputError("name the column to add, one that is not here yet")
    added = _attribute_fields(name, {"type": "categorical", "unknown": "category"})
    found = {key: text for key, text in fields.items() if key != f"{at}new"}
    return found | {f"{at}a{len(here)}-{key}": text for key, text in added.items()}
