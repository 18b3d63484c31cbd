"""Drawn sessions: what owners, stewards and analysts do, one step after the other, on either side of a history."""

# ruff: noqa: S608 - statements are what is asked

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.replay.databases import History, linked_tables, one_table

ANALYSTS = ("ana", "bob")
WAYS = ("python", "python", "http", "commands")
LIMITS = {"pure": {"epsilon": "1"}, "rho": {"rho": "0.5"}, "delta": {"epsilon": "1", "delta": "1e-6"}}
LOSSES = {  # the last of each is beyond the limit
    "pure": [{"epsilon": "0.1"}, {"epsilon": "0.25"}, {"epsilon": "0.7"}, {"epsilon": "3"}],
    "rho": [{"rho": "0.05"}, {"rho": "0.2"}, {"epsilon": "0.3"}, {"rho": "2"}],
    "delta": [
        {"epsilon": "0.3", "delta": "1e-7"},
        {"epsilon": "0.7", "delta": "2e-7"},
        {"rho": "0.001"},
        {"epsilon": "3", "delta": "1e-7"},
    ],
}
APPROXIMATE = {"epsilon": "0.3", "delta": "1e-7"}

SELECTS = [
    *("COUNT(*)", "SUM(age)", "AVG(income)", "COUNT(*), SUM(income)", "MEDIAN(age)", "MAX(age)", "VAR_POP(age)"),
    *("MEDIAN(income)", "COUNT(sex)"),
    *("sex, COUNT(*)", "age, SUM(income)", "sex, age, COUNT(*)", "sex, AVG(age)"),
    *("month(since), COUNT(*)", "quarter(since), SUM(age)", "MAX(since)", "COUNT(since)"),
]
CONDITIONS = [
    *("age >= 5", "sex = 'F'", "income < 10 AND age <> 3", "sex IS NULL", "NOT (age < 2 OR sex = 'M')"),
    *("age IN (1, 9)", "since >= DATE '2023-06-01'", "EXTRACT(QUARTER FROM since) = 1 OR since IS NULL"),
]
REFUSED = [
    "SELECT COUNT(*) FROM people WHERE town = 'Ulm'",
    "SELECT town, COUNT(*) FROM people GROUP BY town",
    "SELECT MEDIAN(sex) FROM people",
    "SELECT * FROM people",
    "SELECT COUNT(*) FROM",
]
DISCOVERED = "SELECT town, COUNT(*) FROM people GROUP BY town"
LINKED = [  # with the most rows that joins make of one unit: of people 1, of visits 2, of drugs 3, a code for each
    ("SELECT COUNT(*) FROM people", 1),
    ("SELECT sex, COUNT(*) FROM people GROUP BY sex", 1),
    ("SELECT SUM(cost), COUNT(*) FROM visits", 2),
    ("SELECT kind, AVG(cost) FROM visits WHERE cost > 3 GROUP BY kind", 2),
    ("SELECT region, COUNT(*) FROM visits JOIN people USING (person) GROUP BY region", 2),
    ("SELECT chapter, COUNT(*) FROM visits JOIN codes USING (code) GROUP BY chapter", 2),
    ("SELECT COUNT(*), SUM(dose) FROM drugs JOIN visits USING (visit)", 6),
    ("SELECT sex, COUNT(DISTINCT person) FROM visits JOIN people USING (person) GROUP BY sex", 2),
    ("SELECT COUNT(*) FROM visits a JOIN visits b ON a.person = b.person JOIN visits c ON a.person = c.person", 8),
    ("SELECT COUNT(*) FROM visits a JOIN visits b USING (person) WHERE a.kind = 1", 4),
    ("SELECT COUNT(*) FROM people WHERE person IN (SELECT person FROM visits WHERE kind = 1)", 2),
    ("SELECT COUNT(*) FROM people WHERE person NOT IN (SELECT person FROM visits JOIN codes USING (code))", 2),
    ("SELECT n, COUNT(*) FROM (SELECT person, LEAST(COUNT(*), 4) AS n FROM visits GROUP BY person) AS t GROUP BY n", 2),
    ("SELECT quarter(day), COUNT(*) FROM visits WHERE day >= DATE '2023-04-01' GROUP BY quarter(day)", 2),
    ("SELECT COUNT(*) FROM visits WHERE nowhere = 1", 2),
    ("SELECT person, COUNT(*) FROM visits GROUP BY person", 2),
]
OF_DRUGS = ("SELECT SUM(dose) FROM drugs", "SELECT COUNT(*) FROM drugs")


@dataclass(frozen=True)
class Step:
    """One action of one person.

    Attributes:
        does: the name of it.
        by: the analyst; None: the owner, or the steward of a server.
        given: everything else.
        bound: the most rows that the joins of its question make of one unit, at the declared bounds.
        fails: what fails once the step is charged: "engine", "process" (which is killed after its first draw), or "".
    """

    does: str
    by: str | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    bound: int = 1
    fails: str = ""

    def __str__(self) -> str:
        failing = f"; the {self.fails} fails" if self.fails else ""
        return f"{self.by or 'owner'}: {self.does} {dict(self.given) or ''}".strip() + failing


