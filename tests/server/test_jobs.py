"""Jobs report their progress, and fail when their worker has died."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta

import pytest

from sfumato.ledger.store import Store
from sfumato_server import work
from sfumato_server.registry import Registry
from sfumato_server.work import State


@pytest.fixture
def jobs(url):
    with closing(Store(url)) as store:
        store.prepare(create=True)
        yield Registry(store).jobs


@pytest.fixture
def dead(jobs, monkeypatch):
    """Make every worker silent for too long."""
    monkeypatch.setattr(jobs, "lease", timedelta(microseconds=-1))


def test_a_job_is_queued_runs_and_is_done(jobs):
    job = jobs.add("people", "ann", {"method": "histogram"}, most=9)
    assert (jobs.job(job).state, jobs.job(job).progress) == (State.QUEUED, 0)
    jobs.advance(job, 0.5, "half")
    assert (jobs.job(job).state, jobs.job(job).note) == (State.RUNNING, "half")
    jobs.finish(job, {"guarantee": "some"}, b"a,b")
    assert (jobs.job(job).state, jobs.job(job).statement, jobs.rows(job)) == (State.DONE, {"guarantee": "some"}, b"a,b")
    assert jobs.job("none") is None


@pytest.mark.parametrize("started", [True, False])
def test_a_job_whose_worker_died_has_failed_and_says_what_became_of_the_charge(jobs, dead, started):
    job = jobs.add("people", "ann", {}, most=9)
    if started:
        jobs.advance(job, 0.5, "half")
    found = jobs.job(job)
    assert found.state is State.FAILED
    assert "the charge stands" in found.note
    jobs.renew_lease(job)
    assert jobs.job(job).state is State.FAILED


def test_a_worker_that_says_so_is_alive(jobs):
    job = jobs.add("people", "ann", {}, most=9)
    before = jobs.job(job).updated
    jobs.renew_lease(job)
    assert jobs.job(job).updated > before
    assert jobs.job(job).state is State.QUEUED


def test_a_job_that_stirs_while_it_is_buried_lives(jobs, dead, monkeypatch):
    job = jobs.add("people", "ann", {}, most=9)
    writing = Store.writing

    def stirred(store):
        monkeypatch.undo()
        jobs.renew_lease(job)
        return writing(store)

    monkeypatch.setattr(Store, "writing", stirred)  # is called for the burial
    assert jobs.job(job).state is State.QUEUED


def test_what_is_over_stays_over(jobs, dead):
    done, failed = (jobs.add("people", "ann", {}, most=9) for _ in range(2))
    jobs.finish(done, {}, b"")
    jobs.fail(failed, "no budget")
    assert jobs.job(done).state is State.DONE
    assert jobs.job(failed).note == "no budget"


def test_a_buried_job_stays_buried_unless_it_brings_its_rows(jobs, dead):
    job = jobs.add("people", "ann", {}, most=9)
    assert jobs.job(job).state is State.FAILED
    said = jobs.job(job).note
    jobs.advance(job, 0.9, "nearly")
    jobs.fail(job, "something else")
    assert (jobs.job(job).state, jobs.job(job).note) == (State.FAILED, said)
    jobs.finish(job, {"guarantee": "some"}, b"a,b")
    assert (jobs.job(job).state, jobs.rows(job)) == (State.DONE, b"a,b")
    jobs.fail(job, "too late")
    assert jobs.job(job).state is State.DONE


def test_each_owner_has_so_many_open_jobs_and_no_more(jobs):
    with ThreadPoolExecutor(4) as pool:
        added = list(pool.map(lambda _: jobs.add("people", "ann", {}, most=2), range(4)))
    kept = [job for job in added if job is not None]
    assert len(kept) == 2
    assert jobs.add("people", "bob", {}, most=2) is not None
    jobs.finish(kept[0], {}, b"")
    assert jobs.add("people", "ann", {}, most=2) is not None
    assert jobs.add("others", "ann", {}, most=2) is None


def test_jobs_whose_worker_died_do_not_count(jobs, dead):
    assert all(jobs.add("people", "ann", {}, most=1) for _ in range(2))


def test_the_newest_questions_of_an_owner_and_dataset_are_kept(jobs, monkeypatch):
    monkeypatch.setattr(work, "_MAX_QUESTIONS", 3)
    made = jobs.add("people", "ann", {}, most=9)
    for other in (("people", "bob"), ("others", "ann")):
        jobs.remember_question(*other, {"words": "theirs"})
    for number in (1, 2, 3, 1, 4):
        jobs.remember_question("people", "ann", {"words": str(number)})
    assert [each.request["words"] for each in jobs.questions("people", "ann", most=9)] == ["4", "1", "3"]
    assert [each.request["words"] for each in jobs.questions("people", "ann", most=2)] == ["4", "1"]
    for other in (("people", "bob"), ("others", "ann")):
        assert [each.request["words"] for each in jobs.questions(*other, most=9)] == ["theirs"]
    assert [each.id for each in jobs.releases("people", "ann", most=9)] == [made]


def test_questions_are_found_by_the_key_of_their_table(tmp_path):
    with closing(Store(f"sqlite:///{tmp_path / 'test.ledger'}")) as store:
        store.prepare(create=True)
        found = "EXPLAIN QUERY PLAN SELECT id FROM service_job WHERE " + work._OF_OWNER  # noqa: S608, SLF001
        with store.reading() as driver:
            plan = driver.rows(found, {"first": "q0", "last": "qf"})
    assert "SEARCH service_job USING" in str(plan)
