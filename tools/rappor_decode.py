"""Compare our RAPPOR decoder with the reference's on simulated collections; writes docs/rappor-decode.md.

``python -m tools.rappor_decode``; takes some minutes. The reference is google/rappor's R code, which can't be run by
many who tried; :func:`reference` derives its steps anew from their description. Counts of bits are drawn from the law
that devices give them (one report of each, native variant).
"""

from __future__ import annotations

import csv
import datetime
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import linalg, optimize, sparse
from tools.coverage.local import drawn_counts, hashed

from hushquery.local.rappor.decode import decode
from hushquery.local.rappor.files import Candidates, read_counts, read_map, read_params
from hushquery.local.rappor.response import Params, Variant

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "rappor-decode.md"
VECTORS = ("demo1", "demo3", "r-exp-small-typical", "r-exp-small-sharp")

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_DEMO = {"p": 0.25, "q": 0.75, "f": 0.5}
_TYPICAL = {"p": 0.39, "q": 0.61, "f": 0.45}
_LOOSE = {"p": 0.225, "q": 0.775, "f": 0.0001}
_SEEDS = 5


@dataclass(frozen=True)
class Collection:
    """Counted bits, the strings looked for, and the truth."""

    params: Params
    counts: Ints
    candidates: Candidates
    truth: dict[str, float]
    variant: Variant

    def score(self, found: dict[str, float]) -> tuple[float, float, float]:
        """Return true strings, false strings and the total variation to the truth, unlisted strings included."""
        true = sum(string in self.truth for string in found)
        every = {*found, *self.truth}
        away = sum(abs(found.get(string, 0.0) - self.truth.get(string, 0.0)) for string in every) / 2
        return float(true), float(len(found) - true), away


@dataclass(frozen=True)
class Case:
    """A kind of collection to draw."""

    name: str
    params: Params
    law: str
    strings: int
    reports: int
    listed: bool
    decoys: int
    seeds: int = _SEEDS

    def draw(self, seed: int) -> Collection:
        """Draw one; of strings that are not all listed, every tenth is no candidate."""
        rng = np.random.default_rng([seed, self.strings, self.decoys])
        shares = law(self.law, self.strings)
        held = rng.multinomial(self.reports, shares)
        names = [f"{self.name} {seed} {i}" for i in range(self.strings)]
        all_of_them = hashed(self.params, names)
        asked = [name for i, name in enumerate(names) if self.listed or i % 10 != 9]
        asked += [f"{self.name} {seed} decoy {i}" for i in range(self.decoys)]
        truth = {name: count / self.reports for name, count in zip(names, held.tolist(), strict=True) if count}
        counts = drawn_counts(self.params, held, all_of_them, rng)
        return Collection(self.params, counts, hashed(self.params, asked), truth, Variant.NATIVE)


def law(name: str, strings: int) -> Floats:
    """Return shares: uniform, normal, exponential, or falling with a power of the rank."""
    rank = np.arange(1, strings + 1, dtype=np.float64)
    weight = {
        "unif": np.ones(strings),
        "gauss": np.exp(-(((rank - strings / 2) / (strings / 6)) ** 2) / 2),
        "exp": np.exp(-5 * rank / strings),
        "zipf1": 1 / rank,
        "zipf1.5": rank**-1.5,
    }[name]
    shares: Floats = weight / weight.sum()
    return shares


def cases() -> Iterator[Case]:
    """Yield the kinds of collections."""
    for shape in ("unif", "gauss", "exp", "zipf1", "zipf1.5"):
        yield Case(f"demo {shape}", Params(32, 1, 64, **_DEMO), shape, 100, 10**6, False, 100)
    for shape in ("unif", "gauss", "exp", "zipf1"):
        yield Case(f"typical {shape}", Params(8, 2, 128, **_TYPICAL), shape, 100, 10**6, False, 20)
    for shape in ("exp", "zipf1"):
        yield Case(f"sharp {shape}", Params(8, 2, 128, **_TYPICAL), shape, 100, 10**6, True, 0)
    for shape in ("gauss", "exp", "zipf1"):
        yield Case(f"twice the strings {shape}", Params(8, 2, 128, **_TYPICAL), shape, 100, 10**6, False, 200)
    yield Case("ten times the strings exp", Params(8, 2, 128, **_TYPICAL), "exp", 100, 10**6, False, 1000, 2)
    yield Case("loose exp", Params(8, 2, 128, **_LOOSE), "exp", 100, 10**6, False, 20)
    for shape in ("exp", "zipf1.5"):
        yield Case(f"wide filter {shape}", Params(128, 2, 16, **_DEMO), shape, 200, 200_000, False, 150)
    yield Case("few cohorts gauss", Params(64, 2, 4, **_DEMO), "gauss", 40, 50_000, False, 60)


