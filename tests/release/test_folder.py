"""Saving and loading: nothing is lost, nothing is half there, nothing of somebody else is deleted."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery.errors import DataError, UsageError
from hushquery.release import Release, check_target
from hushquery.release.manifest import FORMAT_VERSION
from hushquery.release.release import known_files, manifest_bytes, sign

FILES = {"queries.parquet", "clicks.parquet", "reformulations.parquet", "manifest.json", "README.md", "report.html"}

hostile = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", " ", '"', "a,b", "a\r\nb", "\0", "\x1b[31m", "=1+1", "<script>", "😀"]),
    st.sampled_from(["\u202eabc", "טקסט", "e\u0301", "天气", "\ufffe", "\U0010ffff"]),
)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "release"


@settings(deadline=None)
@given(
    keys=st.dictionaries(hostile, st.integers(-(2**63), 2**63 - 1), max_size=8),
    pairs=st.dictionaries(st.tuples(hostile, hostile), st.integers(-9, 9), max_size=5),
    words=hostile,
)
def test_what_is_saved_is_loaded(recipe, table_of, keys, pairs, words):
    tables = {
        "queries": table_of["queries"](list(keys), keys.values()),
        "clicks": table_of["pairs"]("url", [(*key, n) for key, n in pairs.items()]),
    }
    release = recipe(tables=tables, population=words, notes=(words,), parameters={"told": ["so " + words]}).make()
    with tempfile.TemporaryDirectory() as folder:
        saved = release.save(Path(folder) / "r")
        assert Release.load(saved) == release
        assert [p.name for p in Path(folder).iterdir()] == ["r"]
    assert dict(zip(*(release.queries[c].to_pylist() for c in ("query", "count")), strict=True)) == keys


def test_a_folder_holds_these_files_and_the_same_release_gives_the_same_bytes(recipe, tmp_path):
    release = recipe().make()
    one, two = release.save(tmp_path / "one"), recipe().make().save(tmp_path / "deep" / "two")
    others = {f"{name}.parquet" for name in ("records", "estimates", "support", "candidates")}
    assert {path.name for path in one.iterdir()} == FILES == known_files() - others - {"signature.json"}
    for name in FILES:
        assert (one / name).read_bytes() == (two / name).read_bytes()
    three = Release.load(one).save(tmp_path / "three")
    assert (one / "manifest.json").read_bytes() == (three / "manifest.json").read_bytes()


def test_everybody_may_read_it(recipe, target):
    saved = recipe().make().save(target)
    assert stat.S_IMODE(saved.stat().st_mode) == 0o777 & ~_umask()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_the_tables_hold_nothing_but_their_columns(recipe, target):
    recipe().make().save(target)
    for path in target.glob("*.parquet"):
        told = pq.read_metadata(path)
        assert told.metadata is None
        assert told.row_group(0).column(0).compression == "ZSTD"
        assert all(not field.nullable for field in pq.read_schema(path))


def test_the_manifest_of_a_folder(recipe, target):
    release = recipe().make()
    release.save(target)
    told = json.loads((target / "manifest.json").read_text())
    assert set(told) == {*release.manifest, "files", "manifest_sha256"}
    assert set(told["files"]) == FILES - {"manifest.json"}
    assert told["files"]["clicks.parquet"]["rows"] == 2
    assert told["files"]["clicks.parquet"]["columns"] == ["query", "url", "count", "stderr", "low", "high"]
    assert set(told["files"]["README.md"]) == {"sha256"}


def test_other_programs_read_the_tables(recipe, target):
    import duckdb

    recipe().make().save(target)
    found = duckdb.read_parquet(str(target / "queries.parquet")).project("query, count").fetchall()
    assert found == [("weather leeds", 101), ("news", 100)]


# ---- what stands in the way ----------------------------------------------------------------------------------


def test_an_older_release_stays_unless_forced(recipe, target):
    old = recipe().make()
    old.save(target)
    new = recipe(notes=("newer",)).make()
    with pytest.raises(UsageError, match="exists already"):
        new.save(target)
    with pytest.raises(UsageError, match="exists already"):
        check_target(target)
    assert Release.load(target) == old
    new.save(target, force=True)
    assert Release.load(target) == new
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def foreign(folder: Path, kind: str) -> None:
    if kind == "a file":
        folder.write_text("x")
    elif kind == "a link":
        (folder.parent / "elsewhere").mkdir()
        folder.symlink_to(folder.parent / "elsewhere")
    elif kind == "a broken link":
        folder.symlink_to(folder.parent / "nowhere")
    else:
        folder.mkdir()
        text = {"photos": None, "another manifest": '{"format": "other"}', "no JSON": "{", "a list": "[1]"}[kind]
        (folder / ("holiday.jpg" if text is None else "manifest.json")).write_text(text or "x")


KINDS = ["a file", "a link", "a broken link", "photos", "another manifest", "no JSON", "a list"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_ours_is_never_replaced(recipe, target, kind):
    foreign(target, kind)
    before = sorted(target.parent.rglob("*"))
    with pytest.raises(UsageError):
        recipe().make().save(target, force=True)
    assert sorted(target.parent.rglob("*")) == before


def test_a_release_with_a_file_of_somebody_in_it_is_not_replaced(recipe, target):
    recipe().make().save(target)
    (target / "thesis.docx").write_text("years of work")
    with pytest.raises(UsageError, match=r"would delete: thesis\.docx"):
        recipe().make().save(target, force=True)
    assert (target / "thesis.docx").read_text() == "years of work"


def test_an_empty_folder_is_taken_when_forced(recipe, target):
    target.mkdir()
    with pytest.raises(UsageError, match="exists already"):
        recipe().make().save(target)
    recipe().make().save(target, force=True)
    assert {path.name for path in target.iterdir()} == FILES


@pytest.mark.parametrize("name", ["", ".", "/", ".."])
def test_a_folder_needs_a_name(name):
    with pytest.raises(UsageError):
        check_target(name, force=True)


def test_a_folder_that_can_not_be_written_is_a_clear_error(recipe, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="can't be written"):
        recipe().make().save(tmp_path / "file" / "release")


# ---- crashes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["rename", "fsync"])
@pytest.mark.parametrize("nth", [1, 2, 5])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_release_and_nothing_else(recipe, target, monkeypatch, call, nth, error):
    old, new = recipe().make(), recipe(notes=("newer",)).make()
    old.save(target)
    real, calls = getattr(os, call), []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == nth:
            raise error
        return real(*arguments)

    monkeypatch.setattr(os, call, failing)
    if call == "rename" and nth == 5:
        new.save(target, force=True)  # there are but two
        assert len(calls) == 2
        return
    with pytest.raises(DataError if isinstance(error, OSError) else KeyboardInterrupt):
        new.save(target, force=True)
    monkeypatch.undo()
    assert [path.name for path in target.parent.iterdir()] == [target.name]
    assert Release.load(target) == old


KILLED = """
import os, signal, sys
from hushquery.release import Release
call, nth, target, again = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
release, real, calls = Release.load(again), getattr(os, call), []

