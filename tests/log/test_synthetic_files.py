"""Files of the synthetic log: every kind reads back, bytes repeat, memory does not grow, and what is refused."""

from __future__ import annotations

import csv
import gzip
import json
import tracemalloc
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushquery.errors import DataError, UsageError
from hushquery.log.synthetic.logs import batches, write_log


def log(profile: str, users: int, seed: int) -> list[dict[str, Any]]:
    return pa.Table.from_batches(list(batches(profile, users, seed))).to_pylist()


def as_rows(path: Path) -> list[dict[str, Any]]:
    """Read a file back with other code than wrote it."""
    kind = [suffix for suffix in path.suffixes if suffix != ".gz"][-1]
    if kind == ".parquet":
        return pq.read_table(path).to_pylist()
    data = path.read_bytes()
    lines = (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines()
    if kind == ".jsonl":
        rows = [json.loads(line) for line in lines]
    else:
        rows = list(csv.DictReader(lines, delimiter="," if kind == ".csv" else "\t"))
    if kind == ".txt":
        names = {"AnonID": "user", "QueryTime": "time", "Query": "query", "ClickURL": "url", "ItemRank": "rank"}
        rows = [{new: row[old] for old, new in names.items()} for row in rows]
    for row in rows:
        row["time"] = datetime.fromisoformat(row["time"])
        row["url"] = row["url"] or None
        row["rank"] = int(row["rank"]) if row["rank"] else None
    return rows


@pytest.mark.parametrize(
    "ending", [".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz", ".txt", ".txt.gz", ".TSV"]
)
def test_every_kind_of_file_reads_back(tmp_path: Path, ending: str) -> None:
    told = []
    path = write_log(tmp_path / f"log{ending}", "tiny", 600, 2, lambda *done: told.append(done))
    assert path == tmp_path / f"log{ending}"
    if ending == ".TSV":
        path = path.rename(tmp_path / "log.tsv")
    expected = log("tiny", 600, 2)
    assert as_rows(path) == expected
    assert list(tmp_path.iterdir()) == [path], "nothing unfinished is left"
    assert [users for users, _ in told] == [500, 600]
    assert told[-1][1] == len(expected)


def test_the_yandex_format_reads_back(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.txt", "yandex", 200, 2)
    rows, session, days, pages = [], {}, {}, {}
    for line in path.read_text().splitlines():
        cells = line.split("\t")
        if cells[1] == "M":
            assert cells[0] not in session
            session[cells[0]], days[cells[0]] = cells[3], int(cells[2])
        elif cells[2] == "Q":
            pages[cells[0], cells[3]] = (cells[5].replace(",", " "), [pair.split(",")[0] for pair in cells[6:]])
            assert len(set(cells[6:])) == 10
            rows.append([session[cells[0]], int(cells[1]), cells[5].replace(",", " "), None, None, days[cells[0]]])
        else:
            query, urls = pages[cells[0], cells[3]]
            click = [session[cells[0]], int(cells[1]), query, cells[4], urls.index(cells[4]) + 1, days[cells[0]]]
            if rows[-1][3] is None:
                rows.pop()
            rows.append(click)
    expected = log("yandex", 200, 2)
    assert [[row[0], *row[2:5]] for row in rows] == [
        [row["user"], row["query"], row["url"], row["rank"]] for row in expected
    ]
    began = datetime(2026, 3, 1)
    for row, truth in zip(rows, expected, strict=True):
        # The format has the day on which a session began, and the seconds since.
        start = truth["time"] - timedelta(seconds=row[1])
        assert row[5] == (start - began).days + 1


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        write_log(path, "tiny", 1)
    assert path.read_text() == "mine"
    write_log(path, "tiny", 1, force=True)
    assert path.read_text().startswith("user,time")


def test_what_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    path.write_text("mine")

    def stop(users: int, rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_log(path, "tiny", 2000, progress=stop, force=True)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("log.parquet", "mine")]


@pytest.mark.parametrize("users", [0, -1, 100_000_001, 10**30, 2.5, "9", None])
def test_users_out_of_range_are_refused(tmp_path: Path, users: Any) -> None:
    with pytest.raises(UsageError, match="number of users"):
        write_log(tmp_path / "log.csv", "tiny", users)
    with pytest.raises(UsageError, match="number of users"):
        batches("tiny", users)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seed", [-1, 2**64, 0.5])
def test_seeds_out_of_range_are_refused(seed: Any) -> None:
    with pytest.raises(UsageError, match="seed"):
        batches("tiny", 1, seed)


@pytest.mark.parametrize("name", ["log", "log.parquet.gz", "log.xlsx", "log.gz", "log.csv.zip"])
def test_unknown_endings_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="which kind of file"):
        write_log(tmp_path / name, "tiny", 1)


def test_unknown_profiles_and_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no profile"):
        batches("bing", 1)
    with pytest.raises(DataError, match="can't be written"):
        write_log(tmp_path / "missing" / "log.csv", "tiny", 1)
    with pytest.raises(DataError, match="can't be written"):
        write_log(tmp_path / ("x" * 300 + ".csv"), "tiny", 1)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        write_log(tmp_path / "folder.csv", "tiny", 1, force=True)


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("log.parquet", "log.csv.gz"):
        first, second, other = (tmp_path / f"{part}.{name}" for part in "abc")
        write_log(first, "tiny", 600, seed=5)
        write_log(second, "tiny", 600, seed=5)
        write_log(other, "tiny", 600, seed=6)
        assert first.read_bytes() == second.read_bytes()
        assert first.read_bytes() != other.read_bytes()


def test_memory_does_not_grow_with_the_users(tmp_path: Path) -> None:
    def peak(users: int) -> int:
        held = []
        tracemalloc.start()
        write_log(
            tmp_path / "log.parquet",
            "tiny",
            users,
            progress=lambda *_: held.append(pa.total_allocated_bytes()),
            force=True,
        )
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most + max(held)

    peak(500)  # what is built once
    assert peak(15_000) < 1.5 * peak(1_500)
