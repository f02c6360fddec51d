"""The stores: what really runs, what is refused, and what a message never shows."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import traceback
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from hushquery.core.budget import Budget
from hushquery.core.ledger import store as ledger_store
from hushquery.core.ledger.ledger import Ledger
from hushquery.core.loss import Loss
from hushquery.errors import AccountMissing, LedgerCorrupt, Unavailable, UsageError
from ledger.workers import READERS, sql
from postgres import PASSWORD, URL_PASSWORD, find

TENTH = Loss(pure=("1/10",))


def in_write_transaction(url, look):
    """Open an account, then spend with a clock that looks around: it is called inside the transaction."""
    Ledger.open(url).open_account(*READERS, Budget(1, 0))
    seen = []

    def clock():
        seen.append(look())
        return datetime.now(UTC)

    Ledger.open(url, clock=clock).spend(*READERS, TENTH, what="x")
    assert len(seen) == 1
    return seen[0]


def test_a_writer_locks_before_it_reads(store_url):
    def lock():
        if store_url.startswith("sqlite"):
            path = store_url.removeprefix("sqlite:///")
            with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
        else:
            sql(store_url, "SELECT * FROM hushquery_ledger_meta FOR UPDATE NOWAIT")

    def try_to_write():
        with pytest.raises((sqlite3.OperationalError, psycopg.errors.LockNotAvailable)) as refused:
            lock()
        return str(refused.value)

    assert "lock" in in_write_transaction(store_url, try_to_write)
    lock()  # afterwards it is free again


def test_readers_are_not_kept_waiting_by_a_writer(store_url):
    assert in_write_transaction(store_url, lambda: len(Ledger.open(store_url).history())) == 1


def test_a_busy_store_is_unavailable(store_url, monkeypatch):
    ledger = Ledger.open(store_url)
    ledger.open_account(*READERS, Budget(1, 0))
    monkeypatch.setattr(ledger_store, "WAIT_SECONDS", 1)

    def spend_too():
        with pytest.raises(Unavailable, match="lock") as refused:
            ledger.spend(*READERS, TENTH, what="while another writes")
        return refused.value.exit_code

    other = Ledger.open(store_url, clock=lambda: (spend_too(), datetime.now(UTC))[1])
    other.spend(*READERS, TENTH, what="first")
    assert [entry.what for entry in ledger.history()][1:] == ["first"]
    assert ledger.spend(*READERS, TENTH, what="second").seq == 3


def test_sqlite_is_one_file_written_through(tmp_path):
    path = tmp_path / "ledger.db"
    ledger = Ledger.open(path)
    ledger.open_account(*READERS, Budget(1, 0))
    assert list(tmp_path.iterdir()) == [path]
    with ledger._store.write() as transaction:
        pragma = {
            name: transaction._connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous")
        }
        assert pragma == {"journal_mode": "delete", "synchronous": 3}


def test_what_sqlite_runs(tmp_path, monkeypatch):
    """SQLAlchemy and the driver add no transaction of their own: these are the statements, in this order."""
    statements = []
    connect = sqlite3.connect

    def traced(*args, **kwargs):
        connection = connect(*args, **kwargs)
        connection.set_trace_callback(statements.append)
        return connection

    ledger = Ledger.open(tmp_path / "ledger.db")
    monkeypatch.setattr(sqlite3, "connect", traced)
    ledger.spend(*READERS, TENTH, what="x", create_with=Budget(1, 0))
    words = [statement.split()[0] for statement in statements if not statement.startswith("--")]
    assert statements[words.index("BEGIN")] == "BEGIN IMMEDIATE"
    assert words == [
        "PRAGMA",
        "PRAGMA",
        "BEGIN",
        "SELECT",
        "SELECT",
        "SELECT",
        "INSERT",
        "INSERT",
        "UPDATE",
        "COMMIT",
    ]


def test_a_file_in_write_ahead_mode_is_brought_back(tmp_path):
    path = tmp_path / "ledger.db"
    Ledger.open(path).open_account(*READERS, Budget(1, 0))
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
    Ledger.open(path).spend(*READERS, TENTH, what="x")
    assert list(tmp_path.iterdir()) == [path]
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_file_kept_in_write_ahead_mode_is_unavailable(tmp_path, monkeypatch):
    path = tmp_path / "ledger.db"
    Ledger.open(path)
    monkeypatch.setattr(ledger_store, "WAIT_SECONDS", 0)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable):
            Ledger.open(path)


def test_postgresql_commits_for_good_whatever_the_session_says(postgres_url):
    sql(postgres_url, "CREATE SCHEMA careless")
    url = f"{postgres_url}?options=-csearch_path%3Dcareless%20-csynchronous_commit%3Doff"
    assert sql(url, "SHOW synchronous_commit") == [("off",)]
    assert sql(url, "SHOW fsync") == [("on",)]
    ledger = Ledger.open(url)
    with ledger._store.write() as transaction:
        show = transaction._connection.exec_driver_sql
        assert show("SHOW synchronous_commit").scalar_one() == "on"
        assert show("SHOW transaction_isolation").scalar_one() == "read committed"
        assert show("SHOW lock_timeout").scalar_one() == "1min"


def test_a_ledger_beside_other_tables_of_a_database(postgres_url):
    sql(postgres_url, "CREATE SCHEMA shared")
    url = f"{postgres_url}?options=-csearch_path%3Dshared"
    sql(url, "CREATE TABLE reports (id integer)")
    Ledger.open(url).open_account(*READERS, Budget(1, 0))
    assert len(Ledger.open(url, create=False).history()) == 1


@pytest.mark.parametrize("form", ["{path}", "sqlite:///{path}", "sqlite+pysqlite:///{path}"])
def test_forms_of_a_path(tmp_path, form):
    path = tmp_path / "a folder" / ("100% ünusual#.db" if ":" in form else "100% ünusual?#.db")
    path.parent.mkdir()
    Ledger.open(form.format(path=path)).open_account(*READERS, Budget(1, 0))
    assert path.stat().st_size > 0
    assert len(Ledger.open(path, create=False).history()) == 1


def test_a_relative_path_stays_where_it_was_when_the_process_moves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = Ledger.open("ledger.db")
    monkeypatch.chdir("/")
    ledger.open_account(*READERS, Budget(1, 0))
    assert ledger.name == "ledger.db"
    assert len(Ledger.open(tmp_path / "ledger.db", create=False).history()) == 1


def test_a_link_leads_to_the_ledger(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "ledger.db")
    Ledger.open(tmp_path / "link.db").open_account(*READERS, Budget(1, 0))
    assert len(Ledger.open(tmp_path / "real" / "ledger.db", create=False).history()) == 1


def test_a_missing_ledger_is_not_made_unless_asked_for(store_url):
    for _ in range(2):
        with pytest.raises(AccountMissing, match="there is no ledger"):
            Ledger.open(store_url, create=False)
    Ledger.open(store_url)
    assert Ledger.open(store_url, create=False).head == f"0:{'0' * 64}"


def test_a_ledger_in_no_folder_is_unavailable(tmp_path):
    with pytest.raises(Unavailable, match="No such file") as refused:
        Ledger.open(tmp_path / "nowhere" / "ledger.db")
    assert refused.value.exit_code == 69
    with pytest.raises(Unavailable):
        Ledger.open(tmp_path)


def test_a_ledger_on_a_full_disk_is_unavailable_and_whole(tmp_path):
    """The limit on the size of a file makes SQLite fail in the middle of a commit."""
    path = tmp_path / "ledger.db"
    ledger = Ledger.open(path)
    ledger.open_account(*READERS, Budget(1, 0))
    script = f"""
