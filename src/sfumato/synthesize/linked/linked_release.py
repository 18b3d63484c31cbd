"""What ``synthesize.related`` returns: synthetic tables whose rows belong together, and all that is known of them.

For whoever judges, documents or shows a release:

* ``release.tables`` are Arrow tables by name, with fresh keys: the parent's (``release.related.parent``) and one for
  each child (``release.related.children``), ordered by unit and, within a unit, as the child table declares.  Their
  columns are the key, the column of the unit, and the attributes as the schema declares them.
* ``release.related`` (:class:`sfumato.domain.linked_domain.LinkedTables`) has the schema, the order, the bound and
  the memory of every child table, and the weights: ``release.related.head`` and ``.tail(child)`` are what was counted.
* ``release.settings`` are the method's parameters; none of them is read off the data.
* ``release.measured`` are the noisy tables: of the ``head`` or of ``persons.tail``, over which attributes, with which
  deviation of noise on a cell, in units for the head and in units of weight one for a tail.
* ``release.notes`` are sentences for the reader: what could not be told at this loss.
* ``release.redrawn()`` is another draw of the same models, at no cost, for which
  :mod:`sfumato.synthesize.linked.saved_linked` keeps a release in a file.
* ``release.write(folder)`` writes the tables and, as ``release.json``, the statement with all of this.
* ``release.guarantee``, ``cost``, ``expected_error`` and ``provenance`` are those of every release; the guarantee holds
  for all rows of one unit in all tables.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.domain.linked_domain import LinkedTables
from sfumato.errors import InputError, SfumatoError
from sfumato.model.row_sampling import generator
from sfumato.synthesize.codebook.codebook import NOTICE, NOTICE_KEY, Guarantee
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.linked.linked_codebook import (
    CODEBOOK,
    STATEMENT,
    FamilyCodebook,
    FamilyFacts,
    FamilyFile,
    family_codebook,
    released_text,
)
from sfumato.synthesize.linked.linked_rows import drawn_children, linked_rows
from sfumato.synthesize.product import refuse_large
from sfumato.vault.release import Release, ReleasedRows, checked_path

if TYPE_CHECKING:
    import pyarrow as pa

HEAD = "head"
FORMATS = ("parquet", "csv")


@dataclass(frozen=True, kw_only=True)
class ModelSizes:
    """How large models may get and how long rows are corrected, whatever the data.

    Attributes:
        head_cells: of the junction tree of the head.
        tail_cells: of that of each tail.
        calibration: how often the children drawn are compared with what was measured.
        calibrated_units: units whose children are drawn for it, at most.
    """

    head_cells: int = 400_000
    tail_cells: int = 400_000
    calibration: int = 9
    calibrated_units: int = 40_000

    def __post_init__(self) -> None:
        sizes = (self.head_cells, self.tail_cells, self.calibrated_units)
        if any(type(size) is not int or size < 1 for size in sizes) or not self.calibration >= 0:
            raise InputError("settings are whole numbers from 1, calibration from 0", culprit=self)

    def describe(self) -> dict[str, int]:
        """As JSON values for the journal."""
        return {
            "head_cells": self.head_cells,
            "tail_cells": self.tail_cells,
            "calibration": self.calibration,
            "calibrated_units": self.calibrated_units,
        }


@dataclass(frozen=True)
class MeasuredPart:
    """A noisy table of a related release: of the ``head`` or of a tail, over which attributes.

    ``deviation`` is that of the noise on one of its cells, in units; in a tail, in rows that weigh one unit.
    """

    part: str
    attributes: tuple[str, ...]
    deviation: float


@dataclass(frozen=True, kw_only=True, repr=False)
class RelatedRelease(Release):
    """Synthetic tables that belong together; see the top of this module."""

    related: LinkedTables
    settings: ModelSizes
    head: Graphical
    tails: Mapping[str, Graphical]
    notes: tuple[str, ...]
    payload: Mapping[str, Any]
    seed: int
    loss: Mapping[str, str | None]

    @property
    def headline(self) -> str:
        """How many units with what."""
        children = ", ".join(child.table.name for child in self.related.children)
        return f"{self.head.total:,} synthetic units with {children}"

    @property
    def measured(self) -> tuple[MeasuredPart, ...]:
        """All noisy tables that the models were fitted to."""
        whole = {table.name: table.whole for table in self.related.derived}
        parts = [MeasuredPart(HEAD, each.attributes, each.deviation) for each in self.head.measured]
        for name, tail in self.tails.items():
            parts += [MeasuredPart(name, each.attributes, each.deviation / whole[name]) for each in tail.measured]
        return tuple(parts)

    @property
    def tables(self) -> dict[str, pa.Table]:
        """The synthetic tables by name: the same whenever this release is asked for again, by one version of NumPy.

        Raises:
            SizeError: noise at a tiny loss made the number of units larger than is sampled at once.
        """
        return self._drawn[0]

    def redrawn(self) -> RelatedRelease:
        """The same release with other rows, drawn of the same models; it costs nothing, and says nothing more."""
        return replace(self, seed=int(generator().integers(1 << 62)), cost="nothing: drawn of what was released")

    @property
    def codebook(self) -> FamilyCodebook:
        """What whoever is handed ``tables`` has to know of them: guarantee, what was measured, and the errors.

        Raises:
            SizeError: as ``tables``.
        """
        return self._drawn[1]

    @cached_property
    def _drawn(self) -> tuple[dict[str, pa.Table], FamilyCodebook]:
        random = generator(self.seed)
        refuse_large(self.head.total, len(self.head.domain))
        codes = self.head.sample(random)
        rows = {name: codes[:, place].astype("int64") for place, name in enumerate(self.head.domain.names)}
        del codes
        times, some = self.settings.calibration, self.settings.calibrated_units
        drawn = drawn_children(self.related, rows, self.tails, random, times=times, some=some)
        tables = linked_rows(self.related, rows, drawn.slots, random)
        book = family_codebook(
            self.related,
            {HEAD: self.head.tables, **{name: tail.tables for name, tail in self.tails.items()}},
            (rows, drawn),
            FamilyFacts(self._promise(), self.provenance, self._files(tables), (*self.notes, *drawn.notes)),
        )
        return tables, book

    def _promise(self) -> Guarantee:
        loss = self.provenance.get("parameters", {}).get("loss", {})
        most = ((self.related.most_rows(child), child.table.name) for child in self.related.children)
        kept = ", ".join(f"at most {rows} of {name}" for rows, name in most)
        return Guarantee(
            text=self.guarantee,
            neighbours=str(self.related.unit),
            unit=f"all rows of one {self.related.schema.id}: {kept}",
            loss={name: str(value) for name, value in loss.items() if value is not None},
        )

    def _files(self, tables: Mapping[str, pa.Table]) -> tuple[FamilyFile, ...]:
        children = {child.table.name: child for child in self.related.children}
        written = []
        for name, table in tables.items():
            child = children.get(name)
            order = "one row a unit"
            if child is not None:
                rising = "falling" if child.falling else "rising"
                way = "in no order" if child.order is None else f"by {rising} {child.order}"
                above, most = self.related.above(child), self.related.most_rows(child)
                whole = f"{most}, {way}"
                order = f"of a unit at most {whole}"
                if above is not None:
                    order = f"of a row of {above.table.name} at most {child.most}, and of a unit {whole}"
            most = 1 if child is None else self.related.most_rows(child)
            written.append(FamilyFile(name, table.num_rows, tuple(table.column_names), order, most))
        return tuple(written)

    def write(self, folder: str | Path, *, file_format: str = "parquet") -> tuple[Path, ...]:
        """Write a file for each table into a new folder, all of them or none.

        Args:
            folder: does not exist yet, or is empty.
            file_format: ``parquet`` or ``csv``.

        Raises:
            InputError: another format, or a folder that cannot be made or holds something.
        """
        target = free_folder(folder, file_format)
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            partial.chmod(0o777 & ~_umask())
            for name, table in self.tables.items():
                noticed = table.replace_schema_metadata({**(table.schema.metadata or {}), NOTICE_KEY: NOTICE.encode()})
                ReleasedRows(noticed).write(partial / f"{name}.{file_format}")
            (partial / STATEMENT).write_text(released_text(self.statement(), self.codebook), encoding="utf-8")
            (partial / CODEBOOK).write_text(self.codebook.to_markdown(), encoding="utf-8")
            if target.is_dir():
                target.rmdir()  # empty: a folder takes no other's place everywhere
            partial.rename(target)
        except OSError as error:
            raise SfumatoError(
                f"cannot write {target}: {error.strerror or 'the disk failed'}", culprit=target
            ) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return tuple(target / f"{name}.{file_format}" for name in self.tables)

    def statement(self) -> dict[str, Any]:
        """The statement as plain JSON values, with the description of the tables and the settings."""
        more: dict[str, Any] = {
            "loss": dict(self.loss),
            "related": self.related.describe(),
            "settings": self.settings.describe(),
        }
        more |= {"notes": list(self.notes)}
        return super().statement() | more


def free_folder(folder: str | Path, file_format: str) -> Path:
    """Refuse a folder that cannot be made, before anything is charged.

    Raises:
        InputError: another format, no folder above it, or it holds something.
    """
    if file_format not in FORMATS:
        raise InputError(f"tables are written as {' or '.join(FORMATS)}, not {file_format}", culprit=file_format)
    target = checked_path(folder)
    try:
        above, held = target.parent.is_dir(), target.exists() and (not target.is_dir() or any(target.iterdir()))
    except OSError as error:
        raise InputError(f"cannot write {target.name}: {error.strerror}", culprit=target) from None
    if not above or not os.access(target.parent, os.W_OK):
        raise InputError(f"cannot write {target}: the folder {target.parent} cannot be written to", culprit=target)
    if held:
        raise InputError(f"{target} exists and is not empty; name a new folder", culprit=target)
    return target


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
