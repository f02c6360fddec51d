"""Run a plain query, one that is not private: ``python plain.py SQL LOG OUT STATEMENTS RELEASED``.

STATEMENTS is how many of the file's statements to run (the first makes the queries, the second the clicks), RELEASED
for how many queries there are clicks: as many as the release beside it published.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb


def main() -> None:
    sql, log, out, statements, released = sys.argv[1:]
    connection = duckdb.connect()
    connection.execute(f"SET VARIABLE released = {int(released)}")
    text = Path(sql).read_text().replace("$log", log).replace("$out", out)
    for statement in connection.extract_statements(text)[: int(statements)]:
        connection.execute(statement)
    # Not as a parameter: for one DuckDB imports pandas, a third of a second that is not the query's.
    rows = connection.execute(f"SELECT count(*) FROM '{out}/queries.parquet'").fetchall()[0][0]  # noqa: S608
    print(json.dumps({"released": rows}))


if __name__ == "__main__":
    main()
