"""RAPPOR on the client: a value becomes a Bloom filter, a permanent response, and fresh responses.

In each of m cohorts, h hash functions put a value into k bits. The permanent response flips each bit with chance f/2,
by coins from an HMAC under the device's secret: the same value always gets the same answer, and none is stored. A
report's bit is 1 with chance q where the permanent bit is 1, else p, by fresh coins.

``google-python`` is google/rappor's Python client, bit for bit: k up to 32, no task in the MAC, f rounded up to a
multiple of 1/128. ``native`` takes any k, puts the task into the MAC (so that two tasks never share coins), and has
chances over 2^53. A server must decode with the chances that ran: :meth:`Params.chances`. Reference: Erlingsson, Pihur
and Korolova 2014. Proof: docs/proofs/rappor.md.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import numbers
from copy import copy
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import mpmath
import numpy as np
import numpy.typing as npt

from hushquery.core.budget import exact, rational_mpf, round_up, working
from hushquery.errors import UsageError
from hushquery.local.randomizer import ONE, coins
from hushquery.noise.sampler import Bits

BoolArray = npt.NDArray[np.bool_]

#: The six parameters, in the order of the reference's files.
FIELDS = ("k", "h", "m", "p", "q", "f")

#: The largest native Bloom filter, in bits.
MOST_BITS = 2**16

#: The largest number of cohorts.
MOST_COHORTS = 2**16

_MOST_HASHES = 64
_LEAST_SECRET = 16
_BLOOM = b"hushquery rappor bloom v1\0"
_PERMANENT = b"hushquery rappor permanent v1\0"
_COHORT = b"hushquery rappor cohort v1\0"


class Variant(StrEnum):
    """Whose rules turn a value into bits."""

    GOOGLE_PYTHON = "google-python"
    """google/rappor's Python client, bit for bit."""
    NATIVE = "native"
    """Any k, the task in the MAC, exact chances."""

    @classmethod
    def of(cls, text: str) -> Variant:
        """Read a variant from text."""
        try:
            return cls(text)
        except ValueError:
            raise UsageError(
                f"no variant of RAPPOR is called {str(text)!r}", fix="Give google-python or native"
            ) from None


@dataclass(frozen=True)
class Chances:
    """The chances that really run: ``f`` of the permanent response, ``p`` and ``q`` of the instantaneous one."""

    p: Fraction
    q: Fraction
    f: Fraction

    @property
    def p_star(self) -> Fraction:
        """The chance that a report's bit is 1 where the Bloom filter's is 0."""
        return self.f * (self.p + self.q) / 2 + (1 - self.f) * self.p

    @property
    def q_star(self) -> Fraction:
        """The chance that a report's bit is 1 where the Bloom filter's is 1."""
        return self.f * (self.p + self.q) / 2 + (1 - self.f) * self.q


