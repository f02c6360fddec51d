"""Write vectors/report_v1.json and calibrations_v1.json: what every client, in any language, must compute alike."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hushquery.core.budget import exact
from hushquery.errors import CalibrationError
from hushquery.local.configuration import ORACLES, Configuration, choose_oracle
from hushquery.local.device.client import memo_key, sampling_number
from hushquery.local.numbers.dbitflip import DBitFlip
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.randomizer import Device
from hushquery.local.report import Report, ReportError
from hushquery.noise.sampler import SeededBits
from hushquery.task import Task

FILE = Path(__file__).parent.parent / "vectors" / "report_v1.json"
CALIBRATIONS = FILE.with_name("calibrations_v1.json")
COMMAND = "python tools/vectors.py"

SETTING = """\
[task]
name = "theme"
population = "app users"
kind = "setting"
domain = ["dark", "light", "caf\u00e9"]
[client]
epsilon = "ln(3)"
lifetime_epsilon = 4
oracle = "{oracle}"
unknown = "{unknown}"
"""
SEARCHES = """\
[task]
name = "searches"
population = "browser users"
period = "7d"
[client]
epsilon = 4.0
lifetime_epsilon = 16.0
oracle = "{oracle}"
[head]
size = 3
[collect]
time_precision = "1h"
"""
PAPER = SEARCHES.replace("size = 3", 'size = 3\nmode = "paper"')
# What only a collector uses is served to clients and is no part of the id.
SERVED = (
    SEARCHES
    + 'min_batch = 50\nclock_skew = "5m"\nretention = "30d"\nmax_body = "1MiB"\norigins = ["https://a.example"]\n'
)
HEAD = [["weather leeds", "https://weather.example"], ["news", ""], ["\u65b0\u805e", "https://news.example/jp"]]

MANY = SETTING.replace('["dark", "light", "caf\u00e9"]', json.dumps([f"v{number}" for number in range(15)]))

PAIRS = [["news", "https://a.example"], ["maps", ""], ["news", "https://b.example"], ["news", ""]]

NUMBER = """\
[task]
name = "minutes"
population = "app users"
kind = "number"
highest = 100
[client]
epsilon = 1
lifetime_epsilon = 4
{oracle}
"""
ONE_BIT, BUCKETS = 'oracle = "onebit"\nstep = 25', 'oracle = "dbitflip"\nbuckets = 10\nbits = 4'
TEXT = """\
[task]
name = "home pages"
population = "browser users"
kind = "text"
period = "1d"
[client]
epsilon = 4.5
lifetime_epsilon = 9
[client.rappor]
k = 20
h = 2
m = 300
p = 0.25
q = 0.75
f = 0.5
"""

# (task, head list, what the mechanism said)
CASES: list[tuple[str, Any, list[Any]]] = [
    (SETTING.format(oracle="krr", unknown="wildcard"), None, [0, 3]),
    (SETTING.format(oracle="krr", unknown="refuse"), None, [2]),
    (SETTING.format(oracle="oue", unknown="wildcard"), None, [b"\x00", b"\x0d"]),
    (SETTING.format(oracle="hadamard", unknown="wildcard"), None, [(2, 1)]),
    (MANY.format(oracle="subset", unknown="wildcard"), None, [(0, 3, 8, 15)]),
    (SEARCHES.format(oracle="subset"), HEAD, [(1,)]),
    (SEARCHES.format(oracle="olh"), HEAD, [(5 * (2**31 - 1) + 7, 3)]),
    (SERVED.format(oracle="olh"), HEAD, [(0, 0)]),
    (PAPER.format(oracle="two-stage"), PAIRS, [2, 6]),
    (PAPER.format(oracle='two-stage"\nquery_share = "0.85'), HEAD, [0]),
    (PAPER.format(oracle="auto"), HEAD, [0]),
    (NUMBER.format(oracle=ONE_BIT), None, [0, 1]),
    (NUMBER.format(oracle=BUCKETS), None, [(0, 3, 8, 9, 1, 0, 0, 1)]),
    (TEXT, None, [(299, 0b10000000000000000101)]),
]

QUERIES = [["news", "https://b.example"], ["News", "https://c.example"], ["weather"], ["maps"], ["news"], ["maps", "x"]]

# (task, head list, values): whole ways from a value to a payload. Of a pair the second is the URL.
WAYS: list[tuple[str, Any, list[Any]]] = [
    (SETTING.format(oracle="krr", unknown="wildcard"), None, [["light"], ["sepia"]]),
    (PAPER.format(oracle="two-stage").replace("4.0", "0.5"), PAIRS, QUERIES),
    (NUMBER.format(oracle=ONE_BIT), None, [[0], [37], [100]]),
    (NUMBER.format(oracle=BUCKETS), None, [[0], [37], [99], [100]]),
    (TEXT, None, [["https://example.org"], ["caf\u00e9"]]),
]


CELLS = (2, 3, 4, 5, 8, 9, 17, 51, 101, 256, 257, 501, 1000, 5001, 65_537, 2**20, 2**24)
EPSILONS = ("1e-9", "1/1000", 0.1, "1/3", 0.5, 1, "ln 3", 2, "ln 8", 2.5, 4, 6, 9.7, "ln 65536", 12, 20)
URLS = ([1], [1, 1, 1], [2, 1], [3, 1, 2, 1], [1] * 50, [5, 1, 1, 3, 1, 8], [40] + [1] * 30, [1] * 2000)
# (highest, buckets, bits)
NUMBERS = ((1, 2, 1), (100, 10, 4), (100, 10, 1), (1440, 24, 24), (9999, 100, 7), (2**31, 2**20, 2**10))


def fixed(name: str, length: int) -> bytes:
    """Give bytes that look random and are always the same."""
    return hashlib.shake_256(name.encode()).digest(length)


def build() -> dict[str, Any]:
    """Make the vectors anew."""
    return {
        "about": f"hushquery report format v1, see docs/report-format.md. Made by `{COMMAND}`; do not edit.",
        "license": "The same as hushquery's own; nothing in here comes from elsewhere.",
        "tasks": [task_vectors(number, *case) for number, case in enumerate(CASES)],
        "refused": refused(),
        "macs": macs(),
        "clients": [way_vectors(number, *way) for number, way in enumerate(WAYS)],
    }


def task_vectors(number: int, toml: str, head: Any, answers: list[Any]) -> dict[str, Any]:
    configuration = Configuration.of(Task.loads(toml), head)
    reports = []
    for turn, answer in enumerate(answers):
        payload = configuration.channel.pack(answer)
        time = configuration.task.truncate(1_700_000_000 + 86400 * turn)
        report = Report(
            fixed(f"id {number} {turn}", 16), configuration.task.digest, configuration.digest, time, payload
        )
        said = answer.hex() if isinstance(answer, bytes) else answer
        reports.append({"answer": said, "bytes": report.to_bytes().hex(), "json": report.to_json()})
    return {
        "toml": toml,
        "head": head,
        "task": {
            "served": configuration.task.to_json(),
            "canonical": configuration.task.canonical(),
            "id": configuration.task.id,
        },
        "configuration": {"canonical": configuration.canonical(), "hash": configuration.digest.hex()},
        "reports": reports,
    }


class Recorded:
    """Words that are always the same, and a list of those that were taken."""

    secret = False

    def __init__(self, name: str) -> None:
        self._bits = SeededBits(name)
        self.taken: list[str] = []

    def words(self, n: int) -> Any:
        """Give the next n words."""
        given = self._bits.words(n)
        self.taken += [f"{int(word):016x}" for word in given]
        return given


def way_vectors(number: int, toml: str, head: Any, values: list[Any]) -> dict[str, Any]:
    """Give what a device with a given secret and given coins answers, in two reports for each value."""
    configuration = Configuration.of(Task.loads(toml), head)
    channel, secret = configuration.channel, fixed(f"device {number}", 32)
    device = Device(secret, configuration.task.digest, configuration.digest)
    ways = []
    for turn, value in enumerate(values):
        cell = configuration.space.cell(*value)
        name = channel.memo_class(cell, device)
        coins = Recorded(f"answer {number} {turn}")
        kept = channel.answer(cell, device, coins)
        payloads = []
        for report in range(2):
            fresh = Recorded(f"report {number} {turn} {report}")
            payloads.append({"payload": channel.payload(kept, fresh).hex(), "words": fresh.taken})
        key = memo_key(secret, configuration.task.digest, configuration.digest, 0, name)
        ways.append(
            {
                "value": value,
                "class": name.hex() if isinstance(name, bytes) else name,
                "memo_key": key.hex(),
                "words": coins.taken,
                "kept": kept.hex(),
                "reports": payloads,
            }
        )
    return {
        "toml": toml,
        "head": head,
        "task": configuration.task.id,
        "configuration": configuration.canonical(),
        "secret": secret.hex(),
        "values": ways,
    }


def refused() -> list[dict[str, str]]:
    """Give what the first configuration must refuse, with the name of the error."""
    configuration = Configuration.of(Task.loads(CASES[0][0]))
    task, digest = configuration.task.digest, configuration.digest
    good = Report(fixed("id", 16), task, digest, 1800, b"\x01").to_bytes()
    other = fixed("other", 32)
    tried = [
        b"",
        good[:-1],
        good[:90],
        good[:40],
        good + b"\x00",
        b"\x00" + good[1:],
        b"\x02" + good[1:],
        good[:81] + b"\xff" * 8 + good[89:],
        Report(fixed("id", 16), other, digest, 1800, b"\x01").to_bytes(),
        Report(fixed("id", 16), task, other, 1800, b"\x01").to_bytes(),
        Report(fixed("id", 16), task, digest, 1801, b"\x01").to_bytes(),
        Report(fixed("id", 16), task, digest, 1800, b"\x04").to_bytes(),
        Report(fixed("id", 16), task, digest, 1800, b"").to_bytes(),
        Report(fixed("id", 16), task, digest, 1800, b"\x01\x00").to_bytes(),
    ]
    return [{"bytes": data.hex(), "error": verdict(configuration, data)} for data in tried]


def verdict(configuration: Configuration, data: bytes) -> str:
    try:
        Report.from_bytes(data).open(configuration)
    except ReportError as error:
        return type(error).__name__
    return ""


def macs() -> dict[str, Any]:
    """Give what a client derives from its secret: memo keys, and the number that decides on sampling."""
    secret, task, configuration = fixed("secret", 32), fixed("task", 32), fixed("configuration", 32)
    return {
        "secret": secret.hex(),
        "task": task.hex(),
        "configuration": configuration.hex(),
        "memo": [
            {"slot": slot, "cell": cell, "key": memo_key(secret, task, configuration, slot, cell).hex()}
            for slot, cell in ((0, 0), (0, 1), (1, 0), (0, 2**32 - 1))
        ],
        "sampling": [
            {"period": period, "number": str(sampling_number(secret, task, period))} for period in (0, 1, 2817)
        ],
    }


def calibrations() -> dict[str, Any]:
    """Calibrate every mechanism anew: null where chances of 53 bits are too coarse."""
    epsilons = [exact(one) for one in EPSILONS]
    lists = [
        {
            "k": k,
            "epsilon": str(epsilon),
            "auto": calibrated(partial(_chosen, k, epsilon)),
            "oracles": {name: calibrated(partial(_described, cls, k, epsilon)) for name, cls in ORACLES.items()},
        }
        for k in CELLS
        for epsilon in epsilons
    ]
    two_stage = [
        {
            "urls": urls,
            "epsilon": str(epsilon),
            "tight": calibrated(partial(_described, TwoStage, urls, epsilon, mode="tight")),
            "paper": calibrated(partial(_described, TwoStage, urls, epsilon)),
        }
        for urls in URLS
        for epsilon in epsilons
    ]
    numbers = [
        {
            "highest": highest,
            "buckets": buckets,
            "bits": bits,
            "epsilon": str(epsilon),
            "onebit": calibrated(partial(_mean, highest, epsilon)),
            "dbitflip": calibrated(partial(_flip, buckets, bits, epsilon)),
        }
        for highest, buckets, bits in NUMBERS
        for epsilon in epsilons
    ]
    return {
        "about": f"The integers of every mechanism, from the task alone. Made by `{COMMAND}`; do not edit.",
        "lists": lists,
        "two_stage": two_stage,
        "numbers": numbers,
    }


def integers(made: Any, *names: str) -> dict[str, int]:
    return {name: getattr(made, name) for name in names}


def _chosen(k: int, epsilon: Any) -> str:
    return choose_oracle(k, epsilon).oracle.name


def _described(mechanism: Any, domain: Any, epsilon: Any, **options: Any) -> Any:
    return mechanism.calibrate(domain, epsilon, **options).describe()


def _mean(highest: int, epsilon: Any) -> dict[str, int]:
    return integers(OneBitMean.calibrate(highest, epsilon), "low", "unit")


def _flip(buckets: int, bits: int, epsilon: Any) -> dict[str, int]:
    return integers(DBitFlip.calibrate(buckets, bits, epsilon), "keep")


def calibrated(make: Callable[[], Any]) -> Any:
    """Return what is calibrated, with long lists of URLs left out; None where it is too coarse."""
    try:
        made = make()
    except CalibrationError:
        return None
    return {key: one for key, one in made.items() if key != "urls"} if isinstance(made, dict) else made


def compact(data: Any) -> str:
    """Write a case on each line."""
    return json.dumps(data, separators=(",", ":")).replace("},{", "},\n{") + "\n"


def main() -> None:
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(build(), indent=1, ensure_ascii=True) + "\n")
    CALIBRATIONS.write_text(compact(calibrations()))
    print(f"wrote {FILE.name} and {CALIBRATIONS.name}")


if __name__ == "__main__":
    main()
