"""The alternative to 1BitMean, for comparison: clients who add Laplace noise to their number."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from hushquery.core.budget import Number
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.randomizer import checked_epsilon
from hushquery.noise.law import DiscreteLaplace
from hushquery.noise.sampler import Bits, sampler

__all__ = ["LaplaceMean"]


@dataclass(frozen=True)
class LaplaceMean:
    """Send the number itself with discrete Laplace noise of scale m/epsilon.

    **Guarantee:** pure epsilon = m/b for one report, replace-one. **Estimator:** the plain average, unbiased; its
    variance is that of the noise over n, about 2 (m/epsilon)^2/n.

    Which is better depends on the clients. Let v be the mean of (x/m - 1/2)^2 over them. A bit is 1 with chance
    c = 1/2 + t (x/m - 1/2), t = tanh(epsilon/2), and is scaled by m/t; so the variance of 1BitMean is the mean of
    c (1-c), times (m/t)^2/n: (1/(4 t^2) - v) m^2/n. For small epsilon that is half of Laplace's. Laplace becomes better
    at epsilon 2.3 if everybody is in the middle (v = 0), at 3.0 if numbers are uniform (v = 1/12), at 3.4 for the
    products of two uniform numbers of ``hushquery experiment local`` (v = 1/9), and never if everybody is at an end
    (v = 1/4), because then 1BitMean's is m^2/(4 n sinh(epsilon/2)^2).

    >>> LaplaceMean.calibrate(100, 1).epsilon
    Fraction(1, 1)
    """

    most: int
    scale: Fraction

    @classmethod
    def calibrate(cls, most: int, epsilon: Number) -> LaplaceMean:
        """Choose the scale."""
        return cls(OneBitMean.calibrate(most, epsilon).most, most / checked_epsilon(epsilon))

    @property
    def epsilon(self) -> Fraction:
        """What one report costs."""
        return self.most / self.scale

    def randomize_many(self, values: npt.ArrayLike, bits: Bits) -> npt.NDArray[np.int64]:
        """Add noise to many clients' numbers."""
        whole = np.asarray(values, dtype=np.int64)
        return whole + sampler(DiscreteLaplace(self.scale)).draw(len(whole), bits)
