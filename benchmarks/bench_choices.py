"""What single choices in the query of a release cost: the plain count, and the same count with one thing changed.

    python benchmarks/bench_choices.py [--rows 2000000] [--rounds 5] [--json]

One process, one thread, all forms in turn; the least CPU of the rounds, times that of the plain count. This is the
profile behind docs/benchmarks.md: what a release does that the plain query does not, and what was tried and left.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import duckdb
from job_log import job_log

from hushquery.log.normalise import PLAIN

COUNT = """
SELECT query, count(*) AS n FROM (
  SELECT {chosen} FROM (SELECT "user", query, min({time}) AS first FROM ({rows}) GROUP BY 1, 2)
) WHERE {kept} GROUP BY query
"""
TOP_N = """
SELECT query, count(*) AS n FROM (
  SELECT unnest(min({{'t': first, 'q': query}}, 20)).q AS query
  FROM (SELECT "user", query, min(time) AS first FROM ({rows}) GROUP BY 1, 2) GROUP BY "user"
) GROUP BY query
"""
ROWS = """SELECT {user} AS "user", {query} AS query, time FROM read_parquet('{log}')"""
PLACE = """query, row_number() OVER (PARTITION BY "user" ORDER BY {order}) AS place"""
USUAL = {"order": "first, query", "time": "time", "user": '"user"', "query": "query", "kept": "place <= 20"}
IS_PLAIN = f"regexp_matches(query, '{PLAIN[0]}')"


def forms(log: str) -> dict[str, tuple[str, str]]:
    """Give each form's query, and whether a release has it."""

    def form(**changed: str) -> str:
        said = USUAL | changed
        return COUNT.format_map({"chosen": PLACE.format(**said), **said, "rows": ROWS.format(log=log, **said)})

    top_n = TOP_N.format(rows=ROWS.format(log=log, **USUAL))
    return {
        "plain count": (form(), ""),
        "one search by a regular expression": (
            form(query=f"CASE WHEN {IS_PLAIN} THEN query ELSE lower(query) END"),
            "yes",
        ),
        "missing queries have no order": (form(time="CASE WHEN query IS NOT NULL THEN time END"), "yes"),
        "missing queries left out at the end": (form(kept="place <= 20 AND query IS NOT NULL"), "yes"),
        "times as microseconds, checked": (form(time="CASE WHEN epoch_us(time) < 4e18 THEN epoch_us(time) END"), "yes"),
        "missing queries sorted last by an expression": (
            form(order="CASE WHEN query IS NOT NULL THEN first END, query"),
            "left",
        ),
        "whole-number users as text": (form(user='"user"::VARCHAR'), "left"),
        "the first 20 by a top-n aggregate": (top_n, "left"),
        "ties in time not broken by the query": (
            form(chosen='query, rank() OVER (PARTITION BY "user" ORDER BY first) AS place'),
            "no: keeps more than 20",
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    asked = parser.parse_args()
    rows = asked.rows // 10 if asked.quick else asked.rows
    engine = duckdb.connect(config={"threads": "1"})
    engine.execute("SET enable_progress_bar = false")
    queries = forms(str(job_log(rows)))
    seconds: dict[str, list[float]] = {name: [] for name in queries}
    for _ in range(asked.rounds):
        for name, (sql, _has) in queries.items():
            began = time.process_time()
            engine.execute(f"CREATE OR REPLACE TEMP TABLE counted AS {sql}")
            seconds[name].append(time.process_time() - began)
    least = {name: min(each) for name, each in seconds.items()}
    found: list[dict[str, Any]] = [
        {
            "form": name,
            "CPU s": round(least[name], 3),
            "times plain": round(least[name] / least["plain count"], 2),
            "in a release": has,
        }
        for name, (_, has) in queries.items()
    ]
    if asked.as_json:
        told = {"forms": found, "settings": {"rows": rows, "rounds": asked.rounds, "threads": 1}}
        print(json.dumps(told, indent=2))
        return
    print(f"{rows:,} rows, one thread, the fastest of {asked.rounds} rounds")
    for one in found:
        print(f"{one['form']:50}{one['CPU s']:>8.3f}{one['times plain']:>7.2f}  {one['in a release']}")


if __name__ == "__main__":
    main()
