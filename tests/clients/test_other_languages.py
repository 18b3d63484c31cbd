"""The clients of other languages, run as their users run them against a real server and against another program."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from shutil import which

import pytest
from tests.server.hospital import write_hospital
from tests.server.serving import serving, write_people

from sfumato_server.registry import Scope

CLIENTS = Path(__file__).parents[2] / "clients"
SECONDS = 300  # on a machine that does much else

pytestmark = pytest.mark.slow


class Other(BaseHTTPRequestHandler):
    """Another program: it says nothing of what it sends, and everything is well."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clients")
    other = HTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    with serving(f"sqlite:///{folder}/s.ledger", write_people(folder / "people.parquet")) as started:
        yield {
            "SFUMATO_ADDRESS": started.address,
            "SFUMATO_KEY": started.key("ana", Scope.ANALYST),
            "SFUMATO_OTHER": f"http://127.0.0.1:{other.server_port}",
            "SFUMATO_STEWARD": started.key("stella", Scope.STEWARD),
            "SFUMATO_PEOPLE": str(folder / "people.parquet"),
            "SFUMATO_HOSPITAL": str(write_hospital(folder / "hospital")),
        }
    other.shutdown()
    other.server_close()


def found_by(command, environment):
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check(found):
    names = found["datasets"]
    assert ([names] if isinstance(names, str) else names) == ["people"]
    assert found["confidence"] == 0.9
    assert found["groups"] == ["F", "M", "(missing)", "(other)"]
    assert found["whole"] is True
    assert found["same"] is True
    assert "nothing" in found["cost"]
    assert found["epsilon"] > 0
    assert found["half"] > 0
    assert found["query"] == 1
    assert found["refused"]["charged"] is False
    assert "The key is not known" in found["unknown"]["message"]
    assert found["foreign"]["message"].startswith("no reply of a Sfumato server")
    assert found["rows"]["message"].startswith("no reply of a Sfumato server")
    assert found["silent"]["message"].startswith("no reply from http://127.0.0.1:9")
    check_steward(found["steward"])


def check_steward(found):
    assert (found["accepted"], found["zip"], found["terms"], found["months"]) == ("stella", True, "0.1", 4)
    assert "needs the approval of a second steward" in found["needed"]
    assert found["cost"] == "epsilon 0.25"
    assert found.get("same", True) is True
    assert (found["parquet"], found["closed"], found["left"], found["journal"]) == ("PAR1", True, 0, 3)
    assert found["renamed"].startswith("quarters_")
    assert found["retired"] is True
    assert found["refused"]["charged"] is False


@pytest.mark.skipif(which("node") is None, reason="Node is not installed")
def test_the_client_for_node_and_browsers(environment):
    check(found_by(["node", str(CLIENTS / "typescript" / "check.mjs")], environment))


@pytest.mark.skipif(which("npm") is None, reason="npm is not installed")
def test_types_are_right_and_wrong_programs_are_refused_by_the_compiler(tmp_path):
    folder = shutil.copytree(CLIENTS / "typescript", tmp_path / "typescript")
    options = ["--silent", "--no-audit", "--no-fund"]
    installed = subprocess.run(["npm", "install", *options], cwd=folder, capture_output=True, text=True, check=False)
    if not (folder / "node_modules" / "typescript").exists():
        pytest.skip(f"no package typescript: {installed.stderr[-200:]}")
    done = subprocess.run(["npm", "run", "types"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(which("node") is None, reason="Node is not installed")
def test_every_method_has_a_type():
    listed = (
        "import('./client.js').then(m => console.log(Object.getOwnPropertyNames(m.SfumatoClient.prototype).join()))"
    )
    done = subprocess.run(
        ["node", "-e", listed], cwd=CLIENTS / "typescript", capture_output=True, text=True, check=True
    )
    declared = (CLIENTS / "typescript" / "client.d.ts").read_text(encoding="utf-8").partition("class SfumatoClient")[2]
    assert re.findall(r"^  (\w+)\(", declared, re.MULTILINE) == done.stdout.strip().split(",")


def test_every_function_of_the_r_client_is_exported_and_every_export_is_there():
    text = (CLIENTS / "r" / "R" / "client.R").read_text(encoding="utf-8")
    exported = (CLIENTS / "r" / "NAMESPACE").read_text(encoding="utf-8")
    assert set(re.findall(r"^(sfumato_\w+) <- function", text, re.MULTILINE)) == set(
        re.findall(r"sfumato_\w+", exported.partition(")")[0])
    )


@pytest.mark.skipif(which("Rscript") is None, reason="R is not installed; 'scripts/services r' installs it")
def test_the_client_for_r(environment):
    source, checked = (str(CLIENTS / "r" / name) for name in ("R/client.R", "tests/check.R"))
    check(found_by(["Rscript", "-e", f"source({source!r}); source({checked!r})"], environment))
