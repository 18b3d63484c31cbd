"""Processes that ask several tables are killed and race: nothing is lost, nothing is free, and one unit is protected.

After a death the journal says that a pending release is computed again, in an entry that names its charge once more:
releases and failures are therefore counted apart from retries.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import closing, suppress
from fractions import Fraction

import pytest
from tests.hospital import database, derived_schema, frames
from tests.ledger.asking import spent_epsilon
from tests.ledger.racing_processes import ANALYSTS, chance
from tests.ledger.test_kills import Child
from tests.processes import processes

import sfumato as sf
from sfumato.domain import Categorical, Domain, Unit, Unknown
from sfumato.errors import BudgetError, SfumatoError
from sfumato.ledger import Kind, open_ledger
from sfumato.privacy.loss import Epsilon

pytestmark = pytest.mark.slow

CHILDREN = 3
KILLS = 14
QUESTIONS = 200
RACERS = 6
LIMIT = Epsilon("0.06")  # for about fifty of the questions
CAPPED = ANALYSTS[:2]
HOSPITAL = derived_schema()
STATEMENTS = (
    "SELECT sex, COUNT(*) FROM visits JOIN patients USING (patient_id) GROUP BY sex",
    "SELECT chapter, COUNT(*) FROM diagnoses JOIN icd USING (code) GROUP BY chapter",
    "SELECT COUNT(*) FROM patients WHERE ever_i0 AND visits_n > 1",
    "SELECT month(admitted), SUM(cost) FROM visits GROUP BY month(admitted)",
)


def opened(url, limit=None):
    create = limit is not None
    return sf.open_schema(frames(database(0)), schema=HOSPITAL, ledger=url, limit=limit, create=create)


def ask(vault, number):
    """The answer to a question whose loss says which one it is."""
    found = sf.query.sql(vault, STATEMENTS[number % len(STATEMENTS)], loss=Epsilon(Fraction(1000 + number, 10**6)))
    return str([(key, [value.estimate for value in row]) for key, row in zip(found.keys, found.values, strict=True)])


def number_of(entry):
    return int(Fraction(entry.question.parameters["loss"]["epsilon"]) * 10**6) - 1000


def deliver_of_tables(url, first, delivered):
    """Ask one question after the other, old ones in between, and deliver each answer to the parent, until killed."""
    vault, newest = opened(url), first
    while True:
        for number in (newest, chance.randrange(newest + 1)):
            analyst = chance.choice(ANALYSTS)
            with suppress(BudgetError):
                delivered.send((number, analyst, ask(vault.for_analyst(analyst), number)))
        newest = min(newest + 1, QUESTIONS)


def kill_loop(url):
    """Everything that was delivered while children died, from a budget that runs out meanwhile."""
    opened(url, LIMIT).ledger.close()
    with open_ledger(url, dataset="default", limit=None) as ledger:
        for analyst in CAPPED:
            ledger.set_cap(analyst, LIMIT / 2)
    delivered, children = [], [Child(url, 0, what=deliver_of_tables) for _ in range(CHILDREN)]
    try:
        for _ in range(KILLS - CHILDREN):
            victim = chance.randrange(CHILDREN)
            delivered += children[victim].kill()
            newest = 1 + max(number for number, _, _ in delivered)
            children[victim] = Child(url, newest, what=deliver_of_tables)
    finally:
        for child in children:
            delivered += child.kill()
    return delivered


def completed(url, numbers):
    """Return the answers in the journal; pending ones are computed, or charged once more if they failed."""
    vault, found = opened(url), {}
    with closing(vault.ledger):
        for number in numbers:
            with suppress(BudgetError):
                found[number] = ask(vault, number)
    return found


def faults(url, delivered):
    """Return the faults of the journal, given the delivered answers."""
    stored = completed(url, {number for number, _, _ in delivered})
    with open_ledger(url, dataset="default", limit=None) as ledger:
        ledger.verify()
        entries = [entry for entry in ledger.journal() if entry.kind not in (Kind.CAP, Kind.VERSION)]
        count = defaultdict(Counter)
        for entry in entries:
            count[number_of(entry)][entry.kind] += 1
        released = [entry for entry in entries if entry.kind is Kind.RELEASE]
        charged = sum((entry.charge.epsilon for entry in released), Fraction(0))
        paid = {(number_of(e), e.analyst) for e in entries if e.kind in (Kind.RELEASE, Kind.REPEAT)}
        caps = ledger.caps()
        checks = {
            "delivered but not in the journal": all((n, analyst) in paid for n, analyst, _ in delivered),
            "released twice": all(own[Kind.RELEASE] <= 1 + own[Kind.FAILED] for own in count.values()),
            "computed again more than once": all(own[Kind.RETRY] <= own[Kind.RELEASE] for own in count.values()),
            "the sum of the journal is not what was spent": charged == spent_epsilon(ledger),
            "the limit is passed": charged <= LIMIT.value,
            "a cap is passed": all(caps[analyst].spent.epsilon <= caps[analyst].limit.value for analyst in CAPPED),
            "two answers to one question": all(body == stored[number] for number, _, body in delivered),
            "another unit": {str(entry.event.unit) for entry in released if entry.event.unit.schema != "hospital"}
            == set(),
        }
    return {fault for fault, fine in checks.items() if not fine}


def test_killed_processes_over_a_schema_lose_nothing_and_get_nothing_free(url):
    delivered = kill_loop(url)
    assert len(delivered) >= KILLS
    assert len({number % len(STATEMENTS) for number, _, _ in delivered}) == len(STATEMENTS)
    assert faults(url, delivered) == set()
    number, analyst, body = delivered[0]
    assert faults(url, [*delivered, (number, analyst, body + " ")]) == {"two answers to one question"}
    assert faults(url, [*delivered, (number, "dan", body)]) == {"delivered but not in the journal"}


def outcome(call):
    try:
        return call()
    except SfumatoError as error:
        return type(error).__name__


def race_over_tables(url, number, everybody, results):
    """Open the tables when all others do, ask what they ask, then another question for more than is left for two."""
    everybody.wait(300)
    vault = opened(url, Epsilon(1))
    everybody.wait(300)
    same = outcome(lambda: ask(vault, 0))
    everybody.wait(300)
    loss = Epsilon(Fraction(600 + number, 1000))
    own = outcome(lambda: type(sf.query.sql(vault, STATEMENTS[number % 4], loss=loss)).__name__)
    results.send((same, own))
    results.close()


def found_one_unit(url, number, everybody, results):
    """Make the ledger for all tables of the people, or for one of them alone."""
    sex = Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP)
    alone = Domain((sex,), unit=Unit("patient_id", rows=1))
    held = frames(database(0))
    everybody.wait(300)
    if number % 2:
        told = outcome(lambda: type(opened(url, Epsilon(1))).__name__)
    else:
        make = {"domain": alone, "ledger": url, "limit": Epsilon(1), "create": True}
        told = outcome(lambda: type(sf.open(held["patients"], **make)).__name__)
    results.send(told)
    results.close()


def race(what, url):
    """Return the outcome in each of several processes."""
    context = processes()
    everybody = context.Barrier(RACERS)
    children, results = [], []
    for number in range(RACERS):
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=what, args=(url, number, everybody, sender))
        child.start()
        sender.close()
        children.append(child)
        results.append(receiver)
    try:
        return [receiver.recv() for receiver in results]  # the end of a file where a process died
    finally:
        for child, receiver in zip(children, results, strict=True):
            child.kill()
            child.join()
            receiver.close()


def test_processes_over_one_schema_pay_once_for_one_question(url):
    outcomes = race(race_over_tables, url)
    assert len({same for same, _ in outcomes}) == 1
    assert Counter(own for _, own in outcomes) == {"Answer": 1, "BudgetError": RACERS - 1}
    with open_ledger(url, dataset="default", limit=None) as ledger:
        ledger.verify()
        version, *releases = ledger.journal()
        assert version.kind is Kind.VERSION
        assert [entry.kind for entry in releases] == [Kind.RELEASE, Kind.RELEASE]
        assert spent_epsilon(ledger) == sum(entry.charge.epsilon for entry in releases) < 1


def test_a_schema_and_a_table_of_it_do_not_both_get_one_ledger(url):
    outcomes = Counter(race(found_one_unit, url))
    assert outcomes in (
        {"SchemaVault": RACERS // 2, "UnitError": RACERS // 2},
        {"Vault": RACERS // 2, "UnitError": RACERS // 2},
    )
