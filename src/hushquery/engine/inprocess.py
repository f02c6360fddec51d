"""DuckDB in this process, with room to work: how much memory and how many threads, and where it may write to disk.

What does not fit into memory goes to a folder of its own that nobody else can read, and that is removed at the end:
DuckDB's own choice would be a folder ``.tmp`` where the command was started, open to whoever may look there.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

from hushquery.errors import UsageError

__all__ = ["MEMORY", "TEMP", "THREADS", "connect_duckdb", "count_in_memory_here", "interrupt", "own_folder"]

#: Names how much memory the engine may use before it writes to disk, such as ``2GB``; by default most of the machine's.
MEMORY = "HUSHQUERY_MEMORY"
#: Names how many threads the engine may use; by default one per core.
THREADS = "HUSHQUERY_THREADS"
#: Names the folder in which the engine may make its own for what does not fit; by default that for temporary files.
TEMP = "HUSHQUERY_TEMP"

# Ibis compares connections by what they say of themselves, so they are told apart by where they are.
_OPEN: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_SIZE = re.compile(r"[0-9]+(?:[.][0-9]+)? ?(?:[KMGT]i?B)", re.IGNORECASE)


def connect_duckdb() -> Any:
    """Open an engine in this process, as the environment says.

    >>> connect_duckdb().name
    'duckdb'
    """
    import ibis

    limits = _limits()
    folder = own_folder()
    engine = ibis.duckdb.connect(temp_directory=folder, **limits)
    weakref.finalize(engine, shutil.rmtree, folder, ignore_errors=True)
    _OPEN[id(engine)] = engine
    return engine


def interrupt() -> None:
    """Make every engine that this module opened give up what it computes; any thread may ask for it."""
    for engine in list(_OPEN.values()):
        with suppress(Exception):  # it may be closed
            engine.con.interrupt()


def count_in_memory_here() -> None:
    """Let Ibis count tables in memory in an engine of ours, unless it has one already: yours, or one it has made.

    The one it would make writes what does not fit into memory where the command was started.
    """
    import ibis

    if ibis.options.default_backend is None:
        ibis.options.default_backend = connect_duckdb()


def _limits() -> dict[str, Any]:
    settings: dict[str, Any] = {}
    memory, threads = os.environ.get(MEMORY, "").strip(), os.environ.get(THREADS, "").strip()
    if memory:
        if not _SIZE.fullmatch(memory):
            raise UsageError(f"{MEMORY} is no amount of memory", fix=f"Write it like {MEMORY}=2GB")
        settings["memory_limit"] = memory
    if threads:
        if not threads.isdecimal() or not 1 <= int(threads) <= 1024:
            raise UsageError(f"{THREADS} is no number of threads", fix=f"Write it like {THREADS}=2")
        settings["threads"] = int(threads)
    return settings


def own_folder() -> str:
    """Make a folder that nobody else can read, where the environment says; whoever asks for it removes it."""
    where = os.environ.get(TEMP, "").strip() or None
    try:
        return tempfile.mkdtemp(prefix="hushquery-", dir=None if where is None else Path(where).expanduser())
    except OSError as error:
        raise UsageError(
            "there is no place for what does not fit into memory",
            why=type(error).__name__,
            fix=f"Name a folder that exists and that you may write to: {TEMP}=FOLDER",
        ) from None
