"""RAPPOR on the server: from counted bits to how many clients hold each candidate string.

1. **Unbias** the counts with the p* and q* that ran.
2. **Explain** each bit by the shares of the strings that turn it on. Strings that are not candidates turn any bit on
   with chance u = 1 - (1 - 1/k)^h; without this their clients would go to the candidates.
3. **Shorten** more than 0.8 m k candidates with a non-negative lasso.
4. **Fit** by weighted least squares; standard errors are widened by how badly the fit fits.
5. **Keep** by a rule, with intervals that hold for the strings it keeps. ``bonferroni``: z-tests with 5% for all
   candidates together (no promise after a lasso, which picks the strings that look best). ``two-sd``: keeps what the
   reference, which tosses coins, keeps more often than not, unless nobody holds it with a chance of 0.43 or more, by
   :mod:`hushquery.local.rappor.prior` in place of 3 and 4: more strings, and more false ones.

Reference: Erlingsson, Pihur and Korolova 2014; google/rappor, analysis/R. How ours differs: docs/proofs/rappor.md.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TextIO, get_args

import numpy as np
import numpy.typing as npt
from scipy import linalg, sparse
from scipy.special import ndtri

from hushquery.core.estimates import Estimates
from hushquery.errors import DataError, UsageError
from hushquery.local.intervals import FloatArray, IntArray, selected_interval
from hushquery.local.rappor.channel import SELECTED
from hushquery.local.rappor.files import Candidates
from hushquery.local.rappor.prior import posterior
from hushquery.local.rappor.response import Params, Variant

#: Which strings to keep.
Rule = Literal["two-sd", "bonferroni"]

#: The columns of results.csv, in the reference's order.
RESULT_FIELDS = ("string", "estimate", "std_error", "proportion", "prop_std_error", "prop_low_95", "prop_high_95")

#: The reference's two-sd bar in half of its tosses: the median of 2 s - mean of 0 and four standard normal numbers.
TWO_SD = 1.6055

#: The share of false strings in all, for the bonferroni rule.
_ALPHA = 0.05
#: The two-sd rule leaves a string out if the chance that nobody holds it is at least this.
_DOUBT = 0.43

# The reference's limits: beyond this share of the rows strings can't be told apart, and no more than so many survive.
_MOST_OF_ROWS = 0.8
_MOST_SURVIVORS = 500
# A fit with more columns than this takes minutes; the lasso shortens the list first.
_MOST_FITTED = 3000


@dataclass(frozen=True)
class Found:
    """A string that the rule keeps: its clients, their share, and an interval that allows for its having been kept."""

    string: str
    estimate: float
    std_error: float
    proportion: float
    prop_std_error: float
    prop_low_95: float
    prop_high_95: float


@dataclass(frozen=True)
class Metrics:
    """How a decoding went.

    ``missing_var`` is what neither the fit nor the noise explains; ``listed_mass`` is the share of the reports that all
    candidates explain, None where the lasso shortened them. Unless ``shrunk``, estimates are on average too high:
    strings are kept for looking large.
    """

    sample_size: int
    allocated_mass: float
    num_detected: int
    explained_var: float
    missing_var: float
    total_elapsed_time: float
    num_candidates: int
    listed_mass: float | None
    listed_std_error: float | None
    shrunk: bool


@dataclass(frozen=True, eq=False)
class Kept:
    """Of each string that is kept: a number around its share, its standard error, and what it had to exceed."""

    seen: FloatArray
    errors: FloatArray
    bars: FloatArray

    def interval(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Return the ends of intervals for the shares that hold given that the strings were kept."""
        low, high = selected_interval(self.seen, self.errors, self.bars, level)
        return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


@dataclass(frozen=True)
class Decoded:
    """What RAPPOR's server learns: the strings that the rule keeps, the largest first, and what they were kept for."""

    results: tuple[Found, ...]
    metrics: Metrics
    warnings: tuple[str, ...]
    kept: Kept

    def table(self, level: float) -> Estimates:
        """Return the shares as a table, with intervals that hold for strings that are shown."""

        def intervals(wanted: float) -> tuple[list[float], list[float]]:
            low, high = self.kept.interval(wanted)
            return low.tolist(), high.tolist()

        columns = [[getattr(row, name) for row in self.results] for name in ("string", "proportion", "prop_std_error")]
        raw = Estimates.raw(*columns, level=level, intervals=intervals)
        return raw.changed(raw.rows, SELECTED)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "results": [asdict(row) for row in self.results],
            "metrics": asdict(self.metrics),
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        width = max([len(row.string) for row in self.results] + [6])
        lines = [f"{'string':{width}}  {'clients':>12}  {'+-':>9}  {'share':>8}   (95% of share, as it was kept)"]
        lines += [
            f"{f.string:{width}}  {f.estimate:>12,.0f}  {f.std_error:>9,.0f}  {f.proportion:>8.4f}   "
            f"({f.prop_low_95:.4f} to {f.prop_high_95:.4f})"
            for f in self.results
        ]
        of = self.metrics
        lines.append(
            f"{of.num_detected:,} of {of.num_candidates:,} candidates found in {of.sample_size:,} reports; "
            f"they hold {of.allocated_mass:.1%} of them"
        )
        return "\n".join(lines)


