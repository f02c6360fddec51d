"""DuckDB in this process: limits from the environment, and a place on disk that is private and goes away."""

from __future__ import annotations

import gc
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import ibis
import pyarrow as pa
import pytest

from hushquery.engine import connect
from hushquery.engine.execute import MEMORY, TEMP, THREADS
from hushquery.errors import UsageError
from hushquery.log import read_log

# Far more rows than the limit below holds, so that the engine has to write to disk.
MANY = "SELECT count(*) FROM (SELECT DISTINCT i, md5(i::VARCHAR) AS text FROM range(1500000) t(i))"


def setting(engine: object, name: str) -> str:
    return str(engine.con.execute("SELECT current_setting(?)", [name]).fetchone()[0])  # type: ignore[attr-defined]


def test_the_environment_sets_the_limits(monkeypatch, tmp_path):
    for name, value in ((MEMORY, "512MiB"), (THREADS, "1"), (TEMP, str(tmp_path))):
        monkeypatch.setenv(name, value)
    engine = connect()
    assert setting(engine, "memory_limit") == "512.0 MiB"
    assert setting(engine, "threads") == "1"
    assert Path(setting(engine, "temp_directory")).parent == tmp_path


def test_what_does_not_fit_goes_to_a_private_folder_that_is_removed(monkeypatch, tmp_path):
    monkeypatch.setenv(MEMORY, "100MB")
    monkeypatch.setenv(THREADS, "2")
    monkeypatch.setenv(TEMP, str(tmp_path))
    engine = connect()
    (folder,) = tmp_path.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    engine.con.execute("CREATE TEMP TABLE kept AS SELECT i, md5(i::VARCHAR) AS text FROM range(3000000) t(i)")
    assert list(folder.iterdir())
    assert engine.con.execute(MANY).fetchone() == (1_500_000,)
    engine.disconnect()
    del engine
    gc.collect()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "value"), [(MEMORY, "much"), (MEMORY, "2"), (THREADS, "0"), (THREADS, "two"), (TEMP, "/no/such/folder")]
)
def test_what_can_not_be_set_is_refused(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError) as refused:
        connect()
    assert name in refused.value.fix


@pytest.fixture
def no_default_backend(monkeypatch):
    """Nobody has counted a table in memory yet in this process."""
    monkeypatch.setattr(ibis.options, "default_backend", None)


@pytest.mark.parametrize("make", [dict, pa.table, lambda rows: ibis.memtable(pa.table(rows))])
def test_tables_in_memory_are_counted_within_the_same_limits(monkeypatch, tmp_path, no_default_backend, make):
    for name, value in ((MEMORY, "512MiB"), (THREADS, "1"), (TEMP, str(tmp_path))):
        monkeypatch.setenv(name, value)
    log = read_log(make({"user": ["a", "b"], "query": ["x", "y"]}))
    assert log.table.count().to_pyarrow().as_py() == 2
    engine = log.table._find_backend(use_default=True)
    assert setting(engine, "memory_limit") == "512.0 MiB"
    assert setting(engine, "threads") == "1"
    folder = Path(setting(engine, "temp_directory"))
    assert folder.parent == tmp_path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_default_that_somebody_set_stays(monkeypatch):
    mine = ibis.duckdb.connect()
    monkeypatch.setattr(ibis.options, "default_backend", mine)
    assert read_log({"user": ["a"], "query": ["x"]}).table._find_backend(use_default=True) is mine


# A command that writes rows to disk and gets a signal while they are there.
SPILLS = """
import os, pathlib, signal, sys
import hushquery.cli.commands
from hushquery.engine import connect

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have said that it is ignored

def command():
    engine = connect()
    engine.con.execute("CREATE TEMP TABLE kept AS SELECT i, md5(i::VARCHAR) AS text FROM range(2000000) t(i)")
    assert [*pathlib.Path(os.environ["HUSHQUERY_TEMP"]).glob("hushquery-*/*")]
    os.kill(os.getpid(), signal.Signals[sys.argv[1]])
    signal.pause()

hushquery.cli.commands.root_for = lambda arguments: command
hushquery.cli.main()
"""


# A command whose engine is busy for minutes when the signal comes, and does not look for signals by itself.
IS_BUSY = """
import os, signal, sys, threading
import hushquery.cli.commands
from hushquery.engine import connect, execute

signal.signal(signal.SIGHUP, signal.SIG_DFL)

def command():
    engine = connect()
    busy = engine.sql("SELECT count(DISTINCT a.i * b.i) AS n FROM range(1000000) a(i), range(1000000) b(i)")
    threading.Timer(1, os.kill, (os.getpid(), signal.Signals[sys.argv[1]])).start()
    execute(busy)

hushquery.cli.commands.root_for = lambda arguments: command
hushquery.cli.main()
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("script", [SPILLS, IS_BUSY])
def test_a_signal_to_end_leaves_no_rows_behind(tmp_path, name, script):
    limits = {MEMORY: "60MB" if script is SPILLS else "1GB", THREADS: "1", TEMP: str(tmp_path)}
    program = [sys.executable, "-c", script, name]
    done = subprocess.run(program, env={**os.environ, **limits}, capture_output=True, check=False, timeout=900)
    assert done.returncode == 128 + signal.Signals[name], done.stderr
    assert not list(tmp_path.iterdir())
