"""The support of many clients' reports, drawn at once from its exact joint law, or through every client's randomizer.

An experiment needs what the server counts, not each report. Given how many clients hold each cell, the counts have an
exact law that costs as much for ten million clients as for a thousand:

* k-RR and two-stage response: a multinomial for each true cell, added up.
* OUE: bits of a report are independent, so each cell's count is a sum of two binomials.
* Subset selection: cells of one report exclude each other, so cells are decided one after the other. All that matters
  about a client at its turn is how many cells it may still choose and whether its own cell has passed; so clients are
  kept as counts by that, and those whose own cell comes next are a random draw of those whose has not passed.

Local hashing and Hadamard go through the randomizers always.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from hushquery.errors import UsageError
from hushquery.local.intervals import IntArray
from hushquery.local.oracles.krr import KRR
from hushquery.local.oracles.subset import SubsetSelection
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.oracles.unary import OUE
from hushquery.local.randomizer import ONE, Randomizer, SupportCount
from hushquery.noise.sampler import SeededBits

__all__ = ["Through", "simulated_support", "support_from_counts", "support_through_randomizers"]

#: How reports are simulated.
Through = Literal["counts", "randomizers"]

# Clients are randomised in blocks, so that memory does not grow with their number.
_BLOCK = 100_000


def simulated_support(
    randomizer: Randomizer, clients: IntArray, rng: np.random.Generator, through: Through = "counts"
) -> IntArray:
    """Simulate every client's report and count them.

    Args:
        randomizer: What clients run.
        clients: How many clients hold each cell.
        rng: Where the noise comes from; a simulation's, it protects nobody.
        through: ``counts`` draws the counts from their exact law, ``randomizers`` runs every client.
    """
    if len(clients) != randomizer.k or (clients < 0).any():
        raise UsageError("every cell needs its number of clients", fix=f"Give {randomizer.k} numbers")
    if through not in ("counts", "randomizers"):
        raise UsageError("reports are simulated through counts or randomizers", fix="Give one of the two")
    if through == "counts" and isinstance(randomizer, KRR | TwoStage | OUE | SubsetSelection):
        return support_from_counts(randomizer, clients, rng)
    return support_through_randomizers(randomizer, clients, rng)


def support_through_randomizers(randomizer: Randomizer, clients: IntArray, rng: np.random.Generator) -> IntArray:
    """Run the randomizer of every client, in blocks, and count the reports."""
    tally, bits = SupportCount(randomizer), SeededBits(int(rng.integers(2**62)))
    ends = np.cumsum(clients)
    for start in range(0, int(ends[-1]), _BLOCK):
        places = np.arange(start, min(start + _BLOCK, int(ends[-1])))
        tally.add_many(randomizer.randomize_many(np.searchsorted(ends, places, side="right"), bits))
    return tally.support


def support_from_counts(
    randomizer: KRR | TwoStage | OUE | SubsetSelection, clients: IntArray, rng: np.random.Generator
) -> IntArray:
    """Draw the counts of all reports from their exact joint law.

    >>> oracle = KRR.calibrate(3, 2)
    >>> int(support_from_counts(oracle, np.array([50, 30, 20]), np.random.default_rng(1)).sum())
    100
    """
    if isinstance(randomizer, OUE):
        rest = int(clients.sum()) - clients
        return rng.binomial(clients, float(randomizer.p)) + rng.binomial(rest, float(randomizer.q))
    if isinstance(randomizer, SubsetSelection):
        return _subsets(randomizer, clients, rng)
    if randomizer.k == 1:
        return clients.copy()
    held = np.flatnonzero(clients)
    sent: IntArray = rng.multinomial(clients[held], _channel(randomizer)[held]).sum(axis=0, dtype=np.int64)
    return sent


def _channel(randomizer: KRR | TwoStage) -> npt.NDArray[np.float64]:
    """Return the chance of each reported cell (column) for each true cell (row)."""
    k = randomizer.k
    if isinstance(randomizer, KRR):
        rows = np.full((k, k), float(randomizer.q))
        np.fill_diagonal(rows, float(randomizer.p))
        return rows
    sizes = np.array([count + 1 for count in randomizer.urls] + [1])
    query = np.repeat(np.arange(len(sizes)), sizes)
    width = sizes[query]
    lies = dict(randomizer.url_lies)
    lie = np.array([lies.get(int(size), 0) / ONE for size in sizes])[query]
    stays = 1 - (len(sizes) - 1) * randomizer.query_lie / ONE
    rows = np.where(query[:, None] == query, stays * lie, randomizer.query_lie / ONE / width)
    np.fill_diagonal(rows, stays * (1 - (width - 1) * lie))
    chances: npt.NDArray[np.float64] = rows / rows.sum(axis=1, keepdims=True)
    return chances


def _subsets(oracle: SubsetSelection, clients: IntArray, rng: np.random.Generator) -> IntArray:
    """Decide cell after cell how many reports hold it.

    ``ahead[f, r]`` counts the clients whose own cell is still to come and who have r other cells to choose: f = 1 if
    their report holds the own cell, 0 if not. ``behind[r]`` counts those whose own cell has passed.
    """
    k, size = oracle.k, oracle.omega
    support = np.zeros(k, dtype=np.int64)
    keeps = rng.binomial(clients, float(oracle.p))
    ahead = np.zeros((2, size + 1), dtype=np.int64)
    ahead[1, size - 1], ahead[0, size] = keeps.sum(), clients.sum() - keeps.sum()
    behind = np.zeros(size + 1, dtype=np.int64)
    left = np.arange(size + 1)
    for cell in range(k):
        own = np.stack(
            [
                rng.multivariate_hypergeometric(ahead[0], clients[cell] - keeps[cell], method="marginals"),
                rng.multivariate_hypergeometric(ahead[1], keeps[cell], method="marginals"),
            ]
        )
        ahead -= own
        support[cell] += keeps[cell]
        # Who has r cells to choose out of c that remain takes the next one with chance r/c.
        for group, remain in ((ahead[0], k - cell - 1), (ahead[1], k - cell - 1), (behind, k - cell)):
            taken = rng.binomial(group, np.minimum(left / max(remain, 1), 1.0))
            support[cell] += taken.sum()
            group -= taken
            group[:-1] += taken[1:]
        behind += own.sum(axis=0)
    return support
