"""Hierarchies in files: CSV with levels as columns (the form of ARX), or YAML and JSON documents."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import yaml

from sfumato.anonymize.hierarchy import Hierarchy
from sfumato.errors import DomainError, InputError
from sfumato.strict_json import read_json

SUFFIXES = (".csv", ".yaml", ".yml", ".json")


def read(path: str | Path, *, attribute: str | None = None) -> Hierarchy:
    """Read a hierarchy; a CSV file is for ``attribute``, or for the attribute that the file is named after.

    A CSV file has one leaf a line, cut at commas or semicolons, with or without the header ``level_0, ...``.

    Raises:
        DomainError: the file cannot be read, or is no hierarchy; the message says what is wrong.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise DomainError(f"cannot read the hierarchy {path}: {reason}", culprit=path) from None
    if path.suffix == ".csv":
        return _from_csv(text, attribute or path.stem)
    try:
        document = read_json(text, name=str(path)) if path.suffix == ".json" else yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError, InputError) as error:
        if isinstance(error, InputError) and error.__cause__ is None:
            raise DomainError(str(error), culprit=path) from None
        where = _where(error.__cause__ or error, text)
        raise DomainError(f"{path} is neither YAML nor JSON{where}", culprit=path) from None
    return parse(document)


def read_folder(folder: str | Path) -> dict[str, Hierarchy]:
    """Every hierarchy in a folder, by attribute.

    Raises:
        DomainError: the folder cannot be read, a file is no hierarchy, or two are for one attribute.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DomainError(f"cannot read the hierarchies in {folder}: not a folder", culprit=folder)
    found: dict[str, Hierarchy] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in SUFFIXES:
            hierarchy = read(path)
            if hierarchy.attribute in found:
                raise DomainError(f"{folder} holds two hierarchies of {hierarchy.attribute!r}", culprit=path)
            found[hierarchy.attribute] = hierarchy
    return found


def describe(hierarchy: Hierarchy) -> dict[str, Any]:
    """The document of a hierarchy as plain dictionaries and lists; ``parse`` reads it back."""
    document: dict[str, Any] = {"attribute": hierarchy.attribute, "rows": hierarchy.rows()}
    if hierarchy.declared_losses is not None:
        document["losses"] = list(hierarchy.declared_losses)
    return document


def parse(document: object) -> Hierarchy:
    """Make a hierarchy from a parsed document: ``attribute``, ``rows`` and, where declared, ``losses``.

    Raises:
        DomainError: the document is no hierarchy.
    """
    if not isinstance(document, Mapping) or not {"attribute", "rows"} <= set(document):
        raise DomainError("a hierarchy document needs 'attribute' and 'rows'", culprit=document)
    name, rows, losses = document["attribute"], document["rows"], document.get("losses")
    if not isinstance(name, str) or not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise DomainError("a hierarchy document has a text 'attribute' and 'rows' of labels", culprit=document)
    hierarchy = Hierarchy.from_rows(name, [[str(label) for label in row] for row in rows])
    if losses is None:
        return hierarchy
    if not isinstance(losses, list) or not all(isinstance(loss, int | float) for loss in losses):
        raise DomainError(f"the losses of {name!r} must be numbers, one a level", culprit=losses)
    return hierarchy.with_losses(losses)


def dump(hierarchy: Hierarchy) -> str:
    """The YAML document of a hierarchy."""
    return yaml.safe_dump(describe(hierarchy), sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)


def _where(error: BaseException, text: str) -> str:
    """The line that cannot be read, and what is most often wrong with it; nothing where the reader names none."""
    line = error.lineno if isinstance(error, json.JSONDecodeError) else None
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        line = error.problem_mark.line + 1
    lines = text.splitlines()
    if line is None or line > len(lines):
        return ""
    star = isinstance(error, yaml.YAMLError) and re.search(r"(^|[\s\[,-])\*", lines[line - 1])
    return f": line {line} cannot be read" + ("; the label * needs quotes, '*'" if star else "")


def _from_csv(text: str, attribute: str) -> Hierarchy:
    first = text.partition("\n")[0]
    delimiter = ";" if first.count(";") > first.count(",") else ","
    try:
        rows = [row for row in csv.reader(StringIO(text), delimiter=delimiter) if row]
    except csv.Error as error:
        raise DomainError(f"the hierarchy of {attribute!r} is no CSV: {error}", culprit=attribute) from None
    if rows and rows[0] == [f"level_{number}" for number in range(len(rows[0]))]:
        rows = rows[1:]
    return Hierarchy.from_rows(attribute, rows)
