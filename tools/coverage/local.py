"""Coverage of what `hq.estimate` shows: shares, averages, histograms and texts, from the clients' own randomizers.

Clients are drawn at random from a population whose shares are the truth. Their values go through the randomizer that a
device runs (the vectorised path of the same integers) and the channel's counting into the table that `hq.estimate`
gives. RAPPOR devices are real ones in one setting; in the others the counts of bits are drawn from their law, which for
a million reports is the same and takes a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt
from tools.coverage import LEAST_INTERVALS, Cell

from hushquery.core.estimates import Estimates
from hushquery.local.configuration import Configuration
from hushquery.local.numbers.dbitflip import DBitFlip
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.randomizer import Randomizer
from hushquery.local.rappor.decode import Rule, decode
from hushquery.local.rappor.files import Candidates
from hushquery.local.rappor.response import Encoder, Params, Variant, bloom_bits
from hushquery.noise.sampler import SeededBits
from hushquery.task import Task

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Collections of the same texts.
_RUNS = 4

_WHOLE = (
    "more than promised: the expected count is so small that whole counts allow nothing between too little and this"
)
_EQUAL = "more than promised: intervals allow for equal records, and nobody can tell that these differ"

_SETTING = """
[task]
name = "coverage"
population = "simulated clients"
kind = "{kind}"
{values}
[client]
epsilon = {epsilon}
lifetime_epsilon = 1000
{client}
[collect]
min_batch = 2
"""


def measure(quick: bool) -> Iterator[Cell]:
    """Yield every kind of interval in several settings."""
    least = LEAST_INTERVALS // 10 if quick else LEAST_INTERVALS
    for oracle, k, epsilon, n in (
        ("krr", 4, 0.5, 500),
        ("krr", 50, 8, 300),
        ("oue", 50, 2, 1000),
        ("olh", 50, 2, 1000),
        ("subset", 50, 2, 1000),
        ("hadamard", 50, 2, 1000),
        ("oue", 20, 0.5, 20_000),
        ("auto", 1000, 6, 1000),
    ):
        yield from _shares(oracle, k, epsilon, n, least)
    for epsilon, n in ((1, 2000), (6, 500)):
        yield from _two_stage(epsilon, n, least)
    for epsilon, clients in ((4, 500), (8, 300), (16, 300)):
        yield from _records(epsilon, clients, least)
    for epsilon, n in ((1, 1000), (4, 200)):
        yield _mean(epsilon, n, least)
    for epsilon, n in ((1, 2000), (6, 300)):
        yield from _histogram(epsilon, n, least)
    yield _devices(least)
    for name, params, n, listed, decoys in (
        ("k 32, h 1, m 64, p .25, q .75, f .5", Params(32, 1, 64, 0.25, 0.75, 0.5), 10**6, 190, 100),
        ("k 8, h 2, m 128, p .39, q .61, f .45", Params(8, 2, 128, 0.39, 0.61, 0.45), 10**6, 290, 200),
        ("k 128, h 2, m 16, p .25, q .75, f .5", Params(128, 2, 16, 0.25, 0.75, 0.5), 200_000, 240, 150),
    ):
        yield from _texts(name, params, n, listed - decoys, decoys, least)


def _covered(table: Estimates, truth: Floats) -> npt.NDArray[np.bool_]:
    low, high = (np.array([getattr(row, end) for row in table]) for end in ("low", "high"))
    inside: npt.NDArray[np.bool_] = (low <= truth) & (truth <= high)
    return inside


class _Groups:
    """Counts intervals by group until every group has enough."""

    def __init__(self, least: int, groups: dict[str, npt.NDArray[np.bool_]]) -> None:
        self.least = least
        self.groups = {name: chosen for name, chosen in groups.items() if chosen.any()}
        self.seen = dict.fromkeys(self.groups, 0)
        self.hits = dict.fromkeys(self.groups, 0)

    @property
    def wanting(self) -> bool:
        return min(self.seen.values()) < self.least

    def add(self, covered: npt.NDArray[np.bool_]) -> None:
        for name, chosen in self.groups.items():
            self.seen[name] += int(chosen.sum())
            self.hits[name] += int(covered[chosen].sum())

    def cells(self, shown: str, setting: str, why: Callable[[str], str] = lambda _: "") -> Iterator[Cell]:
        for name in self.groups:
            yield Cell(f"{shown}, {name}", setting, self.seen[name], self.hits[name], note=why(name))


def _configuration(kind: str, values: str, epsilon: float, client: str = "") -> Configuration:
    return Configuration.of(Task.loads(_SETTING.format(kind=kind, values=values, epsilon=epsilon, client=client)))


def _population(k: int, n: int, empty: int) -> tuple[Floats, dict[str, npt.NDArray[np.bool_]]]:
    """Return shares that fall like 1/rank with some cells empty, and the cells by how many clients they have."""
    shares = np.zeros(k)
    held = 1 / np.arange(1, k - empty + 1)
    shares[: k - empty] = held / held.sum()
    return shares, {
        "cells that nobody has": shares == 0,
        "cells of fewer than 10 clients": (shares > 0) & (shares * n < 10),
        "other cells": shares * n >= 10,
    }


def _support(randomizer: Randomizer, values: Ints, bits: SeededBits) -> Ints:
    return randomizer.support(randomizer.randomize_many(values, bits))


def _shares(oracle: str, k: int, epsilon: float, n: int, least: int) -> Iterator[Cell]:
    listed = ", ".join(f'"v{i}"' for i in range(k - 1))
    fixed = _configuration("setting", f"domain = [{listed}]", epsilon, f'oracle = "{oracle}"')
    channel = fixed.channel
    assert isinstance(channel, Randomizer)
    truth, groups = _population(k, n, k // 4)
    counted, rng = _Groups(least, groups), np.random.default_rng(k + n)
    bits = SeededBits(f"{oracle} {k} {epsilon} {n}")
    while counted.wanting:
        support = _support(channel, rng.choice(k, n, p=truth), bits)
        counted.add(_covered(channel.table(support, n, 0.95, fixed.labels), truth))
    name = oracle if oracle != "auto" else f"auto ({channel.name})"
    setting = f"{name}, {k:,} cells, epsilon {epsilon:g}, {n:,} clients"
    expected = n * float(channel.q)  # type: ignore[attr-defined]
    yield from counted.cells(
        "shares of a setting", setting, lambda group: _WHOLE if expected < 1 and "nobody" in group else ""
    )


def _two_stage(epsilon: float, n: int, least: int) -> Iterator[Cell]:
    randomizer = TwoStage.calibrate([3] * 8, epsilon, mode="tight")
    truth, groups = _population(randomizer.k, n, 0)
    rng = np.random.default_rng(n)
    truth = rng.permutation(truth)
    truth[:-1:4] = 0
    truth /= truth.sum()
    groups = {"cells that nobody has": truth == 0, "other cells": truth > 0}
    counted, bits = _Groups(least, groups), SeededBits(f"two-stage {epsilon}")
    labels = [str(cell) for cell in range(randomizer.k)]
    while counted.wanting:
        support = _support(randomizer, rng.choice(randomizer.k, n, p=truth), bits)
        counted.add(_covered(randomizer.table(support, n, 0.95, labels), truth))
    yield from counted.cells(
        "shares of searches",
        f"two-stage, {randomizer.k} cells, epsilon {epsilon:g}, {n:,} clients",
        lambda group: _WHOLE if epsilon >= 6 and "nobody" in group else "",
    )


def _records(epsilon: float, clients: int, least: int) -> Iterator[Cell]:
    """Four records of each client, all equal or drawn independently."""
    listed = ", ".join(f'"v{i}"' for i in range(9))
    fixed = _configuration("setting", f"domain = [{listed}]", epsilon, "records_per_user = 4")
    channel, records = fixed.channel, 4
    assert isinstance(channel, Randomizer)
    truth, _ = _population(10, clients, 2)
    groups = {"cells that nobody has": truth == 0, "other cells": truth > 0}
    for equal in (True, False):
        counted, rng = _Groups(least, groups), np.random.default_rng(clients)
        bits = SeededBits(f"records {epsilon} {equal}")
        while counted.wanting:
            values = rng.choice(10, (clients, 1 if equal else records), p=truth)
            values = np.broadcast_to(values, (clients, records)).ravel()
            support = _support(channel, values, bits)
            counted.add(_covered(channel.table(support, len(values), 0.95, fixed.labels, records=records), truth))
        kind = "equal" if equal else "independent"
        setting = (
            f"{channel.name}, 10 cells, {clients:,} clients with 4 {kind} records of epsilon {epsilon / records:g}"
        )
        yield from counted.cells(
            "shares of several records",
            setting,
            lambda group, equal=equal: _EQUAL if not equal and epsilon > 4 and "nobody" not in group else "",  # type: ignore[misc]
        )


def _mean(epsilon: float, n: int, least: int) -> Cell:
    channel = _configuration("number", "highest = 100", epsilon).channel
    assert isinstance(channel, OneBitMean)
    rng, bits, hits = np.random.default_rng(n), SeededBits(f"mean {epsilon}"), 0
    values = np.arange(101)
    law = np.exp(-values / 20)
    law /= law.sum()
    for _ in range(least):
        rows = channel.randomize_many(rng.choice(values, n, p=law), bits)
        table = channel.table(channel.support(rows.astype(np.int64)), n, 0.95, [])
        hits += int(_covered(table, np.array([float(law @ values)]))[0])
    return Cell("averages of numbers", f"onebit, 0..100, epsilon {epsilon:g}, {n:,} clients", least, hits)


def _histogram(epsilon: float, n: int, least: int) -> Iterator[Cell]:
    options = 'oracle = "dbitflip"\nbuckets = 10\nbits = 4'
    fixed = _configuration("number", "highest = 99", epsilon, options)
    channel = fixed.channel
    assert isinstance(channel, DBitFlip)
    truth, _ = _population(10, n, 3)
    groups = {"buckets that nobody is in": truth == 0, "other buckets": truth > 0}
    counted, rng, bits = _Groups(least, groups), np.random.default_rng(n), SeededBits(f"histogram {epsilon}")
    while counted.wanting:
        sampled = channel.sample(n, bits)
        answers = channel.randomize_many(rng.choice(10, n, p=truth), sampled, bits)
        support = channel.support(np.concatenate([sampled, answers.astype(np.int64)], axis=1))
        counted.add(_covered(channel.table(support, n, 0.95, fixed.labels), truth))
    yield from counted.cells(
        "histograms of numbers", f"dbitflip, 10 buckets, 4 bits, epsilon {epsilon:g}, {n:,} clients"
    )


def hashed(params: Params, strings: Iterable[str]) -> Candidates:
    """Return candidates with their bits, as the native variant hashes them."""
    k, named = params.k, tuple(strings)
    return Candidates(
        named,
        tuple(
            np.unique(
                [c * k + bit for c in range(params.m) for bit in bloom_bits(params, Variant.NATIVE, c, one.encode())]
            )
            for one in named
        ),
    )


def _devices(least: int) -> Cell:
    """Real RAPPOR devices: each with a secret, a permanent response by HMAC and an instantaneous one."""
    channel = _configuration("text", "", 10, "rappor = {k=32, h=1, m=2, p=0.1, q=0.9, f=0.05}").channel
    params: Params = channel.params  # type: ignore[attr-defined]
    truth = np.array([0.25, 0.2, 0.15, 0.12, 0.1, 0.08, 0.06, 0.04])
    rng, bits, n = np.random.default_rng(8), SeededBits("devices"), 600
    any_device = Encoder(params, bytes(32), task=bytes(32))
    seen = hits = run = 0
    while seen < least:
        strings = [f"run {run} text {i}" for i in range(20)]
        rows = np.zeros((n, params.k + 1), dtype=np.int64)
        permanent = np.zeros((n, params.k), dtype=np.bool_)
        for client, held in enumerate(rng.choice(len(truth), n, p=truth).tolist()):
            device = any_device.another(rng.bytes(32))
            rows[client, 0] = cohort = device.cohort()
            kept = device.permanent(device.bloom(cohort, strings[held].encode()))
            permanent[client] = [kept >> bit & 1 for bit in range(params.k)]
        rows[:, 1:] = any_device.instant_many(permanent, bits)
        table = channel.table(channel.support(rows), n, 0.95, strings)
        shares = dict(zip(strings, [*truth.tolist(), *[0.0] * 12], strict=True))
        covered = _covered(table, np.array([shares[row.label] for row in table]))
        seen, hits, run = seen + len(covered), hits + int(covered.sum()), run + 1
    setting = f"real devices, k 32, h 1, m 2, p .1, q .9, f .05, {n} clients, 20 candidates"
    return Cell("texts that are shown (bonferroni)", setting, seen, hits)


def drawn_counts(params: Params, held: Ints, candidates: Candidates, rng: np.random.Generator) -> Ints:
    """Draw the counts of the bits of so many clients with each string, one report of each."""
    chances, m, k = params.chances(Variant.NATIVE), params.m, params.k
    sizes, on = np.zeros(m, dtype=np.int64), np.zeros(m * k, dtype=np.int64)
    for clients, places in zip(held.tolist(), candidates.bits, strict=True):
        each = rng.multinomial(clients, np.full(m, 1 / m))
        sizes += each
        on[places] += each[places // k]
    lit = on.reshape(m, k)
    counted = rng.binomial(lit, float(chances.q_star)) + rng.binomial(sizes[:, None] - lit, float(chances.p_star))
    return np.concatenate([sizes[:, None], counted], axis=1).astype(np.int64)


def _texts(name: str, params: Params, n: int, known: int, decoys: int, least: int) -> Iterator[Cell]:
    """A tenth of the strings are no candidates; shares fall exponentially."""
    held = np.exp(-5 * np.arange(1, known * 10 // 9 + 1) / (known * 10 // 9))
    held /= held.sum()
    rules: tuple[Rule, ...] = ("bonferroni", "two-sd")
    seen, hits, run = dict.fromkeys(rules, 0), dict.fromkeys(rules, 0), 0
    rng = np.random.default_rng(known)
    while min(seen.values()) < least:
        if run % _RUNS == 0:  # other strings, so other hash functions; they take as long as decoding
            strings = [f"{run} held {i}" for i in range(len(held))]
            everything = hashed(params, [*strings, *(f"{run} decoy {i}" for i in range(decoys))])
            some = Candidates(everything.strings[: len(held)], everything.bits[: len(held)])
            shown = [i for i in range(len(everything.strings)) if i >= len(held) or i % 10 != 9]
            asked = Candidates(tuple(everything.strings[i] for i in shown), tuple(everything.bits[i] for i in shown))
        counts = drawn_counts(params, rng.multinomial(n, held), some, rng)
        truth = dict(zip(strings, held.tolist(), strict=True))
        for rule in rules:
            if seen[rule] >= least:
                continue
            for found in decode(params, counts, asked, rule=rule, variant=Variant.NATIVE).results:
                seen[rule] += 1
                hits[rule] += found.prop_low_95 <= truth.get(found.string, 0.0) <= found.prop_high_95
        run += 1
    for rule in rules:
        setting = f"{name}, {n:,} reports, {len(shown)} candidates, {decoys} of them held by nobody"
        yield Cell(f"texts that are shown ({rule})", setting, seen[rule], hits[rule])