def vector(name: str) -> Collection:
    """Read one of the four collections of vectors/rappor_decode."""
    folder = ROOT / "vectors" / "rappor_decode" / name
    params = read_params(folder / "params.csv")
    with (folder / "true_hist.csv").open(encoding="utf-8", newline="") as lines:
        held = {row["string"]: int(row["count"]) for row in csv.DictReader(lines)}
    total = sum(held.values())
    truth = {string: count / total for string, count in held.items()}
    counts, candidates = read_counts(folder / "counts.csv", params), read_map(folder / "map.csv", params)
    return Collection(params, counts, candidates, truth, Variant.GOOGLE_PYTHON)


# ---- the reference -------------------------------------------------------------------------------------------------


def reference(given: Collection, seed: int) -> dict[str, float]:
    """Decode as the reference does: unbias, shorten, fit with constraints, refit four noisy copies, keep by two sds."""
    rng, rows = np.random.default_rng(seed), given.params.m * given.params.k
    ends = np.cumsum([0] + [len(bits) for bits in given.candidates.bits])
    ones = np.ones(int(ends[-1]))
    design = sparse.csc_matrix(
        (ones, np.concatenate(given.candidates.bits), ends), shape=(rows, len(given.candidates.bits))
    ).toarray()
    chances = given.params.chances(given.variant)
    base, gain = float(chances.p_star), float(chances.q_star - chances.p_star)
    sizes = given.counts[:, :1].astype(np.float64)
    estimates = (given.counts[:, 1:] / sizes - base) / gain
    rate = base + gain * np.clip(estimates, 0.0, 1.0)
    errors = (np.sqrt(rate * (1 - rate) / sizes) / gain).ravel()
    fits = []
    for copy in range(5):
        target, spread = estimates.ravel(), errors
        if copy:
            target, spread = target + rng.normal(0.0, errors), errors * 2**0.5
        chosen = np.arange(design.shape[1])
        if len(chosen) > 0.8 * rows:
            chosen = np.flatnonzero(_lasso(design, target, int(min(500, 0.8 * rows))) > 0)
        shares = np.zeros(design.shape[1])
        if len(chosen):
            weight = np.minimum(1 / spread, 2 * float(np.median(1 / spread)))
            most = np.minimum(1.0, np.maximum(0.01, target + 3 * spread))
            shares[chosen] = _constrained(design[:, chosen], target, weight, most)
        fits.append(shares)
    mean, deviation = np.mean(fits, axis=0), np.std(fits, axis=0, ddof=1)
    reports = int(given.counts[:, 0].sum())
    kept = np.flatnonzero(reports * mean > 1e-6 + 2 * reports * deviation)
    return {given.candidates.strings[i]: float(np.floor(mean[i] * reports)) / reports for i in kept}


def _constrained(design: Floats, target: Floats, weight: Floats, most: Floats) -> Floats:
    """Fit by least squares with shares from 0 on that sum to at most 1, and no bit above ``most``.

    Reduced to a least-distance problem and that to non-negative least squares (Lawson and Hanson 1974, chapter 23).
    """
    n = design.shape[1]
    orthogonal, upper = linalg.qr(design * weight[:, None], mode="economic")
    middle = orthogonal.T @ (target * weight)
    inverse = linalg.solve_triangular(upper, np.eye(n))
    sides = np.vstack([np.eye(n), -np.ones((1, n)), -design]) @ inverse
    bounds = np.concatenate([np.zeros(n), [-1.0], -most]) - sides @ middle
    system = np.vstack([sides.T, bounds[None, :]])
    wanted = np.append(np.zeros(n), 1.0)
    dual, _ = optimize.nnls(system, wanted, maxiter=30 * system.shape[1])
    left = system @ dual - wanted
    shares: Floats = inverse @ (middle - left[:n] / left[n])
    return shares


def _lasso(design: Floats, target: Floats, most: int) -> Floats:
    """Follow a non-negative lasso path to its end: a hundred penalties, at most so many strings, or no more gain."""
    from sklearn.linear_model import lasso_path  # type: ignore[import-untyped]

    rows, columns = design.shape
    centred, aim = design - design.mean(axis=0), target - target.mean()
    largest = float((centred.T @ aim).max()) / rows
    penalties = largest * (1e-4 if rows >= columns else 1e-2) ** (np.arange(100) / 99)
    best: Floats = np.zeros(columns)
    before, start = 0.0, None
    for first in range(0, 100, 10):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # paths that have not converged to the last digit
            _, path, _ = lasso_path(
                centred, aim, alphas=penalties[first : first + 10], positive=True, coef_init=start, max_iter=2000
            )
        start = path[:, -1]
        for place, shares in enumerate(path.T):
            if int((shares > 0).sum()) > most:
                return best
            best = np.asarray(shares, dtype=np.float64)
            left = aim - centred @ best
            explained = 1 - float(left @ left) / float(aim @ aim)
            if explained > 0.999 or (first + place > 4 and explained - before < 1e-5 * explained):
                return best
            before = explained
    return best


