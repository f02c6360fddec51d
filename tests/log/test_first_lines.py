"""Before the spend at most 1,000 first lines are parsed, and only a log of which most can't be read is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commands import answer
from hushquery.errors import DataError
from hushquery.log import read_log
from hushquery.log.defects import FIRST_LINES

GOOD = {
    "csv": "u{0},tea",
    "tsv": "u{0}\ttea",
    "aol": "{0}\ttea\t2006-03-01 10:00:00\t1\thttp://tea.example",
    "jsonl": '{{"user": "u{0}", "query": "tea"}}',
    "excite": "u{0}\t970916105432\ttea",
    "sogou": "20111230000005\tu{0}\t[tea]\t1 1\ttea.example",
    "yandex": "{0}\t0\tQ\t0\t7\t11,12\t1,2",
}
HEADERS = {"csv": "user,query\n", "tsv": "user\tquery\n"}


def log_of(folder: Path, kind: str, good: int, bad: int, then: str = "") -> Path:
    path = folder / f"log-{good}-{bad}"
    lines = [GOOD[kind].format(n) for n in range(good)] + ["zebra-canary"] * bad
    path.write_text(HEADERS.get(kind, "") + "\n".join(lines) + "\n" + then)
    return path


@pytest.mark.parametrize("kind", GOOD)
def test_the_same_rule_for_every_format(tmp_path, kind):
    read_log(log_of(tmp_path, kind, 50, 50), format=kind).check_files()
    log = read_log(log_of(tmp_path, kind, 50, 51), format=kind)
    with pytest.raises(DataError, match=r"51 of 101.*hushquery look") as refused:
        log.check_files()
    assert "zebra" not in str(refused.value)
    log.check_files(anyway=True)


def test_parquet_files_too(tmp_path):
    for empty, refused in ((50, False), (51, True)):
        users = [None] * empty + ["u"] * 50
        pq.write_table(
            pa.table({"user": pa.array(users, pa.string()), "query": ["tea"] * len(users)}), tmp_path / "l.parquet"
        )
        log = read_log(tmp_path / "l.parquet")
        if not refused:
            log.check_files()
            continue
        with pytest.raises(DataError, match="no user: 51"):
            log.check_files()


def test_only_the_first_thousand_lines_are_looked_at(tmp_path):
    log = read_log(log_of(tmp_path, "csv", FIRST_LINES // 2, 0, "zebra\n" * 5000), format="csv")
    log.check_files()
    log = read_log(log_of(tmp_path, "csv", 0, 1, "u,tea\n" * 600 + "zebra\n" * 5000), format="csv")
    log.check_files()


def test_the_files_share_the_lines(tmp_path):
    log_of(tmp_path, "csv", 10, 0)
    log_of(tmp_path, "csv", 1, 900)
    log = read_log(tmp_path, format="csv")
    with pytest.raises(DataError, match="most of the log's first lines"):
        log.check_files()


def test_a_header_alone_is_not_refused(tmp_path):
    (tmp_path / "log.csv").write_text("user,query\n")
    read_log(tmp_path / "log.csv").check_files()


@pytest.mark.parametrize("command", ["release", "head", "stat"])
def test_a_log_that_plainly_does_not_parse_spends_nothing(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    log_of(tmp_path, "csv", 10, 300).rename("log.csv")
    to = ("--ledger", "ledger.db")
    if command == "release":
        words = ("release", "log.csv", "--epsilon", "1", "--delta", "1e-6", "--queries-per-user", "2", "--out", "r")
        words += ("--population", "p")
    elif command == "stat":
        words = ("stat", "count", "log.csv", "--unit", "user", "--epsilon", "1", "--population", "p")
    else:
        assert answer("task", "new", "--out", "task.toml")[0] == 0
        Path("log.csv").write_text(Path("log.csv").read_text().replace("user,query", "user,query,url"))
        words = ("head", "log.csv", "--task", "task.toml", "--out", "h")
    code, out, err = answer(*words, *to)
    assert code == 4, out + err
    assert "hushquery look" in err
    history = answer("budget", "history", *to, "--json")[1]
    assert "spend" not in history
    assert not Path("r").exists()


def test_a_release_that_left_out_many_lines_tells_the_steward_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log_of(tmp_path, "csv", 600, 300).rename("log.csv")
    words = ("release", "log.csv", "--epsilon", "2", "--delta", "1e-6", "--queries-per-user", "1", "--population", "p")
    code, out, err = answer(*words, "--out", "r", "--ledger", "ledger.db")
    assert code == 0, err
    assert "warning: about 33% of the log's lines were left out (too few columns)" in err
    assert "left out (too" not in out
    told = b"".join(file.read_bytes() for file in Path("r").iterdir())
    assert b"too few" not in told
    assert b"33%" not in told
    assert json.loads(Path("r/manifest.json").read_text())
