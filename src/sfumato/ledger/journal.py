"""Reading a ledger without locking it: accounts, entries a page at a time, stored answers and their chain of hashes.

Entries and answers of a dataset are one chain, in the order in which they were written.  Each holds the hash of the
entry or answer before it, and the dataset's row holds the hash of the last one.  An answer may be stored after later
entries.  Its row holds the number of entries at that time, and its ``place`` counts the answers.  So the order follows
from the rows.

The column ``found`` of an answer is null.  A ledger from before the chain has a time there: its answers were bound to
the chain at that time, so earlier changes to them cannot be detected.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from sfumato.domain import Unit
from sfumato.errors import BrokenLedgerError, LedgerError, MovedLedgerError, UnitError
from sfumato.ledger.account import Account, charge_from, loss_from, refuse_damaged, unit_from
from sfumato.ledger.database import Driver
from sfumato.ledger.entry import Entry, Event, Kind, Question, StoredAnswer, answer_hash
from sfumato.ledger.store import Store
from sfumato.privacy.loss import NOTHING, Charge
from sfumato.strict_documents import canonical

PAGE = 1000

StoredRow: TypeAlias = dict[str, Any]
ChainPosition: TypeAlias = tuple[int, int, str]
"""The end of a journal: the number of its entries, the number of its answers, and the hash of the last of them."""


def dataset_account(driver: Driver, name: str) -> Account | None:
    """Return the dataset's limit and spent loss; None if the ledger does not hold the dataset."""
    row = dataset_row(driver, name)
    if row is None:
        return None
    exact = tuple(number for number, kind, _ in _exact(driver, name) if kind == Kind.RELEASE)
    return Account(loss_from(row["limit_loss"]), spent_of(row), exact)


def datasets(driver: Driver) -> list[str]:
    """Return the names of all datasets of the ledger, in order."""
    return [name for (name,) in driver.rows("SELECT name FROM ledger_dataset ORDER BY name")]


def analyst_accounts(driver: Driver, name: str) -> dict[str, Account]:
    """Return the account of each analyst who has spent or has a cap, by name."""
    exact: dict[str | None, list[int]] = {}
    for number, _, analyst in _exact(driver, name):
        exact.setdefault(analyst, []).append(number)
    accounts = {row["name"]: account_of(row) for row in analyst_rows(driver, name)}
    return {analyst: replace(account, exact=tuple(exact.get(analyst, ()))) for analyst, account in accounts.items()}


def analyst_account(driver: Driver, name: str, analyst: str) -> Account:
    """Return the account of one analyst; a new one is empty and has no cap."""
    query = "SELECT * FROM ledger_analyst WHERE dataset = :dataset AND name = :analyst"
    row = driver.record(query, {"dataset": name, "analyst": analyst})
    exact = tuple(number for number, _, by in _exact(driver, name) if by == analyst)
    return replace(Account(None, NOTHING) if row is None else account_of(row), exact=exact)


def _exact(driver: Driver, name: str) -> list[tuple[int, str, str | None]]:
    """Return releases without differential privacy, first or repeated: number, kind and analyst, in order."""
    query = """
    SELECT number, kind, analyst FROM ledger_entry
    WHERE dataset = :dataset AND rho IS NULL AND kind IN (:release, :repeat) ORDER BY number"""
    values = {"dataset": name, "release": Kind.RELEASE.value, "repeat": Kind.REPEAT.value}
    return [(int(number), kind, analyst) for number, kind, analyst in driver.rows(query, values)]


def dataset_unit(driver: Driver, name: str) -> Unit | None:
    """Return the unit of all charges of a dataset; None in an old ledger before its next release."""
    text = driver.value("SELECT unit FROM ledger_dataset WHERE name = :name", {"name": name})
    return None if text is None else unit_from(text)


def secret(driver: Driver, name: str) -> str:
    """Return the secret that hides the fingerprints of a dataset in its journal.

    Raises:
        LedgerError: the ledger does not hold the dataset, or its secret was changed.
    """
    row = dataset_row(driver, name)
    if row is None:
        raise LedgerError(f"the ledger holds no dataset {name!r}", culprit=name)
    secret_text: str = row["secret"]
    with refuse_damaged("a secret"):
        bytes.fromhex(secret_text)
    return secret_text


def entries(driver: Driver, name: str, *, after: int = 0, most: int = PAGE, analyst: str | None = None) -> list[Entry]:
    """Return a page of the journal: up to ``most`` entries with numbers above ``after``, in order."""
    return [entry_from(row) for row in stored(driver, name, after=after, most=most, analyst=analyst)]


