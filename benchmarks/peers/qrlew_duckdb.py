"""Qrlew compiles the query to one private statement in PostgreSQL's dialect, which DuckDB runs on the file.

Qrlew reads schema and size through SQLAlchemy, whose way into DuckDB it does not know; an SQLite table of the same
columns stands in, with the true number of rows, which Qrlew takes as public.
"""

# ruff: noqa: E402 -- what a user would write begins with its own imports

import json
import sys

log = sys.argv[1]

# >>> the job
from math import log as ln

import duckdb
import pyqrlew
from sqlalchemy import create_engine, text

database = duckdb.connect()
database.read_parquet(log).project('"user", query').create_view("log")
rows = database.execute("SELECT count(*) FROM log").fetchall()[0][0]
stand_in = create_engine("sqlite://")
with stand_in.connect() as connection:
    connection.execute(text('CREATE TABLE log ("user" INTEGER, query TEXT)'))
    connection.commit()
empty = pyqrlew.Dataset.from_database("job", stand_in)
sizes = json.loads(empty.size)
sizes["statistics"]["union"]["fields"][0]["statistics"]["struct"]["size"] = str(rows)
dataset = pyqrlew.Dataset.from_str(json.dumps({"uuid": sizes["dataset"]}), empty.schema, json.dumps(sizes))
relation = dataset.relation("SELECT query, COUNT(*) AS n FROM log GROUP BY query")
private = relation.rewrite_with_differential_privacy(
    dataset=dataset,
    privacy_unit=[("log", [], "user")],
    epsilon_delta={"epsilon": ln(10), "delta": 1e-5},
    max_multiplicity=20,
    max_multiplicity_share=1.0,
)
released = database.execute(private.relation().to_query(pyqrlew.Dialect.PostgreSql)).fetchall()
# <<< the job

print(json.dumps({"released": len(released)}))
