"""Engines that are not there, refuse, or die: in words that name no password and no row, and spent at most once."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_cluster as clusters
import statistical
from hushquery.cli import main
from hushquery.core.ledger.ledger import Ledger
from hushquery.curator import counting as count
from hushquery.curator.plan import plan_release
from hushquery.engine import connect, execute
from hushquery.engine.spark import check_master
from hushquery.errors import DataError, HushqueryError, Unavailable, UsageError
from hushquery.log import read_log
from hushquery.release import Release
from postgres import PASSWORD, URL_PASSWORD

CANARY = "zqcanary"
OPTIONS = ("--epsilon", "12", "--delta", "1e-6", "--queries-per-user", "4", "--population", "members", "--json")


def run(*arguments):
    """Run the command line as a person would."""
    before, sys.argv = sys.argv, ["hushquery", *map(str, arguments)]
    out, err = io.StringIO(), io.StringIO()
    code = 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()


def shown(error):
    return "".join(traceback.format_exception(error)) + json.dumps(error.as_dict())


@pytest.fixture
def searches():
    """120 people who search for the same, and each for something of their own."""
    rows = [(f"{CANARY}{u}", q, 1000 * u) for u in range(120) for q in ("news", "maps", f"{CANARY} {u}")]
    return pa.table(dict(zip(("user", "query", "time"), map(list, zip(*rows, strict=True)), strict=True)))


@pytest.fixture
def table(searches, postgres_url):
    """The name of a table of the PostgreSQL server."""
    engine = connect(postgres_url)
    name = f"searches_{os.urandom(6).hex()}"
    engine.create_table(name, searches)
    yield name
    engine.drop_table(name)
    engine.disconnect()


def test_a_release_of_a_table(table, postgres_url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HUSHQUERY_ENGINE", postgres_url)
    code, out, err = run("release", table, "--out", "release", *OPTIONS)
    assert code == 0, err
    made = Release.load("release")
    assert made.queries is not None
    assert made.queries["query"].to_pylist()[:2] in (["maps", "news"], ["news", "maps"])
    everything = out + err + "".join(path.read_text() for path in (tmp_path / "release").rglob("*.json"))
    assert not any(secret in everything for secret in (PASSWORD, URL_PASSWORD, CANARY))
    assert len(Ledger.open("ledger.db").accounts()) == 1


def test_a_statistic_of_a_table(table, postgres_url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(
        "stat", "count", table, "--unit", "user", "--epsilon", "4", "--engine", postgres_url, *OPTIONS[-3:]
    )
    assert code == 0, err
    assert abs(json.loads(out)["estimates"][0]["estimate"] - 120) < 20
    assert [account.population for account in Ledger.open("ledger.db").accounts()] == ["members"]


@pytest.mark.parametrize("name", ["nothing_here", "nowhere.searches", "pg_catalog.pg_authid"])
def test_tables_that_are_not_there(name, postgres_url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("release", name, "--out", "release", "--engine", postgres_url, *OPTIONS)
    assert code == 4, err
    assert not any(secret in out + err for secret in (PASSWORD, URL_PASSWORD))
    assert not (tmp_path / "release").exists()
    assert not (tmp_path / "ledger.db").exists()


def test_odd_columns_are_refused_before_anything_is_spent(postgres_url):
    engine = connect(postgres_url)
    engine.raw_sql(
        "CREATE TEMPORARY TABLE odd AS SELECT 1 AS \"user\", ARRAY['x'] AS query, point(1, 2) AS spot"
    ).close()
    with pytest.raises(DataError, match="neither text nor numbers"):
        read_log("odd", engine=engine)
    with pytest.raises(DataError):
        read_log("odd", engine=engine, columns={"query": "spot"})
    engine.disconnect()


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1e-400", "'NaN'", "'Infinity'"])
def test_numbers_that_no_double_holds_end_no_run(postgres_url, number):
    engine = connect(postgres_url)
    engine.raw_sql(
        "CREATE TEMPORARY TABLE far AS "
        f"SELECT 1 AS \"user\", 'x' AS query, {number}::numeric AS time, {number}::numeric AS rank "
        "UNION ALL SELECT 2, 'x', 5.25, 3"
    ).close()
    rows = sorted(execute(read_log("far", engine=engine).table).to_pylist(), key=lambda row: row["user"])
    nothing = 0 if number == "1e-400" else None
    assert [(row["time"], row["rank"]) for row in rows] == [(nothing, nothing), (5_250_000, 3)]
    engine.disconnect()


def test_a_table_in_memory_is_in_no_engine(searches, postgres_url):
    engine = connect(postgres_url)
    with pytest.raises(UsageError, match="in memory"):
        read_log(searches, engine=engine)
    engine.disconnect()


def test_an_engine_that_dies_in_between_publishes_nothing(table, postgres_url, tmp_path, monkeypatch):
    engine, other = connect(postgres_url), connect(postgres_url)
    plan = plan_release(
        read_log(table, engine=engine), epsilon=12, delta=1e-6, queries_per_user=4, population="members"
    )
    pid = engine.con.info.backend_pid
    asked = []

    def execute(expression, ask=count.execute):
        answer = ask(expression)
        if not asked:
            other.raw_sql(f"SELECT pg_terminate_backend({pid})").close()
        asked.append(1)
        return answer

    monkeypatch.setattr(count, "execute", execute)
    book = Ledger.open(tmp_path / "ledger.db")
    with pytest.raises(DataError, match="after the budget was spent; nothing was released") as refused:
        plan.run(book, bits=statistical.bits("dies"))
    assert CANARY not in shown(refused.value)
    assert [entry.kind for entry in book.history()] == ["open", "spend"]
    other.disconnect()


# ---- Spark -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["spark://127.0.0.1:1", "spark://", "spark://nowhere.invalid:7077", "spark://h:x"])
def test_a_cluster_that_nobody_runs(url):
    with pytest.raises(Unavailable, match="can't be reached") as refused:
        check_master(url)
    assert "spark://host:port" in refused.value.fix


def test_without_pyspark_or_java_it_says_what_to_type(monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyspark.sql", None)
        with pytest.raises(Unavailable) as refused:
            connect("spark")
        assert "pip install 'hushquery[spark]'" in refused.value.fix
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    for told, words in (("", "there is none"), ('openjdk version "11.0.2"', "Java 11"), ('"1.8.0"', "there is none")):
        java.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
        java.chmod(0o755)
        with pytest.raises(Unavailable, match=words) as refused:
            connect("spark")
        assert "openjdk-17-jre-headless" in refused.value.fix


def test_one_spark_at_a_time_and_what_it_lacks(spark, spark_cluster, tmp_path):
    assert connect("spark")._session.sparkContext is spark._session.sparkContext
    assert connect(spark_cluster.url)._session is not spark._session  # settings and views are not shared
    with pytest.raises(UsageError, match="another master"):
        connect("spark://127.0.0.1:1")
    with pytest.raises(DataError, match="no table 'nothing_here'"):
        read_log("nothing_here", engine=spark)
    with pytest.raises(DataError, match="no table"):
        read_log(f"file://{tmp_path}/nothing.parquet", engine=spark)
    (tmp_path / "text.parquet").write_text(f"user\n{CANARY}\n" * 9)
    with pytest.raises(HushqueryError) as refused:
        read_log(tmp_path / "text.parquet", engine=spark)
    assert CANARY not in shown(refused.value)
    pq.write_table(pa.table({"user": ["a"], "query": [{"x": CANARY}]}), tmp_path / "odd.parquet")
    with pytest.raises(DataError, match="neither text nor numbers"):
        read_log(f"file://{tmp_path}/odd.parquet", engine=spark)


def test_on_this_machine_and_in_silence(searches, tmp_path):
    """Spark itself writes its start to stderr, and statements that fail with the values in them."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(clusters.DEFAULTS)
    pq.write_table(searches, tmp_path / "visits.parquet")
    command = [sys.executable, "-m", "hushquery", "stat", "count", "visits.parquet", "--unit", "user", "--epsilon", "4"]
    command += ["--population", "members"]
    done = subprocess.run(
        [*command, "--engine", "spark", "--json"],
        cwd=tmp_path,
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path / "conf")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr  # ours
    assert done.stderr.startswith("note: Created account")
    assert abs(json.loads(done.stdout)["estimates"][0]["estimate"] - 120) < 20