def newest(
    driver: Driver, name: str, *, before: int | None = None, most: int, analyst: str | None = None
) -> list[Entry]:
    """Return the last ``most`` entries with numbers below ``before``, of one analyst or of all, in order."""
    which = "" if before is None else " AND number < :before"
    which += "" if analyst is None else " AND analyst = :analyst"
    query = f"SELECT * FROM ledger_entry WHERE dataset = :dataset{which} ORDER BY number DESC LIMIT :most"  # noqa: S608
    rows = driver.records(query, {"dataset": name, "before": before, "analyst": analyst, "most": most})
    return [entry_from(row) for row in reversed(rows)]


def answers(
    driver: Driver, name: str, *, methods: Collection[tuple[str, str]], version: str, analyst: str | None
) -> list[StoredAnswer]:
    """Return stored answers by some methods, each a family and its method, about one version of the data, in order.

    Args:
        driver: a driver in a transaction that reads.
        name: the name of the dataset.
        methods: the families and methods.
        version: the version of the data in the journal.
        analyst: the analyst who was charged for each answer; None for answers to all analysts.

    Raises:
        BrokenLedgerError: another program changed one of the answers.
    """
    beginning = f'{{"dataset_version":{canonical(version)},'  # the start of a query in the journal
    values: dict[str, Any] = {"dataset": name, "release": Kind.RELEASE.value, "repeat": Kind.REPEAT.value}
    values |= {"beginning": beginning, "length": len(beginning), "analyst": analyst}
    either = []
    for place, (family, method) in enumerate(methods):
        either.append(f"(entry.family = :family_{place} AND entry.method = :method_{place})")
        values |= {f"family_{place}": family, f"method_{place}": method}
    query = f"""
    SELECT entry.question, entry.number, {LINK} FROM ledger_entry AS entry
    JOIN ledger_answer AS answer ON answer.dataset = entry.dataset AND answer.number = entry.number{FOLLOWERS}
    WHERE entry.dataset = :dataset AND entry.kind = :release AND ({" OR ".join(either) or "1 = 0"})
    AND substr(entry.question, 1, :length) = :beginning"""  # noqa: S608  (values never stand in it)
    if analyst is not None:
        query += """
    AND EXISTS (SELECT 1 FROM ledger_entry AS shown WHERE shown.dataset = :dataset AND shown.key = entry.key
        AND shown.analyst = :analyst AND shown.kind IN (:release, :repeat))"""
    rows = driver.rows(f"{query} ORDER BY entry.number", values)
    head = driver.value("SELECT head FROM ledger_dataset WHERE name = :dataset", {"dataset": name}) if rows else ""
    return [
        StoredAnswer(Question.from_json(question), number, unchanged(tuple(link), head))
        for question, number, *link in rows
    ]


def recorded_owners(driver: Driver, name: str, *, after: int = 0) -> tuple[int, list[dict[str, str]]]:
    """Return the last entry's number, and the owners of tables in entries above ``after``, by table."""
    last = driver.value("SELECT entries FROM ledger_dataset WHERE name = :name", {"name": name})
    query = """
    SELECT DISTINCT details FROM ledger_entry
    WHERE dataset = :dataset AND number > :after AND details LIKE :telling"""
    rows = driver.rows(query, {"dataset": name, "after": after, "telling": '%"owners":{%'})
    with refuse_damaged("an entry"):
        return int(last), [owners for (text,) in rows if isinstance(owners := json.loads(text).get("owners"), dict)]


def stored(driver: Driver, name: str, *, after: int, most: int = PAGE, analyst: str | None = None) -> list[StoredRow]:
    """Return rows of the journal with numbers above ``after``, in order."""
    which = "" if analyst is None else " AND analyst = :analyst"
    query = f"""
    SELECT * FROM ledger_entry WHERE dataset = :dataset AND number > :after{which}
    ORDER BY number LIMIT :most"""  # noqa: S608
    return driver.records(query, {"dataset": name, "after": after, "most": most, "analyst": analyst})


def entry_from(row: StoredRow) -> Entry:
    """Return the entry of a row.

    Raises:
        LedgerError: another program wrote it.
    """
    amounts = row["epsilon"], row["rho"], row["delta"]
    charge = None if amounts == (None, None, None) else charge_from(*amounts)
    with refuse_damaged("an entry"):
        event = Event(
            Kind(row["kind"]),
            Question.from_json(row["question"]),
            charge,
            row["analyst"],
            row["statement"],
            json.loads(row["details"]),
            **_stated(row["stated"]),
        )
    return Entry(row["number"], row["time"], event, row["previous"], row["hash"])


def _stated(text: str | None) -> dict[str, Any]:
    """Return :attr:`Event.stated` as the fields of an event."""
    if text is None:
        return {}
    fields = json.loads(text)
    unit, charge = fields.get("unit"), fields.get("counted")
    return {
        "unit": None if unit is None else unit_from(unit),
        "neighbours": fields.get("neighbours"),
        "grid_charge": None if charge is None else charge_from(*charge),
        "fixes_unit": fields.get("fixes_unit", False),
    }


