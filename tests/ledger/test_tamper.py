# ruff: noqa: S608 -- the statements are made of constants
"""A ledger that was changed behind its back is refused, whatever was changed, and never repaired."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hushquery.core.budget import Budget
from hushquery.core.ledger.ledger import Ledger
from hushquery.core.ledger.store import GENESIS, digest
from hushquery.core.loss import Loss
from hushquery.errors import LedgerCorrupt, Unavailable
from ledger.workers import READERS, sql

ENTRY, META = "hushquery_ledger_entry", "hushquery_ledger_meta"
COLUMNS = (
    "seq",
    "kind",
    "population",
    "relation",
    "what",
    "plan",
    "period",
    "time",
    "data",
    "prev_hash",
    "hash",
)


_filled = {}


def fill(url):
    """Six entries: two accounts and four spends; a SQLite file is made once and then copied, which is faster."""
    path = None if str(url).startswith("postgresql") else Path(str(url).removeprefix("sqlite:///"))
    if path and _filled:
        path.write_bytes(_filled["bytes"])
        return Ledger.open(url)
    ledger = Ledger.open(url)
    ledger.open_account(*READERS, Budget(1, 0), period="7d")
    ledger.open_account("authors", "replace-one", Budget(2, 1e-6))
    for number in range(4):
        ledger.spend(*READERS, Loss(pure=("1/8",)), what=f"number {number}", plan="a plan")
    if path:
        _filled["bytes"] = path.read_bytes()
    return ledger


def content(url):
    """Every row of the store, as it is now."""
    return [sql(url, f"SELECT * FROM {table} ORDER BY 1") for table in (META, ENTRY)]


def forge(url, **changes):
    """Append a row as another program could: its hash is right, and the head names it."""
    *_, last = sql(url, f"SELECT {', '.join(COLUMNS)} FROM {ENTRY} ORDER BY seq")
    row = dict(zip(COLUMNS, last, strict=True))
    row |= {"seq": row["seq"] + 1, "prev_hash": row["hash"]} | changes
    row["hash"] = digest(row)
    sql(
        url,
        f"INSERT INTO {ENTRY} ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * 11)})",
        [row[c] for c in COLUMNS],
    )
    sql(url, f"UPDATE {META} SET entries = ?, head = ?", [row["seq"], row["hash"]])


def last_data(url):
    return json.loads(sql(url, f"SELECT data FROM {ENTRY} WHERE kind = 'spend' ORDER BY seq DESC")[0][0])


def refused(url, ledger, why):
    """Opening it anew is refused for the reason given; so is spending by one who had it open."""
    with pytest.raises(LedgerCorrupt, match=why) as error:
        Ledger.open(url)
    assert error.value.exit_code == 3
    assert error.value.fix
    with pytest.raises(LedgerCorrupt, match=why):
        ledger.check()


def test_untouched_it_is_accepted(store_url):
    ledger = fill(store_url)
    assert Ledger.open(store_url).check() == ledger.check() == ledger.head
    forge(store_url)  # and so is what is well formed: the refusals below have another reason
    assert len(Ledger.open(store_url).history()) == 7


EDITS = {
    "amount": "UPDATE {e} SET data = replace(data, '1/8', '1/9') WHERE seq = 4",
    "budget": 'UPDATE {e} SET data = replace(data, \'"epsilon":"1"\', \'"epsilon":"9"\') WHERE seq = 1',
    "period length": "UPDATE {e} SET data = replace(data, '7d', '1d') WHERE seq = 1",
    "kind": "UPDATE {e} SET kind = 'open' WHERE seq = 4",
    "population": "UPDATE {e} SET population = 'authors' WHERE seq = 4",
    "relation": "UPDATE {e} SET relation = 'replace-one' WHERE seq = 4",
    "what": "UPDATE {e} SET what = what || ' ' WHERE seq = 4",
    "plan": "UPDATE {e} SET plan = '' WHERE seq = 4",
    "period": "UPDATE {e} SET period = 1 WHERE seq = 4",
    "time": "UPDATE {e} SET time = replace(time, 'T', ' ') WHERE seq = 4",
    "hash": "UPDATE {e} SET hash = upper(hash) WHERE seq = 4",
    "link": "UPDATE {e} SET prev_hash = '{zero}' WHERE seq = 4",
    "last amount": "UPDATE {e} SET data = replace(data, '1/8', '1/9') WHERE seq = 6",
    "first dropped": "DELETE FROM {e} WHERE seq = 1",
    "middle dropped": "DELETE FROM {e} WHERE seq = 4",
    "last dropped": "DELETE FROM {e} WHERE seq = 6",
    "last two dropped": "DELETE FROM {e} WHERE seq > 4",
    "all dropped": "DELETE FROM {e}",
    "renumbered": "UPDATE {e} SET seq = 60 WHERE seq = 6",
    "repeated": "INSERT INTO {e} SELECT 7, kind, population, relation, what, plan, period, time, data, "
    "prev_hash, hash FROM {e} WHERE seq = 6",
    "before the first": "UPDATE {e} SET seq = 0 WHERE seq = 6",
    "head dropped": "DELETE FROM {m}",
    "two heads": "INSERT INTO {m} SELECT 2, schema, entries, head FROM {m}",
    "head counts less": "UPDATE {m} SET entries = 5",
    "head counts more": "UPDATE {m} SET entries = 7",
    "head of nothing": "UPDATE {m} SET entries = 0, head = '{zero}'",
    "other head": "UPDATE {m} SET head = '{zero}'",
    "newer layout": "UPDATE {m} SET schema = 2",
    "older layout": "UPDATE {m} SET schema = 0",
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_noticed(store_url, edit):
    ledger = fill(store_url)
    before = content(store_url)
    sql(store_url, EDITS[edit].format(e=ENTRY, m=META, zero=GENESIS))
    assert content(store_url) != before
    refused(store_url, ledger, "version" if "layout" in edit else "entr|head")


@pytest.mark.parametrize("seq", [1, 4, 6])
def test_an_edit_with_its_hash_made_right_is_noticed(store_url, seq):
    """The edited entry is consistent in itself; the next one, or the head, still names the old hash."""
    ledger = fill(store_url)
    (values,) = sql(store_url, f"SELECT {', '.join(COLUMNS)} FROM {ENTRY} WHERE seq = {seq}")
    row = dict(zip(COLUMNS, values, strict=True)) | {"what": "nothing much"}
    sql(store_url, f"UPDATE {ENTRY} SET what = ?, hash = ? WHERE seq = {seq}", [row["what"], digest(row)])
    refused(store_url, ledger, "head" if seq == 6 else f"entry {seq + 1} does not follow")


def test_a_gap_in_the_numbers_is_noticed(store_url):
    ledger = fill(store_url)
    forge(store_url, seq=8)
    sql(store_url, f"UPDATE {META} SET entries = 7")
    refused(store_url, ledger, "entry 7 is missing")


def test_two_entries_swapped_are_noticed(store_url):
    ledger = fill(store_url)
    before = content(store_url)
    for old, new in ((4, 40), (5, 4), (40, 5)):
        sql(store_url, f"UPDATE {ENTRY} SET seq = {new} WHERE seq = {old}")
    assert content(store_url) != before
    refused(store_url, ledger, "entry 4")


def test_what_was_dropped_with_its_head_is_noticed_by_a_noted_head(store_url):
    """Nothing inside the ledger can tell: the head was moved back too. A head noted elsewhere can."""
    ledger = fill(store_url)
    sql(store_url, f"DELETE FROM {ENTRY} WHERE seq = 6")
    (head,) = sql(store_url, f"SELECT hash FROM {ENTRY} WHERE seq = 5")
    sql(store_url, f"UPDATE {META} SET entries = 5, head = ?", head)
    short = Ledger.open(store_url)
    assert short.check() == f"5:{head[0]}"
    with pytest.raises(LedgerCorrupt, match="old copy"):
        short.check(expect_head=ledger.head)
    with pytest.raises(LedgerCorrupt, match="old copy"):  # one who had it open knows without being told
        ledger.spend(*READERS, Loss(), what="x")


def test_a_chain_written_anew_is_noticed_by_a_noted_head(store_url):
    ledger = fill(store_url)
    noted = ledger.head
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in content(store_url)[1]]
    sql(store_url, f"DELETE FROM {ENTRY}")
    head = GENESIS
    for row in rows:
        row |= {"data": row["data"].replace("1/8", "1/80"), "prev_hash": head}
        head = row["hash"] = digest(row)
        places = ", ".join("?" * 11)
        sql(
            store_url,
            f"INSERT INTO {ENTRY} ({', '.join(COLUMNS)}) VALUES ({places})",
            [row[c] for c in COLUMNS],
        )
    sql(store_url, f"UPDATE {META} SET head = ?", [head])
    anew = Ledger.open(store_url)
    assert anew.check() == f"6:{head}"
    with pytest.raises(LedgerCorrupt, match="written anew"):
        anew.check(expect_head=noted)
    with pytest.raises(LedgerCorrupt, match="not the entry that was there"):
        ledger.spend(*READERS, Loss(), what="x")
    with pytest.raises(LedgerCorrupt, match="written anew"):
        ledger.check()


@pytest.mark.parametrize(
    "edit", ["last amount", "last dropped", "middle dropped", "head dropped", "newer layout", "other head"]
)
def test_one_who_had_it_open_notices_before_the_next_spend(store_url, edit):
    ledger = fill(store_url)
    sql(store_url, EDITS[edit].format(e=ENTRY, m=META, zero=GENESIS))
    after = content(store_url)
    with pytest.raises(LedgerCorrupt):
        ledger.spend(*READERS, Loss(pure=("1/8",)), what="x")
    assert content(store_url) == after


def test_unknown_things_of_a_newer_version_are_refused(new_store):
    cases = [
        ({"kind": "refund"}, "kind 'refund'"),
        ({"data": {"renyi": []}}, "parts this version does not know"),
        (
            {
                "data": {
                    "sparse": [{"keys_per_user": 1, "sigma": "1", "threshold": 9, "relation": "add-remove", "x": 1}]
                }
            },
            "parts",
        ),
        ({"relation": "edge"}, "does not say"),
        ({"time": "yesterday"}, "does not say"),
        ({"time": "2026-01-01T00:00:00"}, "does not say"),
        ({"data": {"mu_squared": "-1"}}, "does not say"),
        ({"data": {"pure": ["nan"]}}, "does not say"),
        ({"data": {"pure": 1}}, "does not say"),
        (
            {"data": {"sparse": [{"keys_per_user": 1, "sigma": "1", "threshold": 9, "relation": "replace-one"}]}},
            "does not",
        ),
        ({"population": "nobody"}, "no account"),
        ({"period": -1}, "period gone by"),
        ({"kind": "open"}, "does not say"),
    ]
    for changes, why in cases:
        url = new_store()
        ledger = fill(url)
        if isinstance(changes.get("data"), dict):
            changes = changes | {"data": json.dumps(last_data(url) | changes["data"])}
        forge(url, **changes)
        with pytest.raises(LedgerCorrupt, match=why):
            Ledger.open(url)
        with pytest.raises(LedgerCorrupt, match=why):
            ledger.spend(*READERS, Loss(), what="x")


def test_terms_of_a_newer_version_are_refused(new_store):
    good = {"budget": {"epsilon": "1", "delta": "0"}, "period": None, "lifetime": None}
    cases = [
        {"population": "readers", "data": good},  # it is open already
        {"population": "new", "data": good | {"refill": "1"}},
        {"population": "new", "data": good | {"budget": {"epsilon": "1", "delta": "0", "rho": "1"}}},
        {"population": "new", "data": good | {"period": "1w"}},
        {"population": "new", "data": good | {"lifetime": {"epsilon": "1", "delta": "0"}}},
        {"population": "new", "data": good | {"budget": {"epsilon": "-1", "delta": "0"}}},
        {"population": "new", "data": []},
        {"population": "new", "data": {}},
    ]
    url = new_store()
    fill(url)
    forge(url, kind="open", population="new", data=json.dumps(good))
    assert len(Ledger.open(url).accounts()) == 3  # the good one is accepted
    for case in cases:
        url = new_store()
        fill(url)
        forge(url, kind="open", **case | {"data": json.dumps(case["data"])})
        with pytest.raises(LedgerCorrupt, match="entry 7"):
            Ledger.open(url)


def test_an_overspent_account_does_not_pass_the_check(store_url):
    fill(store_url)
    forge(store_url, data=json.dumps(last_data(store_url) | {"pure": ["3/4"]}))
    ledger = Ledger.open(store_url)
    with pytest.raises(LedgerCorrupt, match="more than its budget"):
        ledger.check()


@pytest.mark.parametrize("table", [ENTRY, META])
def test_a_missing_table_is_noticed(store_url, table):
    ledger = fill(store_url)
    sql(store_url, f"DROP TABLE {table}")
    for create in (True, False):
        with pytest.raises(LedgerCorrupt, match="table"):
            Ledger.open(store_url, create)
    with pytest.raises(LedgerCorrupt):
        ledger.spend(*READERS, Loss(), what="x")


@pytest.mark.parametrize("column", ["data", "hash"])
def test_a_missing_column_is_noticed(store_url, column):
    fill(store_url)
    sql(store_url, f"ALTER TABLE {ENTRY} DROP COLUMN {column}")
    with pytest.raises(LedgerCorrupt):
        Ledger.open(store_url)


# ---- SQLite: the file ----


@pytest.fixture
def whole(tmp_path):
    """A ledger file of several pages."""
    path = tmp_path / "ledger.db"
    ledger = fill(path)
    for number in range(30):
        ledger.spend("authors", "replace-one", Loss(pure=("1/100",)), what=f"{number} " + "x" * 200)
    assert path.stat().st_size > 3 * 4096
    return path


def damaged(whole, change):
    """A copy of the file with its bytes changed."""
    path = whole.with_name("damaged.db")
    old = whole.read_bytes()
    path.write_bytes(change(old))
    assert path.read_bytes() != old
    return path


@pytest.mark.parametrize(
    "keep", [0, 1, 16, 99, 100, 511, 512, 1000, 4095, 4096, 5000, 8192, -4096, -4095, -1000, -100, -1]
)
def test_a_truncated_file_is_refused(whole, keep):
    path = damaged(whole, lambda old: old[:keep])
    for create in (True, False):
        with pytest.raises(LedgerCorrupt, match=None if keep else "empty"):
            Ledger.open(path, create)
    assert len(path.read_bytes()) == len(whole.read_bytes()[:keep])  # it was not "repaired" either


@pytest.mark.parametrize("extra", [b"\0", b"garbage", b"\0" * 4096, b"x" * 10000])
def test_a_file_with_something_appended_is_refused(whole, extra):
    with pytest.raises(LedgerCorrupt, match="bytes instead of"):
        Ledger.open(damaged(whole, lambda old: old + extra))


@pytest.mark.parametrize("page", [0, 1, 2, -1])
def test_a_file_with_a_page_wiped_is_refused(whole, page):
    def wipe(old):
        pages = [old[at : at + 4096] for at in range(0, len(old), 4096)]
        pages[page] = bytes(4096)
        return b"".join(pages)

    with pytest.raises(LedgerCorrupt):
        Ledger.open(damaged(whole, wipe))


def test_damage_that_reading_would_not_meet_is_noticed(whole):
    """A list of free pages that are not there: SQLite would give the next entry a page that is in use."""
    with pytest.raises(LedgerCorrupt, match="damaged"):
        Ledger.open(damaged(whole, lambda old: old[:36] + (5).to_bytes(4, "big") + old[40:]))


def test_any_flipped_byte_is_refused_or_changes_nothing(whole):
    """Some bytes of a file mean nothing; all others are noticed."""
    chance = random.Random(20260103)
    expected = [entry.to_json() for entry in Ledger.open(whole).history()]
    noticed = 0
    for _ in range(150):
        at, mask = chance.randrange(whole.stat().st_size), chance.randrange(1, 256)
        path = damaged(whole, lambda old: old[:at] + bytes([old[at] ^ mask]) + old[at + 1 :])  # noqa: B023
        try:
            found = [entry.to_json() for entry in Ledger.open(path).history()]
        except (LedgerCorrupt, Unavailable):
            noticed += 1
        else:
            assert found == expected
    assert noticed > 75


@pytest.mark.parametrize("text", ["population,epsilon\nreaders,1\n", "x" * 5000, "SQLite format 3\0" + "x" * 5000])
def test_a_file_that_is_no_database_is_refused(tmp_path, text):
    path = tmp_path / "notes.txt"
    path.write_text(text)
    for create in (True, False):
        with pytest.raises(LedgerCorrupt, match="can't be trusted"):
            Ledger.open(path, create)
    assert path.read_text() == text


def test_a_database_of_somebody_else_is_refused(tmp_path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE photos (id integer)")
    with pytest.raises(LedgerCorrupt, match="a database, but"):
        Ledger.open(path)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("photos",)]


@pytest.mark.parametrize("value", ["x'00ff'", "CAST(x'ff20' AS TEXT)", "1e999", "12", "NULL", "zeroblob(10)"], ids=str)
@pytest.mark.parametrize("column", ["what", "data", "hash", "time"])
def test_values_of_a_wrong_type_are_refused(tmp_path, column, value):
    path = tmp_path / "ledger.db"
    fill(path)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("PRAGMA writable_schema = ON")
        other.execute("UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '')")
        other.execute("PRAGMA writable_schema = RESET")
        assert other.execute(f"UPDATE {ENTRY} SET {column} = {value} WHERE seq = 4").rowcount == 1
    with pytest.raises(LedgerCorrupt):
        Ledger.open(path)


def test_an_old_copy_put_back_is_noticed(tmp_path):
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    ledger = fill(path)
    shutil.copy(path, copy)
    ledger.spend(*READERS, Loss(pure=("1/8",)), what="since the copy")
    noted = ledger.head
    Path(copy).replace(path)
    with pytest.raises(LedgerCorrupt, match="old copy"):
        ledger.spend(*READERS, Loss(pure=("1/8",)), what="x")
    with pytest.raises(LedgerCorrupt, match="old copy"):
        Ledger.open(path).check(expect_head=noted)


def test_a_copy_of_the_file_is_a_whole_ledger(tmp_path):
    ledger = fill(tmp_path / "ledger.db")
    shutil.copy(tmp_path / "ledger.db", tmp_path / "copy.db")
    assert Ledger.open(tmp_path / "copy.db", create=False).check() == ledger.head