def deadly(*arguments):
    calls.append(arguments)
    if len(calls) == nth:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)

setattr(os, call, deadly)
release.save(target, force=True)
"""


@pytest.mark.parametrize(("call", "nth", "old_stands"), [("fsync", 3, True), ("rename", 1, True), ("rename", 2, False)])
def test_killed_half_way_there_is_no_half_release(recipe, target, tmp_path, call, nth, old_stands):
    recipe().make().save(target)
    source = recipe(notes=("newer",)).make().save(tmp_path / "source")
    command = [sys.executable, "-c", KILLED, call, str(nth), str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = {path.name.partition("-")[0] for path in tmp_path.iterdir()} - {"source"}
    if old_stands:
        assert left == {"release", ".release.partial"}
        assert Release.load(target) == recipe().make()
    else:  # between the two renames: the old one is aside, whole, and the name is free
        assert left == {".release.old", ".release.partial"}
        (aside,) = tmp_path.glob(".release.old-*")
        assert Release.load(aside) == recipe().make()


# ---- loading -----------------------------------------------------------------------------------------------


def reseal(folder: Path, change) -> None:
    told = json.loads((folder / "manifest.json").read_text())
    change(told)
    (folder / "manifest.json").write_bytes(manifest_bytes(sign(told)))


def test_a_newer_format_is_refused(recipe, target):
    recipe().make().save(target)
    reseal(target, lambda told: told.update(format_version=FORMAT_VERSION + 1))
    with pytest.raises(DataError, match=f"knows up to {FORMAT_VERSION}"):
        Release.load(target)


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "secret.parquet", "manifest.json"])
def test_a_manifest_can_not_point_elsewhere(recipe, target, name):
    recipe().make().save(target)
    (target.parent / "secret").write_text("x")
    reseal(target, lambda told: told["files"].update({name: {"sha256": ""}}))
    with pytest.raises(DataError, match="lists files that no release has"):
        Release.load(target)


def test_what_is_no_release_is_refused(tmp_path):
    with pytest.raises(DataError, match="there is no folder"):
        Release.load(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"no manifest\.json"):
        Release.load(tmp_path)
    for text in ("{", "[]", '{"format": 1}', "NaN", '{"format": "hushquery-release"}', "[" * 100_000, "\ufeff{}"):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(DataError):
            Release.load(tmp_path)
    (tmp_path / "manifest.json").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError):
        Release.load(tmp_path)


@pytest.mark.parametrize("name", sorted(FILES - {"manifest.json"}))
def test_a_missing_or_changed_file_is_refused(recipe, target, name):
    recipe().make().save(target)
    data = (target / name).read_bytes()
    (target / name).write_bytes(data + b" ")
    with pytest.raises(DataError, match="was changed"):
        Release.load(target)
    (target / name).unlink()
    with pytest.raises(DataError, match="can't be read"):
        Release.load(target)


def test_loading_does_not_believe_too_small_an_epsilon(recipe, target):
    recipe().make().save(target)
    reseal(target, lambda told: told["guarantees"][0].update(epsilon=told["guarantees"][0]["epsilon"] * 0.999))
    with pytest.raises(DataError, match="cost more than the guarantee states"):
        Release.load(target)


def test_a_large_table_keeps_its_order(recipe, target, table_of):
    many = 5000
    table = table_of["queries"]([f"q{i:05}" for i in range(many)], [100 + i % 7 for i in range(many)])
    release = recipe(tables={"queries": table}).make()
    loaded = Release.load(release.save(target)).queries
    assert loaded.equals(release.queries)
    assert loaded.sort_by([("count", "descending"), ("query", "ascending")]).equals(loaded)
    assert isinstance(loaded, pa.Table)
