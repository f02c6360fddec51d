"""The people of ``hushquery demo --serve``: imaginary, but what they send goes over real sockets.

Some opt in and upload their record with a token; the others are clients: thousands of the Python client, in a few
processes, and a few of the JavaScript client in a real Chromium.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hushquery.errors import HushqueryError, Unavailable

__all__ = ["Browsers", "Person", "browse", "find_browsers", "give_all", "people_of", "send_all"]

#: A person of the log, and the (query, URL) record that counts for them.
Person = tuple[str, str, str]

_THREADS = 8
# More than there are cores: each client's answer waits for the disk.
_PROCESSES = 8
_BINARIES = (
    os.environ.get("CHROMIUM", ""),
    "/usr/lib/chromium/chromium",
    "chromium",
    "chromium-browser",
    "google-chrome",
)
_SECONDS = 180

_SCRIPT = """
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
const { modules, binary, address, task, people } = JSON.parse(readFileSync(0, "utf8"));
const { chromium } = createRequire(modules + "/")("playwright-core");
const args = ["--headless=new", "--no-sandbox", "--disable-quic"];
const browser = await chromium.launch({ executablePath: binary, args });
let stored = 0;
for (const [, query, url] of people) {
  const context = await browser.newContext();  // a device of its own, with a memory of its own
  const page = await context.newPage();
  await page.goto(`${address}/sites/${task}/`);
  stored += await page.evaluate(async ({ task, query, url }) => {
    const { Client, fetchTask, send } = await import("./client.mjs");
    const client = new Client(await fetchTask(location.origin, task));
    await client.report(query, url);
    return (await send(client, location.origin)).filter((one) => one.outcome === "stored").length;
  }, { task, query, url });
  await context.close();
}
await browser.close();
console.log(stored);
"""


def people_of(log: Path, seed: int) -> list[Person]:
    """Return everybody in a synthetic log with one of their records, chosen evenly by a hash."""
    import hashlib

    import pyarrow.parquet as pq

    table = pq.read_table(log, columns=["user", "query", "url"])
    own: dict[str, list[tuple[str, str]]] = {}
    for user, query, url in zip(*(table[name].to_pylist() for name in ("user", "query", "url")), strict=True):
        own.setdefault(user, []).append((query, url or ""))
    chosen = []
    for user, records in own.items():
        drawn = hashlib.sha256(f"{seed}/{user}".encode()).digest()
        chosen.append((int.from_bytes(drawn[8:]), user, records[int.from_bytes(drawn[:8]) % len(records)]))
    return [(user, *record) for _, user, record in sorted(chosen)]


# ---- those who opted in ------------------------------------------------------------------------------------


def give_all(address: str, task: str, token: str, people: Sequence[Person], told: Callable[[int], None]) -> int:
    """Upload the records of those who opted in, each acknowledged; gives how many."""
    from hushquery.cli.upload import Uploader, records_body
    from hushquery.collect.http.ingest import write_id

    uploads = [(write_id(os.urandom(16)), records_body([person[1:]])) for person in people]
    outcomes = []
    with closing(Uploader(address, task, token)) as uploader, ThreadPoolExecutor(_THREADS) as pool:
        for outcome in pool.map(uploader.give, uploads):
            outcomes.append(outcome)
            told(1)
    if outcomes.count("accepted") != len(people):
        raise Unavailable("the collector did not take all opt-in records", fix="See its log in the demo's folder")
    return len(people)


# ---- clients -----------------------------------------------------------------------------------------------


def send_all(
    address: str, task: Path, head: Any, people: Sequence[Person], folder: Path, told: Callable[[int], None]
) -> int:
    """Let every one of these randomise and report through the Python client; gives how many were acknowledged."""
    import multiprocessing

    parts = [(address, task, head, people[n::_PROCESSES], folder / f"clients-{n}.db") for n in range(_PROCESSES)]
    # Fresh processes: what this one has open is none of theirs.
    with multiprocessing.get_context("spawn").Pool(_PROCESSES) as pool:
        stored = 0
        for sent in pool.imap_unordered(_send_part, [one for part in parts for one in _in_steps(part)]):
            stored += sent
            told(sent)
    return stored


def _in_steps(part: tuple[str, Path, Any, Sequence[Person], Path], step: int = 500) -> Iterator[Any]:
    address, task, head, people, state = part
    for start in range(0, len(people), step):
        # A file of states for each process and step: one that all wait for would make them take turns.
        yield address, task, head, people[start : start + step], state.with_suffix(f".{start}.db")


def _send_part(given: tuple[str, Path, Any, Sequence[Person], Path]) -> int:
    from hushquery.local.device.client import Client
    from hushquery.local.device.send import Sender
    from hushquery.task import Task

    address, task, head, people, state = given
    stored = 0
    client = Client(Task.load(task), state, head=head)
    with Sender(address) as sender:
        for user, query, url in people:
            client.client_id = user  # the next one of the file; all that it remembers is under this name
            client.report(query, url)
            stored += sum(one.outcome == "stored" for one in sender.send(client))
    return stored


# ---- browsers ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Browsers:
    """What it takes to run the JavaScript client in Chromium."""

    node: str
    chromium: str
    modules: Path


def find_browsers() -> Browsers | str:
    """Find Node, Chromium and Playwright, or say what is missing and how to get it."""
    import hushquery

    node = shutil.which("node")
    chromium = next((found for name in _BINARIES if name and (found := shutil.which(name))), None)
    folders = (Path.cwd() / "js", Path(hushquery.__file__).parents[2] / "js")
    modules = next((folder for folder in folders if (folder / "node_modules" / "playwright-core").is_dir()), None)
    if node is None or chromium is None:
        return "Chromium and Node are not installed, so no browser took part"
    if modules is None:
        return (
            "Playwright is not installed, so no browser took part: run `npm ci` in js/ of the source, then from there"
        )
    return Browsers(node, chromium, modules)


def browse(browsers: Browsers, address: str, task: str, people: Sequence[Person]) -> int:
    """Let every one of these report through the JavaScript client in Chromium; gives how many were acknowledged."""
    given = {"modules": str(browsers.modules), "binary": browsers.chromium, "address": address, "task": task}
    try:
        done = subprocess.run(  # noqa: S603 -- our own script
            [browsers.node, "--input-type=module", "-e", _SCRIPT],
            input=json.dumps({**given, "people": people}),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
        return int(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise HushqueryError(
            "the browsers failed", why=type(error).__name__, fix="See `npm run test:browser`"
        ) from None
