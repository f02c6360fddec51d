"""Randomizers on the client, measured: frequency oracles against theory and each other, means, histograms, attacks.

* Every frequency oracle on a Zipf population: mean squared error against the variance that it claims.
* 1BitMean and dBitFlip against their published bounds, and the Laplace alternative beside them.
* Averaging attacks: a permanent response that is drawn anew gives the truth away, one that is kept does not.
* PEM and LDPMiner: how many of the most frequent values they find.

Everybody here is invented, so the results may be published. The noise comes from a seed, so that the numbers can be
repeated; no real client may do that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from hushquery.errors import UsageError
from hushquery.local.configuration import ORACLES, choose_oracle
from hushquery.local.numbers.dbitflip import DBitFlip
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.randomizer import ONE, Oracle, fractions_of_one
from hushquery.noise.sampler import Bits, SeededBits, below
from hushquery_experiments.heavy import PrefixExtending, TwoPhases
from hushquery_experiments.local.attacks import ASKED, Attack, averaging_attacks
from hushquery_experiments.local.laplace import LaplaceMean
from hushquery_experiments.page import Claim, made_at
from hushquery_experiments.unpublishable import plain

__all__ = [
    "BETA",
    "DOMAINS",
    "EPSILONS",
    "ErrorPoint",
    "HistogramPoint",
    "HitterPoint",
    "LocalExperiment",
    "MeanPoint",
    "check_claims",
    "local",
    "zipf",
]

#: The sizes of the domains.
DOMAINS = (51, 501, 5001)
#: The values of epsilon.
EPSILONS = (1, 2, 3, 4, 5)
#: The bounds of 1BitMean and dBitFlip may be exceeded with this chance.
BETA = 0.05

_DEVICES, _MOST_CLIENTS = 300, 10_000_000
# So many oracles are measured at the same time.
_WORKERS = 2
# Clients are randomised in blocks, to keep long reports out of memory.
_BLOCK = 5000
# Means cost little, so they are run more often than the rest.
_MEAN_RUNS = 10
_MOST, _BUCKETS, _BITS_SENT = 100, 32, (1, 4, 32)
_VALUE_BITS, _TOP = 12, 10
# A ratio that is further from 1 than so many standard errors counts as another number.
_FAR = 4.0

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class ErrorPoint:
    """One frequency oracle in one setting.

    Attributes:
        oracle: Its name.
        k: The number of cells.
        epsilon: What a report may cost.
        runs: How many populations were drawn.
        measured: The mean squared error of a cell's frequency, over cells and runs.
        theory: The mean over cells of the variance that the oracle claims.
        ratio: Measured over theory.
        stderr: The standard error of the ratio: the runs' own, but not below that of independent cells.
        report_bytes: The length of a report.
        chosen: Whether ``choose_oracle`` picks it here.
    """

    oracle: str
    k: int
    epsilon: float
    runs: int
    measured: float
    theory: float
    ratio: float
    stderr: float
    report_bytes: int
    chosen: bool


@dataclass(frozen=True)
class MeanPoint:
    """1BitMean or its Laplace alternative: root mean square error of an average of numbers in 0..100.

    Attributes:
        mechanism: ``1BitMean`` or ``Laplace``.
        epsilon: What a report may cost.
        runs: How often the noise was drawn.
        measured: The root mean square error.
        theory: The standard deviation that the noise has for these clients.
        bound: What the error exceeds with chance at most :data:`BETA`; None for Laplace, which has no such bound here.
        beyond: The share of runs beyond the bound.
    """

    mechanism: str
    epsilon: float
    runs: int
    measured: float
    theory: float
    bound: float | None
    beyond: float | None


@dataclass(frozen=True)
class HistogramPoint:
    """dBitFlip: the largest error of all buckets' shares, on average and at worst over the runs, and its bound."""

    d: int
    epsilon: float
    runs: int
    largest: float
    worst: float
    bound: float
    beyond: float


@dataclass(frozen=True)
class HitterPoint:
    """How many of the ten most frequent values a finder names among its first ten, on average over the runs."""

    finder: str
    epsilon: float
    runs: int
    found: float


