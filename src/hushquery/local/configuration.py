"""Configuration: a task's domain and mechanism with its integers, and the hash that binds them.

Reports carry the hash, so those of another list, another order of it or another mechanism are never mixed up.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from hushquery.core.budget import Number, exact, format_epsilon, significant_up
from hushquery.errors import CalibrationError, DataError, UsageError
from hushquery.local.numbers.dbitflip import DBitFlip
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.oracles.hadamard import Hadamard
from hushquery.local.oracles.krr import KRR
from hushquery.local.oracles.olh import MOST_BUCKETS, OLH
from hushquery.local.oracles.subset import SubsetSelection
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.oracles.unary import OUE
from hushquery.local.randomizer import Channel, Device, Oracle, Randomizer, checked_cells, checked_epsilon
from hushquery.local.rappor.channel import Rappor
from hushquery.local.rappor.response import Params
from hushquery.noise.sampler import Bits
from hushquery.task import Domain, GroupedDomain, Numbers, Task, Texts

#: The file of a head list's folder; its ``records`` are the pairs.
HEAD_FILE = "head.json"

#: The oracles there are, the simplest first: of equals the first is chosen.
ORACLES: Mapping[str, type[Oracle]] = {cls.name: cls for cls in (KRR, Hadamard, OLH, OUE, SubsetSelection)}

# An oracle whose variance with real chances is so many times the smallest one is not worth calibrating.
_FAR = 1.1


class HasRecords(Protocol):
    """Whatever carries a head list, such as :class:`hushquery.hybrid.published.PublishedHead`."""

    @property
    def records(self) -> Sequence[Any]:
        """The [query, URL] pairs, in their order."""
        ...


#: A published head list: its [query, URL] pairs in their order, or what carries them.
Head = Sequence[Any] | HasRecords


@dataclass(frozen=True)
class Configuration:
    """What every client of a task runs: the domain, and the mechanism with its integers.

    >>> from hushquery.task import template
    >>> configuration = Configuration.of(Task.loads(template("setting")))
    >>> configuration.oracle.k, len(configuration.digest)
    (4, 32)
    """

    task: Task
    space: Domain | Numbers | Texts
    channel: Channel

    def __post_init__(self) -> None:
        if isinstance(self.channel, Randomizer) and self.channel.k != len(self.domain):
            raise UsageError(
                f"the mechanism has {self.channel.k} cells and the domain {len(self.domain)}",
                fix="Make it with Configuration.of",
            )
        if self.channel.epsilon > self.task.record_epsilon:
            raise CalibrationError(
                "the mechanism loses more than the task allows",
                why=f"it loses {significant_up(self.channel.epsilon, 6)}, and [client] epsilon allows "
                f"{significant_up(self.task.record_epsilon, 6)} for a report",
                fix="Use more noise (for RAPPOR a larger f or fewer hash functions), or a larger epsilon",
            )

    @classmethod
    def of(cls, task: Task, head: Head | None = None) -> Configuration:
        """Choose the domain and mechanism of a task; only a task without a domain takes a head list."""
        if not task.is_listed and head is not None:
            raise UsageError(f"a {task.task.kind} task takes no head list", fix="Leave it out")
        client, highest = task.client, task.task.highest
        if highest is not None:
            channel = _numbers(highest, task.record_epsilon, client.step, client.buckets, client.bits)
            return cls(task, Numbers(highest), channel)
        if client.rappor is not None:
            params = {name: getattr(client.rappor, name) for name in type(client.rappor).model_fields}
            return cls(task, Texts(), Rappor(Params(**params)))
        records = getattr(head, "records", head)
        if records is not None and (isinstance(records, str) or not isinstance(records, Sequence)):
            raise UsageError("a head list is a list of [query, URL] pairs", fix="Pass the list, or the published head")
        domain = task.listed(records)
        if task.oracle == TwoStage.name:
            domain = GroupedDomain.of(domain)
            return cls(task, domain, _two_stage(domain.urls, task.record_epsilon, task.query_share))
        return cls(task, domain, oracle_named(client.oracle, len(domain), task.record_epsilon))

    @property
    def domain(self) -> Domain:
        """The list of what can be reported, cell by cell; numbers and texts have none."""
        if not isinstance(self.space, Domain):
            raise UsageError(f"a {self.task.task.kind} task has no list of values", fix="Use a task with a list")
        return self.space

    @property
    def oracle(self) -> Randomizer:
        """The frequency oracle over the list; numbers and texts have none."""
        if not isinstance(self.channel, Randomizer):
            raise UsageError(f"a {self.task.task.kind} task has no frequency oracle", fix="Use a task with a list")
        return self.channel

    @property
    def cost(self) -> Fraction:
        """The epsilon charged for a new permanent answer: the task's for a record, or what RAPPOR's chances lose."""
        return self.channel.epsilon if isinstance(self.channel, Rappor) else self.task.record_epsilon

    def empty(self, device: Device, bits: Bits) -> bytes:
        """Draw the answer that says nothing: that of the wildcard where the list has one."""
        if isinstance(self.space, Domain) and self.space.wildcard:
            return self.channel.answer(len(self.space) - 1, device, bits)
        return self.channel.empty(device, bits)

    @property
    def labels(self) -> list[str]:
        """The rows of an estimate; a task of texts has none before there are candidates."""
        if isinstance(self.space, Domain):
            return self.space.labels()
        return self.channel.ranges() if isinstance(self.channel, DBitFlip) else []

    @property
    def why(self) -> str:
        """How the mechanism came to be the one it is, and what it means, in a sentence or two."""
        channel = self.channel
        if not isinstance(channel, Randomizer):
            return f"{channel.name}: {channel.note}."
        if self.task.oracle == "auto":
            return choose_oracle(channel.k, self.task.record_epsilon).why
        if not isinstance(channel, TwoStage):
            return f"{channel.name}, as the task says: {channel.note}."
        share = self.task.query_share
        how = "the query gets all that the URL leaves" if share is None else f"the query gets {float(share):g} of it"
        spent = f"epsilon {format_epsilon(channel.epsilon)} of {format_epsilon(self.task.record_epsilon)} is used"
        return f"two-stage, as the task says: {len(channel.urls):,} queries, {channel.note}; {spent}; {how}."

    def canonical(self) -> str:
        """Return the text that is hashed: JSON with sorted keys, no spaces, ASCII only."""
        data = {"version": 1, "task": self.task.id, "domain": self.space.to_json(), "oracle": self.channel.describe()}
        return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def digest(self) -> bytes:
        """The configuration hash: the SHA-256 of :meth:`canonical`."""
        return hashlib.sha256(self.canonical().encode("ascii")).digest()


# A simulator makes thousands of clients of one task, and exact calibration takes milliseconds.
@lru_cache(maxsize=64)
def _two_stage(urls: tuple[int, ...], epsilon: Fraction, query_share: Fraction | None) -> TwoStage:
    if query_share is None:
        return TwoStage.calibrate(urls, epsilon, mode="tight")
    return TwoStage.calibrate(urls, epsilon, mode="paper", query_share=query_share)


@lru_cache(maxsize=64)
def _numbers(highest: int, epsilon: Fraction, step: int | None, buckets: int | None, bits: int | None) -> Channel:
    if buckets is None or bits is None:
        return OneBitMean.calibrate(highest, epsilon, step)
    return DBitFlip.calibrate(buckets, bits, epsilon, highest)


def read_head(path: str | PathLike[str]) -> list[Any]:
    """Read a head list from a JSON file or the folder that `hushquery head` wrote; the task checks its entries."""
    file = Path(path)
    if file.is_dir():
        file /= HEAD_FILE
    try:
        items = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise DataError(f"the head list {file.name} can't be read", why=error.strerror or "", fix="Fetch it") from None
    except (ValueError, RecursionError):
        raise DataError(f"the head list {file.name} is not JSON", fix="Fetch it again") from None
    if isinstance(items, dict):
        items = items.get("records")
    if not isinstance(items, list):
        raise DataError(f"the head list {file.name} is not a JSON list", fix="It is a list of [query, URL] pairs")
    return items


@dataclass(frozen=True)
class Choice:
    """An oracle, why it was chosen, and of all that can run n times the rare-cell variance, and report lengths."""

    oracle: Oracle
    why: str
    variances: Mapping[str, float]
    report_bytes: Mapping[str, int]


def choose_oracle(k: int, epsilon: Number, within: Number = 0) -> Choice:
    """Choose the oracle of the smallest variance for a rare cell; of equals, the one with the shortest report.

    Variances at most ``within`` above the smallest count as equal: 0.02 may make reports a hundred times shorter.

    >>> print(choose_oracle(501, 4).why)
    subset has the smallest variance for a rare cell, 0.0717/n, in 18 bytes; next is oue with 0.076/n in 63 bytes.
    """
    slack = exact(within, "within")
    if slack < 0:
        raise UsageError("within is a share of the smallest variance, 0 or more", fix="Use a value such as 0.02")
    able = _calibrated(k, epsilon)
    best, limit = _best(able, slack)
    sizes = {name: oracle.report_bytes for name, oracle in able.items()}
    variances = {name: float(oracle.rare_variance) for name, oracle in able.items()}
    return Choice(able[best], _why(best, variances, sizes, float(limit)), variances, sizes)


@lru_cache(maxsize=64, typed=True)
def oracle_named(name: str, k: int, epsilon: Number) -> Oracle:
    """Calibrate an oracle by its name, or for ``auto`` the one of :func:`choose_oracle`."""
    if name == "auto":
        able = _calibrated(k, epsilon, only_promising=True)
        return able[_best(able)[0]]
    if name not in ORACLES:
        known = f"auto or one of {', '.join(ORACLES)}, or for searches two-stage"
        raise UsageError(f"no oracle is called {name!r}", fix=f"Use {known}")
    return ORACLES[name].calibrate(k, epsilon)


def _calibrated(k: int, epsilon: Number, *, only_promising: bool = False) -> dict[str, Oracle]:
    """Calibrate every oracle that can run, or only those whose variance may be the smallest."""
    ideal = _ideal_variances(checked_cells(k), float(checked_epsilon(epsilon)))
    able: dict[str, Oracle] = {}
    refused: CalibrationError | None = None
    for name in sorted(ORACLES, key=lambda name: ideal.get(name, 0.0)):
        if only_promising and able and ideal.get(name, 0.0) > _FAR * float(_best(able)[1]):
            break
        if only_promising and name == SubsetSelection.name and KRR.name in able and _sets_of_one(k, epsilon):
            continue
        try:
            able[name] = ORACLES[name].calibrate(k, epsilon)
        except CalibrationError as error:  # too coarse for this one; another may do
            refused = error
    if refused is not None and not able:
        raise refused
    return {name: able[name] for name in ORACLES if name in able}


def _sets_of_one(k: int, epsilon: Number) -> bool:
    """Return whether subset selection is k-RR again, and 53 bits are so fine that the two are equals."""
    e = math.exp(checked_epsilon(epsilon))
    # A lie is rounded by (e + k)/2^53 of itself, the gap of both chances by up to 1/epsilon times that.
    return _set_size(k, e) == 1 and e + k <= 2**18 and e >= 1.001


def _set_size(k: int, e: float) -> int:
    return max(1, round(k / (e + 1)))


def _ideal_variances(k: int, epsilon: float) -> dict[str, float]:
    """Compute n times the variance for a rare cell with real chances: that of the integers is never below it."""
    e = math.exp(epsilon)
    g, omega = min(round(e) + 1, MOST_BUCKETS), _set_size(k, e)
    inside = omega * e / (omega * e + k - omega)
    chances = {
        KRR.name: (e / (e + k - 1), 1 / (e + k - 1)),
        Hadamard.name: (e / (e + 1), 0.5),
        OLH.name: (e / (e + g - 1), 1 / g),
        OUE.name: (0.5, 1 / (e + 1)),
        SubsetSelection.name: (inside, (inside * (omega - 1) + (1 - inside) * omega) / (k - 1)),
    }
    # Where doubles can't tell the two chances apart, any oracle may be the best.
    return {name: q * (1 - q) / (p - q) ** 2 if p - q > 1e-5 * q else 0.0 for name, (p, q) in chances.items()}


def _best(able: Mapping[str, Oracle], slack: Fraction = Fraction(0)) -> tuple[str, Fraction]:
    """Return the oracle with the shortest report among those of about the smallest variance, and how large that is."""
    # Exact, because devices choose by themselves, in any language, and must all choose the same.
    variances = {name: oracle.rare_variance for name, oracle in able.items()}
    limit = min(variances.values()) * (1 + slack + Fraction(1, 10**9))  # what 53 bits can't tell apart is equal
    return min((name for name in able if variances[name] <= limit), key=lambda name: able[name].report_bytes), limit


def _why(best: str, variances: Mapping[str, float], sizes: Mapping[str, int], limit: float) -> str:
    def variance(name: str) -> str:
        return f"{variances[name]:.3g}/n"

    def size(name: str) -> str:
        return f"{sizes[name]} byte{'' if sizes[name] == 1 else 's'}"

    equal = [name for name in variances if name != best and variances[name] <= limit]
    further = sorted((name for name in variances if name != best and name not in equal), key=lambda n: variances[n])
    lead = f"{best} has the smallest variance for a rare cell, {variance(best)}, in {size(best)}"
    if equal:
        lead = (
            f"{best} has the shortest report, {size(best)}, of those of the smallest variance for a rare cell, "
            f"{variance(best)} (also {', '.join(f'{n}: {variance(n)}, {size(n)}' for n in equal)})"
        )
    after = f"; next is {further[0]} with {variance(further[0])} in {size(further[0])}" if further else ""
    return lead + after + "."
