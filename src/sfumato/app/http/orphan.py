"""A worker whose parent is gone ends, by the ordinary way, so that nobody is left to hold the port."""

from __future__ import annotations

import os
import signal
import threading
from multiprocessing import parent_process


def end_with_parent() -> None:
    """Tell this process to end once the process that started it as a worker is gone; a process of its own stays."""
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="orphan", daemon=True).start()
