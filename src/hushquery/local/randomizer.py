"""Randomizers: what every mechanism offers to client and server, and the integers that decide its coins.

A client draws the answer of a value's *memo class* once, keeps it, and makes each payload from it; a server unpacks
payloads and adds up their *support*, the integers that every estimate is made from. Chances are integers over 2^53, so
that Python and JavaScript decide every coin alike; they are rounded in the direction that loses less, and the claimed
epsilon is computed back from the integers.
"""

from __future__ import annotations

import hmac
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import mpmath
import numpy as np
import numpy.typing as npt

from hushquery.core.budget import Number, exact, rational_mpf, working
from hushquery.core.budget import loss_of_ratio as loss_of_exact_ratio
from hushquery.core.estimates import Estimates
from hushquery.errors import CalibrationError, DataError, UsageError
from hushquery.local.intervals import FloatArray, IntArray, largest_variance, share_interval
from hushquery.noise.sampler import Bits, below

#: Names one permanent answer of a device: a number below 2^32 - 1, or bytes of any length.
MemoClass = int | bytes
#: One answer: a cell, an ascending tuple of cells, the bytes of a bit vector, or (seed, cell).
Answer = int | bytes | tuple[int, ...]
#: The whole: a chance is an integer from 0 to ONE, and a coin shows heads when 53 random bits are below it.
ONE = 2**53
#: More than this is no privacy, and its chances would need more than 53 bits.
MOST_EPSILON = 20
#: The largest domain; beyond it the chance of one cell has too few bits left.
MOST_CELLS = 2**24
#: Laws over more outcomes than this are not enumerated.
MOST_OUTCOMES = 2**20

# A claim below this share of what was asked for means that the integers are too coarse.
_LEAST_SPENT = Fraction(99, 100)


@dataclass(frozen=True)
class Device:
    """Who answers: a device's secret, the id of the task it answers for, and the hash of the configuration it runs."""

    secret: bytes
    task: bytes
    configuration: bytes

    @cached_property
    def coins(self) -> bytes:
        """The key of coins that are not stored; it depends on the configuration.

        The same coin compared with the thresholds of two configurations would reveal what was answered.
        """
        return hmac.digest(self.secret, b"hushquery-v1 coins\0" + self.task + self.configuration, "sha256")

    def __repr__(self) -> str:
        return "Device(...)"