def spent_of(row: StoredRow) -> Charge:
    """Return the spent loss of an account."""
    return charge_from(row["epsilon"], row["rho"], row["delta"])


def account_of(row: StoredRow) -> Account:
    """Return the account in the row of an analyst."""
    return Account(None if row["cap_loss"] is None else loss_from(row["cap_loss"]), spent_of(row))


def analyst_rows(driver: Driver, name: str) -> Sequence[StoredRow]:
    """Return the rows of all analysts, by name."""
    return driver.records("SELECT * FROM ledger_analyst WHERE dataset = :dataset ORDER BY name", {"dataset": name})


def dataset_row(driver: Driver, name: str) -> StoredRow | None:
    """Return the row of a dataset."""
    return driver.record("SELECT * FROM ledger_dataset WHERE name = :name", {"name": name})


UNBOUND = "SELECT 1 FROM ledger_answer WHERE dataset = :dataset AND place < 1 LIMIT 1"
ANSWERS_PAGE = 200  # answers to read at a time, with their bodies
LINK = """answer.number, answer.place, answer.entries, answer.time, answer.found, answer.previous, answer.hash,
    answer.body, following.entries, following.previous, succeeding.previous"""
FOLLOWERS = """
    LEFT JOIN ledger_answer AS following
    ON following.dataset = answer.dataset AND following.place = answer.place + 1
    LEFT JOIN ledger_entry AS succeeding
    ON succeeding.dataset = answer.dataset AND succeeding.number = answer.entries + 1"""


def unchanged(link: tuple[Any, ...], head: str) -> bytes:
    """Return the body of an answer if the chain of hashes goes through it.

    Args:
        link: the columns of :data:`LINK`: its row and the hashes that follow it.
        head: the head of the dataset.

    Raises:
        BrokenLedgerError: the answer, or the row after it, was changed.
    """
    number, place, entries, time, bound_at, previous, hash_, body, next_entries, next_previous, entry_previous = link
    bound = next_previous if next_entries == entries else head if entry_previous is None else entry_previous
    if hash_ != bound or hash_ != _hash((previous, place, number, time, bound_at, body)):
        raise BrokenLedgerError(
            f"the stored answer to entry {number} does not fit the ledger's chain of hashes any more: it, or what was "
            "written after it, was changed by another program; it is not released and nothing was charged; run "
            "'sfumato ledger verify', and restore the ledger from a copy",
            culprit=number,
        )
    assert isinstance(body, bytes)
    return body


def refuse_lost(driver: Driver, name: str, number: int, head: str) -> None:
    """Refuse to treat a release as unanswered if a row is missing that was written after its charge.

    Raises:
        BrokenLedgerError: the chain does not continue from its entry to the head.
    """
    query = """
    SELECT number, previous, hash FROM ledger_entry WHERE dataset = :dataset AND number >= :number ORDER BY number"""
    (_, _, reached), *entries = driver.rows(query, {"dataset": name, "number": number})
    answers = list(_places_since(driver, name, number))  # the next answer is last
    for at, (_, previous, hash_) in enumerate([*entries, (None, head, head)], start=number):
        while answers and answers[-1][0] == at:
            _, bound, made = answers.pop()
            reached = made if bound == reached else None
        reached = hash_ if previous == reached else None
    if answers or reached != head:
        raise BrokenLedgerError(
            f"something is missing from the ledger that was written after entry {number}, perhaps its answer, so that "
            "it is not computed once more, and nothing was charged; run 'sfumato ledger verify', and restore the "
            "ledger from a copy",
            culprit=number,
        )


def _places_since(driver: Driver, name: str, number: int) -> Iterator[tuple[int, str, str]]:
    """Yield the number of entries and the two hashes of each answer that was stored since an entry, last first.

    The hash is empty if the row does not have it any more: the answer may have been moved to another entry.
    """
    query = """
    SELECT place, entries, previous, hash, number, time, found, body FROM ledger_answer
    WHERE dataset = :dataset AND place < :place ORDER BY place DESC LIMIT :most"""
    place = 1 << 62
    while page := driver.rows(query, {"dataset": name, "place": place, "most": ANSWERS_PAGE}):
        for place, entries, previous, hash_, *hashed in page:
            if entries < number:
                return
            yield entries, previous, hash_ if hash_ == _hash((previous, place, *hashed)) else ""


