"""Attack a mechanism: find lower bounds on its epsilon by running it on neighbouring inputs.

An audit can refute a claim, never prove one. ``events`` learns an event on one half of the runs and tests it on the
other; the same runs would not make a confidence bound. ``one-run`` guesses which of many canaries a single release
contains (Steinke, Nasr and Jagielski 2023).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from hushquery.core.budget import Number, exact
from hushquery.core.registry import SUPPRESSED, Mechanism, Pair, find
from hushquery.errors import UsageError
from hushquery.noise.sampler import Bits, SeededBits, SystemBits, below

__all__ = ["AuditResult", "Direction", "Event", "audit", "exact_chances", "one_run_p_value"]

IntArray = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
Method = Literal["events", "one-run"]
Progress = Callable[[float], None]

# Runs made at once, always as many: a table for noise in bulk is then built once. Directions are learned on the first.
_CHUNK = 50_000
_RANGE = 4_000_000
# The largest weight of a direction, whose weights are whole so that its values are.
_WEIGHT = 64
_MOST_DIFFERENCES = 8
# Words tried at first, evenly spread; an output with a chance of less than one in this many could be missed.
_TRIED = 2**12


@dataclass(frozen=True)
class AuditResult:
    """The result of an audit; ``lower_bound`` is below the true epsilon with probability ``confidence``."""

    mechanism: str
    claimed_epsilon: float
    claimed_delta: float
    lower_bound: float
    confidence: float
    runs: int
    flagged: bool
    method: Method
    pair: str
    event: str

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data; an infinite bound becomes the text "inf"."""
        data = asdict(self)
        if math.isinf(self.lower_bound):
            data["lower_bound"] = "inf"
        return data


@dataclass(frozen=True)
class Event:
    """A set of outputs: those whose ``view`` is at least, at most or exactly ``value``."""

    view: str
    relation: str
    value: int
    likelier_left: bool

    def __str__(self) -> str:
        return f"{self.view} " + ("not published" if self.value == SUPPRESSED else f"{self.relation} {self.value}")

    def happened(self, views: dict[str, IntArray]) -> npt.NDArray[np.bool_]:
        """Return for each output whether it is in the event."""
        compare = {"==": np.equal, ">=": np.greater_equal, "<=": np.less_equal}[self.relation]
        hit: npt.NDArray[np.bool_] = compare(views[self.view], self.value)
        return hit


def audit(
    mechanism: str | Mechanism[Any],
    epsilon: Number,
    delta: Number = 1e-5,
    *,
    runs: int | None = None,
    seed: int | None = None,
    confidence: float = 0.999,
    method: Method = "events",
    progress: Progress | None = None,
) -> AuditResult:
    """Look for a proof that a mechanism loses more than (epsilon, delta).

    Args:
        mechanism: A registered name, ``FILE.py:Class``, or a mechanism (epsilon and delta are then only the claim).
        epsilon: The claim.
        delta: The claim. An audit spends nothing, so this has a default.
        runs: Per dataset; by default what the mechanism needs to come near a claim of epsilon 1.
        seed: A seed for repeatable runs; by default the operating system's randomness.
        confidence: That the bound is below the true epsilon.
        method: ``events`` or ``one-run``.
        progress: Called with the fraction done.

    >>> audit("discrete-laplace", 1, runs=20_000, seed=1).flagged
    False
    """
    claimed_epsilon, claimed_delta = exact(epsilon, "epsilon"), exact(delta, "delta")
    if claimed_epsilon < 0 or not 0 <= claimed_delta < 1:
        raise UsageError("a claim has epsilon >= 0 and 0 <= delta < 1", fix="Give the claim to be tested")
    if method not in ("events", "one-run"):
        raise UsageError(f"no audit method is called {method!r}", fix="Give events or one-run")
    if not 0.5 <= confidence < 1:
        raise UsageError("confidence must be at least 0.5 and below 1", fix="Give for example 0.999")
    target = find(mechanism).calibrate(claimed_epsilon, claimed_delta) if isinstance(mechanism, str) else mechanism
    count = target.audit_runs if runs is None else runs
    if not 100 <= count <= 10**10:
        raise UsageError("an audit needs 100 to 10,000,000,000 runs", fix="Leave --runs out for a sensible number")
    bits: Bits = SystemBits() if seed is None else SeededBits(f"audit {seed}")
    search = _EventSearch(target, float(claimed_delta), confidence, bits, progress or (lambda _: None))
    bound, pair, event = (search.events if method == "events" else search.one_run)(count)
    name, claim = mechanism if isinstance(mechanism, str) else mechanism.name, float(claimed_epsilon)
    flagged, what = bound > claim, (pair.name, str(event))
    return AuditResult(name, claim, float(claimed_delta), bound, confidence, count, flagged, method, *what)


