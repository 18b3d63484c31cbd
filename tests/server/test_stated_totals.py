"""Every statement of the total guarantee names the releases without differential privacy first."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from fractions import Fraction
from itertools import count

import httpx
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.ledger.asking import release
from tests.server.serving import DOMAIN
from typer.testing import CliRunner

import sfumato as sf
from sfumato.anonymize import KAnonymity, optimal
from sfumato.app.cli.main import app
from sfumato.domain import Unit
from sfumato.domain.document import parse
from sfumato.ledger import Question, open_ledger
from sfumato.ledger.ledger import Ledger
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.report.evaluation_page import journal_rows
from sfumato_server.registry import Scope

NAMES = count()
ROW = Unit.row()
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("private"), st.integers(1, 9), st.sampled_from([None, "ana", "bob"])),
        st.tuples(st.just("exact"), st.just(0), st.sampled_from([None, "ana", "bob"])),
        st.tuples(st.just("again"), st.just(0), st.sampled_from(["ana", "bob"])),
        st.tuples(st.just("cap"), st.integers(9, 9), st.sampled_from(["ana", "bob"])),
    ),
    max_size=9,
)


@dataclass
class Expected:
    """The totals of a drawn journal, added up by hand: tenths of a loss, and entries without privacy."""

    measure: str
    tenths: int = 0
    exact: tuple[int, ...] = ()

    @property
    def guarantee(self) -> str:
        others = f"{self.measure} = {_decimal(self.tenths)}"
        if not self.exact:
            return others
        return f"none: {self.named}" + (f"; the others together: {others}" if self.tenths else "")

    @property
    def named(self) -> str:
        listed = ", ".join(f"{number}" for number in self.exact[:5])
        listed += f" and {len(self.exact) - 5} more" if len(self.exact) > 5 else ""
        one = len(self.exact) == 1
        return f"{len(self.exact)} release{' has' if one else 's have'} no differential privacy " + (
            f"(entry {listed})" if one else f"(entries {listed})"
        )


def _decimal(tenths: int) -> str:
    return f"{Fraction(tenths, 10).numerator}" if tenths % 10 == 0 else f"{tenths / 10:.1f}"


def write(ledger: Ledger, loss: type[Epsilon | Rho], steps) -> tuple[Expected, dict[str, Expected]]:
    """Write the drawn journal, and add up its totals independently, for the dataset and for each analyst."""
    measure = "epsilon" if loss is Epsilon else "rho"
    everything, analysts = Expected(measure), {name: Expected(measure) for name in ("ana", "bob")}
    entry, last, seen = len(list(ledger.journal())), None, set()  # a server has declared a version
    for kind, tenths, analyst in steps:
        if kind == "cap":
            ledger.set_cap(analyst, loss(tenths))
            entry += 1
            continue
        if kind == "again":
            if last is None or (last, analyst) in seen:
                continue
            number = last
        else:
            number = entry + 1
        question = Question("anonymize", "optimal", {"number": number}, "1")
        charge = loss(Fraction(tenths, 10)).charge if kind == "private" else None
        release(ledger, question, charge, lambda: b"x", statement="drawn", unit=ROW, analyst=analyst)
        entry += 1
        if kind == "private":
            everything.tenths += tenths
        elif kind == "exact":
            everything.exact += (entry,)
            last = entry
        if kind != "private":
            seen.add((number, analyst))
        if analyst is not None:
            own = analysts[analyst]
            own.tenths += tenths if kind == "private" else 0
            own.exact += () if kind == "private" else (entry,)
    return everything, analysts


@pytest.mark.parametrize("loss", [Epsilon, Rho])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
@example(steps=[("exact", 0, None)])
@example(steps=[("exact", 0, "ana"), ("private", 4, "bob"), ("again", 0, "bob")])
@example(steps=[("private", 4, None), *[("exact", 0, None)] * 7])
def test_every_total_names_the_releases_without_privacy(server, steward, people, loss, steps):
    name, limit = f"totals{next(NAMES)}", "10" if loss is Epsilon else "rho=10"
    steward.register(name, source=str(people), domain=DOMAIN, limit=limit, second_budget=True)
    with server.ledger(name) as ledger:
        everything, analysts = write(ledger, loss, steps)
        rows = journal_rows(ledger.journal(), ledger.limit)
        ledger.verify()
    expected = everything.guarantee

    assert (rows[-1]["guarantee_so_far"] if rows else expected) == expected
    told = json.loads(_command("ledger", "show", server.url, "--dataset", name, "--json"))
    assert (told["guarantee"], told["without_privacy"]) == (expected, list(everything.exact))
    shown = _command("ledger", "show", server.url, "--dataset", name)
    assert f"Guarantee of all releases together: {expected}" in shown.splitlines()
    assert steward.budget(name)["guarantee"] == steward.dataset(name)["guarantee"] == expected
    (listed,) = [each for each in steward.datasets() if each["name"] == name]
    assert listed["guarantee"] == expected
    for place in (told["account"], listed["left"], steward.budget(name)["dataset"]):
        assert place.endswith(f"; {everything.named}" if everything.exact else f"left of {limit_words(loss)}")
    for analyst, account in told["analysts"].items():
        own = analysts[analyst]
        assert account.endswith(f"; {own.named}") if own.exact else "no differential privacy" not in account

    cookies = server.session("stew", Scope.STEWARD)
    on_pages = expected if everything.tenths or everything.exact else "nothing was released yet"
    for path in (f"/datasets/{name}", f"/steward/{name}"):
        page = httpx.get(f"{server.address}{path}", cookies=cookies, trust_env=False)
        assert page.is_success
        assert html.escape(on_pages) in page.text
    if everything.exact:
        for path in ("/", "/steward", f"/datasets/{name}/releases"):
            assert everything.named in httpx.get(f"{server.address}{path}", cookies=cookies, trust_env=False).text


def limit_words(loss) -> str:
    return "epsilon = 10" if loss is Epsilon else "rho = 10"


def _command(*words: str) -> str:
    return CliRunner().invoke(app, list(words), catch_exceptions=False).stdout


def test_a_vault_states_no_guarantee_after_the_whole_table_was_published(tmp_path):
    age = {"type": "integer", "minimum": 0, "maximum": 9, "unknown": "clamp"}
    domain = parse({"sfumato": 1, "unit": "row", "attributes": {"age": age}})
    ledger = f"sqlite:///{tmp_path}/x.ledger"
    vault = sf.open(pa.table({"age": list(range(10))}), domain=domain, ledger=ledger, limit=Epsilon(1), create=True)
    optimal(vault, quasi=["age"], criteria=[KAnonymity(1)], suppression="0")
    card = vault._repr_html_()
    assert "none: 1 release has no differential privacy (entry 2)" in card
    assert "epsilon = 0" not in card
    assert "1 release has no differential privacy (entry 2)" in repr(vault)
    sf.query.sql(vault, "SELECT COUNT(*) FROM t", loss=Epsilon("0.4"))
    assert "none: 1 release has no differential privacy (entry 2); the others together: epsilon = 0.4<" in (
        vault._repr_html_()
    )
    assert vault.for_analyst("ana").remaining.exact == (2,)
    with open_ledger(ledger, dataset="default", limit=None) as opened:
        assert opened.remaining("ana").exact == ()
