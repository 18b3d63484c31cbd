"""Related tables made in the background: charged once, under common terms, refused uncharged, fetched whole."""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections import Counter

import httpx
import pytest
from pyarrow import csv, parquet
from tests.server.hospital import SCHEMA, write_hospital
from tests.server.serving import Server

from sfumato.app.api.questions import validate_fields
from sfumato.app.api.releases import SynthesisFields
from sfumato.app.cli.options import database
from sfumato.app.http_client import ServerError
from sfumato.errors import InputError
from sfumato_server.registry import Scope

VISITS = {"table": "visits", "order": "cost", "falling": True, "most": 2}
ASKED = {"method": "related", "children": [VISITS]}


@pytest.fixture(scope="module")
def hospital(tmp_path_factory):
    folder = tmp_path_factory.mktemp("linked")
    started = Server(database(str(folder / "s.ledger")), workers=1).start()
    try:
        with started.client("stew", Scope.STEWARD) as steward:
            source = str(write_hospital(folder / "hospital"))
            steward.register("hospital", source=source, domain=SCHEMA, limit="1e6,1e-3")
        yield started
    finally:
        started.stop()


def finished(client, job):
    deadline = time.monotonic() + 240
    while (found := client.progress(job))["state"] not in ("done", "failed"):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def unpacked(file: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(file)) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def spent(started):
    with started.ledger("hospital") as ledger:
        return ledger.remaining().spent


def test_related_tables_are_made_once_and_fetched_whole(hospital):
    with hospital.client("ana") as client:
        job = client.release("hospital", **ASKED, epsilon="3", delta="1e-6")
        said = finished(client, job)
        assert said["state"] == "done", said["note"]
        statement = said["statement"]
        assert "all its tables (at most 2 of visits are kept)" in statement["guarantee"]
        assert statement["related"]["children"][0]["order"] == {"by": "cost", "falling": True}
        files = unpacked(client.tables(job, parquet=True))
        assert sorted(files) == ["codebook.md", "patients.parquet", "release.json", "visits.parquet"]
        assert json.loads(files["release.json"])["codebook"] == statement["codebook"]
        tables = {name: parquet.read_table(io.BytesIO(files[f"{name}.parquet"])) for name in ("patients", "visits")}
        assert set(tables["visits"]["patient_id"].to_pylist()) <= set(tables["patients"]["patient_id"].to_pylist())
        texts = unpacked(client.tables(job))
        assert csv.read_csv(io.BytesIO(texts["visits.csv"])).to_pydict() == tables["visits"].to_pydict()
        with pytest.raises(ServerError):  # several tables are no text of one
            client.rows(job)
        before = spent(hospital)
        again = client.release("hospital", **ASKED, epsilon="3", delta="1e-6")
        assert "nothing" in finished(client, again)["statement"]["cost"]
        assert unpacked(client.tables(again))["visits.csv"] == texts["visits.csv"]
        assert spent(hospital) == before
    with hospital.client("eve") as other, pytest.raises(ServerError, match="no such release"):
        other.tables(job)
    cookies = hospital.session("ana", Scope.ANALYST)
    with httpx.Client(base_url=hospital.address, cookies=cookies, trust_env=False, timeout=60) as browser:
        assert "ZIP file with their codebook" in browser.get(f"/releases/{job}").text


def test_rows_of_rows_are_made_to_the_end_and_fetched(hospital):
    """Diagnoses of visits: every one is of a visit of the release, and no visit or patient has more than are kept."""
    asked = {"method": "related", "children": [VISITS, {"table": "diagnoses", "most": 2}]}
    loss = {"epsilon": "5", "delta": "1e-6"}
    with hospital.client("gil") as client:
        before = spent(hospital)
        job = client.release("hospital", **asked, **loss)
        said = finished(client, job)
        assert said["state"] == "done", said["note"]
        assert "(at most 2 of visits, 4 of diagnoses are kept)" in said["statement"]["guarantee"]
        files = unpacked(client.tables(job, parquet=True))
        assert sorted(files) == [
            "codebook.md", "diagnoses.parquet", "patients.parquet", "release.json", "visits.parquet"
        ]  # fmt: skip
        visits, diagnoses = (
            parquet.read_table(io.BytesIO(files[f"{name}.parquet"])) for name in ("visits", "diagnoses")
        )
        assert len(diagnoses) > 0
        patient = dict(zip(visits["visit_id"].to_pylist(), visits["patient_id"].to_pylist(), strict=True))
        of_visit = Counter(diagnoses["visit_id"].to_pylist())
        assert len(patient) == len(visits)
        assert set(of_visit) <= set(patient)
        assert max(of_visit.values()) <= 2
        of_patient = Counter(patient[visit] for visit in of_visit.elements())
        assert max(of_patient.values()) <= 4
        charged = spent(hospital)
        assert charged != before
        again = client.release("hospital", **asked, **loss)
        assert "nothing" in finished(client, again)["statement"]["cost"]
        rows = {name: file for name, file in files.items() if name != "release.json"}  # which says what it cost
        assert unpacked(client.tables(again, parquet=True)).items() >= rows.items()
        assert spent(hospital) == charged


