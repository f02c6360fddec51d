"""Noise on public counts as the registry knows it, and how laws of noisy counts are listed.

A dataset is a tuple of counts, one per key. Curator noise is added by :func:`~hushquery.noise.sampler.add_noise`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np

from hushquery.core.calibration import laplace_scale, mu_for, sigma_for
from hushquery.core.loss import Loss
from hushquery.core.registry import Mechanism, Pair
from hushquery.noise.law import DiscreteLaplace, Noise, RoundedGaussian
from hushquery.noise.sampler import Bits, IntArray, add_noise

__all__ = ["GaussianCounts", "LaplaceCounts", "noisy_law", "product_law"]

Counts = tuple[int, ...]

#: Outcomes whose noise is less likely than this are lumped together at the edge of an enumerated law.
_RARE = 1e-14


class _NoisyCounts(Mechanism[Counts]):
    """What both kinds of noise on public counts share: the release, its law, and what it estimates."""

    law_of_noise: Noise

    def run(self, dataset: Counts, n: int, bits: Bits) -> IntArray:
        counts = np.tile(np.array(dataset, dtype=np.int64), n)
        return add_noise(counts, self.law_of_noise, bits).reshape(n, len(dataset))

    def law(self, dataset: Counts) -> Mapping[Counts, float]:
        return product_law([noisy_law(c, self.law_of_noise) for c in dataset])

    def truth(self, dataset: Counts) -> Sequence[float]:
        return dataset

    def variance(self, dataset: Counts) -> Sequence[float]:
        return [self.law_of_noise.variance] * len(dataset)


@dataclass(frozen=True)
class LaplaceCounts(_NoisyCounts):
    """Discrete Laplace noise on counts of which one user changes the sum of absolute values by at most ``sensitivity``.

    **Guarantee:** pure epsilon = sensitivity/b for one user, under the relation that the sensitivity is for.
    **Estimator:** the noisy count, unbiased; variance 2a/(1-a)^2, a = e^(-1/b).
    **Reference:** Dwork, McSherry, Nissim and Smith 2006; Ghosh, Roughgarden and Sundararajan 2009.

    >>> LaplaceCounts.calibrate(Fraction(1), Fraction(0)).loss.epsilon(0)
    1.0
    """

    sensitivity: int
    law_of_noise: DiscreteLaplace

    name: ClassVar[str] = "discrete-laplace"
    summary: ClassVar[str] = "discrete Laplace noise on a count"
    audit_runs: ClassVar[int] = 2_000_000

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction, sensitivity: int = 1) -> LaplaceCounts:
        """Choose b = sensitivity/epsilon; delta is not needed and not used."""
        del delta
        return cls(sensitivity, DiscreteLaplace(laplace_scale(sensitivity, epsilon)))

    @property
    def loss(self) -> Loss:
        """Pure epsilon: sensitivity/b."""
        return Loss(pure=(self.sensitivity / self.law_of_noise.b,))

    def pairs(self) -> Sequence[Pair[Counts]]:
        """One count that differs by the sensitivity."""
        return [Pair("a count with one user more", (10,), (10 + self.sensitivity,))]


@dataclass(frozen=True)
class GaussianCounts(_NoisyCounts):
    """Rounded Gaussian noise on counts of which one user changes the sum of squares by at most ``sensitivity_squared``.

    **Guarantee:** mu-GDP with mu^2 = sensitivity_squared/sigma^2, so (epsilon, agd(epsilon, mu)) at every epsilon.
    **Estimator:** the noisy count, unbiased; variance sigma^2 + 1/12.
    **Reference:** Balle and Wang 2018; rounding is post-processing.

    >>> GaussianCounts.calibrate(Fraction(1), Fraction(1, 10**5)).loss.epsilon(1e-5) <= 1
    True
    """

    sensitivity_squared: int
    law_of_noise: RoundedGaussian

    name: ClassVar[str] = "gaussian"
    summary: ClassVar[str] = "rounded Gaussian noise on a count"
    audit_runs: ClassVar[int] = 300_000_000

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction, sensitivity_squared: int = 1) -> GaussianCounts:
        """Choose the smallest sigma for (epsilon, delta) by the analytic Gaussian curve."""
        return cls(sensitivity_squared, RoundedGaussian(sigma_for(sensitivity_squared, mu_for(epsilon, delta) ** 2)))

    @property
    def loss(self) -> Loss:
        """mu^2 = sensitivity_squared/sigma^2."""
        return Loss(mu_squared=self.sensitivity_squared / self.law_of_noise.sigma**2)

    def pairs(self) -> Sequence[Pair[Counts]]:
        """Counts that differ by one, as many as the sensitivity allows."""
        keys = self.sensitivity_squared
        return [Pair("counts with one user more", (10,) * keys, (11,) * keys)]


def noisy_law(count: int, law: Noise, beyond: int = 0) -> dict[Counts, float]:
    """Enumerate a noisy count; noise further out than all but the rarest, and ``beyond``, is lumped at the edges."""
    reach, chances, edge = _likely_noise(law, beyond)
    out: dict[Counts, float] = {(count + z,): p for z, p in zip(range(-reach, reach + 1), chances, strict=True)}
    out[count - reach,] += edge
    out[count + reach,] += edge
    return out


@lru_cache(maxsize=64)
def _likely_noise(law: Noise, beyond: int) -> tuple[int, list[float], float]:
    """Return how far noise is listed, the chances from there to there, and the chance of more on one side."""
    reach = law.half_width(1 - _RARE) + beyond
    above = [law.pmf(z) for z in range(1, reach + 1)]
    return reach, [*reversed(above), law.pmf(0), *above], float(law.sf(reach))


def product_law(singles: Sequence[Mapping[Counts, float]]) -> dict[Counts, float]:
    """Enumerate the joint law of independent outputs."""
    out: dict[Counts, float] = {(): 1.0}
    for single in singles:
        out = {outcome + part: p * q for outcome, p in out.items() for part, q in single.items()}
    return out
