"""Wrong arguments are refused in a sentence, and the journal stays empty."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from sfumato import anonymize
from sfumato.anonymize import KAnonymity, Quasi, RowLimit
from sfumato.domain import Domain, Integer, Unknown
from sfumato.errors import InputError
from sfumato.privacy.loss import Epsilon
from sfumato.vault.vault import Vault
from sfumato.vault.vault_opening import open_vault

DOMAIN = Domain((Integer(name="age", minimum=0, maximum=9, unknown=Unknown.CLAMP),))
K = [KAnonymity(3)]

METHODS = {
    "optimal": (anonymize.optimal, {"quasi": ["age"], "criteria": K, "suppression": "0.1"}),
    "samarati": (anonymize.samarati, {"quasi": ["age"], "criteria": K, "suppression": "0.1"}),
    "mondrian": (anonymize.mondrian, {"quasi": ["age"], "criteria": K}),
    "k_member": (anonymize.k_member, {"quasi": ["age"], "k": 3}),
    "microaggregate": (anonymize.microaggregate, {"quasi": ["age"], "k": 3}),
}
ODD = {
    "quasi": (None, 5, "age", [], [None], [5], [["age"]], {"age": 1}),
    "criteria": (None, 5, "k=3", [], [3], K[0], {}),
    "suppression": (None, float("inf"), float("nan"), [], "x", 2, RowLimit(61)),
    "k": (None, 1.5, "3", 0, True, [3]),
    "keep": (None, 5, "age", [5], [None], {"age"}),
    "search": (None, 20, 1.5, "x", {"effort": 20}),
    "cut": (None, "greedy", 5),
    "order": (None, "first", 5),
    "extent": (None, 5),
}
TAKEN = {
    "optimal": ("keep", "extent"),
    "samarati": ("keep", "order"),
    "mondrian": ("keep", "cut"),
    "k_member": ("keep", "search"),
    "microaggregate": ("keep",),
}
CASES = [(name, key) for name, (_, terms) in METHODS.items() for key in (*terms, *TAKEN[name])]


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    table = pa.table({"age": [number % 10 for number in range(60)]})
    return open_vault(table, domain=DOMAIN, ledger=f"sqlite:///{tmp_path}/l.ledger", limit=Epsilon(1), create=True)


@pytest.mark.parametrize(("name", "key"), CASES)
def test_arguments_of_the_wrong_kind_are_refused(name: str, key: str, vault: Vault) -> None:
    method, terms = METHODS[name]
    for odd in ODD[key]:
        with pytest.raises(InputError):
            method(vault, **{**terms, key: odd})
    assert not list(vault.ledger.journal(after=1))  # the first entry is of the table's version
    method(vault, **terms)
    assert len(list(vault.ledger.journal(after=1))) == 1


@pytest.mark.parametrize("name", METHODS)
def test_what_is_no_vault_is_refused(name: str) -> None:
    method, terms = METHODS[name]
    for odd in (None, "people.csv", DOMAIN):
        with pytest.raises(InputError, match=r"the vault that sf\.open"):
            method(odd, **terms)


def test_what_is_no_recoding_is_not_applied(vault: Vault) -> None:
    for odd in (None, 5, "recoding.json", {}):
        with pytest.raises(InputError, match="a recoding is what"):
            anonymize.apply(vault, odd)
    with pytest.raises(InputError, match=r"the vault that sf\.open"):
        anonymize.apply("people.csv", anonymize.mondrian(vault, quasi=["age"], criteria=K).recoding)


@pytest.mark.parametrize(
    "terms",
    [{"name": 5}, {"name": None}, {"hierarchy": "age.csv"}, {"weight": "1"}, {"weight": None}, {"missing": "drop"}],
    ids=str,
)
def test_details_of_a_quasi_identifier_are_of_their_kinds(terms) -> None:
    with pytest.raises(InputError):
        Quasi(**{"name": "age", **terms})


@pytest.mark.parametrize("odd", [None, 1.5, "x", -1])
def test_a_search_of_the_wrong_effort_is_refused(odd: object) -> None:
    with pytest.raises(InputError):
        anonymize.Search(effort=odd)


@pytest.mark.parametrize("odd", [None, "x", -1, float("nan"), [5]])
def test_a_search_of_the_wrong_time_is_refused(odd: object) -> None:
    with pytest.raises(InputError):
        anonymize.Search(seconds=odd)
