"""The frequency oracles in the registry: one client's report, on a domain small enough to enumerate.

Clients run many at once as in a simulation, and one by one as on devices, from a cell to bytes that a server reads.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from hushquery.core.budget import Relation
from hushquery.core.loss import Loss
from hushquery.core.registry import Kind, Law, Mechanism, Pair
from hushquery.local.intervals import IntArray
from hushquery.local.oracles.hadamard import Hadamard
from hushquery.local.oracles.krr import KRR
from hushquery.local.oracles.olh import OLH
from hushquery.local.oracles.subset import SubsetSelection
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.oracles.unary import OUE
from hushquery.local.randomizer import Device
from hushquery.noise.sampler import Bits

Row = tuple[int, ...]

_CLIENTS = 4_000


def new_devices(n: int, bits: Bits) -> list[Device]:
    """Return devices with secrets of their own, for one task."""
    secrets = bits.words(4 * n).astype("<u8").tobytes()
    return [Device(secrets[32 * i : 32 * i + 32], b"conformance", bytes(32)) for i in range(n)]


@dataclass(frozen=True)
class ChannelReport(Mechanism[int]):
    """One report of a mechanism, as a row of whole numbers; a subclass says on which small domain."""

    oracle: Any

    kind: ClassVar[Kind] = "randomizer"
    relation: ClassVar[Relation] = Relation.REPLACE_ONE

    @staticmethod
    @abstractmethod
    def built(epsilon: Fraction) -> Any:
        """Calibrate the mechanism on the small domain."""

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> Self:
        """Choose the chances; delta is not needed and not used."""
        del delta
        return cls(cls.built(epsilon))

    @property
    def loss(self) -> Loss:
        """Pure epsilon, from the integers."""
        return Loss(pure=(self.oracle.epsilon,))

    def columns(self, reports: npt.NDArray[Any]) -> IntArray:
        """Return the reports as rows of whole numbers; as they are by default."""
        return np.asarray(reports if reports.ndim == 2 else reports[:, None], dtype=np.int64)

    def end_to_end(self, dataset: int, bits: Bits) -> tuple[IntArray, Law]:
        """Randomise client after client as a device does, up to the payload, and read the payloads."""
        kept = [self.oracle.answer(dataset, device, bits) for device in new_devices(_CLIENTS, bits)]
        payloads = b"".join(self.oracle.payload(answer, bits) for answer in kept)
        packed = np.frombuffer(payloads, dtype=np.uint8).reshape(_CLIENTS, self.oracle.report_bytes)
        return self.columns(self.oracle.unpack_many(packed)), self.law(dataset)

    @abstractmethod
    def law(self, dataset: int) -> Mapping[Row, float]:
        """Enumerate the reports."""


class _OneReport(ChannelReport):
    """One report of a frequency oracle."""

    def pairs(self) -> Sequence[Pair[int]]:
        return [Pair("another cell", 0, self.oracle.k - 1)]

    def run(self, dataset: int, n: int, bits: Bits) -> IntArray:
        return self.columns(self.oracle.randomize_many(np.full(n, dataset), bits))

    def law(self, dataset: int) -> Mapping[Row, float]:
        law = self.oracle.law(dataset)
        rows = self.columns(self._array(law))
        return {tuple(row): chance for row, chance in zip(rows.tolist(), law.values(), strict=True)}

    def _array(self, reports: Mapping[Any, float]) -> npt.NDArray[Any]:
        """List the reports of a law as ``randomize_many`` would."""
        return np.array(list(reports), dtype=np.int64)


class _OneHot(_OneReport):
    """A reported cell, shown as the counts that it adds to each cell."""

    def columns(self, reports: npt.NDArray[Any]) -> IntArray:
        return np.asarray(reports[:, None] == np.arange(self.oracle.k), dtype=np.int64)

    def truth(self, dataset: int) -> Sequence[float]:
        """The rates that the estimator inverts: p for the true cell, q for the others."""
        law = self.oracle.law(dataset)
        return [law[cell] for cell in range(self.oracle.k)]

    def variance(self, dataset: int) -> Sequence[float]:
        return [r * (1 - r) for r in self.truth(dataset)]


class BinaryReport(_OneHot):
    """Randomised response over yes and no.

    **Guarantee:** pure epsilon = ln(p/(1-p)) for one report, replace-one (docs/proofs/krr.md).
    **Estimator:** (c/n - q)/(p - q), unbiased; variance r(1-r)/(n (p-q)^2), r the rate of yes.
    **Reference:** Warner 1965.

    >>> BinaryReport.calibrate(Fraction(1), Fraction(0)).oracle.k
    2
    """

    name: ClassVar[str] = "binary-response"
    summary: ClassVar[str] = "randomised response over yes and no"
    built = staticmethod(partial(KRR.calibrate, 2))  # two cells


class ResponseReport(_OneHot):
    """k-ary randomised response over four cells.

    **Guarantee:** pure epsilon = ln(p/q) for one report, replace-one (docs/proofs/krr.md).
    **Estimator:** (c/n - q)/(p - q), unbiased; variance r(1-r)/(n (p-q)^2).
    **Reference:** Kairouz, Bonawitz and Ramage 2016.

    >>> float(ResponseReport.calibrate(Fraction(1), Fraction(0)).oracle.epsilon) <= 1
    True
    """

    name: ClassVar[str] = "krr"
    summary: ClassVar[str] = "k-ary randomised response"
    built = staticmethod(partial(KRR.calibrate, 4))  # four cells


class UnaryReport(_OneReport):
    """Optimised unary encoding over three cells, shown as its bits and as one number that holds them all.

    **Guarantee:** pure epsilon = ln((1-q)/q) for one report, replace-one (docs/proofs/unary.md).
    **Estimator:** (c/n - q)/(1/2 - q), unbiased; variance r(1-r)/(n (1/2-q)^2).
    **Reference:** Wang, Blocki, Li and Jha 2017.

    >>> UnaryReport.calibrate(Fraction(1), Fraction(0)).truth(0)[0]
    0.5
    """

    name: ClassVar[str] = "oue"
    summary: ClassVar[str] = "optimised unary encoding: a noisy bit per cell"
    built = staticmethod(partial(OUE.calibrate, 3))  # three cells

    def columns(self, reports: npt.NDArray[Any]) -> IntArray:
        """The bits, then their number."""
        bits = np.unpackbits(reports, axis=1, bitorder="little")[:, : self.oracle.k].astype(np.int64)
        return np.concatenate([bits, bits @ self._weights[:, None]], axis=1)

    def truth(self, dataset: int) -> Sequence[float]:
        """The rate of each bit, and the mean of the number."""
        rates = self._rates(dataset)
        return [*rates.tolist(), float(rates @ self._weights)]

    def variance(self, dataset: int) -> Sequence[float]:
        """r(1-r) for each bit; the bits are independent."""
        spread = self._rates(dataset) * (1 - self._rates(dataset))
        return [*spread.tolist(), float(spread @ self._weights**2)]

    @property
    def _weights(self) -> IntArray:
        return 2 ** np.arange(self.oracle.k, dtype=np.int64)

    def _rates(self, dataset: int) -> npt.NDArray[np.float64]:
        law = self.oracle.law(dataset)
        bits = np.unpackbits(self._array(law), axis=1, bitorder="little")[:, : self.oracle.k]
        return np.array(list(law.values())) @ bits

    def _array(self, reports: Mapping[Any, float]) -> npt.NDArray[np.uint8]:
        return np.frombuffer(b"".join(reports), dtype=np.uint8).reshape(len(reports), -1)


class _SeedAndBit(_OneReport):
    """A public seed and a private bit, shown as one number, so that an audit sees both at once."""

    def columns(self, reports: npt.NDArray[Any]) -> IntArray:
        return np.asarray(reports[:, 0] * 2 + reports[:, 1], dtype=np.int64)[:, None]


class HashedReport(_SeedAndBit):
    """Optimised local hashing of three cells into two buckets, with nine seeds.

    **Guarantee:** pure epsilon = ln(p/lie) over the buckets for one report, replace-one (docs/proofs/olh.md).
    **Estimator:** (c/n - q)/(p - q), unbiased; variance r(1-r)/(n (p-q)^2).
    **Reference:** Wang, Blocki, Li and Jha 2017.

    >>> len(HashedReport.calibrate(Fraction(1), Fraction(0)).law(0))
    18
    """

    name: ClassVar[str] = "olh"
    summary: ClassVar[str] = "optimised local hashing: a noisy bucket of a random hash"
    audit_runs: ClassVar[int] = 2_000_000
    built = staticmethod(partial(OLH.calibrate, 3, g=2, prime=3))  # the hash modulo 3 instead of 2^31 - 1


class HadamardReport(_SeedAndBit):
    """Hadamard response over four cells.

    **Guarantee:** pure epsilon = ln((1-flip)/flip) for one report, replace-one (docs/proofs/hadamard.md).
    **Estimator:** (c/n - 1/2)/(p - 1/2), unbiased; variance r(1-r)/(n (p-1/2)^2).
    **Reference:** Bassily, Nissim, Stemmer and Thakurta 2017; Acharya, Sun and Zhang 2019.

    >>> len(HadamardReport.calibrate(Fraction(1), Fraction(0)).law(0))
    8
    """

    name: ClassVar[str] = "hadamard"
    summary: ClassVar[str] = "Hadamard response: a noisy bit about a random row"
    audit_runs: ClassVar[int] = 1_000_000
    built = staticmethod(partial(Hadamard.calibrate, 4))  # four cells


class SubsetReport(_OneReport):
    """Subset selection of two of five cells, in the order in which they leave.

    **Guarantee:** pure epsilon = ln(p(k-omega)/((1-p)omega)) for one report, replace-one (docs/proofs/subset.md).
    **Estimator:** (c/n - q)/(p - q), unbiased; variance r(1-r)/(n (p-q)^2).
    **Reference:** Ye and Barg 2018; Wang et al. 2016.

    >>> len(SubsetReport.calibrate(Fraction(1), Fraction(0)).law(0))
    10
    """

    name: ClassVar[str] = "subset"
    summary: ClassVar[str] = "subset selection: a small set of cells"
    audit_runs: ClassVar[int] = 1_000_000
    built = staticmethod(partial(SubsetSelection.calibrate, 5, omega=2))  # two of five cells, whatever epsilon is


class TwoStageReport(_OneReport):
    """Two-stage randomised response over a query with two URLs, one with one, and the rest; tight.

    **Guarantee:** pure epsilon = max(eps_U, eps_Q + ln max(k_q t_q)) for one report, replace-one
    (docs/proofs/two-stage.md).
    **Estimator:** the inverted channel, unbiased; corrected variance.
    **Reference:** Avent, Korolova, Zeber, Hovden and Livshits 2017.

    >>> len(TwoStageReport.calibrate(Fraction(1), Fraction(0)).law(0))
    6
    """

    name: ClassVar[str] = "two-stage"
    summary: ClassVar[str] = "two-stage randomised response: the query, then the URL given the query"
    audit_runs: ClassVar[int] = 1_000_000
    built = staticmethod(partial(TwoStage.calibrate, (2, 1), mode="tight"))  # six cells of three queries

    def pairs(self) -> Sequence[Pair[int]]:
        """Another URL of the query, another query, and no query of the head list."""
        return [
            Pair("another URL of the same query", 0, 1),
            Pair("another query", 0, 3),
            Pair("a query that the head list does not know", 0, 5),
        ]
