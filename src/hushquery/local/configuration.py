"""Configuration: a task with what can be reported and the integers its clients run with, and the hash that binds them.

A report carries this hash. A client and a collector with another list, another order of the list, or another
mechanism can't mistake each other's reports for their own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

from hushquery.core.budget import format_epsilon, significant_up
from hushquery.errors import CalibrationError, UsageError
from hushquery.local.channel import Channel, OracleChannel
from hushquery.local.numbers.channels import HistogramChannel, MeanChannel
from hushquery.local.numbers.dbitflip import DBitFlip
from hushquery.local.numbers.onebit import AlphaPoint, OneBitMean
from hushquery.local.oracles.choose import ORACLES, choose_oracle, oracle_named
from hushquery.local.oracles.oracle import Randomizer
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.rappor.channel import RapporChannel
from hushquery.local.rappor.response import Params
from hushquery.task import Domain, GroupedDomain, Numbers, Task, Texts

__all__ = ["Configuration"]

_TWO_STAGE = TwoStage.name


# A simulator makes thousands of clients of one task, and exact calibration takes milliseconds.
@lru_cache(maxsize=64)
def _calibrated(name: str, k: int, epsilon: Fraction) -> Randomizer:
    if name not in ("auto", *ORACLES):
        raise UsageError(
            f"no oracle is called {name!r}", fix=f"Give auto or one of {', '.join(ORACLES)}, or for searches two-stage"
        )
    return oracle_named(name, k, epsilon)


@lru_cache(maxsize=64)
def _two_stage(urls: tuple[int, ...], epsilon: Fraction, query_share: Fraction | None) -> TwoStage:
    if query_share is None:
        return TwoStage.calibrate(urls, epsilon, mode="tight")
    return TwoStage.calibrate(urls, epsilon, mode="paper", query_share=query_share)


@lru_cache(maxsize=64)
def _numbers(highest: int, epsilon: Fraction, step: int | None, buckets: int | None, bits: int | None) -> Channel:
    if buckets is None or bits is None:
        return MeanChannel(AlphaPoint(OneBitMean.calibrate(highest, epsilon), highest if step is None else step))
    return HistogramChannel(DBitFlip.calibrate(buckets, bits, epsilon), highest)


@dataclass(frozen=True)
class Configuration:
    """What every client of a task runs: made once from the task and, where it has none of its own, the head list.

    Args:
        task: The task.
        space: What can be reported: a list, numbers, or texts.
        channel: The mechanism, with the integers it runs with.

    >>> from hushquery.task import template
    >>> configuration = Configuration.of(Task.loads(template("setting")))
    >>> configuration.oracle.k, len(configuration.digest)
    (4, 32)
    """

    task: Task
    space: Domain | Numbers | Texts
    channel: Channel

    def __post_init__(self) -> None:
        if isinstance(self.channel, OracleChannel) and self.oracle.k != len(self.domain):
            raise UsageError(
                f"the mechanism has {self.oracle.k} cells and the domain {len(self.domain)}",
                fix="Make it with Configuration.of",
            )
        if self.channel.epsilon > self.task.record_epsilon:
            raise CalibrationError(
                "the mechanism loses more than the task allows",
                why=f"it loses {significant_up(self.channel.epsilon, 6)}, and [client] epsilon allows "
                f"{significant_up(self.task.record_epsilon, 6)} for a report",
                fix="Give more noise (for RAPPOR a larger f or fewer hash functions), or a larger epsilon",
            )

    @classmethod
    def of(cls, task: Task, head: Sequence[Any] | None = None) -> Configuration:
        """Fix what can be reported and the mechanism of a task.

        Args:
            task: The task.
            head: The published head list, as [query, URL] pairs in their order; only for a task without a domain.
        """
        if not task.is_listed and head is not None:
            raise UsageError(f"a {task.task.kind} task takes no head list", fix="Leave it out")
        if task.task.highest is not None:
            highest, client = task.task.highest, task.client
            channel = _numbers(highest, task.record_epsilon, client.step, client.buckets, client.bits)
            return cls(task, Numbers(highest), channel)
        if task.client.rappor is not None:
            params = Params(
                **{name: getattr(task.client.rappor, name) for name in type(task.client.rappor).model_fields}
            )
            return cls(task, Texts(), RapporChannel(params))
        domain = task.listed(head)
        if task.oracle == _TWO_STAGE:
            grouped = GroupedDomain.of(domain)
            two = _two_stage(grouped.urls, task.record_epsilon, task.query_share)
            return cls(task, grouped, OracleChannel(two, wildcard=True))
        oracle = _calibrated(task.client.oracle, len(domain), task.record_epsilon)
        return cls(task, domain, OracleChannel(oracle, domain.wildcard))

    @property
    def domain(self) -> Domain:
        """The list of what can be reported, cell by cell; numbers and texts have none."""
        if not isinstance(self.space, Domain):
            raise UsageError(f"a {self.task.task.kind} task has no list of values", fix="Use a task with a list")
        return self.space

    @property
    def oracle(self) -> Randomizer:
        """The frequency oracle over the list; numbers and texts have none."""
        if not isinstance(self.channel, OracleChannel):
            raise UsageError(f"a {self.task.task.kind} task has no frequency oracle", fix="Use a task with a list")
        return self.channel.oracle

    @property
    def cost(self) -> Fraction:
        """What a device is charged for a new permanent answer: the epsilon that the task gives to a record.

        RAPPOR is charged what its chances lose: they are given and not calibrated to the task's epsilon.
        """
        return self.channel.epsilon if isinstance(self.channel, RapporChannel) else self.task.record_epsilon

    @property
    def labels(self) -> list[str]:
        """The rows of an estimate; a task of texts has none before there are candidates."""
        if isinstance(self.space, Domain):
            return self.space.labels()
        return self.channel.ranges() if isinstance(self.channel, HistogramChannel) else []

    @property
    def why(self) -> str:
        """How the mechanism came to be the one it is, and what it means, in a sentence or two."""
        if not isinstance(self.channel, OracleChannel):
            return f"{self.channel.name}: {self.channel.note}."
        oracle = self.channel.oracle
        if self.task.oracle == "auto":
            return choose_oracle(oracle.k, self.task.record_epsilon).why
        if isinstance(oracle, TwoStage):
            share = self.task.query_share
            how = (
                "the query gets all that the URL leaves" if share is None else f"the query gets {float(share):g} of it"
            )
            spent = (
                f"epsilon {format_epsilon(oracle.epsilon)} of {format_epsilon(self.task.record_epsilon)} is used; {how}"
            )
            return f"two-stage, as the task says: {len(oracle.urls):,} queries, {self.channel.note}; {spent}."
        return f"{oracle.name}, as the task says: {self.channel.note}."

    def canonical(self) -> str:
        """Give the text that is hashed: JSON with sorted keys, no spaces, ASCII only."""
        data = {
            "version": 1,
            "task": self.task.id,
            "domain": self.space.to_json(),
            "oracle": self.channel.describe(),
        }
        return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def digest(self) -> bytes:
        """The configuration hash: the SHA-256 of :meth:`canonical`."""
        return hashlib.sha256(self.canonical().encode("ascii")).digest()
