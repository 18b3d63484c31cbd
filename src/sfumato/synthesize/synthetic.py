"""The release of every synthesizer, its saved file, and the release in a file of rows.

A saved release contains the public model with its domain and statement.  Sampling it costs no privacy.

A Parquet or Arrow file of rows contains everything that intervals need, without model and ledger.  The domain and the
noisy tables are in the metadata of the file, as text, because other programs refuse other metadata.  A digest binds
them to the codebook.  It detects damage, and a changed codebook.  It does not detect a consistent change of all parts,
because any program can compute the digest again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect
from sfumato.domain import Domain, Role, dump, parse
from sfumato.errors import InputError, SfumatoError, SizeError
from sfumato.model.factor import FloatArray
from sfumato.model.noisy_table import (
    NoisyDistance,
    NoisyTable,
    digest_of,
    distances_payload,
    restore_distances,
    restore_tables,
    tables_payload,
)
from sfumato.model.row_sampling import CodeArray, generator
from sfumato.strict_documents import read_yaml
from sfumato.synthesize.codebook.codebook import KEY, Codebook, CodebookFile, open_codebook
from sfumato.synthesize.codebook.codebook_entries import codebook_of, measured_tables
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.product import DrawnRows, Model, Product, codes_of, filled, read_back, refuse_large
from sfumato.synthesize.stated_errors import distances_of_rows
from sfumato.vault.interface import ReleasedPayload, decode, encode
from sfumato.vault.release import Release, ReleasedRows, Reported, Tabular, refuse_occupied_path, write_atomically
from sfumato.workload.counting_queries import Marginals, Workload

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.synthesize.structural_zeros import Zeros


@dataclass(frozen=True, kw_only=True, repr=False)
class Synthetic(Release, Tabular, Reported, report="release_page.synthetic"):
    """A synthetic table: a public model and rows sampled from it.

    ``seed`` is derived from the stored, public payload.  Samples of a public model need no secret.
    """

    model: Model
    seed: int

    @property
    def tables(self) -> tuple[NoisyTable, ...]:
        """The noisy tables that the model was fitted to.  Estimates with intervals use them at no cost."""
        return self.model.tables

    @property
    def distances(self) -> tuple[NoisyDistance, ...]:
        """The measured distances of pairs of the model from the table."""
        return self.model.distances

    @property
    def headline(self) -> str:
        """The number of rows and the names of the columns."""
        return f"{self.model.total:,} {rows_of(self.model.domain, self.model.domain.names)}"

    @property
    def accuracy(self) -> str:
        """The largest error of counts by one column, and the number of measured pairs of columns."""
        return self.codebook.accuracy

    @property
    def rows(self) -> ReleasedRows:
        """Return a sample of the model in the table's own types.  Under one version of NumPy, a release always has the
        same rows.

        Raises:
            SizeError: noise at a tiny loss made the number of rows too large to sample at once.
        """
        return self._file[0]

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self.rows.to_arrow()

    def _repr_html_(self) -> str:
        return f"{self._report_part('_card', self)}{self.to_html()}{self.rows._repr_html_()}"

    @property
    def codebook(self) -> Codebook:
        """The codebook for the readers of ``rows``: columns, guarantee, measured tables, and errors.

        Raises:
            SizeError: see ``rows``.
        """
        return self._file[1]

    @cached_property  # uncached, synthesizing the adult table at epsilon 1 takes 12 % more CPU time
    def _file(self) -> tuple[ReleasedRows, Codebook]:
        return self._drawn(None, generator(self.seed))

    def codes(self) -> CodeArray:
        """Return the cells of ``rows``, row by row: the same draw, shape ``(rows, attributes)``.

        Raises:
            SizeError: see ``rows``.
        """
        refuse_large(self.model.total, len(self.model.domain))
        return self.model.sample(generator(self.seed))

    def sample(self, rows: int | None = None) -> ReleasedRows:
        """Return another sample of the same model, of any size.  It costs nothing, and reveals no more than the model.

        Raises:
            InputError: the number of rows is invalid.
            SizeError: the number of rows is too large to sample at once.
        """
        return self.sample_with_codebook(rows)[0]

    def sample_with_codebook(self, rows: int | None = None) -> tuple[ReleasedRows, Codebook]:
        """Draw another sample, and return it with the codebook for its rows.

        Raises:
            InputError, SizeError: see :meth:`sample`.
        """
        return self._drawn(rows, generator())

    def _drawn(self, rows: int | None, random: np.random.Generator) -> tuple[ReleasedRows, Codebook]:
        refuse_large(self.model.total if rows is None else rows, len(self.model.domain))
        model = self.model
        kind = np.min_scalar_type(max(model.domain.shape) - 1).type  # one byte if at most 256 cells
        codes = filled(model.blocks(random, rows), model.total if rows is None else rows, model.domain, kind)
        book = codebook_of(self, model, codes)
        return ReleasedRows(DrawnRows(model.domain, codes, random, metadata(book, model, codes), model.positions)), book


def finish_release(
    stored: ReleasedPayload,
    model: Model,
    expected_error: dict[str, float],
    provenance: Mapping[str, object] | None = None,
) -> Synthetic:
    """Return the release of a stored payload and its model, with ``provenance`` added.

    If earlier releases were used, their guarantees apply in addition.  A reader of this release alone may learn as much
    as all of them cost together.
    """
    guarantee = stored.guarantee
    if isinstance(model, Graphical):
        guarantee += reuse_clause(model.reused)
    return Synthetic(
        guarantee=guarantee,
        cost=stored.cost,
        accepted=stored.accepted,
        expected_error=expected_error,
        provenance={**stored.provenance, **(provenance or {})},
        model=model,
        seed=int(stored.digest[:16], 16),
    )


def reuse_clause(entries: Sequence[int]) -> str:
    """Return the end of the guarantee of a release that also used earlier journal entries; empty without entries."""
    if not entries:
        return ""
    return f", beyond what journal entries {', '.join(map(str, entries))} released, of which it was made as well"


_LISTED = 4


def rows_of(domain: Domain, names: Sequence[str]) -> str:
    """Describe rows with the given columns, by name if they are few.

    >>> from sfumato.domain import Integer, Unknown
    >>> ages = Domain([Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP)])
    >>> rows_of(ages, ages.names)
    'synthetic rows of age'
    """
    if len(names) <= _LISTED:
        return f"synthetic rows of {', '.join(names)}"
    some = "all" if len(names) == len(domain) else f"{len(names)} of"
    return f"synthetic rows of {some} {len(domain)} attributes"


def tables(cliques: Sequence[Sequence[str]]) -> str:
    """Describe tables over the given attributes, the first few by name.

    >>> tables([("age", "sex"), ("town",)])
    'age x sex; town'
    """
    named = "; ".join(" x ".join(clique) for clique in cliques[:_LISTED])
    return named if len(cliques) <= _LISTED else f"{named}; and {len(cliques) - _LISTED} more"


def describe_zeros(zeros: Sequence[Zeros]) -> list[Any]:
    """Return structural zeros as JSON values, for the journal."""
    return [[list(zero.attributes), np.flatnonzero(zero.impossible).tolist()] for zero in zeros]


def derived_columns(zeros: Sequence[Zeros]) -> str:
    """Return a clause about the columns that follow from others by a rule; empty if there is none."""
    derived = [f"{zero.attributes[1]} follows from {zero.attributes[0]}" for zero in zeros if zero.is_function]
    return f", where {' and '.join(derived)}" if derived else ""


def rows_for(domain: Domain, workload: Workload, names: Sequence[str] | None = None) -> str:
    """Describe rows for the answers to a workload; ``names`` are their columns.  Default: those of the workload."""
    rows = rows_of(domain, workload.attributes(domain) if names is None else names)
    if not isinstance(workload, Marginals):
        return f"{rows} for {workload.length(domain)} queries"
    if workload.ways is None:
        return f"{rows} for the marginals {tables(workload.cliques)}"
    target, weight = domain.in_role(Role.TARGET), domain.in_role(Role.WEIGHT)
    each = "" if target is None else f", each with the target {target}"
    heavy = "" if weight is None else f", and totals of the weight {weight}"
    named = f" and the marginals {tables(workload.cliques)}" if workload.cliques else ""
    return f"{rows} for all {workload.ways}-way marginals{each}{named}{heavy}"


_KINDS: dict[str, type[Product | Graphical]] = {"product": Product, "graphical": Graphical}

_DAMAGED = (
    *(OSError, SfumatoError, RecursionError),
    *(KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError),
)
"""Exceptions from reading a file that may be forged."""

STATED_BY_A_FILE = (
    "Stated by the file alone: anyone with the file can change its statement, noise and errors. "
    "The journal of the ledger records the release."
)
"""Caveat of every release from a file: its digest detects damage, and no intentional change."""

_DIGEST = 32  # bytes of SHA-256 before the content, for detecting damage


def save(release: Synthetic, path: str | Path, *, overwrite: bool = False) -> None:
    """Write a release to one file that :func:`load` reads without the table and without the ledger.

    ``rows`` of a loaded release equal the rows of the original under the same version of NumPy, whose random numbers
    and sums may change between versions.  The file records the version.

    Raises:
        InputError: the file cannot be written, or exists and ``overwrite`` is False.
    """
    expect(release, Synthetic, "save takes the release of a synthesizer")
    model = release.model
    kind = next((name for name, model_class in _KINDS.items() if isinstance(model, model_class)), None)
    if kind is None or not isinstance(model, Product | Graphical):
        raise InputError(f"a model of type {type(model).__name__} cannot be saved", culprit=model)
    refuse_occupied_path(path, overwrite=overwrite)
    stored = encode(
        {
            **model.payload(),
            "release": {
                "kind": kind,
                "numpy": np.__version__,  # a reader needs it if the rows differ
                "domain": dump(model.domain),  # YAML keeps the order of attributes
                "seed": release.seed,
                "statement": release.statement(),
            },
        }
    )
    write_atomically(path, lambda partial: _write(partial, hashlib.sha256(stored).digest() + stored))


def load(path: str | Path) -> Synthetic:
    """Read a saved release; no part of the file is executed.

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
        refuse_odd_statement(release)
        model = _KINDS[release["kind"]].restore(parse(read_yaml(release["domain"])), payload)
        loaded = Synthetic(**release["statement"], accepted=model.domain.accepted_by, model=model, seed=release["seed"])
        if loaded.model.total < 0:
            raise InputError("no number of rows")
        with np.errstate(all="ignore"):
            loaded.sample(1)
        return loaded  # noqa: TRY300 - what is odd is refused in the same words
    except _DAMAGED as error:
        raise InputError(f"cannot read a saved release from {path}: {unreadable(path)}", culprit=path) from error


