"""The instructions of docs/how-to/serve.md for operators are executed, up to the restore of a backup."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv
from tests.server.serving import free_port

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
DOMAIN = """sfumato: 1
unit: row
attributes:
  age: {type: integer, minimum: 0, maximum: 120, edges: [0, 18, 40, 65], unknown: clamp}
"""


def walk():
    text = (ROOT / "docs" / "how-to" / "serve.md").read_text(encoding="utf-8")
    lines = [line.removeprefix("$ ") for block in BLOCK.findall(text) for line in block.splitlines()]
    return [line for line in lines if not line.startswith("pip ")]  # it is installed


def shown():
    """The reply of the server that the page shows."""
    text = (ROOT / "docs" / "how-to" / "serve.md").read_text(encoding="utf-8")
    return json.loads(re.search(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1])


@pytest.fixture
def machine(tmp_path):
    (tmp_path / "tables").mkdir()
    csv.write_csv(pa.table({"age": [number % 90 for number in range(500)]}), tmp_path / "tables" / "people.csv")
    (tmp_path / "people.yaml").write_text(DOMAIN, encoding="utf-8")
    return tmp_path


def test_a_stranger_gets_a_service_with_tls_two_analysts_and_a_backup(machine):
    commands = [line.replace("8443", "$PORT") for line in walk()]
    script = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT", *commands, "echo done"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PORT": str(free_port()), "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        ["bash", "-c", "\n".join(script)], cwd=machine, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as running:  # fmt: skip
        try:
            said, failed = running.communicate(timeout=300)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    log = (machine / "server.log").read_text(encoding="utf-8") if (machine / "server.log").exists() else ""
    assert running.returncode == 0, f"{failed}\n{log}"
    assert said.rstrip().endswith("done")
    first, second = (
        json.JSONDecoder().raw_decode(said[found.start() :])[0] for found in re.finditer(r'\{"groups"', said)
    )
    assert shown().keys() == first.keys() == second.keys()
    assert shown()["rows"][0].keys() == first["rows"][0].keys()
    assert (machine / "heads.txt").read_text(encoding="utf-8").strip()
    for secret in ("steward.key", "ana.key", "bob.key"):
        assert (machine / secret).stat().st_mode & 0o077 == 0


def test_the_walk_names_what_the_deployment_names():
    text = (ROOT / "docs" / "how-to" / "serve.md").read_text(encoding="utf-8")
    uid = re.search(r"--uid (\d+)", (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8"))[1]
    assert f"chown {uid} deploy/secrets/pgpass" in text
    for name in ("Caddyfile", "compose.yaml", "sfumato.service", "prometheus.yml", "grafana.json"):
        assert f"deploy/{name}" in text
        assert (ROOT / "deploy" / name).exists()
    unit = (ROOT / "deploy" / "sfumato.service").read_text(encoding="utf-8")
    for variable in re.findall(r"\$\{(\w+)\}", unit):
        assert f"{variable}=" in text
