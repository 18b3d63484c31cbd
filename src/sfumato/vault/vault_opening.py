"""Opening of a vault: a table, its accepted description, its ledger, and the declared version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.arguments import expect
from sfumato.domain import Domain, load
from sfumato.engine.encoded import refuse_missing
from sfumato.engine.open import open_table
from sfumato.engine.table_files import Content
from sfumato.errors import LedgerError
from sfumato.ledger.database import file_address
from sfumato.ledger.entry import system_user
from sfumato.privacy.loss import Loss
from sfumato.vault.vault import Vault

if TYPE_CHECKING:
    from sfumato.ledger import Ledger

DATASET = "default"
_MOST_LINKS = 40  # largest length of a chain of links


def open_vault(  # noqa: PLR0913  (keywords, each of which is one line of a call)
    table: object,
    *,
    domain: Domain | str | Path,
    ledger: str | Path | None = None,
    limit: Loss | None = None,
    dataset: str = DATASET,
    create: bool = False,
    new_version: bool = False,
) -> Vault:
    """Open a protected table for release; :meth:`Vault.for_analyst` names the analyst if the ledger has caps.

    Args:
        table: path of a CSV or Parquet file, a pandas, polars or Arrow frame, or the URL of a table in a
            database or on Spark.
        domain: the accepted description, or the path of its YAML file.
        ledger: path of the journal's SQLite file, or its URL (``postgresql://...``).  By default, a SQLite file next
            to the domain file, so that one description has one budget.
        limit: the privacy budget.  It is fixed with the unit when the ledger is made, and compared later.
        dataset: name of the journal, if one ledger has several.
        create: true to make the ledger, with ``limit``, if there is none.  Pass it once.  A script that always
            passes it gets a new, full budget if the ledger file is lost.
        new_version: true if the table is declared as the next version, which charges every request again.
            Without it, a table that differs from the last version is refused.

    Raises:
        DomainError: the description is wrong, or a draft that nobody accepted.
        TableError: the table cannot be read or does not fit the description.
        LedgerError: there is no ledger and none is to be made; or it cannot be opened, or has another limit or unit.
        VersionError: the table differs from the last version, and ``new_version`` is not set.
        EngineError: the table was written while it was read.
    """
    from sfumato.ledger import open_ledger  # imported here, because error estimates need no database

    expect(domain, Domain | str | Path, "a domain is a Domain, such as an accepted draft, or the path of its file")
    described = _accepted(domain)
    encoded, content = open_table(table, csv=described.csv, empty=True).encode_with_content(described)
    journal = open_ledger(
        ledger or default_ledger_url(domain), dataset=dataset, limit=limit, unit=described.unit, create=create
    )
    return Vault(encoded, journal, declared(journal, content, new=new_version), content=content)


def declared(journal: Ledger, content: Content, *, new: bool) -> str:
    """Declare the content of tables in a ledger that was just opened, and close the ledger if that is refused.

    Returns:
        The version for requests.

    Raises:
        VersionError: the content differs from that of the last version, and ``new`` is not set.
    """
    try:
        return str(journal.declare_version(content, by=system_user(), new=new).number)
    except BaseException:
        journal.close()
        raise


def open_vault_later(
    table: object,
    *,
    domain: Domain | str | Path,
    ledger: Ledger,
    analyst: str | None = None,
    new_version: bool = False,
    raw: Sequence[str] = (),
) -> Vault:
    """Open a protected table whose ledger is opened by its first release, and created then if necessary.

    Raises:
        TableError: the table lacks a ``raw`` column.  Its rows are not read then.
        VersionError: the table differs from the last version, and ``new_version`` is not set.
    """
    described = _accepted(domain)
    opened = open_table(table, csv=described.csv, empty=True)
    refuse_missing(opened, raw)
    encoded, content = opened.encode_with_content(described)
    ledger.declare_later(content, new=new_version)
    return Vault(encoded, ledger, ledger.version, analyst=analyst, content=content)


def default_ledger_url(domain: Domain | str | Path) -> str:
    """Return the URL of the ledger next to a domain file; links are resolved.

    Raises:
        LedgerError: the domain is not a file; or it is a link that has another ledger next to it.
    """
    if isinstance(domain, Domain):
        raise LedgerError("name a ledger: a domain that is not a file has no ledger next to it", culprit=domain)
    named = Path(domain)
    file = named
    for _ in range(_MOST_LINKS):
        if not file.is_symlink():
            break
        file = file.parent / file.readlink()
    ledger, other = file.with_suffix(".ledger"), named.with_suffix(".ledger")
    if file != named and other.exists() and not (ledger.exists() and other.samefile(ledger)):
        raise LedgerError(
            f"{named} is a link to {file}, whose ledger is {ledger}, but there is a ledger next to the link as well; "
            "name the right one by the argument ledger, or move it next to the file",
            culprit=domain,
        )
    return file_address(ledger)


def _accepted(domain: Domain | str | Path) -> Domain:
    described = domain if isinstance(domain, Domain) else load(domain)
    described.refuse_draft()
    described.refuse_changed()
    return described