def unreadable(path: str | Path) -> str:
    """Say why a file cannot be read as a saved release."""
    return "it is damaged, or is no saved model" if Path(path).is_file() else "there is no such file"


def refuse_odd_statement(saved: Mapping[str, Any]) -> None:
    """Refuse a file in which the statement of a release, or its seed, is not of the types that a release writes."""
    statement, seed = saved["statement"], saved["seed"]
    texts = isinstance(statement["guarantee"], str) and isinstance(statement["cost"], str)
    errors, provenance = statement["expected_error"], statement["provenance"]
    numbers = isinstance(errors, dict) and all(type(each) in (int, float) and each >= 0 for each in errors.values())
    if not texts or not numbers or not isinstance(provenance, dict) or type(seed) is not int or seed < 0:
        raise InputError("a statement of texts, errors and provenance, and a seed are missing")


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


TABLES_KEY = b"sfumato.tables"

_TABLES_DIGEST = 64  # hexadecimal digits before the content
_MOST_BYTES = 16 << 20  # of the text in a file: every reader of the rows reads it too
_MOST_DECODED = 1 << 30
_MOST_CELLS = 1 << 26

_DAMAGED_TABLES = (
    *(SfumatoError, binascii.Error, RecursionError, MemoryError),
    *(KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError),
)
"""Exceptions from reading tables that may be forged."""


