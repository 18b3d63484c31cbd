"""The sign-off page of a release in Python, and in a browser."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from tests.report.test_page import Elements
from tests.server.ui.browsing import ARGUMENTS, accessible
from tests.services import require

import sfumato as sf
from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.errors import InputError
from sfumato.evaluate.verdicts import Judgement, Verdict
from sfumato.report.sign_off.sign_off_files import Evidence, file_sign_off, release_sign_off
from sfumato.report.sign_off.sign_off_page import (
    Check,
    Purpose,
    attack_tile,
    judgement_tone,
    ordered_checks,
    points_to_judge,
    render_sign_off,
)

DOMAIN = Domain(
    (
        Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP),
        Categorical(name="town", values=("Ulm", "Bern"), unknown=Unknown.DROP),
    )
)
ATTACKS = (
    Judgement(
        "Membership", "-0.1 to +0.1", "limit 0.46", Verdict.NO_LEAK, is_risk=True, interval=(-0.1, 0.1), limit=0.46
    ),
)
ACCURACY = tuple(
    Judgement(question, figure, compared, verdict)
    for question, figure, compared, verdict in (
        (
            "Counts by one column, stated",
            "within 33.1 % of rows with 95 % confidence: hours_per_week",
            "good up to 2 %",
            Verdict.NOT_FOR_USE,
        ),
        (
            "Measured pairs of columns, stated",
            "within 94.1 % of rows in 4 pairs with 95 % confidence",
            "4 not for use: age x hours_per_week, age x class, education x hours_per_week and 1 more",
            Verdict.NOT_FOR_USE,
        ),
        (
            "Counts by one column",
            "at most 23.7 % of rows off: hours_per_week",
            "good up to 2 % of rows",
            Verdict.NOT_FOR_USE,
        ),
        (
            "Any two columns, mean",
            "54.9 % of rows in the right cell",
            "73.3 % unrelated columns, 61.8 % other people: the holdout is too small",
            Verdict.UNKNOWN,
        ),
        (
            "The worst two columns",
            "58.2 % in the wrong cell: age \N{MULTIPLICATION SIGN} hours_per_week",
            "good up to 20 %",
            Verdict.WITH_CARE,
        ),
        (
            "Change of association",
            "at most 0.217: age \N{MULTIPLICATION SIGN} class",
            "needs 1,000 rows",
            Verdict.UNKNOWN,
        ),
        ("Predicting class", "AUC 0.665", "its standard error is above 0.02", Verdict.UNKNOWN),
    )
)
UNJUDGED = tuple(
    replace(
        ATTACKS[0],
        question=name,
        compared_with="needs 160 people of each kind; 75 members tested",
        verdict=Verdict.UNKNOWN,
    )
    for name in ("Membership", "Linkage", "Attribute inference", "Singling out")
)
PURPOSE = Purpose("Anyone", "<b>Teaching</b>", "R. Okafor")


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """A ledger with a release of each family."""
    ledger = tmp_path_factory.mktemp("signed") / "people.ledger"
    rows = pd.DataFrame({"age": [n % 100 for n in range(900)], "town": [["Ulm", "Bern"][n % 2] for n in range(900)]})
    vault = sf.open(rows, domain=DOMAIN, ledger=ledger, limit=sf.Epsilon(4), create=True)
    made = sf.synthesize.auto(vault, epsilon=1)
    answer = sf.query.sql(vault, "SELECT COUNT(*) FROM people", epsilon=1)
    recoded = sf.anonymize.optimal(vault, quasi=["age", "town"], criteria=[sf.KAnonymity(5)], suppression=0)
    return ledger, {"synthetic": made, "answer": answer, "anonymized": recoded}


@pytest.mark.parametrize(
    ("kind", "privacy"),
    [("synthetic", "Guaranteed"), ("answer", "Stated, not matched"), ("anonymized", "5-anonymity")],
)
def test_a_release_in_python_has_its_page(releases, kind: str, privacy: str) -> None:
    ledger, by_kind = releases
    page = release_sign_off(by_kind[kind], PURPOSE, Evidence(ledger=ledger))
    assert page.tiles[0].conclusion == privacy
    assert (page.internal, page.head == "") == (kind == "anonymized", False)
    unchecked = release_sign_off(by_kind[kind], PURPOSE, Evidence())
    assert unchecked.budget is None
    assert not any("stands below" in check.text for check in unchecked.checks)


def test_an_evaluation_shows_the_same_in_python_as_in_the_command(releases, tmp_path: Path) -> None:
    ledger, by_kind = releases
    made = by_kind["synthetic"]
    made.rows.to_parquet(tmp_path / "made.parquet")
    digest = hashlib.sha256((tmp_path / "made.parquet").read_bytes()).hexdigest()
    judged = {
        "files": {"made.parquet": digest},
        "verdicts": [{"release": "made.parquet", **each.to_json()} for each in (*ACCURACY, *ATTACKS)],
    }
    (tmp_path / "judged.json").write_text(json.dumps(judged))
    evidence = Evidence(ledger=ledger, evaluation=tmp_path / "judged.json")
    page, of_file = (
        release_sign_off(made, PURPOSE, evidence),
        file_sign_off(tmp_path / "made.parquet", PURPOSE, evidence),
    )
    assert replace(page, title=of_file.title) == of_file
    assert (len(page.risk), page.internal, page.digest) == (1, True, digest)
    with pytest.raises(InputError, match="an answer takes no evaluation"):
        release_sign_off(by_kind["answer"], PURPOSE, evidence)
    with pytest.raises(InputError, match="evaluates other files than the file of this release"):
        release_sign_off(by_kind["anonymized"], PURPOSE, evidence)


@pytest.mark.parametrize(
    ("verdict", "one", "two"),
    [
        (Verdict.NO_LEAK, "1 attack was run: no difference", "2 attacks were run: no difference"),
        (Verdict.LEAK, "1 attack was run. It did better on people", "2 attacks were run. At least one did better"),
        (Verdict.BROKEN, "It did better than the guarantee", "At least one did better than the guarantee allows"),
        (Verdict.UNKNOWN, "1 attack was run on too few people to judge it", "2 attacks were run on too few people"),
    ],
)
def test_attacks_are_counted_in_english(verdict: Verdict, one: str, two: str) -> None:
    attack = replace(ATTACKS[0], verdict=verdict)
    assert one in attack_tile([attack], "file").sentence
    assert two in attack_tile([attack, attack], "file").sentence


def test_sign_off_returns_the_page(releases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webbrowser.open", lambda _: True)
    ledger, by_kind = releases
    page = by_kind["synthetic"].sign_off(ledger, to="Anyone", purpose="Teaching", by="R. Okafor")
    assert "requested by R. Okafor" in page.html
    assert "Guaranteed" in page.html


@pytest.mark.parametrize("kind", ["synthetic", "answer", "anonymized"])
def test_the_page_is_readable_by_everybody_and_prints_on_one_sheet(releases, kind: str, tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    ledger, by_kind = releases
    page = release_sign_off(by_kind[kind], PURPOSE, Evidence(ledger=ledger))
    text = render_sign_off(replace(page, risk=ATTACKS if kind == "synthetic" else ()))
    assert text.count("Membership") == (3 if kind == "synthetic" else 0)  # the drawing, its words, and the table
    assert "script" not in Elements(text).tags
    assert "&lt;b&gt;Teaching" in text
    assert not any(word in text.casefold() for word in (" safe ", "anonymous", "risk-free"))
    place = tmp_path / "page.html"
    place.write_text(text, encoding="utf-8")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=require("SFUMATO_TEST_CHROMIUM"), args=ARGUMENTS)
        for scheme, width in (("light", 1280), ("dark", 390)):
            page = opened.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
            page.on("request", lambda asked: asked.url == place.as_uri() or pytest.fail(asked.url))
            page.goto(place.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            accessible(page)
        printed = page.pdf(prefer_css_page_size=True)
        assert printed.count(b"/Type /Page\n") == (2 if kind == "answer" else 1)
        opened.close()


def test_a_failed_attack_is_green_only_if_a_confirmed_guarantee_limits_attacks() -> None:
    vain = replace(ATTACKS[0], limit=0.9951)  # reads 1.00
    unknown = replace(ATTACKS[0], limit=None)
    assert attack_tile(ATTACKS, "file").tone == "good"
    assert attack_tile([*ATTACKS, unknown], "file").tone == "good"  # no limit of singling out is known
    for attack in (vain, unknown):
        tile = attack_tile([attack, unknown], "file")
        assert (tile.tone, judgement_tone(attack, confirmed=True)) == ("none", "none")
        assert tile.sentence.endswith("This is no evidence of protection: no limit below 1.00 is known.")
    unmatched = attack_tile(ATTACKS, "file", confirmed=False)
    assert (unmatched.conclusion, unmatched.tone) == ("No leak found", "none")
    assert "the guarantee was not confirmed" in unmatched.sentence
    leak = replace(vain, verdict=Verdict.LEAK)
    assert attack_tile([leak, *ATTACKS], "file", confirmed=False).tone == "care"


@pytest.mark.parametrize("points", [7, 8, 11])
def test_an_evaluated_page_prints_on_one_sheet(releases, tmp_path: Path, points: int) -> None:
    from playwright.sync_api import sync_playwright

    ledger, by_kind = releases
    page = release_sign_off(by_kind["synthetic"], Purpose(), Evidence(ledger=ledger))
    judged = points_to_judge((), ACCURACY, purpose=Purpose(), right=0.999, evaluated=True)
    assert sum(each.text.startswith("Not for use") for each in judged) == 1
    long = "The draft took bounds, values, days from the table, and nobody edited it before it was accepted"
    known = ordered_checks(*page.checks, *judged)  # noise decides if the release has one check more to judge
    to_judge = [each for each in known if each.to_judge] + [Check(long, to_judge=True)] * points
    checks = ordered_checks(*(each for each in known if not each.to_judge), *to_judge[:points])
    page = replace(page, accuracy=ACCURACY, risk=UNJUDGED, checks=checks)
    assert page.to_judge == points
    text = render_sign_off(page)
    assert text.count("needs 160 people") == 1
    place = tmp_path / "page.html"
    place.write_text(text, encoding="utf-8")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=require("SFUMATO_TEST_CHROMIUM"), args=ARGUMENTS)
        shown = opened.new_page()
        shown.goto(place.as_uri())
        assert shown.pdf(prefer_css_page_size=True).count(b"/Type /Page\n") == 1
        opened.close()


def test_an_evaluated_anonymization_prints_on_one_sheet_and_names_a_leak(releases, tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    ledger, by_kind = releases
    recoded = by_kind["anonymized"]
    recoded.rows.to_csv(tmp_path / "k5.csv")
    digest = hashlib.sha256((tmp_path / "k5.csv").read_bytes()).hexdigest()
    leak = replace(ATTACKS[0], verdict=Verdict.LEAK, interval=(0.1, 0.2), question="Singling out", limit=None)
    judged = [{"release": "k5.csv", **each.to_json()} for each in (*ACCURACY[2:], *UNJUDGED[:3], leak)]
    (tmp_path / "judged.json").write_text(json.dumps({"files": {"k5.csv": digest}, "verdicts": judged}))
    page = release_sign_off(recoded, PURPOSE, Evidence(ledger=ledger, evaluation=tmp_path / "judged.json"))
    assert page.tiles[2].conclusion == "Leak found"
    assert "A match is right with a probability of at most" in page.tiles[2].sentence
    assert page.tiles[1].conclusion == "Not for use"  # no question of five was answered well
    text = render_sign_off(page)
    assert "the guarantee is the proof" not in text
    place = tmp_path / "page.html"
    place.write_text(text, encoding="utf-8")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=require("SFUMATO_TEST_CHROMIUM"), args=ARGUMENTS)
        shown = opened.new_page()
        shown.goto(place.as_uri())
        assert shown.pdf(prefer_css_page_size=True).count(b"/Type /Page\n") == 1
        opened.close()


def test_a_draft_that_nobody_edited_is_a_point_to_judge(tmp_path: Path) -> None:
    rows = pd.DataFrame({"age": [n % 97 for n in range(900)], "town": [["Ulm", "Bern"][n % 2] for n in range(900)]})
    draft = sf.describe(rows)
    domain = draft.accept(by="Ann Lee", confirm=draft.risks)
    vault = sf.open(rows, domain=domain, ledger=tmp_path / "towns.ledger", limit=sf.Epsilon(4), create=True)
    page = release_sign_off(sf.synthesize.auto(vault, epsilon=1), PURPOSE, Evidence(ledger=tmp_path / "towns.ledger"))
    judged = [each.text for each in page.checks if each.to_judge]
    assert "Ann Lee confirmed bounds; nobody else checked that they are public" in judged
    assert any(text.startswith("The draft took bounds from the table") for text in judged)
    assert not any("Ann Lee" in each.text for each in page.published().checks)
