"""The release of linked synthetic tables, which ``synthesize.synthesize_linked`` returns.

* ``release.tables`` are Arrow tables by name with new keys: the parent's (``release.linked.parent``) and one for each
  child (``release.linked.children``).  Rows are ordered by unit and, within a unit, as the child table declares.  The
  columns are the key, the column of the unit, and the attributes of the schema.
* ``release.linked`` (:class:`sfumato.domain.linked_domain.LinkedTables`) has the schema, and the order, bound, memory
  and weights of every child table.
* ``release.settings`` are the method's parameters; none depends on the data.
* ``release.measured`` are the noisy tables: the part (``head`` or ``persons.tail``), the attributes, and the standard
  deviation of the noise on a cell, in units.
* ``release.notes`` are sentences about tables that noise hides at this loss.
* ``release.redrawn()`` draws rows from the same models again at no cost.
  :mod:`sfumato.synthesize.linked.saved_linked` stores a release in a file for that.
* ``release.write(folder)`` writes the tables and, as ``release.json``, the statement and the codebook.
* ``release.guarantee``, ``cost``, ``expected_error`` and ``provenance`` are as in every release.  The guarantee holds
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
from sfumato.synthesize.linked.linked_rows import balanced, drawn_children, linked_rows, times_drawn
from sfumato.synthesize.product import refuse_large
from sfumato.vault.release import Release, ReleasedRows, Reported, checked_path

if TYPE_CHECKING:
    import pyarrow as pa

HEAD = "head"
FORMATS = ("parquet", "csv")
_MOST_ROUNDS = 100  # of calibration


@dataclass(frozen=True, kw_only=True)
class ModelSizes:
    """The sizes of models and the number of calibration rounds; they do not depend on the data.

    Attributes:
        head_cells: largest number of cells of the junction tree of the head.
        tail_cells: largest number of cells of the junction tree of each tail.
        calibration: rounds of comparing drawn children with the fitted marginals, at most 100.
        calibrated_units: largest number of units whose children are drawn for the calibration.
    """

    head_cells: int = 400_000
    tail_cells: int = 400_000
    calibration: int = 9
    calibrated_units: int = 40_000

    def __post_init__(self) -> None:
        sizes = (self.head_cells, self.tail_cells, self.calibrated_units)
        if any(type(size) is not int or size < 1 for size in sizes):
            raise InputError("sizes of models are whole numbers from 1", culprit=self)
        if type(self.calibration) is not int or not 0 <= self.calibration <= _MOST_ROUNDS:
            raise InputError(f"calibration is a whole number from 0 to {_MOST_ROUNDS}", culprit=self)

    def describe(self) -> dict[str, int]:
        """Return the sizes as JSON values for the journal."""
        return {
            "head_cells": self.head_cells,
            "tail_cells": self.tail_cells,
            "calibration": self.calibration,
            "calibrated_units": self.calibrated_units,
        }


@dataclass(frozen=True)
class MeasuredPart:
    """A noisy table of a linked release: its part (the ``head`` or a tail), its attributes, and its noise.

    ``deviation`` is the standard deviation of the noise on a cell, in units; in a tail, in rows that weigh one unit.
    """

    part: str
    attributes: tuple[str, ...]
    deviation: float


@dataclass(frozen=True, kw_only=True, repr=False)
class LinkedRelease(Release, Reported, report="linked_tables_page.linked"):
    """The release of linked synthetic tables; the top of this module describes it."""

    linked: LinkedTables
    settings: ModelSizes
    unit_model: Graphical
    child_models: Mapping[str, Graphical]
    notes: tuple[str, ...]
    payload: Mapping[str, Any]
    seed: int
    loss: Mapping[str, str | None]

    @property
    def headline(self) -> str:
        """Return the number of units and the names of the child tables."""
        children = ", ".join(child.table.name for child in self.linked.children)
        return f"{self.unit_model.total:,} synthetic units with {children}"

    @property
    def measured(self) -> tuple[MeasuredPart, ...]:
        """Return all noisy tables that the models were fitted to."""
        unit_weights = {table.name: table.unit_weight for table in self.linked.derived}
        parts = [MeasuredPart(HEAD, each.attributes, each.deviation) for each in self.unit_model.measured]
        for name, model in self.child_models.items():
            parts += [
                MeasuredPart(name, each.attributes, each.deviation / unit_weights[name]) for each in model.measured
            ]
        return tuple(parts)

    @property
    def tables(self) -> dict[str, pa.Table]:
        """Return the synthetic tables by name.  Under one version of NumPy, a release always has the same tables.

        Raises:
            SizeError: noise at a tiny loss made the number of units too large to sample at once.
        """
        return self._drawn[0]

    def to_arrow(self) -> dict[str, pa.Table]:
        """Return the synthetic tables by name as Arrow tables."""
        return self.tables

    def to_pandas(self) -> dict[str, Any]:
        """Return the synthetic tables by name as pandas DataFrames.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return {name: ReleasedRows(table).to_pandas() for name, table in self.tables.items()}

    def to_polars(self) -> dict[str, Any]:
        """Return the synthetic tables by name as polars DataFrames.

        Raises:
            MissingExtraError: polars is not installed.
        """
        return {name: ReleasedRows(table).to_polars() for name, table in self.tables.items()}

    def _repr_html_(self) -> str:
        return self.to_html() + "".join(ReleasedRows(table).to_html(name) for name, table in self.tables.items())

    def redrawn(self) -> LinkedRelease:
        """Return the same release with other rows, drawn from the same models at no cost."""
        return replace(self, seed=int(generator().integers(1 << 62)), cost="nothing: drawn of what was released")

    @property
    def codebook(self) -> FamilyCodebook:
        """Return the codebook of ``tables``: the guarantee, the measured tables, and the errors.

        Raises:
            SizeError: see ``tables``.
        """
        return self._drawn[1]

    @cached_property
    def _drawn(self) -> tuple[dict[str, pa.Table], FamilyCodebook]:
        random = generator(self.seed)
        refuse_large(self.unit_model.total, len(self.unit_model.domain))
        units, some = self.unit_model.total, self.settings.calibrated_units
        codes = self.unit_model.sample(random, units * times_drawn(self.linked, units, some))
        rows = {name: codes[:, place].astype("int64") for place, name in enumerate(self.unit_model.domain.names)}
        del codes
        times = self.settings.calibration
        drawn = drawn_children(self.linked, rows, self.child_models, random, times=times, some=min(some, max(units, 1)))
        rows, drawn = balanced(self.linked, rows, drawn, units, random)
        tables = linked_rows(self.linked, rows, drawn.child_slots, random)
        book = family_codebook(
            self.linked,
            {HEAD: self.unit_model.tables, **{name: model.tables for name, model in self.child_models.items()}},
            (rows, drawn),
            FamilyFacts(self._promise(), self.provenance, self._files(tables), (*self.notes, *drawn.notes)),
        )
        return tables, book

    def _promise(self) -> Guarantee:
        loss = self.provenance.get("parameters", {}).get("loss", {})
        most = ((self.linked.most_rows(child), child.table.name) for child in self.linked.children)
        bounds = ", ".join(f"at most {rows} of {name}" for rows, name in most)
        return Guarantee(
            text=self.guarantee,
            neighbours=str(self.linked.unit),
            unit=f"all rows of one {self.linked.schema.id}: {bounds}",
            loss={name: str(value) for name, value in loss.items() if value is not None},
        )

    def _files(self, tables: Mapping[str, pa.Table]) -> tuple[FamilyFile, ...]:
        children = {child.table.name: child for child in self.linked.children}
        written = []
        for name, table in tables.items():
            child = children.get(name)
            order = "one row a unit"
            if child is not None:
                rising = "falling" if child.falling else "rising"
                way = "in no order" if child.order is None else f"by {rising} {child.order}"
                parent, most = self.linked.parent_of(child), self.linked.most_rows(child)
                bound = f"{most}, {way}"
                order = f"of a unit at most {bound}"
                if parent is not None:
                    order = f"of a row of {parent.table.name} at most {child.most}, and of a unit {bound}"
            most = 1 if child is None else self.linked.most_rows(child)
            written.append(FamilyFile(name, table.num_rows, tuple(table.column_names), order, most))
        return tuple(written)

    def write(self, folder: str | Path, *, file_format: str = "parquet") -> tuple[Path, ...]:
        """Write a file for each table into a new folder, all of them or none.

        Args:
            folder: must not exist, or must be empty.
            file_format: ``parquet`` or ``csv``.

        Raises:
            InputError: the format is unknown, or the folder cannot be made or is not empty.
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
                target.rmdir()  # the folder is empty; some systems cannot rename over a folder
            partial.rename(target)
        except OSError as error:
            raise SfumatoError(
                f"cannot write {target}: {error.strerror or 'the disk failed'}", culprit=target
            ) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return tuple(target / f"{name}.{file_format}" for name in self.tables)

    def statement(self) -> dict[str, Any]:
        """Return the statement as JSON values, with the description of the tables and the settings."""
        more: dict[str, Any] = {
            "loss": dict(self.loss),
            "related": self.linked.describe(),
            "settings": self.settings.describe(),
        }
        more |= {"notes": list(self.notes)}
        return super().statement() | more


def free_folder(folder: str | Path, file_format: str) -> Path:
    """Refuse a folder that cannot be made, before anything is charged; return its path.

    Raises:
        InputError: the format is unknown, the parent folder is missing, or the folder is not empty.
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
