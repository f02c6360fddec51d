"""The same bits give the same release, row for row, on DuckDB, on a Spark cluster, and on PostgreSQL."""

from __future__ import annotations

import unicodedata
import uuid
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import statistical
from hard_log import URLS, hard_log
from hushquery.curator.plan import plan_release
from hushquery.engine import connect, execute
from hushquery.log import read_log
from log.test_time_format import FORMS, NEVER

RESULTS = {"query": ["Plain words", "café au lait", "ab", "query 7"] * 2, "url": ["http://example.com", *URLS[2:5]] * 2}
LOW = {"epsilon": 30, "delta": 0.3, "queries_per_user": 8, "population": "readers"}
CASES = {
    "laplace": {"clicks_per_user": 3, "reformulations_per_user": 3},
    "gaussian": {"keep": "random", "clicks_per_user": 3, "public_pairs": pa.table(RESULTS)},
    "korolova2009": {"keep": "random"},
    "optimal": {"select_only": True, "epsilon": 10, "delta": 0.01},
    "weighted": {"keep": "random", "reformulations_per_user": 3},
    "guided": {"clicks_per_user": 3},
    "iterated": {"clicks_per_user": 3, "epsilon": 20, "delta": 0.09},
    "floor": {"selector": "laplace", "clicks_per_user": 3, "min_users": 3},
}


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    """The hard log as a file, in a folder whose name is a pattern."""
    folder = tmp_path_factory.mktemp("logs") / "day=[1]{a}"
    folder.mkdir()
    pq.write_table(hard_log(), folder / "log*.parquet")
    return folder / "log*.parquet"


@pytest.fixture(scope="module")
def linguistic(postgres_url):
    """A database that orders texts as a dictionary does, with the hard log in a table of a schema."""
    import psycopg

    name = f"linguistic_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' "
            "LOCALE_PROVIDER icu ICU_LOCALE 'de-u-kn-true' LOCALE 'C'"
        )
    engine = connect(postgres_url.rpartition("/")[0] + f"/{name}")
    assert engine.raw_sql("SELECT 'a-b' > 'ab', 'Z' > 'a'").fetchone() == (False, True)  # not by bytes
    engine.create_database("web")
    engine.create_table("searches", hard_log(), database="web")
    yield engine
    engine.disconnect()
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["spark", "postgresql"])
def there(request, parquet):
    """The hard log on another engine."""
    if request.param == "spark":
        return read_log(parquet, engine=request.getfixturevalue("spark"))
    return read_log("web.searches", engine=request.getfixturevalue("linguistic"))


def rows(table):
    return execute(table.order_by(table.columns)).to_pylist()


def test_the_same_rows(there, parquet):
    here = read_log(parquet)
    assert rows(there.table) == rows(here.table)
    assert rows(there.rows.select("user").distinct()) == rows(here.rows.select("user").distinct())
    assert there.steps[1:] == here.steps[1:]
    assert any("Unicode NFC" in step for step in there.steps)
    assert there.describe_defects() == here.describe_defects()


def test_letters_marks_and_blanks(there, parquet, tmp_path):
    """Every character that this Python knows and that changes, in the middle of a word and at its end."""
    known = (chr(c) for c in range(1, 0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co"))
    changing = [c for c in known if c != unicodedata.normalize("NFC", c.lower()) or unicodedata.category(c)[0] in "ZC"]
    assert len(changing) > 2000
    texts = [text for c in changing for text in (f"a{c}b", f"a{c}", f"{c}\u0301")]
    table = pa.table({"user": [str(i) for i in range(len(texts))], "query": texts})
    pq.write_table(table, tmp_path / "letters.parquet")
    engine = there.table._find_backend()
    if engine.name == "postgres":
        engine.create_table("letters", table)
        far = read_log("letters", engine=engine)
    else:
        far = read_log(tmp_path / "letters.parquet", engine=engine)
    assert rows(far.table) == rows(read_log(tmp_path / "letters.parquet").table)


@pytest.mark.parametrize("form", ["%m/%d/%Y %I:%M %p", "%d/%b/%Y:%H:%M:%S %z"])
def test_times_of_a_form(form, there, tmp_path):
    texts = [*FORMS[form][0], *FORMS[form][1], *NEVER]
    table = pa.table({"user": [str(i) for i in range(len(texts))], "query": ["q"] * len(texts), "time": texts})
    pq.write_table(table, tmp_path / "times.parquet")
    engine = there.table._find_backend()
    if engine.name == "postgres":
        engine.create_table("times", table, overwrite=True)
        far = read_log("times", engine=engine, time_format=form)
    else:
        far = read_log(tmp_path / "times.parquet", engine=engine, time_format=form)
    near = read_log(tmp_path / "times.parquet", time_format=form)
    assert rows(far.table) == rows(near.table)
    assert sum(row["time"] is not None for row in rows(near.table)) == len(FORMS[form][0])


def test_a_zero_byte_is_a_blank(spark, tmp_path):
    """PostgreSQL can't hold one."""
    pq.write_table(pa.table({"user": ["u"] * 3, "query": ["a\0b", "\0", "É\0\0"]}), tmp_path / "zero.parquet")
    found = rows(read_log(tmp_path / "zero.parquet", engine=spark).table)
    assert found == [{"user": "u", "query": "a b"}, {"user": "u", "query": "é"}]
    assert found == rows(read_log(tmp_path / "zero.parquet").table)


def plan_of(log, selector):
    plan = plan_release(log, **({"selector": selector} | LOW | CASES[selector]))
    if selector != "guided":
        return plan
    # Fewer buckets, which cost the same and take less time.
    made = replace(plan.calibrated, selector=replace(plan.calibrated.selector, buckets=2**14))
    return replace(plan, calibrated=made)


@pytest.mark.parametrize("selector", CASES)
def test_the_same_release(selector, there, parquet, tmp_path, monkeypatch):
    if selector in (
        "laplace",
        "optimal",
        "floor",
    ):  # keys with one count are drawn for at once, in production from 20,000 on
        monkeypatch.setattr("hushquery.curator.counting.WORTH_A_BINOMIAL", 4)
        monkeypatch.setattr("hushquery.curator.selectors.optimal.WORTH_A_BINOMIAL", 4)
    near, far = (
        plan_of(log, selector).run(tmp_path / f"{name}.db", bits=statistical.bits("engines", selector))
        for name, log in (("near", read_log(parquet)), ("far", there))
    )
    assert 5 < near.tables["queries"].num_rows < 75  # some on each side of the threshold, else this shows nothing
    assert set(far.tables) == set(near.tables)
    for name, expected in near.tables.items():
        assert expected.num_rows
        assert far.tables[name].equals(expected), name
    assert far.manifest["steps"] == near.manifest["steps"]
