"""The location of tables of real people: the folder in ``SFUMATO_DATA``."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def folder(name: str) -> Path:
    """Return the folder of one table; exit with a sentence if it is missing."""
    named = os.environ.get("SFUMATO_DATA")
    if not named:
        sys.exit("this benchmark needs real data: name its folder by SFUMATO_DATA")
    found = Path(named) / name
    if not found.is_dir():
        sys.exit(f"no folder {name} in {named}; SFUMATO_DATA names the folder of real data")
    return found
