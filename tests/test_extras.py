"""The content of each extra of the installation, and the message if it is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sfumato.errors import MissingExtraError
from sfumato.extras import EXTRAS, missing, require

ROOT = Path(__file__).resolve().parent.parent
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BLOCKED = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in {absent!r} else real(name, *more)
sys.argv = ["sfumato", *{arguments!r}]
from sfumato.app.cli.main import run
run()
"""


def without(extra: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command line where the packages of an extra are not installed."""
    return run_without(set(EXTRAS[extra]), *arguments, folder=folder)


def run_without(packages: set[str], *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line where these packages are not installed."""
    code = BLOCKED.format(absent=packages, arguments=list(arguments))
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=False, env=os.environ
    )


def test_every_extra_named_in_a_sentence_is_one_that_can_be_installed() -> None:
    assert set(EXTRAS) <= set(DECLARED["optional-dependencies"])


def test_every_extra_installs_the_packages_that_it_is_said_to_need() -> None:
    spelled = {"vl_convert": "vl-convert-python", "sklearn": "scikit-learn"}
    for extra, packages in EXTRAS.items():
        listed = " ".join(DECLARED["optional-dependencies"][extra])
        for package in packages:
            assert spelled.get(package, package.replace("_", "-")) in listed


def test_what_is_installed_is_not_missing() -> None:
    assert not missing("plots")
    require("plots", "a page")


def test_the_refusal_names_the_purpose_the_package_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "plots", ("no_such_package",))
    with pytest.raises(MissingExtraError) as refusal:
        require("plots", "--html")
    said = "--html needs no_such_package, which is not installed; pip install 'sfumato[plots]'"
    assert str(refusal.value) == said
    assert refusal.value.exit_code == 2


def test_a_server_that_is_not_installed_is_named_in_one_sentence(tmp_path: Path) -> None:
    done = without("server", "serve", folder=tmp_path)
    assert done.returncode == 2
    assert "Run: pip install 'sfumato[server]'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [("serve", "sfumato_server", "server"), ("key", "sfumato_server", "server"), ("lab", "sfumato_labs", "labs")],
)
def test_a_command_of_an_absent_package_names_what_to_install(
    command: str, package: str, extra: str, tmp_path: Path
) -> None:
    done = run_without({package}, command, "--port", "1", folder=tmp_path)
    assert done.returncode == 2
    assert (
        done.stderr
        == f"sfumato: {command} needs {package}, which is not installed. Run: pip install 'sfumato[{extra}]'\n"
    )


def test_help_lists_every_command_where_server_and_labs_are_absent(tmp_path: Path) -> None:
    done = run_without({"sfumato_server", "sfumato_labs"}, "--help", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "synthesize" in done.stdout
    assert "Not installed: pip install 'sfumato[server]'" in done.stdout


def test_commands_are_found_by_entry_points_and_where_the_metadata_is_older(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import importlib.metadata

    from sfumato.app.cli import main

    declared = DECLARED["entry-points"]["sfumato-commands"]
    assert declared.keys() < main.COMMANDS.keys()
    assert all(main.COMMANDS[name] == place for name, place in declared.items())
    for entries in ([], [importlib.metadata.EntryPoint("key", "json:loads", "sfumato-commands")]):
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda entries=entries, **_: entries)
        main.installed_commands.cache_clear()
        assert main.place_of("serve") == tuple(declared["serve"].split(":"))
        assert main.place_of("key") == (("json", "loads") if entries else tuple(declared["key"].split(":")))
    main.installed_commands.cache_clear()


def test_a_page_without_plots_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "sfumato", "data", "zoo"], cwd=tmp_path, check=True, capture_output=True)
    words = [
        "synthesize",
        "zoo.parquet",
        "--domain",
        "zoo.yaml",
        "--epsilon",
        "1",
        "--out",
        "z.parquet",
        "--html",
        "z.html",
    ]
    done = without("plots", *words, folder=tmp_path)
    assert done.returncode == 2
    assert "Run: pip install 'sfumato[plots]'" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"zoo.parquet", "zoo.yaml"}


def test_types_are_shipped() -> None:
    import sfumato

    assert (Path(sfumato.__file__).parent / "py.typed").is_file()


def test_tests_are_collected_and_skipped_without_the_extra_of_the_oracle() -> None:
    """No wheel of private-pgm exists for newer versions of Python and for other platforms."""
    code = (
        "import importlib.util, sys, pytest\n"
        "real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: None if name in ('jax', 'mbi') else real(name, *more)\n"
        "sys.modules.update(jax=None, mbi=None)  # an import raises ModuleNotFoundError\n"
        "sys.exit(pytest.main(['-q', '-rs', 'tests/model', '-k', 'private_pgm and not one_loss']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "private-pgm is not installed; pip install 'sfumato[oracle]'" in done.stdout
