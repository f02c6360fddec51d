"""Averaging attacks: whoever may ask a device again and again averages the noise away, unless the answer is kept.

The attacker knows that a device holds one of two values, each as likely, collects its reports, adds up what speaks for
either value, and guesses. Whatever pure epsilon covers all reports of a value together, no guess is right with a chance
above e^epsilon/(e^epsilon + 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hushquery.local.numbers.dbitflip import DBitFlip
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.randomizer import Device
from hushquery.local.rappor.response import Encoder, Params, bloom_bits
from hushquery.noise.sampler import Bits

__all__ = ["ASKED", "Attack", "averaging_attacks"]

#: After how many reports of a device the attacker guesses.
ASKED = (1, 4, 16, 64, 256)

_EPSILON = 1
_TASK = b"experiment"
_VALUES = (b"weather", b"maps")

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Attack:
    """One mechanism under attack.

    Attributes:
        mechanism: ``1BitMean``, ``dBitFlip`` or ``RAPPOR``.
        redrawn: Whether its permanent response is drawn anew for each report, as it must not be.
        epsilon: What all reports of a value cost together where the response is kept.
        limit: The largest chance of a right guess that this epsilon allows.
        spread: The standard deviation of the share of right guesses at the limit.
        asked: After how many reports the attacker guesses.
        found: The share of devices whose value was guessed right then; a tie counts one half.
        answers: How many different permanent responses a device gave at most.
    """

    mechanism: str
    redrawn: bool
    epsilon: float
    limit: float
    spread: float
    asked: tuple[int, ...]
    found: tuple[float, ...]
    answers: int


@dataclass(frozen=True)
class _OneConfiguration(Device):
    """A device that runs one configuration only, so that its secret may be the key of its coins."""

    @property
    def coins(self) -> bytes:
        return self.secret


def averaging_attacks(devices: int, asked: Sequence[int], bits: Bits) -> tuple[Attack, ...]:
    """Attack each mechanism twice: with a response drawn anew for each report, and as it is, with a kept one.

    Args:
        devices: How many devices; every other one holds the second value.
        asked: After how many reports the attacker guesses, in ascending order.
        bits: The devices' secrets and coins.
    """
    secrets = [row.tobytes() for row in bits.words(4 * devices).reshape(devices, 4)]
    second = np.arange(devices) % 2 == 1
    times = asked[-1]
    return (
        *_one_bit(secrets, second, times, asked, bits),
        *_dbitflip(secrets, second, times, asked, bits),
        *_rappor(secrets, second, times, asked, bits),
    )


def _one_bit(
    secrets: Sequence[bytes], second: npt.NDArray[np.bool_], times: int, asked: Sequence[int], bits: Bits
) -> tuple[Attack, Attack]:
    """The values are 0 and m: a 1 speaks for m."""
    memo = OneBitMean.calibrate(100, _EPSILON)
    values = np.where(second, memo.most, 0)
    fresh = memo.randomize_many(np.repeat(values, times), bits).reshape(-1, times)
    kept = np.array(
        [
            [memo.respond(value, _OneConfiguration(secret, _TASK, b"")) for _ in range(times)]
            for secret, value in zip(secrets, values.tolist(), strict=True)
        ]
    )
    epsilon = float(memo.epsilon)
    return (
        _attack("1BitMean", True, epsilon, second, 2 * fresh.astype(np.int64) - 1, fresh[..., None], asked),
        _attack("1BitMean", False, epsilon, second, 2 * kept - 1, kept[..., None], asked),
    )


def _dbitflip(
    secrets: Sequence[bytes], second: npt.NDArray[np.bool_], times: int, asked: Sequence[int], bits: Bits
) -> tuple[Attack, Attack]:
    """The values are the first two of four buckets, and every client answers for all four."""
    flip = DBitFlip.calibrate(4, 4, _EPSILON)
    values = second.astype(np.int64)
    sampled = flip.sample(len(values) * times, bits)
    fresh = flip.randomize_many(np.repeat(values, times), sampled, bits).reshape(-1, times, 4).astype(np.int64)
    kept = np.array(
        [
            [flip.respond(value, _OneConfiguration(secret, _TASK, b""))[4:] for _ in range(times)]
            for secret, value in zip(secrets, values.tolist(), strict=True)
        ]
    )
    epsilon = float(flip.epsilon)
    return (
        _attack("dBitFlip", True, epsilon, second, fresh[..., 1] - fresh[..., 0], fresh, asked),
        _attack("dBitFlip", False, epsilon, second, kept[..., 1] - kept[..., 0], kept, asked),
    )


def _rappor(
    secrets: Sequence[bytes], second: npt.NDArray[np.bool_], times: int, asked: Sequence[int], bits: Bits
) -> tuple[Attack, Attack]:
    """Two strings with a bit each; reports are fresh anyway, so averaging finds the permanent response, no more."""
    params = Params(16, 1, 1, "1/4", "3/4", "1/2")
    first_bit, second_bit = (bloom_bits(params, "native", 0, value)[0] for value in _VALUES)
    device = Encoder(params, bytes(16), task=_TASK)
    blooms = [device.bloom(0, _VALUES[int(which)]) for which in second]
    attacks = []
    for redrawn in (True, False):
        answers = np.empty((len(secrets), times), dtype=np.int64)
        for row, (secret, bloom) in enumerate(zip(secrets, blooms, strict=True)):
            new = bits.words(2 * times).tobytes()
            for turn in range(times):
                own = new[16 * turn : 16 * turn + 16] if redrawn else secret
                answers[row, turn] = device.another(own).permanent(bloom)
        permanent = (answers.reshape(-1, 1) >> np.arange(params.k) & 1).astype(np.bool_)
        reports = device.instant_many(permanent, bits).reshape(*answers.shape, params.k).astype(np.int64)
        scores = reports[..., second_bit] - reports[..., first_bit]
        epsilon = params.permanent_epsilon("native")
        attacks.append(_attack("RAPPOR", redrawn, epsilon, second, scores, answers[..., None], asked))
    return attacks[0], attacks[1]


def _attack(
    mechanism: str,
    redrawn: bool,
    epsilon: float,
    second: npt.NDArray[np.bool_],
    scores: IntArray,
    answers: npt.NDArray[np.generic],
    asked: Sequence[int],
) -> Attack:
    """Guess from sums of scores, which are above 0 where reports speak for the second value."""
    sums = np.cumsum(scores, axis=1)[:, np.array(asked) - 1]
    right = np.where(sums == 0, 0.5, (sums > 0) == second[:, None]).mean(axis=0)
    limit = 1 / (1 + math.exp(-epsilon))
    return Attack(
        mechanism,
        redrawn,
        epsilon,
        limit,
        math.sqrt(limit * (1 - limit) / len(second)),
        tuple(asked),
        tuple(right.tolist()),
        max(len(np.unique(device, axis=0)) for device in answers),
    )
