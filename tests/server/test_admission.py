"""Tables of named places only, and limits on the requests per key."""

from __future__ import annotations

import shutil
from contextlib import suppress

import httpx
import pytest
from tests.server.serving import DOMAIN, Server, write_people

from sfumato.app.http_client import ServerError
from sfumato_server.access import RateLimiter
from sfumato_server.problems import RefusalError
from sfumato_server.registry import Scope
from sfumato_server.sources import TablePlaces


@pytest.fixture
def folders(tmp_path):
    """A folder whose tables are served, and one whose are not, with a way over by a link."""
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
        write_people(tmp_path / name / "people.parquet")
    (tmp_path / "in" / "link.parquet").symlink_to(tmp_path / "out" / "people.parquet")
    (tmp_path / "in" / "over").symlink_to(tmp_path / "out")
    return tmp_path


@pytest.mark.parametrize(
    ("source", "admitted"),
    [
        ("{}/in/people.parquet", True),
        ("{}/in", False),  # link.parquet is read with it
        ("spark:{}/in", False),
        ("{}/in/*.parquet", False),  # link.parquet leads out
        ("{}/in/p*.parquet", True),
        ("{}/in/none*.parquet", True),
        ("{}/in/people.csv", True),  # missing, which the opening code reports
        ("spark:{}/in/people.parquet", True),
        ("{}/out/people.parquet", False),
        ("{}/in/../out/people.parquet", False),
        ("{}/in/*/../../out/people.parquet", False),
        ("{}/in/link.parquet", False),
        ("{}/in/over/people.parquet", False),
        ("{}/inner/people.parquet", False),
        ("{}/*/people.parquet", False),
        ("spark:{}/out/people.parquet", False),
        ("spark:/etc/passwd", False),
        ("spark:file:{}/out/people.parquet", False),
        ("spark:{}/in/{{people,../../out/people}}.parquet", False),
        ("spark:people", False),
        ("{}/in/" + "x" * 400 + ".csv", False),
        ("{}/in/x\0.csv", False),
        ("postgresql://db.example/census?table=people", True),
        ("postgresql://ann:pw@db.example/census?table=people", True),
        ("postgresql://db.example:5433/census?table=people", False),
        ("mysql://db.example:3307/census?table=people", True),
        ("postgresql://db.example/census?table=people&host=other.example", False),
        ("postgresql://db.example/census?table=people&hostaddr=10.0.0.1", False),
        ("postgresql://db.example/census?table=people&port=6000", False),
        ("postgresql://db.example,other.example/census?table=people", False),
        ("postgresql:///census?table=people", False),
        ("postgresql://other.example/db.example?table=people", False),
        ("postgresql://other.example/census?table=people#db.example", False),
    ],
)
def test_a_table_is_served_from_named_places_only(folders, source, admitted):
    places = TablePlaces((str(folders / "in"), "db.example", "db.example:3307"))
    assert places.admits(source.format(folders)) == admitted
    assert TablePlaces().admits(source.format(folders))


def test_the_catalogue_of_spark_is_a_place_of_its_own():
    assert TablePlaces(("spark",)).admits("spark:people")
    assert not TablePlaces(("spark",)).admits("spark:/etc/passwd")


def test_a_sixth_of_a_minutes_requests_may_come_at_once_and_then_their_rate():
    now = [100.0]
    pace = RateLimiter(600, clock=lambda: now[0])

    def admitted(key, tries):
        found = 0
        for _ in range(tries):
            with suppress(RefusalError):
                pace.take(key)
                found += 1
        return found

    assert admitted("a", 300) == 100
    assert admitted("b", 7) == 7  # each key has its own
    with pytest.raises(RefusalError) as refused:
        pace.take("a")
    assert (refused.value.kind, refused.value.status, refused.value.after) == ("too-many-requests", 429, 1)
    now[0] += 1.0
    assert admitted("a", 300) == 10
    now[0] += 3600.0
    assert admitted("a", 300) == 100


def test_any_number_of_requests_where_there_is_no_rate():
    pace = RateLimiter(0)
    for _ in range(10_000):
        pace.take("a")


def test_a_server_refuses_tables_of_other_places_and_too_many_requests(folders):
    server = Server(f"sqlite:///{folders}/s.ledger", workers=1, more=("--tables", str(folders / "in"), "--rate", "60"))
    server.start()
    try:
        with server.client("stew", Scope.STEWARD) as steward:
            for source in (folders / "out" / "people.parquet", "spark:/etc/passwd"):
                with pytest.raises(ServerError) as refused:
                    steward.register("people", source=str(source), domain=DOMAIN, limit="1")
                assert refused.value.kind == "place-refused"
            steward.register("people", source=str(folders / "in" / "people.parquet"), domain=DOMAIN, limit="1")
        header = {"Authorization": f"Bearer {server.key('ana', Scope.ANALYST)}"}
        with httpx.Client(base_url=server.address, headers=header, timeout=60, trust_env=False) as client:
            replies = [client.get("/v1/datasets") for _ in range(30)]
        assert {reply.status_code for reply in replies} == {200, 429}
        late = next(reply for reply in replies if reply.status_code == 429)
        assert late.json()["type"] == "/problems/too-many-requests"
        assert 1 <= int(late.headers["Retry-After"]) <= 60
        assert late.json()["charged"] is False
    finally:
        server.stop()


def test_a_table_that_lies_elsewhere_by_now_is_not_read_again(folders):
    where = ("--tables", str(folders / "in"))
    server = Server(f"sqlite:///{folders}/s.ledger", workers=1, more=where).start()
    people = folders / "in" / "people.parquet"
    try:
        with server.client("stew", Scope.STEWARD) as steward:
            steward.register("people", source=str(people), domain=DOMAIN, limit="1")
            people.unlink()
            people.symlink_to(folders / "out" / "people.parquet")  # with the same rows
            with pytest.raises(ServerError) as refused:
                steward.read_again("people")
            assert refused.value.kind == "place-refused"
            with server.client("ana") as analyst:  # what was read when it lay where tables are served
                assert analyst.ask("people", "SELECT COUNT(*) FROM people", epsilon="0.1").rows
            assert steward.reading("people")["version"] == 1
    finally:
        server.stop()


def test_a_file_that_is_no_table_starts_no_spark(tmp_path, monkeypatch):
    from sfumato.engine.spark import spark_table
    from sfumato.errors import TableError

    monkeypatch.setattr(spark_table, "session", pytest.fail)
    secret = tmp_path / "passwd"
    shutil.copy(__file__, secret)
    with pytest.raises(TableError, match="finds no table"):
        spark_table.spark_table(f"spark:{secret}")