import resource, signal, sys
from hushquery.errors import Unavailable
from hushquery.core.ledger.ledger import Ledger
from hushquery.core.loss import Loss
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
ledger = Ledger.open({str(path)!r})
resource.setrlimit(resource.RLIMIT_FSIZE, ({path.stat().st_size}, resource.RLIM_INFINITY))
try:
    ledger.spend("readers", "add-remove", Loss(pure=("1/10",)), what="x" * 100_000)
except Unavailable as error:
    sys.exit(error.exit_code)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 69, done.stderr
    assert ledger.check() == ledger.head
    assert len(ledger.history()) == 1
    assert ledger.spend(*READERS, TENTH, what="when there is room again").seq == 2


@pytest.mark.parametrize(
    "where",
    [
        "",
        ":memory:",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///x.db?mode=ro",
        "sqlite:///x?#.db",
        "mysql://h/d",
        "://",
        "postgresql+x://h",
    ],
)
def test_addresses_that_are_no_ledger(tmp_path, monkeypatch, where):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        Ledger.open(where)
    assert not list(tmp_path.iterdir())


def told(error):
    """Everything a person could come to see of an error."""
    return "".join(traceback.format_exception(error)) + repr(error) + str(error.as_dict())


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("postgresql://hush:{password}@127.0.0.1:1/postgres", 69),
        ("postgresql://hush:{password}@no-such-host.invalid/postgres", 69),
        ("postgresql://hush@127.0.0.1:1/postgres?password={password}", 69),
        ("postgresql://hush:{password}@127.0.0.1:1/postgres?no_such_option=1", 69),
        ("postgresql://hush:{password}@127.0.0.1:port/postgres", 2),
        ("oracle://hush:{password}@127.0.0.1/postgres", 2),
        ("sqlite://hush:{password}@host/path", 2),
    ],
)
def test_a_password_is_never_shown(url, code):
    with pytest.raises((Unavailable, UsageError)) as refused:
        Ledger.open(url.format(password=URL_PASSWORD))
    assert refused.value.exit_code == code
    for secret in (PASSWORD, URL_PASSWORD):
        assert secret not in told(refused.value)


