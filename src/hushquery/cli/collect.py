"""``hushquery collect``: look at a collector's store and move its epochs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushquery.cli.common import JsonFlag, emit
from hushquery.errors import DataError, UsageError

if TYPE_CHECKING:
    from hushquery.collect.epochs.epochs import Epoch
    from hushquery.collect.store.store import Store
    from hushquery.task import Task

__all__ = ["app"]

_HELP = {"help_option_names": ["-h", "--help"]}

#: The commands of ``hushquery collect``.
app = typer.Typer(
    name="collect",
    no_args_is_help=True,
    context_settings=_HELP,
    help="""Look at the store of a collector, and move its epochs by hand.

    All of it works while `hushquery serve` runs, and without it.
    """,
)
_tokens = typer.Typer(
    name="tokens",
    no_args_is_help=True,
    context_settings=_HELP,
    help="Bearer tokens of users who opted in; only their hashes are kept.",
)
app.add_typer(_tokens)

StoreOption = Annotated[str, typer.Option(metavar="URL", help="The collector's store: a file, or postgresql://...")]
TaskOption = Annotated[
    str | None,
    typer.Option(metavar="ID", help="The beginning of the task's id, or its name; not needed if there is one task."),
]
EpochOption = Annotated[
    int | None, typer.Option(metavar="NUMBER", help="Which epoch; by default the latest.", show_default=False)
]


@contextmanager
def _opened(url: str, *, write: bool = False) -> Iterator[Store]:
    from hushquery.collect.store.store import Store

    store = Store.open(url, create=False, write=write)
    try:
        yield store
    finally:
        store.close()


def _chosen(store: Store, wanted: str | None) -> tuple[int, Task]:
    """Find the task that is meant."""
    from hushquery.collect.epochs.epochs import registered

    tasks = registered(store)
    found = [one for one in tasks if wanted is None or one[1].id.startswith(wanted) or one[1].task.name == wanted]
    if len(found) != 1:
        which = "; ".join(f"{task.id[:12]} ({task.task.name})" for _, task in tasks)
        raise UsageError(
            "it is not clear which task is meant" if found or wanted is None else "there is no such task",
            why=f"the store has: {which}" if which else "the store has no task yet",
            fix="Give --task with the beginning of an id",
        )
    return found[0]


def _epoch(store: Store, task: Task, number: int, wanted: int | None) -> Epoch:
    from hushquery.collect.epochs.epochs import epochs_of

    found = [one for one in epochs_of(store, task, number) if wanted in (None, one.number)]
    if not found:
        raise UsageError("the task has no such epoch", fix="`hushquery collect status` lists them")
    return found[-1]


@app.command()
def status(store: StoreOption = "collector.db", as_json: JsonFlag = False) -> None:
    r"""Say which tasks there are, where their epochs stand, and how uploads ended.

    hushquery collect status
    """
    from hushquery.collect.epochs.clock import read_clock
    from hushquery.collect.epochs.epochs import epochs_of, registered
    from hushquery.collect.store.reports import counts

    with _opened(store) as opened:
        counted = counts(opened)
        tasks = []
        for number, task in registered(opened):
            uploads = {reason: count for (of_task, reason), count in sorted(counted.items()) if of_task == number}
            epochs = [_described(epoch) for epoch in epochs_of(opened, task, number)]
            tasks.append({"id": task.id, "name": task.task.name, "uploads": uploads, "epochs": epochs})
        with opened.read() as connection:
            stopped = read_clock(connection).stopped
        data = {
            "store": opened.name,
            "bytes": opened.size(),
            "clock_stopped": stopped,
            "log": opened.log_settings(),
            "tasks": tasks,
        }
    emit(data, "\n".join(_lines(data)), as_json=as_json)


def _described(epoch: Epoch) -> dict[str, Any]:
    return {
        "number": epoch.number,
        "phase": epoch.phase,
        "moving": epoch.moving,
        "since": epoch.since,
        "reports": epoch.reports,
        "checksum": None if epoch.checksum is None else epoch.checksum.hex(),
        "counts": epoch.counts,
        "release": epoch.release,
        "trouble": epoch.trouble,
    }


def _lines(data: dict[str, Any]) -> Iterator[str]:
    yield f"{data['store']}: {data['bytes']:,} bytes"
    if data["log"] is not None:
        settings = ", ".join(f"{name} {value}" for name, value in data["log"].items())
        yield f"PostgreSQL's log may keep reports that were erased, for as long as it keeps its files: {settings}"
    if data["clock_stopped"] is not None:
        told = data["clock_stopped"]
        yield "\nno epoch moves by time"
        yield from (f"  {told[part]}" for part in ("what", "why", "fix"))
    for task in data["tasks"]:
        yield f"\n{task['name']}  {task['id']}"
        for epoch in task["epochs"]:
            more = "" if epoch["reports"] is None else f", {epoch['reports']:,} reports counted"
            more += "" if epoch["moving"] is None else f", {epoch['moving']} has begun"
            more += "" if epoch["release"] is None else f", release {epoch['release'][:12]}"
            yield f"  epoch {epoch['number']}: {epoch['phase']}{more}"
            if epoch["trouble"] is not None:
                told = epoch["trouble"]
                yield from (f"    {told[part]}" for part in ("what", "why", "fix") if told[part])
        for reason, number in task["uploads"].items():
            yield f"  {reason:<20} {number:>12,}"


@app.command()
def advance(
    to: Annotated[
        str,
        typer.Option(
            metavar="PHASE",
            help="head_published, reports_open, closed or released: the phase that follows.",
            show_default=False,
        ),
    ],
    task: TaskOption = None,
    epoch: EpochOption = None,
    store: StoreOption = "collector.db",
    ledger: Annotated[str, typer.Option(metavar="URL", help="What head lists are paid from.")] = "ledger.db",
    keys: Annotated[Path, typer.Option(metavar="FOLDER", help="The keys of opt-in records.")] = Path("collector-keys"),
    operator_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What wraps those keys.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Move an epoch to its next phase, or finish a move that a crash interrupted.

    Each move is done once, however many ask for it at the same time, and none is undone. An epoch that is in the phase
    already, because a server moved it meanwhile, is left alone: so the phase has to be named.

        hushquery collect advance --to closed
    """
    from hushquery.collect.epochs.clock import Watch, tolerance
    from hushquery.collect.epochs.epochs import registered
    from hushquery.collect.epochs.phases import Phases
    from hushquery.collect.epochs.work import EpochWork
    from hushquery.collect.store.vault import Vault, read_operator_key

    with _opened(store, write=True) as opened:
        number, chosen = _chosen(opened, task)
        before = _epoch(opened, chosen, number, epoch)
        vault = Vault(opened, keys, read_operator_key(None if operator_key is None else str(operator_key)))
        watch = Watch(opened, tolerance(task for _, task in registered(opened)))
        phases = Phases(opened, EpochWork(opened, vault, ledger), vault, watch=watch)
        moved = phases.advance(chosen, number, before.number, to)
    text = f"epoch {moved.number} of {chosen.task.name}: {moved.phase}"
    if moved.release is not None:
        text += f"; GET /v1/releases/{moved.release}"
    emit({"task": chosen.id, "epoch": _described(moved)}, text, as_json=as_json)


