"""Strict readers of JSON and YAML documents, which refuse ambiguous values, and a writer.

Python's reader of JSON and PyYAML take the last of two equal keys.  The first accepts ``NaN``.  The second reads
``yes`` and ``off`` as booleans, ``010`` as eight and ``1:30`` as ninety.  A program that checks a document with one
reader and uses it with another would see two different documents, and a person might see a third.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from sfumato.errors import InputError

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"


def read_json(text: str | bytes, *, name: str = "this") -> Any:  # noqa: ANN401 -- JSON
    """Return the value of a JSON text; ``name`` names the text in messages.

    Raises:
        InputError: no JSON (RFC 8259), a repeated key in an object, NaN or infinity, half a letter, or an excessive
            nesting or number.  If Python states a reason, that is the cause.  The message quotes nothing of the text.

    >>> read_json('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    """
    try:
        decoded = text.decode(json.detect_encoding(text)) if isinstance(text, bytes) else text
        document = _DECODER.decode(decoded)
    except _RepeatedKeyError:
        raise InputError(f"{name} repeats a key, so its meaning is ambiguous", culprit=text) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is no JSON", culprit=text) from error
    if "\\u" in decoded:
        _refuse_odd(document, name)
    return document


def read_yaml(text: str, *, name: str = "this") -> Any:  # noqa: ANN401 -- YAML
    """Return the value of a YAML (or JSON) text.

    Only true and false are booleans, and numbers are decimal: ``010``, ``0x1F``, ``1_000`` and ``1:30`` are texts.

    Raises:
        InputError: no YAML, a repeated key in a mapping, a date of no calendar, half a letter, or an excessive nesting,
            number or repetition.  If PyYAML states a reason, that is the cause.  The message quotes nothing of the
            text.

    >>> read_yaml("{a: [1, yes, true]}")
    {'a': [1, 'yes', True]}
    """
    return _loaded(text, name, as_texts=False)


def read_yaml_texts(text: str, *, name: str = "this") -> Any:  # noqa: ANN401 -- YAML
    """Read YAML like :func:`read_yaml`, with every number, boolean and date as its text.

    >>> read_yaml_texts("{a: [1, yes, 2024-01-01]}")
    {'a': ['1', 'yes', '2024-01-01']}
    """
    return _loaded(text, name, as_texts=True)


def canonical(value: JSON) -> str:
    """Return the canonical JSON text of a value: sorted keys, no spaces, whole floats written as integers.

    Raises:
        InputError: a value that JSON does not have (NaN, infinity, a key that is no string, an object).

    >>> canonical({"b": (1.0, 0.5), "a": None})
    '{"a":null,"b":[1,0.5]}'
    """
    return _quoted(value) if type(value) is str else _ENCODER.encode(_plain_numbers(value))


_quoted = json.encoder.encode_basestring_ascii  # the encoder's function for texts
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
_ATOMS = frozenset((str, int, bool, type(None)))  # types with one form in JSON
_TEXT = frozenset((str,))


def _plain_numbers(value: JSON) -> JSON:
    kind = type(value)
    if kind in _ATOMS:  # most values are, and the match below is slower
        return value
    if kind is list or kind is tuple:
        if _ATOMS.issuperset(map(type, value)):  # type: ignore[arg-type]  # the cells of a condition
            return value
        return [item if type(item) in _ATOMS else _plain_numbers(item) for item in value]  # type: ignore[union-attr]
    if kind is dict and _TEXT.issuperset(map(type, value)):  # type: ignore[arg-type]
        return {key: item if type(item) in _ATOMS else _plain_numbers(item) for key, item in value.items()}  # type: ignore[union-attr]
    match value:
        case bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return int(value) if value.is_integer() else value
        case Mapping() if all(isinstance(key, str) for key in value):
            return {key: _plain_numbers(item) for key, item in value.items()}
        case Sequence() if not isinstance(value, bytes | bytearray):
            return [_plain_numbers(item) for item in value]
        case _:
            raise InputError(f"a request consists of JSON values, and {type(value).__name__} is none", culprit=value)


def write_yaml(document: object) -> str:
    r"""Return a text that :func:`read_yaml` reads back unchanged; keys keep their order, and letters are not escaped.

    Codes that other readers take for numbers, such as 1e3, are quoted, and so is all other text in their list.

    >>> read_yaml(write_yaml(["a\x85b"])) == ["a\x85b"]
    True
    >>> write_yaml(["1e3", "D1"]), write_yaml(["07", "08"]), write_yaml(["C1", "*"])
    ("['1e3', 'D1']\n", "['07', '08']\n", "[C1, '*']\n")
    """
    import yaml

    def dumped(*, as_they_are: bool) -> str:
        options: dict[str, Any] = {"sort_keys": False, "default_flow_style": None, "width": 100}
        text: str = yaml.dump(document, Dumper=_writer(), allow_unicode=as_they_are, **options)
        return text

    text = dumped(as_they_are=True)
    return dumped(as_they_are=False) if "\x85" in text else text  # PyYAML writes it, but reads it back as a blank


_NUMBER_ELSEWHERE = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+|0o[0-7]+")


@cache
def _writer() -> type[Any]:
    """Return the YAML writer; it is made at its first use."""
    import yaml

    class Writer(yaml.SafeDumper):
        pass

    def text(writer: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        quoted = "'" if _NUMBER_ELSEWHERE.fullmatch(value) else None
        return writer.represent_scalar("tag:yaml.org,2002:str", value, style=quoted)

    def sequence(writer: yaml.SafeDumper, value: Sequence[Any]) -> yaml.SequenceNode:
        node = writer.represent_sequence("tag:yaml.org,2002:seq", value)
        parts = node.value
        node.flow_style = all(isinstance(part, yaml.ScalarNode) for part in parts)
        texts = [part for part in parts if part.tag == "tag:yaml.org,2002:str"]
        resolve: Any = writer.resolve  # PyYAML has no types for it
        said_alike = {"tag:yaml.org,2002:str", "tag:yaml.org,2002:yaml"}  # the second has marks such as *
        if any(part.style or resolve(yaml.ScalarNode, part.value, (True, False)) not in said_alike for part in texts):
            for part in texts:
                part.style = "'"
        return node

    Writer.add_representer(str, text)
    for kind in (list, tuple):
        Writer.add_representer(kind, sequence)
    return Writer


class _RepeatedKeyError(Exception):
    """An error about two equal keys in one object."""


class _NoDayError(Exception):
    """A date that no calendar has.

    It may be a value of a table that is read by mistake, so only its line is reported.
    """


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _RepeatedKeyError
    return made


def _no_constant(_: str) -> None:
    raise ValueError


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant)


_HALF = re.compile("[\ud800-\udfff]")  # half of a letter in UTF-16; no file and no reply can hold one
_MOST_REPEATED = 1_000_000


def _refuse_odd(document: object, name: str, *, most: float = math.inf) -> None:
    """Refuse half letters, which only escapes write, and more than ``most`` values, which YAML references can create.

    Raises:
        InputError: there is half a letter, or there are too many values.
    """
    waiting = [document]
    while waiting:
        each, most = waiting.pop(), most - 1
        if most < 0:
            raise InputError(f"{name} repeats parts of itself too often")
        if isinstance(each, str) and _HALF.search(each):
            raise InputError(f"{name} has an escape that is half a letter; write the letter itself")
        if isinstance(each, dict):
            waiting += [*each, *each.values()]
        elif isinstance(each, list | tuple | set):
            waiting += each


_DAY = "tag:yaml.org,2002:timestamp"
_BOOLEAN, _MERGE = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:merge"
_INTEGER, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_PLAIN = {
    _BOOLEAN: ("true|True|TRUE|false|False|FALSE", "tTfF"),
    _FLOAT: (
        r"[-+]?(?:(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    _INTEGER: ("[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
}
"""How a boolean or number is written, and with what it begins; PyYAML's own patterns take in more."""


@cache
def _readers() -> tuple[type[Any], type[Any]]:
    """Return the reader of values and the reader of texts, made at their first use, because a device has no PyYAML."""
    import yaml
    from yaml.constructor import BaseConstructor

    class OnceEach(BaseConstructor):
        """A loader of mappings without repeated keys."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
            seen = set()
            for key_node, _ in node.value:
                merged = key_node.tag == _MERGE  # "<<" includes another mapping's keys, unless they are repeated here
                key = "<<" if merged else self.construct_object(key_node, deep=True)
                if not isinstance(key, Hashable):
                    break  # the constructor of the mapping raises the error
                if key in seen:
                    raise _RepeatedKeyError(key_node.start_mark.line + 1)
                seen.add(key)
            return super().construct_mapping(node, deep)

    class Reader(OnceEach, yaml.SafeLoader):
        def construct_yaml_timestamp(self, node: yaml.ScalarNode) -> Any:  # noqa: ANN401 -- a date, or a time stamp
            try:
                return super().construct_yaml_timestamp(node)
            except ValueError:
                raise _NoDayError(f"at line {node.start_mark.line + 1}") from None

    Reader.add_constructor(_DAY, Reader.construct_yaml_timestamp)

    class TextReader(OnceEach, yaml.BaseLoader):
        pass

    Reader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _PLAIN]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for tag, (written, first) in _PLAIN.items():
        Reader.add_implicit_resolver(tag, re.compile(f"^(?:{written})$"), list(first))
    return Reader, TextReader


def _loaded(text: str, name: str, *, as_texts: bool) -> Any:  # noqa: ANN401 -- YAML
    import yaml

    reader = _readers()[as_texts]
    try:
        document = yaml.load(text, Loader=reader)  # noqa: S506  (safe loaders, made stricter)
    except _RepeatedKeyError as error:
        raise InputError(f"{name} repeats a key, at line {error}", culprit=text) from None
    except _NoDayError as error:
        raise InputError(f"{name} has a date that no calendar has, {error}", culprit=text) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise InputError(f"{name} is not YAML{where}", culprit=text) from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{name} has a number of thousands of digits, or is nested too deeply", culprit=text
        ) from error
    if "*" in text or "\\" in text:
        _refuse_odd(document, name, most=_MOST_REPEATED if "*" in text else math.inf)
    return document
