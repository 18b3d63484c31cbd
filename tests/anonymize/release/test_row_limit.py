"""A limit on suppression in rows: exact on a table made like UCI Adult, and in the journal as the share that it is."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato import anonymize
from sfumato.anonymize import Anonymized, KAnonymity, RowLimit
from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.errors import InputError
from sfumato.vault.vault import Vault

ROWS, RARE, LEFT_OUT = 3001, 13, 4  # neither share is a short decimal
RACES = ("White", "Black", "Other")
DOMAIN = Domain(
    (
        Integer(name="age", minimum=17, maximum=90, unknown=Unknown.CLAMP),
        Categorical(name="sex", values=("Female", "Male"), unknown=Unknown.DROP),
        Categorical(name="race", values=RACES, unknown=Unknown.CATEGORY),
    )
)
SEARCHES = [anonymize.optimal, anonymize.samarati]


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    """13 people of a rare race are too few for k = 14; the sex of 4 others is not one that the domain has."""
    rng = np.random.default_rng(8)
    sex = np.concatenate([["unstated"] * LEFT_OUT, rng.choice(["Female", "Male"], ROWS - LEFT_OUT)])
    race = np.concatenate([rng.choice(["White", "Black"], ROWS - RARE, p=[0.87, 0.13]), ["Other"] * RARE])
    table = pa.table({"age": rng.integers(17, 91, ROWS), "sex": sex.tolist(), "race": race.tolist()})
    return sf.open(table, domain=DOMAIN, ledger=f"sqlite:///{tmp_path}/l.ledger", limit=sf.Epsilon(1), create=True)


def released(search: Callable[..., Anonymized], vault: Vault, rows: int) -> Anonymized:
    return search(vault, quasi=["race"], criteria=[KAnonymity(14)], suppression=RowLimit(rows))


@pytest.mark.parametrize("search", SEARCHES)
def test_the_boundary_is_exact_and_rows_that_the_domain_drops_count(
    search: Callable[..., Anonymized], vault: Vault
) -> None:
    exact = released(search, vault, RARE + LEFT_OUT)
    assert (exact.facts["suppressed"], exact.facts["classes"]) == (RARE + LEFT_OUT, 2)
    short = released(search, vault, RARE + LEFT_OUT - 1)
    assert (short.facts["suppressed"], short.facts["classes"]) == (LEFT_OUT, 1)


def test_the_journal_holds_the_share_that_it_is(vault: Vault) -> None:
    release = released(anonymize.optimal, vault, RARE + LEFT_OUT)
    share = Fraction(17, ROWS)
    stated = Fraction("0.005665")
    assert share <= stated < Fraction(18, ROWS)
    assert "at most a share 0.005665 of the rows is suppressed" in str(release.guarantee)
    same = anonymize.optimal(vault, quasi=["race"], criteria=[KAnonymity(14)], suppression="0.005665")
    assert same.provenance == release.provenance
    assert len(list(vault.ledger.journal(after=1))) == 1  # the first entry is of the table's version


@pytest.mark.parametrize("rows", [0, 1, 7, 1000, ROWS - 1, ROWS])
def test_each_number_of_rows_allows_itself_and_not_one_more(rows: int, vault: Vault) -> None:
    reached = anonymize.release.request.share_of_rows(vault.encoded, RowLimit(rows))
    assert rows <= Fraction(reached) * ROWS < rows + 1


def test_more_rows_than_the_table_has_are_refused_and_nothing_is_journalled(vault: Vault) -> None:
    with pytest.raises(InputError, match="at most 3001 can be suppressed"):
        released(anonymize.optimal, vault, ROWS + 1)
    assert not list(vault.ledger.journal(after=1))


@pytest.mark.parametrize("rows", [-1, 1.5, "3", True, None])
def test_what_is_no_number_of_rows_is_refused(rows: object) -> None:
    with pytest.raises(InputError, match="rows to suppress are"):
        RowLimit(rows)  # type: ignore[arg-type]
