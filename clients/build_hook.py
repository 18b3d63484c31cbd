"""The build hook of the small packages: it copies their modules from the sources of the library."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WHEELS = Path(__file__).resolve().parent.parent / "scripts" / "wheels"


class CustomBuildHook(BuildHookInterface):
    """Adds the package to a wheel, so that ``pip install clients/python`` works in a clone."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Copy the package to a temporary folder, and name it to the builder."""
        package = self.metadata.core.name.replace("-", "_")
        self.folder = tempfile.mkdtemp()
        subprocess.run([sys.executable, WHEELS, "--package", package, self.folder], check=True)
        included = "force_include_editable" if version == "editable" else "force_include"
        build_data[included][str(Path(self.folder) / package)] = package

    def finalize(self, *_: object) -> None:
        """Remove the temporary folder."""
        shutil.rmtree(self.folder)
