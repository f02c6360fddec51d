"""``hushquery demo --serve``: a whole epoch over HTTP, with a real collector, real clients and live pages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hushquery.cli.common import emit, progress
from hushquery.errors import DataError, Unavailable, UsageError
from hushquery_experiments.demo.crowd import browse, find_browsers, give_all, people_of, send_all

if TYPE_CHECKING:
    from hushquery.collect.epochs.epochs import Epoch

__all__ = ["FOLDER", "serve_demo"]

#: The folder of this demo, inside the one that the demo is given.
FOLDER = "collector"

_LEDGER = "demo-ledger.db"
_BROWSERS = 20
_MOST_SHOWN = 8
_TASK = """[task]
name = "demo"
population = "the imaginary users of a synthetic log"

[optin]
epsilon = 4
delta = "1e-6"

[client]
epsilon = 4
lifetime_epsilon = 4

[head]
size = 100

[collect]
min_batch = 500
"""


def serve_demo(
    out: Path,
    users: int,
    seed: int,
    *,
    port: int = 8080,
    once: bool = False,
    as_json: bool = False,
    profile: str = "aol",
) -> None:
    """Run a collector through a whole epoch, then leave it running with its pages.

    Args:
        out: Where the demo's folder is made.
        users: How many imaginary people; a third opts in, the others are clients.
        seed: Of the imaginary log; all noise is the operating system's.
        port: Where to serve; 0 for any port that is free.
        once: Stop when the pages are there.
        as_json: Print JSON.
        profile: What the imaginary log is like; ``tiny`` for tests.
    """
    from hushquery.collect.http.serve import need_packages
    from hushquery.log.synthetic.logs import write_log

    need_packages()
    folder = _fresh(out / FOLDER)
    (folder / "task.toml").write_text(_TASK, encoding="utf-8")
    seconds: dict[str, float] = {}
    with progress("a log of imaginary people", 1), _timed(seconds, "log"):
        people = people_of(write_log(folder / "log.parquet", profile, users, seed), seed)
    with _server(folder, port) as (process, address):
        summary = _run_epoch(folder, address, people, seconds)
        emit(summary, _in_words(summary), as_json=as_json)
        if not once:
            typer.echo("press Ctrl-C to stop", err=True)
            try:
                process.wait()
            except KeyboardInterrupt:
                typer.echo(err=True)


def _fresh(folder: Path) -> Path:
    """Make the folder anew; only one that an earlier demo made is deleted."""
    if folder.exists():
        if not (folder / _LEDGER).is_file() and any(folder.iterdir()):
            raise UsageError(f"{folder} exists and is not what a demo made", fix="Give another --out")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / "states").mkdir(mode=0o700)
    return folder


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    seconds[name] = round(time.monotonic() - began, 1)


@contextmanager
def _server(folder: Path, port: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `hushquery serve` as it is run by an operator; epochs are moved by hand here, not by time."""
    options = ["--task", "task.toml", "--ledger", _LEDGER, "--port", str(port), "--admin-port", "0", "--tick", "0"]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(  # noqa: S603 -- this very program
            [sys.executable, "-m", "hushquery", "serve", *options, "--json"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None  # noqa: S101 -- for the type checker
    text = ""
    try:
        while not text.rstrip().endswith("}"):
            line = process.stdout.readline()
            if not line:
                why = (folder / "server.log").read_text("utf-8").strip().splitlines()
                raise Unavailable("the collector did not start", why="".join(why[-1:]), fix="Try another --port")
            text += line
        address = str(json.loads(text)["address"])
        _wait_until(lambda: _get(f"{address}/v1/tasks") is not None)
        yield process, address
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def _run_epoch(folder: Path, address: str, people: list[Any], seconds: dict[str, float]) -> dict[str, Any]:
    from hushquery.collect.epochs.epochs import CLOSED, HEAD_PUBLISHED, RELEASED, REPORTS_OPEN, EpochWork, registered
    from hushquery.collect.epochs.phases import Phases
    from hushquery.collect.store.store import Store
    from hushquery.collect.store.vault import Tokens, Vault
    from hushquery.log.synthetic.logs import which_private

    store = Store.open(folder / "collector.db", create=False)
    ((number, task),) = registered(store)
    vault = Vault(store, folder / "collector-keys")
    phases = Phases(store, EpochWork(store, vault, str(folder / _LEDGER)), vault)

    def move(*to: str) -> Epoch:
        return [phases.advance(task, number, 0, phase) for phase in to][-1]

    optin, clients = people[: len(people) // 3], people[len(people) // 3 :]
    browsers = find_browsers()
    in_browsers = [] if isinstance(browsers, str) else clients[:_BROWSERS]
    others = clients[len(in_browsers) :]
    with progress("opt-in records", len(optin)) as show, _timed(seconds, "opt-in uploads"):
        token = Tokens(store).new(number, "the demo", shared=True)
        given = give_all(address, task.id, token, optin, lambda sent: show(more=sent))
    with progress("head list"), _timed(seconds, "head list"):
        if move(HEAD_PUBLISHED).phase != HEAD_PUBLISHED:
            raise UsageError("too few opted in for a head list", fix="Give more --users, say 30000")
        head = move(REPORTS_OPEN).head or ()
        _wait_until(lambda: _takes_reports(f"{address}/v1/tasks/{task.id}"))
    with progress("clients", len(others)) as show, _timed(seconds, "Python clients"):
        states = folder / "states"
        python = send_all(address, folder / "task.toml", head, others, states, lambda sent: show(more=sent))
    with progress("browsers"), _timed(seconds, "Chromium clients"):
        chromium = 0 if isinstance(browsers, str) else browse(browsers, address, task.id, in_browsers)
    with progress("closing and blending"), _timed(seconds, "close and release"):
        epoch = move(CLOSED, RELEASED)
    store.close()
    if not python + chromium == epoch.reports == len(clients):
        raise DataError("the collector did not count what it has acknowledged", fix="Report this as a defect")
    with progress("pages"), _timed(seconds, "pages"):
        site = f"{address}/sites/{task.id}/"
        _wait_until(lambda: b"Nothing has been published yet" not in (_get(site) or b"Nothing has been published yet"))
    release = json.loads(_get(f"{address}/v1/releases/{epoch.release}") or b"{}")
    names = release["tables"]["queries"]["query"]
    return {
        "address": f"{address}/",
        "pages": [f"{site}{name}" for name in ("index.html", "search.html", "privacy.html")],
        "optin_uploads": given,
        "head_list": len(head),
        "python_clients": python,
        "chromium_clients": chromium,
        "note": browsers if isinstance(browsers, str) else "",
        "reports": epoch.reports,
        "release": epoch.release,
        "guarantees": release["guarantees"],
        "most_searched": names[:_MOST_SHOWN],
        "private_tail": int(which_private(names).sum()),
        "seconds": seconds,
    }


def _in_words(told: dict[str, Any]) -> str:
    times = ", ".join(f"{name} {took:g} s" for name, took in told["seconds"].items())
    promises = "".join(
        f"  {one['population']}: epsilon {one['epsilon']:.4g}, delta {one['delta']:.3g} ({one['relation']})\n"
        for one in told["guarantees"]
    )
    return (
        f"{told['optin_uploads']:,} people opted in and uploaded a record each: a head list of {told['head_list']}.\n"
        f"{told['python_clients']:,} others reported through the Python client, {told['chromium_clients']} through the "
        f"JavaScript client in Chromium{'. ' + told['note'] if told['note'] else ''}.\n"
        f"Every one of the {told['reports']:,} reports was acknowledged and counted once.\n"
        f"most searched: {', '.join(told['most_searched'])}\n"
        f"queries of the log's private tail that came out: {told['private_tail']}\n{promises}"
        f"({times})\n\nopen {told['address']}"
    )


def _get(address: str) -> bytes | None:
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 -- our own server
            return bytes(answer.read())
    except OSError:
        return None


def _takes_reports(address: str) -> bool:
    return bool(json.loads(_get(address) or b"{}").get("epoch", {}).get("takes_reports"))


def _wait_until(there: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not there():
        if time.monotonic() > end:
            raise Unavailable("the collector does not answer", fix="See server.log in the demo's folder")
        time.sleep(0.1)
