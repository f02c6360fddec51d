"""``hushquery collect``: what it shows, moves, copies and refuses, on both stores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from collect.commands import read, run
from collect.helpers import SEARCHES, SETTING, Clock, make_report, put, running, settings_for
from hushquery.cli.collect import serve
from hushquery.collect.collector import Settings
from hushquery.collect.store.store import Store
from hushquery.core.ledger.ledger import Ledger
from hushquery.errors import AccountMissing, DataError, HushqueryError, NotReady, Unavailable, UsageError
from hushquery.local.report import Report, from_base64url
from hushquery.task import Task

TASK = Task.loads(SETTING)


@pytest.fixture
def filled(store_url: str, folder: Path, clock: Clock) -> str:
    """A store with four reports, of which one came twice."""
    with running(settings_for(store_url, folder, SETTING), clock) as (client, _):
        for number in (1, 2, 3, 4, 4):
            assert put(client, make_report(TASK, number)).status_code in (200, 201)
    return store_url


def test_status(filled: str) -> None:
    (task,) = read("status", "--store", filled)["tasks"]
    assert task["id"] == TASK.id
    assert task["uploads"] == {"accepted": 4, "repeated": 1}
    assert [epoch["phase"] for epoch in task["epochs"]] == ["reports_open"]
    text = run("status", "--store", filled)
    assert "epoch 0: reports_open" in text
    assert "accepted" in text
    assert "s3cr3t" not in text


def test_advance_to_a_release(filled: str, folder: Path) -> None:
    keys = ("--store", filled, "--keys", str(folder / "keys"))
    with pytest.raises(UsageError, match="does not go from"):
        run("advance", "--to", "released", *keys)
    closed = read("advance", "--to", "closed", *keys)["epoch"]
    assert (closed["phase"], closed["reports"]) == ("closed", 4)
    assert read("advance", "--to", "closed", *keys)["epoch"] == closed
    released = read("advance", "--to", "released", *keys)["epoch"]
    assert released["phase"] == "released"
    assert released["release"][:12] in run("status", "--store", filled)
    with pytest.raises(DataError, match="scrubbed"):
        run("export", "--out", "-", "--store", filled)


def test_too_few_stay_closed(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SETTING), clock) as (client, _):
        put(client, make_report(TASK))
    run("advance", "--to", "closed", "--store", store_url)
    with pytest.raises(NotReady, match="1 of 3"):
        run("advance", "--to", "released", "--store", store_url)


def test_export(filled: str, folder: Path) -> None:
    out = folder / "reports.txt"
    run("export", "--out", str(out), "--store", filled)
    lines = out.read_text().splitlines()
    assert [Report.from_bytes(from_base64url(line)) for line in lines] == [
        make_report(TASK, number) for number in (1, 2, 3, 4)
    ]
    assert run("export", "--out", "-", "--store", filled).splitlines() == lines
    with pytest.raises(UsageError, match="exists"):
        run("export", "--out", str(out), "--store", filled)


def test_a_backup_runs_as_a_store(filled: str, folder: Path, clock: Clock) -> None:
    copy = folder / "backup.db"
    assert read("backup", str(copy), "--store", filled)["rows"] > 4
    assert sorted(path.name for path in folder.glob("*backup*")) == ["backup.db"]
    before, after = (read("status", "--store", url)["tasks"] for url in (filled, str(copy)))
    assert before == after
    with running(settings_for(str(copy), folder, SETTING), clock) as (client, _):
        assert put(client, make_report(TASK, 4)).status_code == 200  # it remembers what it has
        assert put(client, make_report(TASK, 5)).status_code == 201
    with pytest.raises(UsageError, match="exists"):
        run("backup", str(copy), "--store", filled)
    with pytest.raises(HushqueryError):
        run("backup", str(folder / "no" / "where.db"), "--store", filled)


def test_a_backup_fills_an_empty_store(
    filled: str, folder: Path, clock: Clock, new_store: Callable[[], str], tmp_path: Path
) -> None:
    copy, target = tmp_path / "copy.db", new_store()
    run("backup", str(copy), "--store", filled)
    assert read("restore", str(copy), "--store", target)["rows"] > 4
    before, after = (read("status", "--store", url)["tasks"] for url in (filled, target))
    assert before == after
    with running(settings_for(target, folder, SETTING, SEARCHES), clock) as (client, collector):
        assert put(client, make_report(TASK, 4)).status_code == 200  # it remembers what it has
        assert put(client, make_report(TASK, 5)).status_code == 201
        assert len(collector.cache.tasks) == 2  # and another task gets another number
    with pytest.raises(UsageError, match="not empty"):
        run("restore", str(copy), "--store", target)
    with pytest.raises(UsageError, match="no none"):
        run("restore", str(tmp_path / "none.db"), "--store", target)


def test_a_backup_leaves_no_draft_behind_whatever_its_name(filled: str, folder: Path) -> None:
    run("backup", str(folder / "nightly[1].db"), "--store", filled)
    assert [path.name for path in folder.iterdir() if "nightly" in path.name] == ["nightly[1].db"]


def test_opt_in_records_are_in_no_backup(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SEARCHES), clock) as (client, collector):
        from collect.test_records import give

        assert give(client, collector.tokens.new(1)).status_code == 201
    run("backup", str(folder / "backup.db"), "--store", store_url)
    copy = Store.open(folder / "backup.db")
    with copy.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM hushquery_collect_record").scalar_one() == 0
        assert connection.exec_driver_sql("SELECT count(*) FROM hushquery_collect_token").scalar_one() == 1
    copy.close()


@pytest.mark.parametrize("by", ["backup", "restore", "lost"])
def test_a_copy_makes_no_head_list_of_records_that_it_does_not_have(
    store_url: str, folder: Path, clock: Clock, new_store: Callable[[], str], by: str
) -> None:
    """A move that had begun would spend both accounts on a list of nobody's records."""
    from collect.test_hybrid_work import open_accounts
    from collect.test_records import give

    task = Task.loads(SEARCHES)
    with running(settings_for(store_url, folder, SEARCHES), clock) as (client, collector):
        token = collector.tokens.new(1)
        assert give(client, token).status_code == 201
        period = task.period_at(clock())
        with pytest.raises(AccountMissing):
            collector.phases.advance(task, 1, period)
        if by == "lost":  # as when PostgreSQL's own tools left the table out
            with collector.store.write() as connection:
                connection.exec_driver_sql("DELETE FROM hushquery_collect_record")
    copy = store_url
    if by != "lost":
        copy = str(folder / "backup.db")
        run("backup", copy, "--store", store_url)
    if by == "restore":
        if store_url.startswith("sqlite"):
            copy = store_url.removeprefix("sqlite:///")  # any store in a file can be restored from
        target = new_store()
        told = run("restore", copy, "--store", target)
        assert "opt-in records are not copied: 1 open opt-in phase(s) begin without any" in told
        copy = target
    open_accounts(folder, epochs=12)
    with running(settings_for(copy, folder, SEARCHES), clock) as (client, collector):
        if by == "lost":
            with pytest.raises(NotReady, match="nobody has given"):
                collector.phases.advance(task, 1, period)
        collector.cache.refresh()
        (epoch,) = read("status", "--store", copy)["tasks"][0]["epochs"]
        assert (epoch["phase"], epoch["moving"], epoch["trouble"]) == ("optin_open", None, None)
        with pytest.raises(NotReady, match="nobody has given"):
            collector.phases.advance(task, 1, period)
        assert [entry.kind for entry in Ledger.open(folder / "ledger.db").history()] == ["open", "open"]
        assert give(client, token).status_code == 201


