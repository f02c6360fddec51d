"""Negative controls of the hybrid model: head lists that are broken as a reader of the paper might break them.

Each runs its defect and claims the (epsilon, delta) of the honest head list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from hushquery.core.registry import SUPPRESSED, Mechanism, Pair
from hushquery.curator.audit import passing_bit, passing_law
from hushquery.curator.counting import law_of
from hushquery.hybrid.mechanisms import RECORDS, HeadDraws, HeadList, holders
from hushquery.noise.mechanisms import noisy_law, product_law
from hushquery.noise.sampler import Bits, IntArray, sampler

__all__ = ["HYBRID_CONTROLS"]

Outcome = tuple[int, ...]
_FIRST, _SECOND, _ = RECORDS


@dataclass(frozen=True)
class _FreshWildcard(HeadDraws):
    """Counts reused and the wildcard counted too, with a draw of its own: a third count that one exchange moves.

    Of what it publishes, the output holds what an attacker needs: whether the second record is in the list, and where
    it is hidden, how far the first is above or the wildcard below its usual level, whichever is less.
    """

    @property
    def level(self) -> int:
        return (self.step.threshold or 0) + 12

    @property
    def second(self) -> int:
        """How many hold the second record: just too few, so that one more would carry it over half of the time."""
        return (self.step.threshold or 0) - 1

    def runs(self, counts: Sequence[int], users: int, n: int, bits: Bits) -> IntArray:
        out = super().runs(counts[:2], users, n, bits)[:, :2]
        listed = out != SUPPRESSED
        wildcard = users - listed @ np.array(counts[:2]) + sampler(law_of(self.step)).draw(n, bits)
        apart = np.minimum(np.where(listed[:, 0], out[:, 0], 0) - self.level, self.second - wildcard)
        shown = np.where(listed[:, 0] & ~listed[:, 1], apart, SUPPRESSED)
        return np.column_stack([np.where(listed[:, 1], 1, SUPPRESSED), shown])

    def law(self, counts: Sequence[int], users: int) -> Mapping[Outcome, float]:
        first, second = passing_law(counts[0], self.step), passing_bit(counts[1], self.step)
        # Where the second record is listed or the first is not, nothing else is shown.
        shown, hidden = 1 - first[SUPPRESSED,], second[SUPPRESSED,]
        out: dict[Outcome, float] = {(1, SUPPRESSED): second[1,], (SUPPRESSED, SUPPRESSED): hidden * (1 - shown)}
        for (count, wildcard), chance in product_law(
            [
                {value: p for value, p in first.items() if value != (SUPPRESSED,)},
                noisy_law(users - counts[0], law_of(self.step)),
            ]
        ).items():
            key = (SUPPRESSED, min(count - self.level, self.second - wildcard))
            out[key] = out.get(key, 0.0) + hidden * chance
        return out


@dataclass(frozen=True)
class _OtherDraws(HeadDraws):
    """The cost of one step stated, and another step drawn."""

    drawn: HeadDraws

    def runs(self, counts: Sequence[int], users: int, n: int, bits: Bits) -> IntArray:
        return self.drawn.runs(counts, users, n, bits)

    def law(self, counts: Sequence[int], users: int) -> Mapping[Outcome, float]:
        return self.drawn.law(counts, users)


@dataclass(frozen=True)
class _TrueSize(HeadDraws):
    """The number of distinct records of the opt-in users printed beside the head list."""

    def runs(self, counts: Sequence[int], users: int, n: int, bits: Bits) -> IntArray:
        distinct = np.full(n, np.count_nonzero(counts), dtype=np.int64)
        return np.column_stack([super().runs(counts, users, n, bits), distinct])

    def law(self, counts: Sequence[int], users: int) -> Mapping[Outcome, float]:
        distinct = int(np.count_nonzero(counts))
        return {(*outcome, distinct): chance for outcome, chance in super().law(counts, users).items()}


def _fresh_wildcard(epsilon: Fraction, delta: Fraction) -> Mechanism[Any]:
    draws = _FreshWildcard(HeadList.calibrate(epsilon, delta).draws.step)
    others = holders("a", draws.level, _FIRST) + holders("b", draws.second, _SECOND)
    left, right = (others + holders("zoe", 1, record) for record in (_FIRST, _SECOND))
    return HeadList(draws, (Pair("a head record for one at the threshold", left, right),))


def _half_the_noise(epsilon: Fraction, delta: Fraction) -> Mechanism[Any]:
    """Draw with b = m_O/epsilon, which is enough for a user who is added, and claim it for a user who is exchanged."""
    honest = HeadList.calibrate(epsilon, delta)
    step = honest.draws.step
    drawn = HeadDraws(replace(step, scale=step.scale / 2))
    return HeadList(_OtherDraws(step, drawn), (honest.pairs()[0],))


def _one_too_low(epsilon: Fraction, delta: Fraction) -> Mechanism[Any]:
    """Release from floor(tau) on, where delta is computed for what is above tau."""
    honest = HeadList.calibrate(epsilon, delta)
    step = honest.draws.step
    drawn = HeadDraws(replace(step, threshold=(step.threshold or 0) - 1))
    return HeadList(_OtherDraws(step, drawn), (honest.pairs()[1],))


def _true_size(epsilon: Fraction, delta: Fraction) -> Mechanism[Any]:
    honest = HeadList.calibrate(epsilon, delta)
    return HeadList(_TrueSize(honest.draws.step), (honest.pairs()[2],))


#: The negative controls of the hybrid model: name, and how to build it for an honest head list's (epsilon, delta).
HYBRID_CONTROLS: dict[str, Callable[[Fraction, Fraction], Mechanism[Any]]] = {
    "head list with a fresh draw for the wildcard": _fresh_wildcard,
    "head list with the noise of add-remove": _half_the_noise,
    "head list released from one too low": _one_too_low,
    "head list with the true number of records": _true_size,
}
