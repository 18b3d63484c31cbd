"""The rows behind an answer are those of the last declared version, in every worker, even if the source changes."""

# ruff: noqa: S608 - statements are what is sent

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import secrets
import shutil
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import concat_tables, parquet
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from tests.engine import cluster
from tests.server.hospital import SCHEMA, write_hospital
from tests.server.serving import DOMAIN, ROWS, Server, answer_of, serving, with_source_passwords, write_people

import sfumato as sf
from sfumato.app.api.questions import AskRequest
from sfumato.app.http_client import ServerError
from sfumato.domain import parse
from sfumato.errors import VersionError
from sfumato.ledger.entry import Kind
from sfumato_server.datasets import read_question
from sfumato_server.problems import RefusalError, problem_response
from sfumato_server.registry import Scope
from sfumato_server.service import Service
from sfumato_server.sources import Snapshots

COUNT = "SELECT COUNT(*) FROM people"
TRIES = 12  # enough to meet both workers
FOLLOWED = 1.5  # seconds after which every worker has looked the declared version up again


@pytest.fixture
def table(tmp_path):
    return write_people(tmp_path / "people.parquet")


@pytest.fixture
def server(tmp_path, table):
    with serving(f"sqlite:///{tmp_path}/s.ledger", table) as started:
        yield started


def problem(call) -> dict:
    with pytest.raises(ServerError) as refused:
        call()
    return refused.value.problem


def spent(server):
    with server.ledger("people") as ledger:
        return ledger.remaining().spent.epsilon


def doubled(table):
    found = parquet.read_table(table)
    parquet.write_table(concat_tables([found, found]), table)


def snapshots(folder):
    """The folders of snapshots that there are."""
    return [each for each in (folder / "s.ledger.snapshots").iterdir() if each.is_dir()]


# --- what analysts see -----------------------------------------------------------------------------------------------


LOSS = {"epsilon": "300"}  # so large that there is no noise, but for once in e^50
VISITS = "SELECT COUNT(*) FROM visits"
HEART = "SELECT chapter, COUNT(*) FROM diagnoses JOIN visits USING (visit_id) JOIN icd USING (code) GROUP BY chapter"
STORED = {
    "people": [COUNT, f"{COUNT} WHERE age < 40", "SELECT sex, COUNT(*) FROM people GROUP BY sex"],
    "hospital": [VISITS, f"{VISITS} WHERE cost < 500", HEART],
}


def rewritten(lines):
    def change(folder):
        people = folder / "people.csv"
        people.write_text("\n".join(lines(people.read_text().splitlines())) + "\n")

    return change


def appended(name, line):
    def change(folder):
        with (folder / "hospital" / f"{name}.csv").open("a") as file:
            file.write(f"{line}\n")

    return change


CHANGES = {
    "nothing": lambda _: None,
    "one person more outside the condition": rewritten(lambda lines: [*lines, "80,F,10.0,x"]),
    "one person more inside the condition": rewritten(lambda lines: [*lines, "20,M,4999.0,x"]),
    "one value of an unused column": rewritten(lambda lines: [lines[0], lines[1] + "?", *lines[2:]]),
    "one visit of somebody more": appended("visits", "9001,7,400"),
    "one patient more": appended("patients", "9000,F,1"),
    "one row of a public table more": appended("icd", "I3,heart"),
    "one person less": rewritten(lambda lines: lines[:-1]),
    "a file that is no table": rewritten(lambda _: ['"']),
    "a file is gone": lambda folder: (folder / "people.csv").unlink(),
    "a folder is gone": lambda folder: shutil.rmtree(folder / "hospital"),
}
RESTARTED = {"one person less", "a folder is gone"}  # changes add up: all tables differ, then none can be read


