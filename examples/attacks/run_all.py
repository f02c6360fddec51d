"""Run every attack of this folder and print what it found; ``--write`` puts it into docs/why-not.md.

    python examples/attacks/run_all.py               # prints
    python examples/attacks/run_all.py --write       # writes the tables of the page, with today's date

The towns are made from a seed; the noise of the hushquery releases is real, so their numbers differ from run to run.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from textwrap import fill
from typing import Any

import exact_counts
import hashed_words
import masked_ids
import rare_queries
import sampled_log

PAGE = Path(__file__).resolve().parents[2] / "docs" / "why-not.md"
PEOPLE, SEED = 20_000, 20_261_115
COMMAND = "python examples/attacks/run_all.py --write"

ATTACKS: dict[str, Callable[..., Any]] = {
    "masked_ids": masked_ids.attack,
    "hashed_words": hashed_words.attack,
    "sampled_log": sampled_log.attack,
    "rare_queries": rare_queries.attack,
    "exact_counts": exact_counts.attack,
}


def section(found: Any, people: int, day: str) -> str:
    """Write what an attack found as Markdown: when and how it was made, a table, and what the table does not say."""
    head, *rows = found.table()
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    made = f"Made on {day} (UTC) by `{COMMAND}`: a town of {people:,} people, half of them in the log, seed {SEED}."
    notes = [fill(f"- {note}", 120, subsequent_indent="  ", break_long_words=False) for note in found.notes()]
    return "\n".join([fill(made, 120, break_on_hyphens=False), "", *lines, "", *notes])


def between(name: str) -> re.Pattern[str]:
    """Find what stands between the marks of an attack on the page."""
    return re.compile(rf"(<!-- made: {name} -->\n).*?(<!-- end: {name} -->)", re.DOTALL)


def written(page: str, name: str, text: str) -> str:
    """Give the page with the numbers of one attack replaced."""
    new, count = between(name).subn(lambda marks: f"{marks[1]}\n{text}\n\n{marks[2]}", page)
    if count != 1:
        raise SystemExit(f"{PAGE.name} has not exactly one place for {name}")
    return new


def main() -> None:
    """Run all attacks."""
    parser = argparse.ArgumentParser(description="Run every attack of this folder.")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/why-not.md")
    parser.add_argument("--people", type=int, default=PEOPLE)
    options = parser.parse_args()
    day = datetime.now(UTC).date().isoformat()
    page = PAGE.read_text(encoding="utf-8") if options.write else ""
    for name, attack in ATTACKS.items():
        text = section(attack(options.people, SEED), options.people, day)
        print(f"\n{name}\n\n{text}")
        page = written(page, name, text) if options.write else page
    if options.write:
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
