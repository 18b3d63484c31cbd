"""Each wheel alone, in an empty environment: what a stranger gets from ``pip install FILE``."""

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
DEVICE = (
    "from sfumato_local import Client, Frequency, dumps, loads\n"
    "spec = loads(dumps(Frequency.design(['car', 'bus', 'bicycle'], epsilon=2)))\n"
    "print(len(Client(spec).randomize_batch(['car', 'bus'])) == 2)"
)

pytestmark = pytest.mark.slow


def pip(*arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the wheels that ``make wheels`` builds."""
    folder = tmp_path_factory.mktemp("wheels")
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "wheels", folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(wheels: Path) -> Path:
    return next(wheels.glob("sfumato-*.whl"))


def environment(folder: Path, wheel: Path) -> Path:
    """An environment in which one file was installed by plain pip; returns its folder of programs."""
    venv.create(folder, with_pip=False)
    pip("--python", folder / "bin" / "python", "install", "--quiet", wheel)
    return folder / "bin"


def installed(programs: Path) -> set[str]:
    """Return the names of the packages of an environment."""
    listed = pip("--python", programs / "python", "list", "--format", "freeze")
    return {line.partition("==")[0].lower() for line in listed.splitlines()}


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
    words = [
        "query",
        "census.parquet",
        QUESTION,
        "--domain",
        "census.yaml",
        "--create",
        "--limit",
        "20,1e-6",
        "--epsilon",
        "0.5",
    ]
    done = ran(base / "sfumato", *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "differential privacy with epsilon = 0.5" in done.stdout


def test_the_wheel_alone_brings_nothing_that_an_extra_is_for(base: Path) -> None:
    assert not ELSEWHERE & installed(base)


def test_the_base_installation_stays_within_its_size(base: Path) -> None:
    packages = next(base.parent.glob("lib/python*/site-packages"))
    taken = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert taken < MOST_MEGABYTES * 10**6


def test_importing_the_package_takes_next_to_nothing(base: Path, tmp_path: Path) -> None:
    code = "import sys; before = set(sys.modules); import sfumato; print(len(set(sys.modules) - before))"
    done = ran(base / "python", "-c", code, folder=tmp_path)
    assert int(done.stdout) < 40  # a few of the standard library, and nothing else


def test_the_client_is_one_file_with_httpx_and_pydantic(wheels: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path / "client", next(wheels.glob("sfumato_client-*.whl")))
    code = "from sfumato_client import HttpClient\nHttpClient('http://127.0.0.1:9', 'key').close()\nprint('closed')"
    done = ran(programs / "python", "-c", code, folder=tmp_path)
    assert done.stdout == "closed\n", done.stderr
    assert not {"numpy", "sfumato"} & installed(programs)


def test_a_device_is_one_file_with_numpy_and_cryptography(wheels: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path / "device", next(wheels.glob("sfumato_local-*.whl")))
    done = ran(programs / "python", "-c", DEVICE, folder=tmp_path)
    assert done.stdout == "True\n", done.stderr
    assert not {"scipy", "pydantic", "sfumato"} & installed(programs)


def test_the_small_wheels_come_and_go_next_to_the_library(base: Path, wheels: Path, tmp_path: Path) -> None:
    python, small = base / "python", [*wheels.glob("sfumato_*.whl")]
    assert len(small) == 2
    pip("--python", python, "install", "--quiet", *small)
    assert ran(python, "-c", DEVICE, folder=tmp_path).stdout == "True\n"
    pip("--python", python, "uninstall", "--quiet", "--yes", "sfumato-local", "sfumato-client")
    done = ran(base / "sfumato", "data", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert ran(python, "-c", DEVICE.replace("sfumato_local", "sfumato.local"), folder=tmp_path).stdout == "True\n"