class Channel(ABC):
    """A mechanism as clients and servers use it."""

    #: The name in a task file.
    name: ClassVar[str]

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

    @property
    @abstractmethod
    def note(self) -> str:
        """What a reader of the task should know of it, in a sentence."""

    def describe(self) -> dict[str, Any]:
        """Return the name and the integers it runs with, as plain data; this enters the configuration's hash."""
        return {"name": self.name, **{part.name: getattr(self, part.name) for part in fields(self)}}  # type: ignore[arg-type]

    @abstractmethod
    def expected_errors(self, reports: int) -> tuple[float, float]:
        """Compute the expected standard error of a rare value's share and the largest of any; equal for an average."""

    @abstractmethod
    def memo_class(self, value: Any, device: Device) -> MemoClass:
        """Name the permanent answer that a value gets on a device."""

    @abstractmethod
    def answer(self, value: Any, device: Device, bits: Bits) -> bytes:
        """Draw the permanent answer of a value's class, to be kept."""

    @abstractmethod
    def empty(self, device: Device, bits: Bits) -> bytes:
        """Draw an answer that says nothing, to be kept: its law is the same whatever the device's values are."""

    def payload(self, kept: bytes, bits: Bits) -> bytes:
        """Make the payload of one report from a kept answer: the answer itself, where nothing is drawn anew."""
        del bits
        return kept

    @abstractmethod
    def encode(self, answer: Any) -> bytes:
        """Return the bytes of an answer that is known to be one."""

    @abstractmethod
    def unpack_many(self, payloads: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """Read payloads, one per row of bytes; refuses all if one is not canonical."""

    @abstractmethod
    def support(self, rows: npt.NDArray[Any]) -> IntArray:
        """Count what :meth:`unpack_many` returned."""

    def adds_up(self, support: IntArray, n: int) -> bool:
        """Return whether these can be the counts of ``n`` reports, which :meth:`support` makes: none is above n."""
        return support.shape == (self.length,) and bool(((support >= 0) & (support <= n)).all())

    @abstractmethod
    def table(
        self, support: IntArray, n: int, level: float, labels: Sequence[str], *, records: int = 1, repeats: int = 1
    ) -> Estimates:
        """Make raw, unbiased estimates from ``n`` reports: ``records`` per client in each of ``repeats`` periods."""

    def report(self, row: Any) -> Any:
        """Return one row of :meth:`unpack_many` as a single answer."""
        return tuple(map(int, row)) if np.ndim(row) else int(row)

    def pack(self, answer: Any) -> bytes:
        """Return the canonical bytes of an answer; refuses what :meth:`unpack` does not return."""
        try:
            data = self.encode(answer)
        except (AttributeError, IndexError, OverflowError, TypeError, ValueError):
            raise self.malformed("it is none of its answers") from None
        if not _same(self.unpack(data), answer):
            raise self.malformed("it is none of its answers")
        return data

    def unpack(self, data: bytes) -> Any:
        """Read a payload; refuses everything that :meth:`pack` does not write."""
        if not isinstance(data, bytes) or len(data) != self.report_bytes:
            raise self.malformed(f"it is not {self.report_bytes} bytes long")
        return self.report(self.unpack_many(np.frombuffer(data, dtype=np.uint8)[None, :])[0])

    def malformed(self, why: str) -> DataError:
        """Make the error for what is no payload of this mechanism."""
        return DataError(f"this is no {self.name} report", why=why, fix="Reject it; clients of this task never send it")


def _same(one: Any, other: Any) -> bool:
    """Return whether two answers are equal and of the same types: True is not 1."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)


class Randomizer(Channel):
    """A channel from the cells 0..k-1 of a list: the class of a value is its cell, with an answer of its own."""

    #: The number of cells; a field of every subclass.
    k: int

    @abstractmethod
    def randomize_many(self, values: npt.ArrayLike, bits: Bits) -> npt.NDArray[Any]:
        """Randomise many clients' cells at once; one row per client, as ``unpack_many`` returns them."""

    @abstractmethod
    def frequencies(self, support: IntArray, n: int) -> tuple[FloatArray, FloatArray]:
        """Return the unbiased frequency of each cell and its standard error, from the support of ``n`` reports."""

    @abstractmethod
    def interval(
        self, support: IntArray, n: int, level: float, *, records: int = 1, repeats: int = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Return the ends of each cell's interval; see :func:`share_interval` for what they allow for."""

    @abstractmethod
    def law(self, value: int) -> Mapping[Answer, float]:
        """Enumerate the chance of every report of a client whose cell is ``value``; for small domains."""

    @property
    def length(self) -> int:
        """One count per cell."""
        return self.k

    @property
    def note(self) -> str:
        """Cells and bytes."""
        size = "1 byte" if self.report_bytes == 1 else f"{self.report_bytes:,} bytes"
        return f"{self.k:,} cells, each with an answer of its own, in {size}"

    def randomize(self, value: int, bits: Bits) -> Answer:
        """Randomise one client's cell."""
        answer: Answer = self.report(self.randomize_many([value], bits)[0])
        return answer

    def memo_class(self, value: int, device: Device) -> int:
        """The cell."""
        del device
        return value

    def answer(self, value: int, device: Device, bits: Bits) -> bytes:
        """Randomise the cell."""
        del device
        return self.pack(self.randomize(value, bits))

    def empty(self, device: Device, bits: Bits) -> bytes:
        """Answer for a cell drawn evenly."""
        return self.answer(int(below(bits, self.k, 1)[0]), device, bits)

    def table(
        self, support: IntArray, n: int, level: float, labels: Sequence[str], *, records: int = 1, repeats: int = 1
    ) -> Estimates:
        """Invert the channel: the share of clients in each cell."""

        def intervals(wanted: float) -> tuple[list[float], list[float]]:
            low, high = self.interval(support, n, wanted, records=records, repeats=repeats)
            return low.tolist(), high.tolist()

        values, errors = self.frequencies(support, n)
        # That of no report would be 0, and a cell without support is not known exactly: it gets that of one report.
        errors = np.maximum(errors, self.frequencies(np.clip(support, 1, n - 1), n)[1])
        share = np.clip(values, 0.0, 1.0)
        errors = np.sqrt(repeats * (errors**2 + (records - 1) * share * (1 - share) / n))
        return Estimates.raw(labels, values.tolist(), errors.tolist(), level=level, intervals=intervals)

    def checked_values(self, values: npt.ArrayLike) -> IntArray:
        """Refuse values that are not cells of the domain."""
        given = np.asarray(values)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise UsageError("values to randomise are a list of cell numbers", fix="Map each value to its cell first")
        if given.size and (given.min() < 0 or given.max() >= self.k):
            raise UsageError(
                "a value is not a cell of the domain",
                why=f"cells are 0 to {self.k - 1}",
                fix="Map unknown values to the wildcard's cell",
            )
        return given.astype(np.int64, copy=False)

    def checked_columns(self, rows: npt.NDArray[Any], *limits: int) -> IntArray:
        """Refuse rows that do not have one whole number below each of these limits."""
        if rows.ndim != 2 or rows.shape[1] != len(limits) or rows.dtype.kind not in "iu":
            raise self.malformed(f"it is not {len(limits)} numbers")
        if rows.size and (rows.min() < 0 or (rows.max(axis=0) >= limits).any()):
            raise self.malformed("one of its numbers is out of range")
        return rows.astype(np.int64, copy=False)

    def check_listable(self, outcomes: int) -> None:
        """Refuse to enumerate a law over too many outcomes."""
        if outcomes > MOST_OUTCOMES:
            raise UsageError(f"this {self.name} has too many reports to list", fix="Ask for the law of a small domain")


class Oracle(Randomizer):
    """A randomizer whose reports support their own cell with chance p and any other given cell with chance q."""

    @classmethod
    @abstractmethod
    def calibrate(cls, k: int, epsilon: Number) -> Oracle:
        """Choose the integers for a domain and an epsilon, which is never exceeded."""

    @property
    @abstractmethod
    def p(self) -> Fraction:
        """The chance that a report supports its client's cell."""

    @property
    @abstractmethod
    def q(self) -> Fraction:
        """The chance that a report supports another given cell."""

    @property
    def rare_variance(self) -> Fraction:
        """Compute n times the variance for a rare cell, exactly: clients in any language choose an oracle by it."""
        p, q = self.p, self.q
        return q * (1 - q) / (p - q) ** 2

    def variance(self, frequency: float = 0.0, n: int = 1) -> float:
        """Compute the variance of a cell's estimate by its true share and n; by default n times that of a rare cell."""
        p, q = float(self.p), float(self.q)
        r = q + frequency * (p - q)
        return r * (1 - r) / (n * float(self.p - self.q) ** 2)

    def expected_errors(self, reports: int) -> tuple[float, float]:
        """Compute the standard errors of a rare cell and of the worst one."""
        check_reports(reports)
        largest = largest_variance(self.variance(0.0), self.variance(1.0))
        return math.sqrt(self.variance() / reports), math.sqrt(largest / reports)

    def frequencies(self, support: IntArray, n: int) -> tuple[FloatArray, FloatArray]:
        """Invert the two chances: (c/n - q)/(p - q), with the variance r(1-r)/((n-1)(p-q)^2), r = c/n."""
        share, gap = support / n, float(self.p - self.q)
        return (share - float(self.q)) / gap, np.sqrt(share * (1 - share) / max(n - 1, 1)) / gap

    def interval(
        self, support: IntArray, n: int, level: float, *, records: int = 1, repeats: int = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Return the ends of an exact interval of the rate at which reports support a cell, mapped to shares."""
        gap = float(self.p - self.q)
        return share_interval(support, n, level, float(self.q), gap, records=records, repeats=repeats)


class SupportCount:
    """The support of many simulated clients of a randomizer, and its estimate.

    >>> from hushquery.local.oracles.krr import KRR
    >>> from hushquery.noise.sampler import SeededBits
    >>> count = SupportCount(oracle := KRR.calibrate(3, 2))
    >>> count.add_many(oracle.randomize_many([0] * 60_000 + [1] * 30_000 + [2] * 10_000, SeededBits(1)))
    >>> [round(row.value, 1) for row in count.estimate()]
    [0.6, 0.3, 0.1]
    """

    def __init__(self, oracle: Randomizer) -> None:
        self.oracle, self.n = oracle, 0
        self.support: IntArray = np.zeros(oracle.k, dtype=np.int64)

    def add_many(self, rows: npt.NDArray[Any]) -> None:
        """Count rows of ``randomize_many``; if one is refused, none is counted."""
        self.support += self.oracle.support(rows)
        self.n += len(rows)

    def estimate(self, level: float = 0.95) -> Estimates:
        """Estimate the raw, unbiased frequency of each cell, labelled by its number."""
        if self.n < 2:
            raise DataError("an estimate needs at least two reports", fix="Wait for more reports")
        return self.oracle.table(self.support.copy(), self.n, level, [str(cell) for cell in range(self.oracle.k)])


def check_reports(reports: int) -> None:
    """Refuse to forecast an error for fewer than two reports."""
    if reports < 2:
        raise UsageError("an error is forecast for two reports or more", fix="Use the number of clients")


# ---- chances over 2^53 -----------------------------------------------------------------------------------------


def chance_down(p: mpmath.mpf | Fraction) -> int:
    """Return the largest integer chance that is not above the probability ``p``."""
    return _whole(p, mpmath.floor)


def chance_up(p: mpmath.mpf | Fraction) -> int:
    """Return the smallest integer chance that is not below the probability ``p``."""
    return _whole(p, mpmath.ceil)


def _whole(p: mpmath.mpf | Fraction, rounding: Callable[[mpmath.mpf], mpmath.mpf]) -> int:
    if not 0 <= p <= 1:
        raise UsageError("a chance lies between 0 and 1", fix="Calibrate the randomizer from an epsilon")
    with working():
        return int(rounding((rational_mpf(p) if isinstance(p, Fraction) else p) * ONE))


def e_to(epsilon: Fraction) -> mpmath.mpf:
    """Compute e^epsilon at the working precision."""
    with working():
        return mpmath.exp(rational_mpf(epsilon))


def loss_of_ratio(likelier: int, rarer: int) -> Fraction:
    """Compute the epsilon of two chances of one outcome, ln(likelier/rarer), rounded up."""
    if rarer <= 0 or likelier <= 0:
        raise CalibrationError(
            "an outcome is possible for one value only", why="a chance came out as 0", fix="Use a smaller epsilon"
        )
    return loss_of_exact_ratio(Fraction(likelier, rarer))


def check_truth(truth: int, lie: int) -> None:
    """Refuse chances, in any one unit, at which the true answer is rarer than another: the loss would be another."""
    if not 0 < lie <= truth:
        raise CalibrationError(
            "the true answer is rarer than a lie, or there is no lie",
            why="the loss of such chances is not the one that is claimed",
            fix="Calibrate the randomizer from an epsilon",
        )


def coins(numerator: int, n: int, bits: Bits) -> npt.NDArray[np.bool_]:
    """Toss ``n`` coins that show heads with chance ``numerator`` over 2^53."""
    if not 0 <= numerator <= ONE:
        raise UsageError("a chance is an integer from 0 to 2^53", fix="Use chance_down")
    heads: npt.NDArray[np.bool_] = fractions_of_one(n, bits) < np.uint64(numerator)
    return heads


def many_coins(numerator: int, n: int, bits: Bits) -> npt.NDArray[np.bool_]:
    """Toss ``n`` coins like :func:`coins` from an eighth of the bits: the first 8 of 53 decide all but 1 in 256."""
    if not 0 < numerator < ONE:
        return coins(numerator, n, bits)
    first, rest = divmod(numerator, 2**45)
    drawn = bits.words(-(-n // 8)).view(np.uint8)[:n]
    heads: npt.NDArray[np.bool_] = drawn < np.uint8(first)
    ties = np.flatnonzero(drawn == np.uint8(first))
    heads[ties] = (bits.words(len(ties)) >> np.uint64(19)) < np.uint64(rest)
    return heads


def fractions_of_one(n: int, bits: Bits) -> npt.NDArray[np.uint64]:
    """Draw ``n`` uniform integers below 2^53: the upper bits of each word."""
    upper: npt.NDArray[np.uint64] = bits.words(n) >> np.uint64(11)
    return upper


def checked_cells(k: int, least: int = 2) -> int:
    """Refuse a domain that is no domain, or too large for chances of 53 bits."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < least:
        raise UsageError(f"a domain needs at least {least} cells", fix="Set k to the number of possible values")
    if k > MOST_CELLS:
        raise CalibrationError(
            f"a domain of {k:,} cells is too large",
            why=f"the chance of one cell has too few of 53 bits left beyond {MOST_CELLS:,} cells",
            fix="Randomise a shorter head list, or hash the values into fewer cells",
        )
    return int(k)


def checked_epsilon(epsilon: Number) -> Fraction:
    """Refuse an epsilon that can't be run with: not above 0, or above :data:`MOST_EPSILON`."""
    wanted = exact(epsilon, "epsilon")
    if wanted <= 0:
        raise UsageError("epsilon must be above 0", fix="Use a value such as 1")
    if wanted > MOST_EPSILON:
        raise CalibrationError(
            f"epsilon is above {MOST_EPSILON}", why="answers would be true but for one in millions", fix="Use 1 to 5"
        )
    return wanted


def within_budget(chance: int, step: int, loss: Callable[[int], Fraction], epsilon: Fraction) -> int:
    """Move a rounded chance by ``step`` until its exact loss is within epsilon, and refuse what is too coarse."""
    while (claimed := loss(chance)) > epsilon:
        chance += step
    if claimed < _LEAST_SPENT * epsilon:
        raise CalibrationError(
            "chances of 53 bits are too coarse for this domain and epsilon",
            why="they would leave more than a hundredth of epsilon unused",
            fix="Use a larger epsilon or a smaller domain",
        )
    return chance
