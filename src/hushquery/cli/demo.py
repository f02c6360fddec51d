"""``hushquery demo``: the widest job there is, on a log that it makes itself, ending in a page to look at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushquery.cli import extension
from hushquery.cli.common import JsonFlag, emit, progress
from hushquery.errors import BudgetRefused, UsageError

if TYPE_CHECKING:
    from hushquery.auditing.audit import AuditResult
    from hushquery.hybrid.simulate import Simulated
    from hushquery.privacy.ledger import Ledger
    from hushquery.release import Release

__all__ = ["demo"]

# Not ledger.db, which is what a real one is called by default: that must never be deleted.
_LEDGER = "demo-ledger.db"
_OURS = {_LEDGER, "log.parquet", "release", "index.html", "collector"}
_POPULATION = "the imaginary users of a synthetic log"
_USERS, _SERVED = 100_000, 30_100
_OPTIN = "0.2"
_MOST_SHOWN = 15
_PER = 100_000  # a share is ranked as if so many records had been counted
_TASK: dict[str, Any] = {
    "task": {"name": "demo", "population": _POPULATION},
    "optin": {"epsilon": 4, "delta": "1e-6"},
    "client": {"epsilon": 4, "lifetime_epsilon": 4},
    "head": {"size": 100},
}
_STYLE = """
.refused { border-left: 4px solid var(--alarm); padding-left: 1rem }
"""


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to put the log, the ledger and the page.")] = Path(
        "demo-output"
    ),
    users: Annotated[
        int | None,
        typer.Option(
            min=100, max=1_000_000, metavar="N", help="How many imaginary users: 100,000, with --serve 30,100."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="S", help="Of the imaginary log; the noise is always the operating system's.")
    ] = 1,
    serve: Annotated[
        bool, typer.Option("--serve", help="Over HTTP, in a clone: a collector, 20,000 clients, live pages.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="With --serve: where; 0 takes a free port.")
    ] = 8080,
    once: Annotated[bool, typer.Option("--once", help="With --serve: stop when the pages are there.")] = False,
    as_json: JsonFlag = False,
) -> None:
    r"""Make a synthetic search log, let a fifth of its users opt in and the others answer for themselves, and blend.

        hushquery demo --out demo-output
        hushquery demo --serve

    Everything is real but the people: the head list, every client's randomised report, the two accounts that refuse a
    second epoch, the audit. It ends in a page to look at, with a search box that works offline.
    """
    if serve:
        serve_demo = extension.find("demo-serve")
        if serve_demo is None:
            raise extension.missing("hushquery demo --serve")
        serve_demo(out, users or _SERVED, seed, port=port, once=once, as_json=as_json)
        return
    from hushquery.auditing.audit import audit
    from hushquery.hybrid.simulate import simulate
    from hushquery.log import read_log
    from hushquery.log.synthetic import which_private, write_log
    from hushquery.privacy.ledger import Ledger
    from hushquery.task import Task

    there = {file.name for file in out.iterdir()} if out.is_dir() else set()
    if (out.exists() and not out.is_dir()) or (there and not ({_LEDGER} <= there <= _OURS)):
        raise UsageError(f"{out} exists and is not what a demo made", fix="Give another --out")
    out.mkdir(parents=True, exist_ok=True)
    (out / _LEDGER).unlink(missing_ok=True)  # imaginary people: their budget may start anew
    task = Task.make(_TASK)
    with progress("demo", 5) as (bar, line):
        data = write_log(out / "log.parquet", "aol", users or _USERS, seed, force=True)
        bar.advance(line)
        ledger = Ledger.open(out / _LEDGER)
        made = simulate(read_log(data), task, _OPTIN, ledger)
        made.release.save(out / "release", force=(out / "release").exists())
        bar.advance(line)
        try:
            simulate(read_log(data), task, _OPTIN, ledger, epoch=1)
            refusal = ""
        except BudgetRefused as error:
            refusal = str(error)
        bar.advance(line)
        checked = audit("krr", 1)
        bar.advance(line)
        names = made.release.tables["queries"]["query"].to_pylist()
        leaked = int(which_private(names).sum())
        page = _write_page(out, made, refusal, checked, ledger, leaked)
        bar.advance(line)
    _emit(made, names, leaked, refusal, checked, page, as_json=as_json)


def _emit(
    made: Simulated, names: list[str], leaked: int, refusal: str, checked: AuditResult, page: Path, *, as_json: bool
) -> None:
    optin, reports = made.head.optin.n, 0 if made.tally is None else made.tally.n
    guarantees = made.release.guarantees
    text = (
        f"{optin:,} users opted in: their records gave a head list of {len(made.head)}.\n"
        f"{reports:,} others measured it, each with one randomised report.\n"
        f"most searched: {', '.join(names[:8])}\n"
        f"queries of the log's private tail (names, numbers, addresses) that came out: {leaked}\n\n"
        + "".join(f"{guarantee.summary()}\n" for guarantee in guarantees)
        + f"\nA second epoch was refused: {refusal}\n"
        f"An audit of randomised response found epsilon >= {checked.lower_bound:.3f} for a claim of 1: "
        f"{'FLAGGED' if checked.flagged else 'not flagged'}.\n\n"
        f"open {page}"
    )
    summary = {
        "tables": {name: table.num_rows for name, table in made.release.tables.items()},
        "optin_users": optin,
        "reports": reports,
        "guarantees": [guarantee.to_json() for guarantee in guarantees],
        "private_tail": leaked,
        "refused": refusal,
        "audit": checked.to_json(),
        "page": str(page),
    }
    emit(summary, text, as_json=as_json)


def _write_page(out: Path, made: Simulated, refusal: str, checked: AuditResult, ledger: Ledger, leaked: int) -> Path:
    from html import escape

    from hushquery.release.comparison import compared, comparison
    from hushquery.release.markup import percent
    from hushquery.release.searchbox import script_policy, search_box
    from hushquery.release.style import STYLE

    release, reports = made.release, 0 if made.tally is None else made.tally.n
    rest = percent(release.manifest["parameters"]["rest"])
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; {script_policy()}"
    promises = "".join(
        f"<div class=promise><b>For {escape(g.population)}</b><p>{escape(g.summary())}</p></div>"
        for g in release.guarantees
    )
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        f"<title>hushquery demo</title><style>{STYLE}{_STYLE}</style>",
        "<h1>What a crowd searches, not what anyone did</h1>",
        f"<p>{made.head.optin.n:,} imaginary users gave their searches to a curator, who published a noisy list of "
        f"{len(made.head)} frequent ones. {reports:,} others trusted nobody: each sent one randomised report about "
        "that list. The two estimates were blended. The people are imaginary, everything else is real. The release, "
        "safe to publish, is <a href='release/report.html'>release/report.html</a>.</p>",
        "<h2>Search it, offline</h2>",
        search_box(release.tables, percent, _PER)
        if release.tables["queries"].num_rows
        else "<p>(nothing came out: give more --users)</p>",
        "<h2>What people search for</h2>",
        _top(release),
        f"<p>{rest} of all records are not listed. The log also holds a private tail: names, numbers, addresses that "
        f"one person typed. Of it, {leaked} came out.</p>",
        "<h2>Opt-in users, clients, and the blend of both</h2>",
        comparison(compared(release.tables), "One row for each record. Lines reach two standard errors."),
        f"<p>{escape(release.manifest['notes'][0])}</p>",
        f"<h2>What it promises</h2>{promises}",
        "<h2>What it cost</h2>",
        *_spent(ledger),
        f"<p class=refused><b>A second epoch was refused.</b> {escape(refusal)}</p>",
        "<h2>Does the randomised response keep its promise?</h2>",
        f"<p>An audit ran it {checked.runs:,} times in each of two worlds "
        f"and looked for an event that tells them apart. The best one proves epsilon &ge; {checked.lower_bound:.3f} "
        f"(confidence {checked.confidence:g}); the claim is 1. A bound above 1 would have flagged it.</p>",
    ]
    page = out / "index.html"
    page.write_text("\n".join(parts), encoding="utf-8")
    return page


def _top(release: Release) -> str:
    from hushquery.release.markup import Bar, bars, isolated, percent

    rows = release.tables["queries"].slice(0, _MOST_SHOWN).to_pylist()
    caption = (
        f"Shares of all records, with {100 * float(release.manifest['interval_level']):g}% intervals. The share of a "
        "query is the sum over its records, that is, over the pages chosen and the searches without a click; below, "
        "each record stands alone."
    )
    drawn = [Bar(isolated(row["query"]), row["share"], row["low"], row["high"]) for row in rows]
    return bars(drawn, caption, percent) if drawn else "<p>Nothing was frequent enough to be listed.</p>"


def _spent(ledger: Ledger) -> Iterator[str]:
    """Say what each group has spent of its budget; all was spent at once, so there is nothing to draw over time."""
    from hushquery.publish.site.ledger_chart import epsilon_text
    from hushquery.release.markup import isolated

    for name, row in {row["account"]: row for row in ledger.over_time()}.items():
        spent, budget = float(row["spent_epsilon"]), float(row["budget_epsilon"])
        yield (
            f"<p><b>{isolated(name)}</b><br>Epsilon {epsilon_text(spent)} of {epsilon_text(budget, up=False)} is spent."
            '</p><div class="gauge"><svg aria-hidden="true" height="10"><rect class="bar" '
            f'width="{100 * min(1.0, spent / budget):.2f}%" height="10"/></svg></div>'
        )
