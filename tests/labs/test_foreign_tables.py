"""No figure of a source stands next to another table than the source's, nor next to other options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato import data
from sfumato_labs import (
    interactive_noise,
    interactive_prints,
    ldp_sgd,
    mondrian,
    names,
    printed_chapter,
    printed_mwem,
    samarati,
)
from sfumato_labs import run as run_lab

SHORT = 3  # significant digits: a figure with fewer can come out of another table by chance
SOURCES = {
    "samarati": (samarati.PUBLISHED,),
    "mondrian": (mondrian.PUBLISHED,),
    "mwem-1d": (printed_mwem.PUBLISHED,),
    "mwem-2d": (printed_mwem.PUBLISHED,),
    "hiera-mu": (),  # the source prints pictures only
    "hiera-methods": (),
    "ldp-sgd": (ldp_sgd.FAITHFUL,),
    "synthetic-data": (printed_chapter.PUBLISHED, printed_chapter.PUBLISHED_PROBABILITY),
    "interactive": (
        interactive_prints.PUBLISHED_AVERAGES,
        interactive_prints.PUBLISHED_BUCKETS,
        interactive_noise.PUBLISHED_QUANTILES,
    ),
}
OPTIONS = {
    "samarati": {"k": "10,20", "max_suppression": "20"},
    "mondrian": {"k": "50,100"},
    "mwem-1d": {"columns": ["a=0:13"], "runs": 1, "rounds": 3, "epsilon": "0.1"},
    "mwem-2d": {"columns": ["a=0:13", "b=0:3"], "runs": 1, "rounds": 3, "queries": "30", "epsilon": "0.1"},
    "hiera-mu": {"columns": ["a=0:13"], "runs": 2, "epsilon": "1"},
    "hiera-methods": {"columns": ["a=0:13"], "runs": 2, "epsilon": "1"},
    "ldp-sgd": {"target": "a=0:13", "inputs": ["b=0:3"], "epsilon": "1"},
    "synthetic-data": {"runs": 1, "epsilon": "1"},
    "interactive": {"columns": ["c=0:100"], "runs": 1, "queries": "20,50"},
}
LIKE_ADULT = ("samarati", "mondrian", "synthetic-data")
NAMES = re.compile(r"UCI Adult|million|[Cc]arrots|[Cc]hildren")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A table of two numbers, and the bundled census, which has UCI Adult's columns."""
    folder = tmp_path_factory.mktemp("foreign")
    random = np.random.default_rng(3)
    numbers = {name: random.integers(0, beyond, 20_000) for name, beyond in (("a", 14), ("b", 4), ("c", 101))}
    pq.write_table(pa.table(numbers), folder / "numbers.parquet")
    pq.write_table(data.census().slice(0, 20_000), folder / "people.parquet")
    return folder


def figures(found: object) -> Iterator[float]:
    """Yield all numbers in mappings and tuples with at least SHORT significant digits."""
    if isinstance(found, Mapping):
        for each in found.values():
            yield from figures(each)
    elif isinstance(found, float):
        if len(f"{found:.12g}".replace(".", "").strip("0")) >= SHORT:
            yield found
    elif isinstance(found, Iterable) and not isinstance(found, str):
        for each in found:
            yield from figures(each)


def texts(result: object) -> Iterator[str]:
    yield result.title
    yield from result.notes
    yield from (plot.caption for plot in result.plots)
    for row in result.summary:
        yield from map(str, row.values())


@pytest.mark.parametrize("name", SOURCES)
def test_a_foreign_table_shows_no_figure_of_a_source(name, tables):
    assert set(SOURCES) == set(OPTIONS) == set(names())
    place = tables / ("people.parquet" if name in LIKE_ADULT else "numbers.parquet")
    result = run_lab(name, data=str(place), seed=11, **OPTIONS[name])
    of_source = set(figures(SOURCES[name]))
    assert of_source or not SOURCES[name]
    for title, rows in result.tables.items():
        for row in rows:
            shown = {value for value in row.values() if isinstance(value, float)} & of_source
            assert not shown, (title, row)
            for column, value in row.items():
                if column.startswith("published") or column.endswith("edition_percent") or column == "faithful_run":
                    assert value is None, (title, column)
            assert "published" not in {row.get("search"), row.get("program")}, title
    written = {token.rstrip(".") for text in texts(result) for token in re.findall(r"\d[\d.]*", text)}
    spelled = {f"{figure:.{digits}g}" for figure in of_source for digits in (6, 10)}
    assert not {token for token in written & spelled if len(token.replace(".", "").strip("0")) > SHORT + 1}
    assert not NAMES.search(result.title)
    assert all(row["published"] in {"-", "a picture only"} for row in result.summary)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("mwem-1d", {"rounds": 5, "runs": 1, "epsilon": "0.1"}),
        ("mwem-1d", {"queries": "40", "runs": 1, "epsilon": "0.1"}),
        ("ldp-sgd", {"people": 10_000, "epsilon": "1"}),
        ("interactive", {"threshold": 70, "queries": "50", "runs": 1}),
    ],
)
def test_other_options_show_no_figure_of_a_source(name, other):
    result = run_lab(name, seed=5, **other)
    of_source = set(figures(SOURCES[name]))
    for rows in result.tables.values():
        for row in rows:
            assert not {value for value in row.values() if isinstance(value, float)} & of_source
            assert row.get("faithful_run") is None
            assert not str(row.get("method", "")).startswith("published")
