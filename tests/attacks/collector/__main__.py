"""Run the attacks on a collector, and print one table.

    python -m tests.attacks.collector --store sqlite|postgresql [--short] [--only NAME ...] [--json FILE] [--page]

Exits with 1 if anything did not hold. ``--json`` adds the rows of this store to a file, ``--page`` writes
docs/attacks.md: the rows that ``before.json`` keeps beside those of this run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for what tests share

from attacks.collector.catalogue import ATTACKS
from attacks.collector.frame import STORES, run, table
from attacks.collector.page import keep, write_page


def main() -> int:
    """Run what was asked for; 1 if anything did not hold."""
    options = argparse.ArgumentParser(prog="python -m tests.attacks.collector")
    options.add_argument("--store", choices=STORES, required=True)
    options.add_argument("--short", action="store_true", help="the sizes of `make test`")
    options.add_argument("--only", nargs="+", choices=list(ATTACKS), default=list(ATTACKS), metavar="NAME")
    options.add_argument("--json", type=Path, help="keep the rows in this file, beside those of the other store")
    options.add_argument("--page", action="store_true", help="write docs/attacks.md")
    chosen = options.parse_args()
    rows = []
    for row in run({name: ATTACKS[name] for name in chosen.only}, chosen.store, chosen.short):
        rows.append(row)
        print(f"{'held' if row.held else 'FAILED':<7}{row.attack}: {row.tried}: {row.seen}", flush=True)  # noqa: T201
    print("\n" + table(rows))  # noqa: T201
    if chosen.json:
        keep(chosen.json, rows, short=chosen.short)
    if chosen.page:
        write_page(rows, short=chosen.short)
    return 0 if all(row.held for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