def written(folder):
    """The tables of both datasets, one of them with a column that its domain does not know."""
    folder.mkdir()
    ages = [f"{n % 90},{'FM'[n % 2]},{n % 5000}.0,note" for n in range(300)]
    (folder / "people.csv").write_text("\n".join(["age,sex,income,note", *ages]) + "\n")
    write_hospital(folder / "hospital")
    return folder


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """Return two servers of two workers over equal tables, the first of which never changes, with their folders."""
    started = []
    try:
        for name in ("left", "right"):
            folder = tmp_path_factory.mktemp(name)
            server = Server(f"sqlite:///{folder}/s.ledger", workers=2).start()
            tables = written(folder / "tables")
            started.append((server, tables))
            with server.client("stew", Scope.STEWARD) as steward:
                steward.register("people", source=str(tables / "people.csv"), domain=DOMAIN, limit="1e6")
                steward.register("hospital", source=str(tables / "hospital"), domain=SCHEMA, limit="1e6")
        yield started
    finally:
        for server, _ in started:
            server.stop()


class Analyst:
    """An analyst who looks at every byte of a server's replies."""

    def __init__(self, server, name="ana"):
        self._server = server
        self._key = server.key(name, Scope.ANALYST)

    def client(self):
        headers = {"Authorization": f"Bearer {self._key}"}
        return httpx.Client(base_url=self._server.address, headers=headers, timeout=60, trust_env=False)

    def reads(self):
        """Status, headers and body of what can be read, asked several times."""
        paths = ["/v1/datasets", *(f"/v1/datasets/{name}{more}" for name in STORED for more in _MORE)]
        with self.client() as client:
            return [seen(client.get(path)) for path in paths for _ in range(3)]

    def asks(self, questions):
        """The same of questions to datasets, one after the other."""
        with self.client() as client:
            return [seen(client.post(f"/v1/datasets/{name}/query", json=asked)) for name, asked in questions]

    def asks_at_once(self, questions):
        """The same of questions that are under way together."""
        with self.client() as client, ThreadPoolExecutor(8) as pool:
            posted = pool.map(lambda each: client.post(f"/v1/datasets/{each[0]}/query", json=each[1]), questions)
            return [seen(reply) for reply in posted]


_MORE = ("", "/budget", "/journal", "/reading", "/verify")
_OF_EACH = ("x-request-id", "date")  # headers that differ between any two replies


def seen(reply):
    headers = sorted((name, value) for name, value in reply.headers.items() if name not in _OF_EACH)
    return reply.status_code, headers, untimed(reply)


def untimed(reply):
    """The body, but for what two servers that were asked alike tell differently: times and hashes of their journals."""
    if not reply.headers["content-type"].startswith("application/json") or "/journal" not in reply.url.path:
        return reply.content
    return [{name: each[name] for name in each if name not in ("time", "hash")} for each in reply.json()["entries"]]


def unordered(replies):
    """Replies to questions that were charged in any order, without the numbers of their entries."""
    bodies = (re.sub(rb'"journal_entry":\d+', b"", body) for _, _, body in replies)
    return sorted((status, body) for (status, *_), body in zip(replies, bodies, strict=True))


def questions(turn):
    """Questions that were never asked before, at the loss of the stored ones."""
    at = {"loss": LOSS}
    found = [("people", {"sql": f"{COUNT} WHERE age < {10 + turn}", **at})]
    found += [("people", {"sql": f"SELECT sex, COUNT(*) FROM people WHERE age >= {turn} GROUP BY sex", **at})]
    found += [("hospital", {"sql": f"{VISITS} WHERE cost < {300 + turn}", **at})]
    return [*found, ("hospital", {"sql": f"SELECT COUNT(*) FROM patients WHERE region <= {turn % 4}", **at})]


def test_no_reply_to_an_analyst_depends_on_what_becomes_of_the_source(twins):
    (left, _), (right, folder) = twins
    ours, theirs = Analyst(left), Analyst(right)
    our_rival, their_rival = Analyst(left, "bob"), Analyst(right, "bob")
    stored = [(name, {"sql": statement, "loss": LOSS}) for name, many in STORED.items() for statement in many]
    turn = 0
    for name, change in CHANGES.items():
        change(folder)
        for restarted in (False, True) if name in RESTARTED else (False,):
            if restarted:
                for server, _ in twins:
                    server.kill()
                    server.start()
            turn += 1
            assert theirs.asks(stored * 2) == ours.asks(stored * 2), name
            assert theirs.asks_at_once(stored * 4) == ours.asks_at_once(stored * 4), name
            new, together = questions(4 * turn), questions(4 * turn + 1) + questions(4 * turn + 2)
            assert theirs.asks(new) == ours.asks(new), name
            assert unordered(their_rival.asks_at_once(together)) == unordered(our_rival.asks_at_once(together)), name
            assert theirs.reads() == ours.reads(), name
    status, _, body = theirs.asks(stored[:1])[0]
    assert status == 200
    assert b"300.0" in body


