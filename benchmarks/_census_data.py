"""The tables of the census benchmark as codes: Adult with private-pgm's bins, NIST national2019, fire calls.

Every binning is stated here and was fixed before any method ran on it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.csv as pc
from _real_data import folder as real_data
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent

Codes = NDArray[np.int64]
Column = tuple[Codes, int, bool]  # codes, number of cells, whether the cells are ordered


def load(name: str) -> dict[str, Column]:
    """Return the columns of a table by name."""
    return {"adult": adult, "nist": nist, "fire": fire}[name]()


def adult() -> dict[str, Column]:
    """Return 48 842 rows of 14 columns: private-pgm's ``adult.csv`` cell by cell, up to the order of categories.

    Training and test file are joined, "?" is a separate category, and ``education`` is left out in favor of its number.
    Age - 16 has 85 cells and hours - 1 has 99. Final weight, capital gain and capital loss have 100 bins of equal width
    from the smallest to the largest value.
    """
    tables = [_read(real_data("adult") / name) for name in ("adult.csv", "adult_test.csv")]
    columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    del columns["education"]
    shifts = {"age": (16, 85), "education_num": (1, 16), "hours_per_week": (1, 99)}
    found: dict[str, Column] = {}
    for name, values in columns.items():
        if name in shifts:
            low, size = shifts[name]
            found[name] = (values.astype(np.int64) - low, size, True)
        elif name in ("final_weight", "capital_gain", "capital_loss"):
            found[name] = equal_width(values.astype(np.float64), 100)
        else:
            found[name] = categories(values)
    return found


def nist() -> dict[str, Column]:
    """Return 27 253 rows of 24 columns; PINCP, POVPIP, DENSITY and both weights have 64 bins of equal width, "N" is a
    category.
    """
    found: dict[str, Column] = {}
    for name, values in _read(real_data("nist") / "national2019.csv").items():
        missing = values == "N"
        if name in ("AGEP", "NPF"):
            numbers = np.where(missing, "0", values).astype(np.float64).astype(np.int64)
            size = int(numbers.max()) + 1
            found[name] = (np.where(missing, size, numbers), size + bool(missing.any()), not missing.any())
        elif name in ("PINCP", "POVPIP", "DENSITY", "PWGTP", "WGTP"):
            codes, size, _ = equal_width(np.where(missing, "nan", values).astype(np.float64), 64)
            found[name] = (np.where(missing, size, codes), size + bool(missing.any()), not missing.any())
        else:
            found[name] = categories(values)
    return found


def fire() -> dict[str, Column]:
    """Return 305 119 rows of 32 columns with unchanged codes; every code that occurs is a cell, and none is ordered."""
    return {name: categories(values) for name, values in _read(real_data("fire") / "fire.csv.gz").items()}


def _read(path: Path) -> dict[str, NDArray[np.str_]]:
    header = pc.open_csv(path).schema.names
    text = pc.ConvertOptions(column_types=dict.fromkeys(header, "string"), strings_can_be_null=False)
    table = pc.read_csv(path, convert_options=text)
    return {name: np.char.strip(table[name].to_numpy(zero_copy_only=False).astype(str)) for name in header}


def categories(values: NDArray[np.str_]) -> Column:
    found, codes = np.unique(values, return_inverse=True)
    return codes.astype(np.int64), len(found), False


def equal_width(numbers: NDArray[np.float64], bins: int) -> Column:
    low, high = np.nanmin(numbers), np.nanmax(numbers)
    scaled = np.nan_to_num((numbers - low) * (bins / (high - low)))
    return np.minimum(scaled.astype(np.int64), bins - 1), bins, True
