"""Older stores: refused as they are by every command, and converted by one that keeps a copy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from collect.commands import read, run
from collect.helpers import NOW, SETTING, WEEKLY, Clock, put, running, settings_for, stored_ids, waiting_reports
from collect.test_records import everything
from collect.version_2 import PERIOD, TASK, make_version_2
from hushquery.collect.epochs.epochs import epochs_of, register, registered
from hushquery.collect.store import schema
from hushquery.collect.store.copies import convert
from hushquery.collect.store.schema import EPOCH, META, SCHEMA
from hushquery.collect.store.store import Store
from hushquery.errors import DataError, HushqueryError, Unavailable, UsageError
from hushquery.task import Task
from ledger.workers import sql

READING = (
    ("status",),
    ("tokens", "list"),
    ("export", "--out", "-", "--task", "theme"),
    ("save", "--out", "nowhere", "--task", "theme"),
    ("backup", "nowhere.db"),
)
WRITING = (
    ("advance", "--to", "closed", "--task", "theme"),
    ("tokens", "new", "--task", "searches"),
    ("tokens", "revoke", "0" * 16),
)


def state(url: str, *tables: str) -> object:
    """Read the store: its files as they are, or the rows of PostgreSQL's tables."""
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in path.parent.glob(f"{path.name}*")}
    names = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
    found = {name: sorted(map(repr, sql(url, f'SELECT * FROM "{name}"'))) for (name,) in sql(url, names)}  # noqa: S608
    return found


def versions(url: str) -> list[tuple[int]]:
    return sql(url, "SELECT schema FROM hushquery_collect_meta")


@pytest.mark.parametrize("version", [1, 2])
def test_no_other_command_converts_a_store(store_url: str, folder: Path, clock: Clock, version: int) -> None:
    make_version_2(store_url)
    sql(store_url, "UPDATE hushquery_collect_meta SET schema = ?", (version,))
    before = state(store_url)
    for command in (*READING, *WRITING):
        with pytest.raises(DataError, match=f"tables of version {version}.*hushquery collect migrate"):
            run(*command, "--store", store_url)
        assert state(store_url) == before
    with (
        pytest.raises(DataError, match="hushquery collect migrate"),
        running(settings_for(store_url, folder, WEEKLY), clock),
    ):
        pass
    if store_url.startswith("sqlite"):
        with pytest.raises(DataError, match="hushquery collect migrate"):
            run("restore", store_url.removeprefix("sqlite:///"), "--store", str(folder / "new.db"))
    assert state(store_url) == before


def test_reading_commands_leave_the_file_as_it_is(tmp_path: Path, clock: Clock) -> None:
    """Also one that a killed server left with all it had to say in the write-ahead log."""
    url, copy = f"sqlite:///{tmp_path}/collector.db", tmp_path / "copy"
    with running(settings_for(url, tmp_path, WEEKLY), clock) as (client, _):
        old = make_version_2(f"sqlite:///{tmp_path}/unused.db")
        assert put(client, old.waiting[0]).status_code == 201
        copy.mkdir()
        for name in ("collector.db", "collector.db-wal"):  # as they are while it runs
            (copy / name).write_bytes((tmp_path / name).read_bytes())
    for folder in (tmp_path, copy):
        at = f"sqlite:///{folder}/collector.db"
        run("status", "--store", at)
        before = {name: one for name, one in dict(state(at)).items() if not name.endswith("-shm")}  # type: ignore[call-overload]
        for number, (command, *more) in enumerate(READING):
            new = [part.replace("nowhere", str(folder / f"new-{number}")) for part in more]
            try:
                run(command, *new, "--store", at)
            except HushqueryError as error:
                assert "not published" in error.what  # noqa: PT017 -- the one that has nothing to save
            after = {name: one for name, one in dict(state(at)).items() if not name.endswith("-shm")}  # type: ignore[call-overload]
            assert after == before