@dataclass(frozen=True)
class Params:
    """What both sides of RAPPOR agree on: k bits of the Bloom filter, h hash functions, m cohorts, and three chances.

    A permanent bit is flipped with chance f/2; a report's bit is 1 with chance q where it is 1, and p where it is 0.

    >>> round(Params(32, 2, 64, 0.25, 0.75, 0.5).permanent_epsilon("native"), 6)  # 4 ln 3
    4.394449
    """

    k: int
    h: int
    m: int
    p: Fraction
    q: Fraction
    f: Fraction

    def __init__(self, k: object, h: object, m: object, p: object, q: object, f: object) -> None:
        for name, value, most in (("k", k, MOST_BITS), ("h", h, _MOST_HASHES), ("m", m, MOST_COHORTS)):
            whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
            if not whole or not 1 <= int(value) <= most:  # type: ignore[call-overload]
                raise UsageError(f"RAPPOR's {name} is no whole number from 1 to {most:,}", fix="See `hushquery rappor`")
            object.__setattr__(self, name, int(value))  # type: ignore[call-overload]
        for name, value in (("p", p), ("q", q), ("f", f)):
            chance = exact(value, f"RAPPOR's {name}")  # type: ignore[arg-type]
            if not 0 <= chance <= 1:
                raise UsageError(
                    f"RAPPOR's {name} is no chance", why="it lies outside 0..1", fix="Give for example 0.5"
                )
            object.__setattr__(self, name, chance)
        if self.p >= self.q:
            raise UsageError(
                "RAPPOR's p must be below its q", why="else a report says nothing, or the opposite", fix="Swap them"
            )

    def require(self, variant: Variant | str) -> Variant:
        """Refuse what a variant can't do."""
        kind = Variant.of(variant)
        if kind is Variant.GOOGLE_PYTHON:
            for name, most in (("k", 32), ("h", 16)):
                if getattr(self, name) > most:
                    raise UsageError(
                        f"{name} is too large for the google-python variant",
                        why=f"it takes {name} up to {most}, and this is {getattr(self, name):,}",
                        fix="Give a smaller one, or use the native variant",
                    )
        return kind

    def cohort(self, cohort: int) -> int:
        """Refuse a cohort that does not exist."""
        if isinstance(cohort, bool) or not isinstance(cohort, int | np.integer) or not 0 <= cohort < self.m:
            raise UsageError("a cohort is out of range", fix=f"Cohorts are the whole numbers from 0 to {self.m - 1}")
        return int(cohort)

    def chances(self, variant: Variant | str) -> Chances:
        """Return the chances that a variant runs with; rounded so that p, q and f never lose more than configured."""
        kind = self.require(variant)
        unit = 128 if kind is Variant.GOOGLE_PYTHON else ONE // 2
        f = Fraction(math.ceil(self.f * unit), unit)
        return Chances(Fraction(math.ceil(self.p * ONE), ONE), Fraction(math.floor(self.q * ONE), ONE), f)

    def permanent_epsilon(self, variant: Variant | str) -> float:
        """Compute what all reports of one value ever cost together (eps infinity), from the chances that run."""
        return permanent_epsilon(self.h, self.chances(variant).f)

    def instant_epsilon(self, variant: Variant | str) -> float:
        """Compute what a single report costs (eps 1), from the chances that run."""
        return instant_epsilon(self.h, self.chances(variant))

    @property
    def bloom_false_positive_rate(self) -> float:
        """How often the Bloom filter of one value also holds another given one: exactly, unlike (1 - (1-1/k)^h)^h."""
        occupied = np.zeros(min(self.k, self.h) + 1)
        occupied[0] = 1.0
        on = np.arange(len(occupied))
        for _ in range(self.h):  # one more hash either hits a bit that is on, or turns one on
            occupied = occupied * on / self.k + np.concatenate([[0.0], (occupied * (self.k - on) / self.k)[:-1]])
        return float((occupied * (on / self.k) ** self.h).sum())


def permanent_epsilon(h: int, f: Fraction) -> float:
    """Compute 2h ln((1 - f/2)/(f/2)), rounded up: two values differ in at most 2h bits. Infinite without noise."""
    if f == 0:
        return math.inf
    with working():
        return round_up(2 * h * mpmath.log(rational_mpf((2 - f) / f)))


def instant_epsilon(h: int, chances: Chances) -> float:
    """Compute h ln(q*(1-p*)/(p*(1-q*))), rounded up: h bits are on in one value only, and h in the other only."""
    p, q = chances.p_star, chances.q_star
    if p == 0 or q == 1:
        return math.inf
    with working():
        return round_up(h * mpmath.log(rational_mpf(q * (1 - p) / (p * (1 - q)))))


def bloom_bits(params: Params, variant: Variant | str, cohort: int, value: bytes) -> list[int]:
    """Compute the h bits, possibly equal ones, that a value turns on in a cohort.

    >>> bloom_bits(Params(16, 2, 64, 0.5, 0.75, 0.5), "google-python", 0, b"apple")
    [4, 0]
    """
    kind = params.require(variant)
    message = params.cohort(cohort).to_bytes(4, "big") + _bytes(value, "a value")
    if kind is Variant.GOOGLE_PYTHON:
        # MD5 is the reference's choice; the filter hides nothing, so a weak hash does no harm.
        return [byte % params.k for byte in hashlib.md5(message, usedforsecurity=False).digest()[: params.h]]
    stream = hashlib.shake_256(_BLOOM + message).digest(8 * params.h)
    return [int.from_bytes(stream[8 * j : 8 * j + 8], "big") % params.k for j in range(params.h)]


def bit_string(number: int, k: int) -> str:
    """Write bits as the reference's files do: the highest first."""
    return format(number, f"0{k}b")


