"""Exports, and `hushquery verify` and `hushquery export` as a person types them."""

from __future__ import annotations

import csv
import json
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import hushquery
from hushquery.cli.show import export, verify
from hushquery.errors import DataError, HushqueryError, Unavailable, UsageError
from hushquery.release import Release
from hushquery.release.export import csv_bytes

hostile = st.text(max_size=12) | st.sampled_from(
    ["", "=1+1", '"', "a,b", "a\r\nb", "\r", "\0", "'; DROP TABLE x", "😀"]
)
hostile_tables = st.dictionaries(st.tuples(hostile, hostile), st.integers(-(2**63), 2**63 - 1), max_size=6)


def made(recipe, table_of, rows):
    tables = {"clicks": table_of["pairs"]("url", [(*key, n) for key, n in rows.items()])}
    return recipe(tables=tables).make()


@settings(deadline=None)
@given(hostile_tables)
def test_csv_gives_back_what_it_was_given(recipe, table_of, rows):
    release = made(recipe, table_of, rows)
    with tempfile.TemporaryDirectory() as folder:
        out = release.to_csv(Path(folder) / "csv")
        assert {path.name for path in out.iterdir()} == {"clicks.csv", "manifest.json", "README.md"}
        data = (out / "clicks.csv").read_bytes()
    assert data.startswith(b"query,url,count,stderr,low,high\r\n")
    assert data.endswith(b"\r\n")
    read = list(csv.reader(data.decode().splitlines(keepends=True) if not rows else _lines(data.decode())))
    expected = [[str(value) for value in row.values()] for row in release.clicks.to_pylist()]
    assert read[1:] == expected


def _lines(text):
    """The text as a file without translation of line ends gives it."""
    import io

    return io.StringIO(text, newline="")


@settings(deadline=None)
@given(hostile_tables)
def test_sqlite_gives_back_what_it_was_given(recipe, table_of, rows):
    release = made(recipe, table_of, rows)
    with tempfile.TemporaryDirectory() as folder:
        file = release.to_sqlite(Path(folder) / "r.db")
        with closing(sqlite3.connect(file)) as base:
            found = base.execute("SELECT * FROM clicks ORDER BY rowid").fetchall()
            told = dict(base.execute("SELECT name, value FROM manifest").fetchall())
        assert [path.name for path in Path(folder).iterdir()] == ["r.db"]
    assert found == [tuple(row.values()) for row in release.clicks.to_pylist()]
    assert {name: json.loads(value) for name, value in told.items()} == release.manifest


def test_sqlite_tables_have_keys_and_no_gaps(recipe, tmp_path):
    file = recipe().make().to_sqlite(tmp_path / "r.db")
    with closing(sqlite3.connect(file)) as base:
        for name, keys in (("queries", 1), ("clicks", 2), ("reformulations", 2)):
            columns = base.execute(f"PRAGMA table_info({name})").fetchall()
            assert all(column[3] for column in columns)
            assert [column[5] for column in columns] == [*range(1, keys + 1), 0, 0, 0, 0]
        with pytest.raises(sqlite3.IntegrityError):
            base.execute("INSERT INTO queries SELECT * FROM queries")


def test_an_older_export_is_replaced_only_when_forced(recipe, tmp_path):
    old, new = recipe().make(), recipe(notes=("newer",)).make()
    for write in ("to_csv", "to_sqlite"):
        target = tmp_path / write
        getattr(old, write)(target)
        with pytest.raises(UsageError, match="exists already"):
            getattr(new, write)(target)
        getattr(new, write)(target, force=True)
    assert json.loads((tmp_path / "to_csv" / "manifest.json").read_text())["notes"] == ["newer"]
    with closing(sqlite3.connect(tmp_path / "to_sqlite")) as base:
        assert base.execute("SELECT value FROM manifest WHERE name = 'notes'").fetchone() == ('["newer"]',)


def test_what_is_no_export_is_never_replaced(recipe, tmp_path):
    release = recipe().make()
    saved = release.save(tmp_path / "release")
    with pytest.raises(UsageError, match="no release has"):
        release.to_csv(saved, force=True)
    assert Release.load(saved) == release
    with closing(sqlite3.connect(tmp_path / "other.db")) as base:
        base.execute("CREATE TABLE photos (x)")
    (tmp_path / "thesis.docx").write_text("years of work")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("other.db", "thesis.docx", "link", "release"):
        with pytest.raises(UsageError, match="not an export"):
            release.to_sqlite(tmp_path / name, force=True)
    assert (tmp_path / "thesis.docx").read_text() == "years of work"


