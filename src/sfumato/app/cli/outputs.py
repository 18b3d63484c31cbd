"""Where a command writes: checked before anything is spent, and never over what it reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sfumato.errors import InputError


def folder(path: Path) -> None:
    """Make a folder to write to, with those around it, unless it is there.

    Raises:
        InputError: a file is in its place, or permission is denied.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to the folder {path}: {error.strerror}", culprit=path) from None


def refuse_clashes(outputs: Sequence[Path | None], *, inputs: Sequence[str | Path | None], overwrite: bool) -> None:
    """Refuse outputs that cannot be written, that are one file, or that are the table, domain or ledger in use.

    ``inputs`` may be URLs; a SQLite ledger is the file behind its URL, and so is what Spark reads.

    Raises:
        InputError: as said; nothing was touched.
    """
    from sfumato.vault.rows import free

    taken = {_file(place) for place in inputs if place is not None}
    for output in outputs:
        if output is None:
            continue
        free(output, overwrite=overwrite)
        place = output.resolve()
        if place in taken:
            raise InputError(f"{output} is read, or written already, by this command; choose another name")
        taken.add(place)


def _file(place: str | Path) -> Path:
    return Path(str(place).removeprefix("sqlite:///").removeprefix("spark:")).resolve()
