"""Processes that tests start: they end with the test run that started them, however that ends, and tests wait for them.

A test never gives up because the machine is slow: it waits for the thing itself. HANG only ends a run that would wait
for ever.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

#: After so many seconds something hangs.
HANG = 900.0

_PR_SET_PDEATHSIG = 1
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def start(
    command: Sequence[str], *, before: Callable[[], None] = lambda: None, **options: Any
) -> subprocess.Popen[bytes]:
    """Start a process that the system kills when the thread that started it ends, even by SIGKILL."""
    parent = os.getpid()

    def prepare() -> None:
        if _PRCTL is not None:
            _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended in between
            os._exit(1)
        before()

    return subprocess.Popen(command, preexec_fn=prepare, **options)


def until(holds: Callable[[], Any], pause: float = 0.01, seconds: float = HANG) -> bool:
    """Wait until something holds; False where it never does."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


def ended(pid: int) -> bool:
    """Wait until a process has ended, whosever child it is; False where it never does."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], HANG)[0])
    finally:
        os.close(handle)