def test_stored_answers_are_repeated_to_the_byte_and_for_nothing(server, table, tmp_path):
    analyst = Analyst(server)
    asked = [("people", {"sql": f"{COUNT} WHERE age < {n}", "loss": {"epsilon": "0.5"}}) for n in (30, 60)]
    analyst.asks(asked)
    before = analyst.asks(asked)
    for change in (lambda: doubled(table), lambda: table.write_bytes(b"no table"), table.unlink):
        change()
        assert analyst.asks(asked * TRIES) == before * TRIES
        assert analyst.asks_at_once(asked * TRIES) == before * TRIES
    server.kill()
    server.start()
    assert analyst.asks(asked * TRIES) == before * TRIES
    assert spent(server) == 1


def test_no_question_reads_the_source_or_waits_for_a_reader(tmp_path, table, monkeypatch):
    form = AskRequest(sql=COUNT, loss={"epsilon": "0.1"})
    with closing(Service(f"sqlite:///{tmp_path}/s.ledger", create=True)) as service:
        service.register("people", source=str(table), domain=DOMAIN, limit="10", more={})
    with closing(Service(f"sqlite:///{tmp_path}/s.ledger")) as service:
        for looked in ("source_files", "open_source"):
            monkeypatch.setattr(f"sfumato_server.tables.{looked}", pytest.fail)
        monkeypatch.setattr("sfumato_server.sources.TablePlaces.admits", pytest.fail)
        loaded = service.loaded("people")
        for _ in range(2):
            assert answer_of(form, service.vault("people", "ana"), form.read(loaded.domain, ())).values
            service.tables._declared.clear()  # noqa: SLF001  (as if it was looked up long ago)


# --- what stewards see, and declare ----------------------------------------------------------------------------------


def test_a_steward_sees_that_files_were_written_and_declares_the_next_version(server, table):
    steward, analyst = server.client("stew", Scope.STEWARD), server.client("ana")
    statement = f"{COUNT} WHERE age < 40"
    first = analyst.ask("people", statement, epsilon="1").rows
    assert steward.reading("people") | {"declared": ""} == {
        "dataset": "people",
        "version": 1,
        "declared": "",
        "declared_by": "stew",
        "written": False,
        "paused": False,
    }
    found = parquet.read_table(table)
    older = found.filter([age >= 40 for age in found["age"].to_pylist()])
    parquet.write_table(concat_tables([found, older]), table)  # no row that the question is about
    assert steward.reading("people")["written"] is True
    assert analyst.ask("people", statement, epsilon="1").rows == first
    assert spent(server) == 1
    assert steward.read_again("people") == {"dataset": "people", "version": 2, "changed": True}
    assert steward.reading("people")["written"] is False
    time.sleep(FOLLOWED)
    replies = [analyst.ask("people", statement, epsilon="1").rows for _ in range(TRIES)]
    assert all(rows == replies[0] for rows in replies)
    assert spent(server) == 2, "charged again, although none of its rows changed"
    assert {each["version"] for each in analyst.datasets()} == {2}


def test_every_worker_answers_of_the_next_version_within_two_seconds(server, table):
    steward, analyst = server.client("stew", Scope.STEWARD), server.client("ana")
    for turn in range(TRIES):  # both workers have read the first version
        analyst.ask("people", f"{COUNT} WHERE age < {50 + turn}", epsilon="0.01")
    doubled(table)
    steward.read_again("people")
    time.sleep(FOLLOWED)
    for turn in range(TRIES):
        found = analyst.ask("people", f"{COUNT} WHERE age < {87 + turn}", epsilon="0.1").rows
        assert found[0]["values"][0]["estimate"] > 1.5 * ROWS


