"""Write docs/benchmarks.md and its pictures from the JSON that benchmarks left; no number on the page is typed by hand.

    python benchmarks/page.py FOLDER_OF_RESULTS

A benchmark is any JSON object with ``benchmark`` (its name), ``date``, ``machine``, lists of rows to show, and a list
``required`` of what was asked for. ``release`` and ``peers`` have tables and pictures of their own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair

DOCS = Path(__file__).resolve().parent.parent / "docs"
ORDER = ("release", "peers", "scale", "text", "driver_bytes", "local", "collector", "hybrid", "samplers")
WORDS = {
    "release": "A whole release against the plain query",
    "peers": "The same job by every peer",
    "scale": "Time and memory against rows",
    "text": "Reading raw text logs",
    "driver_bytes": "What leaves the engine",
    "local": "Local randomizers against pure-ldp and multi-freq-ldpy",
    "collector": "The collector against the bare framework",
    "hybrid": "The hybrid pipeline against the number of clients",
    "samplers": "Exact samplers against OpenDP and numpy",
    "choices": "What single choices in the query of a release cost",
    "clients": "Reports per CPU second: clients and servers",
    "startup": "Import and --help",
    "estimate_spark": "Reports counted by Spark against one process",
}
HEAD = """# Benchmarks

Written by `make bench` (`benchmarks/page.py`); do not edit. Every job runs in a process of its own, jobs take turns
round by round, and a ratio is taken within a round, so that load on the machine falls out; it is given as least /
median / largest of the rounds. CPU seconds are user and system time of a job and of all it starts. Memory is the
largest sum of resident sets seen at once (pages shared by processes count for each). The logs are synthetic
(`benchmarks/job_log.py`).

