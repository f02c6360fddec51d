"""Compute every number of docs/errata.md from the library and write the tables into the page.

    python tools/errata.py            # writes docs/errata.md
    python tools/errata.py --check    # says whether the page is what this would write, its date apart

Nothing here is random: the same code writes the same numbers. ``tests/docs/test_errata.py`` derives them another way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
from marked import Rows, Tables, main
from scipy import stats

from hushquery.core.budget import exact
from hushquery.core.calibration import laplace_delta, laplace_scale, laplace_threshold
from hushquery.core.guarantee import best_posterior
from hushquery.curator.selectors.korolova2009 import Theorem1
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.rappor.response import Chances, instant_epsilon, permanent_epsilon
from hushquery_experiments.blender.printed import printed_variances

PAGE = Path(__file__).parent.parent / "docs" / "errata.md"
COMMAND = "python tools/errata.py"
LN10 = math.log(10)

# The table of slide 85: d, K, b at e^epsilon = 10, delta = 1e-5.
SLIDE_85 = ((1, 5.70, 0.43), (5, 31.99, 2.17), (10, 66.99, 4.34), (20, 140.0, 8.69), (40, 292.04, 17.37),
            (80, 608.16, 34.74), (160, 1264.49, 69.49))  # fmt: skip


# ---- BLENDER ---------------------------------------------------------------------------------------------------------


def two_stage(k: int, k_q: int) -> TwoStage:
    """LocalAlg with k queries and k_q URLs each, both with the wildcard, at epsilon 4 and f_C = 0.85."""
    return TwoStage.calibrate([k_q - 1] * (k - 1), 4)


def variances(k: int, k_q: int, n: int, of_query: float, of_record: float) -> tuple[float, float, float]:
    """Give the variance of Theorem 5 as printed, with 1/n put back only, and the right one, at the expected reports."""
    oracle = two_stage(k, k_q)
    a, inside, outside, d = oracle.channel()
    shares = np.zeros(oracle.k)
    shares[0], shares[k_q - 1], shares[-1] = of_record, of_query - of_record, 1 - of_query
    rates = sum(share * np.array(list(oracle.law(v).values())) for v, share in enumerate(shares) if share)
    support = np.rint(n * np.asarray(rates)).astype(np.int64)
    r, r_q = float(rates[0]), float(np.asarray(rates)[:k_q].sum())  # type: ignore[index]
    c, t = float(outside[0] - inside[0]), oracle.t
    last = 2 * c * (k - 2 + t) / (k * t - 1) * r
    half = (r * (1 - r) + c**2 * r_q * (1 - r_q) / a**2 + last) / (n * float(d[0]) ** 2)
    return float(printed_variances(oracle, support, n)[0]), half, oracle.variance(0, of_record, of_query, n)


def optin_variance(p: float, n: int, epsilon: float) -> float:
    """Theorem 4's variance of an opt-in share, with known p."""
    return p * (1 - p) / n + 2 * (2 / epsilon) ** 2 / n**2


def theorem_5() -> Rows:
    rows = [
        [
            "k",
            "k_q",
            "n",
            "p_q",
            "p_qu",
            "printed",
            "divided by n only",
            "right",
            "blend's standard error, of the opt-in side's",
        ]
    ]
    for k, k_q, n, of_query, of_record in (
        (51, 3, 500_000, 0.02, 0.012),
        (51, 2, 500_000, 0.002, 0.001),
        (5, 2, 500_000, 0.5, 0.35),
        (5, 7, 500_000, 0.2, 0.1),
    ):
        printed, half, right = variances(k, k_q, n, of_query, of_record)
        optin = optin_variance(of_record, 1300, 4)
        blended = math.sqrt(optin / (1 + optin / right) / optin)
        rows.append([
            str(k), str(k_q), f"{n:,}", f"{of_query:g}", f"{of_record:g}", f"{printed:.2g}",
            f"{half:.3g} ({half / right:.3f} of it)", f"{right:.3g}", f"{blended:.0%}",
        ])  # fmt: skip
    return rows


