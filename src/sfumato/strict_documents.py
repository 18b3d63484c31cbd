"""JSON and YAML as documents of this project are read, where what could mean two things is refused, and written.

Python's reader of JSON and PyYAML take the last of two equal keys; the first accepts ``NaN``, the second reads ``yes``
and ``off`` as booleans, ``010`` as eight and ``1:30`` as ninety.  Whoever checks a document with one reader and uses it
with another would then see two documents, and whoever reads it with their eyes another one still.
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
    """Return the value of a JSON text; ``name`` says in a refusal what was read.

    Raises:
        InputError: no JSON (RFC 8259), a key twice in one object, NaN or infinity, half a letter, or a nesting or
            number beyond all reason; where Python says why, that is the cause.  The message quotes nothing of the text.

    >>> read_json('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    """
    try:
        decoded = text.decode(json.detect_encoding(text)) if isinstance(text, bytes) else text
        document = _DECODER.decode(decoded)
    except _RepeatedKeyError:
        raise InputError(f"{name} says a key twice, so what it means is open", culprit=text) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is no JSON", culprit=text) from error
    if "\\u" in decoded:
        _refuse_odd(document, name)
    return document


def read_yaml(text: str, *, name: str = "this") -> Any:  # noqa: ANN401 -- YAML
    """Return the value of a YAML (or JSON) text, in which only true and false are booleans, and numbers are decimal:
    ``010``, ``0x1F``, ``1_000`` and ``1:30`` are texts.

    Raises:
        InputError: no YAML, a key twice in one mapping, a date of no calendar, half a letter, or a nesting, number or
            repetition beyond all reason; where PyYAML says why, that is the cause.  The message quotes nothing of the
            text.

    >>> read_yaml("{a: [1, yes, true]}")
    {'a': [1, 'yes', True]}
    """
    return _loaded(text, name, as_texts=False)


def read_yaml_texts(text: str, *, name: str = "this") -> Any:  # noqa: ANN401 -- YAML
    """As :func:`read_yaml`, with every number, boolean and date as the text that stands there.

    >>> read_yaml_texts("{a: [1, yes, 2024-01-01]}")
    {'a': ['1', 'yes', '2024-01-01']}
    """
    return _loaded(text, name, as_texts=True)


def canonical(value: JSON) -> str:
    """Return the one JSON spelling of a value: sorted keys, no spaces, whole floats written as integers.

    Raises:
        InputError: something that JSON cannot say (NaN, infinity, a key that is no string, an object).

    >>> canonical({"b": (1.0, 0.5), "a": None})
    '{"a":null,"b":[1,0.5]}'
    """
    return _quoted(value) if type(value) is str else _ENCODER.encode(_plain_numbers(value))


_quoted = json.encoder.encode_basestring_ascii  # what the encoder writes a text by
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
_ATOMS = frozenset((str, int, bool, type(None)))  # what JSON has one spelling for
_TEXT = frozenset((str,))


def _plain_numbers(value: JSON) -> JSON:
    kind = type(value)
    if kind in _ATOMS:  # most are, and matching below takes longer
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
            raise InputError(f"a question is made of JSON values, and {type(value).__name__} is none", culprit=value)


def write_yaml(document: object) -> str:
    r"""Return a text that :func:`read_yaml` reads back to the same; keys in their order, letters as they are.

    Codes that other readers take for numbers, such as 1e3, stand in quotes, and so does all text beside them in a list.

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
    return dumped(as_they_are=False) if "\x85" in text else text  # which PyYAML writes, and reads back as a blank


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
        resolve: Any = writer.resolve  # of which PyYAML's types say nothing
        said_alike = {"tag:yaml.org,2002:str", "tag:yaml.org,2002:yaml"}  # of the second are marks such as *
        if any(part.style or resolve(yaml.ScalarNode, part.value, (True, False)) not in said_alike for part in texts):
            for part in texts:
                part.style = "'"
        return node

    Writer.add_representer(str, text)
    for kind in (list, tuple):
        Writer.add_representer(kind, sequence)
    return Writer


class _RepeatedKeyError(Exception):
    """Two equal keys in one object."""


class _NoDayError(Exception):
    """A date that no calendar has; it may be a table's own where one is read by mistake, so only its line is told."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _RepeatedKeyError
    return made


def _no_constant(_: str) -> None:
    raise ValueError


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant)


_HALF = re.compile("[\ud800-\udfff]")  # of a letter that UTF-16 writes in two; no file and no reply can hold one
_MOST_REPEATED = 1_000_000


def _refuse_odd(document: object, name: str, *, most: float = math.inf) -> None:
    """Refuse half letters, which only escapes write, and more than ``most`` values, as references in YAML make of few.

    Raises:
        InputError: there is one, or there are more.
    """
    waiting = [document]
    while waiting:
        each, most = waiting.pop(), most - 1
        if most < 0:
            raise InputError(f"{name} repeats parts of itself beyond all reason")
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
    """Return the reader of values and the reader of texts; made when YAML is first read, as a device has no PyYAML."""
    import yaml
    from yaml.constructor import BaseConstructor

    class OnceEach(BaseConstructor):
        """Mappings in which no key is said twice."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
            seen = set()
            for key_node, _ in node.value:
                merged = key_node.tag == _MERGE  # "<<", which takes in another mapping's keys, where these say nothing
                key = "<<" if merged else self.construct_object(key_node, deep=True)
                if not isinstance(key, Hashable):
                    break  # what constructs the mapping says so
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
        raise InputError(f"{name} says a key twice, at line {error}", culprit=text) from None
    except _NoDayError as error:
        raise InputError(f"{name} has a date that no calendar has, {error}", culprit=text) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise InputError(f"{name} is not YAML{where}", culprit=text) from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{name} holds what no document does: a number of thousands of digits, or too deep a nesting", culprit=text
        ) from error
    if "*" in text or "\\" in text:
        _refuse_odd(document, name, most=_MOST_REPEATED if "*" in text else math.inf)
    return document