def decode(
    params: Params,
    counts: IntArray,
    candidates: Candidates,
    *,
    rule: Rule = "bonferroni",
    variant: Variant | str = Variant.GOOGLE_PYTHON,
    repeats: int = 1,
) -> Decoded:
    """Estimate how many clients hold each candidate string; RAPPOR finds no others.

    ``counts`` has a row per cohort: its reports, and how often each bit was on. ``variant`` decides which f ran; a
    client has up to ``repeats`` reports, all from one permanent response.
    """
    started = time.perf_counter()
    if rule not in get_args(Rule):
        raise UsageError(f"no rule is called {str(rule)!r}", fix="Give two-sd or bonferroni")
    problem = _Problem(params, counts, candidates, variant, repeats)
    notes = problem.notes
    strict = -ndtri(_ALPHA / len(candidates))
    fit = problem.fit() if rule == "bonferroni" else problem.explain()
    errors = fit.errors * fit.misfit
    bars = strict * errors if fit.bars is None else fit.bars
    reports = int(counts[:, 0].sum())
    order = sorted(np.flatnonzero(fit.seen > bars), key=lambda i: (-fit.shares[i], candidates.strings[fit.columns[i]]))
    places = np.array(order, dtype=np.int64)
    kept = Kept(fit.seen[places], errors[places], bars[places])
    rows = [
        _found(candidates.strings[fit.columns[i]], float(fit.shares[i]), float(errors[i]), ends, reports)
        for i, *ends in zip(order, *kept.interval(0.95), strict=True)
    ]
    listed = listed_error = None
    if fit.total_variance is not None:
        listed, listed_error = float(fit.fitted.sum()), math.sqrt(fit.total_variance) * fit.misfit
    if listed is not None and listed_error is not None and not problem.complete and listed + 3 * listed_error < 1:
        notes.append(
            f"about {1 - listed:.0%} of the reports hold strings that are not among the candidates; "
            "RAPPOR can't name them, so look for more candidates"
        )
    if (least := float(np.median(errors) * strict)) > 1 / 10:
        notes.append(
            f"these reports are too few: a string must be held by about {min(least, 1):.0%} of the clients to be found"
        )
    metrics = Metrics(
        sample_size=reports,
        allocated_mass=math.fsum(one.proportion for one in rows),
        num_detected=len(rows),
        explained_var=fit.explained,
        missing_var=fit.missing,
        total_elapsed_time=time.perf_counter() - started,
        num_candidates=len(candidates),
        listed_mass=listed,
        listed_std_error=listed_error,
        shrunk=rule == "two-sd",
    )
    return Decoded(tuple(rows), metrics, tuple(notes), kept)


def write_results(decoded: Decoded, out: TextIO) -> None:
    """Write results.csv: the reference's columns in its order."""
    writer = csv.writer(out)
    writer.writerow(RESULT_FIELDS)
    writer.writerows([getattr(row, name) for name in RESULT_FIELDS] for row in decoded.results)


@dataclass(frozen=True)
class _Fit:
    """What was fitted to the candidates in ``columns``.

    ``seen`` is a number around each true share (``shares`` but for a prior), with ``errors`` without the misfit and the
    ``bars`` it must exceed, None where a test decides. ``misfit`` is how much larger residuals are than the noise of
    randomising makes them. ``fitted`` sums to an unbiased total, whose variance is None where candidates were left out.
    """

    columns: IntArray
    shares: FloatArray
    seen: FloatArray
    errors: FloatArray
    bars: FloatArray | None
    misfit: float
    fitted: FloatArray
    total_variance: float | None
    explained: float
    missing: float