def plug_in(p: float, n: int, client_variance: float) -> tuple[float, float]:
    """Give how often Theorem 4's estimate is not above 0, and the relative bias of a blend weighted by it.

    Exact: the count is binomial, the noise discrete Laplace with b = 1/2 (epsilon 4), and the clients' estimate is
    unbiased and independent. Weights are cut to 0..1, as any program would.
    """
    b, reach = 0.5, 60
    a = math.exp(-1 / b)
    noise = (1 - a) / (1 + a) * a ** np.abs(np.arange(-reach, reach + 1))
    law = np.convolve(stats.binom.pmf(np.arange(0, 80), n, p), noise)
    share = np.arange(-reach, len(law) - reach) / n
    estimated = share * (1 - share) / (n - 1) + 2 * a / (1 - a) ** 2 / (n * (n - 1))
    total = estimated + client_variance
    weight = np.where(total <= 0, 1.0, np.clip(client_variance / np.where(total == 0, 1.0, total), 0, 1))
    return float(law[estimated <= 0].sum()), float((law * weight * (share - p)).sum() / p)


def theorem_6() -> Rows:
    rows = [["p", "opt-in users", "clients' variance", "opt-in variance at or below 0", "bias of the blend"]]
    for p, n, client in ((0.001, 1300, 1e-6), (0.0002, 1300, 1e-6), (0.001, 26_000, 1e-7)):
        below, bias = plug_in(p, n, client)
        rows.append([f"{p:g}", f"{n:,}", f"{client:g}", f"{below:.1%}", f"{bias:+.1%}"])
    return rows


def local_alg() -> Rows:
    rows = [["URLs per query, with *", "stated", "what a report loses", "n Var, as printed", "n Var, all of it used"]]
    for k_q in (2, 3, 5):
        paper = two_stage(51, k_q)
        tight = TwoStage.calibrate([k_q - 1] * 50, 4, mode="tight")
        rows.append([
            str(k_q), "4", f"{float(paper.epsilon):.3f}", f"{paper.variance(0):.3f}", f"{tight.variance(0):.3f}",
        ])  # fmt: skip
    return rows


def splits(total: int, largest: int | None = None) -> Iterator[list[int]]:
    """Every way to write a number as a sum of positive whole numbers."""
    if total == 0:
        yield []
    for part in range(min(total, largest or total), 0, -1):
        for rest in splits(total - part, part):
            yield [part, *rest]


def worst_split(most: int, b: float, threshold: float) -> float:
    """The largest chance that a record held by one user alone passes, over all ways to hold ``most`` records."""
    return max(-math.expm1(sum(math.log1p(-math.exp((m - threshold) / b) / 2) for m in s)) for s in splits(most))


def head_list() -> Rows:
    rows = [["epsilon", "delta", "m_O", "tau", "delta that it has", "tau that has delta"]]
    for epsilon, delta, most in ((1, 1e-5, 1), (4, 1e-5, 1), (4, 1e-7, 1), (4, 1e-5, 2), (4, 1e-5, 5), (4, 1e-5, 10)):
        b = 2 * most / epsilon
        tau = b * (math.log(math.exp(epsilon / 2) + most - 1) - math.log(delta))
        enough = max(1 + b * math.log(most / (2 * delta)), most + b * math.log(1 / (2 * delta)))
        rows.append([
            str(epsilon), f"{delta:g}", str(most), f"{tau:.3f}", f"{worst_split(most, b, tau):.2e}", f"{enough:.3f}",
        ])  # fmt: skip
    return rows


# ---- Korolova et al. 2009 --------------------------------------------------------------------------------------------


def paper_threshold(d: int) -> tuple[float, float]:
    """K and b of the paper at e^epsilon = 10, delta = 1e-5."""
    return d * (1 - math.log(2e-5 / d) / LN10), d / LN10


def exact_delta(d: int, b: float, threshold: float) -> float:
    """The chance that a query of one user alone passes, over the worst split: d queries once, or one d times."""
    once = -math.expm1(d * math.log1p(-math.exp((1 - threshold) / b) / 2))
    return max(once, math.exp((d - threshold) / b) / 2)


def delta_alg() -> Rows:
    rows = [["d", "K", "b", "delta_alg", "delta that it has", "in integers", "K that has 1e-5", "lower by"]]
    for d, _, _ in SLIDE_85:
        threshold, b = paper_threshold(d)
        enough = max(1 + b * math.log(d / 2e-5), d + b * math.log(1 / 2e-5))
        stated = Theorem1(d, Fraction(threshold), laplace_scale(d, "ln 10"))
        rows.append([
            str(d), f"{threshold:.2f}", f"{b:.2f}", f"{stated.delta_alg:.2e}", f"{exact_delta(d, b, threshold):.2e}",
            f"{stated.delta_exact:.2e}", f"{enough:.2f}", f"{1 - enough / threshold:.1%}",
        ])  # fmt: skip
    return rows


