"""The curator's mechanisms as the registry knows them: noise on public counts, and thresholds on secret keys.

A world is a tuple of counts, one per key. A count of zero means that nobody holds the key: with a threshold such a
key is
not in the support and is never drawn for.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from hushquery.noise.bits import Bits
from hushquery.noise.law import DiscreteLaplace, RoundedGaussian
from hushquery.noise.sampler import IntArray, sampler
from hushquery.noise.survivors import passing_keys
from hushquery.privacy.gaussian import mu_for, sigma_for
from hushquery.privacy.loss import Loss
from hushquery.privacy.registry import SUPPRESSED, Kind, Mechanism, Pair
from hushquery.privacy.sparse_gaussian import SparseGaussian, calibrate_sparse_gaussian
from hushquery.privacy.thresholds import laplace_delta, laplace_scale, laplace_threshold

__all__ = [
    "GaussianCounts",
    "GaussianThreshold",
    "LaplaceCounts",
    "LaplaceThreshold",
    "add_noise",
    "noisy_law",
    "product_law",
]

Counts = tuple[int, ...]

#: Outcomes whose noise is less likely than this are lumped together at the edge of an enumerated law.
_RARE = 1e-14


def _reach(law: DiscreteLaplace | RoundedGaussian) -> int:
    return law.half_width(1 - _RARE)


class _NoisyCounts(Mechanism[Counts]):
    """What both kinds of noise on public counts share: the release, its law, and what it estimates."""

    law_of_noise: DiscreteLaplace | RoundedGaussian

    def run(self, world: Counts, n: int, bits: Bits) -> IntArray:
        """Add fresh noise to every count, ``n`` times."""
        return add_noise(world, n, self.law_of_noise, bits)

    def law(self, world: Counts) -> Mapping[Counts, float]:
        """Enumerate the noisy counts."""
        return product_law([noisy_law(c, self.law_of_noise) for c in world])

    def truth(self, world: Counts) -> Sequence[float]:
        """The counts themselves."""
        return world

    def variance(self, world: Counts) -> Sequence[float]:
        """The variance of the noise, for each count."""
        return [self.law_of_noise.variance] * len(world)


@dataclass(frozen=True)
class LaplaceCounts(_NoisyCounts):
    """Discrete Laplace noise on counts of which one user changes the sum of absolute values by at most ``sensitivity``.

    **Guarantee:** pure epsilon = sensitivity/b for one user; add-remove or replace-one, whichever the sensitivity is
    for.
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


class _Thresholded(Mechanism[Counts]):
    """What both threshold mechanisms share: the release and its law."""

    kind: ClassVar[Kind] = "selector"
    audit_runs: ClassVar[int] = 8_000_000

    @property
    def keys_per_user(self) -> int:
        raise AttributeError

    @property
    def release_at(self) -> int:
        raise AttributeError

    @property
    def noise(self) -> DiscreteLaplace | RoundedGaussian:
        raise AttributeError

    def pairs(self) -> Sequence[Pair[Counts]]:
        """Keys only the extra user holds, keys shared with others around the threshold, and one of each."""
        d, around = self.keys_per_user, self.release_at
        shared = [
            Pair(f"{d} keys shared with {c} others", (c,) * d, (c + 1,) * d)
            for c in (1, around - 1, around, around + 3)
        ]
        mixed = (
            [Pair("one key shared, the rest new", (around,) + (0,) * (d - 1), (around + 1,) + (1,) * (d - 1))]
            if d > 1
            else []
        )
        return [Pair(f"{d} keys nobody else holds", (0,) * d, (1,) * d), *shared, *mixed]

    def run(self, world: Counts, n: int, bits: Bits) -> IntArray:
        """Release each key iff its noisy count reaches the threshold, ``n`` times."""
        counts = np.tile(np.array(world, dtype=np.int64), n)
        support = np.flatnonzero(counts > 0)
        out = np.full(len(counts), SUPPRESSED, dtype=np.int64)
        positions, noisy = passing_keys(counts[support], self.release_at, self.noise, bits)
        out[support[positions]] = noisy
        return out.reshape(n, len(world))

    def law(self, world: Counts) -> Mapping[Counts, float]:
        """Enumerate what is released, with the noisy counts."""
        singles = []
        for count in world:
            single: dict[Counts, float] = {(SUPPRESSED,): 1.0} if count == 0 else {}
            for (value,), probability in noisy_law(count, self.noise).items() if count else ():
                key = (value if value >= self.release_at else SUPPRESSED,)
                single[key] = single.get(key, 0.0) + probability
            singles.append(single)
        return product_law(singles)


