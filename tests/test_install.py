"""The wheel alone, in an empty environment: what a stranger gets from ``pip install``."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MOST_MEGABYTES = 550  # NumPy, SciPy, PyArrow and DuckDB alone are 410
QUESTION = "SELECT gender, COUNT(*) FROM census GROUP BY gender"
ELSEWHERE = {"altair", "fastapi", "httpx", "jinja2", "narwhals", "pandas", "pyspark", "scikit-learn", "uvicorn"}

pytestmark = pytest.mark.slow


def pip(*arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    return next(folder.glob("sfumato-*.whl"))


def environment(folder: Path, *packages: str | Path) -> Path:
    """An environment with nothing but the packages; returns its folder of programs."""
    venv.create(folder, with_pip=False)
    for words in packages:
        pip("--python", folder / "bin" / "python", "install", "--quiet", *str(words).split())
    return folder / "bin"


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("base"), wheel)


def ran(program: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *arguments], cwd=folder, capture_output=True, text=True, check=False, env={"HOME": str(folder)}
    )


def test_the_demo_and_a_query_work_with_the_wheel_alone(base: Path, tmp_path: Path) -> None:
    done = ran(base / "sfumato", "demo", "--out", "demo", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "demo" / "synthetic.parquet").is_file()
    assert "pip install 'sfumato[plots]'" in done.stderr
    assert ran(base / "sfumato", "data", "census", folder=tmp_path).returncode == 0
    words = ["query", "census.parquet", QUESTION, "--domain", "census.yaml", "--create", "--epsilon", "0.5"]
    done = ran(base / "sfumato", *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "differential privacy with epsilon = 0.5" in done.stdout


def test_the_wheel_alone_brings_nothing_that_an_extra_is_for(base: Path) -> None:
    listed = pip("--python", base / "python", "list", "--format", "freeze")
    assert not ELSEWHERE & {line.partition("==")[0].lower() for line in listed.splitlines()}


def test_the_base_installation_stays_within_its_size(base: Path) -> None:
    packages = next(base.parent.glob("lib/python*/site-packages"))
    taken = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert taken < MOST_MEGABYTES * 10**6


def test_importing_the_package_takes_next_to_nothing(base: Path, tmp_path: Path) -> None:
    code = "import sys; before = set(sys.modules); import sfumato; print(len(set(sys.modules) - before))"
    done = ran(base / "python", "-c", code, folder=tmp_path)
    assert int(done.stdout) < 40  # a few of the standard library, and nothing else


def test_the_client_needs_nothing_but_http_and_its_requests(wheel: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path / "client", f"--no-deps {wheel}", "httpx pydantic")
    call = "HttpClient('http://127.0.0.1:9', 'key').close()\nprint('closed')"
    code = f"from sfumato.app.http_client import HttpClient\n{call}"
    done = ran(programs / "python", "-c", code, folder=tmp_path)
    assert done.stdout == "closed\n", done.stderr


def test_a_device_needs_nothing_but_numpy_and_cryptography(wheel: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path / "device", f"--no-deps {wheel}", "numpy cryptography")
    code = (
        "from sfumato.local import Client, Frequency, dumps, loads\n"
        "spec = loads(dumps(Frequency.design(['car', 'bus', 'bicycle'], epsilon=2)))\n"
        "print(len(Client(spec).randomize_batch(['car', 'bus'])) == 2)"
    )
    done = ran(programs / "python", "-c", code, folder=tmp_path)
    assert done.stdout == "True\n", done.stderr