class Encoder:
    """One device: turns values into reports.

    Losing the secret (native: 16 bytes or more), which never leaves the device, makes a new client. The native variant
    separates the coins of tasks by ``task``, the task's id.

    >>> device = Encoder(Params(64, 2, 8, 0.25, 0.75, 0.5), bytes(32), task=b"example")
    >>> bloom = device.bloom(3, b"weather leeds")
    >>> device.permanent(bloom) == device.permanent(bloom)
    True
    """

    def __init__(
        self, params: Params, secret: bytes, variant: Variant | str = Variant.NATIVE, *, task: bytes = b""
    ) -> None:
        self.params = params
        self.variant = params.require(variant)
        self._secret = self._checked(secret)
        self._task = _bytes(task, "a task's id")
        if self.variant is Variant.GOOGLE_PYTHON and task:
            raise UsageError("the google-python variant has no task in its MAC", fix="Leave the task out")
        chances = params.chances(self.variant)
        self._p, self._q = int(chances.p * ONE), int(chances.q * ONE)
        # The permanent coins: whole numbers of 128 for the reference, of 2^53 for the native variant.
        self._noise = int(chances.f * 128) if self.variant is Variant.GOOGLE_PYTHON else int(chances.f / 2 * ONE)

    def __repr__(self) -> str:
        return f"Encoder({self.params}, secret=..., variant={self.variant.value!r})"

    def another(self, secret: bytes) -> Encoder:
        """Return another device for the same task: cheap, for simulations of many clients."""
        device = copy(self)
        device._secret = self._checked(secret)
        return device

    def cohort(self) -> int:
        """Compute this device's cohort from its secret; native only, the reference leaves it to the caller."""
        if self.variant is not Variant.NATIVE:
            raise UsageError("the google-python variant derives no cohort", fix="Give the cohort yourself")
        mac = hmac.digest(self._secret, _COHORT + self._framed_task(), "sha256")
        return int.from_bytes(mac[:16], "big") % self.params.m

    def bloom(self, cohort: int, value: bytes) -> int:
        """Compute a value's Bloom filter, bit i of the integer being bit i of the filter."""
        filled = 0
        for bit in bloom_bits(self.params, self.variant, cohort, value):
            filled |= 1 << bit
        return filled

    def permanent(self, bloom: int) -> int:
        """Compute the permanent response to a Bloom filter: always the same one, without storing anything."""
        self._check_bits(bloom)
        if self.variant is Variant.GOOGLE_PYTHON:
            uniform, noisy = google_masks(self._secret, bloom.to_bytes(4, "big"), self._noise, self.params.k)
            return (bloom & ~noisy) | (uniform & noisy)
        flips = 0
        for i, word in enumerate(self._words(bloom)):
            flips |= ((word >> 11) < self._noise) << i
        return bloom ^ flips

    def instant(self, permanent: int, bits: Bits) -> int:
        """Draw a fresh report of a permanent response: the p coins are drawn before the q coins, bit 0 first."""
        self._check_bits(permanent)
        row = np.array([[permanent >> i & 1 for i in range(self.params.k)]], dtype=np.bool_)
        return int.from_bytes(np.packbits(self.instant_many(row, bits), bitorder="little").tobytes(), "little")

    def instant_many(self, permanent: BoolArray, bits: Bits) -> BoolArray:
        """Draw fresh reports of many permanent responses, one per row of k bits, bit 0 first."""
        n, k = permanent.shape
        if k != self.params.k:
            raise UsageError("a response has other bits than the filter", fix="Use the same params throughout")
        p_coins = coins(self._p, n * k, bits).reshape(n, k)
        q_coins = coins(self._q, n * k, bits).reshape(n, k)
        return np.where(permanent, q_coins, p_coins)

    def _checked(self, secret: bytes) -> bytes:
        if self.variant is Variant.NATIVE and len(_bytes(secret, "a device's secret")) < _LEAST_SECRET:
            raise UsageError(
                "a device's secret is too short",
                why=f"it has fewer than {_LEAST_SECRET} bytes, which can be guessed",
                fix="Draw 32 bytes from the operating system",
            )
        return _bytes(secret, "a device's secret")

    def _words(self, bloom: int) -> list[int]:
        """Compute one 64-bit word for each bit, from the secret, the task and the filter."""
        k = self.params.k
        message = _PERMANENT + self._framed_task() + k.to_bytes(4, "big") + bloom.to_bytes((k + 7) // 8, "big")
        blocks = b"".join(
            hmac.digest(self._secret, message + block.to_bytes(4, "big"), "sha256") for block in range((k + 3) // 4)
        )
        return [int.from_bytes(blocks[8 * i : 8 * i + 8], "big") for i in range(k)]

    def _framed_task(self) -> bytes:
        return len(self._task).to_bytes(4, "big") + self._task

    def _check_bits(self, number: int) -> None:
        if not 0 <= number < 1 << self.params.k:
            raise UsageError("a response has bits that the filter does not have", fix="Use the same params throughout")


def google_masks(secret: bytes, message: bytes, noise: int, k: int) -> tuple[int, int]:
    """Compute google/rappor's coins: a uniform bit for each of k positions, and which (``noise`` of 128) use it."""
    mac = hmac.digest(secret, message, "sha256")
    uniform = noisy = 0
    for i in range(k):
        uniform |= (mac[i] & 1) << i
        noisy |= ((mac[i] >> 1) < noise) << i
    return uniform, noisy


def _bytes(given: bytes, what: str) -> bytes:
    if not isinstance(given, bytes):
        raise UsageError(f"{what} must be bytes", fix="Encode text as UTF-8")
    return given
