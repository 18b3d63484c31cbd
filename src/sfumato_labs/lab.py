"""The classes of a lab (name, title, and a procedure from options to tables, plots and notes), and all labs by name.

:meth:`Options.of` parses all options.  Each lab declares the options that it accepts, and refuses the others by name.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from importlib import import_module
from typing import Any, TypedDict, Unpack

from sfumato.errors import InputError, LossError
from sfumato.privacy.loss import exact, plain
from sfumato.report.page import Page, Plot, Row
from sfumato.report.page import ShownTable as Table

__all__ = [
    "Handout",
    "Lab",
    "LabResult",
    "LabSettings",
    "NamedColumn",
    "Options",
    "Plot",
    "Row",
    "Table",
    "hand_out",
    "load",
    "run",
]

MODULES: Mapping[str, str] = {
    "samarati": "sfumato_labs.samarati",
    "mondrian": "sfumato_labs.mondrian",
    "mwem-1d": "sfumato_labs.mwem_labs",
    "mwem-2d": "sfumato_labs.mwem_labs",
    "hiera-mu": "sfumato_labs.hiera_labs",
    "hiera-methods": "sfumato_labs.hiera_labs",
    "ldp-sgd": "sfumato_labs.ldp_sgd",
    "synthetic-data": "sfumato_labs.synthetic_data",
    "interactive": "sfumato_labs.interactive",
}
"""The module of each lab.  It is imported on first use, and has its labs by name as ``LABS``."""

_ALWAYS = frozenset({"runs", "seed"})


def silent(_: str) -> None:
    """Ignore the message."""


@dataclass(frozen=True)
class NamedColumn:
    """A column of a table, with the declared bounds of its numbers."""

    name: str
    bounds: tuple[float, float] | None = None

    @classmethod
    def of(cls, text: str) -> NamedColumn:
        """Parse ``NAME`` or ``NAME=LOW:HIGH``.

        Raises:
            InputError: the bounds are not numbers, or the second is not above the first.

        >>> NamedColumn.of("age=17:90")
        NamedColumn(name='age', bounds=(17.0, 90.0))
        """
        name, equals, rest = text.strip().partition("=")
        if not name:
            raise InputError(f"{text!r} names no column; write NAME or NAME=LOW:HIGH", culprit=text)
        return cls(name, _span(rest, "bounds") if equals else None)


class LabSettings(TypedDict, total=False):
    """The options of a lab as a caller writes them; one value may replace a list of one."""

    runs: int | None
    seed: int | None
    data: str | None
    epsilon: Any
    k: Any
    max_suppression: Any
    queries: Any
    rounds: int | None
    repetitions: int | None
    mu: Any
    budgets: Any
    people: int | None
    threshold: int | None
    target: str | None
    inputs: Any
    columns: Any
    range: Any
    progress: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a lab's run.  A missing option (None) has the value of the lab's source.

    Attributes:
        runs: repetitions of every procedure; figures are averages over the runs.
        seed: of the simulation, so that a run of the lab is reproducible.
        data: path or database address of a table to use instead of the lab's own.
        epsilon: the losses of the procedures.
        k: sizes of the smallest class.
        max_suppression: numbers of rows that may be suppressed.
        queries: numbers of queries, or of answers to one query.
        rounds: of MWEM.
        repetitions: of the replay in every round of MWEM.
        mu: uses of a report by HierA.
        budgets: of HierA's levels, as multiples of epsilon, the largest first.
        people: number of simulated people.
        threshold: the least value that is counted.
        target: the column to predict.
        inputs: the columns to predict it from.
        columns: the columns that the lab uses.
        range: ranges to count, each from its first number to below its second.
        progress: receives a few words before each step of a long lab.
    """

    runs: int | None = None
    seed: int = 0
    data: str | None = field(default=None, repr=False)  # an address may contain a password
    epsilon: tuple[Fraction, ...] | None = None
    k: tuple[int, ...] | None = None
    max_suppression: tuple[int, ...] | None = None
    queries: tuple[int, ...] | None = None
    rounds: int | None = None
    repetitions: int | None = None
    mu: tuple[int, ...] | None = None
    budgets: tuple[Fraction, ...] | None = None
    people: int | None = None
    threshold: int | None = None
    target: NamedColumn | None = None
    inputs: tuple[NamedColumn, ...] | None = None
    columns: tuple[NamedColumn, ...] | None = None
    range: tuple[tuple[int, int], ...] | None = None
    progress: Callable[[str], None] = field(default=silent, compare=False, repr=False)

    def __post_init__(self) -> None:
        for columns in (self.columns or (), self.inputs or ()):
            named = [column.name for column in columns]
            if len(set(named)) < len(named):
                raise InputError(f"a column is named twice: {', '.join(named)}", culprit=tuple(named))
        for name, (least, most) in _SPANS.items():
            value = getattr(self, name)
            for each in value if isinstance(value, tuple) else (value,):
                if each is not None and not least <= each <= most:
                    raise InputError(
                        f"{_spelt(name)} must lie between {plain(Fraction(least))} and {plain(Fraction(most))}, "
                        f"not {_brief(each)}",
                        culprit=each,
                    )

    @classmethod
    def of(cls, **settings: Unpack[LabSettings]) -> Options:
        """Parse settings from a command line or a caller.  A missing seed is drawn at random.

        Raises:
            InputError: an option does not exist, or is invalid.

        >>> Options.of(epsilon=["0.5", 1], budgets="5,4,3,2,1", columns="age=17:90").epsilon
        (Fraction(1, 2), Fraction(1, 1))
        """
        given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
        if unknown := sorted(given.keys() - {each.name for each in fields(cls)}):
            raise InputError(f"labs have no option {_spelt(unknown[0])}", culprit=unknown[0])
        given.setdefault("seed", secrets.randbits(31))
        read = {name: _read(name, value) for name, value in given.items()}
        return cls(**{name: value for name, value in read.items() if value != ()})

    def given(self) -> frozenset[str]:
        """Return the names of the given options, except runs and seed, which every lab accepts."""
        return frozenset(
            each.name
            for each in fields(self)
            if each.name not in {"progress", *_ALWAYS} and getattr(self, each.name) is not None
        )

    def in_words(self, runs: int) -> str:
        """Return the runs, the seed and the given options in words, without the address of a table.

        >>> Options.of(epsilon=["0.5", 1], seed=7).in_words(3)
        'runs 3, seed 7, epsilon 0.5, 1; other options as in the source'
        """
        words = [
            f"{each.name.replace('_', ' ')} {_in_words(getattr(self, each.name))}"
            for each in fields(self)
            if each.name in self.given() - {"data"}
        ]
        return (
            f"{', '.join([f'runs {self.repeated(runs)}', f'seed {self.seed}', *words])}; other options as in the source"
        )

    def repeated(self, runs: int) -> int:
        """Return the number of runs; ``runs`` is the lab's default."""
        return self.runs if self.runs is not None else runs

    def single(self, name: str, usual: int) -> int:
        """Return the only number of an option that other labs accept several of; ``usual`` is the default.

        Raises:
            InputError: several numbers were given.
        """
        given: tuple[int, ...] = getattr(self, name) or (usual,)
        if len(given) > 1:
            raise InputError(f"{_spelt(name)} takes one number in this lab, not {len(given)}", culprit=given)
        return given[0]


