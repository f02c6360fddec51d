"""Negative controls: mechanisms that are broken on purpose, in the ways real libraries were.

Each claims more privacy than it gives. An audit that does not flag every one of them is worth nothing, so they are
part of
the tests, and ``hushquery audit --controls`` runs them for whoever wants to see the audit work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from hushquery.basic.mechanisms import CappedRowCount
from hushquery.basic.queries import CountRows
from hushquery.noise.bits import Bits
from hushquery.noise.law import DiscreteLaplace, RoundedGaussian
from hushquery.noise.mechanisms import GaussianCounts, LaplaceCounts, LaplaceThreshold
from hushquery.noise.sampler import IntArray, sampler
from hushquery.privacy.loss import Loss
from hushquery.privacy.registry import Mechanism, Pair
from hushquery.privacy.thresholds import laplace_scale

__all__ = ["CONTROLS", "Broken"]

Counts = tuple[int, ...]


@dataclass(frozen=True)
class Broken(Mechanism[Any]):
    """A mechanism that runs one thing and claims another."""

    runs: Mechanism[Any]
    claims: Loss
    name: ClassVar[str] = "broken"
    summary: ClassVar[str] = "a negative control"
    defect: str = ""

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction) -> Broken:
        """Not by name: a negative control is built by its entry in :data:`CONTROLS`."""
        raise TypeError(epsilon, delta)

    @property
    def loss(self) -> Loss:
        """The false claim."""
        return self.claims

    def pairs(self) -> Sequence[Pair[Any]]:
        """The pairs of what runs."""
        return self.runs.pairs()

    def run(self, world: Any, n: int, bits: Bits) -> IntArray:
        """Run it."""
        return self.runs.run(world, n, bits)

    def law(self, world: Any) -> Mapping[tuple[int, ...], float] | None:
        """The law of what runs."""
        return self.runs.law(world)


@dataclass(frozen=True)
class _LastBare(LaplaceCounts):
    """Noise on every count but the last."""

    def pairs(self) -> Sequence[Pair[Counts]]:
        return [Pair("counts with one user more", (10, 10), (10, 11))]

    def run(self, world: Counts, n: int, bits: Bits) -> IntArray:
        out = super().run(world, n, bits)
        out[:, -1] = world[-1]
        return out

    def law(self, world: Counts) -> Mapping[Counts, float]:
        return {(value, world[-1]): p for (value,), p in super().law(world[:-1]).items()}


@dataclass(frozen=True)
class _CutTail(LaplaceCounts):
    """Noise redrawn until it lies within 4 scales: outputs just beyond are possible in one world only."""

    def _cut(self) -> int:
        return math.ceil(4 * self.law_of_noise.b)

    def run(self, world: Counts, n: int, bits: Bits) -> IntArray:
        noise = sampler(self.law_of_noise).draw(n * len(world), bits)
        while (beyond := np.flatnonzero(np.abs(noise) > self._cut())).size:
            noise[beyond] = sampler(self.law_of_noise).draw(len(beyond), bits)
        return noise.reshape(n, len(world)) + np.array(world, dtype=np.int64)

    def law(self, world: Counts) -> Mapping[Counts, float]:
        inside = {z: self.law_of_noise.pmf(z) for z in range(-self._cut(), self._cut() + 1)}
        total = math.fsum(inside.values())
        return {(world[0] + z,): p / total for z, p in inside.items()}


def _halved_laplace(epsilon: Fraction, delta: Fraction) -> Broken:
    honest = LaplaceCounts.calibrate(epsilon, delta)
    return Broken(replace(honest, law_of_noise=DiscreteLaplace(honest.law_of_noise.b / 2)), honest.loss)


def _halved_gaussian(epsilon: Fraction, delta: Fraction) -> Broken:
    honest = GaussianCounts.calibrate(epsilon, delta)
    return Broken(replace(honest, law_of_noise=RoundedGaussian(honest.law_of_noise.sigma / 2)), honest.loss)


def _lowered_threshold(epsilon: Fraction, delta: Fraction) -> Broken:
    honest = LaplaceThreshold.calibrate(epsilon, delta)
    return Broken(replace(honest, threshold=honest.threshold - 2 * math.ceil(honest.law_of_noise.b)), honest.loss)


def _off_by_one(epsilon: Fraction, delta: Fraction) -> Broken:
    """Release counts equal to the threshold while delta is computed for greater ones, at the worst epsilon for it."""
    honest = LaplaceThreshold.calibrate(epsilon, delta, 1)
    return Broken(replace(honest, threshold=honest.threshold - 1), honest.loss)


def _real_threshold(epsilon: Fraction, delta: Fraction) -> Broken:
    """Compare integer noise with the real K = 1 + b ln(1/(2 delta)) of continuous noise, at its worst fraction."""
    b = laplace_scale(1, epsilon)
    steps = math.ceil(float(b) * math.log(1 / (2 * float(delta))))
    claimed = Fraction(0.5 * math.exp(-steps / float(b)) * (1 + 1e-9))
    # noisy > K with K - 1 just below the whole number `steps` means noisy >= 1 + steps.
    return Broken(LaplaceThreshold(1, DiscreteLaplace(b), 1 + steps), Loss(pure=(1 / b,), threshold_delta=claimed))


def _no_cap(epsilon: Fraction, delta: Fraction) -> Broken:
    honest = CappedRowCount.calibrate(epsilon, delta)
    return Broken(replace(honest, question=CountRows(10**9)), honest.loss)


def _last_bare(epsilon: Fraction, delta: Fraction) -> Broken:
    honest = LaplaceCounts.calibrate(epsilon, delta)
    return Broken(_LastBare(honest.sensitivity, honest.law_of_noise), honest.loss)


def _cut_tail(epsilon: Fraction, delta: Fraction) -> Broken:
    honest = LaplaceCounts.calibrate(epsilon, delta)
    return Broken(_CutTail(honest.sensitivity, honest.law_of_noise), honest.loss)


#: Every negative control: its name, and how to build it for an honest mechanism's (epsilon, delta).
CONTROLS = {
    "laplace noise halved": _halved_laplace,
    "gaussian noise halved": _halved_gaussian,
    "threshold lowered": _lowered_threshold,
    "threshold off by one": _off_by_one,
    "real threshold on integer noise": _real_threshold,
    "per-user cap removed": _no_cap,
    "last element left bare": _last_bare,
    "tail of the noise cut": _cut_tail,
}
