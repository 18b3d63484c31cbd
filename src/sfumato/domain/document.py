"""The domain as a YAML document, and the JSON Schema that editors complete it with."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from sfumato.domain.attribute import Attribute, Categorical, Integer, Real, Unknown
from sfumato.domain.domain import Domain
from sfumato.domain.unit import Unit
from sfumato.errors import DomainError

SCHEMA_VERSION = 1


_QUOTED = 60  # characters of a wrong value that a message may repeat


class _RepeatedKey(yaml.YAMLError):
    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


class _Reader(yaml.SafeLoader):
    """YAML in which only true and false are booleans (as in YAML 1.2), and no key is said twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                break  # what constructs the mapping says so
            if key in seen:
                raise _RepeatedKey(key_node.start_mark.line + 1)
            seen.add(key)
        return super().construct_mapping(node, deep)


_BOOLEAN = "tag:yaml.org,2002:bool"
_Reader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _BOOLEAN]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Reader.add_implicit_resolver(_BOOLEAN, re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def load(path: str | Path) -> Domain:
    """Read a domain from a YAML (or JSON) file.

    Raises:
        DomainError: the file is missing, not YAML, or not a domain; the message says where.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise DomainError(f"cannot read the domain {path}: {reason}", culprit=path) from None
    try:
        return parse(yaml.load(text, Loader=_Reader))  # noqa: S506  (a safe loader, made stricter)
    except _RepeatedKey as error:
        raise DomainError(f"{path} says a key twice, at line {error.line}", culprit=path) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise DomainError(f"{path} is not YAML{where}", culprit=path) from None
    except (ValueError, RecursionError):  # a date of no calendar, a number or a nesting beyond all reason
        raise DomainError(
            f"{path} holds what no domain does: a wrong date, or too deep a nesting", culprit=path
        ) from None


def dump(domain: Domain) -> str:
    """The YAML document of a domain; ``parse`` reads it back to an equal domain."""
    return yaml.safe_dump(describe(domain), sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)


@cache
def schema() -> dict[str, Any]:
    """The published JSON Schema of domain documents."""
    text = resources.files("sfumato.domain").joinpath("domain.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def parse(document: object) -> Domain:
    """Make a domain from a parsed YAML or JSON document.

    Raises:
        DomainError: the document does not follow the schema; the message names the place.  It quotes nothing of
            what is no domain at all: that may be the protected table, given in the domain's place.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    if not isinstance(document, dict) or "sfumato" not in document:
        raise DomainError(
            "this is no domain: a domain is a mapping with 'sfumato', 'unit' and 'attributes'; "
            "draft one with sfumato domain draft TABLE",
            culprit=document,
        )
    error = best_match(Draft202012Validator(schema()).iter_errors(document))
    if error is not None:
        place = error.json_path.removeprefix("$").lstrip(".")
        quoted = repr(error.instance)
        reason = error.message if len(quoted) <= _QUOTED else error.message.replace(quoted, "what stands there")
        raise DomainError(f"the domain is wrong at {place or 'the top'}: {reason}", culprit=document)
    unit = document["unit"]
    return Domain(
        attributes=tuple(_attribute(name, body) for name, body in document["attributes"].items()),
        unit=Unit.row() if unit == "row" else Unit(unit["id"], rows=unit["rows"]),
        draft=document.get("draft", False),
    )


def describe(domain: Domain) -> dict[str, Any]:
    """The document of a domain as plain dictionaries and lists."""
    unit = domain.unit
    return {
        "sfumato": SCHEMA_VERSION,
        "draft": domain.draft,
        "unit": "row" if unit.column is None else {"id": unit.column, "rows": unit.rows},
        "attributes": {attribute.name: _body(attribute) for attribute in domain},
    }


def _attribute(name: str, body: dict[str, Any]) -> Attribute:
    unknown = Unknown(body["unknown"])
    nullable = body.get("nullable", False)
    match body["type"]:
        case "categorical":
            return Categorical(name=name, values=tuple(body["values"]), unknown=unknown, nullable=nullable)
        case "integer":
            edges = tuple(body["edges"]) if "edges" in body else None
            return Integer(
                name=name,
                minimum=body["minimum"],
                maximum=body["maximum"],
                edges=edges,
                unknown=unknown,
                nullable=nullable,
            )
        case _:
            return Real(name=name, edges=tuple(map(float, body["edges"])), unknown=unknown, nullable=nullable)


def _body(attribute: Attribute) -> dict[str, Any]:
    match attribute:
        case Categorical():
            own: dict[str, Any] = {"type": "categorical", "values": list(attribute.values)}
        case Integer(edges=None):
            own = {"type": "integer", "minimum": attribute.minimum, "maximum": attribute.maximum}
        case Integer():
            own = {"type": "integer", "minimum": attribute.minimum, "maximum": attribute.maximum}
            own["edges"] = list(attribute.edges or ())
        case Real():
            own = {"type": "real", "edges": list(attribute.edges)}
    return own | {"nullable": attribute.nullable, "unknown": attribute.unknown.value}
