"""Small public tables that are part of the package, and their domains."""

from __future__ import annotations

import csv
import json
from importlib import resources
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.domain import Domain, parse
from sfumato.errors import InputError

_DOMAINS = {
    "adult": "adult.yaml",
    "census": "adult.yaml",
    "child_mental_health": "child_mental_health.yaml",
    "medical": "medical.yaml",
    "zoo": "zoo.yaml",
}


def domain(name: str) -> Domain:
    """Return the accepted description of a bundled or fetched table.

    Raises:
        InputError: no table has that name.

    >>> domain("child_mental_health").shape
    (14, 4)
    """
    import yaml

    return parse(yaml.safe_load(domain_text(name)))


def domain_text(name: str) -> str:
    """Return the YAML document of a bundled domain.

    Raises:
        InputError: no table has that name.
    """
    if name not in _DOMAINS:
        raise InputError(f"no bundled table {name!r}; there are {', '.join(_DOMAINS)}", culprit=name)
    return _text(_DOMAINS[name])


def census() -> pa.Table:
    """Return a synthetic census, a release of UCI Adult made by ``batched``; :func:`census_release` has its guarantee.

    >>> census().num_rows > 30_000
    True
    """
    import pyarrow.parquet as pq

    with resources.as_file(resources.files("sfumato.data").joinpath("census.parquet")) as path:
        return pq.read_table(path)


def census_release() -> dict[str, Any]:
    """Return the guarantee of the synthetic census, its privacy loss, and the command that made it.

    >>> census_release()["guarantee"].startswith("differential privacy with epsilon = 4")
    True
    """
    released: dict[str, Any] = json.loads(_text("census.json"))
    return released


def hospital() -> dict[str, pa.Table]:
    """Return patients and visits of an imaginary hospital, a release made by ``synthesize.synthesize_linked``.

    :func:`hospital_release` has its guarantee, and :func:`hospital_schema` describes the tables.

    >>> {name: table.num_rows > 5000 for name, table in hospital().items()}
    {'patients': True, 'visits': True}
    """
    import pyarrow.parquet as pq

    tables = {}
    for name in ("patients", "visits"):
        with resources.as_file(resources.files("sfumato.data").joinpath(f"hospital_{name}.parquet")) as path:
            tables[name] = pq.read_table(path)
    return tables


def hospital_schema() -> str:
    """Return the YAML document of the schema of :func:`hospital`."""
    return _text("hospital.yaml")


def hospital_release() -> dict[str, Any]:
    """Return the guarantee of the tables of the hospital, their privacy loss, and how they were made.

    >>> hospital_release()["guarantee"].startswith("differential privacy with epsilon = 4")
    True
    """
    released: dict[str, Any] = json.loads(_text("hospital.json"))
    return released


def child_mental_health_counts() -> NDArray[np.int64]:
    """Return published numbers of people by age (0..13) and satisfaction (0..3): shape ``(14, 4)``.

    >>> int(child_mental_health_counts().sum())
    1013184
    """
    counts = np.zeros((14, 4), dtype=np.int64)
    for row in _rows("child_mental_health.csv"):
        counts[int(row["age"]), int(row["satisfaction"])] = int(row["count"])
    return counts


def child_mental_health() -> pa.Table:
    """Return a table of ``age`` and ``satisfaction`` with one row per person, 1 013 184 of them."""
    counts = child_mental_health_counts()
    age, satisfaction = np.unravel_index(np.repeat(np.arange(counts.size), counts.ravel()), counts.shape)
    return pa.table({"age": pa.array(age, pa.int64()), "satisfaction": pa.array(satisfaction, pa.int64())})


def child_mental_health_queries() -> tuple[tuple[int, int], ...]:
    """Return the sixty published ranges of age, inclusive on both sides, in their published order.

    >>> child_mental_health_queries()[0]
    (6, 7)
    """
    return tuple((int(row["low"]), int(row["high"])) for row in _rows("child_mental_health_queries.csv"))


def medical() -> pa.Table:
    """Return a table with one row per patient and their age band: 405, 436, 421, 457 and 463 patients."""
    return _medical(0)


def medical_neighbour() -> pa.Table:
    """Return :func:`medical` without one patient of the second band."""
    return _medical(1)


def zoo() -> pa.Table:
    """Return animals and the carrots that they eat per day; 90 of them eat at least 55, including Dugong."""
    rows = _rows("zoo.csv")
    return pa.table({"animal": [row["animal"] for row in rows], "carrots": [int(row["carrots"]) for row in rows]})


def zoo_neighbour() -> pa.Table:
    """Return :func:`zoo` without Dugong."""
    table = zoo()
    return table.filter(pa.array([name != "Dugong" for name in table["animal"].to_pylist()]))


def _medical(absent: int) -> pa.Table:
    ages: list[str] = []
    for index, row in enumerate(_rows("medical.csv")):
        ages += [row["age"]] * (int(row["count"]) - (absent if index == 1 else 0))
    return pa.table({"age": pa.array(ages)})


def _rows(name: str) -> tuple[dict[str, str], ...]:
    return tuple(csv.DictReader(_text(name).splitlines()))


def _text(name: str) -> str:
    return resources.files("sfumato.data").joinpath(name).read_text(encoding="utf-8")