class _Problem:
    """The weighted linear system: rows are bits of cohorts that have reports, columns are candidates."""

    def __init__(
        self, params: Params, counts: IntArray, candidates: Candidates, variant: Variant | str, repeats: int = 1
    ) -> None:
        if counts.shape != (params.m, params.k + 1) or (counts < 0).any():
            raise DataError("the counts do not fit the parameters", fix="Give m rows of k + 1 numbers from 0 on")
        if params.k < 2:
            raise UsageError("a Bloom filter of one bit tells no strings apart", fix="Give k of at least 2")
        used = counts[:, 0] > 0
        if not used.any():
            raise DataError("there are no reports", fix="Count reports with `hushquery rappor sum-bits`")
        chances = params.chances(variant)
        p_star, gain = float(chances.p_star), float(chances.q_star - chances.p_star)
        if gain <= 0:
            raise UsageError("the permanent response is all noise", why="f is 1", fix="Give an f below 1")
        reports = counts[used, 0].astype(np.float64)[:, None]
        share = (counts[used, 1:] / reports - p_star) / gain
        rate = p_star + gain * np.clip(share, 0.0, 1.0)
        # A rate of exactly 0 or 1 would claim to be without error; half a report more and less would not be.
        rate = np.clip(rate, 0.5 / reports, 1 - 0.5 / reports)
        self.error = (np.sqrt(rate * (1 - rate) * repeats / reports) / gain).ravel()
        self.share = share.ravel()
        self.anywhere = 1 - (1 - 1 / params.k) ** params.h
        self.notes: list[str] = []
        self.complete = False
        self._build(params, used, candidates)

    def _build(self, params: Params, used: npt.NDArray[np.bool_], candidates: Candidates) -> None:
        row_of = np.full(params.m, -1)
        row_of[used] = np.arange(int(used.sum()))
        first: dict[bytes, int] = {}
        unseen: list[str] = []
        twins: list[str] = []
        columns, parts = [], []
        for i, bits in enumerate(candidates.bits):
            rows = row_of[bits // params.k] * params.k + bits % params.k
            rows = rows[row_of[bits // params.k] >= 0]
            if len(rows) == 0:
                unseen.append(candidates.strings[i])
            elif first.setdefault(rows.tobytes(), i) != i:
                twins.append(candidates.strings[i])
            else:
                columns.append(i)
                parts.append(rows)
        self._tell("can't be reached: no reports from their cohorts", unseen)
        self._tell("can't be told from an earlier one: the same bits in every cohort", twins)
        if not columns:
            raise DataError("no candidate can be reached", why="none has bits in a cohort with reports")
        self.columns = np.array(columns, dtype=np.int64)
        ends = np.cumsum([0] + [len(rows) for rows in parts])
        ones = np.ones(int(ends[-1]))
        self.on = sparse.csc_matrix((ones, np.concatenate(parts), ends), shape=(len(self.share), len(columns)))

    def fit(self) -> _Fit:
        """Shorten where needed, then fit by weighted least squares."""
        shortened = self.long
        if shortened:
            self._keep(self._lasso())
        return self._least_squares(self._settled(), shortened=shortened)

    def explain(self) -> _Fit:
        """Explain all candidates together; a lasso shortens only what would take minutes."""
        plain = None
        if len(self.columns) > _MOST_FITTED and self.long:
            self._keep(self._lasso())
        elif not self.long:
            plain = self._least_squares(self._settled(), shortened=False)
        anywhere = 0.0 if self.complete else self.anywhere
        target = (self.share - anywhere) / self.error
        fitted = posterior(
            self._normal(anywhere)[0], self._against(target, anywhere), float(target @ target), len(target)
        )
        explained, missing = self._variances(target - self._explained_by(fitted.shares, anywhere))
        return _Fit(
            columns=self.columns,
            shares=fitted.shares,
            seen=fitted.left,
            errors=fitted.errors / fitted.misfit,
            bars=np.maximum(fitted.bar(_DOUBT), TWO_SD * fitted.narrow),
            misfit=fitted.misfit,
            fitted=fitted.shares if plain is None else plain.fitted,
            total_variance=None if plain is None else plain.total_variance,
            explained=explained,
            missing=missing,
        )

    @property
    def long(self) -> bool:
        """Whether there are more candidates than least squares can tell apart, or than it fits in time."""
        if len(self.columns) <= min(_MOST_OF_ROWS * len(self.share), _MOST_FITTED):
            return False
        # One bit, one string: nothing to tell apart, however many there are.
        return bool((self.on.T @ self.on).nnz != len(self.columns))

    def _settled(self) -> FloatArray:
        """Leave out candidates that are mixtures of others; return the normal matrix of the rest."""
        normal, independent = self._normal()
        if len(independent) < len(self.columns):
            raw, all_of_them = self._normal(anywhere=0.0)
            if len(all_of_them) == len(self.columns):  # the candidates fill every bit: there is no room for others
                self.complete, normal = True, raw
            else:
                dropped = np.setdiff1d(np.arange(len(self.columns)), independent)
                self._tell(
                    "can't be reached: their bits are a mixture of those of others",
                    [f"number {self.columns[i] + 1}" for i in dropped],
                )
                self._keep(independent)
                normal, _ = self._normal()
        return normal

    def _least_squares(self, normal: FloatArray, *, shortened: bool) -> _Fit:
        anywhere = 0.0 if self.complete else self.anywhere
        target = (self.share - anywhere) / self.error
        covariance = linalg.inv(normal)
        shares = covariance @ self._against(target, anywhere)
        left = target - self._explained_by(shares, anywhere)
        freedom = len(target) - len(shares)
        explained, missing = self._variances(left)
        return _Fit(
            columns=self.columns,
            shares=shares,
            seen=shares,
            errors=np.sqrt(np.diag(covariance)),
            bars=None,
            misfit=math.sqrt(max(1.0, float(left @ left) / freedom)) if freedom > 0 else 1.0,
            fitted=shares,
            total_variance=None if shortened else float(covariance.sum()),
            explained=explained,
            missing=missing,
        )

    def _variances(self, left: FloatArray) -> tuple[float, float]:
        """Return the shares of the bits' variance that a fit explains, and that neither it nor the noise does."""
        centred = self.share - self.share.mean()
        total = float(centred @ centred) or 1.0
        explained = 1 - float(((left * self.error) ** 2).sum()) / total
        return explained, max(0.0, 1 - explained - float((self.error**2).sum()) / total)

    def _normal(self, anywhere: float | None = None) -> tuple[FloatArray, IntArray]:
        """Compute the normal matrix, and which columns are independent of each other."""
        u = self.anywhere if anywhere is None else anywhere
        weight = 1 / self.error**2
        weighed = self.on.T @ weight
        matrix: FloatArray = (self.on.T @ sparse.diags_array(weight) @ self.on).toarray()
        matrix -= u * (weighed[:, None] + weighed[None, :]) - u * u * weight.sum()
        scale = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
        _, pivots, rank, _ = linalg.lapack.dpstrf(matrix / np.outer(scale, scale), tol=1e-9)
        return matrix, np.sort(pivots[:rank] - 1).astype(np.int64)

    def _against(self, rows: FloatArray, anywhere: float) -> FloatArray:
        """Multiply by the transposed design, (on - u)/error."""
        weighed = rows / self.error
        result: FloatArray = self.on.T @ weighed - anywhere * weighed.sum()
        return result

    def _explained_by(self, shares: FloatArray, anywhere: float) -> FloatArray:
        """Multiply by the design, (on - u)/error."""
        result: FloatArray = (self.on @ shares - anywhere * shares.sum()) / self.error
        return result

    def _lasso(self) -> IntArray:
        """Return the columns at the end of a non-negative lasso path (FISTA): where shares sum to 1 or are too many."""
        target = (self.share - self.anywhere) / self.error
        most = int(min(_MOST_SURVIVORS, _MOST_OF_ROWS * len(self.share)))
        # Power iteration: the largest eigenvalue of the normal matrix bounds the step.
        vector, steepest = np.ones(len(self.columns)), 1.0
        for _ in range(50):
            vector = self._against(self._explained_by(vector, self.anywhere), self.anywhere)
            steepest = float(np.linalg.norm(vector))
            vector = vector / steepest
        step = 1 / (1.05 * steepest)
        start = self._against(target, self.anywhere)
        penalty, shares = float(start.max()), np.zeros(len(self.columns))
        chosen = np.zeros(0, dtype=np.int64)
        for _ in range(40):
            penalty *= 0.85
            following = self._fista(target, shares, penalty, step)
            active = np.flatnonzero(following > 0)
            if len(active) > most or following.sum() > 1:
                break
            shares, chosen = following, active
        if len(chosen) == 0:
            chosen = np.sort(np.argsort(start)[-most:])
        return chosen

    def _fista(self, target: FloatArray, shares: FloatArray, penalty: float, step: float) -> FloatArray:
        ahead, momentum = shares, 1.0
        for _ in range(100):
            slope = self._against(target - self._explained_by(ahead, self.anywhere), self.anywhere)
            new = np.maximum(ahead + step * (slope - penalty), 0.0)
            following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
            ahead = new + (momentum - 1) / following * (new - shares)
            moved, shares, momentum = float(np.abs(new - shares).max()), new, following
            if moved < 1e-7:
                break
        return shares

    def _keep(self, columns: IntArray) -> None:
        self.columns, self.on = self.columns[columns], self.on[:, columns]

    def _tell(self, what: str, strings: Sequence[str]) -> None:
        if strings:
            some = ", ".join(repr(string) for string in strings[:3]) + (", ..." if len(strings) > 3 else "")
            noun = "candidate" if len(strings) == 1 else "candidates"
            self.notes.append(f"{len(strings):,} {noun} {what} ({some})")


def _found(string: str, share: float, error: float, ends: Sequence[float], reports: int) -> Found:
    low, high = float(ends[0]), float(ends[1])
    return Found(string, share * reports, error * reports, share, error, min(low, share), max(high, share))