def metadata(book: Codebook, model: Model, codes: CodeArray) -> dict[bytes, bytes]:
    """Return the metadata of Parquet and Arrow files: the codebook, and the noisy tables with their domain if they fit.

    All of it is public: the tables were charged with the release, and the domain is that of the rows.
    """
    entries = book.metadata()
    if not model.tables:
        return entries
    distances = distances_payload(distances_of_rows(model, codes)) if isinstance(model, Graphical) else {}
    domain = model.domain
    columns = {
        each.name: digest_of(_counts(domain, each.name, read_back(each, codes[:, place])))
        for place, each in enumerate(domain)
    }
    payload = {"domain": dump(domain), "columns": columns, **tables_payload(model.tables), **distances}
    content = base64.b64encode(encode(payload))
    if len(content) + _TABLES_DIGEST > _MOST_BYTES:
        return entries
    return entries | {TABLES_KEY: _digest(entries[KEY], content) + content}


@dataclass(frozen=True, eq=False)
class FileRows:
    """The rows of a file as a model: their counts, scaled to the number of rows of the table.

    ``distances`` refer to the counts of pairs when the rows were written.  ``columns`` has a digest of each column's
    counts at that time; files in an older format lack it.
    """

    domain: Domain
    total: int
    file: CodebookFile
    distances: tuple[NoisyDistance, ...]
    columns: Mapping[str, str]

    def cells(self, attributes: tuple[str, ...]) -> FloatArray:
        """Return counts of a marginal, flat in C order, scaled to the number of rows of the table.

        Raises:
            SizeError: the marginal has too many cells.
            InputError: a column has undeclared values, or other counts than when it was written, or so has a pair with
                a distance.
        """
        part = self.domain.project(attributes)
        if part.size > _MOST_CELLS:
            raise SizeError(
                f"the marginal of {', '.join(attributes)} has {part.size:,} cells; ask for fewer attributes"
            )
        table = self.file.rows(attributes)
        codes = [codes_of(self.domain[name], table[name]) for name in attributes]
        for name, column in zip(attributes, codes, strict=True):
            if self.columns.get(name) not in (None, digest_of(_counts(self.domain, name, column))):
                raise InputError(
                    f"{self.file.path}: its column {name} is not the one that it was written with: other values, or "
                    "other rows",
                    culprit=self.file.path,
                )
        counts = np.bincount(np.ravel_multi_index(codes, part.shape), minlength=part.size)
        known = next((each.rows for each in self.distances if each.attributes == attributes), "")
        if known and known != digest_of(counts):
            raise InputError(
                f"{self.file.path}: its rows changed since it was written, and the distance of "
                f"{' x '.join(attributes)} from the table is known for the original rows only",
                culprit=self.file.path,
            )
        scaled: FloatArray = counts * (self.total / max(1, table.num_rows))
        return scaled


