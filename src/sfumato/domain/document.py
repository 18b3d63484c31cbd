"""The domain as a YAML document, and its JSON Schema for editors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from sfumato.domain.attribute import Attribute, Categorical, Date, Integer, Real, Role, Timestamp
from sfumato.domain.calendar import Grain
from sfumato.domain.domain import CsvFormat, Domain
from sfumato.domain.raw_values import Unknown
from sfumato.domain.unit import Acceptance, Described, Drafted, GroupBound, Unit, accepted_now
from sfumato.errors import DomainError, InputError
from sfumato.strict_documents import read_yaml, write_yaml

if TYPE_CHECKING:
    from sfumato.domain.hierarchy import Hierarchy


_QUOTED = 60  # characters of a wrong value that a message may quote


def load(path: str | Path) -> Domain:
    """Read a domain from a YAML (or JSON) file.

    Raises:
        DomainError: the file is missing, not YAML, or not a domain; the message names the place.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise DomainError(f"cannot read the domain {path}: {reason}", culprit=path) from None
    try:
        document = read_yaml(text, name=str(path))
    except InputError as error:
        raise DomainError(str(error), culprit=path) from None
    return parse(document, folder=Path(path).parent)


def dump(domain: Domain) -> str:
    """Return the YAML document of a domain; ``parse`` reads it back to an equal domain."""
    return write_yaml(domain.describe())


def accept(path: str | Path, *, by: str, confirmed: Sequence[str] = (), described: Domain | None = None) -> str:
    """Return the text of a domain file with the acceptance of its content; comments and layout stay.

    Args:
        path: the file, which is only read.
        by: the person who accepts it.
        confirmed: the kinds of findings that the person confirms.
        described: the domain whose findings the person checked; None: the domain of the file.

    Raises:
        DomainError: as for :func:`load`, ``by`` is empty, or the file has another domain than ``described``.
    """
    domain = load(path) if described is None else described
    acceptance = accepted_now(domain, by=by, confirmed=confirmed)
    accepted = replace(domain, draft=False, acceptance=acceptance)
    text = with_acceptance(Path(path).read_text(encoding="utf-8"), acceptance, accepted.describe())
    refuse_other_content(parse(read_yaml(text), folder=Path(path).parent), accepted, path)
    return text


def refuse_other_content(written: Described, accepted: Described, path: str | Path) -> None:
    """Refuse a file that changed while its findings were checked.

    Raises:
        DomainError: the written description is not the accepted one.
    """
    if written.hash != accepted.hash:
        raise DomainError(f"{path} changed while it was checked; check it again, then accept it", culprit=path)


def with_acceptance(text: str, acceptance: Acceptance, described: dict[str, Any]) -> str:
    """Return a document with its acceptance; comments and layout stay.

    The record of its draft is removed, because its digests could reveal facts of the table that the owner replaced.

    Args:
        text: the text of the document.
        acceptance: the acceptance to add.
        described: the complete content, for a document that is written as JSON.

    Raises:
        DomainError: the layout of the document has no place for it.
    """
    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    if root.flow_style:  # JSON, or written like it
        return json.dumps(described, indent=2, ensure_ascii=False) + "\n"
    places = {key.value: (key.start_mark, value.start_mark.index, _last_index(value)) for key, value in root.value}
    accepted = f"accepted: {json.dumps(acceptance.describe(), ensure_ascii=False)}"
    changes = []  # (start, end, text)
    if "drafted" in places:
        start, _, end = places["drafted"]
        blank = re.compile(r"[ \t]*\n?").match(text, end)
        changes.append((start.index - start.column, end if blank is None else blank.end(), ""))
    if "draft" in places:
        changes.append((*places["draft"][1:], "false"))
    if "accepted" in places:
        start, _, end = places["accepted"]
        changes.append((start.index, end, accepted))
    elif "draft" in places or "sfumato" in places:
        start, _, end = places.get("draft") or places["sfumato"]
        line = text.find("\n", end)
        end = len(text) if line < 0 else line
        changes.append((end, end, f"\n{' ' * start.column}{accepted}"))
    return _with_changes(text, changes, acceptance)


