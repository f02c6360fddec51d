"""DuckDB in this process: limits from the environment, and a place on disk that is private and goes away."""

from __future__ import annotations

import gc
import stat
from pathlib import Path

import pytest

from hushquery.engine import connect
from hushquery.engine.inprocess import MEMORY, TEMP, THREADS
from hushquery.errors import UsageError

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
