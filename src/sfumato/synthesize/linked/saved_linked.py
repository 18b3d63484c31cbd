"""A release of linked tables in one file, for drawing tables without the protected tables and without a ledger.

The file contains only released information: the schema, the order of the rows of each table, the noisy tables, and the
models fitted to them.  Drawing again costs no privacy.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.arguments import expect
from sfumato.domain.linked_domain import ChildTable, link_tables
from sfumato.domain.table_schema import Schema, dump_schema, parse_schema
from sfumato.errors import InputError, SfumatoError, SizeError
from sfumato.strict_documents import read_yaml
from sfumato.synthesize.linked.linked_codebook import FamilyCodebook
from sfumato.synthesize.linked.linked_release import LinkedRelease, ModelSizes
from sfumato.synthesize.linked.linked_synthesis import restore_models
from sfumato.synthesize.synthetic import refuse_odd_statement, unreadable
from sfumato.vault.interface import decode, encode
from sfumato.vault.release import refuse_occupied_path, write_atomically

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "related"
"""The kind of a saved model of linked tables."""

_RELEASE = "release"  # key of the description in a saved model
_DIGEST = 32  # bytes of SHA-256 before the content
_DAMAGED = (
    *(OSError, SfumatoError, RecursionError),
    *(KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError),
)


def save_linked(release: LinkedRelease, path: str | Path, *, overwrite: bool = False) -> None:
    """Write a release to one file that :func:`load_linked` reads without the tables and without the ledger.

    Raises:
        InputError: the file cannot be written, or exists and ``overwrite`` is False.
    """
    expect(release, LinkedRelease, "save_linked takes a release of synthesize.synthesize_linked")
    refuse_occupied_path(path, overwrite=overwrite)
    linked = release.linked
    stored = encode(
        {
            **release.payload,
            _RELEASE: {
                "kind": KIND,
                "numpy": np.__version__,  # a reader needs it if the rows differ
                "schema": dump_schema(linked.schema),
                "children": [child.describe() for child in linked.children],
                "tau": linked.tau,
                "settings": release.settings.describe(),
                "seed": release.seed,
                "loss": dict(release.loss),
                "statement": {
                    "guarantee": release.guarantee,
                    "cost": release.cost,
                    "expected_error": dict(release.expected_error),
                    "provenance": dict(release.provenance),
                },
            },
        }
    )
    content = hashlib.sha256(stored).digest() + stored

    def write(partial: Path) -> None:
        partial.write_bytes(content)

    write_atomically(path, write)


def load_linked(path: str | Path) -> LinkedRelease:
    """Read a saved release; no part of the file is executed.

    Raises:
        InputError: the file cannot be read or is no saved release of linked tables.
    """
    try:
        content = Path(path).read_bytes()
        digest, stored = content[:_DIGEST], content[_DIGEST:]
        if hashlib.sha256(stored).digest() != digest:
            raise InputError("a byte was changed, lost or added since it was saved")
        return _loaded(decode(stored))
    except _DAMAGED as error:
        raise InputError(
            f"cannot read a saved release of linked tables from {path}: {unreadable(path)}", culprit=path
        ) from error


def is_of_linked_tables(path: str | Path) -> bool:
    """Return True if a saved model is of linked tables; False if it is not, or cannot be read."""
    try:
        return bool(decode(Path(path).read_bytes()[_DIGEST:])[_RELEASE]["kind"] == KIND)
    except _DAMAGED:
        return False


class SavedLinkedRelease(LinkedRelease):
    """A release from a file; if no rows can be drawn from its models, the file is damaged."""

    @cached_property
    def _drawn(self) -> tuple[dict[str, pa.Table], FamilyCodebook]:
        try:
            with np.errstate(all="ignore"):
                return super()._drawn
        except SizeError:
            raise  # an error about the number of units only; the file is sound
        except _DAMAGED as error:
            raise InputError("nothing can be drawn of the saved release: it is damaged", culprit=error) from error


def _loaded(payload: dict[str, Any]) -> LinkedRelease:
    saved = payload.pop(_RELEASE)
    if saved["kind"] != KIND:
        raise InputError("a model of one table")
    schema = parse_schema(read_yaml(saved["schema"]))
    children = [_child(schema, each) for each in saved["children"]]
    linked = link_tables(schema, children, tau=saved["tau"])
    statement, loss = saved["statement"], saved["loss"]
    refuse_odd_statement(saved)
    unit_model, child_models, notes = restore_models(linked, payload)
    if not all(isinstance(note, str) for note in notes):
        raise InputError("a note is no text")
    if not isinstance(loss, dict) or not all(each is None or isinstance(each, str) for each in loss.values()):
        raise InputError("a loss is no text")
    if not 0 <= unit_model.model.total < np.inf:
        raise InputError("no number of units")
    return SavedLinkedRelease(
        **statement,
        linked=linked,
        settings=ModelSizes(**saved["settings"]),
        unit_model=unit_model,
        child_models=child_models,
        notes=notes,
        payload=payload,
        seed=saved["seed"],
        loss=loss,
    )


def _child(schema: Schema, saved: dict[str, Any]) -> ChildTable:
    order = saved["order"]
    return ChildTable(
        table=schema[saved["table"]],
        order=None if order is None else order["by"],
        falling=order is not None and order["falling"],
        most=saved["most"],
        memory=saved["memory"],
        final=None if "final" not in saved else (saved["final"][0], saved["final"][1]),
    )