def _last_index(node: Any) -> int:  # noqa: ANN401 - a node of PyYAML
    """Return the index after the last letter of a value, without the comments that follow a block."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        node = node.value[-1][1] if isinstance(node, yaml.MappingNode) else node.value[-1]
    index: int = node.end_mark.index
    return index


def _with_changes(text: str, changes: Sequence[tuple[int, int, str]], acceptance: Acceptance) -> str:
    """Return a document with the changes that accept it: start, end, and the new text of each.

    Raises:
        DomainError: the changes alter more than the acceptance, because of references between parts or an unusual
            layout.
    """
    accepted = text
    for first, end, new in sorted(changes, reverse=True):
        accepted = accepted[:first] + new + accepted[end:]
    own = ("draft", "drafted", "accepted")
    try:
        before, after = read_yaml(text), read_yaml(accepted)
        parts = [{key: value for key, value in each.items() if key not in own} for each in (before, after)]
        same = parts[0] == parts[1] and after.get("accepted") == acceptance.describe()
        same = same and not after.get("draft") and "drafted" not in after
    except InputError:
        same = False
    if not same:
        raise DomainError(
            "the document has no place for its acceptance; write the keys 'sfumato' and 'draft' on lines of their own, "
            "without references (&, * and <<)"
        )
    return accepted


@cache
def schema() -> dict[str, Any]:
    """Return the published JSON Schema of domain documents."""
    text = resources.files("sfumato.domain").joinpath("domain.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def parse(document: object, *, folder: Path | None = None) -> Domain:
    """Make a domain from a parsed YAML or JSON document.

    Args:
        document: the document as plain dictionaries and lists.
        folder: the folder of the hierarchy files that it names; None: it may name none.

    Raises:
        DomainError: the document does not follow the schema; the message names the place.  It quotes nothing from a
            document that is no domain at all, because that may be the protected table, passed by mistake.
    """
    if not isinstance(document, dict) or "sfumato" not in document:
        raise DomainError(
            "this is no domain: a domain is a mapping with 'sfumato', 'unit' and 'attributes'; "
            "draft one with sfumato domain draft TABLE",
            culprit=document,
        )
    if document["sfumato"] == 2 and "tables" in document:  # noqa: PLR2004 - the version of schemas
        raise DomainError(
            "this is a schema of several tables, not a domain of one; pass it as the argument schema "
            "(sfumato.open_schema in Python)"
        )
    from jsonschema import Draft202012Validator  # imported here: it takes 50 ms, and not every importer parses
    from jsonschema.exceptions import best_match

    document = _with_days(document)
    error = best_match(Draft202012Validator(schema()).iter_errors(document))
    if error is not None:
        place = error.json_path.removeprefix("$").lstrip(".")
        quoted = repr(error.instance)
        reason = error.message if len(quoted) <= _QUOTED else error.message.replace(quoted, "what stands there")
        if error.validator in {"oneOf", "anyOf"}:
            reason = "this has another form"
        examples = [
            yaml.safe_dump(example, default_flow_style=True, sort_keys=False, width=1000).split("\n")[0]
            for example in error.schema.get("examples", ())
        ]
        remedy = f"; write for example {' or '.join(examples)}" if examples else ""
        raise DomainError(f"the domain is wrong at {place or 'the top'}: {reason}{remedy}", culprit=document)
    bodies = {name: {"missing": document.get("missing", ())} | body for name, body in document["attributes"].items()}
    attributes = tuple(_attribute(name, body) for name, body in bodies.items())
    return Domain(
        attributes=attributes,
        unit=parse_unit(document["unit"], [attribute.name for attribute in attributes]),
        draft=document.get("draft", False),
        csv=CsvFormat(**document["csv"]) if "csv" in document else None,
        acceptance=Acceptance(**document["accepted"]) if "accepted" in document else None,
        drafted=Drafted(**document["drafted"]) if "drafted" in document else None,
        hierarchies=_hierarchies(document, attributes, folder) if "hierarchies" in document else (),
    )


def parse_unit(document: Any, names: Sequence[str] = ()) -> Unit:  # noqa: ANN401 - JSON
    """Return the unit in a document, in the form of the schema.

    Args:
        document: ``row``, or the id, its rows and its bounds by groups.
        names: the names of attributes, because a comma inside a name does not separate groupings.
    """
    if document == "row":
        return Unit.row()
    bounds = []
    for name, most in document.get("per", {}).items():
        if not isinstance(name, str):
            raise DomainError(f"bounds by groups name attributes, whose names are text: write {name} in quotes")
        most = most if isinstance(most, dict) else {"rows": most}  # noqa: PLW2901 - the short form
        bounds.append(GroupBound((name,), **most) if name in names else GroupBound.named(name, **most))
    return Unit(document["id"], rows=document["rows"], per=bounds, schema=document.get("schema"))


def _with_days(document: dict[Any, Any]) -> dict[Any, Any]:
    """Return the document with its days as text, because YAML has a type of its own for them.

    Raises:
        DomainError: a date without its first or last day, as in some drafts.
    """
    bodies = document.get("attributes")
    if not isinstance(bodies, dict):
        return document
    dated = {}
    for name, body in bodies.items():
        codes = body.get("missing") if isinstance(body, dict) else None
        if isinstance(codes, list):  # YAML reads 1900-01-01 as a day
            body = body | {"missing": list(map(_text_of_day, codes))}  # noqa: PLW2901
        dated[name] = body
        if not isinstance(body, dict) or body.get("type") not in ("date", "timestamp"):
            continue
        days = {key: body.get(key) for key in ("first", "last")}
        if None in days.values():
            raise DomainError(
                f"attribute {name!r} still needs its first and its last day: write days that everybody knows the table "
                "to be about, such as first: 2023-01-01",
                culprit=name,
            )
        dated[name] = body | {key: day.isoformat() for key, day in days.items() if isinstance(day, date)}
    codes = document.get("missing")
    shared = {"missing": list(map(_text_of_day, codes))} if isinstance(codes, list) else {}
    return document | {"attributes": dated} | shared


def _text_of_day(value: object) -> object:
    return value.isoformat() if isinstance(value, date) else value


def _hierarchies(
    document: dict[str, Any], attributes: tuple[Attribute, ...], folder: Path | None
) -> tuple[Hierarchy, ...]:
    """Return the hierarchies of a document: written out, in named files, or to be drafted."""
    from sfumato.domain.hierarchy import Hierarchy, draft

    by_name = {attribute.name: attribute for attribute in attributes}
    hierarchies = []
    for name, body in document["hierarchies"].items():
        if name not in by_name:
            raise DomainError(f"the domain has a hierarchy of {name!r}, and no such attribute", culprit=name)
        if "rows" in body:
            hierarchy = Hierarchy.parse({"attribute": name, **body})
        elif "file" in body:
            if folder is None:
                raise DomainError(
                    f"the hierarchy of {name!r} is in a file; here a domain contains its hierarchies, in the form "
                    "that 'sfumato domain show FILE --json' prints",
                    culprit=name,
                )
            hierarchy = Hierarchy.read(folder / body["file"], attribute=name)
        else:
            hierarchy = draft(by_name[name])
        if "levels" in body:
            hierarchy = replace(hierarchy, names=tuple(body["levels"]))
        if hierarchy.attribute != name:
            raise DomainError(f"the hierarchy of {name!r} is a file of {hierarchy.attribute!r}", culprit=name)
        hierarchies.append(hierarchy)
    return tuple(hierarchies)


def _attribute(name: str, body: dict[str, Any]) -> Attribute:
    role = Role(body["role"]) if "role" in body else None
    common = {"name": name, "unknown": Unknown(body["unknown"]), "nullable": body.get("nullable", False), "role": role}
    common["missing"] = tuple(body["missing"])
    match body["type"]:
        case "categorical":
            pairs = ((text, value) for value, texts in body.get("spellings", {}).items() for text in texts)
            return Categorical(values=tuple(body["values"]), spellings=tuple(pairs), **common)
        case "integer":
            edges = tuple(body["edges"]) if "edges" in body else None
            bounds = {"minimum": body["minimum"], "maximum": body["maximum"], "edges": edges}
            return Integer(**bounds, typical=body.get("typical"), **common)
        case "date" | "timestamp" as kind:
            formats = body.get("format", ())
            common["formats"] = (formats,) if isinstance(formats, str) else tuple(formats)
            common |= {key: _day(name, body[key]) for key in ("first", "last")} | {"by": Grain(body["by"])}
            return Date(**common) if kind == "date" else Timestamp(**common, zone=body["zone"])
        case _:
            try:
                typical = float(body["typical"]) if "typical" in body else None
                reals, points = (tuple(map(float, body.get(key, ()))) for key in ("edges", "points"))
            except OverflowError:  # an integer with hundreds of digits
                raise DomainError(
                    f"attribute {name!r} has an edge, a point or a typical value beyond 1.8e308"
                ) from None
            return Real(edges=reals, points=points, typical=typical, **common)


def _day(name: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise DomainError(f"attribute {name!r} has a first or last day that no calendar has: {text}") from None


def mapping_at(value: object, at: str) -> dict[Any, Any]:
    """Return a mapping.

    Raises:
        DomainError: the value is something else.
    """
    expect_at(value, dict, at, "a mapping")
    assert isinstance(value, dict)
    return value


def text_at(value: object, at: str) -> str:
    """Return a name.

    Raises:
        DomainError: the value is something else.
    """
    if not isinstance(value, str) or not value or value != value.strip():
        raise DomainError(f"the schema is wrong at {at}: write a name without blanks around it", culprit=value)
    return value


def expect_at(value: object, kind: type, at: str, words: str) -> None:
    """Refuse a value of another kind.

    Raises:
        DomainError: the value has another kind.
    """
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise DomainError(f"the schema is wrong at {at}: {words} stands there", culprit=value)


def only_at(mapping: Mapping[Any, Any], known: set[str], at: str, *, required: Sequence[str] | set[str] = ()) -> None:
    """Refuse a mapping with unknown words or without required words.

    Raises:
        DomainError: a word is unknown or missing.
    """
    for name in mapping:
        if name not in known:
            raise DomainError(
                f"the schema is wrong at {at}: {str(name)[:60]!r} is not known there; {', '.join(sorted(known))} are",
                culprit=name,
            )
    for name in sorted(required):
        if name not in mapping:
            raise DomainError(f"the schema is wrong at {at}: {name!r} is missing", culprit=name)


def read_acceptance(body: object) -> Acceptance:
    """Read the acceptance in the document of a schema.

    Raises:
        DomainError: the acceptance is malformed.
    """
    parts = mapping_at(body, "accepted")
    only_at(parts, {"by", "at", "hash", "confirmed", "edited"}, "accepted", required={"by", "at", "hash"})
    confirmed, edited = parts.get("confirmed", []), parts.get("edited")
    expect_at(confirmed, list, "accepted.confirmed", "a list of kinds of findings")
    if edited is not None:
        expect_at(edited, bool, "accepted.edited", "true or false")
    by, at, signed = (text_at(parts[part], f"accepted.{part}") for part in ("by", "at", "hash"))
    return Acceptance(by, at, signed, tuple(text_at(kind, "accepted.confirmed") for kind in confirmed), edited)


def read_drafted(body: object) -> Drafted:
    """Read the record of a draft in the document of a schema.

    Raises:
        DomainError: the record is malformed.
    """
    parts = mapping_at(body, "drafted")
    only_at(parts, {"hash", "findings"}, "drafted", required={"hash", "findings"})
    kinds = mapping_at(parts["findings"], "drafted.findings")
    findings = {
        text_at(kind, "drafted.findings"): {
            text_at(column, f"drafted.findings.{kind}"): text_at(digest, f"drafted.findings.{kind}")
            for column, digest in mapping_at(columns, f"drafted.findings.{kind}").items()
        }
        for kind, columns in kinds.items()
    }
    return Drafted(text_at(parts["hash"], "drafted.hash"), findings)
