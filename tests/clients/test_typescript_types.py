"""The types of the TypeScript client equal those of the server's description."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TYPES = "clients/typescript/api.d.ts"


def test_types_are_those_that_the_server_describes() -> None:
    script = [sys.executable, ROOT / "scripts" / "client-types"]
    printed = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    written = (ROOT / TYPES).read_text(encoding="utf-8")
    assert printed.strip() == written.strip(), f"type: scripts/client-types > {TYPES}"
