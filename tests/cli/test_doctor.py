"""``hushquery doctor`` really tries things, does not fail for an optional part, and keeps secrets."""

from __future__ import annotations

import importlib
import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hushquery import __version__
from hushquery.cli import doctor as module
from hushquery.cli.app import app


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["doctor", *arguments])
    return done.exit_code, done.output


def report(*arguments: str) -> tuple[int, dict[str, Any], dict[str, dict[str, Any]]]:
    """The exit code, the whole JSON and its checks by "group/name"."""
    code, output = run("--json", *arguments)
    data = json.loads(output)
    return code, data, {f"{check['group']}/{check['name']}": check for check in data["checks"]}


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make a package look as if it were not installed."""
    real_version, real_import = metadata.version, importlib.import_module

    def hide(name: str, imported: str | None = None) -> None:
        def version(wanted: str) -> str:
            if wanted == name:
                raise metadata.PackageNotFoundError(wanted)
            return real_version(wanted)

        def import_module(wanted: str, package: str | None = None) -> object:
            if wanted == (imported or name):
                raise ModuleNotFoundError(name=wanted)
            return real_import(wanted, package)

        monkeypatch.setattr(metadata, "version", version)
        monkeypatch.setattr(importlib, "import_module", import_module)
        monkeypatch.setitem(sys.modules, imported or name, None)

    return hide


def test_all_that_is_needed_works_here() -> None:
    code, data, checks = report()
    assert code == 0
    assert data["ok"] is True
    assert data["version"] == __version__
    for name in (
        "python/version",
        "core/numpy",
        "random/system",
        "engine/duckdb",
        "store/sqlite",
        "charts/svg",
    ):
        assert checks[name]["state"] == "ok", checks[name]
    assert checks["core/duckdb"]["detail"] == metadata.version("duckdb")
    assert "DuckDB" in checks["engine/duckdb"]["detail"]
    assert checks["store/postgresql"]["detail"].startswith("driver psycopg")


def test_every_requirement_but_the_developers_is_listed() -> None:
    _, _, checks = report()
    listed = {check["name"] for check in checks.values() if check["group"] == "core" or check["group"][:5] == "extra"}
    asked = {name for name, (_, extra) in module._requirements().items() if extra != "dev"}
    assert listed == asked
    assert {"numpy", "altair", "psycopg", "pyspark"} <= asked
    assert "pytest" not in asked


def test_a_state_other_than_ok_says_what_to_type() -> None:
    _, _, checks = report()
    for check in checks.values():
        assert (check["state"] == "ok") == (check["fix"] == "")


def test_text_shows_the_same(without: Callable[..., None]) -> None:
    without("pyspark")
    code, text = run()
    assert code == 0
    assert text.startswith(f"hushquery {__version__}")
    assert "optional: extra spark pyspark, engine spark" in text
    assert "pip install 'pandas>=2.2' 'pyspark" in text
    assert text.rstrip().endswith("all that hushquery needs works")


def test_an_optional_part_may_be_missing(without: Callable[..., None]) -> None:
    without("altair")
    code, data, checks = report()
    assert (code, data["ok"]) == (0, True)
    assert checks["extra plot/altair"]["state"] == checks["charts/svg"]["state"] == "missing"
    assert "altair" in checks["charts/svg"]["fix"]


def test_a_core_part_may_not(without: Callable[..., None]) -> None:
    without("scipy")
    code, data, checks = report()
    assert (code, data["ok"]) == (69, False)
    assert checks["core/scipy"]["state"] == "missing"
    assert checks["core/scipy"]["fix"].startswith("pip install 'scipy>=")
    assert checks["engine/duckdb"]["state"] == "ok"  # one broken part does not hide the others
    code, text = run()
    assert code == 69
    assert "to repair: core scipy" in text


def test_a_version_out_of_range_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "2.0.0" if name == "duckdb" else real(name))
    code, _, checks = report()
    assert code == 69
    assert checks["core/duckdb"]["state"] == "failed"
    assert "2.0.0 is installed" in checks["core/duckdb"]["detail"]


def test_an_engine_that_breaks_is_reported_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    import ibis

    def broken(*_: object, **__: object) -> None:
        what = "no room\nand a second line"
        raise OSError(what)

    monkeypatch.setattr(ibis.duckdb, "connect", broken)
    code, _, checks = report()
    assert code == 69
    assert checks["engine/duckdb"]["state"] == "failed"
    assert checks["engine/duckdb"]["detail"] == "no room"


def test_a_generator_that_repeats_itself_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.urandom", bytes)
    code, _, checks = report()
    assert code == 69
    assert checks["random/system"]["state"] == "failed"


@pytest.mark.parametrize(
    ("told", "state"),
    [
        ('openjdk version "17.0.15" 2025-04-15', "ok"),
        ('java version "1.8.0_402"', "missing"),
        ("?", "missing"),
    ],
)
def test_spark_needs_java_17(told: str, state: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    java.chmod(0o755)
    fake = type("pyspark", (), {"__version__": "4.0.5"})
    real = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", lambda name: fake if name == "pyspark" else real(name))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    _, _, checks = report()
    assert checks["engine/spark"]["state"] == state
    if state == "ok":
        assert checks["engine/spark"]["detail"] == "pyspark 4.0.5 on Java 17"
    else:
        assert "Java 17" in checks["engine/spark"]["fix"]
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    _, _, checks = report()
    assert checks["engine/spark"]["detail"] == "pyspark 4.0.5, but no java in JAVA_HOME"


# ---- a store named by the user -----------------------------------------------------------------------------


def test_a_store_that_is_not_there_yet_is_fine_and_not_created(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    code, _, checks = report("--store", str(path))
    assert code == 0
    assert checks[f"store/{path}"]["detail"] == "not there yet; it can be created"
    assert not path.exists()


def test_a_store_on_disk_is_opened_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "a %ledger?.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table entries (n integer)")
        database.commit()
    before = path.read_bytes()
    code, _, checks = report("--store", str(path))
    assert code == 0
    assert checks[f"store/{path}"]["detail"] == "opens (SQLite, 1 table)"
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_fails(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("this is not a database, but it is long enough to be taken for one" * 20)
    code, _, checks = report("--store", str(path))
    assert code == 69
    assert "not a database" in checks[f"store/{path}"]["detail"]


def test_a_folder_that_does_not_exist_fails(tmp_path: Path) -> None:
    code, _, _ = report("--store", str(tmp_path / "no" / "ledger.db"))
    assert code == 69


SECRET = "s3cr3t-w0rd"  # noqa: S105


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ana:{SECRET}@127.0.0.1:1/books",
        f"postgresql://ana@127.0.0.1:1/books?password={SECRET}",
        f"postgresql://ana:x@{SECRET}@127.0.0.1:1/books",  # an unescaped @: the rest looks like a host
        f"postgresql://ana:x/{SECRET}@127.0.0.1:1/books",
        f"postgresql://ana:{SECRET}@127.0.0.1:port/books",
        f"mysql://ana:{SECRET}@127.0.0.1:1/books",
        f"nonsense://{SECRET}@@@::",
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_a_password_is_never_shown(url: str, form: list[str]) -> None:
    code, output = run("--store", url, *form)
    assert code == 69
    assert SECRET not in output
    assert "ana" not in output


def test_a_server_that_does_not_answer_says_where(tmp_path: Path) -> None:
    code, _, checks = report("--store", "postgresql://ana@127.0.0.1:1/books")
    assert code == 69
    check = checks["store/postgresql://127.0.0.1:1/books"]
    assert check["state"] == "failed"
    assert "refused" in check["detail"].lower()


def test_a_server_that_runs_is_really_asked(postgres_url: str) -> None:
    code, _, checks = report("--store", postgres_url)
    assert code == 0
    [check] = [check for name, check in checks.items() if name.startswith("store/postgresql://127.0.0.1:")]
    assert check["detail"].startswith("connects (PostgreSQL ")


def test_a_wrong_password_is_told_and_not_shown(postgres_url: str) -> None:
    user, _, rest = postgres_url.partition("@")
    url = f"{user.rpartition(':')[0]}:{SECRET}@{rest}"
    code, data, _ = report("--store", url)
    assert code == 69
    assert "password authentication failed" in json.dumps(data)
    assert SECRET not in json.dumps(data)
