"""A hostile collector, the devices it attacks, and the exact law of what these send."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from hushquery.core.budget import loss_of_ratio
from hushquery.errors import HushqueryError
from hushquery.local.configuration import Configuration
from hushquery.local.device.client import Client
from hushquery.local.device.fetch import fetch_task
from hushquery.local.device.store import ClientStore
from hushquery.local.numbers.dbitflip import DBitFlip
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.oracles.olh import OLH
from hushquery.local.oracles.subset import SubsetSelection
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.oracles.unary import OUE
from hushquery.local.randomizer import ONE, Randomizer
from hushquery.local.rappor.channel import Rappor
from hushquery.noise.sampler import SeededBits
from hushquery.task import Task

DAY, DAYS = 86_400, 30
HUGE = 2**53 - 1
FILE = Path(__file__).resolve().parent.parent.parent / "vectors" / "state_v1.json"

#: Devices with one task each, a mechanism each, and what they had kept before they were upgraded.
DEVICES: list[dict[str, Any]] = json.loads(FILE.read_text())["devices"]
NAMES = [f"{one['configuration']['oracle']['name']}, {one['task']['client']['oracle']}" for one in DEVICES]


def honest(device: Mapping[str, Any], head: list[list[str]] | None = None, lists: list[Any] | None = None) -> Any:
    """Return what an honest collector serves, with another head list and log if they are given."""
    task = Task.make(device["task"])
    configuration = Configuration.of(task, device["head"] if head is None else head)
    epoch = device["time"] // DAY
    digest = configuration.digest.hex()
    log = [] if task.head is None else [[epoch - 9, "0" * 64], [epoch, digest]] if lists is None else lists
    return {
        "id": task.id,
        "task": task.to_json(),
        "epoch": {"number": epoch, "phase": "reports_open", "takes_records": False, "takes_reports": True},
        "configuration": json.loads(configuration.canonical()),
        "configuration_hash": digest,
        "optin": None,
        "releases": [],
        "lists": log,
    }


class Collector(ThreadingHTTPServer):
    """Serves whatever document it holds, and remembers what requests said beside their path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.body, self.said = b"", list[tuple[tuple[str, str], ...]]()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def end(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_GET(self) -> None:
        self.server.said.append(tuple(sorted(self.headers.items())))
        self.send_response(200)
        # Each request gets a name of its own, in every place where it could come back from.
        for name in ("ETag", "Set-Cookie", "Last-Modified", "Content-Location", "Alt-Svc"):
            self.send_header(name, f'"device {len(self.server.said)}"')
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        pass


class Victim:
    """A device: what it sent in each period, what was refused, and what it told under which configuration."""

    def __init__(self, device: Mapping[str, Any], collector: Collector, state: Path, seed: int) -> None:
        self.device, self.collector, self.state, self.seed = device, collector, state, seed
        self.sent: dict[int, tuple[bytes, ...]] = {}
        self.refused = 0
        #: By configuration hash: the configuration, the payloads, and whether the answer was paid for.
        self.told: dict[bytes, tuple[Configuration, list[bytes], bool]] = {}
        with ClientStore(state).transaction() as connection:
            secret = hashlib.sha256(b"%d" % seed).digest()
            connection.execute("INSERT INTO client (id, secret, spent) VALUES ('default', ?, '0')", (secret,))

    def period(self, day: int, document: Any) -> None:
        """Let a period pass with one document; the coins are those of the period, so that victims can be compared."""
        self.collector.body = json.dumps(document).encode()
        before = kept(self.state)
        try:
            found = fetch_task(self.collector.address, self.device["id"], state=self.state)
            now = self.device["time"] + day * DAY
            bits = SeededBits(f"{self.seed} {day}")
            client = Client(found.task, self.state, head=found.head, clock=lambda: now, bits=bits)
            spent = client.account().spent
            report = client.report(*self.device["value"])
        except HushqueryError:
            self.refused += 1
            assert kept(self.state) == before, "what was refused has cost or changed something"
            return
        if report is None:
            return
        # All but its random id.
        self.sent[day] = (report.task, report.configuration, report.time.to_bytes(8), report.payload)
        configuration, payloads, _ = self.told.setdefault(
            report.configuration, (client.configuration, [], client.account().spent > spent)
        )
        if not isinstance(configuration.channel, Rappor):
            assert payloads in ([], [report.payload] * len(payloads)), "a second answer to the same value"
        payloads.append(report.payload)

    @property
    def spent(self) -> Fraction:
        return Fraction(kept(self.state)["client"][0][2])

    def lost(self, values: list[Any] | None = None) -> Fraction:
        """Return the largest |ln| of the likelihoods of all that was told, over all pairs of values, rounded up."""
        paid = [(configuration, payloads) for configuration, payloads, cost in self.told.values() if cost]
        assert paid
        if isinstance(paid[0][0].channel, Rappor):
            return worst_texts(paid[0][0].channel, paid[0][1])
        tried = values_of(self.device) if values is None else values
        likelihoods = [math.prod(weight(one, payloads[0], value) for one, payloads in paid) for value in tried]
        return loss_of_ratio(Fraction(max(likelihoods)) / min(likelihoods))


def kept(state: Path) -> dict[str, list[Any]]:
    """Read all that a device has kept, but for the log of head lists."""
    with closing(sqlite3.connect(state)) as connection:
        return {
            "client": connection.execute("SELECT * FROM client").fetchall(),
            "memo": connection.execute("SELECT * FROM memo ORDER BY key").fetchall(),
            "report": connection.execute("SELECT * FROM report ORDER BY task, period, slot").fetchall(),
        }


def values_of(device: Mapping[str, Any]) -> list[Any]:
    """List the values that an attacker wants to tell apart."""
    highest = device["task"]["task"].get("highest")
    if highest is not None:
        return [[number] for number in range(highest + 1)]
    return [*device["configuration"]["domain"].get("records", []), ["never heard of"]]


# ---- the law -------------------------------------------------------------------------------------------------


def weight(configuration: Configuration, payload: bytes, value: list[Any]) -> int:
    """Return how likely a value makes an answer, times something that is the same for all values."""
    channel, cell = configuration.channel, configuration.space.cell(*value)
    answer = channel.unpack(payload)
    if isinstance(channel, OneBitMean):  # over the device's offset the chance is exactly linear in the number
        one = channel.low + channel.unit * cell
        return one if answer else ONE - one
    if isinstance(channel, DBitFlip):
        d, keep, own = channel.d, channel.keep, channel.bucket(cell)
        pairs = zip(answer[:d], answer[d:], strict=True)
        return math.prod(keep if (bucket == own) == bool(bit) else ONE - keep for bucket, bit in pairs)
    assert isinstance(channel, Randomizer)
    return _listed(channel, answer, cell)


def _listed(oracle: Any, answer: Any, cell: int) -> int:
    if isinstance(oracle, SubsetSelection):
        inside, outside = oracle.truth * (oracle.k - oracle.omega), (ONE - oracle.truth) * oracle.omega
        return inside if cell in answer else outside
    if isinstance(oracle, OUE):
        others = [place for place in range(oracle.k) if place != cell]
        return math.prod(oracle.lie if answer[i // 8] >> i % 8 & 1 else ONE - oracle.lie for i in others)
    if isinstance(oracle, TwoStage):
        query = [place for place, size in enumerate(oracle.sizes.tolist()) for _ in range(size)]
        if query[answer] != query[cell]:
            return oracle.query_lie * ONE
        size = int(oracle.sizes[query[answer]])
        lie = dict(oracle.url_lies).get(size, 0)
        truth = ONE - len(oracle.urls) * oracle.query_lie
        return truth * size * (ONE - (size - 1) * lie if answer == cell else lie)
    if isinstance(oracle, OLH):
        same, answers = oracle.bucket(answer[0], cell) == answer[1], oracle.g
    elif oracle.name == "hadamard":
        same, answers = (answer[0] & cell).bit_count() % 2 == answer[1], 2
    else:
        assert oracle.name == "krr"
        same, answers = answer == cell, oracle.k
    return ONE - (answers - 1) * oracle.lie if same else oracle.lie


def worst_texts(channel: Rappor, payloads: list[bytes]) -> Fraction:
    """Return the loss of all reports of one text, under the two Bloom filters that they tell apart best."""
    described, h = channel.describe(), channel.params.h
    p, q, flip = (described[name] for name in ("p", "q", "flip"))
    reports = [channel.unpack(payload)[1] for payload in payloads]
    ratios = []
    for bit in range(channel.params.k):
        ones = sum(report >> bit & 1 for report in reports)
        on, off = (chance**ones * (ONE - chance) ** (len(reports) - ones) for chance in (q, p))
        ratios.append(Fraction((ONE - flip) * on + flip * off, flip * on + (ONE - flip) * off))
    ratios.sort()
    # One text has h bits that the other has not, and the other way round.
    return loss_of_ratio(math.prod(ratios[-h:]) / math.prod(ratios[:h]))


# ---- what a collector may try ----------------------------------------------------------------------------------


def _with(part: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy of a document with another value at one place."""
    if not path:
        return value
    changed = copy.copy(part)
    changed[path[0]] = _with(part[path[0]], path[1:], value)
    return changed


def mutants(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every document that differs from another in one place, with a name that says how."""
    part = document
    for key in path:
        part = part[key]

    def put(how: str, value: Any) -> tuple[str, Any]:
        return f"{'.'.join(map(str, path))} {how}", _with(document, path, value)

    if isinstance(part, bool):
        yield put("negated", not part)
    elif isinstance(part, int):
        tries = {"+1": part + 1, "-1": part - 1, "doubled": part * 2, "zero": 0, "huge": HUGE, "half": part / 2}
        yield from (put(how, value) for how, value in {**tries, "a text": str(part)}.items() if value != part)
    elif isinstance(part, str):
        for how, value in (("longer", f"1{part}"), ("empty", ""), ("a number", 7)):
            yield put(how, value)
    yield put("one", 1) if part is None else put("null", None)
    if isinstance(part, list) and part:
        for how, value in (("shorter", part[:-1]), ("longer", [*part, part[0]]), ("reversed", part[::-1])):
            yield put(how, value)
    if isinstance(part, dict):
        yield put("with one more key", {**part, "more": 1})
        for key in part:
            yield put(f"without {key}", {name: one for name, one in part.items() if name != key})
    if isinstance(part, dict | list):
        for key in part if isinstance(part, dict) else range(len(part)):
            yield from mutants(document, (*path, key))


def tried(device: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """List what a hostile collector tries on one device."""
    document = honest(device)
    k = document["configuration"]["oracle"].get("k", 2)
    others: list[dict[str, Any]] = [
        {"name": "krr", "k": k, "lie": ONE // k - 2**30},
        {"name": "oue", "k": k, "lie": 2**52 - 2**40},
        {"name": "hadamard", "k": k, "lie": 2**52 - 2**40},
        {"name": "subset", "k": k, "omega": 1, "truth": ONE // k + 2**30},
        {"name": "olh", "k": k, "g": 2, "lie": 2**52 - 2**40, "prime": 2**31 - 1},
    ]
    return [
        *mutants(document),
        *(("another oracle", _with(document, ("configuration", "oracle"), oracle)) for oracle in others),
        *(("another task", honest(one)) for one in DEVICES if one["id"] != device["id"]),
    ]
