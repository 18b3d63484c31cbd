"""The contract of synthesizers: the tuple holds every method of the folder, and both ways ask the journal the same."""

from __future__ import annotations

import pkgutil
from fractions import Fraction
from importlib import import_module
from pathlib import Path

import pytest
from tests.synthesize.identities import DOMAIN, identity

from sfumato.errors import InputError
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.synthesize import (
    SYNTHESIZERS,
    BudgetShare,
    NoisyTotal,
    Schedule,
    aim,
    all_marginals,
    auto,
    batched,
    histogram,
    independent,
    marginals,
    matrix,
    methods,
    mst,
    mwem,
)
from sfumato.synthesize.auto import METHODS, method_named, options, refuse_options
from sfumato.synthesize.synthesis_method import Option, SynthesisMethod, Task
from sfumato.workload.counting_queries import Marginals

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "synthesize.md"
PAIR = Marginals(cliques=(("sex", "age"),))
TERMS = {"loss": Rho(1), "total": NoisyTotal()}
FUNCTIONS = {
    "auto": lambda vault: auto(vault, **TERMS, workload=PAIR),
    "histogram": lambda vault: histogram(vault, **TERMS, attributes=("sex", "age")),
    "marginals": lambda vault: marginals(vault, **TERMS, cliques=PAIR.cliques),
    "matrix": lambda vault: matrix(vault, **TERMS, workload=PAIR),
    "batched": lambda vault: batched(vault, **TERMS, workload=PAIR),
    "mst": lambda vault: mst(vault, **TERMS),
    "aim": lambda vault: aim(vault, **TERMS, workload=PAIR),
    "independent": lambda vault: independent(vault, **TERMS),
    "mwem": lambda vault: mwem(
        vault,
        loss=Rho(1),
        total=BudgetShare(Fraction(1, 20)),
        workload=PAIR,
        schedule=Schedule(rounds=30, repetitions=20),
    ),
}


def test_every_synthesis_method_of_the_folder_is_in_the_tuple():
    found = {
        id(value)
        for module in pkgutil.iter_modules(methods.__path__)
        for value in vars(import_module(f"{methods.__name__}.{module.name}")).values()
        if isinstance(value, SynthesisMethod)
    }
    assert found == {id(method) for method in SYNTHESIZERS}
    assert len({method.name for method in METHODS}) == len(METHODS)


def test_every_method_has_a_function_here_and_a_row_in_the_documentation():
    names, lines = {method.name for method in METHODS}, PAGE.read_text().splitlines()
    rows = [line.split("|")[1] for line in lines if line.startswith("| `")]
    assert names == set(FUNCTIONS), "FUNCTIONS has one call of each method"
    assert {name for name in names if not any(f"`{name}`" in row for row in rows)} == set(), PAGE.name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_contract_asks_the_journal_what_the_function_asks(name):
    by_contract = identity(lambda vault: method_named(name).release(vault, Task(**TERMS, workload=PAIR)))
    assert by_contract == identity(FUNCTIONS[name])


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("option", Option)
def test_an_option_is_refused_exactly_if_the_method_does_not_take_it(method, option):
    given = {option, *method.needs}
    if option in method.options:
        refuse_options(method, given)
        return
    with pytest.raises(InputError, match=f"takes no --{option}; --{option} is for ") as refused:
        refuse_options(method, given)
    takers = str(refused.value).rpartition(" is for ")[2].split(", ")
    assert takers == [each.name for each in METHODS if option in each.options]


def test_an_unknown_method_is_refused_with_the_names_of_all():
    with pytest.raises(InputError, match=r"choose auto, histogram, .*mwem"):
        method_named("alchemy")


@pytest.mark.parametrize("method", SYNTHESIZERS, ids=lambda method: method.name)
def test_auto_lists_each_method_that_foresees_its_noise(method):
    task = Task(loss=Epsilon(1), total=NoisyTotal(), workload=all_marginals(2))
    listed = [each.method for each in options(DOMAIN, loss=task.loss, total=task.total, workload=task.workload)]
    assert (method.name in listed) == (method.estimate(DOMAIN, task) is not None)
