"""Apply a saved recoding to new rows of the same description."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import cast

import numpy as np

from sfumato.anonymize.asked import Asked
from sfumato.anonymize.plan import Plan, of_recoding
from sfumato.anonymize.quasi import read
from sfumato.anonymize.recoding import FullDomain, Recoding, dumps
from sfumato.anonymize.release import Anonymized, disclose
from sfumato.anonymize.rewrite import for_new_rows, of_full_domain
from sfumato.anonymize.source import microdata
from sfumato.anonymize.spelling import parse
from sfumato.arguments import expect
from sfumato.engine.port import Recodable
from sfumato.vault.keeper import refuse_no_vault
from sfumato.vault.vault import Vault


def apply(vault: Vault, recoding: Recoding, *, keep: Sequence[str] = ()) -> Anonymized:
    """Rewrite the rows of a table as a saved recoding says.  No differential privacy.

    Rows whose class the recoding does not keep are suppressed, and so are classes that are not safe among
    the new rows.  The criteria hold for the new rows by themselves: somebody who is in both tables, or who
    compares them, may learn more.

    Args:
        vault: the new table.
        recoding: what ``Anonymized.save_recoding`` saved and ``sfumato.anonymize.recoding.load`` read.
        keep: further columns to publish as they are.

    Raises:
        InputError: the recoding does not know a value that the domain declares, or needs a population.
        DomainError: the domain does not have a quasi-identifier of the recoding.
    """
    refuse_no_vault(vault)
    expect(recoding, Recoding, "a recoding is what sfumato.anonymize.recoding.load reads")
    digest = hashlib.sha256(dumps(recoding).encode()).hexdigest()
    criteria = tuple(parse(text) for text in recoding.criteria)
    asked = Asked("apply", read(recoding.quasi, vault.domain), criteria, "1", {"recoding": digest})
    labels = [vault.domain[name].labels() for name in recoding.quasi]

    def decide() -> Plan:
        data = microdata(cast(Recodable, vault.encoded), asked.quasi, criteria)
        if isinstance(recoding, FullDomain):
            losses = [cells[kept] for cells, kept in zip(recoding.losses, recoding.kept.T, strict=True)]
            return of_recoding(data, of_full_domain(recoding, labels), recoding, np.stack(losses, axis=1), asked)
        recode, classes = for_new_rows(recoding, data, labels)
        return of_recoding(data, recode, recoding, recoding.losses[classes], asked)

    return disclose(vault, asked, keep, decide)
