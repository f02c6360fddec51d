"""Write docs/experiments/korolova2009.md and its pictures from the results.json that the experiment wrote.

``python tools/experiments.py RESULTS`` takes a file; without one the experiment runs first, at its acceptance size.
No number on the page is typed by hand.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hushquery import plot
from hushquery.curator.korolova import calibrate_korolova
from hushquery.evaluate.experiments.korolova2009 import DELTA, EPSILON, QUERIES_PER_USER
from hushquery.evaluate.experiments.korolova2009_page import (
    FIGURES,
    command,
    main_grid,
    percent,
    pivot,
    tau,
    verdict,
)
from hushquery.evaluate.unpublishable import MARK

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "experiments" / "korolova2009.md"
IMAGES = DOCS / "images"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Give a table in Markdown."""
    return ["| " + " | ".join(cells) + " |" for cells in (heads, ["---"] * len(heads), *rows)]


def setting(data: dict[str, Any]) -> list[str]:
    """Put the paper's setting beside ours; K and b are computed from the theorem."""
    log, settings = data["log"], data["settings"]
    theorems = [calibrate_korolova(d, EPSILON, DELTA) for d in settings["queries_per_user"]]
    ran = pivot(main_grid(data))
    gaussian = [ran["gaussian"][d]["threshold"] for d in settings["queries_per_user"]]
    return [
        *table(
            ("", "the paper", "here"),
            [
                (
                    "log",
                    "the log of a search engine, which nobody else can have",
                    f"synthetic, profile `{settings['profile']}`, seed {settings['seed']}: {log['users']:,} users with "
                    f"rows, {log['rows']:,} rows, {log['searches']:,} searches, {log['distinct_queries']:,} distinct "
                    f"queries, {percent(log['searched_once_share'], 0)} of them searched once",
                ),
                ("budget", "e^epsilon = 10, delta = 1e-5", "the same"),
                ("d", ", ".join(map(str, QUERIES_PER_USER)), ", ".join(map(str, settings["queries_per_user"]))),
                ("algorithm", "Algorithm 1", "Algorithm 1 (`korolova2009`) and five other selectors"),
                ("noise", "continuous", "discrete, exact to the last bit"),
                ("runs", "-", f"mean of {settings['runs']}"),
            ],
        ),
        "",
        "The thresholds, which are known before any row is read: K and b of the paper's Theorem 1 as its slides have",
        "them, and the threshold of `gaussian` at the same budget.",
        "",
        *table(
            ("d", *(str(d) for d in settings["queries_per_user"])),
            [
                ("K, in searches", *(f"{float(theorem.threshold):.2f}" for theorem in theorems)),
                ("b", *(f"{float(theorem.scale):.2f}" for theorem in theorems)),
                ("`gaussian`, in users", *(f"{threshold:g}" for threshold in gaussian)),
            ],
        ),
    ]


def coverage(data: dict[str, Any]) -> list[str]:
    """Give the three tables of coverage."""
    grid, ds = pivot(main_grid(data)), data["settings"]["queries_per_user"]
    heads = ("selector", *(f"d = {d}" for d in ds))
    lines = []
    shown: dict[str, Callable[[Any], str]] = {
        "Queries released": lambda p: f"{p['queries']:,.0f}",
        "Their share of all distinct queries": lambda p: percent(p["distinct_share"], 2),
        "Their share of the search volume": lambda p: percent(p["volume_share"]),
    }
    for title, show in shown.items():
        rows = [(f"`{name}`", *(show(row[d]) for d in ds)) for name, row in grid.items()]
        lines += [f"{title}:", "", *table(heads, rows), ""]
    return lines


def others(data: dict[str, Any]) -> list[str]:
    """Give the table of the other budgets."""
    rows = [
        (
            f"`{p['selector']}`",
            f"{p['epsilon']:.4g}",
            f"{p['delta']:.0e}",
            "with counts" if p["with_counts"] else "list only",
            f"{p['queries']:,.0f}",
            percent(p["volume_share"]),
        )
        for p in data["coverage"]
        if p not in main_grid(data)
    ]
    return table(("selector", "epsilon", "delta", "what is made", "queries released", "search volume"), rows)