def test_a_place_that_can_not_be_written_is_a_clear_error(recipe, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    for write in ("to_csv", "to_sqlite"):
        with pytest.raises(DataError, match="can't be written"):
            getattr(recipe().make(), write)(tmp_path / "file" / "x")

    def broken(*arguments):
        raise sqlite3.OperationalError

    monkeypatch.setattr("hushquery.release.export._fill", broken)
    with pytest.raises(DataError, match="can't be written"):
        recipe().make().to_sqlite(tmp_path / "r.db")
    assert not (tmp_path / "r.db").exists()


# ---- the commands ----------------------------------------------------------------------------------------------


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(verify)
    app.command()(export)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def folder(recipe, tmp_path):
    return recipe().make().save(tmp_path / "release")


def test_verify_says_what_a_whole_release_promises(run, folder):
    done = run("verify", folder)
    assert done.exit_code == 0
    assert "is whole" in done.stdout
    assert Release.load(folder).guarantees[0].summary() in done.stdout
    told = json.loads(run("verify", folder, "--json").stdout)
    assert (told["ok"], told["problems"]) == (True, [])
    assert told["guarantees"][0]["population"] == "readers of example.org"


def test_verify_lists_every_problem(run, folder):
    (folder / "README.md").write_text("x")
    (folder / "extra").write_text("x")
    done = run("verify", folder)
    assert isinstance(done.exception, DataError)
    assert done.exception.exit_code == 4
    assert "2 problems" in done.exception.what
    assert "README.md was changed" in done.exception.why
    assert "extra is not part" in done.exception.why
    as_json = run("verify", folder, "--json")
    assert as_json.exit_code == 4
    assert len(json.loads(as_json.stdout)["problems"]) == 2


def test_verify_of_nothing_fails(run, tmp_path):
    assert isinstance(run("verify", tmp_path / "nowhere").exception, HushqueryError)


def test_verify_shouts_at_test_noise(run, recipe, tmp_path):
    done = run("verify", recipe(test_noise=True).make().save(tmp_path / "r"))
    assert done.exit_code == 0
    assert "NOT PRIVATE" in done.stdout
    assert "do not publish it" in done.stderr


def test_help_says_what_verify_can_not_do(run):
    assert "not forgers" in " ".join(run("verify", "--help").stdout.split())
    assert "formula" in " ".join(run("export", "--help").stdout.split())


def test_export_writes_where_asked(run, folder, tmp_path):
    done = run("export", folder, "--csv", tmp_path / "csv")
    assert done.exit_code == 0
    assert "2 queries" in done.stdout
    assert (tmp_path / "csv" / "queries.csv").is_file()
    told = json.loads(run("export", folder, "--sqlite", tmp_path / "r.db", "--json").stdout)
    assert told["rows"] == {"queries": 2, "clicks": 2, "reformulations": 2}
    assert (tmp_path / "r.db").is_file()
    assert isinstance(run("export", folder, "--csv", tmp_path / "csv").exception, UsageError)
    assert run("export", folder, "--csv", tmp_path / "csv", "--force").exit_code == 0


def test_export_goes_to_one_place(run, folder, tmp_path):
    for where in ((), ("--csv", tmp_path / "a", "--sqlite", tmp_path / "b")):
        assert isinstance(run("export", folder, *where).exception, UsageError)


def test_one_table_is_one_csv_file(run, folder, tmp_path):
    release, file = Release.load(folder), tmp_path / "new" / "q.csv"
    assert run("export", folder, "--csv", file, "--table", "queries").exit_code == 0
    assert file.read_bytes() == csv_bytes(release.queries)
    assert [path.name for path in file.parent.iterdir()] == ["q.csv"]
    assert isinstance(run("export", folder, "--csv", file, "--table", "queries").exception, UsageError)
    told = run("export", folder, "--csv", file, "--table", "queries", "--force", "--json")
    assert json.loads(told.stdout)["rows"] == {"queries": 2}
    # Only an export of such a table is replaced.
    (tmp_path / "mine.csv").write_text("name,phone\r\n")
    (tmp_path / "link.csv").symlink_to(file)
    for other in ("mine.csv", "link.csv", "release"):
        refused = run("export", folder, "--csv", tmp_path / other, "--table", "queries", "--force").exception
        assert isinstance(refused, UsageError)
        assert "not an export" in refused.what
    assert (tmp_path / "mine.csv").read_text() == "name,phone\n"
    assert isinstance(run("export", folder, "--csv", tmp_path / "r.csv", "--table", "records").exception, DataError)
    assert isinstance(run("export", folder, "--sqlite", tmp_path / "r", "--table", "queries").exception, UsageError)
    assert not (tmp_path / "r").exists()


def test_a_damaged_release_is_not_exported(run, folder, tmp_path):
    (folder / "README.md").write_text("x")
    assert isinstance(run("export", folder, "--csv", tmp_path / "csv").exception, DataError)
    assert not (tmp_path / "csv").exists()


# ---- data frames ---------------------------------------------------------------------------------------------------


def test_every_table_is_a_data_frame(recipe):
    release = recipe().make()
    for name, table in release.tables.items():
        assert release.to_pandas(name).to_dict("list") == table.to_pydict()
        assert release.to_polars(name).to_dict(as_series=False) == table.to_pydict()
    assert list(release.to_pandas()["query"]) == list(release.to_polars()["query"]) == ["weather leeds", "news"]
    assert pa.table(release) == release.queries  # through the Arrow stream
    assert release.to_arrow("clicks") is release.clicks
    base = release.to_duckdb()
    for name, table in release.tables.items():
        assert base.table(name).fetchall() == [tuple(row.values()) for row in table.to_pylist()]
    assert base.sql("SELECT count(*) FROM clicks JOIN queries USING (query)").fetchone() == (2,)
    with pytest.raises(DataError, match="no table 'records'") as refused:
        release.to_pandas("records")
    assert "queries, clicks" in refused.value.fix


def test_load_gives_the_release(folder):
    assert hushquery.load(folder) == Release.load(folder)
    with pytest.raises(DataError, match="there is no folder"):
        hushquery.load(folder / "nowhere")


@pytest.mark.parametrize("package", ["pandas", "polars", "duckdb"])
def test_without_the_package_a_message_says_what_to_install(recipe, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(Unavailable) as refused:
        getattr(recipe().make(), f"to_{package}")()
    assert refused.value.fix == f"pip install {package}, or use to_arrow()"
