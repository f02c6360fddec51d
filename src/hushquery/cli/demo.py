"""``hushquery synth`` makes a synthetic search log; ``hushquery demo`` runs a whole hybrid release on one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hushquery.cli.commands import find_extension, missing_extension
from hushquery.cli.common import JsonFlag, emit, flag, option, progress
from hushquery.errors import BudgetRefused, UsageError

if TYPE_CHECKING:
    from hushquery.auditing.attacks import AuditResult
    from hushquery.core.ledger.ledger import Ledger
    from hushquery.hybrid.simulate import Simulated


_LEDGER = "demo-ledger.db"  # not ledger.db, which is what a real one is called by default: that must never be deleted
_OURS = {_LEDGER, "log.parquet", "release", "index.html", "collector"}
_POPULATION = "the imaginary users of a synthetic log"
_USERS, _SERVED = 100_000, 30_100
_OPTIN = "0.2"
_MOST_SHOWN = 15
_TASK: dict[str, Any] = {
    "task": {"name": "demo", "population": _POPULATION},
    "optin": {"epsilon": 4, "delta": "1e-6"},
    "client": {"epsilon": 4, "lifetime_epsilon": 4},
    "head": {"size": 100},
}


def demo(
    out: Annotated[Path, option("DIR", "Where to put the log, the ledger and the page.")] = Path("demo-output"),
    users: Annotated[
        int | None, option("N", "How many imaginary users: 100,000, with --serve 30,100.", min=100, max=1_000_000)
    ] = None,
    seed: Annotated[int, option("S", "Of the imaginary log; the noise is always the operating system's.")] = 1,
    serve: Annotated[bool, flag("--serve", "Over HTTP, in a clone: a collector, 20,000 clients, live pages.")] = False,
    port: Annotated[int, option("N", "With --serve: where; 0 takes a free port.", min=0, max=65535)] = 8080,
    once: Annotated[bool, flag("--once", "With --serve: stop when the pages are there.")] = False,
    as_json: JsonFlag = False,
) -> None:
    r"""Make a synthetic search log, let a fifth of its users opt in and the others answer for themselves, and blend.

        hushquery demo --out demo-output
        hushquery demo --serve

    Everything is real but the people: the head list, every client's randomised report, the two accounts that refuse a
    second epoch, the audit. It ends in a page to look at, with a search box that works offline.
    """
    if serve:
        serve_demo = find_extension("demo-serve")
        if serve_demo is None:
            raise missing_extension("hushquery demo --serve")
        serve_demo(out, users or _SERVED, seed, port=port, once=once, as_json=as_json)
        return
    from hushquery.auditing.attacks import audit
    from hushquery.core.ledger.ledger import Ledger
    from hushquery.hybrid.simulate import simulate
    from hushquery.log import read_log
    from hushquery.log.synthetic.logs import which_private, write_log
    from hushquery.task import Task

    there = {file.name for file in out.iterdir()} if out.is_dir() else set()
    if (out.exists() and not out.is_dir()) or (there and not ({_LEDGER} <= there <= _OURS)):
        raise UsageError(f"{out} exists and is not what a demo made", fix="Give another --out")
    out.mkdir(parents=True, exist_ok=True)
    (out / _LEDGER).unlink(missing_ok=True)  # imaginary people: their budget may start anew
    task = Task.make(_TASK)
    with progress("demo", 5) as show:
        data = write_log(out / "log.parquet", "aol", users or _USERS, seed, force=True)
        show(more=1)
        ledger = Ledger.open(out / _LEDGER)
        simulated = simulate(read_log(data), task, _OPTIN, ledger)
        simulated.release.save(out / "release", force=(out / "release").exists())
        show(more=1)
        try:
            simulate(read_log(data), task, _OPTIN, ledger, epoch=1)
            refusal = ""
        except BudgetRefused as error:
            refusal = str(error)
        show(more=1)
        checked = audit("krr", 1)
        show(more=1)
        names = simulated.release.tables["queries"]["query"].to_pylist()
        leaked = int(which_private(names).sum())
        page = _write_page(out, simulated, refusal, checked, ledger, leaked)
    release, optin = simulated.release, simulated.head.optin.n
    reports = 0 if simulated.tally is None else simulated.tally.n
    text = (
        f"{optin:,} users opted in: their records gave a head list of {len(simulated.head)}.\n"
        f"{reports:,} others measured it, each with one randomised report.\n"
        f"most searched: {', '.join(names[:8])}\n"
        f"queries of the log's private tail (names, numbers, addresses) that came out: {leaked}\n\n"
        + "".join(f"{guarantee.summary()}\n" for guarantee in release.guarantees)
        + f"\nA second epoch was refused: {refusal}\n"
        f"An audit of randomised response found epsilon >= {checked.lower_bound:.3f} for a claim of 1: "
        f"{'FLAGGED' if checked.flagged else 'not flagged'}.\n\n"
        f"open {page}"
    )
    summary = {
        "tables": {name: table.num_rows for name, table in release.tables.items()},
        "optin_users": optin,
        "reports": reports,
        "guarantees": [guarantee.to_json() for guarantee in release.guarantees],
        "private_tail": leaked,
        "refused": refusal,
        "audit": checked.to_json(),
        "page": str(page),
    }
    emit(summary, text, as_json)


def _write_page(out: Path, made: Simulated, refusal: str, checked: AuditResult, ledger: Ledger, leaked: int) -> Path:
    from hushquery.publish.site.pages import epsilon_text
    from hushquery.release.page import compared, explorer
    from hushquery.templates import Axis, render

    release = made.release
    queries = release.tables["queries"].slice(0, _MOST_SHOWN).to_pylist()
    # All was spent at once, so there is nothing to draw over time.
    spends = {row["account"]: (row["spent_epsilon"], row["budget_epsilon"]) for row in ledger.over_time()}
    page = render(
        "demo.html",
        optin=made.head.optin.n,
        listed=len(made.head),
        reports=0 if made.tally is None else made.tally.n,
        explorer=explorer(release.tables),
        queries=queries,
        axis=Axis.of(queries, "share"),
        level=f"{100 * float(release.manifest['interval_level']):g}",
        manifest=release.manifest,
        leaked=leaked,
        groups=compared(release.tables),
        guarantees=release.guarantees,
        accounts=[
            {
                "name": name,
                "spent": epsilon_text(spent),
                "budget": epsilon_text(budget, up=False),
                "share": min(1.0, spent / budget),
            }
            for name, (spent, budget) in spends.items()
        ],
        refusal=refusal,
        audit=checked,
    )
    (out / "index.html").write_text(page, encoding="utf-8")
    return out / "index.html"


def synth(
    out: Annotated[
        Path,
        option(
            "FILE",
            "Where to. The ending says the kind: .parquet, .csv, .tsv, .jsonl, or .txt for the format of the "
            "profile's own log; all but .parquet also with .gz.",
        ),
    ],
    profile: Annotated[
        str, option("NAME", "aol, yandex (words and URLs are numbers), or tiny (few queries, for trying things).")
    ] = "aol",
    users: Annotated[int, option("N", "How many users; about 35 rows each.")] = 1000,
    seed: Annotated[int, option("S", "The same seed makes the same log.")] = 0,
    force: Annotated[bool, flag("--force", "Replace the file if it exists.")] = False,
    as_json: JsonFlag = False,
) -> None:
    r"""Make a synthetic search log, to try things out on; nobody is in it.

    It has what makes real logs hard: few busy users and many quiet ones, few popular queries and many typed once,
    sessions in which people refine and misspell, several clicks on a search, and a private tail of names, numbers and
    addresses that no release may ever show. Millions of users need disk, not memory.

        hushquery synth --profile tiny --users 500 --out log.csv
        hushquery synth --profile aol --users 65000 --seed 1 --out log.parquet
        hushquery synth --profile yandex --users 10000 --out log.txt.gz
    """
    from hushquery.log.synthetic.logs import write_log

    rows = 0
    with progress("making users", users) as show:

        def tell(users_done: int, rows_done: int) -> None:
            nonlocal rows
            rows = rows_done
            show(done=users_done)

        path = write_log(out, profile, users, seed, tell, force=force)
    emit(
        {"path": str(path), "profile": profile, "users": users, "rows": rows, "seed": seed},
        f"wrote {path}: {rows:,} rows of {users:,} synthetic users (profile {profile}, seed {seed})",
        as_json,
    )
