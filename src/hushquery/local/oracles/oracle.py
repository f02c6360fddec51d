"""What every frequency oracle shares: a randomizer on the client, a tally on the server.

A randomizer turns a cell of a public domain 0..k-1 into a report; ``support`` says how many reports speak for each
cell; ``frequencies`` undoes the noise. The guarantee of one report is pure epsilon under replace-one: whatever the
client's value was, no report is more than e^epsilon times likelier than under another value.

Reports exist in two forms: one at a time (a ``Report``, with its canonical bytes), and many at once (a NumPy array with
a row per report), for simulations and servers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hushquery.core.estimates import Estimates
from hushquery.core.guarantee import Guarantee
from hushquery.core.rounding import Number
from hushquery.errors import DataError, UsageError
from hushquery.local.server.intervals import share_interval
from hushquery.noise.sampler import Bits

__all__ = ["FloatArray", "IntArray", "Oracle", "Randomizer", "Report", "Tally", "bytes_for", "numbers_from"]

#: One report: a cell, an ascending tuple of cells, the bytes of a bit vector, or (seed, cell).
Report = int | bytes | tuple[int, ...]
#: Whole numbers, one row per report or one per cell.
IntArray = npt.NDArray[np.int64]
#: Estimates and standard errors, one per cell.
FloatArray = npt.NDArray[np.float64]

#: Laws over more outcomes than this are not enumerated.
MOST_OUTCOMES = 2**20
# Reports that are added one by one are counted together.
_PENDING = 1024
# Listed reports are counted in blocks of about so many bytes, so that the arrays made of them stay small.
_LISTED = 1 << 23


class Randomizer(ABC):
    """What a client runs and a server understands: one channel from the cells 0..k-1 to reports."""

    #: The name in a task file.
    name: ClassVar[str]
    #: The number of cells; a field of every subclass.
    k: int

    @property
    @abstractmethod
    def epsilon(self) -> Fraction:
        """What one report costs, from the integers it runs with, rounded up."""

    @property
    @abstractmethod
    def report_bytes(self) -> int:
        """How long every packed report is."""

    @abstractmethod
    def randomize_many(self, values: npt.ArrayLike, bits: Bits) -> npt.NDArray[Any]:
        """Randomise many clients' cells at once; one row per client."""

    @abstractmethod
    def support(self, reports: npt.NDArray[Any]) -> IntArray:
        """Count, for each cell, the reports (rows of ``randomize_many``) that speak for it."""

    @abstractmethod
    def frequencies(self, support: IntArray, n: int) -> tuple[FloatArray, FloatArray]:
        """Give the unbiased frequency of each cell and its standard error, from the support of ``n`` reports."""

    @abstractmethod
    def interval(
        self, support: IntArray, n: int, level: float, *, records: int = 1, repeats: int = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Return the ends of each cell's interval, for clients with ``records`` records in each of ``repeats`` periods.

        See :func:`hushquery.local.server.intervals.share_interval` for what they allow for.
        """

    @abstractmethod
    def law(self, value: int) -> Mapping[Report, float]:
        """Enumerate the chance of every report of a client whose cell is ``value``; for small domains."""

    @abstractmethod
    def report(self, row: Any) -> Report:
        """Give one row of an array of reports as a single report."""

    @abstractmethod
    def rows(self, reports: Iterable[Any]) -> npt.NDArray[Any]:
        """Give single reports as an array; refuses what is no canonical report."""

    @abstractmethod
    def pack(self, report: Report) -> bytes:
        """Give the canonical bytes of a report."""

    @abstractmethod
    def unpack(self, data: bytes) -> Report:
        """Read the bytes of a report; refuses everything that ``pack`` does not write."""

    def unpack_many(self, payloads: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """Read packed reports, one per row of ``report_bytes`` bytes; refuses all of them if one is not canonical."""
        return self.rows([self.unpack(row.tobytes()) for row in payloads])

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Give the name, the domain and the integers it runs with, as plain data."""

    def randomize(self, value: int, bits: Bits) -> Report:
        """Randomise one client's cell."""
        return self.report(self.randomize_many([value], bits)[0])

    def table(
        self,
        support: IntArray,
        n: int,
        labels: Sequence[str],
        level: float,
        guarantee: Guarantee | None = None,
        *,
        records: int = 1,
        repeats: int = 1,
    ) -> Estimates:
        """Return the raw, unbiased frequency of each cell with its standard error and interval."""

        def intervals(wanted: float) -> tuple[list[float], list[float]]:
            low, high = self.interval(support, n, wanted, records=records, repeats=repeats)
            return low.tolist(), high.tolist()

        values, errors = self.frequencies(support, n)
        # That of no report would be 0, and a cell without support is not known exactly: it gets that of one report.
        errors = np.maximum(errors, self.frequencies(np.clip(support, 1, n - 1), n)[1])
        held = np.clip(values, 0.0, 1.0)
        errors = np.sqrt(repeats * (errors**2 + (records - 1) * held * (1 - held) / n))
        return Estimates.raw(
            labels, values.tolist(), errors.tolist(), level=level, guarantee=guarantee, intervals=intervals
        )

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

    def checked_bytes(self, data: bytes) -> bytes:
        """Refuse bytes of another length than a packed report's."""
        if not isinstance(data, bytes | bytearray | memoryview) or len(data) != self.report_bytes:
            raise self.malformed(f"it is not {self.report_bytes} bytes long")
        return bytes(data)

    def malformed(self, why: str) -> DataError:
        """Make the error for what is no report of this randomizer."""
        return DataError(f"this is no {self.name} report", why=why, fix="Reject it; clients of this task never send it")

    def one(self, report: Report) -> Report:
        """Give the report back if it is canonical, else refuse it."""
        return self.report(self.rows([report])[0])


class Oracle(Randomizer):
    """A randomizer whose reports speak for their own cell with chance p and for any other given cell with chance q."""

    @classmethod
    @abstractmethod
    def calibrate(cls, k: int, epsilon: Number) -> Oracle:
        """Choose the integers for a domain and an epsilon, which is never exceeded."""

    @property
    @abstractmethod
    def p(self) -> Fraction:
        """The chance that a report speaks for its client's cell."""

    @property
    @abstractmethod
    def q(self) -> Fraction:
        """The chance that a report speaks for another given cell."""

    @property
    def rare_variance(self) -> Fraction:
        """Compute n times the variance for a rare cell, exactly: clients in any language choose an oracle by it."""
        p, q = self.p, self.q
        return q * (1 - q) / (p - q) ** 2

    def variance(self, frequency: float = 0.0, n: int = 1) -> float:
        """Give the variance of the estimate of a cell that holds ``frequency`` of ``n`` clients drawn at random.

        By default n times the variance for a rare cell, which is what oracles are compared by.
        """
        p, q = float(self.p), float(self.q)
        r = q + frequency * (p - q)
        return r * (1 - r) / (n * float(self.p - self.q) ** 2)

    def frequencies(self, support: IntArray, n: int) -> tuple[FloatArray, FloatArray]:
        """Invert the two chances: (c/n - q)/(p - q), with the variance r(1-r)/((n-1)(p-q)^2), r = c/n."""
        share, gap = support / n, float(self.p - self.q)
        return (share - float(self.q)) / gap, np.sqrt(share * (1 - share) / max(n - 1, 1)) / gap

    def interval(
        self, support: IntArray, n: int, level: float, *, records: int = 1, repeats: int = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Return the ends of an exact interval of the rate at which reports speak for a cell, mapped to shares."""
        gap = float(self.p - self.q)
        return share_interval(support, n, level, float(self.q), gap, records=records, repeats=repeats)


class Tally:
    """The server's side: counts support, merges with other tallies, and estimates.

    >>> from hushquery.local.oracles.krr import KRR
    >>> from hushquery.noise.sampler import SeededBits
    >>> oracle = KRR.calibrate(3, 2)
    >>> tally = Tally(oracle)
    >>> tally.add_many(oracle.randomize_many([0] * 60_000 + [1] * 30_000 + [2] * 10_000, SeededBits(1)))
    >>> [round(row.value, 1) for row in tally.estimate()]
    [0.6, 0.3, 0.1]
    """

    def __init__(self, oracle: Randomizer) -> None:
        self.oracle = oracle
        self._n = 0
        self._support = np.zeros(oracle.k, dtype=np.int64)
        self._pending: list[Any] = []

    @property
    def n(self) -> int:
        """The number of reports."""
        return self._n + len(self._pending)

    @property
    def support(self) -> IntArray:
        """How many reports speak for each cell."""
        self._count_pending()
        return self._support.copy()

    def add(self, report: Report) -> None:
        """Count one report; refuses what is not canonical."""
        self._pending.append(self.oracle.one(report))
        if len(self._pending) >= _PENDING:
            self._count_pending()

    def add_many(self, reports: npt.NDArray[Any] | Iterable[Report]) -> None:
        """Count the rows of ``randomize_many``, or single reports; if one is refused, none is counted."""
        if isinstance(reports, np.ndarray):
            support, n = self.oracle.support(reports), len(reports)
        else:
            support, n = np.zeros_like(self._support), 0
            for block in _blocks(reports, max(1, _LISTED // self.oracle.report_bytes)):
                support += self.oracle.support(self.oracle.rows(block))
                n += len(block)
        self._support += support
        self._n += n

    def merge(self, other: Tally) -> Tally:
        """Give the tally of both; the order in which shards are merged makes no difference."""
        if self.oracle != other.oracle:
            raise UsageError(
                "tallies of different randomizers can't be merged",
                why="their reports have other chances",
                fix="Keep a tally for each task configuration",
            )
        both = Tally(self.oracle)
        both._support, both._n = self.support + other.support, self.n + other.n
        return both

    def estimate(
        self, level: float = 0.95, *, labels: Sequence[str] | None = None, guarantee: Guarantee | None = None
    ) -> Estimates:
        """Give the raw, unbiased frequency of each cell with its standard error and interval.

        Args:
            level: The coverage of each interval.
            labels: The cells' names; their numbers by default.
            guarantee: What the reports promise, to go with the table.
        """
        if self.n < 2:
            raise DataError("an estimate needs at least two reports", fix="Wait for more reports")
        names = [str(cell) for cell in range(self.oracle.k)] if labels is None else list(labels)
        if len(names) != self.oracle.k:
            raise UsageError(f"{len(names)} labels for {self.oracle.k} cells", fix="Give one label per cell")
        return self.oracle.table(self.support, self.n, names, level, guarantee)

    def to_json(self) -> dict[str, Any]:
        """Give the tally as plain data."""
        return {"oracle": self.oracle.describe(), "reports": self.n, "support": self.support.tolist()}

    @classmethod
    def from_json(cls, oracle: Randomizer, data: Mapping[str, Any]) -> Tally:
        """Read what :meth:`to_json` gave; refuses the tally of another randomizer and impossible counts."""
        if not isinstance(data, Mapping) or data.get("oracle") != oracle.describe():
            raise DataError(
                "this tally is not of this randomizer", fix="Load it with the configuration it was made with"
            )
        n, support = data.get("reports"), data.get("support")
        if not (
            type(n) is int
            and 0 <= n < 2**62
            and isinstance(support, list)
            and len(support) == oracle.k
            and all(type(count) is int and 0 <= count <= n for count in support)
        ):
            raise DataError("this tally holds impossible counts", fix="Count the reports again")
        tally = cls(oracle)
        tally._n, tally._support = n, np.array(support, dtype=np.int64)
        return tally

    def _count_pending(self) -> None:
        if self._pending:
            pending, self._pending = self._pending, []
            self.add_many(self.oracle.rows(pending))


def _blocks(reports: Iterable[Report], size: int) -> Iterator[list[Report]]:
    """Cut reports into lists of ``size``; a list that is short enough goes as it is."""
    if isinstance(reports, list) and 0 < len(reports) <= size:
        yield reports
        return
    remaining = iter(reports)
    while block := list(islice(remaining, size)):
        yield block


def numbers_from(payloads: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Read a little-endian number from each row of at most 8 bytes.

    >>> numbers_from(np.array([[1, 0], [0, 1]], dtype=np.uint8)).tolist()
    [1, 256]
    """
    wide = np.zeros((len(payloads), 8), dtype=np.uint8)
    wide[:, : payloads.shape[1]] = payloads
    return wide.view("<u8").astype(np.uint64, copy=False).reshape(len(payloads))


def bytes_for(limit: int) -> int:
    """Give how many bytes hold every integer below ``limit``.

    >>> bytes_for(256), bytes_for(257)
    (1, 2)
    """
    return max(1, math.ceil((limit - 1).bit_length() / 8))
