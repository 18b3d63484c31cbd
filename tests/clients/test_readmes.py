"""The READMEs of the clients: every example runs against a real server and prints what the page shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import pytest
import yaml
from tests.page_outputs import drift
from tests.server.serving import Server

from sfumato_server.registry import Scope

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "clients"
EXAMPLE = re.compile(
    r"^```(?:python|r|js)\n(?P<block>.*?)^```\n(?:\n```output(?: noise=(?P<noise>\S+))?\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
BETWEEN = "----- next example"


def python_program(package: str) -> Callable[[list[str], Path], list[str | Path]]:
    """Return a function that installs a small package into a folder, and returns the command of a program for it."""

    def program(blocks: list[str], folder: Path) -> list[str | Path]:
        subprocess.run([sys.executable, ROOT / "scripts" / "wheels", "--package", package, folder], check=True)
        return [sys.executable, "-c", f"print({BETWEEN!r})\n".join(blocks)]

    return program


def r_program(blocks: list[str], folder: Path) -> list[str | Path]:
    subprocess.run(["R", "CMD", "INSTALL", "-l", folder, CLIENTS / "r"], check=True, capture_output=True)
    (folder / "program.R").write_text(f'cat("\\n{BETWEEN}\\n")\n'.join(blocks), encoding="utf-8")
    return ["Rscript", "-e", '.libPaths(c(".", .libPaths())); source("program.R", print.eval = TRUE)']


def node_program(blocks: list[str], folder: Path) -> list[str | Path]:
    shutil.copytree(CLIENTS / "typescript", folder / "node_modules" / "sfumato-client")
    return ["node", "--input-type=module", "-e", f"console.log({BETWEEN!r});\n".join(blocks)]


PROGRAMS = {
    "python": (python_program("sfumato_client"), "python"),
    "device": (python_program("sfumato_local"), "python"),
    "r": (r_program, "Rscript"),
    "typescript": (node_program, "node"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the bundled census."""
    folder = tmp_path_factory.mktemp("readmes")
    bundled = resources.files("sfumato.data")
    (folder / "census.parquet").write_bytes((bundled / "census.parquet").read_bytes())
    domain = yaml.safe_load((bundled / "adult.yaml").read_text(encoding="utf-8"))
    started = Server(f"sqlite:///{folder}/s.ledger", workers=1).start()
    try:
        with started.client("stella", Scope.STEWARD) as steward:
            steward.register("census", source=str(folder / "census.parquet"), domain=domain, limit="2,1e-9")
        yield started
    finally:
        started.stop()


@pytest.mark.parametrize("client", PROGRAMS, ids="{}/README.md".format)
def test_every_command_of_a_readme_prints_what_it_shows(client: str, server: Server, tmp_path: Path) -> None:
    program, needed = PROGRAMS[client]
    if shutil.which(needed) is None:
        pytest.skip(f"{needed} is not installed")
    page = CLIENTS / client / "README.md"
    text = page.read_text(encoding="utf-8")
    examples = list(EXAMPLE.finditer(text))
    command = program([each["block"] for each in examples], tmp_path)
    variables = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    variables |= {"SFUMATO_ADDRESS": server.address, "SFUMATO_KEY": server.key(f"analyst_{client}", Scope.ANALYST)}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split(BETWEEN)
    assert len(printed) == len(examples), done.stdout
    faults = []
    for example, new in zip(examples, printed, strict=True):
        if fault := drift(example["output"] or "", new, example["noise"] or ""):
            faults.append(fault)
            shown = example[0].removesuffix(f"{example['output']}```\n")
            text = text.replace(example[0], shown + new.strip("\n").rstrip() + "\n```\n")
    if os.environ.get("REFRESH_OUTPUTS"):
        page.write_text(text, encoding="utf-8")
    else:
        assert not faults, "\n".join([f"{client}/README.md: run make docs-outputs if this is right", *faults])