def test_a_reading_declares_the_next_version_whatever_it_finds(server, table):
    """Otherwise an analyst who repeats one question sees whether any row changed."""
    steward, analyst = server.client("stew", Scope.STEWARD), server.client("ana")
    analyst.ask("people", COUNT, epsilon="1")
    found = parquet.read_table(table)
    parquet.write_table(found.take(list(range(len(found)))[::-1]), table, compression="zstd", row_group_size=7)
    assert steward.reading("people")["written"] is True
    assert steward.read_again("people") == {"dataset": "people", "version": 2, "changed": False}
    assert steward.reading("people")["written"] is False
    time.sleep(FOLLOWED)
    second = [analyst.ask("people", COUNT, epsilon="1").rows for _ in range(TRIES)]
    assert second == [second[0]] * TRIES
    assert spent(server) == 2


def test_a_content_that_comes_back_is_another_version(server, table):
    steward, analyst = server.client("stew", Scope.STEWARD), server.client("ana")
    former = table.read_bytes()
    analyst.ask("people", COUNT, epsilon="1")
    doubled(table)
    assert steward.read_again("people")["version"] == 2
    table.write_bytes(former)
    assert steward.read_again("people")["version"] == 3
    time.sleep(FOLLOWED)
    analyst.ask("people", COUNT, epsilon="1")
    assert spent(server) == 2


@pytest.mark.parametrize("change", ["one visit of somebody more", "one row of a public table more"])
def test_a_view_whose_rows_did_not_change_is_charged_in_the_next_version(tmp_path, change):
    server = Server(f"sqlite:///{tmp_path}/s.ledger", workers=2).start()
    try:
        steward, analyst = server.client("stew", Scope.STEWARD), server.client("ana")
        tables = written(tmp_path / "tables")
        steward.register("people", source=str(tables / "hospital"), domain=SCHEMA, limit="10")
        statement = "SELECT sex, COUNT(*) FROM patients WHERE region < 2 GROUP BY sex"
        analyst.ask("people", statement, epsilon="1")
        CHANGES[change](tables)
        assert "nothing" in analyst.ask("people", statement, epsilon="1").cost
        assert steward.read_again("people")["version"] == 2
        assert analyst.ask("people", statement, epsilon="1").cost == "epsilon 1"
        assert spent(server) == 2
    finally:
        server.stop()


def test_a_worker_that_has_not_heard_of_a_version_charges_nothing(tmp_path, table, monkeypatch):
    monkeypatch.setattr(Snapshots, "remove_unneeded", lambda _: None)  # without its rows it would fail otherwise
    url = f"sqlite:///{tmp_path}/s.ledger"
    form = AskRequest(sql=COUNT, loss={"epsilon": "1"})
    with closing(Service(url, create=True)) as service, closing(Service(url)) as other:
        service.register("people", source=str(table), domain=DOMAIN, limit="10", more={})
        query = form.read(service.loaded("people").domain, ())
        late = other.vault("people", "ana")
        doubled(table)
        service.tables.reread(service.loaded("people"))
        with pytest.raises(VersionError) as refused:
            answer_of(form, late, query)
        told = problem_response(refused.value)
        assert (told.status_code, told.headers["Retry-After"]) == (503, "1")
        assert service.loaded("people").ledger.remaining().spent.epsilon == 0
        time.sleep(FOLLOWED)
        assert answer_of(form, other.vault("people", "ana"), query).values[0][0].estimate > 1.5 * ROWS


def test_a_source_that_cannot_be_read_leaves_the_last_version(server, table, tmp_path):
    steward, analyst = server.client("stew", Scope.STEWARD), server.client("ana")
    first = analyst.ask("people", COUNT, epsilon="1").rows
    for change, words in [
        (lambda: table.write_bytes(b"no table"), "not a Parquet file"),
        (table.unlink, "there is no file"),
    ]:
        change()
        told = problem(lambda: steward.read_again("people"))
        assert (told["status"], told["charged"]) == (422, False)
        assert words in told["detail"]
        assert analyst.ask("people", COUNT, epsilon="1").rows == first
        assert len(snapshots(tmp_path)) == 1
    assert problem(lambda: analyst.reading("people"))["status"] == 403
    assert problem(lambda: analyst.read_again("people"))["status"] == 403


