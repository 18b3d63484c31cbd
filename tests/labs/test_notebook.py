"""The notebook of the labs runs cell by cell."""

from __future__ import annotations

import json
from pathlib import Path

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "notebooks" / "labs.ipynb"


def test_every_cell_of_the_notebook_runs(capsys):
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(sources) == 6
    namespace: dict[str, object] = {}
    for place, source in enumerate(sources):
        exec(compile(source, f"cell {place}", "exec"), namespace)  # noqa: S102  (our own notebook)
    printed = capsys.readouterr().out
    assert "for 420.956021" in printed
    assert "8.067" in printed
