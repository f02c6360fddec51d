"""``hushquery demo``: the widest job there is, on a log that it makes itself, ending in a page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushquery.cli.common import JsonFlag, emit, progress
from hushquery.errors import BudgetRefused, UsageError

if TYPE_CHECKING:
    from hushquery.evaluate.audit import AuditResult
    from hushquery.privacy.ledger import Ledger
    from hushquery.release import Release

__all__ = ["demo"]

# Not ledger.db, which is what a real one is called by default: that must never be deleted.
_LEDGER = "demo-ledger.db"
_OURS = {_LEDGER, "log.parquet", "release", "index.html"}
_POPULATION = "the imaginary users of a synthetic log"
_MOST_SHOWN = 15
_STYLE = """
body { font: 16px/1.55 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; color: #1c2733; }
h1 { font-size: 1.9rem } h2 { margin-top: 2.2rem; border-bottom: 1px solid #d8dee4; padding-bottom: .2rem }
pre { background: #f5f7f9; padding: .8rem 1rem; border-radius: 6px; white-space: pre-wrap; font-size: .88rem }
figure { margin: 1rem 0; overflow-x: auto } figcaption { color: #57606a; font-size: .9rem }
table { border-collapse: collapse } td, th { text-align: left; padding: .2rem 1rem .2rem 0; vertical-align: top }
.refused { border-left: 4px solid #b3261e; padding-left: 1rem }
"""


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to put the log, the ledger and the page.")] = Path(
        "demo-output"
    ),
    users: Annotated[int, typer.Option(min=100, max=1_000_000, metavar="N", help="How many imaginary users.")] = 20_000,
    seed: Annotated[
        int, typer.Option(metavar="S", help="Of the imaginary log; the noise is always the operating system's.")
    ] = 1,
    as_json: JsonFlag = False,
) -> None:
    r"""Make a synthetic search log, publish it privately, search the release, and end in a page to look at.

        hushquery demo --out demo-output

    Everything is real but the people: the noise, the ledger that refuses a second release, the audit.
    """
    from hushquery.curator.plan import curate
    from hushquery.evaluate.audit import audit
    from hushquery.log import read_log
    from hushquery.log.synthetic import which_private, write_log
    from hushquery.privacy.budget import Budget
    from hushquery.privacy.ledger import Ledger

    there = {file.name for file in out.iterdir()} if out.is_dir() else set()
    if (out.exists() and not out.is_dir()) or (there and not ({_LEDGER} <= there <= _OURS)):
        raise UsageError(f"{out} exists and is not what a demo made", fix="Give another --out")
    out.mkdir(parents=True, exist_ok=True)
    (out / _LEDGER).unlink(missing_ok=True)  # imaginary people: their budget may start anew
    with progress("demo", 5) as (bar, task):
        data = write_log(out / "log.parquet", "aol", users, seed, force=True)
        bar.advance(task)
        ledger = Ledger.open(out / _LEDGER)
        ledger.open_account(_POPULATION, "add-remove", Budget("ln 10", "1e-6"))
        plan = curate(
            read_log(data),
            epsilon="ln 10",
            delta="1e-6",
            queries_per_user=20,
            clicks_per_user=5,
            reformulations_per_user=5,
            population=_POPULATION,
        )
        release = plan.run(ledger)
        release.save(out / "release", force=(out / "release").exists())
        bar.advance(task)
        try:
            plan.run(ledger)
            refusal = ""
        except BudgetRefused as error:
            refusal = str(error)
        bar.advance(task)
        checked = audit("discrete-laplace", 1)
        bar.advance(task)
        names = release.tables["queries"]["query"].to_pylist()
        leaked = int(which_private(names).sum())
        page = _write_page(out, release, plan.explain(), refusal, checked, ledger, leaked)
        bar.advance(task)
    sizes = {name: table.num_rows for name, table in release.tables.items()}
    text = (
        f"{plan.explain()}\n\nreleased: {', '.join(f'{n:,} {name}' for name, n in sizes.items())}\n"
        f"most searched: {', '.join(names[:8])}\n"
        f"queries of the log's private tail (names, numbers, addresses) that came out: {leaked}\n\n"
        f"A second release was refused: {refusal}\n"
        f"An audit of the noise found epsilon >= {checked.lower_bound:.3f} for a claim of 1: "
        f"{'FLAGGED' if checked.flagged else 'not flagged'}.\n\n"
        f"open {page}"
    )
    summary = {
        "tables": sizes,
        "guarantee": release.guarantees[0].to_json(),
        "private_tail": leaked,
        "refused": refusal,
        "audit": checked.to_json(),
        "page": str(page),
    }
    emit(summary, text, as_json=as_json)


def _write_page(
    out: Path, release: Release, explained: str, refusal: str, checked: AuditResult, ledger: Ledger, leaked: int
) -> Path:
    from html import escape

    from hushquery import plot

    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>hushquery demo</title><style>{_STYLE}</style><h1>What a crowd searches, not what anyone did</h1>",
        f"<p>A private release of {escape(_POPULATION)}, made by <code>hushquery demo</code>. ",
        "The people are imaginary, everything else is real: the noise, the ledger, the refusal. "
        "The release itself, safe to publish, is ",
        "<a href='release/report.html'>release/report.html</a>.</p>",
        "<h2>What people search for</h2>",
        _figure(plot.estimates, _top(release), "Noisy numbers of users with 95% intervals"),
        f"<p>The log also holds a private tail: names, numbers, addresses that one person typed. Of it, {leaked} came "
        "out.</p>",
        f"<h2>Search the release, offline</h2>{_searches(release)}",
        f"<h2>What the plan said before anything ran</h2><pre>{escape(explained)}</pre>",
        f"<h2>What that promises</h2><pre>{escape(release.guarantees[0].in_words())}</pre>",
        _figure(lambda e: plot.two_worlds(e), "ln 10", "The two worlds: which of them did a noisy result come from?"),
        "<h2>What it cost</h2>",
        _figure(plot.ledger_over_time, ledger.over_time(), "Spent epsilon, under the line of the budget"),
        f"<p class=refused><b>A second release was refused.</b> {escape(refusal)}</p>",
        "<h2>Does the noise keep its promise?</h2>",
        f"<p>An audit ran the Laplace mechanism {checked.runs:,} times in each of two worlds "
        f"and looked for an event that tells them apart. The best one proves epsilon &ge; {checked.lower_bound:.3f} "
        f"(confidence {checked.confidence:g}); the claim is 1. A bound above 1 would have flagged it.</p>",
    ]
    page = out / "index.html"
    page.write_text("\n".join(parts), encoding="utf-8")
    return page


def _top(release: Release) -> Any:
    from hushquery.privacy.estimates import Estimate, Estimates

    rows = release.tables["queries"].slice(0, _MOST_SHOWN).to_pylist()
    return Estimates(
        tuple(Estimate(r["query"], float(r["count"]), r["stderr"], r["low"], r["high"]) for r in rows),
        guarantee=release.guarantees[0],
    )


def _searches(release: Release) -> str:
    """Search the release for some of its own queries, one of them misspelt."""
    from html import escape

    from hushquery.publish import SearchIndex

    index = SearchIndex(release)
    queries = release.tables["queries"].slice(0, 4)["query"].to_pylist()
    if not queries:
        return "<p>(nothing was released: give --users a larger number)</p>"
    texts = [*queries[:3], queries[-1][:-2] + queries[-1][-1] if len(queries[-1]) > 4 else queries[-1]]
    rows = []
    for text in texts:
        found = index.search(text, limit=3)
        urls = "<br>".join(escape(hit.url) for hit in found.urls)
        near = ", ".join(escape(hit.query) for hit in found.queries)
        rows.append(f"<tr><td><b>{escape(text)}</b></td><td>{urls}</td><td>{near}</td></tr>")
    return f"<table><tr><th>typed</th><th>pages</th><th>queries</th></tr>{''.join(rows)}</table>"


def _figure(chart: Any, data: Any, caption: str) -> str:
    from html import escape

    from hushquery import plot
    from hushquery.errors import Unavailable

    try:
        return f"<figure>{plot.svg(chart(data))}<figcaption>{escape(caption)}</figcaption></figure>"
    except Unavailable as error:
        return f"<p>(no picture: {escape(error.fix)})</p>"