def test_the_journal_says_who_declared_what(server, table):
    steward = server.client("stew", Scope.STEWARD)
    doubled(table)
    steward.read_again("people")
    with server.ledger("people") as ledger:
        declared = [each for each in ledger.page(after=0, most=100, analyst=None) if each.kind is Kind.VERSION]
        assert [each.number for each in ledger.data_versions()] == [1, 2]
        ledger.verify()
    assert [each.statement for each in declared] == [f"version {n} of the data, declared by stew" for n in (1, 2)]


# --- the snapshot ----------------------------------------------------------------------------------------------------


def test_nobody_else_may_read_a_snapshot(tmp_path, table):
    before = os.umask(0)
    try:
        with closing(Service(f"sqlite:///{tmp_path}/s.ledger", create=True)) as service:
            service.register("people", source=str(table), domain=DOMAIN, limit="10", more={})
    finally:
        os.umask(before)
    root = tmp_path / "s.ledger.snapshots"
    modes = {each: stat.S_IMODE(each.stat().st_mode) for each in (root, *root.rglob("*"))}
    assert {modes[each] for each in modes if each.is_dir()} == {0o700}
    assert {modes[each] for each in modes if each.is_file()} == {0o600}
    (copy,) = [each for each in modes if each.suffix == ".parquet"]
    assert set(parquet.read_schema(copy).names) == set(DOMAIN["attributes"])


def test_columns_that_no_description_names_are_not_kept(twins):
    (_, tables), _ = twins
    (copy,) = tables.parent.rglob("s.ledger.snapshots/*/table.parquet")
    assert set(parquet.read_schema(copy).names) == {"age", "sex", "income"}


def damaged(folder):
    (copy,) = folder.glob("*.parquet")
    whole = copy.read_bytes()
    copy.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])


@pytest.mark.parametrize("spoil", [shutil.rmtree, damaged])
def test_a_missing_or_changed_snapshot_pauses_its_dataset(server, tmp_path, spoil):
    steward, analyst = server.client("stew", Scope.STEWARD), server.client("ana")
    analyst.ask("people", COUNT, epsilon="1")
    (folder,) = snapshots(tmp_path)
    server.kill()
    spoil(folder)
    server.start()
    for _ in range(TRIES):
        found = problem(lambda: analyst.ask("people", COUNT, epsilon="1"))
        assert (found["type"], found["status"], found["charged"]) == ("/problems/dataset-paused", 503, False)
    assert steward.read_again("people") == {"dataset": "people", "version": 2, "changed": False}
    time.sleep(FOLLOWED)
    second = [analyst.ask("people", COUNT, epsilon="1").rows for _ in range(TRIES)]
    assert second == [second[0]] * TRIES
    assert spent(server) == 2
    assert len(snapshots(tmp_path)) == 1


@pytest.mark.parametrize("changed", [True, False])
def test_a_version_that_a_command_declares_pauses_the_dataset_whatever_changed(server, table, changed):
    """Otherwise an analyst who sees a version declared sees whether any row changed."""
    steward, analyst = server.client("stew", Scope.STEWARD), server.client("ana")
    analyst.ask("people", COUNT, epsilon="1")
    if changed:
        with server.ledger("people") as ledger:
            assert ledger.declare_version("other content", by="operator", new=True).number == 2
    else:
        sf.open(str(table), domain=parse(DOMAIN), ledger=server.url, dataset="people", new_version=True)
    time.sleep(FOLLOWED)
    for _ in range(TRIES):
        assert problem(lambda: analyst.ask("people", COUNT, epsilon="1"))["type"] == "/problems/dataset-paused"
    assert steward.reading("people")["paused"] is True
    assert steward.read_again("people") == {"dataset": "people", "version": 3, "changed": changed}
    time.sleep(FOLLOWED)
    assert analyst.ask("people", f"{COUNT} WHERE age < 50", epsilon="1").rows


def killed(url, table):
    """A steward's reading in a process that dies after the snapshot was written and before its version is declared."""

    def die(*_, **__):
        os._exit(9)

    Snapshots.declare = die
    service = Service(url)
    service.tables.reread(service.loaded("people"))


