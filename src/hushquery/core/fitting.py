"""Fit a plan to its budget: one budget divided over many releases, and the least epsilon that is of any use.

Both are data-free, and exact in the direction that matters: what is divided is checked by the sum of losses that the
ledger itself computes, so that as many releases as were asked for fit, and hardly a whit more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from hushquery.core.budget import Budget, exact, significant_up
from hushquery.core.ledger.entries import down_text
from hushquery.core.loss import Loss
from hushquery.errors import CalibrationError, UsageError

#: One budget is divided over at most so many releases.
MOST_TIMES = 400
_MOST_STEPS, _MOST_TRIES = 40, 5


def repeated(loss: Loss, times: int) -> Loss:
    """Return what the same loss costs so many times, as the ledger adds it up.

    >>> repeated(Loss(pure=("1/4",)), 3).epsilon(0)
    0.75
    """
    total, power = Loss(), loss
    while times:
        if times % 2:
            total += power
        times, power = times // 2, power + power if times > 1 else power
    return total


def divide(total: Budget, times: int, loss_at: Callable[[Budget], Loss]) -> Budget:
    """Return the largest budget of one release, such that so many of them together stay within ``total``.

    Each may use half of its equal part of delta; the other half pays for composition, which needs some. ``loss_at``
    returns what a release of some budget costs. Epsilon is rounded down to five digits, and the sum is checked last.

    **Guarantee:** ``times`` releases with the loss at the returned budget are together within ``total``.

    >>> from hushquery.core.calibration import mu_for
    >>> divide(Budget(1), 4, lambda each: Loss(pure=(each.epsilon,)))
    Budget(0.25, 0.0)
    >>> weekly = divide(Budget(1, 1e-6), 52, lambda each: Loss(mu_squared=mu_for(each.epsilon, each.delta) ** 2))
    >>> 0.13 < weekly.epsilon < 0.16
    True
    """
    if isinstance(times, bool) or not 1 <= times <= MOST_TIMES:
        raise UsageError(f"times must be from 1 to {MOST_TIMES:,}", fix="Use --times 52 (times=52) for a year of weeks")
    if times == 1:
        return total
    delta, known = total.delta / (2 * times), dict[Fraction, Loss]()

    def all_of_them(epsilon: Fraction) -> Loss:
        if epsilon not in known:
            known[epsilon] = repeated(loss_at(Budget(epsilon, delta)), times)
        return known[epsilon]

    # Epsilons and deltas add up at worst, so that an equal part of both always fits.
    low, allowed = total.epsilon / times, [0.0]
    for _ in range(_MOST_TRIES if total.delta else 0):
        found = _largest(lambda e: _excess(_simpler(all_of_them(e)), total) - allowed[-1], low, total.epsilon, times)
        left = -_excess(all_of_them(found), total)
        low = found if left >= 0 else low
        if 0 <= left < 2 / times:
            break
        allowed.append(allowed[-1] + left)
    for candidate in (_down(low), _down(total.epsilon / times), total.epsilon / times):
        if all_of_them(candidate).fits(total.epsilon, total.delta):
            return Budget(candidate, delta)
    raise CalibrationError(
        f"{total} can't be divided over {times} releases", fix="Raise epsilon or delta, or publish less often"
    )


def _excess(loss: Loss, total: Budget) -> float:
    """Return how much more than its delta a loss needs at an epsilon, as a logarithm; at most 0 if it fits."""
    needed = loss.delta(total.epsilon)
    return math.log(needed / float(total.delta)) if needed > 0 else -math.inf


def _simpler(loss: Loss) -> Loss:
    """Return a loss that is hardly larger and far quicker to convert: noise and thresholds apart."""
    noise = sum((step.mu_squared for step in loss.sparse), loss.mu_squared)
    failing = sum((Fraction(step.threshold_delta()) for step in loss.sparse), loss.threshold_delta)
    return Loss(noise, loss.pure, min(failing, Fraction(1)), union_delta=loss.union_delta)


def _largest(excess: Callable[[Fraction], float], low: Fraction, high: Fraction, times: int) -> Fraction:
    """Return nearly the largest epsilon at which a rising curve is at most 0."""
    below, above, steps = excess(low), excess(high), 0
    if above <= 0 or below > 0:
        return high if above <= 0 else low
    while (high - low) * 16 * times > high and steps < _MOST_STEPS:
        steps += 1
        middle = (low + high) / 2
        if steps % 3 and math.isfinite(below):  # the logarithm is nearly a line in one over epsilon squared
            near, far = float(low) ** -2, float(high) ** -2
            guess = Fraction((near + (far - near) * below / (below - above)) ** -0.5)
            edge = (high - low) / 50
            middle = min(max(guess, low + edge), high - edge)
        found = excess(middle)
        low, below, high, above = (middle, found, high, above) if found <= 0 else (low, below, middle, found)
    return low


def _down(epsilon: Fraction) -> Fraction:
    place = 5 - len(str(math.floor(epsilon))) if epsilon >= 1 else 4 - math.floor(math.log10(epsilon))
    return Fraction(math.floor(epsilon * 10**place), 10**place)


def least_epsilon(threshold_at: Callable[[Fraction], float], reach: float, start: Fraction) -> float | None:
    """Return an epsilon with two digits, hardly above the least, at which a threshold is at most ``reach``.

    None if there is none up to 20. ``start`` is where the search begins.

    >>> least_epsilon(lambda epsilon: 300 / float(epsilon), 1000, Fraction(1, 100))
    0.3
    """

    def reached(text: str) -> bool:
        return threshold_at(exact(text)) <= reach

    guess = float(start)
    for _ in range(12):  # a threshold is nearly proportional to one over epsilon
        threshold = threshold_at(exact(f"{guess:.6g}"))
        better = guess * threshold / reach
        if abs(better - guess) < guess / 200:
            break
        guess = min(max(better, 1e-4), 20.0)
    text = down_text(guess * 0.97)
    for _ in range(40):
        text = significant_up(exact(text), 2)
        if float(text) > 20:
            return None
        if reached(text):
            return float(text)
        text = f"{float(text) * 1.01:.6g}"
    return None