@dataclass(frozen=True, kw_only=True)
class LabResult:
    """The result of a lab: tables by name, plots, and notes.  The first note names the data.

    ``summary`` has one line per experiment: ``experiment``, ``published``, ``as_printed``, ``honest``, ``lesson``.
    """

    lab: str
    title: str
    summary: Table
    tables: Mapping[str, Table]
    plots: tuple[Plot, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the tables as plain JSON values: ``{"lab": name, "tables": {table: [{column: value}, ...]}}``."""
        tables = {name: [dict(row) for row in rows] for name, rows in self._all().items()}
        return {"lab": self.lab, "tables": tables}

    def page(self) -> Page:
        """Return the result as a page."""
        return Page(title=self.title, notes=self.notes, plots=self.plots, tables=self._all())

    def _all(self) -> dict[str, Table]:
        return {"summary": self.summary, **self.tables}


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A reproducible experiment.  It uses published data, and its procedures may not be private.

    Attributes:
        name: as on the command line.
        title: what it shows.
        procedure: runs it.
        takes: the options that its source varies, apart from runs and seed.
        runs: default number of repetitions of its procedures.
    """

    name: str
    title: str
    procedure: Callable[[Options], LabResult]
    takes: frozenset[str]
    runs: int

    def run(self, options: Options) -> LabResult:
        """Run the lab.

        Raises:
            InputError: an option does not apply.
        """
        from sfumato_labs import charts  # which imports this module

        self.refuse_others(options)
        result = self.procedure(options)
        under = options.in_words(self.runs)
        plots = [replace(plot, chart=charts.headed(plot.chart, result.title, under=under)) for plot in result.plots]
        return replace(result, plots=tuple(plots))

    def refuse_others(self, options: Options) -> None:
        """Refuse options that do not apply.

        Raises:
            InputError: the message names the first such option, and the valid ones.
        """
        for each in fields(options):
            if each.name in options.given() - self.takes:
                fitting = ", ".join(_spelt(name) for name in sorted(self.takes | _ALWAYS))
                refusal = f"the lab {self.name!r} takes no {_spelt(each.name)}; it takes {fitting}"
                raise InputError(refusal, culprit=each.name)


def load(name: str) -> Lab:
    """Return the lab with the given name.

    Raises:
        InputError: there is no such lab.
    """
    if name not in MODULES:
        raise InputError(f"no lab {name!r}; there are {', '.join(MODULES)}", culprit=name)
    lab: Lab = import_module(MODULES[name]).LABS[name]
    return lab


def run(name: str, **settings: Unpack[LabSettings]) -> LabResult:
    """Run a lab with the given settings.

    Raises:
        InputError: the lab does not exist, or an option is invalid or does not apply.
    """
    return load(name).run(Options.of(**settings))


# all labs

_TITLE = "The labs: published experiments, as printed and done honestly"
_NOTE = (
    "One line an experiment: what the source prints, what its program gives when it is run again, what an honest "
    "procedure gives for the same question, and the lesson. The figures follow, and every table stands folded below "
    "the lines."
)


@dataclass(frozen=True)
class Handout:
    """The results of all labs by name."""

    results: Mapping[str, LabResult]

    def lines(self) -> tuple[Row, ...]:
        """Return the index: one line per experiment."""
        return tuple({"lab": name, **line} for name, result in self.results.items() for line in result.summary)

    def to_json(self) -> dict[str, Any]:
        """Return all tables as plain JSON values, by lab."""
        labs = {name: result.to_json()["tables"] for name, result in self.results.items()}
        return {"experiments": [dict(line) for line in self.lines()], "labs": labs}

    def page(self) -> Page:
        """Return the page."""
        details: dict[str, tuple[Row, ...]] = {}
        plots: list[Plot] = []
        for name, result in self.results.items():
            details[f"{name}: {result.title}"] = tuple({"note": note} for note in result.notes)
            details |= {f"{name}: {table.replace('_', ' ')}": rows for table, rows in result.tables.items()}
            plots += [
                replace(plot, name=f"{name}-{plot.name}", title=f"{name}: {plot.name.replace('_', ' ')}")
                for plot in result.plots
            ]
        notes = tuple(f"{name}: {result.notes[0]}" for name, result in self.results.items())
        return Page(
            title=_TITLE,
            notes=(_NOTE, *notes),
            overview={"experiments": self.lines()},
            details=details,
            plots=tuple(plots),
        )


def hand_out(options: Options, *, progress: Callable[[str], None]) -> Handout:
    """Run every lab as published, with the runs and the seed of ``options``.

    Raises:
        InputError: another option is given; the valid ones differ between labs.
    """
    results = {}
    for name in MODULES:
        progress(name)
        results[name] = load(name).run(replace(options, progress=progress))
    return Handout(results)


# options as text

# limits of each numeric option: beyond them a run takes too long, or its numbers overflow
_SPANS: Mapping[str, tuple[Fraction | int, int]] = {
    "runs": (1, 10_000),
    "seed": (0, 1 << 62),
    "epsilon": (Fraction(1, 10**6), 10**6),
    "k": (1, 10**9),
    "max_suppression": (0, 10**9),
    "queries": (1, 10**6),
    "rounds": (1, 10**5),
    "repetitions": (1, 10**5),
    "mu": (1, 10**3),
    "budgets": (Fraction(1, 10**6), 10**6),
    "people": (100, 10**7),
    "threshold": (0, 10**9),
}


def _read(name: str, value: Any) -> Any:  # noqa: ANN401  (what a caller wrote)
    match name:
        case "budgets":
            return tuple(_fraction(name, each) for each in _listed(value))
        case "epsilon":
            return _distinct(_fraction(name, each) for each in _listed(value))
        case "k" | "max_suppression" | "queries" | "mu":
            return _distinct(_whole_number(name, each) for each in _listed(value))
        case "runs" | "seed" | "rounds" | "repetitions" | "people" | "threshold":
            return _whole_number(name, value)
        case "columns" | "inputs":
            return tuple(NamedColumn.of(str(each)) for each in _listed(value))
        case "range":
            return _distinct(_range(each) for each in _ranges(value))
        case "target":
            return NamedColumn.of(str(value))
        case "data":
            return str(value)
        case _:
            return value


def _listed(value: object) -> Iterable[object]:
    """Return the values of a list, of a text with commas, of a list of such texts, or one value."""
    if isinstance(value, str):
        return value.split(",")
    if isinstance(value, Sequence):
        return [part for each in value for part in _listed(each)]
    return [value]


def _distinct(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return the distinct values, in order."""
    return tuple(dict.fromkeys(values))


def _fraction(name: str, value: object) -> Fraction:
    try:
        return exact(value if isinstance(value, Fraction) else str(value).strip())
    except LossError:
        raise InputError(f"{_spelt(name)} takes numbers, not {_brief(value)!r}", culprit=value) from None


def _whole_number(name: str, value: object) -> int:
    try:
        number = exact(str(value).strip())
    except LossError:
        number = Fraction(1, 2)
    if number.denominator != 1:
        raise InputError(f"{_spelt(name)} takes whole numbers, not {_brief(value)!r}", culprit=value)
    return int(number)


def _brief(value: object) -> str:
    """Return the beginning of a value's text."""
    text = plain(value) if isinstance(value, Fraction) else str(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


_MOST_CHARACTERS = 40  # characters


def _ranges(value: Any) -> Iterable[object]:  # noqa: ANN401  (what a caller wrote)
    """Return a text or a pair of numbers as one range, otherwise each element of a list as a range."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return [value]
    return [value] if value and not isinstance(value[0], str | Sequence) else value


def _range(value: object) -> tuple[int, int]:
    if isinstance(value, str):
        pair: Sequence[Any] = _span(value, "a range")
    else:
        pair = value if isinstance(value, Sequence) else ()
    if len(pair) != 2 or not all(_is_whole(each) for each in pair) or pair[0] >= pair[1]:  # noqa: PLR2004
        raise InputError(f"a range is LOW:HIGH in whole numbers, not {value!r}", culprit=value)
    return int(pair[0]), int(pair[1])


def _is_whole(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value == int(value)


_FURTHEST = 1e15  # integers up to this are exact


def _span(text: str, what: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    try:
        bounds = float(low), float(high)
    except ValueError:
        raise InputError(f"{what} must be LOW:HIGH in numbers, not {text!r}", culprit=text) from None
    if not all(abs(end) <= _FURTHEST for end in bounds):  # neither infinite nor NaN
        raise InputError(f"{what} must lie between -1e15 and 1e15, not {text!r}", culprit=text)
    if not bounds[0] < bounds[1]:
        raise InputError(f"{what} must be LOW:HIGH with LOW below HIGH, not {text!r}", culprit=text)
    return bounds


def _in_words(value: object) -> str:
    """Return an option's value, or values, in words."""
    if isinstance(value, NamedColumn):
        return value.name
    if isinstance(value, tuple):
        return ", ".join(map(_in_words, value))
    return plain(value) if isinstance(value, Fraction) else str(value)


def _spelt(name: str) -> str:
    return "--" + name.replace("_", "-")
