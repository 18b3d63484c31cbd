"""Synthetic releases on disk: the public model with its domain and statement, to be sampled again at no cost."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import yaml

from sfumato.arguments import expect
from sfumato.domain import dump, parse
from sfumato.errors import InputError, SfumatoError
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.product import Product
from sfumato.synthesize.synthetic import Synthetic
from sfumato.vault.payload import decode, encode
from sfumato.vault.rows import free, whole

_KINDS: dict[str, type[Product | Graphical]] = {"product": Product, "graphical": Graphical}

_DAMAGED = (
    *(OSError, SfumatoError, yaml.YAMLError, RecursionError),
    *(KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError),
)
"""What reading a file that somebody made up can fail with."""

_DIGEST = 32  # bytes of SHA-256 before the content, by which a damaged file is told from a sound one


def save(release: Synthetic, path: str | Path, *, overwrite: bool = False) -> None:
    """Write a release to one file that :func:`load` reads without the table and without the ledger.

    ``rows`` of a loaded release are those of the release itself, as long as the version of NumPy is the same: its
    random numbers and sums may change from one version to another.  The version is written into the file.

    Raises:
        InputError: the file cannot be written, or exists and nobody asked to replace it.
    """
    expect(release, Synthetic, "what is saved is the release of a synthesizer")
    model = release.model
    kind = next((name for name, kept in _KINDS.items() if isinstance(model, kept)), None)
    if kind is None or not isinstance(model, Product | Graphical):
        raise InputError(f"a model of type {type(model).__name__} cannot be saved", culprit=model)
    free(path, overwrite=overwrite)
    stored = encode(
        {
            **model.payload(),
            "release": {
                "kind": kind,
                "numpy": np.__version__,  # for the reader who finds other rows
                "domain": dump(model.domain),  # YAML keeps the order of attributes
                "seed": release.seed,
                "statement": release.statement(),
            },
        }
    )
    whole(path, lambda partial: _write(partial, hashlib.sha256(stored).digest() + stored))


def load(path: str | Path) -> Synthetic:
    """Read a release that was saved; nothing in the file is executed.

    Raises:
        InputError: the file cannot be read or is no saved release.
    """
    try:
        content = Path(path).read_bytes()
        digest, stored = content[:_DIGEST], content[_DIGEST:]
        if hashlib.sha256(stored).digest() != digest:
            raise InputError("a byte was changed, lost or added since it was saved")
        payload = decode(stored)
        release = payload["release"]
        model = _KINDS[release["kind"]].restore(parse(yaml.safe_load(release["domain"])), payload)
        loaded = Synthetic(**release["statement"], model=model, seed=release["seed"])
        _refuse_odd(loaded)
        return loaded  # noqa: TRY300 - what is odd is refused in the same words
    except _DAMAGED as error:
        raise InputError(f"cannot read a saved release from {path}: no such file, or damaged", culprit=path) from error


def _refuse_odd(release: Synthetic) -> None:
    """Refuse a file that somebody made up: its statement says something, and its model draws a row."""
    texts = isinstance(release.guarantee, str) and isinstance(release.cost, str) and type(release.seed) is int
    tables = isinstance(release.provenance, dict) and isinstance(release.expected_error, dict)
    if not texts or not tables or release.seed < 0 or release.model.total < 0:
        raise InputError("a statement of texts, errors and provenance, and a seed are missing")
    with np.errstate(all="ignore"):
        release.sample(1)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
