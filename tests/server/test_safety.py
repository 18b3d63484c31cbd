"""Races and kills under load, on SQLite and PostgreSQL, with several workers."""

# ruff: noqa: S608 - statements are what is sent

from __future__ import annotations

import random
import secrets
import threading
import time
from fractions import Fraction

import pytest
from tests.server.mutants import drop_the_checks
from tests.server.serving import DOMAIN, Server

from sfumato.app.http_client import ServerError
from sfumato_server.registry import Scope

CLIENTS = 16
chance = random.SystemRandom()


@pytest.fixture
def stage(url, people):
    """A server with one epsilon, and what was delivered by it: (analyst, entry, rows)."""
    server = Server(url, workers=2).start()
    with server.client("stew", Scope.STEWARD) as steward:
        steward.register("people", source=str(people), domain=DOMAIN, limit="1")
    yield server
    server.stop()


def check(server, delivered, *, most=Fraction(1)):
    """Check that every delivered answer is in the journal under its number, and that the accounts are its sums."""
    with server.ledger("people") as ledger:
        ledger.verify()
        account, entries = ledger.remaining(), {entry.number: entry for entry in ledger.journal()}
        assert account.spent.epsilon <= most
        releases = [entry for entry in entries.values() if entry.kind.value == "release"]
        assert sum(entry.charge.epsilon for entry in releases) == account.spent.epsilon
    for number, _ in delivered:
        assert entries[number].kind.value == "release"
    numbers = {}
    for number, rows in delivered:
        assert numbers.setdefault(number, rows) == rows