@dataclass(frozen=True, eq=False)
class SyntheticFile:
    """A released file with its noisy tables, the input of ``query.interval`` without the saved model.

    Attributes:
        codebook: the codebook of the file.
        tables: the measured tables of the release.
        distances: measured distances of pairs of its rows from the table.
        model: the rows of the file, instead of the model that they were drawn from.
    """

    codebook: Codebook
    tables: tuple[NoisyTable, ...]
    distances: tuple[NoisyDistance, ...]
    model: FileRows

    @property
    def guarantee(self) -> str:
        """Return the guarantee that the file states."""
        return self.codebook.guarantee.text


def read_release(path: str | Path) -> SyntheticFile:
    """Return the release in a Parquet or Arrow file; no part of the file is executed.

    The file is its own only evidence.  Only the ledger can confirm that its tables belong to the release.

    Args:
        path: a file written by ``sfumato synthesize`` or ``sfumato sample``.

    Raises:
        InputError: the file cannot be read, has no noisy tables, or its tables, codebook and rows do not belong
            together.
    """
    file = open_codebook(path)
    text = file.metadata.get(TABLES_KEY)
    if text is None:
        why = (
            "they were too large, were removed, or an older version wrote the file; use the saved model instead"
            if file.book.measured
            else "its method measures other queries, or rows of a part of its model were drawn"
        )
        raise InputError(f"{path} has no noisy tables: {why}", culprit=path)
    given, content = text[:_TABLES_DIGEST], text[_TABLES_DIGEST:]
    if given != _digest(file.metadata[KEY], content):
        raise InputError(
            f"{path}: its noisy tables and its codebook are not those that were written together", culprit=path
        )
    try:
        payload = decode(base64.b64decode(content, validate=True), most=_MOST_DECODED)
        domain = parse(read_yaml(payload["domain"]))
        tables, distances = restore_tables(domain, payload), restore_distances(domain, payload)
        columns = {str(name): str(digest) for name, digest in payload.get("columns", {}).items()}
    except _DAMAGED_TABLES as error:
        raise InputError(f"{path}: its noisy tables are damaged, or of a later version", culprit=path) from error
    _refuse_others(path, file, domain, tables)
    return SyntheticFile(file.book, tables, distances, FileRows(domain, file.book.table_rows, file, distances, columns))


def _counts(domain: Domain, name: str, codes: CodeArray) -> NDArray[np.int64]:
    return np.bincount(codes, minlength=domain[name].size)


def _refuse_others(path: str | Path, file: CodebookFile, domain: Domain, tables: tuple[NoisyTable, ...]) -> None:
    """Refuse rows, a codebook and tables that contradict each other.

    Raises:
        InputError: they do.
    """
    book = file.book
    if measured_tables(tables) != book.measured:
        raise InputError(f"{path}: its codebook lists other tables, or other noise, than it carries", culprit=path)
    if not tuple(column.name for column in book.columns) == domain.names == file.columns:
        raise InputError(f"{path}: its columns are not those that its codebook and its tables are about", culprit=path)
    if book.rows != file.length:
        raise InputError(
            f"{path} has {file.length:,} rows, and the codebook in it is that of {book.rows:,}: it was changed since",
            culprit=path,
        )


def _digest(book: bytes, content: bytes) -> bytes:
    return hashlib.sha256(hashlib.sha256(book).digest() + content).hexdigest().encode()