def test_a_death_between_snapshot_and_declaration_declares_nothing(tmp_path, table):
    url = f"sqlite:///{tmp_path}/s.ledger"
    with closing(Service(url, create=True)) as service:
        service.register("people", source=str(table), domain=DOMAIN, limit="10", more={})
    doubled(table)
    process = multiprocessing.get_context("spawn").Process(target=killed, args=(url, table))
    process.start()
    process.join()
    assert process.exitcode == 9
    assert len(snapshots(tmp_path)) == 2
    with closing(Service(url)) as service:
        assert service.loaded("people").ledger.data_version().number == 1
        assert abs(counted(service) - ROWS) < 60
        service.remove_unneeded()
        assert len(snapshots(tmp_path)) == 1
        assert service.tables.reread(service.loaded("people"))[1]
        assert abs(counted(service) - 2 * ROWS) < 60
        assert len(snapshots(tmp_path)) == 1


def counted(service, epsilon="1"):
    form = AskRequest(sql=COUNT, loss={"epsilon": epsilon})
    asked = answer_of(form, service.vault("people", "ana"), form.read(service.loaded("people").domain, ()))
    return asked.values[0][0].estimate


def test_a_snapshot_in_progress_is_not_deleted(tmp_path, table):
    url = f"sqlite:///{tmp_path}/s.ledger"
    with closing(Service(url, create=True)) as service, closing(Service(url)) as other:
        service.register("people", source=str(table), domain=DOMAIN, limit="10", more={})

        def copied(folder):
            (folder / "part").write_text("x")
            other.remove_unneeded()
            assert (folder / "part").exists()
            return ()

        with service.snapshots.creating(copied, ""):
            assert len(snapshots(tmp_path)) == 2
        assert len(snapshots(tmp_path)) == 1
        assert counted(service)