def run(clients, ask):
    delivered, refused, lock = [], [], threading.Lock()

    def work(client, place):
        found = ask(client, place)
        with lock:
            for each in found:
                (delivered if isinstance(each, tuple) else refused).append(each)

    threads = [threading.Thread(target=work, args=(client, place)) for place, client in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return delivered, refused


def one(client, statement, epsilon, retry_key=None):
    try:
        reply = client.ask("people", statement, epsilon=epsilon, retry_key=retry_key)
    except ServerError as error:
        return error.kind
    return reply.document["provenance"]["journal_entry"], str(reply.rows)


def race_for_the_last_tenth(server):
    """Return the results of sixteen clients that ask for the last tenth of the budget at once."""
    clients = [server.client(f"analyst{place}") for place in range(CLIENTS)]
    one(clients[0], "SELECT COUNT(*) FROM t", "0.9")
    start = threading.Barrier(CLIENTS)

    def ask(client, place):
        start.wait()
        return [one(client, f"SELECT COUNT(*) FROM t WHERE age >= {place + 1}", "0.1")]

    return run(clients, ask)


def test_sixteen_clients_race_for_the_last_unit_and_one_wins(stage):
    delivered, refused = race_for_the_last_tenth(stage)
    assert len(delivered) == 1
    assert refused == ["budget-exceeded"] * (CLIENTS - 1)
    check(stage, delivered)
    with stage.ledger("people") as ledger:
        assert ledger.remaining().spent.epsilon == 1


@pytest.fixture
def mutant(url, people):
    """Starts a server with a fault built in, with one epsilon."""
    servers = []

    def start(name):
        servers.append(Server(url, workers=2, mutant=name).start())
        with servers[0].client("stew", Scope.STEWARD) as steward:
            steward.register("people", source=str(people), domain=DOMAIN, limit="1")
        return servers[0]

    yield start
    for server in servers:
        server.stop()


def test_the_race_catches_a_server_without_lock_and_check(mutant):
    server = mutant("without_lock_and_check")
    drop_the_checks(server.url)
    delivered, _ = race_for_the_last_tenth(server)
    assert len(delivered) > 1
    with pytest.raises(AssertionError):
        check(server, delivered)


def test_the_check_of_the_database_stops_a_server_without_lock(mutant):
    server = mutant("without_lock")
    delivered, refused = race_for_the_last_tenth(server)
    assert len(delivered) == 1
    assert set(refused) <= {"ledger-unavailable", "budget-exceeded"}  # clients retry, and then see that it is spent
    check(server, delivered)


def test_sixteen_clients_with_one_question_pay_for_it_once(stage):
    clients = [stage.client("analyst") for _ in range(CLIENTS)]
    start = threading.Barrier(CLIENTS)

    def ask(client, _):
        start.wait()
        return [one(client, "SELECT SUM(age) FROM t", "0.6")]

    delivered, refused = run(clients, ask)
    assert not refused
    assert len(set(delivered)) == 1
    with stage.ledger("people") as ledger:
        assert ledger.remaining().spent.epsilon == Fraction(6, 10)


def kill_loop(server, kills):
    """Let clients ask and retry with the same keys while the server is killed and started.

    They have some 3000 questions that fit the budget, so that each kill meets charges and not only refusals.
    """
    clients = [server.client(f"analyst{place}") for place in range(4)]
    over, replied = threading.Event(), threading.Event()

    def ask(client, place):
        found, question = [], 0
        while not over.is_set():
            low, high = 1 + question % 45, 50 + question // 45 % 45
            statement = f"SELECT COUNT(*) FROM t WHERE age >= {low} AND sex IN ('F') AND age < {high}"
            got = one(client, statement, f"0.000{2 + place}", f"{place}-{question}")
            found.append(got)
            if isinstance(got, tuple) or got == "budget-exceeded":
                question += 1
                replied.set()
            else:
                time.sleep(0.02)  # the same again, under the same key
        return found

    result = []
    load = threading.Thread(target=lambda: result.append(run(clients, ask)))
    load.start()
    try:
        for _ in range(kills):
            replied.clear()
            assert replied.wait(60)  # it is at work, however slow the machine is
            time.sleep(chance.uniform(0, 0.3))
            server.kill()
            server.start()
    finally:
        over.set()
        load.join()
    ((delivered, _),) = result
    return delivered


def test_killed_under_load_nothing_is_lost_and_nothing_is_free(stage):
    delivered = kill_loop(stage, kills=2)
    assert delivered
    check(stage, delivered)


@pytest.mark.slow
def test_killed_again_and_again(stage):
    delivered = kill_loop(stage, kills=15)
    assert len(delivered) >= 15
    check(stage, delivered)


def test_an_unreachable_ledger_is_reported_and_harms_nothing(people, postgres):
    """Every connection is cut in the middle of the load; clients retry with their keys."""
    from sqlalchemy import create_engine, text
    from sqlalchemy.engine import make_url
    from sqlalchemy.pool import NullPool

    marked = f"cut-{secrets.token_hex(4)}"  # so that no connection of another test is cut
    server = Server(f"{postgres}&application_name={marked}", workers=2).start()
    try:
        with server.client("stew", Scope.STEWARD) as steward:
            steward.register("people", source=str(people), domain=DOMAIN, limit="1")
        engine = create_engine(
            make_url(postgres).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT", poolclass=NullPool
        )
        own = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE pid <> pg_backend_pid() AND application_name = '{marked}'"
        )
        clients = [server.client(f"analyst{place}") for place in range(4)]

        def ask(client, place):
            return [
                one(client, f"SELECT COUNT(*) FROM t WHERE age >= {place * 9 + turn + 1}", "0.01") for turn in range(8)
            ]

        cuts = []

        def cut():
            for _ in range(5):
                time.sleep(0.15)
                with engine.connect() as connection:
                    cuts.extend(connection.execute(text(own)).all())

        cutter = threading.Thread(target=cut)
        cutter.start()
        delivered, refused = run(clients, ask)
        cutter.join()
        assert cuts
        assert delivered
        assert set(refused) <= {"ledger-unavailable"}
        check(server, delivered)
    finally:
        server.stop()
