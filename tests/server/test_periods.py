"""A budget by months: one sum in the ledger, and at most the part for the months that have begun."""

from __future__ import annotations

import re
from contextlib import closing
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from prometheus_client import generate_latest
from tests.server.serving import DOMAIN, answer_of, write_people

from sfumato.app.api.questions import AskRequest, limit_of
from sfumato.errors import BudgetError, LossError
from sfumato.ledger.account import Account
from sfumato.privacy.loss import NOTHING, Epsilon, EpsilonDelta, Rho
from sfumato_server.datasets import summary
from sfumato_server.monitoring import ServiceFigures
from sfumato_server.registry import Scope
from sfumato_server.rules import MonthlyBudget, parse_monthly_budget, total_of
from sfumato_server.service import Service

SINCE = datetime(2023, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def service(tmp_path):
    """A dataset of half an epsilon a month, for three months."""
    table = write_people(tmp_path / "people.parquet")
    with closing(Service(f"sqlite:///{tmp_path / 'test.ledger'}", create=True)) as opened:
        limit = "0.5 a month for 3 months"
        opened.register("people", source=str(table), domain=DOMAIN, limit=limit, more={})
        yield opened


def ask(service, epsilon, sql="SELECT COUNT(*) FROM t"):
    loaded = service.loaded("people")
    form = AskRequest(sql=sql, loss={"epsilon": epsilon})
    return answer_of(form, service.vault("people", "ana"), form.read(loaded.domain, ()))


def spent(service):
    return service.loaded("people").ledger.remaining().spent.epsilon


def registered(service, ago):
    """Let the dataset have been registered that long ago."""
    at = (datetime.now(UTC) - ago).isoformat()
    with service.store.writing() as driver:
        driver.run("UPDATE service_dataset SET registered = :at", {"at": at})


def refused(service, epsilon, words):
    before = spent(service)
    with pytest.raises(BudgetError, match=words):
        ask(service, epsilon)
    assert spent(service) == before


@pytest.mark.parametrize(
    ("now", "begun"),
    [
        ("2022-06-01T00:00", 0),  # a clock that is behind allows nothing
        ("2023-01-31T11:59", 0),
        ("2023-01-31T12:00", 1),
        ("2023-02-28T23:59", 1),
        ("2023-03-01T00:00", 2),
        ("2023-03-31T11:59", 2),
        ("2023-03-31T12:00", 3),
        ("2024-01-31T11:59", 12),
        ("2024-01-31T12:00", 12),  # there are no more
        ("2999-01-01T00:00", 12),
    ],
)
def test_months_begin_with_the_registration(now, begun):
    assert MonthlyBudget(Epsilon(1), 12).months_begun(SINCE, datetime.fromisoformat(now).replace(tzinfo=UTC)) == begun


@pytest.mark.parametrize("each", [Epsilon("0.5"), Rho("0.25")])
def test_every_spend_is_within_the_months_begun_exactly(each):
    periods = MonthlyBudget(each, 4)
    for day in range(0, 200, 9):
        now = SINCE + timedelta(days=day)
        most = periods.months_begun(SINCE, now) * each.value
        for spent_so_far in range(9):
            account = Account(periods.total, (each * Fraction(spent_so_far, 2)).charge if spent_so_far else NOTHING)
            for loss in (each / 2, each, each * 2, each * Fraction(1, 10**6)):
                fits = spent_so_far * each.value / 2 + loss.value <= most
                try:
                    periods.refuse(account, loss.charge, SINCE, now)
                except BudgetError:
                    assert not fits
                else:
                    assert fits


def test_a_month_is_spent_and_the_next_allows_what_is_left_as_well(service):
    assert service.loaded("people").ledger.limit == Epsilon("1.5")
    first = ask(service, "0.25")
    refused(service, "0.5", "1 of the 3 months of the budget have begun, which leaves epsilon = 0.25 now")
    assert ask(service, "0.25").values == first.values  # what was answered is free
    registered(service, timedelta(days=32))
    ask(service, "0.75")
    refused(service, "0.1", "2 of the 3 months .* leaves epsilon = 0 now")
    with closing(Service(service.url)) as again:  # another worker, and after a restart
        refused(again, "0.1", "2 of the 3 months")
    registered(service, timedelta(days=4000))
    ask(service, "0.5")
    assert spent(service) == Fraction(3, 2)
    refused(service, "0.1", "the ledger has epsilon = 0 left of epsilon = 1.5")


def test_a_clock_that_is_behind_refuses(service):
    registered(service, timedelta(days=-1))
    refused(service, "0.1", "0 of the 3 months")


def test_what_the_months_allow_is_told(service):
    told = {"limit": "epsilon = 0.5", "months": 3, "begun": 1, "left": "0.5"}
    assert summary(service.loaded("people"))["by_month"] == told
    key, _ = service.registry.issue("stew", Scope.STEWARD, timedelta(days=1))
    assert [summary(each)["by_month"] for each in service.accessible_datasets(key)] == [told]


def test_figures_know_the_months_of_a_budget(service):
    def figures():
        found = generate_latest(Only(ServiceFigures(service))).decode()
        names = ("left_ratio", "left_months", "months_to_come")
        return [re.search(rf'sfumato_budget_{name}{{dataset="people"}} (.*)', found)[1] for name in names]

    assert figures() == ["1.0", "1.0", "2.0"]
    ask(service, "0.4")
    assert [float(each) for each in figures()] == pytest.approx([11 / 15, 0.2, 2])
    registered(service, timedelta(days=35))
    assert [float(each) for each in figures()] == pytest.approx([11 / 15, 1.2, 1])
    registered(service, timedelta(days=700))
    assert [float(each) for each in figures()] == pytest.approx([11 / 15, 2.2, 0])


class Only:
    """A registry of one collector."""

    def __init__(self, collector):
        self.collect = collector.collect


def test_a_budget_without_months_has_no_figure_of_them(service, tmp_path):
    table = write_people(tmp_path / "other.parquet", seed=5)
    service.register("other", source=str(table), domain=DOMAIN, limit="1", more={})
    found = generate_latest(Only(ServiceFigures(service))).decode()
    assert 'sfumato_budget_left_ratio{dataset="other"} 1.0' in found
    assert not re.search(r'months.*dataset="other"', found)


@pytest.mark.parametrize("text", ["1,1e-9 a month for 12 months", "0 a month for 2 months", "x a month for 2 months"])
def test_months_of_what_does_not_add_up_are_refused(text):
    with pytest.raises(LossError):
        total_of(text)


@pytest.mark.parametrize("text", ["1 a month for 0 months", "1 a month for 1000 months", "1 for 2 months", "1 a month"])
def test_months_that_are_spelled_otherwise_are_told_how(text):
    with pytest.raises(LossError, match=r"is spelled '0[.]5 a month for 12 months' .* of 1 to 999 months"):
        total_of(text)


def test_a_limit_by_months_is_of_a_server(service):
    assert parse_monthly_budget("1") is None
    assert total_of("1,1e-9") == EpsilonDelta(1, "1e-9")
    assert total_of("rho=0.5 a month for 12 months") == Rho(6)
    with pytest.raises(LossError, match="months"):
        limit_of("1 a month for 12 months")
