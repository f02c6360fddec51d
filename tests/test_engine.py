"""Engines and tables: what is no table is refused without showing any of its rows, and secrets stay secret."""

from __future__ import annotations

import json
import sys
import traceback

import ibis
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from hushquery.engine import as_table, connect
from hushquery.errors import DataError, HushqueryError, Unavailable, UsageError

MARKER = "Zyxwvut-Marker"


def shown(error):
    """Everything that a person could get to see of an error."""
    return "".join(traceback.format_exception(error)) + json.dumps(error.as_dict())


# ---- tables in memory ------------------------------------------------------------------------------------------------

ROWS = {"user": ["ann", "bob", None], "x": [1.5, None, 3.0]}


@pytest.mark.parametrize(
    "make", [dict, pa.table, pd.DataFrame, pl.DataFrame, lambda rows: ibis.memtable(pa.table(rows))]
)
def test_tables_in_memory(make):
    table = as_table(make(ROWS))
    assert table.columns == ("user", "x")
    assert table.to_pyarrow().to_pydict() == ROWS


def test_an_ibis_table_is_taken_as_it_is():
    table = ibis.memtable(pa.table(ROWS))
    assert as_table(table) is table


@pytest.mark.parametrize(
    "data",
    [
        {"user": [1, 2], "x": [1]},
        {"user": [MARKER, 1, [2]]},
        42,
        object(),
        pd.DataFrame([[1, MARKER]], columns=["user", "user"]),
        pd.DataFrame({"user": [MARKER, 1, ["x"]]}),
    ],
)
def test_what_is_no_table_is_refused_without_its_values(data):
    with pytest.raises(DataError) as refused:
        as_table(data).to_pyarrow()
    assert MARKER not in shown(refused.value)
    assert "table" in refused.value.fix


# ---- engines ---------------------------------------------------------------------------------------------------------


def test_duckdb_runs_in_the_process():
    assert connect().name == "duckdb"
    assert connect("duckdb").name == "duckdb"
    assert connect() is not connect()


@pytest.mark.parametrize(
    "url",
    ["postgresql://u:hunter2@127.0.0.1:1/db", "postgres://u:hunter2@127.0.0.1:1/db", "nosuch://u:hunter2@h/d", ""],
)
def test_an_engine_that_is_not_there_is_unavailable_and_its_password_stays_secret(url):
    with pytest.raises(Unavailable) as refused:
        connect(url)
    assert refused.value.exit_code == 69
    assert "hunter2" not in shown(refused.value)
    assert refused.value.fix


@pytest.mark.parametrize(
    ("url", "extra"),
    [("mysql://u:hunter2@h/db", "ibis-framework[mysql]"), ("postgresql://u:hunter2@h/db", "hushquery[serve]")],
)
def test_a_missing_driver_is_told_with_what_to_type(monkeypatch, url, extra):
    for module in ("MySQLdb", "psycopg", "psycopg2"):
        monkeypatch.setitem(sys.modules, module, None)
    for module in [m for m in sys.modules if m.startswith(("ibis.backends.mysql", "ibis.backends.postgres"))]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(Unavailable) as refused:
        connect(url)
    assert f"pip install '{extra}'" in refused.value.fix
    assert "hunter2" not in shown(refused.value)


def test_every_error_of_this_file_is_one_of_ours():
    assert issubclass(DataError, HushqueryError)
    assert (UsageError.exit_code, DataError.exit_code, Unavailable.exit_code) == (2, 4, 69)