def test_tokens(filled: str) -> None:
    where = ("--store", filled)
    assert run("tokens", "list", *where) == "there are no tokens\n"
    made = read("tokens", "new", "--note", "reading room", *where)
    assert made["token"].startswith("hq_")
    (token,) = read("tokens", "list", *where)["tokens"]
    assert token["note"] == "reading room"
    assert token["revoked"] is None
    assert made["token"].partition(".")[2] not in run("tokens", "list", *where)
    assert run("tokens", "revoke", token["name"], *where) == "revoked\n"
    assert "0 of its uploads deleted" in run("tokens", "revoke", token["name"], "--forget", *where)
    assert "revoked" in run("tokens", "list", *where)
    with pytest.raises(UsageError, match="no token"):
        run("tokens", "revoke", "x", *where)


def test_which_task_is_meant(store_url: str, folder: Path, clock: Clock) -> None:
    with running(settings_for(store_url, folder, SETTING, SEARCHES), clock):
        pass
    with pytest.raises(UsageError, match="not clear") as caught:
        run("tokens", "new", "--store", store_url)
    assert TASK.id[:12] in str(caught.value)
    for name in ("searches", Task.loads(SEARCHES).id[:10]):
        assert read("tokens", "new", "--task", name, "--store", store_url)["task"] == Task.loads(SEARCHES).id
    with pytest.raises(UsageError, match="no such task"):
        run("advance", "--to", "closed", "--task", "zzz", "--store", store_url)
    with pytest.raises(UsageError, match="no such epoch"):
        run("advance", "--to", "closed", "--task", "theme", "--epoch", "7", "--store", store_url)


def test_no_store_is_made_by_looking(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no store"):
        run("status", "--store", str(tmp_path / "none.db"))
    assert not list(tmp_path.iterdir())


def test_serve_hands_its_options_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Settings] = []
    monkeypatch.setattr("hushquery.collect.http.serve.run", lambda settings, **_: asked.append(settings))
    server = typer.Typer()
    server.command()(serve)
    options = ["--task", "a.toml", "--task", "b.toml", "--optin-share", "0.5", "--max-store", "2MiB", "--tick", "0"]
    CliRunner().invoke(server, options, catch_exceptions=False)
    (made,) = asked
    assert (made.tasks, made.optin_share, made.most_bytes, made.tick_seconds) == (("a.toml", "b.toml"), 0.5, 2 << 20, 0)
    with pytest.raises(UsageError, match="opt-in share"):
        CliRunner().invoke(server, [*options, "--optin-share", "1"], catch_exceptions=False)
