"""UCI Adult (Becker and Kohavi 1996, CC BY 4.0): fetched once and checked, or read from a local file."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as arrow_csv

from sfumato.errors import TableError

URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/adult.data"
SHA256 = "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"
COLUMNS = (
    "age",
    "work_class",
    "final_weight",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "gender",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "class",
)
_SECONDS = 30


def adult(path: str | Path | None = None) -> pa.Table:
    """Return the 32 561 training rows: from a local CSV with a header, or fetched, checked and cached.

    Raises:
        TableError: the file cannot be read or lacks columns; or the source cannot be reached, or its content has
            changed.
    """
    return read(path) if path is not None else parse(cached(URL, SHA256))


def read(path: str | Path) -> pa.Table:
    """Return a local copy with the header that :data:`COLUMNS` lists.

    Raises:
        TableError: the file cannot be read or lacks columns.
    """
    try:
        table = arrow_csv.read_csv(path)
    except (OSError, pa.ArrowInvalid):
        raise TableError(f"cannot read {path} as a CSV file with a header", culprit=path) from None
    if missing := [name for name in COLUMNS if name not in table.column_names]:
        raise TableError(f"{path} is not UCI Adult: it lacks {', '.join(missing)}", culprit=path)
    return table.select(list(COLUMNS))


def parse(content: bytes) -> pa.Table:
    """Return the rows of the original file, which has no header and a blank after each comma."""
    text = "\n".join(line.replace(", ", ",") for line in content.decode("utf-8").splitlines() if line.strip())
    options = arrow_csv.ReadOptions(column_names=list(COLUMNS))
    return arrow_csv.read_csv(pa.BufferReader(text.encode()), read_options=options)


def cached(url: str, sha256: str) -> bytes:
    """Return the file behind ``url``, from the user's cache if a valid copy is there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sfumato" / f"{sha256}.data"
    if cache.is_file() and _digest(content := cache.read_bytes()) == sha256:
        return content
    content = fetch(url)
    if _digest(content) != sha256:
        raise TableError(f"{url} has changed (its checksum differs); give a local file", culprit=url)
    cache.parent.mkdir(parents=True, exist_ok=True)
    partial = cache.with_suffix(".partial")
    partial.write_bytes(content)
    partial.replace(cache)
    return content


def fetch(url: str) -> bytes:
    """Return the bytes at the address.

    Raises:
        TableError: the address cannot be reached.
    """
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as response:  # noqa: S310  (a constant https address)
            content: bytes = response.read()
    except (urllib.error.URLError, TimeoutError, OSError):
        raise TableError(f"cannot fetch {url}; connect to the network or give a local file", culprit=url) from None
    return content


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
