"""``hushquery demo``: the widest job there is, on data that it makes itself, ending in a page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushquery.cli.common import JsonFlag, emit, progress
from hushquery.errors import BudgetRefused, UsageError

if TYPE_CHECKING:
    from hushquery.evaluate.audit import AuditResult
    from hushquery.privacy.estimates import Estimates
    from hushquery.privacy.ledger import Ledger

__all__ = ["demo"]

# Not ledger.db, which is what a real one is called by default: that must never be deleted.
_LEDGER = "demo-ledger.db"
_OURS = {_LEDGER, "visits.csv", "index.html"}
_POPULATION = "readers of an imaginary library"
_STYLE = """
body { font: 16px/1.55 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; color: #1c2733; }
h1 { font-size: 1.9rem } h2 { margin-top: 2.2rem; border-bottom: 1px solid #d8dee4; padding-bottom: .2rem }
pre { background: #f5f7f9; padding: .8rem 1rem; border-radius: 6px; white-space: pre-wrap; font-size: .88rem }
figure { margin: 1rem 0; overflow-x: auto } figcaption { color: #57606a; font-size: .9rem }
.refused { border-left: 4px solid #b3261e; padding-left: 1rem }
"""


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to put the data, the ledger and the page.")] = Path(
        "demo-output"
    ),
    users: Annotated[
        int, typer.Option(min=100, max=1_000_000, metavar="N", help="How many imaginary readers.")
    ] = 20_000,
    seed: Annotated[
        int, typer.Option(metavar="S", help="Of the imaginary data; the noise is always the operating system's.")
    ] = 1,
    as_json: JsonFlag = False,
) -> None:
    r"""Make a table of imaginary library visits, publish private statistics of it, and end in a page to look at.

        hushquery demo --out demo-output

    Everything is real but the data: a ledger that refuses the fourth release, noise from the operating system, an
    audit.
    """
    from hushquery import basic
    from hushquery.evaluate.audit import audit
    from hushquery.evaluate.people import BRANCHES, write_visits
    from hushquery.privacy.budget import Budget
    from hushquery.privacy.ledger import Ledger
    from hushquery.privacy.postprocess import clip

    there = {file.name for file in out.iterdir()} if out.is_dir() else set()
    if (out.exists() and not out.is_dir()) or (there and not ({_LEDGER} <= there <= _OURS)):
        raise UsageError(f"{out} exists and is not what a demo made", fix="Give another --out")
    out.mkdir(parents=True, exist_ok=True)
    (out / _LEDGER).unlink(missing_ok=True)  # imaginary people: their budget may start anew
    with progress("demo", 5) as (bar, task):
        data = write_visits(out / "visits.csv", users, seed)
        bar.advance(task)
        ledger = Ledger.open(out / _LEDGER)
        ledger.open_account(_POPULATION, "add-remove", Budget(1))
        common: dict[str, Any] = {"unit": "user", "population": _POPULATION}
        plans = {
            "How many readers are there?": basic.count(data, epsilon="0.2", **common),
            "How many visited each branch?": basic.histogram(
                data, "branch", BRANCHES, keys_per_unit=3, epsilon="0.4", **common
            ),
            "How old are they on average?": basic.mean(data, "age", lower=0, upper=120, epsilon="0.4", **common),
        }
        results = {question: plan.run(ledger) for question, plan in plans.items()}
        results["How many visited each branch?"] = clip(results["How many visited each branch?"])
        bar.advance(task)
        try:
            basic.total(data, "minutes", lower=0, upper=600, epsilon="0.2", **common).run(ledger)
            refusal = ""
        except BudgetRefused as error:
            refusal = str(error)
        bar.advance(task)
        checked = audit("discrete-laplace", 1)
        bar.advance(task)
        page = _write_page(out, results, refusal, checked, ledger)
        bar.advance(task)
    text = "\n\n".join(f"{question}\n{result}" for question, result in results.items())
    text += (
        f"\n\nA fourth release was refused: {refusal}\n"
        f"An audit of the noise found epsilon >= {checked.lower_bound:.3f} for a claim of 1: "
        f"{'FLAGGED' if checked.flagged else 'not flagged'}.\n\n"
        f"open {page}"
    )
    summary = {
        "results": {question: result.to_json() for question, result in results.items()},
        "refused": refusal,
        "audit": checked.to_json(),
        "page": str(page),
    }
    emit(summary, text, as_json=as_json)


def _write_page(out: Path, results: dict[str, Estimates], refusal: str, checked: AuditResult, ledger: Ledger) -> Path:
    from html import escape

    from hushquery import plot
    from hushquery.privacy.guarantee import Guarantee

    promises = [result.guarantee for result in results.values() if result.guarantee]
    together = Guarantee.of(
        _POPULATION, "curator", promises[0].unit, [step for promise in promises for step in promise.steps]
    )
    words = together.in_words()
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>hushquery demo</title><style>{_STYLE}</style><h1>What a crowd does, not what anyone did</h1>",
        f"<p>Private statistics of {escape(_POPULATION)}, made by <code>hushquery demo</code>. ",
        "The readers are imaginary, everything else is real: the noise, the ledger, the refusal.</p>",
    ]
    for question, result in results.items():
        parts.append(
            f"<h2>{escape(question)}</h2>{_figure(plot.estimates, result, '95% intervals of the noise')}"
            f"<pre>{escape(str(result))}</pre>"
        )
    parts.append(
        f"<h2>What that promises</h2><pre>{escape(words)}</pre>"
        f"{_figure(plot.two_worlds, 1, 'The two worlds: which of them did a noisy result come from?')}"
        "<h2>What it cost</h2>"
        f"{_figure(plot.ledger_over_time, ledger.over_time(), 'Spent epsilon, under the line of the budget')}"
        f"<p class=refused><b>A fourth release was refused.</b> {escape(refusal)}</p>"
        "<h2>Does the noise keep its promise?</h2>"
        f"<p>An audit ran the Laplace mechanism {checked.runs:,} times in each of two worlds "
        f"and looked for an event that tells them apart. The best one proves epsilon &ge; {checked.lower_bound:.3f} "
        f"(confidence {checked.confidence:g}); the claim is 1. A bound above 1 would have flagged it.</p>"
    )
    page = out / "index.html"
    page.write_text("\n".join(parts), encoding="utf-8")
    return page


def _figure(chart: Any, data: Any, caption: str) -> str:
    from html import escape

    from hushquery import plot
    from hushquery.errors import Unavailable

    try:
        return f"<figure>{plot.svg(chart(data))}<figcaption>{escape(caption)}</figcaption></figure>"
    except Unavailable as error:
        return f"<p>(no picture: {escape(error.fix)})</p>"