**The plain query** is what the release is held against: the same bound (one row per user and query, the first 20 by
time), the same counts, written to Parquet, no noise and no threshold (`benchmarks/plain.sql`). The **unordered** form
counts any 20 rows of a user (`benchmarks/plain_unordered.sql`): cheaper, and another table.
"""
RELEASE = """`release` and `release, guided` are `hushquery release` with queries and clicks, compared with the plain
query that counts both, its clicks for as many queries as the release publishes; those without clicks are compared with
each other. What a release does beside the plain query is shown by two more rows: with texts taken as they are it
normalises nothing and looks for no personal numbers; of a small log there is little but the start of Python and its
libraries, calibration and pages. Profiles of single choices are below, and what was tried and left is in
`docs/decisions`.
"""
PEERS = """The job: how many users typed each query, keys private, 20 queries of a user, epsilon = ln 10, delta = 1e-5,
adding or removing one user. `ratio` is CPU to that of the plain query without clicks. `bounds users` says who makes
sure that a user counts at most 20 times: a complete peer does it itself, with the others it is the caller's own code,
which nothing checks. `lines` are those a user writes (`benchmarks/peers/`, between two marks; no empty lines, no
comments). hushquery also writes the release and charges a ledger; the peers keep the result in memory. Where a peer
can be asked for Gaussian noise with this budget, it is, because it releases more; Laplace is shown beside it where it
is the usual choice. Slow peers run once. The targets are those of ten million rows; smaller logs show what is fixed
cost.
"""


def row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join([row(heads), row("---" for _ in heads), *map(row, rows)])


def number(value: Any) -> str:
    """Write a cell: numbers short, spreads as least / median / largest."""
    if isinstance(value, dict):
        several = list(dict.fromkeys(number(one) for one in value.values()))
        return " / ".join(several) if set(value) <= {"min", "median", "max"} else flat(value)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, float) and abs(value) < 1000:
        return f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


def flat(value: dict[str, Any]) -> str:
    return ", ".join(f"{number(one)} {name}" for name, one in value.items())


def middle(found: dict[str, Any], key: str) -> str:
    """Write the median of a spread."""
    return number(found[key]["median"]) if key in found else ""


def release_tables(told: dict[str, Any]) -> str:
    heads = ("", "CPU s", "ratio", "wall s", "peak MiB", "memory ratio", "rows of the tables")
    rows = [
        (
            one["job"],
            *((middle(one, "cpu"), number(one["ratio"]), middle(one, "wall"), middle(one, "mib"))),
            number(one["memory_ratio"]),
            flat(one["tables"]),
        )
        if "ratio" in one
        else (one["job"], *[""] * 5, one["error"])
        for one in told["measured"]
    ]
    return f"{RELEASE}\n{log_words(told['logs'][0])}\n\n{table(heads, rows)}"


def peers_tables(told: dict[str, Any]) -> str:
    parts = [PEERS]
    heads = ("", "bounds users", "CPU s", "ratio", "wall s", "peak MiB", "queries released", "lines", "")
    for log in told["logs"]:
        rows = [
            (
                f"**{one['title']}**" if one["job"] == "ours" else one["title"],
                one["bounds"],
                middle(one, "cpu"),
                number(one.get("ratio", {})),
                middle(one, "wall"),
                middle(one, "mib"),
                number(one["released"]).replace(" / ", " to "),
                number(one["lines"]),
                one["error"],
            )
            for one in told["measured"]
            if one["rows"] == log["rows"]
        ]
        parts.append(f"### {log['rows']:,} rows\n\n{log_words(log)}\n\n{table(heads, rows)}\n")
    versions = [f"{package} {version}" for found in told["versions"].values() for package, version in found.items()]
    parts.append(f"Versions: {', '.join(dict.fromkeys(versions))}.")
    return "\n".join(parts)


def log_words(log: dict[str, int]) -> str:
    return "The log: " + ", ".join(f"{number(value)} {name.replace('_', ' ')}" for name, value in log.items()) + "."


def any_tables(told: dict[str, Any]) -> str:
    """Show every list of rows a benchmark has, whatever its columns."""
    parts = []
    for key, rows in told.items():
        if key != "required" and isinstance(rows, list) and rows and all(isinstance(one, dict) for one in rows):
            heads = list(dict.fromkeys(name for one in rows for name in one))
            cells = [[number(one[head]) if head in one else "" for head in heads] for one in rows]
            parts.append(table([head.replace("_", " ") for head in heads], cells))
    return "\n\n".join(parts)


def verdicts(told: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Read what was required and what came out: (what, got, required, met or missed)."""
    found = []
    for one in told.get("required", ()):
        bound = next((key for key in ("most", "least", "required") if key in one), "")
        words = [number(value) for key, value in one.items() if key in ("job", "measure", "clients", "what")]
        named = [key for key in one if key not in (bound, "met", "job", "measure", "clients", "what", "rows")]
        if not bound or not named:
            continue
        got, limit = one[named[0]], one[bound]
        if named[0] != "got":
            words.append(named[0].replace("_", " "))
        met = one.get("met", got is not None and (got <= limit if bound == "most" else got >= limit))
        need = f"at {'most' if bound == 'most' else 'least'} {number(limit)}"
        found.append((", ".join(words), number(got), need, "met" if met else "**missed**"))
    return found


def markdown(told: dict[str, Any]) -> str:
    """Write the section of one benchmark."""
    name = told["benchmark"]
    parts = [f"## {WORDS.get(name, name.replace('_', ' '))}\n"]
    about = [told.get("date", ""), told.get("machine", ""), f"Python {told['python']}" if "python" in told else ""]
    about += [f"load {told['load_average']} at the end" if "load_average" in told else ""]
    simple = {key: value for key, value in told.get("settings", {}).items() if not isinstance(value, dict)}
    about += [f"{key.replace('_', ' ')} {number(value)}" for key, value in simple.items()]
    command = f"`benchmarks/{told['command']}`, " if "command" in told else ""
    parts.append(f"{command}{', '.join(part for part in about if part)}.\n")
    if told.get("error"):
        parts.append(f"It gave no result: {told['error']}.\n")
    else:
        parts.append({"release": release_tables, "peers": peers_tables}.get(name, any_tables)(told) + "\n")
        parts += [
            f"![{title}](images/bench-{name}.png)\n" for title in ([PICTURES[name][1]] if name in PICTURES else [])
        ]
    judged = verdicts(told)
    if judged:
        parts.append(table(("required", "measured", "target", ""), judged) + "\n")
    return "\n".join(parts)


