"""``hushquery serve`` runs a collector; ``hushquery collect`` looks at its store and moves its epochs."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from hushquery.cli.common import (
    JsonFlag,
    argument,
    emit,
    flag,
    group,
    ledger_option,
    option,
    read_texts,
    takes_options,
    writing,
)
from hushquery.cli.status import described, next_list, status, stopped_lines
from hushquery.cli.stores import StoreOption, TaskOption, WhichEpoch, choose_task, open_store
from hushquery.cli.upload import upload
from hushquery.errors import DataError, UsageError

app = group(
    "collect",
    """Look at the store of a collector, and move its epochs by hand.

    All of it works while `hushquery serve` runs, and without it.
    """,
)
_tokens = group("tokens", "Bearer tokens of users who opted in; only their hashes are kept.")
app.add_typer(_tokens)
app.command()(upload)


def serve(
    task: Annotated[
        list[Path] | None,
        option("FILE", "A task file; may be given several times. Without one, a page in the browser makes it."),
    ] = None,
    store: Annotated[
        str, option("URL", "Where reports are kept: a file, or postgresql://USER@HOST/DATABASE.")
    ] = "collector.db",
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Its port; 0 takes one that is free.")] = 8080,
    admin_host: Annotated[str, typer.Option(help="The address of the operator's page and metrics.")] = "127.0.0.1",
    admin_port: Annotated[int, typer.Option(min=-1, max=65535, help="Its port; -1 for none.")] = 8081,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes; more than one needs PostgreSQL.")] = 1,
    ledger: Annotated[str, ledger_option("What head lists are paid from: a file, or postgresql://...", "URL")] = "",
    keys: Annotated[
        Path,
        option(
            "FOLDER", "Where the keys of opt-in records are: one folder for all servers of a store, out of backups."
        ),
    ] = Path("collector-keys"),
    operator_key: Annotated[
        Path | None,
        option("FILE", "Base64 of 32 bytes that wraps those keys; else HUSHQUERY_OPERATOR_KEY, if it is set."),
    ] = None,
    max_store: Annotated[str | None, option("SIZE", 'The size the store may have, such as "500MB".')] = None,
    tick: Annotated[float, typer.Option(min=0, help="Seconds between looks at the clock; 0: never.")] = 5,
    store_seconds: Annotated[
        float, option("SECONDS", "How long an upload waits for the store before it is answered with 503.")
    ] = 6,
    optin_share: Annotated[
        float, option("SHARE", "Which part of a period its opt-in phase takes; all servers alike.")
    ] = 0.25,
    as_json: JsonFlag = False,
) -> None:
    r"""Take reports over HTTP and move epochs from phase to phase, until stopped.

    In an empty folder a page asks what to collect, of whom and how privately, and writes the task file:

        hushquery serve

    A report is acknowledged when it is on the disk. No address, no user agent and no value is logged.

        hushquery task new --kind setting --out task.toml
        hushquery serve --task task.toml

    prints the address to open. For production: a PostgreSQL store, several workers, and TLS in front.

        hushquery serve --task task.toml --store postgresql://collector@db.example.org/reports --workers 4
    """
    from hushquery.collect.collector import Settings
    from hushquery.collect.http.serve import run
    from hushquery.task.model import size

    if not task:
        made = _first_run(store, admin_host, None if admin_port < 0 else admin_port, (host, port), as_json)
        if made is None:
            return
        task = [made]
    settings = Settings(
        tasks=tuple(str(one) for one in task),
        store=store,
        ledger=ledger,
        keys=str(keys),
        most_bytes=None if max_store is None else size(max_store),
        tick_seconds=tick,
        store_seconds=store_seconds,
        optin_share=optin_share,
        operator_key_file=None if operator_key is None else str(operator_key),
    )

    def ready(public: str, admin: str | None) -> None:
        lines = [f"open {public}/", f"collecting at {public}/v1/tasks"]
        if admin is not None:
            lines.append(f"for the operator: {admin}/, metrics at {admin}/metrics")
        emit({"address": public, "admin": admin}, "\n".join(lines), as_json)

    run(
        settings,
        host=host,
        port=port,
        admin_host=admin_host,
        admin_port=None if admin_port < 0 else admin_port,
        workers=workers,
        ready=ready,
    )


def _first_run(store: str, host: str, port: int | None, public: tuple[str, int], as_json: bool) -> Path | None:
    """Let a page make the task file of an empty folder; None if it was stopped before."""
    from hushquery.collect.http.serve import need_packages, run_setup

    need_packages()
    from hushquery.collect.http.setup import check_first_run

    folder = Path.cwd()
    check_first_run(folder, store)

    def ready(address: str) -> None:
        text = (
            f"open {address}\nin your browser, on this machine; it works once. `hushquery task new` does the same here."
        )
        emit({"setup": address}, text, as_json)

    at, on = public
    return run_setup(folder, host=host, port=port, collector=f"http://{at}:{on}/" if on else None, ready=ready)


app.command()(status)
app.command("next")(next_list)


@app.command()
@takes_options
def advance(
    to: Annotated[str, option("PHASE", "head_published, reports_open, closed or released: the phase that follows.")],
    which: WhichEpoch,
    *,
    candidates: Annotated[
        Path | None, option("FILE", "For the release of texts: what to look for, one per line. It becomes public.")
    ] = None,
    ledger: Annotated[str, ledger_option("What head lists are paid from.", "URL")] = "",
    keys: Annotated[Path, option("FOLDER", "The keys of opt-in records.")] = Path("collector-keys"),
    operator_key: Annotated[Path | None, option("FILE", "What wraps those keys.")] = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Move an epoch to its next phase, or finish a move that a crash interrupted.

    Each move is done once, however many ask for it at the same time, and none is undone. An epoch that is in the phase
    already, because a server moved it meanwhile, is left alone: so the phase has to be named.

        hushquery collect advance --to closed
        hushquery collect advance --to released --candidates words.txt
    """
    from hushquery.collect.epochs.clock import Watch, tolerance
    from hushquery.collect.epochs.epochs import EpochWork, registered
    from hushquery.collect.epochs.phases import Phases
    from hushquery.collect.store.vault import Vault, read_operator_key

    with which.open(write=True) as (opened, before):
        vault = Vault(opened, keys, read_operator_key(None if operator_key is None else str(operator_key)))
        watch = Watch(opened, tolerance(task for _, task in registered(opened)))
        phases = Phases(opened, EpochWork(opened, vault, ledger), vault, watch=watch)
        moved = phases.advance(before.task, before.task_row, before.number, to, read_texts(candidates))
    text = f"epoch {moved.number} of {moved.task.task.name}: {moved.phase}"
    if moved.release is not None:
        text += f"; GET /v1/releases/{moved.release}"
    emit({"task": moved.task.id, "epoch": described(moved)}, text, as_json)