def test_they_are_asked_for_on_the_page(hospital):
    cookies = hospital.session("dan", Scope.ANALYST)
    with httpx.Client(base_url=hospital.address, cookies=cookies, trust_env=False, timeout=60) as browser:
        form = {"method": "related", "epsilon": "4", "delta": "1e-6"}
        before = spent(hospital)
        for children, says in (
            ("table: visits", "Tables are a list in YAML"),
            ("- {table: beds}", "no child table here"),
            ("- {table: visits, many: 2}", "many"),
        ):
            refused = browser.post("/datasets/hospital/releases", data=form | {"children": children})
            assert (refused.status_code, says in refused.text) == (422, True)
        assert spent(hospital) == before
        asked = browser.post("/datasets/hospital/releases", data=form | {"children": "- {table: visits, most: 2}"})
        assert asked.status_code == 303
        job = asked.headers["location"].rpartition("/")[2]
    with hospital.client("dan") as client:
        assert finished(client, job)["statement"]["related"]["children"][0]["most"] == 2


def test_what_a_delta_would_give_is_told_and_what_never_fits_is_refused_at_once(hospital):
    before = spent(hospital)
    with hospital.client("flo") as client:
        with pytest.raises(
            ServerError, match=r"without a delta counts as rho = 12500000; with a delta of 0\.001 it asks"
        ):
            client.release("hospital", **ASKED, epsilon="5000")
        assert spent(hospital) == before
        pure = finished(client, client.release("hospital", **ASKED, epsilon="4"))
        assert pure["advice"][0].startswith("epsilon = 4 without a delta (rho = 8) leaves noise of about ")
        assert finished(client, client.release("hospital", **ASKED, epsilon="4", delta="1e-5"))["advice"] == []


def test_terms_of_the_dataset_hold_for_related_tables(hospital):
    """A cap that is too small fails the job; who is shut out is not let in; nothing is charged."""
    before = spent(hospital)
    with hospital.client("stew", Scope.STEWARD) as steward, hospital.client("bea") as client:
        steward.cap("hospital", "bea", epsilon="0.5", delta="1e-6")
        failed = finished(client, client.release("hospital", **ASKED, epsilon="2", delta="1e-6"))
        assert (failed["state"], "budget" in failed["note"]) == ("failed", True)
        steward.set_terms("hospital", most="1,1e-6")
        with pytest.raises(ServerError) as caught:
            client.release("hospital", **ASKED, epsilon="2", delta="1e-6")
        assert caught.value.problem["charged"] is False
        steward.set_terms("hospital")
        steward.shut_out("hospital", "bea")
        with pytest.raises(ServerError):
            client.release("hospital", **ASKED, epsilon="0.1", delta="1e-6")
    assert spent(hospital) == before


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"children": [{"table": "beds"}]}, "no child table here; visits, diagnoses are"),
        ({"children": [{"table": "diagnoses"}]}, "belongs to rows of visits, which is not synthesized before it"),
        ({"children": [VISITS | {"order": "name"}]}, "none of its attributes"),
        ({"children": [VISITS | {"final": ["cost", "never"]}]}, "cannot end with cost = never"),
        ({"children": [VISITS, VISITS]}, "named twice"),
        ({"children": [VISITS | {"most": 4}]}, "at most the 3 rows that the schema bounds"),
        ({"attributes": ["cost"]}, "neither attributes nor rules"),
        ({"method": "auto"}, "leave them out|several tables"),
    ],
)
def test_what_cannot_be_made_is_refused_uncharged(hospital, asked, says):
    before = spent(hospital)
    with hospital.client("cleo") as client, pytest.raises(ServerError, match=says) as caught:
        client.release("hospital", **(ASKED | asked), epsilon="1", delta="1e-6")
    assert caught.value.problem["charged"] is False
    assert spent(hospital) == before


def test_one_table_has_no_related_ones():
    form = validate_fields(SynthesisFields, {"method": "related", "loss": {"epsilon": "1"}})
    with pytest.raises(InputError, match="one table"):
        form.linked(None)
