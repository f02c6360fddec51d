"""How a server process ends: in time when it is told to, whatever hangs, and together with the process that started it.

Nothing is lost by an end that is forced: what was acknowledged is on the disk, a move that was under way is taken up at
the next start, and whoever still waited was promised nothing.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from types import FrameType
from typing import Any

__all__ = ["end_in_time", "end_with_parent", "signals_end_here"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# What a process says that had to be ended: it was asked to end, and did.
_ENDED = 0

# Set when a server has ended by itself; in a worker process it never is.
_over = threading.Event()

_log = logging.getLogger("hushquery.collect")


def end_in_time(seconds: float) -> None:
    """End the process so many seconds after SIGINT or SIGTERM, should it still be there and at work.

    Who handles the signals now handles them still. Signals belong to the main thread: in another nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in _SIGNALS:
        signal.signal(number, _begin(signal.getsignal(number), seconds))


def _begin(before: Any, seconds: float) -> Callable[[int, FrameType | None], None]:
    def begin(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=_end, args=(_over, seconds), name="hushquery-ending", daemon=True).start()
        if callable(before):
            before(number, frame)

    return begin


def _end(over: threading.Event, seconds: float) -> None:
    if not over.wait(seconds):
        _log.error("the collector was told to end and could not in %g seconds: it ends without its store", seconds)
        os._exit(_ENDED)


@contextmanager
def signals_end_here(seconds: float) -> Iterator[None]:
    """Keep Uvicorn, which raises a signal again after it has shut down, from ending the process before we are done.

    We are done in so many seconds, or the process ends without us.
    """
    global _over
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    over = _over = threading.Event()
    before = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
    end_in_time(seconds)
    try:
        yield
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def end_with_parent() -> None:
    """In a process that another one started: end, in the ordinary way, as soon as that one is gone."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="hushquery-parent", daemon=True).start()
