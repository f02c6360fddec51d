"""docs/attacks.md: what each attack showed before and after, from runs that are kept as JSON."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attacks.collector.frame import Row, cell

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "attacks.md"
#: The run on the code as it was when these attacks were written; never made anew.
BEFORE = Path(__file__).parent / "before.json"
#: The latest run of the long form, a part for each store; `make prove` writes it.
AFTER = Path(__file__).parent / "after.json"

HEAD = """# Attacks on the collector

Made by `python -m tests.attacks.collector --store sqlite --page` and the same with `--store postgresql`, which
`make prove` runs; do not edit. Each attack starts real servers (`hushquery serve`), real PostgreSQL clusters and real
clients, and looks at the collector from outside: HTTP, commands, files on disk. The programs are in
`tests/attacks/collector/`, a file for each; a short form of all of them runs in `make test`
(`tests/attacks/collector/test_short.py`).
"""


def keep(path: Path, rows: Sequence[Row], *, short: bool) -> None:
    """Put the rows of a run into a file, in place of what it has of the same stores and attacks."""
    data: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {"runs": {}, "rows": []}
    for store in {row.store for row in rows}:
        data["runs"][store] = {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "commit": _commit(),
            "form": "short" if short else "long",
        }
    again = {(row.store, row.attack) for row in rows}
    data["rows"] = [one for one in data["rows"] if (one["store"], one["attack"]) not in again]
    data["rows"] += [row.to_json() for row in rows]
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def write_page(rows: Sequence[Row], *, short: bool) -> None:
    """Keep a run as the latest one, and write the page."""
    keep(AFTER, rows, short=short)
    PAGE.write_text(document(), encoding="utf-8")


def document() -> str:
    """Write the page from both files."""
    before = json.loads(BEFORE.read_text("utf-8"))
    after = json.loads(AFTER.read_text("utf-8")) if AFTER.exists() else {"runs": {}, "rows": []}
    parts = [HEAD]
    for store in before["runs"]:
        told = [f"before: {_told(before['runs'][store])}"]
        told += [f"after: {_told(after['runs'][store])}"] if store in after["runs"] else ["after: not run yet"]
        parts += [f"## {'SQLite' if store == 'sqlite' else 'PostgreSQL'}", "", "; ".join(told) + ".", ""]
        parts += ["| attack | what was tried | what must hold | before | after |", "|---|---|---|---|---|"]
        old = {_key(one): one for one in before["rows"] if one["store"] == store}
        new = {_key(one): one for one in after["rows"] if one["store"] == store}
        for key in dict.fromkeys([*new, *old]):
            one = new.get(key) or old[key]
            columns = [one["attack"], one["tried"], one["must"]]
            parts.append(
                "| " + " | ".join(map(cell, columns)) + f" | {_verdict(old.get(key))} | {_verdict(new.get(key))} |"
            )
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _key(one: dict[str, Any]) -> tuple[str, str, str]:
    return one["attack"], one["tried"], one["must"]


def _verdict(one: dict[str, Any] | None) -> str:
    if one is None:
        return ""
    return f"{'held' if one['held'] else '**broken**'}: {cell(one['seen'])}"


def _told(run: dict[str, Any]) -> str:
    return f"{run['date']}, commit {run['commit']}, {run['form']} form"


def _commit() -> str:
    # Of the product, not of these attacks.
    command = ["git", "log", "-1", "--format=%h", "--abbrev=10", "--", "src"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
