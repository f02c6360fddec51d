"""The three flows of ARCHITECTURE.md, run as a user runs them, with every function they call written down."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import socket
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import uvicorn

import hushquery
from collect.helpers import Clock, settings_for
from hushquery import Budget, Client, Release, SearchIndex, Sender, Task, estimate, plan_head, read_log, statistics
from hushquery import blend as blend_both
from hushquery.collect.http.app import make_app
from hushquery.core.estimates import ratio

ROOT = f"{Path(hushquery.__file__).parent}/"

TASK = """
[task]
name = "queries"
population = "app users"
kind = "searches"
[optin]
epsilon = 4
delta = "1e-6"
[client]
epsilon = 4
lifetime_epsilon = 4
[head]
size = 5
[collect]
min_batch = 20
"""

SETTING = """
[task]
name = "theme"
population = "app users"
kind = "setting"
domain = ["dark", "light", "system"]
[client]
epsilon = 2
lifetime_epsilon = 2
[collect]
min_batch = 20
"""


def trace(flow: Callable[[Path], None], folder: Path) -> set[tuple[str, str]]:
    """Run a flow and return every function of the package that it executed, with its file.

    Everything is imported first: what a file does when it is imported is not part of a flow.
    """
    for module in pkgutil.walk_packages(hushquery.__path__, "hushquery."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    seen: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        # Bodies of modules and classes are not optimized; bodies of functions are.
        path = code.co_filename
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and path.startswith(ROOT) and path.endswith(".py"):
            name = code.co_qualname.replace(".<locals>", "").split(".<")[0]
            seen.add((path.removeprefix(ROOT), name))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        flow(folder)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # typeshed forgets None
    return seen


def command(*words: object) -> None:
    """Run a command of hushquery in this process."""
    from hushquery.cli.app import app

    with pytest.raises(SystemExit) as end:
        app([str(word) for word in words])
    assert not end.value.code


def search_rows(users: range) -> dict[str, list[str]]:
    """Return a log in which everybody asks for the same two things."""
    searches = (("weather", "https://w.example", "2026-01-01 10:00:00"), ("news", "", "2026-01-01 10:00:10"))
    rows = [(f"u{user}", *search) for user in users for search in searches]
    return {name: [row[at] for row in rows] for at, name in enumerate(("user", "query", "url", "time"))}


def release(folder: Path, *more: object) -> None:
    """A log becomes a folder with a page."""
    log, rows = folder / "log.csv", search_rows(range(400))
    lines = [",".join(row) for row in zip(*rows.values(), strict=True)]
    log.write_text("\n".join([",".join(rows), *lines]) + "\n", encoding="utf-8")
    command(
        "release", log, "--epsilon", 4, "--delta", "1e-6", "--queries-per-user", 2,
        "--population", "app users", "--ledger", folder / "ledger.db", "--out", folder / "release", *more,
    )  # fmt: skip
    assert (folder / "release" / "report.html").exists()


def report(folder: Path, to: str = "closed") -> None:
    """Clients answer a question over HTTP, and when the epoch is closed their reports become shares."""
    clock, task = Clock(), Task.loads(SETTING)
    app = make_app(settings_for(f"sqlite:///{folder}/store.db", folder, SETTING), clock=clock, steady=clock.steady)
    with serving(app) as address:
        for user in range(40):
            device = Client(task, folder / "devices.db", f"device {user}", clock=clock)
            device.report("dark")
            with Sender(address, clock=clock) as sender:
                assert [one.status for one in sender.send(device)] == [201]
        assert app.state.collector.phases.advance(task, 1, 0, "closed").reports == 40
        if to == "released":
            app.state.collector.phases.advance(task, 1, 0, to)
            with urllib.request.urlopen(f"{address}/sites/{task.id}/") as page:  # noqa: S310 -- ours
                assert page.status == 200


def shown(folder: Path) -> None:
    """What clients reported is released, and its page is asked for."""
    report(folder, "released")


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an application from a thread of this process, where its functions are seen."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def blend(folder: Path) -> None:
    """Opt-in records become a head list, clients answer about it, and both become one release."""
    task = Task.loads(TASK)
    head = plan_head(read_log(search_rows(range(400))), task).run(folder / "ledger.db")
    reports = folder / "reports.txt"
    with reports.open("w", encoding="utf-8") as file:
        for user in range(40):
            device = Client(task, folder / "devices.db", f"device {user}", head=head)
            file.write(device.report("weather", "https://w.example").to_text() + "\n")
    estimated = estimate(task, reports, head=head)
    blend_both(head, estimated).save(folder / "blended")
    assert (folder / "blended" / "report.html").exists()


def used(folder: Path) -> None:
    """A release with everything in it is made, verified, loaded and searched."""
    release(folder, "--clicks-per-user", 2, "--reformulations-per-user", 1)
    command("verify", folder / "release")
    assert SearchIndex(Release.load(folder / "release")).search("weather")


def statistic(folder: Path) -> None:
    """A table becomes noisy counts of known values, and two of them a ratio."""
    plan = statistics.plan_histogram(
        search_rows(range(30)), "query", keys=["weather", "news"], unit="user", budget=Budget(3), population="app users"
    )
    ratio(plan.run(folder / "ledger.db"), "weather", "news")


#: Each flow, with the most files that it may pass.
FLOWS = {release: 28, report: 26, blend: 40}
#: What runs what each drawing of ARCHITECTURE.md shows.
DRAWN = {
    "The flow of a release": (used,),
    "The flow of a collection, and of the hybrid": (report, shown, blend),
    "The flow of a private statistic": (statistic,),
}


def main() -> None:
    """Print the files of each flow and what was executed in them."""
    for flow, most in FLOWS.items():
        with tempfile.TemporaryDirectory() as made:
            executed: dict[str, list[str]] = {}
            for file, function in sorted(trace(flow, Path(made))):
                executed.setdefault(file, []).append(function)
        sys.stdout.write(f"{flow.__name__}: {len(executed)} files, at most {most}\n")
        for file, functions in executed.items():
            sys.stdout.write(f"  {file:38} {', '.join(functions)}\n")


if __name__ == "__main__":
    main()
