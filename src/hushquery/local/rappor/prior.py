"""RAPPOR's candidates explained together: how likely each is held at all, and by how many.

Least squares pays for the noise of candidates that nobody holds and overrates strings that stand out by chance. Here
every share has the same prior, fitted to the data: nothing with some chance, else a size on a grid of factors of two.
Variational inference (Kim, Wang, Carbonetto and Stephens 2024) finds all shares, at most 1 in sum, without coins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from hushquery.local.intervals import FloatArray

# The smallest sizes that are told apart, in standard errors, and by which factor the next ones are larger.
_FINEST = 2.0
_FACTOR = 2.0
_SWEEPS = 80
# Strings of a block are updated at once; so few hardly overlap.
_BLOCK = 32
# What counts as no movement, in standard errors, and how much of the way the multiplier goes at once.
_STILL = 0.01
_STRIDE = 0.5
_HALVINGS = 40


@dataclass(frozen=True)
class Posterior:
    """For each candidate its mean share, and the chance that nobody holds it (``nothing``), given the bits.

    ``left`` is what its bits add to the others' mean shares, normal around the true share; ``errors`` has the others'
    uncertainty and the ``misfit`` (how much larger residuals are than the noise makes them), ``narrow`` neither.
    """

    shares: FloatArray
    left: FloatArray
    errors: FloatArray
    nothing: FloatArray
    misfit: float
    narrow: FloatArray
    _prior: _Prior
    _pull: FloatArray

    def bar(self, chance: float) -> FloatArray:
        """Return how large ``left`` must be for a string to be held by nobody with less than this chance."""
        low, high = np.zeros_like(self.left), np.full_like(self.left, self._prior.high[-1])
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            over = self._prior.weigh(middle - self._pull, self.errors)[0][:, 0] >= chance
            low, high = np.where(over, middle, low), np.where(over, high, middle)
        return high


@dataclass
class _Prior:
    """No share at all, or one spread evenly between two ends: a histogram, and everything below each of its steps."""

    low: FloatArray
    high: FloatArray
    weight: FloatArray

    @classmethod
    def up_to(cls, largest: float, unit: float) -> _Prior:
        steps = 1 + max(1, math.ceil(math.log(max(largest / (_FINEST * unit), 1.0), _FACTOR)))
        ends = unit * _FINEST * _FACTOR ** np.arange(steps)
        low = np.concatenate([[0.0], ends[:-1], np.zeros(steps - 1)])
        return cls(low, np.concatenate([ends, ends[1:]]), np.full(2 * steps, 1 / (2 * steps)))

    def weigh(self, seen: FloatArray, error: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return, for normal numbers, the chance of each part of the prior (nothing first), mean and variance."""
        x, s = seen[:, None], error[:, None]
        a, b = (self.low - x) / s, (self.high - x) / s
        mass = np.where(a > 0, ndtr(-a) - ndtr(-b), ndtr(b) - ndtr(a))
        inside = np.maximum(mass, 1e-290)
        below, above = _density(a), _density(b)
        mean = np.clip(x + s * (below - above) / inside, self.low, self.high)
        square = s * s * (1 + (a * below - b * above) / inside) + 2 * x * mean - x * x
        square = np.clip(square, mean**2, self.high**2)
        chance = np.concatenate([_density(x / s) / s, mass / (self.high - self.low)], axis=1) * self.weight
        chance[:, -1] += 1e-290  # beyond everything it is as large as anything
        chance /= chance.sum(axis=1, keepdims=True)
        expected = (chance[:, 1:] * mean).sum(axis=1)
        return chance, expected, np.maximum((chance[:, 1:] * square).sum(axis=1) - expected**2, 0.0)


def posterior(normal: FloatArray, against: FloatArray, square: float, rows: int) -> Posterior:
    """Find all shares from the normal matrix, the transposed design times the target, and the target's square sum."""
    diagonal = np.diag(normal).copy()
    narrow = 1 / np.sqrt(diagonal)
    unit = float(np.median(narrow))
    prior = _Prior.up_to(1.5 * float(np.max(against / diagonal)), unit)
    prior.weight = np.full(len(prior.low) + 1, 1 / (len(prior.low) + 1))
    shares, spread = np.zeros(len(against)), np.zeros(len(against))
    explained = np.zeros(len(against))  # the normal matrix times the shares
    noise, pull = 1.0, 0.0
    order = np.argsort(-against / diagonal)
    for _ in range(_SWEEPS):
        before, total = shares.copy(), np.zeros_like(prior.weight)
        for start in range(0, len(order), _BLOCK):
            some = order[start : start + _BLOCK]
            seen = (against[some] - explained[some] - pull) / diagonal[some] + shares[some]
            chance, new, spread[some] = prior.weigh(seen, math.sqrt(noise) * narrow[some])
            explained += (new - shares[some]) @ normal[some]  # a symmetric matrix, and rows are faster to reach
            shares[some] = new
            total += chance.sum(axis=0)
        prior.weight = total / len(order)
        residual = square - 2 * float(shares @ against) + float(shares @ explained) + float(diagonal @ spread)
        noise = max(1.0, residual / rows)
        over = float(shares.sum()) - 1
        pull = max(0.0, pull + _STRIDE * over * noise / max(float(spread.sum()), 1e-300))
        if float(np.abs(shares - before).max()) < _STILL * unit:
            break
    left = (against - explained) / diagonal + shares
    others = (normal**2 @ spread - diagonal**2 * spread) / diagonal**2
    errors = np.sqrt(noise / diagonal + np.maximum(others, 0.0))
    moved = pull / diagonal
    nothing = prior.weigh(left - moved, errors)[0][:, 0]
    return Posterior(shares, left, errors, nothing, math.sqrt(noise), narrow, prior, moved)


def _density(x: FloatArray) -> FloatArray:
    density: FloatArray = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return density
