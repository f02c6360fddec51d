"""Chances as a client runs them: integers over 2^53, so that Python and JavaScript decide every coin alike.

A calibrated chance is rounded in the direction that loses less, and the epsilon that a randomizer claims is computed
back from the rounded integers, rounded up.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import numpy.typing as npt

from hushquery.core.local_loss import loss_of_ratio as loss_of_exact_ratio
from hushquery.core.rounding import Number, exact, rational_mpf, working
from hushquery.errors import CalibrationError, UsageError
from hushquery.noise.sampler import Bits, below

__all__ = [
    "MOST_CELLS",
    "MOST_EPSILON",
    "ONE",
    "chance_down",
    "chance_up",
    "check_truth",
    "checked_cells",
    "checked_epsilon",
    "coins",
    "e_to",
    "fractions_of_one",
    "loss_of_ratio",
    "many_coins",
    "uniform_below",
    "within_budget",
]

#: The whole: a chance is an integer from 0 to ONE, and a coin shows heads when 53 random bits are below it.
ONE = 2**53

#: More than this is no privacy, and its chances would need more than 53 bits.
MOST_EPSILON = 20

#: The largest domain; beyond it the chance of one cell has too few bits left.
MOST_CELLS = 2**24

# A claim below this share of what was asked for means that the integers are too coarse.
_LEAST_SPENT = Fraction(99, 100)


def chance_down(p: mpmath.mpf | Fraction) -> int:
    """Give the largest integer chance that is not above the probability ``p``.

    >>> chance_down(Fraction(1, 2)) == ONE // 2
    True
    """
    return _whole(p, mpmath.floor)


def chance_up(p: mpmath.mpf | Fraction) -> int:
    """Give the smallest integer chance that is not below the probability ``p``."""
    return _whole(p, mpmath.ceil)


def _whole(p: mpmath.mpf | Fraction, rounding: Callable[[mpmath.mpf], mpmath.mpf]) -> int:
    if not 0 <= p <= 1:
        raise UsageError("a chance lies between 0 and 1", fix="Calibrate the randomizer from an epsilon")
    with working():
        return int(rounding((rational_mpf(p) if isinstance(p, Fraction) else p) * ONE))


def e_to(epsilon: Fraction) -> mpmath.mpf:
    """Give e^epsilon at the working precision."""
    with working():
        return mpmath.exp(rational_mpf(epsilon))


def loss_of_ratio(likelier: int, rarer: int) -> Fraction:
    """Give the epsilon of two chances of one outcome, ln(likelier/rarer), rounded up.

    >>> float(loss_of_ratio(3, 1))
    1.0986122886681098
    """
    if rarer <= 0 or likelier <= 0:
        raise CalibrationError(
            "an outcome is possible for one value only", why="a chance came out as 0", fix="Give a smaller epsilon"
        )
    return loss_of_exact_ratio(Fraction(likelier, rarer))


def check_truth(truth: int, lie: int) -> None:
    """Refuse chances at which the true answer is rarer than another: the loss would be that of the other way round.

    Args:
        truth: The chance of the true answer, in any unit.
        lie: The chance of each other answer, in the same unit.
    """
    if not 0 < lie <= truth:
        raise CalibrationError(
            "the true answer is rarer than a lie, or there is no lie",
            why="the loss of such chances is not the one that is claimed",
            fix="Calibrate the randomizer from an epsilon",
        )


def coins(numerator: int, n: int, bits: Bits) -> npt.NDArray[np.bool_]:
    """Toss ``n`` coins that show heads with chance ``numerator`` over 2^53.

    >>> from hushquery.noise.sampler import SeededBits
    >>> bool(coins(ONE, 3, SeededBits(1)).all()), bool(coins(0, 3, SeededBits(1)).any())
    (True, False)
    """
    if not 0 <= numerator <= ONE:
        raise UsageError("a chance is an integer from 0 to 2^53", fix="Use chance_down")
    heads: npt.NDArray[np.bool_] = fractions_of_one(n, bits) < np.uint64(numerator)
    return heads


def many_coins(numerator: int, n: int, bits: Bits) -> npt.NDArray[np.bool_]:
    """Toss ``n`` coins of the same chance as :func:`coins`, from an eighth of the random bits.

    The first 8 of the 53 bits decide all but one coin in 256; only for those are the other 45 drawn.
    """
    if not 0 < numerator < ONE:
        return coins(numerator, n, bits)
    first, rest = divmod(numerator, 2**45)
    drawn = bits.words(-(-n // 8)).view(np.uint8)[:n]
    heads: npt.NDArray[np.bool_] = drawn < np.uint8(first)
    ties = np.flatnonzero(drawn == np.uint8(first))
    heads[ties] = (bits.words(len(ties)) >> np.uint64(19)) < np.uint64(rest)
    return heads


def fractions_of_one(n: int, bits: Bits) -> npt.NDArray[np.uint64]:
    """Give ``n`` uniform integers below 2^53: the upper bits of each word."""
    upper: npt.NDArray[np.uint64] = bits.words(n) >> np.uint64(11)
    return upper


def uniform_below(bits: Bits, limit: int, n: int) -> npt.NDArray[np.int64]:
    """Give ``n`` integers uniform on 0..limit-1, without modulo bias."""
    return below(bits, limit, n)


def checked_cells(k: int, least: int = 2) -> int:
    """Refuse a domain that is no domain, or too large for chances of 53 bits."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < least:
        raise UsageError(f"a domain needs at least {least} cells", fix="Give k, the number of possible values")
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
        raise UsageError("epsilon must be above 0", fix="Give for example 1")
    if wanted > MOST_EPSILON:
        raise CalibrationError(
            f"epsilon is above {MOST_EPSILON}", why="answers would be true but for one in millions", fix="Give 1 to 5"
        )
    return wanted


def within_budget(chance: int, step: int, loss: Callable[[int], Fraction], epsilon: Fraction) -> int:
    """Move a calibrated chance by ``step`` until its exact loss is within epsilon, and refuse what is too coarse.

    Args:
        chance: Where to begin: the rounded chance, off by a few units at most.
        step: +1 or -1, the direction that loses less.
        loss: The exact loss of a chance.
        epsilon: The budget.
    """
    while (claimed := loss(chance)) > epsilon:
        chance += step
    if claimed < _LEAST_SPENT * epsilon:
        raise CalibrationError(
            "chances of 53 bits are too coarse for this domain and epsilon",
            why="they would leave more than a hundredth of epsilon unused",
            fix="Give a larger epsilon or a smaller domain",
        )
    return chance
