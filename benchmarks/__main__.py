"""Run every benchmark, one after the other, each in its own process: ``python -m benchmarks [NAME ...]``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main(names: list[str]) -> int:
    known = sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))
    if unknown := sorted(set(names) - set(known)):
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    failed = [
        name
        for name in names or known
        if subprocess.run([sys.executable, FOLDER / f"{name}.py"], check=False).returncode
    ]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
