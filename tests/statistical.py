"""The one place where tests judge random draws, and where their randomness comes from.

**False alarms.** Each check below fails for a correct program with probability at most ``ALPHA`` = 2e-10, and a run
makes at most ``MOST_CHECKS`` = 4500 of them (counted; one more is an error), so a correct program fails a whole
run with probability below 1e-6. The bounds hold for samples of the size at hand, not only in the limit:

* rates: exact binomial tails; many positions share ``ALPHA`` equally (Bonferroni);
* goodness of fit: n times the relative entropy between the observed and the stated law of k cells (half the
  likelihood-ratio chi-square) has a moment generating function below that of a Gamma(k-1) variable (Agrawal 2020,
  "Finite-sample concentration of the multinomial in relative entropy"). The quantile of the textbook chi-square is off
  by orders of magnitude that far out;
* means and variances: z-tests at a nominal tenth of ``ALPHA`` on at least 100,000 draws; the factor of ten pays for the
  normal limit.

**Seeds.** Fixed, so that a run either always passes or always fails; ``HUSHQUERY_TEST_SEED`` changes all of them at
once.

(Not called ``statistics``: this folder is on ``sys.path``, and sqlglot, under Ibis, imports Python's module of that
name.)
"""

from __future__ import annotations

import math
import os
import signal
import zlib
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from scipy import optimize, stats

from hushquery.noise.sampler import SeededBits

ALPHA = 2e-10
MOST_CHECKS = 4500
FEWEST_FOR_Z = 100_000
SMALL_CELL = 20.0

SEED = os.environ.get("HUSHQUERY_TEST_SEED", "0")

_checks_made = 0


# ---- randomness ----------------------------------------------------------------------------------------------------


def bits(*name: object) -> SeededBits:
    """Give the test bits of a name.

    >>> bits("a", 1).words(3).tolist() == bits("a", 1).words(3).tolist()
    True
    >>> bits("a", 1).words(3).tolist() == bits("a", 2).words(3).tolist()
    False
    """
    return SeededBits(" ".join([f"tests {SEED}", *map(str, name)]))


