"""The deployed Caddyfile, run by Caddy on loopback with its own authority: TLS before a real server, as docs say."""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from tests.server.serving import DOMAIN, Server, free_port, write_people

from sfumato.ledger.store import Store
from sfumato_server.registry import Registry, Scope

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 120

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("caddy") is None, reason="Caddy is not installed; apt-get install caddy"),
]
OPTIONS = """{{
	admin off
	skip_install_trust
	http_port {http}
	https_port {https}
}}
import {file}
"""


@pytest.fixture
def behind(tmp_path):
    """A server that people reach by Caddy alone, its address, the certificate of Caddy's authority, and its log."""
    ports = {"http": free_port(), "https": free_port()}
    address, log = f"https://localhost:{ports['https']}", tmp_path / "server.log"
    server = Server(f"sqlite:///{tmp_path}/s.ledger", workers=1)
    with closing(Store(server.url)) as store:
        store.prepare(create=True)
        steward = Registry(store).issue("stew", Scope.STEWARD, timedelta(days=1))[1]
    command = [Path(sys.executable).parent / "sfumato", "serve", "--no-sample", "--no-link", "--ledger", server.url]
    command += ["--port", str(server.port), "--base-url", address, "--trusted-proxy", "127.0.0.1", "--tables", tmp_path]
    config = tmp_path / "Caddyfile"
    config.write_text(OPTIONS.format(**ports, file=ROOT / "deploy" / "Caddyfile"), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    names = {"SFUMATO_HOST": "localhost", "SFUMATO_SERVER": f"127.0.0.1:{server.port}"}
    proxy = ["caddy", "run", "--config", config, "--adapter", "caddyfile"]
    with log.open("wb") as out, (tmp_path / "caddy.log").open("wb") as said:
        running = [
            subprocess.Popen(list(map(str, command)), env=environment, stderr=out, stdout=subprocess.DEVNULL),
            subprocess.Popen(list(map(str, proxy)), env=environment | names, stderr=said, stdout=said),
        ]
        try:
            root = tmp_path / "caddy" / "pki" / "authorities" / "local" / "root.crt"
            yield address, until(lambda: root.exists() and root), steward, log
        finally:
            for each in running:
                each.terminate()
                each.wait(SECONDS)


def until(found):
    end = time.monotonic() + SECONDS
    while not (value := found()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return value


def answering(browser):
    try:
        return browser.get("/").status_code == 200
    except httpx.TransportError:
        return False


def test_people_reach_the_server_by_tls_alone_and_not_what_operators_look_at(behind, tmp_path):
    address, authority, steward, log = behind
    trusted = ssl.create_default_context(cafile=str(authority))
    table = write_people(tmp_path / "people.parquet")
    with httpx.Client(base_url=address, verify=trusted, trust_env=False, timeout=60) as browser:
        until(lambda: answering(browser))
        entrance = browser.get("/", headers={"Accept-Encoding": "gzip"})
        assert "max-age=31536000" in entrance.headers["strict-transport-security"]
        assert entrance.headers["content-encoding"] == "gzip"
        for path in ("/metrics", "/readyz", "/healthz"):
            assert browser.get(path, headers={"Authorization": f"Bearer {steward}"}).status_code == 404
        key = {"Authorization": f"Bearer {steward}"}
        told = {"name": "people", "source": str(table), "domain": DOMAIN, "limit": "1"}
        assert browser.post("/v1/datasets", json=told, headers=key).status_code == 201
        asked = {"sql": "SELECT COUNT(*) FROM people", "loss": {"epsilon": "0.1"}}
        assert browser.post("/v1/datasets/people/query", json=asked, headers=key).json()["cost"] == "epsilon 0.1"
        entered = browser.post("/enter", data={"key": steward}, headers={"Origin": address})
        assert entered.status_code == 303
        assert re.search(r"sfumato_session=.*;.*Secure", entered.headers["set-cookie"])
        assert browser.get("/steward").status_code == 200
        foreign = browser.post("/leave", headers={"Origin": address.replace("https", "http")})
        assert foreign.status_code == 403
        forged = browser.get("/datasets", headers={"X-Forwarded-For": "203.0.113.9"})
        assert forged.status_code == 404
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    clients = {line["client"] for line in lines if line.get("path") == "/datasets"}
    assert clients, "no line of the log"
    assert clients <= {"127.0.0.1", "::1"}, clients  # whom Caddy saw, and not whom a header names
    assert steward not in log.read_text(encoding="utf-8")
    with httpx.Client(trust_env=False) as plain, pytest.raises(httpx.TransportError):
        plain.get(address)  # a client that does not trust the authority


def test_the_deployed_compose_file_says_what_its_parts_need():
    """The file is read by the rules of Docker's documentation, so no daemon is needed."""
    import yaml

    told = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    services = told["services"]
    assert set(told) <= {"name", "services", "networks", "volumes", "secrets"}
    for name, service in services.items():
        assert "image" in service or "build" in service, name
        assert set(service.get("depends_on", ())) <= set(services)
        assert set(service.get("secrets", ())) <= set(told["secrets"])
        assert set(service["networks"]) <= set(told["networks"])
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in told["volumes"] or source.startswith((".", "$", "/")), volume
    assert [name for name, service in services.items() if "ports" in service] == ["proxy"]
    assert "front" not in services["ledger"]["networks"]  # whom Caddy's network does not reach
    context = (ROOT / "deploy" / services["server"]["build"]["context"]).resolve()
    docker = (context / services["server"]["build"]["dockerfile"]).read_text(encoding="utf-8")
    for copied in re.findall(r"^COPY (?!--)(.*) \S+$", docker, re.MULTILINE):
        assert all((context / each).exists() for each in copied.split()), copied
    user = re.search(r"^USER (\S+)$", docker, re.MULTILINE)
    assert user is not None
    assert user[1] != "root"