@dataclass(frozen=True)
class LaplaceThreshold(_Thresholded):
    """Release a secret key with its noisy count iff ``count + discrete Laplace noise >= R``; one noise for both.

    **Guarantee:** (d/b, 1 - (1 - a^(R-1)/(1+a))^d) for one user who adds 1 to at most d keys, add-remove.
    **Estimator:** none that is unbiased: a count is seen only when its noise was high enough
    (docs/proofs/thresholds.md).
    **Reference:** Korolova et al. 2009, with the noise reused (docs/proofs/thresholds.md) and an integer threshold.

    >>> LaplaceThreshold.calibrate(Fraction(23, 10), Fraction(1, 10**5), 20).threshold
    122
    """

    d: int
    law_of_noise: DiscreteLaplace
    threshold: int

    name: ClassVar[str] = "laplace-threshold"
    summary: ClassVar[str] = "secret keys with discrete Laplace noise and an integer threshold"

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction, keys_per_user: int = 2) -> LaplaceThreshold:
        """Choose b = d/epsilon and the integer threshold for delta."""
        b = laplace_scale(keys_per_user, epsilon)
        return cls(keys_per_user, DiscreteLaplace(b), laplace_threshold(b, keys_per_user, delta))

    @property
    def keys_per_user(self) -> int:
        """d, the most keys one user adds 1 to."""
        return self.d

    @property
    def release_at(self) -> int:
        """The threshold R: a noisy count from here on is released."""
        return self.threshold

    @property
    def noise(self) -> DiscreteLaplace:
        """The law of the noise."""
        return self.law_of_noise

    @property
    def loss(self) -> Loss:
        """Pure d/b, and the threshold's exact delta."""
        return Loss(
            pure=(self.d / self.law_of_noise.b,),
            threshold_delta=Fraction(laplace_delta(self.law_of_noise.b, self.d, self.threshold)),
        )


@dataclass(frozen=True)
class GaussianThreshold(_Thresholded):
    """Release a secret key with its noisy count iff ``count + rounded Gaussian noise >= R``; one noise for both.

    **Guarantee:** (epsilon, SparseGaussian.delta(epsilon)) for one user who adds 1 to at most d keys, at every epsilon.
    **Estimator:** none that is unbiased: a count is seen only when its noise was high enough.
    **Reference:** Wilkins, Kifer, Zhang and Karrer 2024, with an integer threshold (docs/proofs/gaussian-threshold.md).

    >>> GaussianThreshold.calibrate(Fraction(23, 10), Fraction(1, 10**5), 20).parameters.threshold
    41
    """

    parameters: SparseGaussian

    name: ClassVar[str] = "gaussian-threshold"
    summary: ClassVar[str] = "secret keys with rounded Gaussian noise and an integer threshold"

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction, keys_per_user: int = 2) -> GaussianThreshold:
        """Choose sigma and the integer threshold by the exact curve, add-remove."""
        return cls(calibrate_sparse_gaussian(keys_per_user, epsilon, delta))

    @property
    def keys_per_user(self) -> int:
        """d, the most keys one user adds 1 to."""
        return self.parameters.keys_per_user

    @property
    def release_at(self) -> int:
        """The threshold R: a noisy count from here on is released."""
        return self.parameters.threshold

    @property
    def noise(self) -> RoundedGaussian:
        """The law of the noise."""
        return RoundedGaussian(self.parameters.sigma)

    @property
    def loss(self) -> Loss:
        """The exact curve of the sparse histogram."""
        return Loss(sparse=(self.parameters,))


def add_noise(world: Counts, n: int, law: DiscreteLaplace | RoundedGaussian, bits: Bits) -> IntArray:
    """Add fresh noise to every count, ``n`` times; one row per time."""
    noise = sampler(law).draw(n * len(world), bits).reshape(n, len(world))
    return noise + np.array(world, dtype=np.int64)


def noisy_law(count: int, law: DiscreteLaplace | RoundedGaussian) -> dict[Counts, float]:
    """Enumerate a noisy count; what lies beyond a rare reach is lumped at its edge."""
    reach = _reach(law)
    out: dict[Counts, float] = {(count + z,): law.pmf(z) for z in range(-reach, reach + 1)}
    edge = float(law.sf(reach))
    out[(count - reach,)] += edge
    out[(count + reach,)] += edge
    return out


def product_law(singles: Sequence[Mapping[Counts, float]]) -> dict[Counts, float]:
    """Enumerate the joint law of independent outputs."""
    out: dict[Counts, float] = {}
    for combination in itertools.product(*(s.items() for s in singles)):
        outcome: Counts = ()
        probability = 1.0
        for part, p in combination:
            outcome += part
            probability *= p
        out[outcome] = out.get(outcome, 0.0) + probability
    return out
