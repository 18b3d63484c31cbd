"""The clients of other languages, run as their users run them against a real server and against another program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from shutil import which

import pytest
from tests.app.http.serving import serving, write_people

from sfumato.app.http.registry import Scope

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


@pytest.mark.skipif(which("node") is None, reason="Node is not installed")
def test_the_client_for_node_and_browsers(environment):
    check(found_by(["node", str(CLIENTS / "typescript" / "check.mjs")], environment))


@pytest.mark.skipif(which("Rscript") is None, reason="R is not installed; 'scripts/services r' installs it")
def test_the_client_for_r(environment):
    source, checked = (str(CLIENTS / "r" / name) for name in ("R/client.R", "tests/check.R"))
    check(found_by(["Rscript", "-e", f"source({source!r}); source({checked!r})"], environment))


def test_types_are_those_that_the_server_describes():
    script = CLIENTS.parent / "scripts" / "client-types"
    loader = SourceFileLoader("client_types", str(script))
    spec = spec_from_loader("client_types", loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules["client_types"] = module
    loader.exec_module(module)
    written = (CLIENTS / "typescript" / "api.d.ts").read_text(encoding="utf-8")
    assert module.declared(module.schemas_of_server()).strip() == written.strip()
