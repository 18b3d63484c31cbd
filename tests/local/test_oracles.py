"""Every frequency method is in ``ORACLES``, and specs, audits and documentation list exactly those."""

from importlib import import_module
from pathlib import Path

import sfumato.local.randomizers
from sfumato.evaluate.audit.shipped import subjects
from sfumato.local import Method
from sfumato.local.randomizers.oracles import ORACLES
from sfumato.local.randomizers.randomizer import OracleMethod
from sfumato.privacy.entropy import OsEntropy

FOLDER = Path(sfumato.local.randomizers.__file__).parent
NAMES = [method.name for method in ORACLES]


def test_every_method_of_the_folder_is_in_the_tuple():
    modules = [import_module(f"sfumato.local.randomizers.{path.stem}") for path in FOLDER.glob("*.py")]
    made = {
        id(value): value for module in modules for value in vars(module).values() if isinstance(value, OracleMethod)
    }
    assert set(made) == set(map(id, ORACLES))
    assert len(set(NAMES)) == len(NAMES)


def test_methods_of_specs_audits_and_documentation_are_those_of_the_tuple():
    assert [method.value for method in Method] == ["auto", *NAMES]
    assert [name for name in subjects(OsEntropy()) if name.startswith("local-")] == [f"local-{name}" for name in NAMES]
    page = (Path(__file__).parents[2] / "docs" / "tutorials" / "local.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"`{name}`" not in page.lower()] == []
