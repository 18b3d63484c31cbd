"""The sign-off page of an anonymized table: its classes counted again, and the risk before and after."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.anonymize.reidentification import Risk, assess, assess_table, assess_units
from sfumato.anonymize.release.request import UnitsOfClasses, parse_criterion, population, raw_classes
from sfumato.engine.open import open_table
from sfumato.errors import InputError, percent, pluralize
from sfumato.report.drawing import percent_up
from sfumato.report.sign_off.ledger_record import LedgerRecord
from sfumato.report.sign_off.sign_off_page import (
    NOT_EVALUATED,
    Check,
    Purpose,
    RiskLine,
    SignOff,
    Tile,
    Tone,
    accuracy_tile,
    attack_tile,
    ordered_checks,
    points_to_judge,
)
from sfumato.vault.interface import decode

if TYPE_CHECKING:
    from sfumato.anonymize.criteria.criterion import Criterion
    from sfumato.anonymize.release.anonymized import Anonymized
    from sfumato.evaluate.verdicts import Judgement
    from sfumato.ledger import Entry

THRESHOLD = 0.2
"""A row with a higher risk is at risk; the page states this number."""
_NAMED = 6  # quasi-identifiers that a sentence names


@dataclass(frozen=True)
class PublishedTable:
    """An anonymized table that a page is about: its name, its hash, its rows, and the names of its columns."""

    name: str
    digest: str
    table: object
    columns: tuple[str, ...]

    def risk(self, quasi: Sequence[str]) -> Risk:
        """Return the risk of its rows, counted again."""
        return assess_table(self.table, quasi=quasi, threshold=THRESHOLD)

    def squared_sizes(self, quasi: Sequence[str]) -> int:
        """Return the sum of the squared sizes of its classes: a moved row changes it, unless two sizes only swap."""
        sizes = raw_classes(open_table(self.table), quasi)["units"].to_numpy().astype(np.int64)
        return int((sizes * sizes).sum())


@dataclass(frozen=True)
class StatedAnonymization:
    """An anonymization as the journal states it.

    Attributes:
        statement: the promise that replaces differential privacy.
        quasi: the quasi-identifiers.
        criteria: the criteria.
        unchanged: the columns that are published unchanged.
        facts: the exact figures that are published with the rows.
    """

    statement: str
    quasi: tuple[str, ...]
    criteria: tuple[Criterion, ...]
    unchanged: tuple[str, ...]
    facts: Mapping[str, Any]

    @classmethod
    def from_entry(cls, entry: Entry, body: bytes) -> StatedAnonymization:
        """Return the anonymization of an entry of the journal and its stored decision.

        Raises:
            InputError: a criterion compares with a population, which the journal does not hold.
        """
        return cls.from_question(entry.statement, entry.question.parameters, decode(body)["facts"])

    @classmethod
    def from_question(
        cls, statement: str, parameters: Mapping[str, Any], facts: Mapping[str, Any]
    ) -> StatedAnonymization:
        """Return the anonymization that answers a question of the journal."""
        quasi = tuple(each["name"] for each in parameters["quasi"])
        criteria = tuple(parse_criterion(text) for text in parameters["criteria"])
        unchanged = tuple(name for name in parameters["keep"] if name not in quasi)
        return cls(statement, quasi, criteria, unchanged, facts)

    def matches(self, table: PublishedTable, risk: Risk) -> bool:
        """Return whether a table has the columns, rows and classes of this anonymization."""
        facts = self.facts
        squares = facts["discernibility"] - facts["suppressed"] * facts["rows"]
        classes = bool(risk.left_out) or (
            (facts["classes"], squares) == (risk.classes, table.squared_sizes(self.quasi))
            and (facts["counted"] != "rows" or facts["smallest_class"] == risk.smallest_class)
        )
        rows = facts["rows"] - facts["suppressed"] == risk.rows + risk.left_out
        return rows and classes and set(table.columns) == {*self.quasi, *self.unchanged}


def published_file(path: Path) -> PublishedTable:
    """Return an anonymized file.

    Raises:
        TableError: the file cannot be read.
    """
    columns = tuple(column.name for column in open_table(str(path)).schema())
    return PublishedTable(path.name, hashlib.sha256(path.read_bytes()).hexdigest(), str(path), columns)


def candidates(columns: Sequence[str], journal: Sequence[Entry]) -> list[Entry]:
    """Return the anonymizations of a journal that publish these columns, the newest first.

    Raises:
        InputError: there is none.
    """
    entries = [
        each
        for each in journal[::-1]
        if each.family == "anonymize" and set(columns) == _columns_of(each.question.parameters)
    ]
    if not entries:
        raise InputError(
            f"the ledger has no anonymization with the columns {', '.join(columns)}; name the ledger of this file, and "
            "the file that 'sfumato anonymize' wrote. Synthetic rows are signed off as a .parquet or .arrow file"
        )
    return entries


def _columns_of(parameters: Mapping[str, Any]) -> set[str]:
    return {*(each["name"] for each in parameters.get("quasi", ())), *parameters.get("keep", ())}


def matching(table: PublishedTable, record: LedgerRecord) -> tuple[StatedAnonymization, Risk, LedgerRecord]:
    """Return the newest anonymization of a record that published a table, the risk of the table, and its entry alone.

    Raises:
        InputError: no anonymization of the record has these rows and classes.
    """
    for entry in record.releases:
        body = record.bodies.get(entry.number)
        if body is None:
            continue
        stated = StatedAnonymization.from_entry(entry, body)
        risk = table.risk(stated.quasi)
        if stated.matches(table, risk):
            return stated, risk, replace(record, releases=(entry,))
    raise InputError(
        f"{table.name} has other rows or classes than the anonymizations of the ledger with its columns; it was edited "
        "since, or its ledger is another"
    )


def source_risk(release: Anonymized, quasi: Sequence[str]) -> Risk:
    """Return the risk of the protected table of a release, by the cells of its description."""
    groups = population(release.source, quasi)
    if groups.units is None:
        return assess(groups.counts, threshold=THRESHOLD)
    _, classes = np.unique(groups.codes, axis=0, return_inverse=True)
    _, units = np.unique(groups.units, return_inverse=True)
    held = UnitsOfClasses(classes.reshape(-1), units.reshape(-1), int(groups.counts.sum()))
    return assess_units(held, threshold=THRESHOLD)


def anonymized_sign_off(
    table: PublishedTable,
    stated: StatedAnonymization,
    risks: tuple[Risk | None, Risk],
    *,
    purpose: Purpose,
    record: LedgerRecord | None = None,
    verdicts: Sequence[Judgement] | None = None,
) -> SignOff:
    """Return the page of an anonymized table.

    Args:
        table: the rows.
        stated: the anonymization and its promise.
        risks: the risk of the protected table, or None if it is unknown, and the risk of the rows.
        purpose: the recipients and the purpose.
        record: their entry in the ledger; None: no ledger was given.
        verdicts: the verdicts of an evaluation of this file, computed from the protected table; None: not evaluated.
    """
    before, after = risks
    attacks = tuple(each for each in verdicts or () if each.is_risk)
    scores = tuple(each for each in verdicts or () if not each.is_risk)
    rows = f"{after.rows + after.left_out:,} of {pluralize(stated.facts['rows'], 'row')}"
    tiles = (_privacy(stated, after), _accuracy(stated, scores), _risk(stated, after, attacks))
    judged = points_to_judge(tiles, (*scores, *attacks), purpose=purpose, evaluated=verdicts is not None)
    return SignOff(
        title=table.name,
        kind="Anonymized table",
        subtitle=f"{rows}, {pluralize(len(table.columns), 'column')}, anonymized",
        requested_by=purpose.requested_by,
        tiles=tiles,
        content=(*_content(stated), *purpose.terms()),
        guarantee=_guarantee(stated),
        right_guesses=None,
        not_protected=_not_protected(stated),
        budget=None if record is None else record.budget(),
        accuracy=scores,
        risk=attacks,
        risk_lines=_risk_lines(before, after),
        checks=ordered_checks(*_checks(stated, after, record), *judged),
        digest=table.digest,
        head="" if record is None else record.head,
        internal=verdicts is not None or before is not None,
        takes_evaluation=True,
    )


def _content(stated: StatedAnonymization) -> tuple[tuple[str, str], ...]:
    return (
        ("Content", f"The rows of people, with coarser values of {_named(stated.quasi)}. No noise was added."),
        ("Detail lost", _losses(stated)),
        ("Unchanged columns", ", ".join(stated.unchanged) or "none"),
    )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _least(stated: StatedAnonymization) -> int:
    return max((each.least_rows for each in stated.criteria), default=1)


def _privacy(stated: StatedAnonymization, after: Risk) -> Tile:
    least, sentence = _least(stated), "No differential privacy: the rows of people are published."
    criteria = " and ".join(map(str, stated.criteria))
    if after.smallest_class < least and stated.facts["counted"] == "rows":
        wrong = f"The smallest class has {pluralize(after.smallest_class, 'row')}, and {criteria} needs {least}."
        return Tile("Privacy", "Criterion not met", wrong, Tone.BAD)
    return Tile("Privacy", f"{criteria[:1].upper()}{criteria[1:]}", sentence, Tone.CARE)


def _accuracy(stated: StatedAnonymization, scores: Sequence[Judgement]) -> Tile:
    if scores:
        return accuracy_tile(scores)
    facts = stated.facts
    name, loss = max(facts["loss_metric"].items(), key=lambda each: float(each[1]))
    suppressed = facts["suppressed"] / max(facts["rows"], 1)
    sentence = f"{percent(suppressed)} of rows suppressed. Most detail lost: {name}, {percent(float(loss))} of it."
    return Tile("Accuracy", NOT_EVALUATED, sentence, Tone.NONE)


def _risk(stated: StatedAnonymization, after: Risk, attacks: Sequence[Judgement]) -> Tile:
    highest, average = percent_up(after.prosecutor.highest), percent_up(after.prosecutor.average)
    tone = Tone.CARE if after.prosecutor.highest <= THRESHOLD else Tone.BAD
    who = "" if stated.facts["counted"] == "rows" else " for a person with one row"
    sentence = f"A match is right with a probability of at most {highest}{who}, on average {average}."
    more = " A person may have several rows, and the risk is then higher." if who else ""
    if (attacked := attack_tile(attacks, "file")).tone in (Tone.CARE, Tone.BAD):
        return replace(attacked, sentence=f"{attacked.sentence} {sentence}{more}")
    return Tile("Risk measured", f"Highest risk {highest}", f"{sentence} Counted in this file.{more}", tone)


def _guarantee(stated: StatedAnonymization) -> tuple[str, ...]:
    attackers = "; or ".join(dict.fromkeys(_attacker(each.attacker) for each in stated.criteria))
    units = "rows" if stated.facts["counted"] == "rows" else "units"
    classes = f"Rows with equal values of {_named(stated.quasi)} form a class."
    rule = f"Each class meets {' and '.join(map(str, stated.criteria))}, counted in {units}."
    return (classes, rule, f"The attacker is {attackers}.", "The rule holds for no other attacker.")


def _attacker(text: str) -> str:
    """Return an attacker as a noun.

    >>> _attacker("journalist: knows a person"), _attacker("knows a person")
    ('a journalist who knows a person', 'one who knows a person')
    """
    name, colon, knows = text.partition(": ")
    return f"a {name} who {knows}" if colon else f"one who {text}"


def _not_protected(stated: StatedAnonymization) -> tuple[str, ...]:
    facts = stated.facts
    published = max(facts["rows"] - facts["suppressed"], 1)
    shares = [
        f"The value of {name} for people whose class has only one: {percent(rows / published)} of the rows."
        for name, rows in facts.get("homogeneous", {}).items()
        if rows
    ]
    return (
        "The fact that a person is in the table.",
        *shares[:3],
        "People of whom an attacker knows other columns than the quasi-identifiers.",
        "People who are also in another release: classes of several releases can be intersected.",
        *((f"Columns published as they are: {_named(stated.unchanged)}.",) if stated.unchanged else ()),
    )


def _losses(stated: StatedAnonymization) -> str:
    """Return the loss of each quasi-identifier in words."""
    losses = sorted(stated.facts["loss_metric"].items(), key=lambda each: -float(each[1]))
    text = ", ".join(f"{name} {percent(float(loss))}" for name, loss in losses[:_NAMED])
    more = f" and {len(losses) - _NAMED} more" if len(losses) > _NAMED else ""
    return f"{text}{more} (100 %: all detail is lost)"


def _risk_lines(before: Risk | None, after: Risk) -> tuple[RiskLine, ...]:
    def line(measure: str, figure: Any) -> RiskLine:  # noqa: ANN401  (a function of a risk)
        return RiskLine(measure, NOT_EVALUATED if before is None else figure(before), figure(after))

    return (
        line("Highest risk of a row", lambda risk: percent_up(risk.prosecutor.highest)),
        line("Average risk", lambda risk: percent_up(risk.prosecutor.average)),
        line(f"Rows with a risk above {percent(THRESHOLD)}", lambda risk: percent_up(risk.prosecutor.share_at_risk)),
        line("Unique rows", lambda risk: f"{risk.sample_uniques:,}"),
        line("Smallest class", lambda risk: f"{risk.smallest_class:,}"),
        line("Classes", lambda risk: f"{risk.classes:,}"),
    )


def _checks(stated: StatedAnonymization, after: Risk, record: LedgerRecord | None) -> tuple[Check, ...]:
    least, smallest = _least(stated), after.smallest_class
    class_sizes = Check(f"Classes counted again in this file: the smallest has {pluralize(smallest, 'row')}")
    if stated.facts["counted"] != "rows":
        class_sizes = Check(
            f"The criteria count units, and the file does not name them: its smallest class has {smallest:,} rows",
            to_judge=True,
        )
    elif smallest < least:
        class_sizes = Check(f"A class has {pluralize(smallest, 'row')}: fewer than {least}", to_judge=True)
    named = [str(each) for each in stated.criteria if each.sensitive is not None or each.population is not None]
    further = (Check(f"Not counted again in this file: {', '.join(named)}", to_judge=True),) if named else ()
    missing = (
        (Check(f"{pluralize(after.left_out, 'row')} with a missing quasi-identifier are in no class", to_judge=True),)
        if after.left_out
        else ()
    )
    judged = Check(f"An attacker may know only {_named(stated.quasi)}: is that so for the recipients?", to_judge=True)
    if record is None:
        ledger: tuple[Check, ...] = (Check("No ledger was given: earlier releases are not checked", to_judge=True),)
    else:
        number = record.entry.number
        same = "Columns and number of rows" if after.left_out else "Columns, number of rows and sizes of the classes"
        sizes = Check(f"{same} agree with entry {number}")
        ledger = (*record.checks(), sizes, Check("The values of the rows were not compared", to_judge=True))
    return (class_sizes, *ledger, *further, *missing, judged)
