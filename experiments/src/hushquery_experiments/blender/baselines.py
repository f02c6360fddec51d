"""LDPMiner and PEM on the populations of BLENDER's experiments: what the local model finds without an opt-in group.

Both look for the most frequent queries among all users, opt-in users included, at the full epsilon: an easier task than
BLENDER's, which is to find and rank records. Where a choice had to be made, it favours them:

* LDPMiner needs a domain. It is told the 20,000 truly most frequent queries of a law (all queries of a log); nobody
  would know these. Phase one uses OUE, whose variance is that of the best oracle here, within a few per cent.
* PEM's queries are hashed to 48 bits without collisions among the counted ones.

The counts of reports are drawn from their law given who holds what: exactly for LDPMiner; for PEM's local hashing as if
its hash were independent on all cells (it is on any two), so that every single count has its exact law. Users whose
query is not counted hold a query of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hushquery.core.budget import Number, exact
from hushquery.errors import UsageError
from hushquery.local.configuration import choose_oracle
from hushquery.local.oracles.unary import OUE
from hushquery_experiments.blender.law import Population
from hushquery_experiments.blender.reports import simulated_support
from hushquery_experiments.heavy import PrefixExtending, TwoPhases
from hushquery_experiments.ndcg import query_scores
from hushquery_experiments.unpublishable import NotPublishable

__all__ = [
    "BASELINES",
    "CANDIDATES",
    "BaselinePoint",
    "ldpminer",
    "pem",
    "prefix_holders",
    "run_baseline",
    "standard_error",
]

#: How many candidates LDPMiner keeps after phase one, and PEM after each turn.
CANDIDATES = 32

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_CODE_BITS = 48


@dataclass(frozen=True, repr=False)
class BaselinePoint(NotPublishable):
    """How good a baseline's list of queries is; means over runs.

    Attributes:
        finder: ``ldpminer`` or ``pem``.
        population: On whom.
        epsilon: What a client spends.
        size: How many queries are listed.
        runs: How many populations were drawn.
        ndcg: By true shares.
        ndcg_stderr: Its standard error.
        ndcg_rank_based: By ranks.
        ndcg_rank_based_stderr: Its standard error.
        found: How many of the truly most frequent queries are listed.
    """

    finder: str
    population: str
    epsilon: float
    size: int
    runs: int
    ndcg: float
    ndcg_stderr: float
    ndcg_rank_based: float
    ndcg_rank_based_stderr: float
    found: float


def ldpminer(counts: IntArray, users: int, epsilon: Number, size: int, rng: np.random.Generator) -> list[int]:
    """List the queries that LDPMiner finds, the most frequent first.

    Args:
        counts: How many users hold each query of the domain.
        users: How many users there are; the others hold no query of the domain.
        epsilon: What a client spends, half of it in each phase.
        size: How many queries to list.
        rng: Where the noise comes from.
    """
    half = exact(epsilon, "epsilon") / 2
    candidates = min(max(CANDIDATES, size), len(counts) - 1)
    miner = TwoPhases(OUE.calibrate(len(counts) + 1, half), choose_oracle(candidates + 1, half).oracle, 1)
    held = np.append(counts, users - counts.sum())
    found = miner.best_candidates(simulated_support(miner.first, held, rng), users)
    inside = counts[found]
    support = simulated_support(miner.second, np.append(inside, users - inside.sum()), rng)
    return [hitter.value for hitter in miner.measured(found, support, users)[:size]]


def pem(counts: IntArray, users: int, epsilon: Number, size: int, rng: np.random.Generator) -> list[int]:
    """List the queries that PEM finds, the most frequent first; -1 for a code that is no counted query's.

    Args:
        counts: How many users hold each counted query.
        users: How many users there are; the others hold a query of their own.
        epsilon: What a client spends.
        size: How many queries to list.
        rng: Where the noise comes from.
    """
    finder = PrefixExtending.calibrate(epsilon, bits=_CODE_BITS, keep=max(CANDIDATES, size))
    codes = _codes(len(counts), rng)
    even = np.full(finder.groups, 1 / finder.groups)
    groups = rng.multinomial(counts, even)
    others = rng.multinomial(users - int(counts.sum()), even)

    def estimate(turn: int, prefixes: IntArray) -> tuple[FloatArray, FloatArray]:
        own = codes >> (_CODE_BITS - finder.lengths[turn])
        held = prefix_holders(prefixes, finder.lengths[turn], own, groups[:, turn], int(others[turn]), rng)
        n = int(groups[:, turn].sum() + others[turn])
        support = rng.binomial(held, float(finder.oracle.p)) + rng.binomial(n - held, float(finder.oracle.q))
        return finder.oracle.frequencies(support, n)

    number = {int(code): i for i, code in enumerate(codes.tolist())}
    return [number.get(hitter.value, -1) for hitter in finder.search(estimate, size)]


def prefix_holders(
    prefixes: IntArray, length: int, own: IntArray, counts: IntArray, others: int, rng: np.random.Generator
) -> IntArray:
    """Draw how many clients have each candidate prefix.

    Args:
        prefixes: Different candidates.
        length: Their number of bits.
        own: The prefix of each counted query.
        counts: How many clients hold each counted query.
        others: How many hold a query of their own, which has every prefix with the same chance.
        rng: Where those prefixes come from.

    >>> rng = np.random.default_rng(1)
    >>> prefix_holders(np.array([3, 1]), 2, np.array([1, 3, 0]), np.array([5, 7, 9]), 0, rng).tolist()
    [7, 5]
    """
    order = np.argsort(prefixes, kind="stable")
    place = np.minimum(np.searchsorted(prefixes[order], own), len(prefixes) - 1)
    known = prefixes[order][place] == own
    counted = np.bincount(order[place[known]], weights=counts[known], minlength=len(prefixes)).astype(np.int64)
    chances = np.append(np.full(len(prefixes), 2.0**-length), max(0.0, 1 - len(prefixes) * 2.0**-length))
    holders: IntArray = counted + rng.multinomial(others, chances)[:-1]
    return holders


#: The baselines by name.
BASELINES: dict[str, Callable[[IntArray, int, Number, int, np.random.Generator], list[int]]] = {
    "ldpminer": ldpminer,
    "pem": pem,
}


def run_baseline(
    finder: str, population: Population, *, epsilon: float, size: int = 10, runs: int = 5, seed: int = 1
) -> BaselinePoint:
    """Measure a baseline. The answer must not be published if the population is a log.

    Args:
        finder: ``ldpminer`` or ``pem``.
        population: On whom.
        epsilon: What a client spends.
        size: How many queries to list.
        runs: How many populations are drawn.
        seed: Of the populations and of their noise.
    """
    if finder not in BASELINES:
        raise UsageError(f"no baseline is called {finder!r}", fix=f"Give one of {', '.join(BASELINES)}")
    if runs < 1 or size < 1:
        raise UsageError("a baseline needs at least one run and one query to list", fix="Give runs=5, size=10")
    scores = []
    for run in range(runs):
        rng = np.random.default_rng([seed, run, sorted(BASELINES).index(finder), round(epsilon * 1000)])
        # The baselines know no opt-in group: its share makes no difference.
        truth = population.split(0.05, rng).truth
        counts = truth.queries
        listed = BASELINES[finder](counts, truth.users, epsilon, size, rng)
        # A code that is nobody's query is one more query, which nobody searched for.
        extra = np.append(counts, np.zeros(sum(query < 0 for query in listed), dtype=np.int64))
        fakes = iter(range(len(counts), len(extra)))
        numbers = np.array([next(fakes) if query < 0 else query for query in listed], dtype=np.int64)
        top = set(np.argsort(-counts, kind="stable")[:size].tolist())
        scores.append((*query_scores(numbers, extra), len(top & set(numbers.tolist()))))
    plain, ranked, found = (np.array(column, dtype=np.float64) for column in zip(*scores, strict=True))
    return BaselinePoint(
        finder,
        population.name,
        float(epsilon),
        size,
        runs,
        float(plain.mean()),
        standard_error(plain),
        float(ranked.mean()),
        standard_error(ranked),
        float(found.mean()),
    )


def standard_error(values: Sequence[float] | FloatArray) -> float:
    """Return the standard error of a mean; 0 of a single value, which says nothing about it."""
    given = np.asarray(values, dtype=np.float64)
    return float(given.std(ddof=1) / np.sqrt(len(given))) if len(given) > 1 else 0.0


def _codes(n: int, rng: np.random.Generator) -> IntArray:
    """Draw different codes; two of 20,000 are equal with a chance below one in a million."""
    while True:
        codes = rng.integers(0, 2**_CODE_BITS, n)
        if len(np.unique(codes)) == n:
            return codes