def test_a_store_of_version_2_goes_on_with_its_epochs(
    store_url: str, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    old = make_version_2(store_url)
    told = run("migrate", "--store", store_url)
    assert f"converted from version 2 to {SCHEMA}" in told
    assert "to go back: stop the collector" in told
    assert "nothing to do" in run("migrate", "--store", store_url, "--keep", str(folder / "none"))
    assert not (folder / "none").exists()
    store = Store.open(store_url)
    assert waiting_reports(store) == 3 + 7
    assert sorted(stored_ids(store)) == sorted(one.id for one in (*old.released, *old.closed, *old.waiting))
    store.close()
    assert read("status", "--store", store_url)["tasks"][0]["uploads"] == {"accepted": 17}
    assert [token["note"] for token in read("tokens", "list", "--store", store_url)["tokens"]] == ["ward 3"]
    with running(settings_for(store_url, folder, WEEKLY), clock) as (client, collector):
        for report in (*old.released, *old.closed, *old.waiting):
            assert put(client, report).status_code == 200  # none of them is counted again
        collector.phases.tick({1: TASK})  # finishes what the server that died had begun
        assert waiting_reports(collector.store) == 7
        assert collector.phases.advance(TASK, 1, PERIOD, "closed").reports == 7
        assert [put(client, one).status_code for one in old.waiting] == [200] * 7
        phases = {one.number: one.phase for one in epochs_of(collector.store, TASK, 1)}
        assert phases == {
            PERIOD - 3: "released",
            PERIOD - 2: "closed",
            PERIOD - 1: "expired",
            PERIOD: "closed",
        }
        assert client.get("/v1/releases/" + "r" * 64).status_code == 404  # the id of its bytes is another
    assert sql(store_url, "SELECT count(*) FROM hushquery_collect_record") == [(1,)]


def test_the_copy_is_the_store_as_it_was(
    store_url: str, folder: Path, clock: Clock, new_store: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    old = make_version_2(store_url)
    before = rows_of(store_url)
    told = read("migrate", "--store", store_url)
    copy = Path(told["copy"])
    assert (told["from"], told["to"]) == (2, SCHEMA)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert rows_of(f"sqlite:///{copy}") == before
    with pytest.raises(DataError, match="hushquery collect migrate"):
        run("status", "--store", str(copy))
    # As a store of that version it can be converted itself, so nothing is missing in it.
    assert convert(str(copy), folder / "copy-of-copy.db") == (2, folder / "copy-of-copy.db")
    again = Store.open(copy)
    assert sorted(stored_ids(again)) == sorted(one.id for one in (*old.released, *old.closed, *old.waiting))
    again.close()


def rows_of(url: str) -> dict[str, list[str]]:
    """Read all rows of a store of version 2."""
    names = ("meta", "task", "epoch", "report", "record", "token", "counter", "release")
    found = {name: sql(url, f"SELECT * FROM hushquery_collect_{name}") for name in names}  # noqa: S608
    return {name: sorted(repr(list(map(plain, row))) for row in rows) for name, rows in found.items()}


def plain(value: object) -> object:
    return int(value) if isinstance(value, bool) else bytes(value) if isinstance(value, memoryview) else value


def test_what_was_converted_leaves_no_hash_in_the_store(store_url: str, folder: Path) -> None:
    old = make_version_2(store_url)
    hashes = [hashlib.sha256(one.to_bytes()).digest() for one in (*old.released, *old.waiting)]
    disk = tables_on_disk(store_url)
    assert all(one in disk for one in hashes)
    convert(store_url, folder / "elsewhere.db")
    disk = tables_on_disk(store_url)
    assert not [one for one in hashes if one in disk]


def tables_on_disk(url: str) -> bytes:
    """Read the files of the store; PostgreSQL's log, which is not of the store alone, is left out."""
    if url.startswith("sqlite"):
        return everything(url)
    sql(url, "CHECKPOINT")
    ((folder,),) = sql(url, "SHOW data_directory")
    return b"".join(one.read_bytes() for one in Path(folder, "base").rglob("*") if one.is_file())


def test_a_copy_is_never_written_over(store_url: str, folder: Path) -> None:
    make_version_2(store_url)
    (folder / "kept.db").write_text("mine")
    before = state(store_url)
    with pytest.raises(UsageError, match="exists already"):
        run("migrate", "--store", store_url, "--keep", str(folder / "kept.db"))
    with pytest.raises(DataError, match="can't be written"):
        run("migrate", "--store", store_url, "--keep", str(folder / "no" / "where.db"))
    assert (folder / "kept.db").read_text() == "mine"
    assert state(store_url) == before
    with pytest.raises(Unavailable, match="no store"):
        run("migrate", "--store", str(folder / "none.db"))


def add_column(connection: sa.Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE hushquery_collect_task ADD COLUMN colour TEXT")


def break_off(connection: sa.Connection) -> None:
    add_column(connection)
    raise Unavailable("the power is gone")


def columns(store: Store) -> set[str]:
    with store.read() as connection:
        return {column["name"] for column in sa.inspect(connection).get_columns("hushquery_collect_task")}


def with_versions(monkeypatch: pytest.MonkeyPatch, number: int, migrations: dict[int, Any]) -> None:
    """Let this hushquery work with a later version of the tables."""
    monkeypatch.setattr(schema, "SCHEMA", number)
    monkeypatch.setattr(schema, "MIGRATIONS", migrations)


def test_a_store_is_converted_step_by_step(store_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task.loads(SETTING)
    store = Store.open(store_url)
    register(store, task, NOW)
    store.close()
    with monkeypatch.context() as later:
        with_versions(later, SCHEMA + 1, {SCHEMA: break_off})
        with pytest.raises(Unavailable, match="power"):
            convert(store_url, folder / "a")
    assert not (folder / "a").exists()
    store = Store.open(store_url)  # nothing of the broken step is left
    assert "colour" not in columns(store)
    store.close()
    rename = "UPDATE hushquery_collect_task SET colour = 'green'"
    steps = {SCHEMA: add_column, SCHEMA + 1: lambda connection: connection.exec_driver_sql(rename)}
    with monkeypatch.context() as later:
        with_versions(later, SCHEMA + 2, steps)
        assert convert(store_url, folder / "b") == (SCHEMA, folder / "b")
    store = Store.locate(store_url)
    assert "colour" in columns(store)
    assert [one.id for _, one in registered(store)] == [task.id]
    store.close()
    assert versions(store_url) == [(SCHEMA + 2,)]
    for write in (True, False):
        with pytest.raises(DataError, match="knows only version"):
            Store.open(store_url, write=write)
    with pytest.raises(DataError, match="knows only version"):
        convert(store_url, folder / "c")
    assert not (folder / "c").exists()


def test_a_store_of_the_first_version_is_converted(store_url: str, folder: Path) -> None:
    make_version_2(store_url)
    for statement in (
        "ALTER TABLE hushquery_collect_epoch DROP COLUMN trouble",
        "ALTER TABLE hushquery_collect_task RENAME COLUMN document TO canonical",
        "UPDATE hushquery_collect_meta SET schema = 1",
    ):
        sql(store_url, statement)
    assert convert(store_url, folder / "kept")[0] == 1
    store = Store.open(store_url)
    with store.read() as connection:
        row = connection.execute(sa.select(EPOCH).where(EPOCH.c.phase == "expired")).one()
        assert (row.number, row.scrubbed, row.trouble, row.mixed) == (PERIOD - 1, True, None, None)
        assert connection.execute(sa.select(META.c.schema)).scalar_one() == SCHEMA
    assert len(registered(store)) == 2
    store.close()


def test_a_version_without_a_way_to_it_is_refused(
    store_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.open(store_url).close()
    with_versions(monkeypatch, SCHEMA + 1, {})
    with pytest.raises(DataError, match="too old"):
        convert(store_url, folder / "kept")
    assert not (folder / "kept").exists()