def keywords(data: dict[str, Any]) -> list[str]:
    """Give the table of keywords."""
    rows = [
        (
            f"{score['gamma']:g}",
            *(f"{score[name]:,}" for name in ("private", "raw", "raw_released", "both")),
            *(percent(score[name]) for name in ("precision", "recall", "recall_released", "jaccard")),
        )
        for score in data["keywords"]["together"]
    ]
    heads = ("gamma", "in release", "in log", "of them released", "both", "precision", "recall", "recall of released")
    return table((*heads, "Jaccard"), rows)


def fears(data: dict[str, Any]) -> list[str]:
    """Give the sentence and the table of fears."""
    found = data["fears"]
    rows = [
        (row["fear"], str(row["rank"]), f"{row['count']:,}", str(row["raw_rank"] or "-"), f"{row['raw_count']:,}")
        for row in found["ranking"]
    ]
    return [
        f"{found['overlap']} of the top {found['top']} agree; Kendall's tau is {tau(data)} over the "
        f"fears that both have.",
        f"The release names {found['private']} of the log's {found['raw']} fears.",
        "",
        *table(("fear", "rank in release", "noisy count, capped", "rank in log", "users in log"), rows),
    ]


def picture(name: str) -> list[str]:
    """Give a picture with its caption."""
    return [f"![{name}](../images/korolova2009-{name}.png)", "", FIGURES[name][1]]


def page(data: dict[str, Any]) -> str:
    """Give the whole page."""
    settings, release = data["settings"], data["settings"]["release"]
    claims = [
        (c["what"], "-" if c["ratio"] is None else f"{c['ratio']:.2f}", f"{c['at_least']:g}", verdict(c))
        for c in data["claims"]
    ]
    parts = [
        "# Korolova, Kenthapadi, Mishra and Ntoulas 2009, measured again",
        "",
        f"Made on {settings['date']} (UTC) with hushquery {settings['version']} by",
        "",
        "```console",
        f"$ {command(data)}",
        "$ python tools/experiments.py experiment-korolova2009/results.json",
        "```",
        "",
        "Do not edit: run it again; the same seed gives the same numbers.",
        "",
        f"> **{MARK}.** The log here is synthetic, nobody is in it, and so this page does no harm. The same page",
        "> about a real log must stay with its steward: every number on it is a question to the log answered without",
        "> noise.",
        "",
        "## The setting",
        "",
        *setting(data),
        "",
        "## What had to be reached",
        "",
        *table(("ratio of queries released", "measured", "at least", ""), claims),
        "",
        "## Coverage against d",
        "",
        *picture("coverage"),
        "",
        *coverage(data),
        "## Coverage against epsilon and delta, and with counts",
        "",
        *picture("budget"),
        "",
        *picture("counts"),
        "",
        *others(data),
        "",
        "## Keywords",
        "",
        f"A release with `{release['selector']}`, d = {release['queries_per_user']} and {release['clicks_per_user']} "
        "clicks per user at the same budget, against the click graph of the",
        "whole log. Topics are themes of the synthetic language, each given by its sites; a keyword is a query from",
        f"which a random walk with alpha = {data['keywords']['alpha']} ends at them with probability gamma or more.",
        "",
        *picture("keywords"),
        "",
        *keywords(data),
        "",
        "## Human fears",
        "",
        "Queries `fear of X` and `X phobia`, ranked by count, in the same release and in the log.",
        "",
        *fears(data),
        "",
        *picture("fears"),
    ]
    return "\n".join(parts) + "\n"


def measure(folder: Path) -> Path:
    """Run the experiment at its acceptance size."""
    program = str(Path(sys.executable).parent / "hushquery")
    subprocess.run([program, "experiment", "korolova2009", "--out", str(folder)], check=True)
    return folder / "results.json"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        results = Path(sys.argv[1]) if len(sys.argv) > 1 else measure(Path(folder) / "out")
        data = json.loads(results.read_text(encoding="utf-8"))
    if data["settings"]["log"] != "synthetic":
        sys.exit("these results are of a real log and must not be published")
    PAGE.parent.mkdir(exist_ok=True)
    for name, (draw, _) in FIGURES.items():
        plot.save(draw(data), IMAGES / f"korolova2009-{name}.png")
    PAGE.write_text(page(data), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
