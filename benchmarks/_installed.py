"""Programs started by a benchmark, in the state of an installed package."""

from __future__ import annotations

import compileall
import os
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
_DONE = "SFUMATO_BENCHMARK_COMPILED"


def keep_compiled() -> None:
    """Compile the library once, and let processes of a benchmark store other compiled modules.

    A developer's shell may disable compiled files. Every process would then compile all of its imports, at its own
    cost.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if _DONE not in os.environ:  # a process started by a benchmark is already prepared
        os.environ[_DONE] = "yes"
        compileall.compile_dir(SOURCE, quiet=2)
