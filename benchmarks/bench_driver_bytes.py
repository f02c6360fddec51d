"""What leaves the engine: rows and bytes that come to this process, against the rows that are released.

    python benchmarks/bench_driver_bytes.py [--millions 0.1,1,3] [--selectors laplace,...] [--json]

Logs are synthetic, of growing size, d = 20, (ln 10, 1e-5), queries only, on DuckDB. A count that fewer than 20,000
queries share is fetched with its queries, so up to that many of each count below the threshold come too, a constant; of
counts that more share only the few that noise lifts over the threshold are looked up. ``guided`` also fetches the sums
of its buckets, at most 2^22.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from hushquery.curator.plan import SELECTORS, SelectorName, plan_release
from hushquery.log import read_log
from hushquery.log.synthetic.logs import write_log
from hushquery.noise.sampler import SeededBits

USERS_PER_MILLION_ROWS = 28_200
QUERIES_PER_USER = 20


def measured(log: Path, selector: SelectorName, ledger: Path) -> dict[str, Any]:
    """Make one release; give what came out of the engine for it."""
    plan = plan_release(
        read_log(log),
        epsilon="ln(10)",
        delta="1e-5",
        queries_per_user=QUERIES_PER_USER,
        selector=selector,
        population="log",
    )
    engine, sizes, rows = sys.modules["hushquery.engine.execute"], [], 0
    fetch = engine.fetch

    def counted(expression: Any) -> Any:
        nonlocal rows
        table = fetch(expression)
        sizes.append(table.nbytes)
        rows += table.num_rows
        return table

    with mock.patch.object(engine, "fetch", counted):
        release = plan.run(str(ledger), bits=SeededBits("bench driver bytes"))
    released = release.tables["queries"].num_rows
    return {
        "selector": selector,
        "released": released,
        "answers": len(sizes),
        "rows": rows,
        "bytes": sum(sizes),
        "largest": max(sizes),
        "bytes_per_released_row": round(sum(sizes) / max(1, released)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--millions", default="0.1,1,3", help="sizes of the logs, in millions of rows")
    parser.add_argument("--selectors", default=",".join(SELECTORS[1:]))
    given = parser.parse_args()
    sizes = [float(size) for size in given.millions.split(",")]
    named = given.selectors.split(",")
    selectors = [name for name in SELECTORS if name in named]
    if len(selectors) < len(named) or min(sizes) <= 0:
        parser.error(f"selectors are among {', '.join(SELECTORS)}, and sizes above 0")
    rows = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as name:
            log = Path(name) / "log.parquet"
            write_log(log, "aol", max(1, int(size * USERS_PER_MILLION_ROWS)), 7)
            for selector in selectors:
                print(f"{size:g} million rows: {selector}", file=sys.stderr)
                rows.append({"millions": size, **measured(log, selector, Path(name) / f"{selector}.db")})
    if given.json:
        print(json.dumps({"queries_per_user": QUERIES_PER_USER, "measured": rows}, indent=2))
        return
    print(
        f"{'million rows':>12}  {'selector':14}{'released':>10}{'rows out':>12}{'bytes out':>14}{'bytes/released':>16}"
    )
    for row in rows:
        print(
            f"{row['millions']:>12g}  {row['selector']:14}{row['released']:>10,}{row['rows']:>12,}"
            f"{row['bytes']:>14,}{row['bytes_per_released_row']:>16,}"
        )


if __name__ == "__main__":
    main()