def number(*name: object) -> int:
    """Give a seed for whatever wants an integer (Hypothesis, an audit)."""
    return zlib.crc32(" ".join([SEED, *map(str, name)]).encode())


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Stop what takes more CPU time: a search that never ends is a defect, however busy the machine is.

    >>> with within(1):
    ...     while True: pass
    Traceback (most recent call last):
    TimeoutError: still running after 1 CPU s
    """

    def stop(*_: object) -> None:
        raise TimeoutError(f"still running after {seconds} CPU s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


# ---- checks --------------------------------------------------------------------------------------------------------


def rate(hits: int, n: int, p: float, what: object = "") -> None:
    """Check that ``hits`` of ``n`` is what probability ``p`` gives.

    >>> rate(5_100, 10_000, 0.5)
    >>> rate(5_400, 10_000, 0.5)
    Traceback (most recent call last):
    AssertionError: ...
    """
    _count_check()
    _tails(np.array([hits]), n, np.array([p]), [what])


def rate_at_most(hits: int, n: int, p: float, what: object = "") -> None:
    """Check that ``hits`` of ``n`` is not more than a probability of at most ``p`` gives.

    >>> rate_at_most(0, 10_000, 0.5)
    >>> rate_at_most(5_400, 10_000, 0.5)
    Traceback (most recent call last):
    AssertionError: ...
    """
    _count_check()
    chance = stats.binom.sf(hits - 1, n, p)
    assert chance > ALPHA, f"{what}: {hits} of {n} where at most {n * p:.1f} are expected (chance {chance:.1e})"


def every_position(seen: Mapping[Hashable, int], law: Mapping[Hashable, float]) -> None:
    """Check each outcome's count by an exact binomial test; an outcome that the law does not name has probability zero.

    >>> every_position({0: 5_100, 1: 4_900}, {0: 0.5, 1: 0.5})
    >>> every_position({0: 5_100, 1: 4_899, 2: 1}, {0: 0.5, 1: 0.5})
    Traceback (most recent call last):
    AssertionError: 2 ...
    """
    _count_check()
    outcomes = list(dict.fromkeys([*law, *seen]))
    counts = np.array([seen.get(o, 0) for o in outcomes])
    chances = np.clip([law.get(o, 0.0) for o in outcomes], 0.0, 1.0)
    _tails(counts, int(counts.sum()), chances, outcomes)


def fit(seen: Mapping[Hashable, int], law: Mapping[Hashable, float]) -> None:
    """Check the whole law at once, with the cells that expect fewer than ``SMALL_CELL`` pooled into one.

    >>> fit({0: 5_100, 1: 4_900}, {0: 0.5, 1: 0.5})
    >>> fit({0: 5_400, 1: 4_600}, {0: 0.5, 1: 0.5})
    Traceback (most recent call last):
    AssertionError: ...
    """
    _count_check()
    n = sum(seen.values())
    large = [o for o, p in law.items() if p * n >= SMALL_CELL]
    counts = np.array([seen.get(o, 0) for o in large], dtype=float)
    chances = np.array([law[o] for o in large])
    rest = max(0.0, 1.0 - float(chances.sum()))
    if rest * n >= SMALL_CELL:
        counts, chances = np.append(counts, n - counts.sum()), np.append(chances, rest)
    else:  # too rare to be a cell: its exact test is part of `every_position`
        chances = chances / chances.sum()
    total = counts.sum()
    _entropy(total * _relative_entropy(counts / total, chances), len(chances) - 1, "the law")


def same_law(first: Mapping[Hashable, int], second: Mapping[Hashable, int], cells: Sequence[Hashable]) -> None:
    """Check that two samples come from one law, over cells fixed beforehand; all else is pooled into one cell.

    >>> same_law({0: 5_100, 1: 4_900}, {0: 4_950, 1: 5_050}, [0])
    >>> same_law({0: 5_400, 1: 4_600}, {0: 4_600, 1: 5_400}, [0])
    Traceback (most recent call last):
    AssertionError: ...
    """
    _count_check()
    tables = []
    for seen in (first, second):
        inside = [seen.get(c, 0) for c in cells]
        tables.append(np.array([*inside, sum(seen.values()) - sum(inside)], dtype=float))
    pooled = (tables[0] + tables[1]) / (tables[0].sum() + tables[1].sum())
    # The pooled law is the one that makes the sum of the two relative entropies smallest, so the true one bounds it.
    statistic = sum(t.sum() * _relative_entropy(t / t.sum(), pooled) for t in tables)
    _entropy(float(statistic), 2 * len(cells), "the two samples")


def mean(values: np.ndarray, truth: float, variance: float, what: object = "the mean") -> None:
    """Check the mean of draws whose variance is known.

    >>> mean(np.tile([0.0, 1.0], 100_000), 0.5, 0.25)
    >>> mean(np.tile([0.0, 1.0], 100_000), 0.51, 0.25)
    Traceback (most recent call last):
    AssertionError: ...
    """
    _z(float(np.mean(values)), truth, math.sqrt(variance / len(values)), len(values), what)


def variance(values: np.ndarray, truth: float, centre: float, fourth: float, what: object = "the variance") -> None:
    """Check the variance about a known centre of draws whose fourth central moment is known.

    >>> variance(np.tile([0.0, 1.0, 2.0], 100_000), 2 / 3, 1.0, 2 / 3)
    >>> variance(np.tile([0.0, 1.0, 2.0], 100_000), 0.65, 1.0, 2 / 3)
    Traceback (most recent call last):
    AssertionError: ...
    """
    spread = math.sqrt(max(fourth - truth * truth, 0.0) / len(values))
    _z(float(np.mean((values - centre) ** 2)), truth, spread, len(values), what)


def tally(values: np.ndarray) -> Counter:
    """Count distinct values, or distinct rows.

    >>> tally(np.array([3, 3, 5])), tally(np.array([[1, 2], [1, 2]]))
    (Counter({3: 2, 5: 1}), Counter({(1, 2): 2}))
    """
    if values.ndim == 1:
        distinct, counts = np.unique(values, return_counts=True)
        return Counter(dict(zip(distinct.tolist(), counts.tolist(), strict=True)))
    distinct, counts = np.unique(values, axis=0, return_counts=True)
    return Counter({tuple(row): n for row, n in zip(distinct.tolist(), counts.tolist(), strict=True)})


def moments(law: Mapping[int, float]) -> tuple[float, float, float]:
    """Give the mean, the variance and the fourth central moment of a listed law.

    >>> moments({-1: 0.5, 1: 0.5})
    (0.0, 1.0, 1.0)
    """
    centre = math.fsum(z * p for z, p in law.items())
    return (
        centre,
        math.fsum((z - centre) ** 2 * p for z, p in law.items()),
        math.fsum((z - centre) ** 4 * p for z, p in law.items()),
    )


# ---- how they decide -----------------------------------------------------------------------------------------------


def count(checks: int) -> None:
    """Count checks of the same false-alarm rate that are made elsewhere (hushquery.auditing.conformance)."""
    for _ in range(checks):
        _count_check()


def _count_check() -> None:
    global _checks_made
    _checks_made += 1
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if _checks_made > MOST_CHECKS / processes:
        raise RuntimeError("too many checks for the false-alarm rate promised above")


def _tails(counts: np.ndarray, n: int, chances: np.ndarray, names: Sequence[object]) -> None:
    upper, lower = stats.binom.sf(counts - 1, n, chances), stats.binom.cdf(counts, n, chances)
    worst = int(np.argmin(np.minimum(upper, lower)))
    level = ALPHA / (2 * len(counts))
    assert min(upper[worst], lower[worst]) > level, (
        f"{names[worst]} came {counts[worst]} times of {n}; {n * chances[worst]:.6g} are expected "
        f"(chance {min(upper[worst], lower[worst]):.1e}, {len(counts)} positions)"
    )


def _relative_entropy(seen: np.ndarray, law: np.ndarray) -> float:
    some = seen > 0
    return float(np.sum(seen[some] * np.log(seen[some] / law[some])))


def entropy_quantile(degrees: int) -> float:
    """Give the statistic that is exceeded with probability at most ``ALPHA``: e^-x (e x/k)^k = ALPHA, x > k."""
    return float(
        optimize.brentq(
            lambda x: -x + degrees * (1 + math.log(x / degrees)) - math.log(ALPHA), degrees, 20 * degrees + 200
        )
    )


def _entropy(statistic: float, degrees: int, what: str) -> None:
    assert degrees >= 1, "a fit needs at least two cells that expect enough; raise n"
    most = entropy_quantile(degrees)
    assert statistic <= most, (
        f"{what}: n times the relative entropy is {statistic:.1f}, above {most:.1f} ({degrees} degrees)"
    )


def _z(seen: float, truth: float, spread: float, n: int, what: object) -> None:
    _count_check()
    assert n >= FEWEST_FOR_Z, "a z-test at this level needs more draws"
    if spread == 0:
        assert seen == truth, f"{what}: {seen} is not {truth}"
        return
    z = (seen - truth) / spread
    most = -stats.norm.ppf(ALPHA / 20)
    assert abs(z) <= most, f"{what}: {seen:.6g} is {z:.1f} standard errors from {truth:.6g}"


def hockey_stick(p: Mapping[Hashable, float], q: Mapping[Hashable, float], epsilon: float) -> float:
    """The smallest delta for which p <= e^epsilon q + delta on every event."""
    factor = math.exp(epsilon)
    return math.fsum(max(0.0, probability - factor * q.get(outcome, 0.0)) for outcome, probability in p.items())
