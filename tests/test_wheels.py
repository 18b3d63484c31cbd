"""The packages of the small wheels, as their build hook copies them.

``test_install.py`` installs them in empty environments.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

from sfumato.local import Frequency, dumps, loads

ROOT = Path(__file__).resolve().parent.parent
ABSENT = {
    "sfumato_client": {"sfumato", "numpy", "scipy", "pyarrow", "duckdb", "sqlglot", "typer"},
    "sfumato_local": {"sfumato", "scipy", "pyarrow", "duckdb", "pydantic", "httpx", "typer"},
}
ALONE = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
sys.path.insert(0, {folder!r})
"""


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a folder with the package of each small wheel, by the name of the package."""
    loader = SourceFileLoader("wheels", str(ROOT / "scripts" / "wheels"))
    spec = spec_from_loader("wheels", loader)
    assert spec is not None
    wheels = module_from_spec(spec)
    sys.modules["wheels"] = wheels
    loader.exec_module(wheels)
    folders = {}
    for wheel in wheels.WHEELS:
        folders[wheel.package] = tmp_path_factory.mktemp(wheel.package)
        wheels.write_package(wheel, folders[wheel.package])
    return folders


def alone(package: str, folder: Path, code: str) -> str:
    """Run code where a small wheel is installed and the library is not."""
    whole = ALONE.format(absent=ABSENT[package], folder=str(folder)) + code
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_two_wheels_install_the_same_file(projects: dict[str, Path]) -> None:
    assert set(projects) == set(ABSENT)
    for package, folder in projects.items():
        assert {file.name for file in folder.iterdir()} == {package}


def test_every_module_of_a_small_wheel_can_be_imported_without_the_library(projects: dict[str, Path]) -> None:
    for package, folder in projects.items():
        files = [file.relative_to(folder).with_suffix("") for file in (folder / package).rglob("*.py")]
        modules = sorted(".".join(file.parts).removesuffix(".__init__") for file in files)
        assert len(modules) > 10
        alone(package, folder, "".join(f"import {module}\n" for module in modules))


def test_a_small_wheel_has_the_names_of_its_part_of_the_library(projects: dict[str, Path]) -> None:
    import sfumato.app.http_client
    import sfumato.local

    for package, module in (("sfumato_client", sfumato.app.http_client), ("sfumato_local", sfumato.local)):
        code = f"import {package} as p\nprint(all(hasattr(p, name) for name in p.__all__), *p.__all__)"
        assert alone(package, projects[package], code).split() == ["True", *module.__all__]


def test_a_device_and_the_library_write_the_same_files(projects: dict[str, Path]) -> None:
    spec = Frequency.design(["car", "bus", "bicycle"], epsilon=2)
    folder = projects["sfumato_local"]
    code = (
        "from sfumato_local import Client, Frequency, dumps, loads\n"
        f"spec = loads({dumps(spec)!r})\n"
        "assert spec == Frequency.design(['car', 'bus', 'bicycle'], epsilon=2)\n"
        "Client(spec).randomize_batch(['car'] * 200)\n"
        "print(dumps(spec))"
    )
    text = alone("sfumato_local", folder, code)
    assert loads(text) == spec
    assert json.loads(text) == json.loads(dumps(spec))
