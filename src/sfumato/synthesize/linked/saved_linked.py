"""A release of linked tables in one file, to draw such tables again without the protected ones and without a ledger.

The file holds what was published anyway: the schema, how the rows of each table follow each other, and the noisy
tables and models that were fitted to them.  Drawing again costs nothing, and says nothing that these do not.
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
from sfumato.synthesize.linked.linked_release import ModelSizes, RelatedRelease
from sfumato.synthesize.linked.linked_synthesis import restored
from sfumato.vault.interface import decode, encode
from sfumato.vault.release import refuse_occupied_path, write_atomically

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "related"
"""How the file says that it holds linked tables: a model of one table has another kind."""

_RELEASE = "release"  # what a saved model keeps beside its arrays
_DIGEST = 32  # bytes of SHA-256 before the content
_DAMAGED = (
    *(OSError, SfumatoError, RecursionError),
    *(KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError),
)


def save_related(release: RelatedRelease, path: str | Path, *, overwrite: bool = False) -> None:
    """Write a release to one file that :func:`load_related` reads without the tables and without the ledger.

    Raises:
        InputError: the file cannot be written, or exists and nobody asked to replace it.
    """
    expect(release, RelatedRelease, "what is saved is a release of synthesize.related")
    refuse_occupied_path(path, overwrite=overwrite)
    related = release.related
    stored = encode(
        {
            **release.payload,
            _RELEASE: {
                "kind": KIND,
                "numpy": np.__version__,  # for the reader who finds other rows
                "schema": dump_schema(related.schema),
                "children": [child.describe() for child in related.children],
                "tau": related.tau,
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


def load_related(path: str | Path) -> RelatedRelease:
    """Read a release that was saved; nothing in the file is executed.

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
            f"cannot read a saved release of linked tables from {path}: no such file, or damaged", culprit=path
        ) from error


def is_of_linked_tables(path: str | Path) -> bool:
    """Whether a saved model is of linked tables; of what cannot be read it is not."""
    try:
        return bool(decode(Path(path).read_bytes()[_DIGEST:])[_RELEASE]["kind"] == KIND)
    except _DAMAGED:
        return False


class _FromFile(RelatedRelease):
    """A release of which somebody may have made up the models: where nothing can be drawn of them, it is damaged."""

    @cached_property
    def _drawn(self) -> tuple[dict[str, pa.Table], FamilyCodebook]:
        try:
            with np.errstate(all="ignore"):
                return super()._drawn
        except SizeError:
            raise  # nothing is wrong but the number of units
        except _DAMAGED as error:
            raise InputError("nothing can be drawn of the saved release: it is damaged", culprit=error) from error


def _loaded(payload: dict[str, Any]) -> RelatedRelease:
    said = payload.pop(_RELEASE)
    if said["kind"] != KIND:
        raise InputError("a model of one table")
    schema = parse_schema(read_yaml(said["schema"]))
    children = [_child(schema, each) for each in said["children"]]
    related = link_tables(schema, children, tau=said["tau"])
    statement, seed = said["statement"], said["seed"]
    texts = isinstance(statement["guarantee"], str) and isinstance(statement["cost"], str)
    tables = isinstance(statement["provenance"], dict) and isinstance(statement["expected_error"], dict)
    if not texts or not tables or type(seed) is not int or seed < 0:
        raise InputError("a statement of texts, errors and provenance, and a seed are missing")
    head, tails, notes = restored(related, payload)
    if not 0 <= head.model.total < np.inf:
        raise InputError("no number of units")
    return _FromFile(
        **statement,
        related=related,
        settings=ModelSizes(**said["settings"]),
        head=head,
        tails=tails,
        notes=notes,
        payload=payload,
        seed=seed,
        loss=said["loss"],
    )


def _child(schema: Schema, said: dict[str, Any]) -> ChildTable:
    order = said["order"]
    return ChildTable(
        table=schema[said["table"]],
        order=None if order is None else order["by"],
        falling=order is not None and order["falling"],
        most=said["most"],
        memory=said["memory"],
        final=None if "final" not in said else (said["final"][0], said["final"][1]),
    )