def test_a_wrong_password_is_not_shown_either(postgres_url):
    wrong = postgres_url.replace(URL_PASSWORD, "an0ther")
    assert wrong != postgres_url
    with pytest.raises(Unavailable, match="authentication failed") as refused:
        Ledger.open(wrong)
    assert "an0ther" not in told(refused.value)


def test_a_password_is_hidden_where_the_server_repeats_it(postgres_url):
    """The server names the user it refuses; somebody's password is that very name."""
    with pytest.raises(Unavailable, match=r'failed for user "\*\*\*"') as refused:
        Ledger.open(postgres_url.replace(URL_PASSWORD, "hush"))
    assert "hush" not in str(refused.value)


def test_a_ledger_shows_no_password(postgres_url):
    ledger = Ledger.open(postgres_url)
    for text in (repr(ledger), ledger._repr_html_(), ledger.name):
        assert PASSWORD not in text
        assert URL_PASSWORD not in text


def test_a_ledger_that_goes_away(store_url):
    ledger = Ledger.open(store_url)
    if store_url.startswith("sqlite"):
        path = Path(store_url.removeprefix("sqlite:///"))
        path.rename(path.with_suffix(".away"))
    else:
        sql(store_url, "DROP TABLE hushquery_ledger_entry, hushquery_ledger_meta")
    with pytest.raises((Unavailable, LedgerCorrupt)):
        ledger.spend(*READERS, TENTH, what="x", create_with=Budget(1, 0))
    with pytest.raises(AccountMissing):  # and the spend did not make a new, empty one
        Ledger.open(store_url, create=False)


def test_without_a_server_these_tests_fail_and_say_what_to_type():
    with pytest.raises(RuntimeError, match="apt-get install postgresql"):
        find("no-such-program-of-postgresql")


def test_without_psycopg_a_message_says_what_to_type(monkeypatch):
    for module in [name for name in sys.modules if name.partition(".")[0] in ("psycopg", "psycopg_binary")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Unavailable) as refused:
        Ledger.open(f"postgresql://hush:{URL_PASSWORD}@127.0.0.1:1/postgres")
    assert refused.value.fix.startswith("pip install 'hushquery[serve]', or in a clone: .venv/bin/pip install -e")
    assert URL_PASSWORD not in told(refused.value)