@app.command()
def clock(
    yes: Annotated[
        bool, typer.Option("--confirm", help="The time shown is right: let epochs move by it again.")
    ] = False,
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
    from hushquery.collect.epochs.epochs import registered
    from hushquery.collect.epochs.phases import Phases
    from hushquery.collect.epochs.work import EpochWork
    from hushquery.collect.store.vault import Vault

    now = time.time()
    with _opened(store, write=yes) as opened:
        if yes:
            confirm(opened, now)
        with opened.read() as connection:
            state = read_clock(connection)
        vault = Vault(opened, "collector-keys")  # is not asked for any key
        due = Phases(opened, EpochWork(opened, vault, "ledger.db"), vault).due(dict(registered(opened)))
    newest = "none yet" if state.newest is None else format_time(state.newest)
    lines = [f"now, on this machine:      {format_time(now)}", f"newest time in the store:  {newest}"]
    if state.stopped is None:
        lines.append("epochs move by time")
    else:
        lines += ["no epoch moves by time", *(f"  {state.stopped[part]}" for part in ("what", "why", "fix"))]
    ends = [{"task": epoch.task.id, "epoch": epoch.number, "what": what} for epoch, what in due]
    if due:
        lines.append("by this time:" if state.stopped is None else "by this time, once it is confirmed:")
        lines += [f"  epoch {epoch.number} of {epoch.task.task.name} {what}" for epoch, what in due]
    data = {"now": int(now), "newest": state.newest, "stopped": state.stopped, "confirmed": yes, "due": ends}
    emit(data, "\n".join(lines), as_json=as_json)


@app.command()
def export(
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to; - for standard output.", show_default=False)],
    task: TaskOption = None,
    epoch: EpochOption = None,
    store: StoreOption = "collector.db",
) -> None:
    r"""Write the reports of an epoch, a line of base64url each; only before they are counted and scrubbed.

    hushquery collect export --out reports.txt
    """
    from hushquery.collect.store.copies import report_lines

    with _opened(store) as opened:
        number, chosen = _chosen(opened, task)
        lines = report_lines(opened, _epoch(opened, chosen, number, epoch))
        if str(out) == "-":
            written = sum(sys.stdout.write(f"{line}\n") > 0 for line in lines)
        else:
            try:
                # For its owner only, from the first byte on.
                handle = os.open(out, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
                with os.fdopen(handle, "w", encoding="ascii") as file:
                    written = sum(file.write(f"{line}\n") > 0 for line in lines)
            except FileExistsError:
                raise UsageError(f"{out.name} exists already", fix="Choose another --out") from None
            except OSError as error:
                raise DataError(f"{out.name} can't be written", why=error.strerror or "") from None
    typer.secho(f"wrote {written:,} reports", err=True)


@app.command()
def save(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to make.", show_default=False)],
    candidates: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="For a task of texts: what to look for, one per line.", show_default=False),
    ] = None,
    task: TaskOption = None,
    epoch: EpochOption = None,
    store: StoreOption = "collector.db",
    as_json: JsonFlag = False,
) -> None:
    r"""Write what an epoch published into a folder, for every command that reads a release or an estimate.

    A task of texts publishes nothing by itself: name candidates once it is closed.

        hushquery collect save --out release/
        hushquery collect save --candidates words.txt --out estimate/
    """
    from hushquery.collect.store.copies import published

    with _opened(store) as opened:
        number, chosen = _chosen(opened, task)
        texts = None
        if candidates is not None:
            from hushquery.local.rappor.files import read_lines

            texts = [line for line in read_lines(candidates) if line]
        made = published(opened, _epoch(opened, chosen, number, epoch), texts)
    made.save(out)
    emit({"folder": str(out), "task": chosen.id}, f"wrote {out}", as_json=as_json)


