"""Programs that a benchmark starts, as they run where they are installed."""

from __future__ import annotations

import compileall
import os
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
_DONE = "SFUMATO_BENCHMARK_COMPILED"


def keep_compiled() -> None:
    """Compile the library once, and let the processes that a benchmark starts keep what else they compile.

    Where a developer's shell tells Python to keep none, every process would compile all modules that it imports, and be
    charged for it.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if _DONE not in os.environ:  # a process that a benchmark started has nothing left to do
        os.environ[_DONE] = "yes"
        compileall.compile_dir(SOURCE, quiet=2)