class _EventSearch:
    """One audit: where it draws from, what it allows, and how far it is."""

    def __init__(
        self, mechanism: Mechanism[Any], delta: float, confidence: float, bits: Bits, progress: Progress
    ) -> None:
        self._mechanism, self._delta, self._bits, self._progress = mechanism, delta, bits, progress
        self._alpha = 1 - confidence
        self._from, self._share = 0.0, 1.0
        self._directions: list[Direction] = []

    def events(self, runs: int) -> tuple[float, Pair[Any], Event]:
        """Return the best bound of all pairs; each may fail with its share of alpha, which pays for trying several."""
        pairs = list(self._mechanism.pairs())
        bounds = []
        for i, pair in enumerate(pairs):
            self._from, self._share = i / len(pairs), 1 / len(pairs)
            self._directions = []
            _, event = self._choose(pair, runs // 2)
            trials = runs - runs // 2
            left = self._frequency(pair.left, event, trials, 0.5)
            right = self._frequency(pair.right, event, trials, 0.75)
            hits, misses = (left, right) if event.likelier_left else (right, left)
            bound = self._bound(np.array([hits]), np.array([misses]), trials, self._alpha / len(pairs))
            bounds.append((float(bound[0]), pair, event))
        return max(bounds, key=lambda result: result[0])

    def one_run(self, canaries: int) -> tuple[float, Pair[Any], Event]:
        """Fix the attacker's two events beforehand, then guess the coins of all canaries in one release."""
        candidates = [(self._choose(p, max(1000, canaries // 2)), p) for p in self._mechanism.pairs()]
        pair = max(candidates, key=lambda c: c[0][0])[1]
        guess_left = self._choose(pair, canaries, towards_left=True)[1]
        guess_right = self._choose(pair, canaries, towards_left=False)[1]
        inside = int((below(self._bits, 2, canaries)).sum())
        correct = guesses = 0
        for dataset, runs, is_left in ((pair.left, canaries - inside, True), (pair.right, inside, False)):
            for outputs in self._outputs(dataset, runs):
                views = _views(outputs, self._directions)
                says_left, says_right = guess_left.happened(views), guess_right.happened(views)
                undecided = says_left & says_right
                says_left &= ~undecided
                says_right &= ~undecided
                guesses += int(says_left.sum() + says_right.sum())
                correct += int((says_left if is_left else says_right).sum())
        self._tell(1.0)
        low, high = 0.0, 60.0
        if one_run_p_value(canaries, guesses, correct, 0.0, self._delta) > self._alpha:
            return 0.0, pair, guess_left
        while high - low > 1e-4:
            middle = (low + high) / 2
            broken = one_run_p_value(canaries, guesses, correct, middle, self._delta) <= self._alpha
            low, high = (middle, high) if broken else (low, middle)
        return low, pair, guess_left

    def _choose(self, pair: Pair[Any], runs: int, *, towards_left: bool | None = None) -> tuple[float, Event]:
        """Find the event with the largest bound on these runs (which is then not a confidence bound)."""
        few = [self._mechanism.run(dataset, min(runs, _CHUNK), self._bits) for dataset in (pair.left, pair.right)]
        self._directions += Direction.learned(*few)
        left, right = self._histograms(pair.left, few[0], runs, 0.0), self._histograms(pair.right, few[1], runs, 0.25)
        best: tuple[float, Event] = (-math.inf, Event(next(iter(left)), ">=", SUPPRESSED, True))
        for view, seen in left.items():
            values = np.union1d(seen[0], right[view][0])
            p, q = _aligned(values, *seen), _aligned(values, *right[view])
            for relation, a, b in (
                ("==", p, q),
                ("<=", np.cumsum(p), np.cumsum(q)),
                (">=", np.cumsum(p[::-1])[::-1], np.cumsum(q[::-1])[::-1]),
            ):
                for likelier_left in (True, False) if towards_left is None else (towards_left,):
                    bounds = self._bound(*((a, b) if likelier_left else (b, a)), runs, self._alpha)
                    top = int(np.argmax(bounds))
                    if bounds[top] > best[0]:
                        best = (float(bounds[top]), Event(view, relation, int(values[top]), likelier_left))
        return best

    def _bound(
        self, hits: npt.NDArray[Any], misses: npt.NDArray[Any], runs: int, alpha: float
    ) -> npt.NDArray[np.float64]:
        """Return ln((P_low - delta)/Q_high), at least 0; Clopper-Pearson limits, each failing with half of alpha."""
        low = np.where(hits > 0, special.betaincinv(np.maximum(hits, 1), runs - hits + 1, alpha / 2), 0.0)
        high = np.where(misses < runs, special.betaincinv(misses + 1, np.maximum(runs - misses, 1), 1 - alpha / 2), 1.0)
        with np.errstate(divide="ignore"):
            bound: npt.NDArray[np.float64] = np.log(np.maximum(low - self._delta, 0.0) / high)
        return np.maximum(bound, 0.0)

    def _tell(self, done: float) -> None:
        self._progress(self._from + self._share * done)

    def _outputs(self, dataset: Any, runs: int, start: float | None = None) -> Iterable[IntArray]:
        done = 0
        while done < runs:
            size = min(_CHUNK, runs - done)
            yield self._mechanism.run(dataset, size, self._bits)
            done += size
            if start is not None:
                self._tell(start + 0.25 * done / runs)

    def _frequency(self, dataset: Any, event: Event, runs: int, start: float) -> int:
        return sum(
            int(event.happened(_views(outputs, self._directions, event.view)).sum())
            for outputs in self._outputs(dataset, runs, start)
        )

    def _histograms(self, dataset: Any, few: IntArray, runs: int, start: float) -> dict[str, tuple[IntArray, IntArray]]:
        """Count each view's values in ``runs``, of which ``few`` exist already; return ascending values and counts."""
        totals: dict[str, dict[int, int]] = {}
        for outputs in itertools.chain([few], self._outputs(dataset, runs - len(few), start)):
            for view, seen in _views(outputs, self._directions).items():
                into = totals.setdefault(view, {})
                for value, count in zip(*_count_values(seen), strict=True):
                    into[value] = into.get(value, 0) + count
        return {
            view: (np.array(sorted(seen), dtype=np.int64), np.array([seen[v] for v in sorted(seen)], dtype=np.int64))
            for view, seen in totals.items()
        }


@dataclass(frozen=True)
class Direction:
    """A weighted sum of outputs: the weight of each that is published, and what each adds that is not."""

    values: tuple[int, ...]
    hidden: tuple[int, ...]

    @classmethod
    def learned(cls, left: IntArray, right: IntArray) -> list[Direction]:
        """Fit Fisher's linear discriminant of two samples, or none for a single output.

        >>> shared = np.arange(100) % 7
        >>> Direction.learned(np.column_stack([shared, shared]), np.column_stack([shared, shared + 1]))[0].values
        (-64, 64)
        """
        if left.shape[1] < 2:
            return []
        ours, theirs = (_features(outputs) for outputs in (left, right))
        within = np.cov(ours, rowvar=False) + np.cov(theirs, rowvar=False)
        ridge = 1e-9 * float(np.trace(within)) + 1e-9
        weights = np.linalg.solve(within + ridge * np.eye(len(within)), theirs.mean(axis=0) - ours.mean(axis=0))
        largest = float(np.abs(weights).max())
        if not largest > 0:
            return []
        whole = np.rint(weights / largest * _WEIGHT).astype(int).tolist()
        return [cls(tuple(whole[: left.shape[1]]), tuple(whole[left.shape[1] :]))]

    def of(self, outputs: IntArray) -> IntArray:
        """Add up each row."""
        hidden = outputs == SUPPRESSED
        terms = np.where(hidden, np.array(self.hidden), np.where(hidden, 0, outputs) * np.array(self.values))
        total: IntArray = terms.sum(axis=1)
        return total

    def __str__(self) -> str:
        return "the sum of outputs, weighted " + ", ".join(
            str(value) if not hidden else f"{value} ({hidden} where not published)"
            for value, hidden in zip(self.values, self.hidden, strict=True)
        )


def _features(outputs: IntArray) -> npt.NDArray[np.float64]:
    hidden = outputs == SUPPRESSED
    return np.hstack([np.where(hidden, 0, outputs), hidden]).astype(np.float64)


def _views(outputs: IntArray, directions: Sequence[Direction] = (), only: str | None = None) -> dict[str, IntArray]:
    """Return output rows as single numbers: columns, minimum, maximum, sum, differences and learned directions."""
    width = outputs.shape[1]
    names = [f"output {i + 1}" if width > 1 else "output" for i in range(width)]
    looks: dict[str, Callable[[], IntArray]] = {
        name: partial(outputs.__getitem__, (slice(None), i)) for i, name in enumerate(names)
    }
    if width > 1:
        looks["smallest output"] = partial(outputs.min, axis=1)
        looks["largest output"] = partial(outputs.max, axis=1)
        looks["sum of outputs"] = partial(_sum, outputs, [1] * width)
        looks |= {str(direction): partial(direction.of, outputs) for direction in directions}
    if 1 < width <= _MOST_DIFFERENCES:
        for i, j in itertools.combinations(range(width), 2):
            looks[f"{names[i]} - {names[j]}"] = partial(_sum, outputs[:, [i, j]], [1, -1])
    return {name: look() for name, look in looks.items() if only in (None, name)}


def _sum(outputs: IntArray, signs: list[int]) -> IntArray:
    """Add up the columns with their signs; where one is not published, neither is the sum."""
    hidden = outputs == SUPPRESSED
    total: IntArray = np.where(
        hidden.any(axis=1), SUPPRESSED, (np.where(hidden, 0, outputs) * np.array(signs)).sum(axis=1)
    )
    return total


def _count_values(seen: IntArray) -> tuple[list[int], list[int]]:
    """Count distinct values; by offsets where the range is small, which is much faster than sorting."""
    hidden = seen == SUPPRESSED
    published = seen[~hidden] if hidden.any() else seen
    values: list[int] = []
    counts: list[int] = []
    if len(published):
        low, high = int(published.min()), int(published.max())
        if high - low < _RANGE:
            tallies = np.bincount(published - low)
            present = np.flatnonzero(tallies)
            values, counts = (present + low).tolist(), tallies[present].tolist()
        else:
            distinct, tallies = np.unique(published, return_counts=True)
            values, counts = distinct.tolist(), tallies.tolist()
    suppressed = int(hidden.sum())
    return ([SUPPRESSED, *values], [suppressed, *counts]) if suppressed else (values, counts)


def _aligned(values: IntArray, seen: IntArray, counts: IntArray) -> IntArray:
    out = np.zeros(len(values), dtype=np.int64)
    out[np.searchsorted(values, seen)] = counts
    return out


def one_run_p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Bound the chance of ``correct`` coin guesses under (epsilon, delta)-DP (Steinke et al. 2023, Theorem 5.2).

    >>> round(one_run_p_value(100, 100, 75, 1.0, 0.0), 3)
    0.383
    """
    chance = special.expit(epsilon)
    beta = float(stats.binom.sf(correct - 1, guesses, chance))
    if delta == 0:
        return min(1.0, beta)
    steps = np.arange(1, correct + 1)
    alpha = float((np.cumsum(stats.binom.pmf(correct - steps, guesses, chance)) / steps).max()) if correct else 0.0
    return min(1.0, beta + alpha * 2 * canaries * delta)


class _GivenWords:
    """The words that are given, for the first call; it notes whether that was all anybody asked for."""

    secret = False

    def __init__(self, words: UInt64Array) -> None:
        self._words, self._then, self._calls = words, SeededBits("more words"), 0

    def words(self, n: int) -> UInt64Array:
        """Return the words, if as many are asked for; others after that."""
        self._calls += 1 if n == len(self._words) else 2
        return self._words if self._calls == 1 else self._then.words(n)

    @property
    def one_call(self) -> bool:
        return self._calls == 1


def exact_chances(mechanism: Mechanism[Any], dataset: Any) -> Mapping[tuple[int, ...], float] | None:
    """Measure each output's chance to the last bit by bisection; None where a run takes more than one word.

    >>> chances = exact_chances(find("binary-response").calibrate(1, 0), 0)
    >>> [round(chance, 6) for chance in chances.values()]
    [0.268941, 0.731059]
    """

    def outputs(words: UInt64Array) -> npt.NDArray[np.int64] | None:
        source = _GivenWords(words)
        rows = mechanism.run(dataset, len(words), source)
        return rows if source.one_call and len(rows) == len(words) else None

    if outputs(SeededBits("one word each").words(16)) is None:
        return None
    spread = np.linspace(0, 2.0**64, _TRIED, endpoint=False).astype(np.uint64)
    words = np.append(spread, np.uint64(2**64 - 1))
    rows, again = outputs(words), outputs(words[::-1].copy())
    if rows is None or again is None or not np.array_equal(rows, again[::-1]):
        return None
    # Of each pair of neighbours with different outputs, the last word with the left one's output.
    changes = np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1))
    low, high, left = words[changes], words[changes + 1], rows[changes]
    while (high - low > np.uint64(1)).any():
        middle = low + (high - low) // np.uint64(2)
        reports = outputs(middle)
        if reports is None:
            return None
        same = (reports == left).all(axis=1)
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    ends = [*(int(word) + 1 for word in low), 2**64]
    chances: dict[tuple[int, ...], float] = {}
    for begin, end, row in zip([0, *ends[:-1]], ends, [*left.tolist(), rows[-1].tolist()], strict=True):
        chances[tuple(row)] = chances.get(tuple(row), 0.0) + (end - begin) / 2**64
    return chances
