"""Tables between marks on a page of the docs: a tool computes them, a person writes the rest.

A table stands between ``<!-- made: name -->`` and ``<!-- end: name -->``; a page says once "Made on 2026-01-31 (UTC)".
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

Rows = list[list[str]]
Tables = Mapping[str, Callable[[], Rows]]

DAY = re.compile(r"Made on (\d{4}-\d\d-\d\d) \(UTC\)")


def between(name: str) -> re.Pattern[str]:
    """Find what stands between the marks of a table."""
    return re.compile(rf"(<!-- made: {name} -->\n).*?(<!-- end: {name} -->)", re.DOTALL)


def as_table(rows: Rows) -> str:
    head, *rest = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rest))


def written(page: str, tables: Tables, day: str) -> str:
    """Give a page with every table made anew."""
    for name, made in tables.items():
        text, count = as_table(made()), len(between(name).findall(page))
        page = between(name).sub(rf"\g<1>\n{text}\n\n\g<2>", page)
        if count != 1:
            raise SystemExit(f"the page has not exactly one place for {name}")
    page, count = DAY.subn(f"Made on {day} (UTC)", page)
    if count != 1:
        raise SystemExit("the page does not say once when it was made")
    return page


def main(path: Path, tables: Tables, command: str) -> None:
    """Write a page, or with ``--check`` say whether it is what would be written, its date apart."""
    parser = argparse.ArgumentParser(description=f"Compute the numbers of docs/{path.name}.")
    parser.add_argument("--check", action="store_true", help="only say whether the page is current")
    options = parser.parse_args()
    page = path.read_text(encoding="utf-8")
    if options.check:
        found = DAY.search(page)
        if found is None or written(page, tables, found[1]) != page:
            raise SystemExit(f"{path.name} is not current: run {command}")
        return
    path.write_text(written(page, tables, datetime.now(UTC).date().isoformat()), encoding="utf-8")