def alphas(threshold: float, b: float) -> tuple[float, float, float]:
    """Give e^(1/b), the second term of alpha, and the second term with the -1 in the exponent."""
    reach = (threshold - 1) / b
    return math.exp(1 / b), 1 + 1 / (2 * math.exp(reach) - 1), 1 + 1 / (2 * math.exp(reach - 1))


def alpha() -> Rows:
    rows = [["d", "K", "b", "e^(1/b)", "second term", "as in the text", "epsilon_alg", "d/b", "delta that it has"]]
    for d, threshold, b in ((1, *paper_threshold(1)), (20, *paper_threshold(20)), (1, 1.0, 10.0), (20, 40.0, 20.0)):
        first, second, text = alphas(threshold, b)
        stated = Theorem1(d, exact(threshold), exact(b)).epsilon_alg
        cells = [f"{threshold:.2f}", f"{b:.2f}", f"{first:.4f}", f"{second:.6f}", f"{text:.6f}"]
        rows.append([str(d), *cells, f"{stated:.4f}", f"{d / b:.4f}", f"{exact_delta(d, b, threshold):.2g}"])
    return rows


def slide_85() -> Rows:
    rows = [["", *(f"d = {d}" for d, _, _ in SLIDE_85)]]
    rows.append(["K of the slide", *(f"{threshold:.2f}" for _, threshold, _ in SLIDE_85)])
    rows.append(["K computed", *(f"{paper_threshold(d)[0]:.2f}" for d, _, _ in SLIDE_85)])
    rows.append(["b of the slide", *(f"{b:.2f}" for _, _, b in SLIDE_85)])
    rows.append(["b = d/epsilon", *(f"{paper_threshold(d)[1]:.2f}" for d, _, _ in SLIDE_85)])
    return rows


def integers() -> Rows:
    rows = [
        ["d", "e^epsilon", "delta wanted", "real K", "delta of noisy > K on integers", "integer threshold", "delta"]
    ]
    for d, base in ((1, 5), (1, 10), (1, 4), (5, 10)):
        b = laplace_scale(d, f"ln {base}")
        threshold = max(1 + float(b) * math.log(d / 2e-5), d + float(b) * math.log(1 / 2e-5))
        right = laplace_threshold(b, d, 1e-5, row_counts=True)
        naive = laplace_delta(b, d, math.floor(threshold) + 1, row_counts=True)
        rows.append([
            str(d), str(base), "1e-05", f"{threshold:.3f}", f"{naive:.2e}", str(right),
            f"{laplace_delta(b, d, right, row_counts=True):.2e}",
        ])  # fmt: skip
    return rows


# ---- lecture notes and slides ----------------------------------------------------------------------------------------


def one_bit() -> Rows:
    rows = [["epsilon", "x", "as in the notes", "as it must be"]]
    for epsilon in (1, 2):
        e, right = math.exp(epsilon), OneBitMean.calibrate(100, epsilon)
        for x in (0, 50, 100):
            notes = 1 / (e + 1) * (x / 100 * (e - 1) / (e + 1))
            rows.append([str(epsilon), f"{x} of 100", f"{notes:.4f}", f"{right.chance(x) / 2**53:.4f}"])
    return rows


def rappor() -> Rows:
    chances = Chances(Fraction(1, 2), Fraction(3, 4), Fraction(1, 2))
    once, ever = instant_epsilon(2, chances), permanent_epsilon(2, Fraction(1, 2))
    rows = [["reports of one value", "what they lose", "the sum of the reports, which is no bound to wait for"]]
    for times in (1, 4, 5, 1000):
        rows.append([f"{times:,}", f"at most {min(ever, once * times):.3f}", f"{once * times:,.3f}"])
    return rows


def posterior() -> Rows:
    rows = [["believed before", "epsilon 0.1", "epsilon 1", "epsilon 4"]]
    for prior in (0.01, 0.1, 0.5):
        rows.append(
            [
                f"{prior:.0%}",
                *(f"at most {math.ceil(1000 * best_posterior(prior, e)) / 10:.1f}%" for e in (0.1, 1.0, 4.0)),
            ]
        )
    return rows


# ---- the page --------------------------------------------------------------------------------------------------------

TABLES: Tables = {
    made.__name__: made
    for made in (theorem_5, theorem_6, local_alg, head_list, delta_alg, alpha, slide_85, integers, one_bit, rappor,
                 posterior)
}  # fmt: skip


if __name__ == "__main__":
    main(PAGE, TABLES, COMMAND)