@app.command()
def clock(
    yes: Annotated[bool, flag("--confirm", "The time shown is right: let epochs move by it again.")] = False,
    store: StoreOption = "collector.db",
    as_json: JsonFlag = False,
) -> None:
    r"""Show whether epochs move by time, and let them again after the clock jumped or the server was off for long.

    A clock that is wrong would close epochs early and destroy opt-in records. So after a jump, or a stop, of more than
    the tasks' clock_skew nothing moves by time until the operator has confirmed the time. Reports are taken meanwhile.

        hushquery collect clock
        hushquery collect clock --confirm
    """
    import time

    from hushquery.collect.epochs.clock import confirm, format_time, read_clock
    from hushquery.collect.epochs.epochs import EpochWork, registered
    from hushquery.collect.epochs.phases import Phases
    from hushquery.collect.store.vault import Vault

    now = time.time()
    with open_store(store, write=yes) as opened:
        if yes:
            confirm(opened, now)
        with opened.read() as connection:
            state = read_clock(connection)
        vault = Vault(opened, "collector-keys")  # is not asked for any key
        due = Phases(opened, EpochWork(opened, vault, ""), vault).due(dict(registered(opened)))
    newest = "none yet" if state.newest is None else format_time(state.newest)
    lines = [f"now, on this machine:      {format_time(now)}", f"newest time in the store:  {newest}"]
    if state.stopped is None:
        lines.append("epochs move by time")
    else:
        lines += ["no epoch moves by time", *stopped_lines(state.stopped, "  ")]
    ends = [{"task": epoch.task.id, "epoch": epoch.number, "what": what} for epoch, what in due]
    if due:
        lines.append("by this time:" if state.stopped is None else "by this time, once it is confirmed:")
        lines += [f"  epoch {epoch.number} of {epoch.task.task.name} {what}" for epoch, what in due]
    data = {"now": int(now), "newest": state.newest, "stopped": state.stopped, "confirmed": yes, "due": ends}
    emit(data, "\n".join(lines), as_json)


