"""The checks of ``hushquery.auditing.conformance`` as assertions, for its own tests."""

from __future__ import annotations

from fractions import Fraction

from hushquery.auditing.conformance import (
    end_to_end_findings,
    estimate_findings,
    law_findings,
    loss_findings,
    pure_findings,
    rate_findings,
    repeat_findings,
    tight_findings,
)
from statistical import SEED, count

EPSILON, DELTA = Fraction(3), Fraction(1, 1000)
#: Generous, so that a few hundred thousand runs tell even a slightly wrong threshold from an honest one.
WEAK = Fraction(1), Fraction(1, 50)


def check_law(mechanism):
    none_of(law_findings(mechanism))


def check_rates(mechanism):
    none_of(rate_findings(mechanism, SEED), checks=2 * len(datasets_of(mechanism)))


def check_end_to_end(mechanism):
    none_of(end_to_end_findings(mechanism, SEED), checks=2 * len(datasets_of(mechanism)))


def check_loss(mechanism, epsilons):
    none_of(loss_findings(mechanism, epsilons))


def check_pure(mechanism):
    none_of(pure_findings(mechanism))


def check_tight(mechanism, epsilon):
    none_of(tight_findings(mechanism, epsilon))


def check_estimates(mechanism):
    columns = sum(len(mechanism.truth(dataset) or ()) for dataset in datasets_of(mechanism))
    none_of(estimate_findings(mechanism, SEED), checks=2 * columns)


def check_repeatable(mechanism):
    none_of(repeat_findings(mechanism))


def datasets_of(mechanism):
    return {dataset for pair in mechanism.pairs() for dataset in (pair.left, pair.right)}


def none_of(findings, checks=0):
    """Nothing is found; comparisons of runs with a law count for the false-alarm rate of a whole run."""
    count(checks)
    found = list(findings)
    assert not found, "\n".join(found)
