"""Where the ledger is: one per person and machine, so that `cd` resets no budget, and which files were charged."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import hushquery as hq
from commands import answer
from hushquery.core.ledger.store import default_ledger
from hushquery.core.loss import Loss
from hushquery.errors import BudgetError

STAT = ("stat", "count", "log.csv", "--unit", "user", "--epsilon", "1", "--population")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUSHQUERY_LEDGER")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "log.csv").write_text("user\nann\nbob\n")
    monkeypatch.chdir(tmp_path / "one")


def test_changing_the_folder_resets_no_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "data/hushquery/ledger.db"
    assert default_ledger() == str(place)
    code, _, err = answer(*STAT, "readers")
    assert code == 0
    assert f"(ledger: {place})" in err
    assert place.parent.stat().st_mode & 0o777 == 0o700
    monkeypatch.chdir(tmp_path / "two")
    assert answer(*STAT, "readers")[0] == 3
    assert not Path("ledger.db").exists()
    assert [account.population for account in hq.Ledger.open().accounts()] == ["readers"]
    assert str(place) in answer("budget", "history", "--json")[1]


def test_a_ledger_in_the_folder_is_named_and_used_only_if_asked_for() -> None:
    hq.Ledger.open("ledger.db").open_account("readers", "add-remove", hq.Budget(2, 0))
    before = Path("ledger.db").read_bytes()
    code, _, err = answer(*STAT, "readers")
    assert code == 0
    assert "note: ledger.db in this folder is not used" in err
    assert "--ledger ledger.db" in err
    assert Path("ledger.db").read_bytes() == before
    code, _, err = answer(*STAT, "readers", "--ledger", "ledger.db")
    assert code == 0
    assert "is not used" not in err
    assert hq.Ledger.open("ledger.db").account("readers", "add-remove").remaining_epsilon == 1


def test_a_file_charged_under_another_name_is_refused_once_then_warned_about(tmp_path: Path) -> None:
    assert "was charged" not in answer(*STAT, "readers")[2]
    Path("copy.csv").hardlink_to("log.csv")
    Path("link.csv").symlink_to("log.csv")
    place = Path(default_ledger())
    for name, file in (("staff", "log.csv"), ("visitors", "copy.csv"), ("donors", "link.csv")):
        before = place.read_bytes()
        ask = ("stat", "count", file, *STAT[3:], name)
        code, _, err = answer(*ask)
        assert code == 3
        assert f'A file of the new population "{name}" was charged to ' in err
        assert '"readers"' in err
        assert "Nothing was spent" in err
        assert "--new-population" in err
        assert place.read_bytes() == before
        assert answer(*ask, "--new-population")[0] == 0
        # Where both have accounts, whoever spends is reminded.
        assert f'warning: a file of "{name}" was charged to ' in answer(*ask)[2]
    assert "was charged" not in answer("stat", "count", str(tmp_path / "two/log.csv"), *STAT[3:], "others")[2]
    for shown in (answer("budget", "history"), answer("budget", "show"), answer("budget", "history", "--json")):
        assert "log.csv" not in shown[1]
    listed = answer("budget", "history", "--files")[1]
    assert f"file of readers (private): {tmp_path / 'one/log.csv'}" in listed


def test_an_old_ledger_without_the_table_opens_and_gets_it_with_the_first_file(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    book = hq.Ledger.open(path)
    book.open_account("readers", "add-remove", hq.Budget(2, 0))
    book.spend("readers", "add-remove", Loss(pure=(1,)), what="without a file")

    def tables() -> set[str]:
        with closing(sqlite3.connect(path)) as base:
            return {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    assert tables() == {"hushquery_ledger_meta", "hushquery_ledger_entry"}
    assert book.files() == []
    book.spend("readers", "add-remove", Loss(pure=("1/2",)), what="with one", files=["log.csv", "no such file"])
    assert tables() == {"hushquery_ledger_meta", "hushquery_ledger_entry", "hushquery_ledger_file"}
    assert book.files() == [("readers", str(Path("log.csv").resolve()))]
    assert hq.Ledger.open(path).check().startswith("3:")


def test_files_are_noted_in_postgresql_too(postgres_url: str) -> None:
    book = hq.Ledger.open(postgres_url)
    book.spend("file readers", "add-remove", Loss(pure=(1,)), what="x", create_with=hq.Budget(1), files=["log.csv"])
    assert book.other_names("file staff", ["log.csv"]) == ["file readers"]
    with pytest.raises(BudgetError, match='was charged to "file readers"'):
        book.spend("file staff", "add-remove", Loss(pure=(1,)), what="x", create_with=hq.Budget(1), files=["log.csv"])
    assert book.other_names("file readers", ["log.csv"]) == []


def test_only_its_owner_reads_a_ledger(tmp_path: Path) -> None:
    path, old = tmp_path / "new.db", os.umask(0o022)
    try:
        book = hq.Ledger.open(path)
    finally:
        os.umask(old)

    def mode() -> int:
        return path.stat().st_mode & 0o777

    assert mode() == 0o600
    book.open_account("readers", "add-remove", hq.Budget(4, 0))
    # A file of an older version is tightened by the next spend; a group that may write was let in on purpose.
    for was, then in ((0o644, 0o600), (0o664, 0o660), (0o660, 0o660), (0o600, 0o600)):
        path.chmod(was)
        book.account("readers", "add-remove")
        assert mode() == was
        book.spend("readers", "add-remove", Loss(pure=("1/2",)), what="x")
        assert mode() == then
    assert book.check().startswith("5:")


def test_no_release_names_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "clinic-of-dr-jones.csv"
    secret.write_text("user,query\n" + "".join(f"u{i},news\n" for i in range(200)))
    words = ("--epsilon", "2", "--delta", "1e-6", "--queries-per-user", "1", "--population", "readers", "--out", "out")
    assert answer("release", str(secret), *words)[0] == 0
    assert all(b"dr-jones" not in file.read_bytes() for file in Path("out").rglob("*") if file.is_file())
    assert answer("site", "out", "--ledger", default_ledger(), "--out", "site")[0] == 0
    assert all(b"dr-jones" not in file.read_bytes() for file in Path("site").rglob("*") if file.is_file())
