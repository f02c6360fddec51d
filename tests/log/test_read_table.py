"""Files as tables: read without a look at their rows, each line on its own, or refused without showing any."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushquery.errors import DataError, UsageError
from hushquery.log.tables import read_table

MARKER = "Zyxwvut-Marker"
ROWS = {"user": ["ann", "bob", None], "x": [1.5, None, 3.0]}


def shown(error):
    """Everything that a person could get to see of an error."""
    return "".join(traceback.format_exception(error)) + json.dumps(error.as_dict())


def write(folder, ending):
    path = folder / f"rows.{ending}"
    if ending == "parquet":
        pq.write_table(pa.table(ROWS), path)
    elif ending in ("csv", "tsv", "CSV"):
        comma = "\t" if ending == "tsv" else ","
        path.write_text(f"user{comma}x\nann{comma}1.5\nbob{comma}\n{comma}3.0\n", encoding="utf-8")
    else:
        path.write_text("".join(json.dumps({k: v[i] for k, v in ROWS.items()}) + "\n" for i in range(3)))
    return path


@pytest.mark.parametrize("ending", ["csv", "CSV", "tsv", "parquet", "json", "jsonl", "ndjson"])
@pytest.mark.parametrize("kind", [str, Path])
def test_files(tmp_path, ending, kind):
    table = read_table(kind(write(tmp_path, ending)), types={"user": "string", "x": "float64"})
    assert set(table.columns) == {"user", "x"}
    assert table.to_pyarrow().to_pydict() == ROWS


@pytest.mark.parametrize("text", ["\ufeffuser,x\r\nann,1\r\n", 'user;x\n"a; ""b""";1\n', '"user","x"\nann,1\n'])
def test_csv_as_spreadsheets_write_it(tmp_path, text):
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8", newline="")
    table = read_table(path)
    assert table.columns == ("user", "x")
    assert table.count().to_pyarrow().as_py() == 1


def test_a_column_of_a_file_is_text_unless_told_otherwise(tmp_path):
    """Types that are guessed from rows let one person's row change everybody's: tests/statistics/test_queries.py."""
    for before, after in ((["1"], ["1", "x"]), (["2024-01-01"], ["2024-01-01", "x"]), ([""], ["", "1"]), ([], ["1"])):
        kinds = []
        for name, cells in (("before", before), ("after", after)):
            path = tmp_path / f"{name}.csv"
            path.write_text("\n".join(["user,x", *(f"{cell},1" for cell in cells)]) + "\n")
            kinds.append(read_table(path).schema())
        assert kinds[0] == kinds[1]


def test_a_name_with_brackets_or_stars_is_one_file(tmp_path):
    """DuckDB takes a name for a pattern: log[1].csv would be log1.csv, other people's data."""
    for name, users in (("log[1].csv", "a\nb"), ("log1.csv", "c\nd\ne"), ("log*.csv", "f"), ("log?.csv", "g\nh\ni\nj")):
        (tmp_path / name).write_text(f"user\n{users}\n")
    for name, expected in (("log[1].csv", 2), ("log*.csv", 1), ("log?.csv", 4), ("log1.csv", 3)):
        assert read_table(tmp_path / name).count().to_pyarrow().as_py() == expected
    for name, users in (("log[1].parquet", ["a", "b"]), ("log1.parquet", ["c"])):
        pq.write_table(pa.table({"user": users}), tmp_path / name)
    assert read_table(tmp_path / "log[1].parquet").count().to_pyarrow().as_py() == 2


BAD = {
    "empty.csv": (b"", DataError),
    "empty.parquet": (b"", DataError),
    "noise.csv": (bytes(range(256)) * 20, DataError),
    "noise.parquet": (bytes(range(256)) * 20, DataError),
    "header in latin.csv": (f"n\xe4me,{MARKER}\n1,2\n".encode("latin-1"), DataError),
    "twice.csv": (f"user,user\n{MARKER},1\n".encode(), DataError),
    "wrong.txt": (f"user\n{MARKER}\n".encode(), UsageError),
    "wrong": (f"user\n{MARKER}\n".encode(), UsageError),
    "wrong.xlsx": (f"user\n{MARKER}\n".encode(), UsageError),
    "text.parquet": (f"user\n{MARKER}\n".encode(), DataError),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_without_their_values(tmp_path, name):
    content, kind = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(kind) as refused:
        read_table(tmp_path / name)
    assert MARKER not in shown(refused.value)
    assert refused.value.fix
    assert refused.value.exit_code in (2, 4)


@pytest.mark.parametrize("name", ["missing.csv", "missing.parquet", "folder.csv"])
def test_files_that_are_not_there(tmp_path, name):
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="no file"):
        read_table(tmp_path / name)


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(ROWS), path)

    def refuse(*_args, **_kwargs):
        raise OSError(13, f"Permission denied: {MARKER}")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError) as refused:
        read_table(path)
    assert MARKER not in shown(refused.value)
