"""Room on the disk of a SQLite store: how much is left, and a reserve for closing epochs when there is none.

Closing an epoch frees room inside the store, and needs some first: every change passes through the write-ahead log. So
a server keeps a file beside the store that holds nothing, and whoever moves an epoch on a full disk deletes it first.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["LEAST_FREE", "RESERVE", "free", "keep_reserve", "make_room"]

#: With fewer bytes left a disk counts as full: the write-ahead log grows by more at once.
LEAST_FREE = 1 << 20

#: How much is kept, or on a small disk a quarter of what is left: moving a block of rows takes less than half a MiB.
RESERVE = 16 << 20


def free(path: Path) -> int:
    """Return how many bytes the disk of a file has left."""
    there = os.statvfs(path.parent)
    return there.f_bavail * there.f_frsize


def _reserve(path: Path) -> Path:
    return path.with_name(f"{path.name}.reserve")


def keep_reserve(path: Path) -> None:
    """Keep room beside a store; where there is hardly any left there is no reserve.

    Args:
        path: The file of the store.
    """
    reserve = _reserve(path)
    with suppress(OSError):
        left = free(path)
        size = RESERVE if left >= 2 * RESERVE else left // 4
        if reserve.exists() or size < LEAST_FREE // 2:
            return
        handle = os.open(reserve, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            os.posix_fallocate(handle, 0, size)
        except OSError:
            reserve.unlink()
        finally:
            os.close(handle)


def make_room(path: Path) -> bool:
    """Give the reserve back to a disk that is full; returns whether there was one."""
    with suppress(OSError):
        if free(path) < LEAST_FREE:
            _reserve(path).unlink()
            return True
    return False