def answers_after(driver: Driver, name: str, place: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of answers after a place of the chain, in order."""
    query = """
    SELECT * FROM ledger_answer WHERE dataset = :dataset AND place > :place ORDER BY place LIMIT :most"""
    while page := driver.records(query, {"dataset": name, "place": place, "most": ANSWERS_PAGE}):
        yield from page
        place = page[-1]["place"]


def follows(row: dict[str, Any], place: int, previous: str) -> bool:
    """Return whether an answer has a place of the chain, and is bound to the row before it."""
    number, time, bound_at, body = row["number"], row["time"], row["found"], row["body"]
    bound = (row["place"], row["previous"]) == (place, previous)
    return bound and row["hash"] == _hash((previous, place, number, time, bound_at, body))


def _hash(fields: tuple[Any, ...]) -> str | None:
    """Return the hash that a stored answer must have; None if another program wrote its row."""
    previous, place, number, time, bound_at, body = fields
    is_readable = isinstance(previous, str) and isinstance(time, str) and isinstance(body, bytes)
    return answer_hash(previous, place, number, time, bound=bound_at, body=body) if is_readable else None


_FIND_HASH = """
    SELECT hash FROM ledger_entry WHERE dataset = :dataset AND number = :entries
    UNION ALL SELECT hash FROM ledger_answer WHERE dataset = :dataset AND place = :answers"""


class JournalMemory:
    """The last position of a journal that a program saw, and the recorded owners of tables.

    A journal that lacks the last position was set back while the program ran.

    Args:
        store: the store of the journal.
        dataset: its name.

    Attributes:
        store: see above.
        position: the last one that the program saw; None before the first.
    """

    def __init__(self, store: Store, dataset: str) -> None:
        self.store = store
        self._dataset = dataset
        self._founded: str | None = None
        self._owners: set[tuple[str, str]] = set()
        self._owners_read = 0  # entries whose owners were read
        self.position: ChainPosition | None = None

    @property
    def secret(self) -> str:
        """The dataset's secret from its creation, which never changes, so that two threads may read it."""
        if self._founded is None:
            with self.store.reading() as driver:
                self._founded = secret(driver, self._dataset)
        return self._founded

    def look(self) -> None:
        """Check that the journal still contains the last position, and remember its current one.

        Raises:
            MovedLedgerError: the position is missing.
        """
        before = self.position  # read first, so that the position in the journal is not older
        _ = self.secret
        with self.store.reading() as driver:
            row = dataset_row(driver, self._dataset) or {"secret": "", "entries": 0, "answers": 0, "head": ""}
            now = row["entries"], row["answers"], row["head"]
            self.refuse_set_back(driver, row["secret"], now, before=before)
        if self.position is before:
            self.position = now

    def refuse_set_back(
        self, driver: Driver, founded: str, now: ChainPosition, *, before: ChainPosition | None
    ) -> None:
        """Refuse a journal that does not contain a position that was seen before.

        Args:
            driver: a driver to read it.
            founded: the secret of its dataset.
            now: its current end.
            before: the earlier position; None if none was seen.

        Raises:
            MovedLedgerError: the position is missing, or the dataset was created again.
        """
        if founded == self.secret and (before is None or self._goes_through(driver, now, before)):
            return
        raise MovedLedgerError(
            f"the ledger {self.store.place} no longer holds what was released of {self._dataset!r} while it was open: "
            "it was founded anew, or an old copy was restored; bring the database back, or start again knowingly",
            culprit=self._dataset,
        )

    def _goes_through(self, driver: Driver, now: ChainPosition, before: ChainPosition) -> bool:
        entries, answers, head = before
        if now[0] < entries or now[1] < answers:
            return False
        if now[:2] == (entries, answers):
            return now[2] == head
        if entries == 0:
            return True
        values = {"dataset": self._dataset, "entries": entries, "answers": answers}
        return any(stored == head for (stored,) in driver.rows(_FIND_HASH, values))

    def owners(self, driver: Driver) -> list[dict[str, str]]:
        """Return the recorded owner of each table.  Entries are read once; the dataset's row must be locked."""
        last, recorded = recorded_owners(driver, self._dataset, after=self._owners_read)
        self._owners |= {pair for owners in recorded for pair in owners.items()}
        self._owners_read = last
        return [{name: owner} for name, owner in sorted(self._owners)]


def refuse_other_owners(own: Mapping[str, str], recorded: Iterable[Mapping[str, str]]) -> None:
    """Refuse a release if a table has another owner than the journal records.

    Losses for one unit add up only if a unit is the same rows in all releases.  A table that one description calls
    public and another one protects has two neighbor relations.

    Raises:
        UnitError: an entry names another owner for a table.
    """
    now = {name.casefold(): owner for name, owner in own.items()}
    for owners in recorded:
        for name, owner in owners.items():
            here = now.get(name.casefold(), owner)
            if here != owner:
                raise UnitError(
                    f"this ledger holds releases for which the rows of {name} are {owner}, and in this schema they "
                    f"are {here}: their losses do not add up; describe the table as before, or use another ledger",
                    culprit=name,
                )
