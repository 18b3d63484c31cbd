"""The tutorial notebook: every cell runs, and shows what is stored below it within the noise of its metadata."""

from __future__ import annotations

import json
import os
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from tests.page_outputs import drawing_of, drift, numbers_of, standalone, value_of

NOTEBOOK = Path(__file__).resolve().parent.parent / "docs" / "notebooks" / "first-release.ipynb"
CELLS = 10


@pytest.mark.filterwarnings("default")  # as for a reader
def test_every_command_of_the_tutorial_notebook_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert len(notebook["cells"]) <= CELLS
    namespace: dict[str, Any] = {"__name__": "notebook"}
    faults = []
    for number, cell in enumerate(notebook["cells"], 1):
        if cell["cell_type"] == "code":
            outputs = outputs_of("".join(cell["source"]), f"cell {number}", namespace)
            stated = cell["metadata"]
            fault = drift(
                text_of(cell["outputs"]), text_of(outputs), stated.get("noise", ""), int(stated.get("rows", 0))
            )
            if fault:
                faults.append(f"cell {number}: {fault}")
                cell["outputs"] = outputs
    if os.environ.get("REFRESH_OUTPUTS"):
        NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    else:
        assert not faults, "\n".join(["run make docs-outputs if this is right", *faults])


def outputs_of(source: str, name: str, namespace: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell, and return what a notebook would show below it."""
    with redirect_stdout(StringIO()) as printed:
        value = value_of(source, name, namespace)
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None:
        drawing = drawing_of(value)
        data = {"text/plain": repr(value)}
        if drawing:
            data = {"text/plain": numbers_of(drawing), "image/svg+xml": standalone(drawing)}
        outputs.append({"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data})
    return outputs


def text_of(outputs: list[dict[str, Any]]) -> str:
    """Return the text of outputs; for a picture its numbers."""
    return "".join("".join(each.get("text", "") or each["data"]["text/plain"]) for each in outputs)