@app.command()
@takes_options
def export(out: Annotated[Path, option("FILE", "Where to; - for standard output.")], which: WhichEpoch) -> None:
    r"""Write the reports of an epoch, a line of base64url each; only before they are counted and scrubbed.

    hushquery collect export --out reports.txt
    """
    from hushquery.collect.store.copies import report_lines

    with which.open() as (opened, epoch):
        lines = report_lines(opened, epoch)
        if str(out) == "-":
            written = sum(sys.stdout.write(f"{line}\n") > 0 for line in lines)
        else:
            with writing(out.name, DataError):
                # For its owner only, from the first byte on.
                handle = os.open(out, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
                with os.fdopen(handle, "w", encoding="ascii") as file:
                    written = sum(file.write(f"{line}\n") > 0 for line in lines)
    typer.echo(f"wrote {written:,} reports", err=True)


@app.command()
@takes_options
def save(
    out: Annotated[Path, option("FOLDER", "The folder to make.")],
    *,
    candidates: Annotated[Path | None, option("FILE", "For a task of texts: what to look for, one per line.")] = None,
    which: WhichEpoch,
    as_json: JsonFlag = False,
) -> None:
    r"""Save what an epoch published as a folder, for every command that reads a release.

    With candidates, texts of a closed epoch are looked for and nothing is published.

        hushquery collect save --out release/
        hushquery collect save --candidates words.txt --out estimate/
    """
    from hushquery.collect.store.copies import published

    with which.open() as (opened, epoch):
        result = published(opened, epoch, read_texts(candidates))
    result.save(out)
    emit({"folder": str(out), "task": epoch.task.id}, f"wrote {out}", as_json)


@app.command()
def backup(
    out: Annotated[Path, argument("FILE", "The file to make.")],
    store: StoreOption = "collector.db",
    as_json: JsonFlag = False,
) -> None:
    r"""Copy the store, while it is in use, into a new SQLite file that a collector can run on.

    Opt-in records and their keys are left out, because they are to vanish.

        hushquery collect backup collector-backup.db
    """
    from hushquery.collect.store.copies import backup as copy

    with open_store(store) as opened:
        rows = copy(opened, out)
    emit({"file": str(out), "rows": rows}, f"wrote {out}: {rows:,} rows", as_json)


@app.command()
def restore(
    backup: Annotated[Path, argument("FILE", "What `collect backup` made, or another SQLite store.")],
    store: Annotated[str, option("URL", "The empty store to fill: a new file, or postgresql://...")],
    as_json: JsonFlag = False,
) -> None:
    r"""Fill an empty store with a backup; also the way from SQLite to PostgreSQL. Stop the collector first.

    Opt-in records are not copied; where an opt-in phase is open, they have to be given anew.

    hushquery collect restore collector-backup.db --store collector.db
    hushquery collect restore collector.db --store postgresql://collector@db.example.org/reports
    """
    from hushquery.collect.store.copies import restore as fill
    from hushquery.collect.store.store import Store

    if not backup.exists():
        raise UsageError(f"there is no {backup.name}", fix="Give the file that `hushquery collect backup` wrote")
    with closing(Store.open(store)) as target:
        rows, anew = fill(backup, target)
    text = f"filled {target.name}: {rows:,} rows"
    if anew:
        text += f"\nopt-in records are not copied: {anew:,} open opt-in phase(s) begin without any"
    emit({"store": target.name, "rows": rows, "without_records": anew}, text, as_json)


@app.command()
def migrate(
    store: StoreOption = "collector.db",
    keep: Annotated[Path | None, option("FILE", "Where the copy goes; by default beside the store.")] = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Convert the tables of an earlier hushquery, after a copy of them as they were. Stop the collector first.

    No other command converts anything. It is done in one transaction, or not at all.

        hushquery collect migrate
    """
    from hushquery.collect.store.copies import convert
    from hushquery.collect.store.schema import SCHEMA

    version, copy = convert(store, keep)
    if copy is None:
        text = f"nothing to do: the tables are of version {SCHEMA}"
    else:
        place = store.removeprefix("sqlite:///")
        back = f"\n  rm -f {place}-wal {place}-shm && cp {copy} {place}"
        if store.startswith("postgres"):
            restore = f"hushquery collect restore {copy} --store postgresql://..."
            back = f" run, with an empty database,\n  {restore}"
        text = (
            f"converted from version {version} to {SCHEMA}; the tables as they were are in {copy}\n"
            f"to go back: stop the collector, install the hushquery that it had, and{back}\n"
            "delete the copy once all is well: it holds what this version erases"
        )
    emit({"from": version, "to": SCHEMA, "copy": None if copy is None else str(copy)}, text, as_json)


@_tokens.command("new")
def new_token(
    task: TaskOption = None,
    note: Annotated[str, typer.Option(help="Whom it is for, in your own words.")] = "",
    shared: Annotated[
        bool, flag("--shared", "For an uploader that gives the records of many users, once each.")
    ] = False,
    store: StoreOption = "collector.db",
    as_json: JsonFlag = False,
) -> None:
    r"""Make a token; it is shown now and never again.

    hushquery collect tokens new --note "reading room"
    """
    from hushquery.collect.store.vault import Tokens

    with open_store(store, write=True) as opened:
        number, chosen = choose_task(opened, task)
        token = Tokens(opened).new(number, note, shared=shared)
    emit({"task": chosen.id, "token": token, "shared": shared}, token, as_json)


@_tokens.command("list")
def list_tokens(store: StoreOption = "collector.db", as_json: JsonFlag = False) -> None:
    r"""List the tokens by name; their secrets are not kept.

    hushquery collect tokens list
    """
    from hushquery.collect.store.vault import Tokens

    with open_store(store) as opened:
        tokens = Tokens(opened).listed()
    lines = [
        f"{token.name}  task {token.task}  {'shared' if token.shared else 'personal':<8}  "
        f"{'revoked' if token.revoked else 'valid':<7}  {token.note}"
        for token in tokens
    ]
    emit({"tokens": [vars(token) for token in tokens]}, "\n".join(lines) or "there are no tokens", as_json)


@_tokens.command("revoke")
def revoke_token(
    name: Annotated[str, argument("NAME", "The name, as `tokens list` shows it.")],
    forget: Annotated[
        bool, flag("--forget", "Also delete what it gave, as long as no head list was made of it.")
    ] = False,
    store: StoreOption = "collector.db",
    as_json: JsonFlag = False,
) -> None:
    r"""Revoke a token; the next request with it is refused.

    hushquery collect tokens revoke 0f1e2d3c4b5a6978
    hushquery collect tokens revoke 0f1e2d3c4b5a6978 --forget    # the user takes back what was given
    """
    from hushquery.collect.store.vault import Tokens

    with open_store(store, write=True) as opened:
        Tokens(opened).revoke(name)
        forgotten = Tokens(opened).forget(name) if forget else None
    text, data = "revoked", {"revoked": name, "deleted": None}
    if forgotten is not None:
        data |= vars(forgotten)
        text += f", and {forgotten.deleted:,} of its uploads deleted"
        if forgotten.busy:
            text += f"; in {forgotten.busy:,} epoch(s) not, a head list is being made there: run this again in a minute"
    emit(data, text, as_json)
