"""Logs of which nothing could be used are refused before a spend; a bad line, or a bad file among others, is not."""

from __future__ import annotations

import json

import pytest

from hushquery.errors import DataError
from hushquery.log import read_log

LATIN = "caf\xe9".encode("latin-1")


def lines_of(key_user: str, key_query: str, n: int = 12) -> bytes:
    return b"".join(json.dumps({key_user: str(i), key_query: "a"}).encode() + b"\n" for i in range(n))


def test_json_lines_with_other_keys_are_refused_and_say_how_to_name_them(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(lines_of("User", "Query"))
    with pytest.raises(DataError, match="'query' and 'user'") as refused:
        read_log(path)
    assert "capitals too" in refused.value.why
    log = read_log(path, columns={"user": "User", "query": "Query"})
    assert log.table.count().to_pyarrow().as_py() == 12


def test_one_line_with_the_keys_is_enough(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(lines_of("User", "Query") + lines_of("user", "query", 1))
    read_log(path)


def test_a_file_of_other_text_among_others_is_read(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"user,query\n" + b"1,tea\n" * 12)
    (tmp_path / "b.csv").write_bytes(b"user,query\n" + b"2," + LATIN + b"\n")
    read_log(str(tmp_path / "*.csv"))
    (tmp_path / "a.csv").write_bytes(b"user,query\n" + b"1," + LATIN + b"\n" * 1)
    (tmp_path / "b.csv").write_bytes(b"user,query\n" + (b"2," + LATIN + b"\n") * 12)
    with pytest.raises(DataError, match=r"a\.csv and 1 more is not utf-8"):
        read_log(str(tmp_path / "*.csv"))


def test_times_of_one_file_are_enough(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"user,query,time\n" + b"1,tea,26.09.2026 12:20\n" * 12)
    with pytest.raises(DataError, match="times"):
        read_log(str(tmp_path / "*.csv"))
    (tmp_path / "b.csv").write_bytes(b"user,query,time\n2,tea,2026-09-26 12:20:00\n")
    read_log(str(tmp_path / "*.csv"))
