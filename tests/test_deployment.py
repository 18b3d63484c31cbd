"""Deployment files name existing options and existing figures, and open nothing."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.main import get_command

from sfumato.app.cli.main import app
from sfumato_server.commands.keys import HolderScope

ROOT = Path(__file__).resolve().parent.parent
DEPLOYMENT = ROOT / "deploy"
OPTION = re.compile(r"--[a-z][a-z-]+")


def compose():
    return yaml.safe_load((DEPLOYMENT / "compose.yaml").read_text(encoding="utf-8"))


def options(*command):
    found = get_command(app)
    for name in command:
        found = found.get_command(None, name)
    return {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}


def figures_of(dashboard):
    """The names of all figures in the expressions of a dashboard."""
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return sorted(set(re.findall(r"\bsfumato_\w+", " ".join(expressions))))


def unit():
    lines = (DEPLOYMENT / "sfumato.service").read_text(encoding="utf-8").splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("ExecStart="))


@pytest.mark.parametrize("started", ["compose", "unit"])
def test_the_server_is_started_by_options_that_it_has(started):
    words = shlex.split(compose()["services"]["server"]["command"] if started == "compose" else unit())
    named = set(OPTION.findall(" ".join(words[words.index("serve") :])))
    assert named <= options("serve")
    assert {"--no-sample", "--no-link", "--base-url", "--trusted-proxy", "--tables", "--ledger"} <= named


def test_the_ledger_and_the_server_are_reached_by_the_proxy_alone():
    found = compose()
    services = found["services"]
    assert [name for name, each in services.items() if "ports" in each] == ["proxy"]
    assert found["networks"]["inside"] == {"internal": True}
    assert services["ledger"]["networks"] == ["inside"]
    assert "inside" not in services["proxy"]["networks"]
    trusted = re.search(r"--trusted-proxy (\S+)", services["server"]["command"])[1]
    assert found["networks"]["front"]["ipam"]["config"] == [{"subnet": trusted}]


def test_no_secret_is_in_a_file_or_an_environment():
    for name, each in compose()["services"].items():
        values = each.get("environment", {})
        assert all("PASSWORD" not in key or key.endswith("_FILE") for key in values), name
        assert not re.search(r"://\w+:[^@/]+@", str(each)), name
    for secret in compose()["secrets"].values():
        assert secret["file"].startswith("./secrets/")
    assert "deploy/secrets/" in (ROOT / ".gitignore").read_text(encoding="utf-8")
    assert "deploy/secrets" in (ROOT / ".dockerignore").read_text(encoding="utf-8")


def test_what_the_image_copies_is_there_and_it_runs_without_root():
    text = (DEPLOYMENT / "Dockerfile").read_text(encoding="utf-8")
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
    users = re.findall(r"^(?:USER|ENTRYPOINT) .*$", text, re.MULTILINE)
    assert users[0] == "USER sfumato"


def needed(*extras):
    """Return all distributions that some extras of the package need, including indirect ones."""
    seen, waiting = set(), [("sfumato", frozenset(extras))]
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        for text in distribution(name).requires or []:
            found = Requirement(text)
            if found.marker is None or any(found.marker.evaluate({"extra": extra}) for extra in (*wanted, "")):
                waiting.append((canonicalize_name(found.name), frozenset(found.extras)))
    return {name for name, _ in seen} - {"sfumato"}


def pinned(file):
    """The requirements of a file with the lines of their hashes."""
    block = re.compile(r"^([a-zA-Z0-9][\w.-]*)(?:\[[^\]]*\])?==[^\n]*\n(?:    --hash[^\n]*\n)+", re.MULTILINE)
    return [(canonicalize_name(found[1]), found[0]) for found in block.finditer(file.read_text(encoding="utf-8"))]


def test_the_image_installs_the_extras_of_a_server_and_nothing_else():
    text = (DEPLOYMENT / "Dockerfile").read_text(encoding="utf-8")
    assert "COPY deploy/requirements.txt " in text
    assert re.findall(r"pip install .*", text) == [
        "pip install --no-cache-dir --require-hashes -r requirements.txt \\",
        "pip install --no-cache-dir --no-deps .",
    ]
    found = pinned(DEPLOYMENT / "requirements.txt")
    assert {name for name, _ in found} == needed("server", "postgres", "mysql")
    assert set(found) <= set(pinned(ROOT / "requirements.lock"))
    assert not {"pytest", "pyspark", "playwright", "mypy"} & {name for name, _ in found}


def test_memory_and_logs_of_every_service_are_bounded():
    for name, each in compose()["services"].items():
        assert each["mem_limit"], name
        assert each["logging"]["options"] == {"max-size": "10m", "max-file": "5"}, name


def test_spills_lie_on_a_disk_and_options_of_login_can_be_added():
    server = compose()["services"]["server"]
    spill = server["environment"]["TMPDIR"]
    assert f"spill:{spill}" in server["volumes"]
    assert spill in (DEPLOYMENT / "Dockerfile").read_text(encoding="utf-8")  # so that its user may write there
    assert server["command"].split()[-1] == "${SFUMATO_OPTIONS:-}"
    assert any(each.endswith(":/etc/sfumato:ro") for each in server["volumes"])
    sections = re.findall(r"docs/how-to/serve\.md, ([A-Z]\w+)", (DEPLOYMENT / "alerts.yml").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "how-to" / "serve.md").read_text(encoding="utf-8")
    assert sections
    assert all(f"\n## {each}\n" in page for each in sections)


def alerts():
    document = yaml.safe_load((DEPLOYMENT / "alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def test_alerts_say_what_to_do_and_prometheus_loads_them():
    assert len(alerts()) >= 8
    for rule in alerts():
        assert set(rule["annotations"]) == {"summary", "action"}
        assert rule["labels"]["severity"] in {"page", "ticket"}
    loaded = yaml.safe_load((DEPLOYMENT / "prometheus.yml").read_text(encoding="utf-8"))["rule_files"]
    assert loaded == ["alerts.yml"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed; apt-get install prometheus")
def test_promtool_reads_the_rules_and_tries_them():
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(["promtool", *command], cwd=DEPLOYMENT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_shows_budgets_refusals_failures_queue_and_latency():
    named = figures_of(json.loads((DEPLOYMENT / "grafana.json").read_text(encoding="utf-8")))
    assert {"sfumato_budget_left_ratio", "sfumato_refusals_total", "sfumato_ledger_failures_total"} <= set(named)
    assert {"sfumato_releases", "sfumato_request_seconds_bucket"} <= set(named)


def test_figures_and_readiness_are_not_shown_to_the_world():
    text = (DEPLOYMENT / "Caddyfile").read_text(encoding="utf-8")
    assert re.search(r"@operation path /metrics /readyz /healthz\n\s*respond @operation 404", text)


def test_prometheus_reads_the_figures_with_a_key():
    (job,) = yaml.safe_load((DEPLOYMENT / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    assert job["authorization"]["type"] == "Bearer"
    assert HolderScope.MONITOR == "monitor"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_reads_the_unit(tmp_path):
    text = (DEPLOYMENT / "sfumato.service").read_text(encoding="utf-8")
    copy = tmp_path / "sfumato.service"
    copy.write_text(text.replace("/opt/sfumato/bin/sfumato", "/bin/true"), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    assert "sfumato.service" not in done.stderr, done.stderr