@dataclass(frozen=True)
class Session:
    """Steps on a history, by one way in.

    Attributes:
        seed: that it was drawn with; also of the noise of the run that records.
        way: ``python``, ``http`` or ``commands``.
        measure: of the ledger's limit.
        history: the versions of the database and of its neighbor.
        steps: in order.
    """

    seed: int
    way: str
    measure: str
    history: History
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        kind = "linked tables" if self.history.linked else f"one table, unit {self.history.document['unit']}"
        steps = "\n".join(f"  {place}. {step}" for place, step in enumerate(self.steps))
        return f"session {self.seed} by {self.way}, limit {LIMITS[self.measure]}, {kind}:\n{steps}"


def drawn_session(seed: int, *, linked: bool) -> Session:
    """A session of three to eight steps, on one table or on linked ones."""
    chance = random.Random(seed)  # noqa: S311 - of test data
    history = linked_tables(chance) if linked else one_table(chance)
    way, measure = chance.choice(WAYS), chance.choice(["pure", "pure", "rho", "delta"])
    drawing = _Drawing(chance, way, measure, linked=linked)
    return Session(seed, way, measure, history, tuple(drawing.step() for _ in range(chance.randint(3, 8))))


class _Drawing:
    """Draws steps, some of which refer to earlier ones."""

    def __init__(self, chance: random.Random, way: str, measure: str, *, linked: bool) -> None:
        self._chance, self._way, self._measure, self._linked = chance, way, measure, linked
        self._asked: list[Step] = []
        self._changed = False

    def step(self) -> Step:
        """A question, a repeat of one, or an act of the owner."""
        kind = self._chance.random()
        if self._asked and kind < 0.3:
            return replace(self._chance.choice(self._asked), by=self._chance.choice(ANALYSTS))
        if kind < 0.42:
            return self._act()
        if not self._changed and kind < 0.5:
            self._changed = True
            return Step("new version")
        question = self._of_tables() if self._linked else self._of_one_table()
        self._asked.append(question)
        if self._chance.random() < 0.1:
            return replace(
                question, fails=self._chance.choice(["engine", "process"] if self._way == "python" else ["engine"])
            )
        return question

    def _act(self) -> Step:
        loss = LOSSES[self._measure][0]
        acts = [
            *(Step("cap", given={"analyst": "ana", "loss": loss}), Step("look"), Step("look", "bob")),
            *(Step("verify"), Step("open")),
        ]
        if self._way == "http":
            acts += [Step("terms", given={"approval_above": _limit_text(loss)}), Step("approve")]
        return self._chance.choice(acts)

    def _of_one_table(self) -> Step:
        by, loss = self._chance.choice(ANALYSTS), self._chance.choice(LOSSES[self._measure])
        kind = self._chance.random()
        if kind < 0.6:
            return Step(self._chance.choice(["ask"] * 9 + ["preview"]), by, self._select(loss))
        if kind < 0.68:
            return Step("ask", by, {"sql": self._chance.choice(REFUSED), "loss": loss})
        if kind < 0.78:
            return Step("ask", by, {"sql": DISCOVERED, "loss": APPROXIMATE, "discover": "town"})
        if self._way == "python" and kind < 0.9:
            does = self._chance.choice(["regress", "batch", "quantile", "sizes", "fail"])
            return Step(does, by, {"loss": loss})
        method = "histogram" if self._way == "http" else self._chance.choice(["histogram", "histogram", "mst", "mwem"])
        return Step("synthesize", by, {"method": method, "loss": loss})

    def _select(self, loss: Mapping[str, str]) -> dict[str, Any]:
        chosen = self._chance.choice(SELECTS)
        groups = chosen.rpartition(", ")[0] if chosen[0].islower() else ""
        where = f" WHERE {self._chance.choice(CONDITIONS)}" if self._chance.random() < 0.5 else ""
        grouped = f" GROUP BY {groups}" if groups else ""
        given = {"sql": f"SELECT {chosen} FROM people{where}{grouped}", "loss": loss}
        return {**given, "truncation": 2} if self._chance.random() < 0.1 else given

    def _of_tables(self) -> Step:
        by, loss = self._chance.choice(ANALYSTS), self._chance.choice(LOSSES[self._measure])
        kind = self._chance.random()
        if kind < 0.04:
            return Step("synthesize tables", by, {"loss": loss})
        if kind < 0.14 and self._way == "python":
            return Step("ask with other owners", by, {"loss": LOSSES[self._measure][0]}, 3)
        statement, bound = self._chance.choice(LINKED)
        return Step("ask", by, {"sql": statement, "loss": loss}, bound)


def _limit_text(loss: Mapping[str, str]) -> str:
    """A loss as one text, as commands and the server take limits."""
    return f"rho={loss['rho']}" if "rho" in loss else ",".join(loss.values())


def limit_text(session: Session) -> str:
    """The limit of a session's ledger as one text."""
    return _limit_text(LIMITS[session.measure])