def test_a_disk_that_is_full_leaves_the_last_version_and_nothing_else(tmp_path, table):
    url = f"sqlite:///{tmp_path}/s.ledger"
    with closing(Service(url, create=True)) as service:
        service.register("people", source=str(table), domain=DOMAIN, limit="10", more={})
        noise = np.random.default_rng(1).random(400_000)
        people = {"age": np.arange(400_000) % 99, "sex": ["F"] * 400_000, "income": noise}
        parquet.write_table(pa.table(people), table)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, limits[1]))
        try:
            with pytest.raises(RefusalError) as refused:
                service.tables.reread(service.loaded("people"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert (refused.value.kind, refused.value.status) == ("snapshot-unwritable", 503)
        assert str(tmp_path / "s.ledger.snapshots") in refused.value.detail
        assert len(snapshots(tmp_path)) == 1
        assert abs(counted(service) - ROWS) < 60


def test_a_retired_dataset_has_no_snapshot_and_is_paused_when_it_returns(tmp_path, table):
    url = f"sqlite:///{tmp_path}/s.ledger"
    with closing(Service(url, create=True)) as service:
        service.register("people", source=str(table), domain=DOMAIN, limit="10", more={})
        counted(service)
        service.retire("people", retired=True)
        assert snapshots(tmp_path) == []
        service.retire("people", retired=False)
        with pytest.raises(RefusalError, match="until a steward") as refused:
            counted(service)
        assert refused.value.kind == "dataset-paused"
        assert service.tables.is_paused(service.loaded("people"))
        assert service.tables.reread(service.loaded("people"))[1] is False
        assert abs(counted(service) - ROWS) < 60


def test_ledgers_share_a_folder_for_snapshots_without_touching_each_other(tmp_path, table):
    services = []
    for name in ("one", "two"):
        url = f"sqlite:///{tmp_path}/{name}.ledger"
        services.append(Service(url, create=True, snapshots=str(tmp_path / "kept")))
        services[-1].register("people", source=str(table), domain=DOMAIN, limit="10", more={})
    for service in services:
        service.remove_unneeded()
        service.tables.drop("people")
        assert counted(service)
        service.close()
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_a_postgres_ledger_keeps_them_in_the_state_folder(tmp_path, table, postgres, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    with closing(Service(postgres, create=True)) as service:
        service.register("people", source=str(table), domain=DOMAIN, limit="10", more={})
        assert counted(service)
    assert len(list(Path(tmp_path / "state/sfumato/snapshots").glob("*/*/table.parquet"))) == 1


# --- tables of databases ---------------------------------------------------------------------------------------------


@pytest.fixture
def database(postgres):
    """An engine of a database, and an address of it that no other test uses."""
    address = make_url(postgres)
    engine = create_engine(address.set(drivername="postgresql+psycopg"))
    yield engine, address
    engine.dispose()


def test_a_table_of_a_database_is_answered_from_its_snapshot_too(tmp_path, database):
    engine, address = database
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE folk AS SELECT 30 AS age FROM generate_series(1, 1000)"))
    source, passwords = with_source_passwords(address.update_query_dict({"table": "folk"}), tmp_path)
    domain = {**DOMAIN, "attributes": {"age": DOMAIN["attributes"]["age"]}}
    more = ("--source-passwords", str(passwords))
    server = Server(f"sqlite:///{tmp_path}/s.ledger", workers=2, more=more).start()
    try:
        steward, analyst = server.client("stew", Scope.STEWARD), server.client("ana")
        steward.register("people", source=source, domain=domain, limit="1e6")
        with engine.begin() as connection:
            connection.execute(text("INSERT INTO folk SELECT 40 FROM generate_series(1, 2000)"))
        assert {count_below(analyst, 50 + turn) for turn in range(TRIES)} == {1000}
        assert steward.reading("people")["written"] is None
        assert steward.read_again("people")["changed"]
        time.sleep(FOLLOWED)
        assert {count_below(analyst, 70 + turn) for turn in range(TRIES)} == {3000}
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE folk"))
        server.kill()
        server.start()
        assert {count_below(analyst, 85 + turn) for turn in range(TRIES)} == {3000}
        assert problem(lambda: steward.read_again("people"))["status"] in (422, 503)
    finally:
        server.stop()


def count_below(analyst, age):
    """At a loss so large that there is no noise, but for once in e^1000."""
    found = analyst.ask("people", f"{COUNT} WHERE age < {age}", epsilon="1e4")
    return found.rows[0]["values"][0]["estimate"]


def test_tables_of_a_database_are_answered_from_their_snapshot_too(tmp_path, database):
    engine, address = database
    mark = secrets.token_hex(8)
    folk, trips = f"folk_{mark}", f"trips_{mark}"
    age = {"type": "integer", "minimum": 0, "maximum": 99, "unknown": "clamp"}
    schema = {
        "sfumato": 2,
        "schema": "travels",
        "unit": {"id": "person", "table": folk},
        "tables": {
            folk: {"key": "person", "attributes": {"age": age}},
            trips: {"unit": "person", "rows": 2, "attributes": {"days": age}},
        },
    }
    with engine.begin() as connection:
        connection.execute(text(f"CREATE TABLE {folk} AS SELECT n AS person, 30 AS age FROM generate_series(1, 100) n"))
        connection.execute(text(f"CREATE TABLE {trips} AS SELECT n AS person, 3 AS days FROM generate_series(1, 50) n"))
    source, passwords = with_source_passwords(address, tmp_path)
    more = ("--source-passwords", str(passwords))
    server = Server(f"sqlite:///{tmp_path}/s.ledger", workers=1, more=more).start()
    try:
        steward, analyst = server.client("stew", Scope.STEWARD), server.client("ana")
        steward.register("travels", source=source, domain=schema, limit="1e6")
        with engine.begin() as connection:
            connection.execute(text(f"DROP TABLE {folk}, {trips}"))
        statement = f"SELECT COUNT(*) FROM {trips} JOIN {folk} USING (person)"
        for epsilon in ("1e4", "2e4"):
            assert analyst.ask("travels", statement, epsilon=epsilon).rows[0]["values"][0]["estimate"] == 50
        assert "nothing" in analyst.ask("travels", statement, epsilon="2e4").cost
    finally:
        server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True])
def test_tables_on_spark_are_answered_by_spark_from_their_snapshot(tmp_path, several):
    cluster.session()
    source, domain = f"spark:{write_people(tmp_path / 'people.parquet')}", DOMAIN
    if several:
        source, domain = f"spark:{write_hospital(tmp_path / 'hospital')}", SCHEMA
    with closing(Service(f"sqlite:///{tmp_path}/s.ledger", create=True)) as service:
        service.register("people", source=source, domain=domain, limit="1e6", more={})
    shutil.rmtree(tmp_path / "hospital", ignore_errors=True)
    (tmp_path / "people.parquet").unlink(missing_ok=True)
    with closing(Service(f"sqlite:///{tmp_path}/s.ledger")) as service:
        form = AskRequest(sql=VISITS if several else COUNT, loss={"epsilon": "1e4"})
        asked = read_question(service.loaded("people"), form)
        holder = service.registry.issue("ana", Scope.ANALYST, timedelta(days=1))[0]
        found = asked.answer(form, service.loaded("people"), holder, service, None)
        assert found.values[0][0].estimate == (800 if several else ROWS)
        assert sum(each.suffix == ".parquet" for each in service.snapshots.folder.rglob("part-*")) >= 1


# --- discoverable columns, and second names ---------------------------------------------------------------------------


def test_a_column_whose_values_may_be_discovered_is_in_the_snapshot(tmp_path, table):
    server = Server(f"sqlite:///{tmp_path}/s.ledger", workers=1).start()
    try:
        steward, analyst = server.client("stew", Scope.STEWARD), server.client("ana")
        towned(table, "Bonn")
        steward.register("people", source=str(table), domain=DOMAIN, limit="10,1e-3", discoverable=["town"])
        by_town = "SELECT town, COUNT(*) FROM people GROUP BY town"
        assert steward.read_again("people")["changed"] is False
        towned(table, "Trier")
        first = analyst.ask("people", by_town, epsilon="1", delta="1e-6").rows
        assert [row["key"] for row in first] == [["Bonn"]]
        assert steward.read_again("people")["changed"] is True
        second = analyst.ask("people", by_town, epsilon="1", delta="1e-6").rows
        assert [row["key"] for row in second] == [["Trier"]]
        found = problem(lambda: steward.register("again", source=str(table), domain=DOMAIN, limit="10"))
        assert found["type"] == "/problems/table-registered", "the same rows, whatever may be discovered of them"
    finally:
        server.stop()


def towned(table, town):
    """The same rows, all in one town, which the domain does not know."""
    found = parquet.read_table(table)
    found = found.drop_columns([name for name in ["town"] if name in found.column_names])
    parquet.write_table(found.append_column("town", [[town] * len(found)]), table)


def test_a_second_name_is_a_second_budget_only_when_confirmed(server, table, tmp_path):
    steward = server.client("stew", Scope.STEWARD)
    copy, link = tmp_path / "copy.parquet", tmp_path / "link.parquet"
    shutil.copy(table, copy)
    link.symlink_to(table)
    for name, source in [("again", table), ("copied", copy), ("linked", link)]:
        found = problem(lambda: steward.register(name, source=str(source), domain=DOMAIN, limit="10"))  # noqa: B023
        assert (found["type"], found["status"], found["charged"]) == ("/problems/table-registered", 409, False)
        assert "'people'" in found["detail"]
        assert "add up" in found["detail"]
    assert [each["name"] for each in steward.datasets()] == ["people"]
    steward.register("again", source=str(table), domain=DOMAIN, limit="10", second_budget=True)
    assert [each["name"] for each in steward.datasets()] == ["again", "people"]


def test_a_steward_learns_why_a_table_cannot_be_registered(server, table, tmp_path):
    steward = server.client("stew", Scope.STEWARD)
    other = {**DOMAIN, "attributes": {"nobody": DOMAIN["attributes"]["age"]}}
    unreachable = "postgresql://u@127.0.0.1:1/x?table=people"
    cases = [
        ({"source": "/nosuch.csv", "domain": DOMAIN}, 422, "there is no file /nosuch.csv"),
        ({"source": str(tmp_path), "domain": other}, 422, "nobody"),
        ({"source": str(table), "domain": other}, 422, "nobody"),
        ({"source": str(table), "domain": DOMAIN, "discoverable": ["stadt"]}, 422, "no column 'stadt'"),
        ({"source": unreachable, "domain": DOMAIN}, 503, "127.0.0.1:1"),
    ]
    for terms, status, words in cases:
        found = problem(lambda: steward.register("new", limit="1", **terms))  # noqa: B023
        assert (found["status"], found["charged"]) == (status, False)
        assert words in found["detail"]
    taken = problem(lambda: steward.register("people", source=str(table), domain=DOMAIN, limit="1"))
    assert (taken["type"], taken["status"]) == ("/problems/dataset-exists", 409)