# ---- the table -----------------------------------------------------------------------------------------------------


def ours(given: Collection, rule: str) -> dict[str, float]:
    """Decode with this library."""
    decoded = decode(given.params, given.counts, given.candidates, rule=rule, variant=given.variant)  # type: ignore[arg-type]
    return {found.string: found.proportion for found in decoded.results}


def row(name: str, listed: int, scores: dict[str, list[tuple[float, float, float]]]) -> str:
    """Return a line of the table: means over the draws."""
    cells = []
    for each in scores.values():
        true, false, away = np.mean(each, axis=0)
        cells.append(f"{true:.1f}, {false:.1f}, {away:.3f}")
    return f"| {name} | {listed:,} | " + " | ".join(cells) + " |"


def table() -> Iterator[str]:
    """Yield the lines of the table as they are measured."""
    for name in VECTORS:
        given = vector(name)
        scores = {
            "reference": [given.score(reference(given, seed)) for seed in range(2 * _SEEDS)],
            "two-sd": [given.score(ours(given, "two-sd"))],
            "bonferroni": [given.score(ours(given, "bonferroni"))],
        }
        yield row(f"`{name}`", len(given.candidates), scores)
    for case in cases():
        scores = {"reference": [], "two-sd": [], "bonferroni": []}
        for seed in range(case.seeds):
            given = case.draw(seed)
            scores["reference"].append(given.score(reference(given, seed)))
            scores["two-sd"].append(given.score(ours(given, "two-sd")))
            scores["bonferroni"].append(given.score(ours(given, "bonferroni")))
        yield row(case.name, len(given.candidates), scores)


_TEXT = """# RAPPOR's decoder against the reference

Made by `python -m tools.rappor_decode` on {day}. Each cell holds true strings found, false strings found, and the
total variation to the truth (strings that are no candidates included, so it can't reach 0 where every tenth string is
not listed). The first four collections are those of `vectors/`, the reference's coins drawn {coins} times; the others
are means of {seeds} collections (2 for the longest list), each with strings, hash functions and noise of its own.

*Reference* is google/rappor's R code, derived anew from its steps (no R was at hand): bits unbiased, a non-negative
lasso where candidates are more than 0.8 of the bits, least squares with shares from 0 on that sum to at most 1, four
refits of noisy copies, kept where the mean exceeds two standard deviations. *two-sd* and *bonferroni* are our rules
([how they work](proofs/rappor.md#decoding)).

| collection | candidates | reference | two-sd | bonferroni |
| --- | ---: | ---: | ---: | ---: |
{lines}

{summary}

demo: k 32, h 1, m 64, p .25, q .75, f .5, a million reports of 100 strings, 100 decoys. typical, sharp, twice and ten
times the strings: k 8, h 2, m 128, p .39, q .61, f .45, a million reports of 100 strings; 20, 0, 200 and 1,000 decoys;
sharp lists every string. loose: the same with p .225, q .775, f 0. wide filter: k 128, h 2, m 16, 200,000 reports of
200 strings, 150 decoys. few cohorts: k 64, h 2, m 4, 50,000 reports of 40 strings, 60 decoys.
"""


def page(lines: list[str]) -> str:
    """Return the page."""
    day = f"{datetime.date.today():%Y-%m-%d}"
    return _TEXT.format(day=day, coins=2 * _SEEDS, seeds=_SEEDS, lines="\n".join(lines), summary=summary(lines))


def summary(lines: list[str]) -> str:
    """Return in two sentences how the reference and two-sd compare over all lines."""
    cells = [[part.strip().split(", ") for part in line.split("|")[3:5]] for line in lines]
    numbers = np.array(cells, dtype=np.float64)  # line, whose, which
    (true, false, _), (our_true, our_false, _) = numbers.sum(axis=0)
    smaller = int((numbers[:, 1, 2] < numbers[:, 0, 2]).sum())
    return (
        f"Over all collections the reference finds {true:,.0f} true and {false:,.0f} false strings, two-sd "
        f"{our_true:,.0f} and {our_false:,.0f}.\nThe total variation of two-sd is smaller in {smaller} of {len(lines)}."
    )


def main() -> int:
    """Measure, print and write."""
    lines = []
    for line in table():
        print(line, flush=True)
        lines.append(line)
    PAGE.write_text(page(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
