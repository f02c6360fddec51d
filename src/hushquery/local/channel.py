"""Channel: what every mechanism of a task offers to its clients and to its server, whatever it collects.

A client asks for the *memo class* of a value (values of one class share one permanent answer), draws the answer of
a class once and keeps it, and makes each report's payload from what it kept. A server unpacks payloads into rows and
adds up their *support*, integers from which every estimate is made and which add up over shards.
"""

from __future__ import annotations

import hmac
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from hushquery.core.estimates import Estimates
from hushquery.errors import DataError
from hushquery.local.oracles.oracle import IntArray, Randomizer
from hushquery.noise.sampler import Bits, below

__all__ = ["Channel", "Device", "MemoClass", "OracleChannel", "packed_bits"]

#: Names one permanent answer of a device: a number below 2^32 - 1, or bytes of any length.
MemoClass = int | bytes


@dataclass(frozen=True)
class Device:
    """Who answers: a device's secret, the id of the task it answers for, and the hash of the configuration it runs."""

    secret: bytes
    task: bytes
    configuration: bytes

    @cached_property
    def coins(self) -> bytes:
        """The key of the coins that are kept and not stored: another configuration, with other chances, has another.

        The same coin compared with two thresholds would tell where it lies, and so what was answered.
        """
        return hmac.digest(self.secret, b"hushquery-v1 coins\0" + self.task + self.configuration, "sha256")

    def __repr__(self) -> str:
        return "Device(...)"


class Channel(ABC):
    """A mechanism as clients and servers use it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in a task file."""

    @property
    @abstractmethod
    def epsilon(self) -> Fraction:
        """What one permanent answer costs, from the integers it runs with, rounded up; replace-one."""

    @property
    @abstractmethod
    def report_bytes(self) -> int:
        """How long every payload is."""

    @property
    @abstractmethod
    def length(self) -> int:
        """How many integers the support has."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Give the name and the integers it runs with, as plain data; this enters the configuration's hash."""

    @property
    @abstractmethod
    def note(self) -> str:
        """What a reader of the task should know of it, in a sentence."""

    # ---- the client ----------------------------------------------------------------------------------------

    @abstractmethod
    def memo_class(self, value: Any, device: Device) -> MemoClass:
        """Name the permanent answer that a value gets on a device."""

    @abstractmethod
    def answer(self, value: Any, device: Device, bits: Bits) -> bytes:
        """Draw the permanent answer of a value's class, to be kept."""

    @abstractmethod
    def empty(self, device: Device, bits: Bits) -> bytes:
        """Draw the answer that says nothing, to be kept: its law is the same whatever the device's values are."""

    def payload(self, kept: bytes, bits: Bits) -> bytes:
        """Make the payload of one report from a kept answer: the answer itself, where nothing is drawn anew."""
        del bits
        return kept

    # ---- the server ----------------------------------------------------------------------------------------

    @abstractmethod
    def pack(self, answer: Any) -> bytes:
        """Give the canonical bytes of an answer."""

    def unpack(self, data: bytes) -> Any:
        """Read a payload; refuses everything that ``pack`` does not write."""
        if not isinstance(data, bytes) or len(data) != self.report_bytes:
            raise self.malformed(f"it is not {self.report_bytes} bytes long")
        return self.one(self.unpack_many(np.frombuffer(data, dtype=np.uint8)[None, :])[0])

    @abstractmethod
    def one(self, row: Any) -> Any:
        """Give one row of :meth:`unpack_many` as a single answer."""

    @abstractmethod
    def unpack_many(self, payloads: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """Read payloads, one per row of bytes; refuses all if one is not canonical."""

    @abstractmethod
    def support(self, rows: npt.NDArray[Any]) -> IntArray:
        """Count what :meth:`unpack_many` gave."""

    @abstractmethod
    def table(
        self,
        support: IntArray,
        n: int,
        level: float,
        labels: Sequence[str],
        *,
        records: int = 1,
        repeats: int = 1,
    ) -> Estimates:
        """Make raw, unbiased estimates with standard errors and intervals from the support of ``n`` reports.

        Args:
            support: What was counted.
            n: The number of reports.
            level: The coverage of each interval.
            labels: The names of the rows.
            records: How many records each client reports in a period.
            repeats: How many periods the reports are from.
        """

    def malformed(self, why: str) -> DataError:
        """Make the error for what is no payload of this mechanism."""
        return DataError(f"this is no {self.name} report", why=why, fix="Reject it; clients of this task never send it")


@dataclass(frozen=True)
class OracleChannel(Channel):
    """A frequency oracle over a list: the class of a value is its cell, and each class has an answer of its own.

    Args:
        oracle: The randomizer.
        wildcard: Whether the last cell stands for everything else.
    """

    oracle: Randomizer
    wildcard: bool

    @property
    def name(self) -> str:
        """The oracle's name."""
        return self.oracle.name

    @property
    def epsilon(self) -> Fraction:
        """The oracle's epsilon."""
        return self.oracle.epsilon

    @property
    def report_bytes(self) -> int:
        """The length of a packed report."""
        return self.oracle.report_bytes

    @property
    def length(self) -> int:
        """One count per cell."""
        return self.oracle.k

    @property
    def note(self) -> str:
        """Cells and bytes."""
        size = "1 byte" if self.report_bytes == 1 else f"{self.report_bytes:,} bytes"
        return f"{self.oracle.k:,} cells, each with an answer of its own, in {size}"

    def describe(self) -> dict[str, Any]:
        """Name, domain and integers."""
        return self.oracle.describe()

    def memo_class(self, value: int, device: Device) -> int:
        """The cell."""
        del device
        return value

    def answer(self, value: int, device: Device, bits: Bits) -> bytes:
        """Randomise the cell."""
        del device
        return self.oracle.pack(self.oracle.randomize(value, bits))

    def empty(self, device: Device, bits: Bits) -> bytes:
        """Answer for the wildcard, or for a cell drawn evenly where there is none."""
        cell = self.oracle.k - 1 if self.wildcard else int(below(bits, self.oracle.k, 1)[0])
        return self.answer(cell, device, bits)

    def pack(self, answer: Any) -> bytes:
        """The oracle's canonical bytes."""
        return self.oracle.pack(answer)

    def unpack(self, data: bytes) -> Any:
        """Read one report."""
        return self.oracle.unpack(data)

    def one(self, row: Any) -> Any:
        """The oracle's single report."""
        return self.oracle.report(row)

    def unpack_many(self, payloads: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """Read many reports."""
        return self.oracle.unpack_many(payloads)

    def support(self, rows: npt.NDArray[Any]) -> IntArray:
        """Count, for each cell, the reports that speak for it."""
        return self.oracle.support(rows)

    def table(
        self,
        support: IntArray,
        n: int,
        level: float,
        labels: Sequence[str],
        *,
        records: int = 1,
        repeats: int = 1,
    ) -> Estimates:
        """Undo the noise: the share of clients in each cell."""
        return self.oracle.table(support, n, list(labels), level, records=records, repeats=repeats)


def packed_bits(payloads: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.uint8] | None:
    """Read ``count`` bits from rows of bytes, bit i being bit i mod 8 of byte i div 8; None if a spare bit is set.

    >>> packed_bits(np.array([[5]], dtype=np.uint8), 3).tolist()
    [[1, 0, 1]]
    """
    bits = np.unpackbits(payloads, axis=1, bitorder="little")
    return None if bits[:, count:].any() else bits[:, :count]
