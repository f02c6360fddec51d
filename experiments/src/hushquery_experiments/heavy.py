"""Heavy hitters without an opt-in group: the baselines that the hybrid is measured against.

* :class:`PrefixExtending` (PEM): clients in groups; group i reports the first bits of its value, as many as its turn;
  the server keeps the most frequent prefixes, extends each by a few bits, and asks the next group about those.
* :class:`TwoPhases` (LDPMiner): every client holds a set of values of a known domain; phase one finds candidates with
  part of epsilon, phase two measures only these with the rest.

References: Wang, Li and Jha 2021, "Locally differentially private heavy hitter identification" (PEM); Qin, Yang, Yu,
Khalil, Xiao and Ren 2016, "Heavy hitter estimation over set-valued data with local differential privacy" (LDPMiner).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from hushquery.core.budget import Number, exact
from hushquery.errors import UsageError
from hushquery.local.configuration import choose_oracle
from hushquery.local.intervals import IntArray
from hushquery.local.oracles.olh import OLH
from hushquery.local.randomizer import Oracle, SupportCount
from hushquery.noise.sampler import Bits, below

__all__ = ["Hitter", "PrefixExtending", "TwoPhases"]

# Prefixes are hashed into so many cells: too many for two of a few thousand candidates to meet.
_CELLS = 2**24
_MOST_BITS = 62


@dataclass(frozen=True)
class Hitter:
    """A value that many clients seem to hold, with its estimated share and standard error."""

    value: int
    share: float
    stderr: float


@dataclass(frozen=True)
class PrefixExtending:
    """PEM: find frequent values of ``bits`` bits by ever longer prefixes.

    Args:
        oracle: Local hashing over cells of prefixes.
        bits: The length of values.
        first: The length of the first group's prefix.
        step: By how many bits a prefix grows from group to group.
        keep: How many prefixes survive each turn.

    **Guarantee:** pure epsilon for each client, replace-one: every client is in one group and reports once.
    **Estimator:** the last group's raw, unbiased shares; standard errors those of the oracle on one group.

    >>> PrefixExtending.calibrate(2, bits=16, first=8).groups
    3
    """

    oracle: OLH
    bits: int
    first: int
    step: int
    keep: int

    @classmethod
    def calibrate(
        cls, epsilon: Number, *, bits: int = 48, first: int = 12, step: int = 4, keep: int = 32
    ) -> PrefixExtending:
        """Choose the oracle; every group may use all of epsilon."""
        if not (1 <= first <= bits <= _MOST_BITS and 1 <= step <= 12 and first <= 16 and 1 <= keep <= 10_000):
            raise UsageError(
                "prefixes need 1 <= first <= bits <= 62, first <= 16, 1 <= step <= 12 and 1 <= keep <= 10,000",
                fix="Leave them out",
            )
        return cls(OLH.calibrate(_CELLS, epsilon), bits, first, step, keep)

    @property
    def epsilon(self) -> Fraction:
        """What a client's report costs."""
        return self.oracle.epsilon

    @property
    def lengths(self) -> list[int]:
        """The length of each group's prefix."""
        return [*range(self.first, self.bits, self.step), self.bits]

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return len(self.lengths)

    def assign(self, n: int, bits: Bits) -> IntArray:
        """Put each of n clients into a group at random, whatever their values."""
        return below(bits, self.groups, n)

    def randomize_many(self, values: npt.ArrayLike, group: int, bits: Bits) -> IntArray:
        """Return the reports of one group's clients."""
        given = np.asarray(values)
        if given.size and (given.dtype.kind not in "iu" or given.min() < 0 or int(given.max()) >> self.bits):
            raise UsageError(f"a value is not a whole number of {self.bits} bits", fix="Hash or encode it first")
        length = self.lengths[group]
        return self.oracle.randomize_many(_cells(given.astype(np.int64) >> (self.bits - length), length), bits)

    def identify(self, reports: Sequence[IntArray], limit: int = 10) -> list[Hitter]:
        """Find the most frequent values from the reports of all groups, in the order of the groups."""
        if len(reports) != self.groups or any(len(group) < 2 for group in reports):
            raise UsageError("every group must have reported", fix=f"Give reports of {self.groups} groups")
        return self.search(lambda turn, prefixes: self._shares(reports[turn], prefixes, self.lengths[turn]), limit)

    def search(
        self, estimate: Callable[[int, IntArray], tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]], limit: int
    ) -> list[Hitter]:
        """Grow prefixes, asking for the shares and standard errors of candidates as group after group gives them.

        Args:
            estimate: Takes a group and candidate prefixes of its length; a simulation may draw what the group's reports
                would have said.
            limit: How many values to give.
        """
        prefixes = np.arange(2**self.first, dtype=np.int64)
        length = self.first
        for turn in range(self.groups):
            grow = self.lengths[turn] - length
            if grow:
                prefixes = ((prefixes[:, None] << grow) | np.arange(2**grow)).ravel()
                length += grow
            shares, errors = estimate(turn, prefixes)
            best = np.argsort(-shares, kind="stable")[: self.keep if turn < self.groups - 1 else limit]
            prefixes, shares, errors = prefixes[best], shares[best], errors[best]
        return [Hitter(int(v), float(s), float(e)) for v, s, e in zip(prefixes, shares, errors, strict=True)]

    def _shares(
        self, reports: IntArray, prefixes: IntArray, length: int
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Estimate only the candidates' cells."""
        oracle, cells = self.oracle, _cells(prefixes, length)
        slope, begin = np.divmod(reports[:, 0], oracle.prime)
        counts = np.empty(len(cells), dtype=np.int64)
        for i, cell in enumerate(cells.tolist()):
            buckets = (slope * cell + begin) % oracle.prime * oracle.g // oracle.prime
            counts[i] = np.count_nonzero(buckets == reports[:, 1])
        return oracle.frequencies(counts, len(reports))


def _cells(prefixes: IntArray, length: int) -> IntArray:
    """Mix a prefix and its length into a cell; public, the same for clients and server."""
    mixed = prefixes.astype(np.uint64) + np.uint64(length * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return ((mixed ^ (mixed >> np.uint64(31))) % np.uint64(_CELLS)).astype(np.int64)


@dataclass(frozen=True)
class TwoPhases:
    """LDPMiner: candidates first, then their shares, both from every client.

    Args:
        first: The oracle of phase one, over the whole domain and one cell for padding.
        second: The oracle of phase two, over the candidates and one cell for the rest.
        size: l: a client's set is cut or padded to l values, of which one is reported.

    **Guarantee:** pure epsilon_1 + epsilon_2 for each client, replace-one. **Estimator:** l times the oracle's shares;
    unbiased for clients with at most l values among the candidates.

    >>> miner = TwoPhases.calibrate(100, 4, candidates=10, size=3)
    >>> float(miner.epsilon) <= 4, miner.second.k
    (True, 11)
    """

    first: Oracle
    second: Oracle
    size: int

    @classmethod
    def calibrate(
        cls, k: int, epsilon: Number, *, candidates: int = 32, size: int = 1, share: Number = "1/2"
    ) -> TwoPhases:
        """Split epsilon between the phases and choose the best oracle for each."""
        whole, part = exact(epsilon, "epsilon"), exact(share, "the share of phase one")
        if not (1 <= candidates < k and size >= 1 and 0 < part < 1):
            raise UsageError("LDPMiner needs 1 <= candidates < k, size >= 1 and a share between 0 and 1")
        first = choose_oracle(k + 1, whole * part, within="1/50").oracle
        return cls(first, choose_oracle(candidates + 1, whole * (1 - part), within="1/50").oracle, size)

    @property
    def epsilon(self) -> Fraction:
        """What a client's two reports cost together."""
        return self.first.epsilon + self.second.epsilon

    def pick(self, sets: Sequence[Sequence[int]], padding: int, bits: Bits) -> IntArray:
        """Cut or pad each client's set to l values and pick one of them at random."""
        picked = np.full(len(sets), padding, dtype=np.int64)
        for i, place in enumerate(below(bits, self.size, len(sets)).tolist()):
            held = sorted(set(sets[i]))
            if len(held) > self.size:  # which l of them: again at random, without bias
                place = int(below(bits, len(held), 1)[0])
            if place < len(held):
                picked[i] = held[place]
        return picked

    def find_candidates(self, sets: Sequence[Sequence[int]], bits: Bits) -> list[int]:
        """Run phase one: report a value of each set, and give the most frequent ones."""
        padding = self.first.k - 1
        tally = SupportCount(self.first)
        tally.add_many(self.first.randomize_many(self.pick(sets, padding, bits), bits))
        return self.best_candidates(tally.support, tally.n)

    def best_candidates(self, support: IntArray, n: int) -> list[int]:
        """Return the most frequent values, from the support of phase one's ``n`` reports."""
        shares, _ = self.first.frequencies(support, n)
        return [int(value) for value in np.argsort(-shares[:-1], kind="stable")[: self.second.k - 1]]

    def measure(self, sets: Sequence[Sequence[int]], candidates: Sequence[int], bits: Bits) -> list[Hitter]:
        """Run phase two: report a candidate of each set, and give all candidates with their shares of clients."""
        place = {value: i for i, value in enumerate(candidates)}
        if len(place) != self.second.k - 1:
            raise UsageError(f"phase two needs {self.second.k - 1} different candidates", fix="Give those of phase one")
        inside = [[place[value] for value in held if value in place] for held in sets]
        tally = SupportCount(self.second)
        tally.add_many(self.second.randomize_many(self.pick(inside, len(place), bits), bits))
        return self.measured(candidates, tally.support, tally.n)

    def measured(self, candidates: Sequence[int], support: IntArray, n: int) -> list[Hitter]:
        """Return the candidates with their shares, from the support of phase two's ``n`` reports."""
        shares, errors = self.second.frequencies(support, n)
        found = [
            Hitter(int(v), self.size * float(shares[i]), self.size * float(errors[i])) for i, v in enumerate(candidates)
        ]
        return sorted(found, key=lambda hitter: (-hitter.share, hitter.value))