def draw_peers(told: dict[str, Any]) -> altair.TopLevelMixin:
    """Draw CPU and released queries of all, on the largest log."""
    import altair as alt

    size = max(log["rows"] for log in told["logs"])
    kinds = {"hushquery": "#2a9d6f", "bounds users itself": "#2e6f9e", "bounded by hand": "#e59f3c", "plain": "#999999"}
    values = []
    for one in told["measured"]:
        if one["rows"] == size and "cpu" in one:
            kind = "bounds users itself" if one["bounds"] == "itself" else "bounded by hand"
            kind = "hushquery" if one["job"] == "ours" else kind if one["private"] else "plain"
            title = one["title"].replace(", not private", "")
            values.append({"who": title, "kind": kind, "cpu": one["cpu"]["median"], "released": one["released"]["max"]})
    base = alt.Chart(alt.InlineData(values=values)).encode(
        y=alt.Y("who:N", title=None, sort=[value["who"] for value in values], axis=alt.Axis(labelLimit=360)),
        color=alt.Color(
            "kind:N",
            title=None,
            scale=alt.Scale(domain=list(kinds), range=list(kinds.values())),
            legend=alt.Legend(orient="top"),
        ),
    )
    cpu = base.mark_circle(size=160, opacity=1).encode(
        x=alt.X("cpu:Q", title=f"CPU seconds, {size:,} rows", scale=alt.Scale(type="log"))
    )
    queries = (
        base.transform_filter("datum.kind != 'plain'")
        .mark_bar()
        .encode(
            x=alt.X("released:Q", title="queries released"),
            y=alt.Y("who:N", title=None, sort=None, axis=alt.Axis(labelLimit=360)),
        )
    )
    return alt.hconcat(*(chart.properties(width=330, height=24 * len(values)) for chart in (cpu, queries)))


def draw_release(told: dict[str, Any]) -> altair.TopLevelMixin:
    """Draw the ratios of CPU and of memory to the plain query, with what is allowed."""
    import altair as alt

    panels = []
    for key, word, name in (("ratio", "CPU", "CPU"), ("memory_ratio", "peak memory", "memory")):
        most = {one["job"]: one["most"] for one in told["required"] if one["what"].startswith(f"{word},")}
        values = [
            {"job": one["job"], **one[key], "most": most.get(one["job"])} for one in told["measured"] if key in one
        ]
        base = alt.Chart(alt.InlineData(values=values)).encode(y=alt.Y("job:N", title=None, sort=None))
        title = f"{name}, times the plain query (line: spread, tick: allowed)"
        bars = base.mark_bar(color="#2e6f9e", size=14).encode(x=alt.X("median:Q", title=title))
        spans = base.mark_rule(color="#222222").encode(x="min:Q", x2="max:Q")
        ticks = base.transform_filter("isValid(datum.most)").mark_tick(color="#c0392b", thickness=3, size=22)
        panels.append((bars + spans + ticks.encode(x="most:Q")).properties(width=330, height=26 * len(values)))
    return alt.hconcat(*panels)


#: Which benchmarks have a picture, how it is drawn, and what it shows.
PICTURES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "release": (draw_release, "CPU and memory of a release, times those of the plain query"),
    "peers": (draw_peers, "CPU seconds and queries released, peer by peer, on the largest log"),
}


def write(results: Path, docs: Path = DOCS) -> Path:
    """Write the page and the pictures from a folder of results."""
    from hushquery import plot

    found = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    found.sort(key=lambda told: ORDER.index(told["benchmark"]) if told["benchmark"] in ORDER else len(ORDER))
    (docs / "images").mkdir(parents=True, exist_ok=True)
    for told in found:
        name = told["benchmark"]
        if name in PICTURES and not told.get("error"):
            plot.save(PICTURES[name][0](told), docs / "images" / f"bench-{name}.png")
    judged = [verdict for told in found for verdict in verdicts(told)]
    missed = sum(verdict[-1] != "met" for verdict in judged)
    summary = f"## In short\n\nOf {len(judged)} targets, {len(judged) - missed} are met"
    summary += f" and {missed} missed:\n\n" if missed else ".\n"
    if missed:
        heads = ("required", "measured", "target", "")
        summary += table(heads, [verdict for verdict in judged if verdict[-1] != "met"]) + "\n"
    page = docs / "benchmarks.md"
    page.write_text("\n".join([HEAD, summary, *map(markdown, found)]), encoding="utf-8")
    return page


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(f"wrote {write(Path(sys.argv[1]))}")


if __name__ == "__main__":
    main()