@app.command()
def backup(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="The file to make.")],
    store: StoreOption = "collector.db",
    as_json: JsonFlag = False,
) -> None:
    r"""Copy the store, while it is in use, into a new SQLite file that a collector can run on.

    Opt-in records and their keys are left out, because they are to vanish.

        hushquery collect backup collector-backup.db
    """
    from hushquery.collect.store.copies import backup as copy

    with _opened(store) as opened:
        rows = copy(opened, out)
    emit({"file": str(out), "rows": rows}, f"wrote {out}: {rows:,} rows", as_json=as_json)


@app.command()
def restore(
    backup: Annotated[
        Path, typer.Argument(metavar="FILE", help="What `collect backup` made, or another SQLite store.")
    ],
    store: Annotated[str, typer.Option(metavar="URL", help="The empty store to fill: a new file, or postgresql://...")],
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
    target = Store.open(store)
    try:
        rows, anew = fill(backup, target)
    finally:
        target.close()
    text = f"filled {target.name}: {rows:,} rows"
    if anew:
        text += f"\nopt-in records are not copied: {anew:,} open opt-in phase(s) begin without any"
    emit({"store": target.name, "rows": rows, "without_records": anew}, text, as_json=as_json)


@app.command()
def migrate(
    store: StoreOption = "collector.db",
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where the copy goes; by default beside the store.", show_default=False),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    r"""Convert the tables of an earlier hushquery, after a copy of them as they were. Stop the collector first.

    No other command converts anything. It is done in one transaction, or not at all.

        hushquery collect migrate
    """
    from hushquery.collect.store.copies import convert
    from hushquery.collect.store.schema import SCHEMA

    found, copy = convert(store, keep)
    if copy is None:
        text = f"nothing to do: the tables are of version {SCHEMA}"
    else:
        text = (
            f"converted from version {found} to {SCHEMA}; the tables as they were are in {copy}\n"
            f"{_way_back(store, copy)}\n"
            "delete the copy once all is well: it holds what this version erases"
        )
    emit({"from": found, "to": SCHEMA, "copy": None if copy is None else str(copy)}, text, as_json=as_json)


def _way_back(store: str, copy: Path) -> str:
    if store.startswith("postgres"):
        return (
            "to go back: stop the collector, install the hushquery that it had, and run, with an empty database,\n"
            f"  hushquery collect restore {copy} --store postgresql://..."
        )
    place = store.removeprefix("sqlite:///")
    return (
        "to go back: stop the collector, install the hushquery that it had, and\n"
        f"  rm -f {place}-wal {place}-shm && cp {copy} {place}"
    )


@_tokens.command("new")
def new_token(
    task: TaskOption = None,
    note: Annotated[str, typer.Option(help="Whom it is for, in your own words.")] = "",
    shared: Annotated[
        bool, typer.Option("--shared", help="For an uploader that gives the records of many users, once each.")
    ] = False,
    store: StoreOption = "collector.db",
    as_json: JsonFlag = False,
) -> None:
    r"""Make a token; it is shown now and never again.

    hushquery collect tokens new --note "reading room"
    """
    from hushquery.collect.store.vault import Tokens

    with _opened(store, write=True) as opened:
        number, chosen = _chosen(opened, task)
        token = Tokens(opened).new(number, note, shared=shared)
    emit({"task": chosen.id, "token": token, "shared": shared}, token, as_json=as_json)


@_tokens.command("list")
def list_tokens(store: StoreOption = "collector.db", as_json: JsonFlag = False) -> None:
    r"""List the tokens by name; their secrets are not kept.

    hushquery collect tokens list
    """
    from hushquery.collect.store.vault import Tokens

    with _opened(store) as opened:
        found = Tokens(opened).listed()
    data = [{**vars(token)} for token in found]
    lines = [
        f"{token.name}  task {token.task}  {'shared' if token.shared else 'personal':<8}  "
        f"{'revoked' if token.revoked else 'valid':<7}  {token.note}"
        for token in found
    ]
    emit({"tokens": data}, "\n".join(lines) or "there are no tokens", as_json=as_json)


@_tokens.command("revoke")
def revoke_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name, as `tokens list` shows it.")],
    forget: Annotated[
        bool, typer.Option("--forget", help="Also delete what it gave, as long as no head list was made of it.")
    ] = False,
    store: StoreOption = "collector.db",
    as_json: JsonFlag = False,
) -> None:
    r"""Revoke a token; the next request with it is refused.

    hushquery collect tokens revoke 0f1e2d3c4b5a6978
    hushquery collect tokens revoke 0f1e2d3c4b5a6978 --forget    # the user takes back what was given
    """
    from hushquery.collect.store.vault import Tokens

    with _opened(store, write=True) as opened:
        Tokens(opened).revoke(name)
        forgotten = Tokens(opened).forget(name) if forget else None
    text, data = "revoked", {"revoked": name, "deleted": None}
    if forgotten is not None:
        data |= vars(forgotten)
        text += f", and {forgotten.deleted:,} of its uploads deleted"
        if forgotten.busy:
            text += f"; in {forgotten.busy:,} epoch(s) not, a head list is being made there: run this again in a minute"
    emit(data, text, as_json=as_json)
