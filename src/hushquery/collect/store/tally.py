"""How the store has failed lately, kept outside it: what is to be known while it is full or away is not read from it.

All processes of a server share one small piece of memory, each with a place of its own in it.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Tally"]

# For each process: how often the store was full, how often it failed otherwise, when it was full last, and when it took
# a report last.
_PLACE = struct.Struct("=QQdd")
_PLACES = 128
# A store that was full counts as full for so long, unless it takes a report: where readiness keeps uploads away, nobody
# else would ever try it again.
_FULL_SECONDS = 15.0


class Tally:
    """Counts the failures of a store.

    Args:
        path: What :meth:`shared` gave, for all processes of a server; None for this object alone.
        clock: Tells seconds that never go back, the same in all processes.
    """

    def __init__(self, path: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        size = _PLACES * _PLACE.size
        if path is None:
            self._memory = mmap.mmap(-1, size)
        else:
            with Path(path).open("r+b") as file:
                self._memory = mmap.mmap(file.fileno(), size)
        self._clock = clock
        self._mine = os.getpid() % _PLACES * _PLACE.size
        self._lock = threading.Lock()

    @staticmethod
    @contextmanager
    def shared() -> Iterator[str]:
        """Make the memory that processes share; gives its path. It takes its room now, and needs no more later."""
        with tempfile.NamedTemporaryFile(prefix="hushquery-", suffix=".tally") as file:
            file.write(bytes(_PLACES * _PLACE.size))
            file.flush()
            yield file.name

    def failed(self, *, full: bool) -> None:
        """Count a failure."""
        with self._lock:
            fulls, others, last, took = _PLACE.unpack_from(self._memory, self._mine)
            last = self._clock() if full else last
            _PLACE.pack_into(self._memory, self._mine, fulls + full, others + (not full), last, took)

    def took(self) -> None:
        """Note that a report was written."""
        with self._lock:
            fulls, others, last, _ = _PLACE.unpack_from(self._memory, self._mine)
            _PLACE.pack_into(self._memory, self._mine, fulls, others, last, self._clock())

    @property
    def failures(self) -> tuple[int, int]:
        """How often the store was full, and how often it failed otherwise, in all processes."""
        places = list(_PLACE.iter_unpack(self._memory[:]))
        return sum(place[0] for place in places), sum(place[1] for place in places)

    @property
    def full(self) -> bool:
        """Whether the store was full when it was last asked to take a report, a moment ago."""
        places = list(_PLACE.iter_unpack(self._memory[:]))
        fulls = [last for count, _, last, _ in places if count]
        last = max(fulls, default=float("-inf"))
        return last > max(place[3] for place in places) and self._clock() - last < _FULL_SECONDS