@dataclass(frozen=True)
class LocalExperiment:
    """Everything that was measured, on invented clients.

    Attributes:
        settings: What was asked for, and when.
        oracles: Mean squared errors.
        means: 1BitMean and Laplace.
        histograms: dBitFlip.
        attacks: Averaging attacks on responses that are redrawn and on those that are kept.
        hitters: PEM and LDPMiner.
        claims: What had to be shown.
    """

    settings: Mapping[str, Any]
    oracles: tuple[ErrorPoint, ...]
    means: tuple[MeanPoint, ...]
    histograms: tuple[HistogramPoint, ...]
    attacks: tuple[Attack, ...]
    hitters: tuple[HitterPoint, ...]
    claims: tuple[Claim, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the results as plain data, first of all that they may be published and why."""
        mark = {"publishable": True, "mark": "synthetic clients and seeded noise: nobody is in it"}
        return mark | {field.name: plain(getattr(self, field.name)) for field in fields(self)}


def local(
    *,
    clients: int = 20_000,
    seed: int = 1,
    runs: int = 20,
    domains: Sequence[int] = DOMAINS,
    epsilons: Sequence[float] = EPSILONS,
    devices: int | None = None,
    asked: Sequence[int] = ASKED,
    progress: Progress | None = None,
) -> LocalExperiment:
    """Run the experiment.

    Args:
        clients: How many clients report in each run.
        seed: Of the clients and of their noise.
        runs: How often each setting is measured; oracles more often over few cells and less often over many.
        domains: The values of k, odd ones: two-stage response needs pairs of cells and one for the rest.
        epsilons: The values of epsilon.
        devices: How many devices are attacked; 300 by default, or as many as there are clients.
        asked: After how many reports the attacker guesses.
        progress: Called with what is done next and the fraction that is done.
    """
    attacked = min(_DEVICES, clients) if devices is None else devices
    if not 100 <= clients <= _MOST_CLIENTS or runs < 2 or attacked < 10:
        raise UsageError(
            "the experiment is too small to measure, or too large",
            fix=f"Give 100 to {_MOST_CLIENTS:,} clients, 2 runs or more and 10 devices or more",
        )
    if not domains or not epsilons or any(k < 3 or k % 2 == 0 for k in domains):
        raise UsageError("domains are odd numbers of cells from 3 on, with an epsilon at least", fix="Leave them out")
    tell, began = progress or (lambda *_: None), datetime.now(UTC)

    def bits(*what: object) -> SeededBits:
        return SeededBits(f"experiment local {seed} {what}")

    def measure(setting: tuple[int, float]) -> list[ErrorPoint]:
        k, epsilon = setting
        best = choose_oracle(k, epsilon).oracle.name
        return [
            _error_point(
                name,
                oracle,
                epsilon,
                zipf(k),
                clients,
                _times(k, runs),
                bits("oracle", name, k, epsilon),
                chosen=name == best,
            )
            for name, oracle in _oracles(k, epsilon)
        ]

    settings_of_oracles = [(k, epsilon) for k in domains for epsilon in epsilons]
    points: list[ErrorPoint] = []
    tell("frequency oracles", 0.0)
    with ThreadPoolExecutor(_WORKERS) as pool:  # each setting has its own bits, so the order makes no difference
        for place, found in enumerate(pool.map(measure, settings_of_oracles), 1):
            points += found
            tell(f"oracles, k = {found[0].k}", 0.7 * place / len(settings_of_oracles))
    tell("means and histograms", 0.7)
    means = _means(clients, epsilons, runs * _MEAN_RUNS, bits)
    histograms = tuple(_histogram(d, e, clients, runs, bits("dbitflip", d, e)) for d in _BITS_SENT for e in epsilons)
    tell("averaging attacks", 0.85)
    attacks = averaging_attacks(attacked, asked, bits("attacks"))
    tell("heavy hitters", 0.95)
    hitters = tuple(_hitters(clients, epsilons, max(2, runs // 4), bits("hitters")))
    settings = {
        "experiment": "local",
        "clients": clients,
        "population": "Zipf with exponent 1, drawn anew in each run",
        "noise": "from the seed: repeatable, so it would protect nobody",
        "seed": seed,
        "runs": runs,
        "domains": list(domains),
        "epsilons": list(epsilons),
        "devices": attacked,
        "beta": BETA,
        **made_at(began),
    }
    tell("done", 1.0)
    claims = check_claims(points, means, histograms, attacks)
    return LocalExperiment(settings, tuple(points), means, histograms, attacks, hitters, claims)


def check_claims(
    points: Sequence[ErrorPoint],
    means: Sequence[MeanPoint],
    histograms: Sequence[HistogramPoint],
    attacks: Sequence[Attack],
) -> tuple[Claim, ...]:
    """Compare what must be shown with what was measured."""
    far = max(abs(p.ratio - 1) / p.stderr for p in points)
    loss = max(
        _above_best([p for p in points if (p.k, p.epsilon) == key]) for key in {(p.k, p.epsilon) for p in points}
    )
    one_bit = max(p.beyond for p in means if p.beyond is not None)
    flips = max(p.beyond for p in histograms)
    redrawn = min(a.found[-1] for a in attacks if a.redrawn)
    kept = [a for a in attacks if not a.redrawn]
    excess = max((found - a.limit) / a.spread for a in kept for found in a.found)
    return (
        Claim(
            f"measured over theory is 1 in all {len(points)} settings, within {_FAR:g} standard errors",
            f"the farthest is {far:.1f} away",
            far <= _FAR,
        ),
        Claim(
            f"no oracle has a smaller error than the one choose_oracle picks, within {_FAR:g} standard errors",
            "none has" if loss <= 0 else f"one seems {loss:.1f} below",
            loss <= _FAR,
        ),
        Claim(f"1BitMean exceeds its bound in at most {BETA:.0%} of runs", f"{one_bit:.1%}", one_bit <= BETA),
        Claim(f"dBitFlip exceeds its bound in at most {BETA:.0%} of runs", f"{flips:.1%}", flips <= BETA),
        Claim(
            "averaging a redrawn response finds the value of 99% of devices", f"{redrawn:.1%} at least", redrawn >= 0.99
        ),
        Claim(
            f"averaging a kept response finds no more than epsilon allows, within {_FAR:g} standard errors",
            f"{abs(excess):.1f} standard errors {'above' if excess > 0 else 'below'} the limit at most",
            excess <= _FAR,
        ),
    )


def zipf(k: int) -> FloatArray:
    """Return the frequencies of a Zipf law over k values, the most frequent first.

    >>> zipf(2).round(3).tolist()
    [0.667, 0.333]
    """
    weights = 1 / np.arange(1, k + 1)
    law: FloatArray = weights / weights.sum()
    return law


def _draw(law: FloatArray, n: int, bits: Bits) -> IntArray:
    """Draw the values of n clients."""
    places = np.searchsorted(np.cumsum(law), fractions_of_one(n, bits) / ONE, side="right")
    return np.minimum(places, len(law) - 1).astype(np.int64)


def _times(k: int, runs: int) -> int:
    """Return how often to measure an oracle: every cell is a measurement, and reports over many cells are long."""
    return max(3, 2 * runs if k <= 100 else runs // 2 if k <= 1000 else runs // 6)


def _above_best(points: Sequence[ErrorPoint]) -> float:
    """Return by how many standard errors the chosen oracle's error lies above the smallest one measured."""
    ours = next(p for p in points if p.chosen)
    best = min(points, key=lambda p: p.measured)
    spread = math.hypot(ours.stderr * ours.theory, best.stderr * best.theory)
    return (ours.measured - best.measured) / spread


def _oracles(k: int, epsilon: float) -> Iterator[tuple[str, Oracle | TwoStage]]:
    """Return every oracle; two-stage response over half as many queries with a URL each, and one cell for the rest."""
    for name, cls in ORACLES.items():
        yield name, cls.calibrate(k, epsilon)
    yield "two-stage", TwoStage.calibrate([1] * (k // 2), epsilon)
    yield "two-stage tight", TwoStage.calibrate([1] * (k // 2), epsilon, mode="tight")


def _variances(oracle: Oracle | TwoStage, law: FloatArray, n: int) -> FloatArray:
    """Return the variance that an oracle claims for each cell."""
    if isinstance(oracle, Oracle):
        return np.array([oracle.variance(frequency, n) for frequency in law.tolist()])
    # All its queries are alike, and a variance is a quadratic function of the two frequencies: six values fix it.
    of_query = np.append(np.repeat(law[:-1].reshape(-1, 2).sum(axis=1), 2), law[-1])
    corners = np.array([(0, 0), (0, 0.5), (0, 1), (0.5, 0.5), (0.5, 1), (1, 1)])
    known = [oracle.variance(0, float(f), float(g), n) for f, g in corners]
    out: FloatArray = _squares(law, of_query) @ np.linalg.solve(_squares(*corners.T), known)
    out[-1] = oracle.variance(oracle.k - 1, float(law[-1]), float(law[-1]), n)
    return out


def _squares(f: FloatArray, g: FloatArray) -> FloatArray:
    return np.stack([np.ones_like(f), f, g, f * f, f * g, g * g], axis=1)


def _error_point(
    name: str,
    oracle: Oracle | TwoStage,
    epsilon: float,
    law: FloatArray,
    n: int,
    runs: int,
    bits: Bits,
    *,
    chosen: bool,
) -> ErrorPoint:
    variances = _variances(oracle, law, n)
    theory = float(variances.mean())
    errors = np.empty(runs)
    for run in range(runs):
        values = _draw(law, n, bits)
        support = np.zeros(oracle.k, dtype=np.int64)
        for start in range(0, n, _BLOCK):
            support += oracle.support(oracle.randomize_many(values[start : start + _BLOCK], bits))
        errors[run] = np.mean((oracle.frequencies(support, n)[0] - law) ** 2)
    # A few runs may agree by chance: no closer than independent normal cells would, whose squares vary by 2 v^2.
    # The two cells of a query share its error.
    together = 2 if isinstance(oracle, TwoStage) else 1
    floor = math.sqrt(2 * together * float((variances**2).sum())) / (theory * oracle.k)
    spread = max(float(errors.std(ddof=1)) / theory, floor) / math.sqrt(runs)
    measured = float(errors.mean())
    return ErrorPoint(
        name, oracle.k, epsilon, runs, measured, theory, measured / theory, spread, oracle.report_bytes, chosen
    )


def _means(clients: int, epsilons: Sequence[float], runs: int, bits: Callable[..., Bits]) -> tuple[MeanPoint, ...]:
    """Measure the average of one population again and again; small numbers are more frequent in it."""
    source = bits("numbers")
    values = below(source, _MOST + 1, clients) * below(source, _MOST + 1, clients) // _MOST
    truth = float(values.mean())
    points = []
    for epsilon in epsilons:
        one_bit, laplace = OneBitMean.calibrate(_MOST, epsilon), LaplaceMean.calibrate(_MOST, epsilon)
        noise = bits("mean", epsilon)
        errors = [one_bit.estimate(one_bit.randomize_many(values, noise)).rows[0].value - truth for _ in range(runs)]
        chances = (one_bit.low + one_bit.unit * values.astype(float)) / ONE
        theory = math.sqrt(float((chances * (1 - chances)).sum())) / clients * ONE / one_bit.unit
        bound = one_bit.error_bound(clients, BETA)
        beyond = float(np.mean(np.abs(errors) > bound))
        points.append(MeanPoint("1BitMean", epsilon, runs, _rms(errors), theory, bound, beyond))
        errors = [float(laplace.randomize_many(values, noise).mean()) - truth for _ in range(runs)]
        decay = math.exp(-1 / float(laplace.scale))
        theory = math.sqrt(2 * decay / clients) / (1 - decay)
        points.append(MeanPoint("Laplace", epsilon, runs, _rms(errors), theory, None, None))
    return tuple(points)


def _rms(errors: Sequence[float]) -> float:
    return math.sqrt(math.fsum(error * error for error in errors) / len(errors))


def _histogram(d: int, epsilon: float, clients: int, runs: int, bits: Bits) -> HistogramPoint:
    flip = DBitFlip.calibrate(_BUCKETS, d, epsilon)
    values = _draw(zipf(_BUCKETS), clients, bits)
    truth = np.bincount(values, minlength=_BUCKETS) / clients
    largest = np.empty(runs)
    for run in range(runs):
        sampled = flip.sample(clients, bits)
        table = flip.estimate(sampled, flip.randomize_many(values, sampled, bits))
        largest[run] = np.abs(np.array(table.values) - truth).max()
    bound = flip.error_bound(clients, BETA)
    beyond = float(np.mean(largest > bound))
    return HistogramPoint(d, epsilon, runs, float(largest.mean()), float(largest.max()), bound, beyond)


def _hitters(clients: int, epsilons: Sequence[float], runs: int, bits: Bits) -> Iterator[HitterPoint]:
    """Find the ten most frequent of 4096 values, which lie anywhere among the words of 12 bits."""
    size = 2**_VALUE_BITS
    places = np.argsort(bits.words(size)).astype(np.int64)
    top = set(places[:_TOP].tolist())
    for epsilon in epsilons:
        pem = PrefixExtending.calibrate(epsilon, bits=_VALUE_BITS, first=6, step=3)
        miner = TwoPhases.calibrate(size, epsilon)
        found = {"PEM": 0, "LDPMiner": 0}
        for _ in range(runs):
            values = places[_draw(zipf(size), clients, bits)]
            group = pem.assign(clients, bits)
            reports = [pem.randomize_many(values[group == turn], turn, bits) for turn in range(pem.groups)]
            found["PEM"] += len(top & {hit.value for hit in pem.identify(reports, _TOP)})
            sets = [[value] for value in values.tolist()]
            hits = miner.measure(sets, miner.find_candidates(sets, bits), bits)
            found["LDPMiner"] += len(top & {hit.value for hit in hits[:_TOP]})
        for finder, count in found.items():
            yield HitterPoint(finder, epsilon, runs, count / runs)
