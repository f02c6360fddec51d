"""Which frequency oracle to use: the one whose estimates vary least, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from hushquery.core.budget import Number, exact
from hushquery.errors import CalibrationError, UsageError
from hushquery.local.oracles.hadamard import Hadamard
from hushquery.local.oracles.krr import KRR
from hushquery.local.oracles.olh import OLH
from hushquery.local.oracles.oracle import Oracle
from hushquery.local.oracles.subset import SubsetSelection
from hushquery.local.oracles.unary import OUE

__all__ = ["ORACLES", "Choice", "choose_oracle", "oracle_named"]

#: The oracles there are, the simplest first: of equals the first is chosen.
ORACLES: Mapping[str, type[Oracle]] = {cls.name: cls for cls in (KRR, Hadamard, OLH, OUE, SubsetSelection)}


@dataclass(frozen=True)
class Choice:
    """An oracle, and what it was chosen from.

    Args:
        oracle: The calibrated oracle.
        why: The reason, in a sentence.
        variances: For each oracle that can run, n times the variance of the estimate of a rare cell.
        report_bytes: For each of them, the length of a report.
    """

    oracle: Oracle
    why: str
    variances: Mapping[str, float]
    report_bytes: Mapping[str, int]


def choose_oracle(k: int, epsilon: Number, within: Number = 0) -> Choice:
    """Choose the oracle of the smallest variance for a rare cell; of equals, the one with the shortest report.

    Args:
        k: The number of cells.
        epsilon: What one report may cost.
        within: Variances at most this share above the smallest count as equal: 0.02 trades two per cent for reports
            that may be a hundred times shorter.

    >>> choose_oracle(51, 4).oracle.name, choose_oracle(501, 4).oracle.name
    ('krr', 'subset')
    >>> choose_oracle(5001, 1, within=0.02).oracle.name
    'olh'
    >>> print(choose_oracle(501, 4).why)
    subset has the smallest variance for a rare cell, 0.0717/n, in 18 bytes; next is oue with 0.076/n in 63 bytes.
    """
    slack = exact(within, "within")
    if slack < 0:
        raise UsageError("within is a share of the smallest variance, 0 or more", fix="Give for example 0.02")
    able: dict[str, Oracle] = {}
    refused: CalibrationError | None = None
    for name, cls in ORACLES.items():
        try:
            able[name] = cls.calibrate(k, epsilon)
        except CalibrationError as error:  # too coarse for this one; another may do
            refused = error
    if refused is not None and not able:
        raise refused
    # Exact, because devices choose by themselves, in any language, and must all choose the same.
    exactly = {name: oracle.rare_variance for name, oracle in able.items()}
    limit = min(exactly.values()) * (1 + slack + Fraction(1, 10**9))  # what 53 bits can't tell apart is equal
    best = min((n for n in able if exactly[n] <= limit), key=lambda n: able[n].report_bytes)
    sizes = {name: oracle.report_bytes for name, oracle in able.items()}
    variances = {name: float(variance) for name, variance in exactly.items()}
    return Choice(able[best], _why(best, variances, sizes, float(limit)), variances, sizes)


def oracle_named(name: str, k: int, epsilon: Number) -> Oracle:
    """Calibrate an oracle by its name, or the best one for ``auto``.

    >>> oracle_named("auto", 51, 4).name
    'krr'
    """
    if name == "auto":
        return choose_oracle(k, epsilon).oracle
    if name not in ORACLES:
        raise UsageError(f"no oracle is called {name!r}", fix=f"Give auto or one of {', '.join(ORACLES)}")
    return ORACLES[name].calibrate(k, epsilon)


def _why(best: str, variances: Mapping[str, float], sizes: Mapping[str, int], limit: float) -> str:
    def said(name: str) -> str:
        return f"{variances[name]:.3g}/n"

    def size(name: str) -> str:
        return f"{sizes[name]} byte{'' if sizes[name] == 1 else 's'}"

    equal = [name for name in variances if name != best and variances[name] <= limit]
    further = sorted((name for name in variances if name != best and name not in equal), key=lambda n: variances[n])
    lead = f"{best} has the smallest variance for a rare cell, {said(best)}, in {size(best)}"
    if equal:
        lead = (
            f"{best} has the shortest report, {size(best)}, of those of the smallest variance for a rare cell, "
            f"{said(best)} (also {', '.join(f'{n}: {said(n)}, {size(n)}' for n in equal)})"
        )
    after = f"; next is {further[0]} with {said(further[0])} in {size(further[0])}" if further else ""
    return lead + after + "."
