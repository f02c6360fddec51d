"""Chances measured word by word: what one random word decides is held to the law to the last bits."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from hushquery.auditing.attacks import exact_chances
from hushquery.auditing.conformance import conformance, word_findings
from hushquery.core.registry import find
from hushquery.local.oracles.krr import KRR
from hushquery.local.randomizer import ONE

ONE_WORD = ["binary-response", "krr", "one-bit-mean"]


@pytest.mark.parametrize("name", ONE_WORD)
def test_measured_chances_are_those_of_the_law(name):
    made = find(name).calibrate(Fraction(3), Fraction(1, 1000))
    for pair in made.pairs():
        for dataset in (pair.left, pair.right):
            measured = exact_chances(made, dataset)
            assert measured is not None
            assert sum(measured.values()) == pytest.approx(1, abs=1e-15)
            assert measured == pytest.approx({o: p for o, p in made.law(dataset).items() if p}, abs=1e-15)
    assert list(word_findings(made)) == []


@pytest.mark.parametrize("name", ["oue", "olh", "subset", "hadamard", "discrete-laplace"])
def test_what_takes_more_words_or_is_no_randomizer_is_left_to_rates(name):
    made = find(name).calibrate(Fraction(3), Fraction(1, 1000))
    assert list(word_findings(made)) == []
    assert exact_chances(made, made.pairs()[0].left) is None or made.kind != "randomizer"


@dataclass(frozen=True)
class Off(KRR):
    """k-RR that lies a little more rarely than it says."""

    by: int = 0

    def randomize_many(self, values, bits):
        return KRR(self.k, self.lie - self.by).randomize_many(values, bits)


class OffReport(find("krr")):
    name = "krr-off"

    @staticmethod
    def built(epsilon):
        made = KRR.calibrate(4, epsilon)
        return Off(made.k, made.lie, made.lie // 500)


def test_a_lie_that_is_a_500th_too_rare_is_found_by_words_and_by_nothing_else():
    failed = [finding.check for finding in conformance(OffReport) if not finding.holds]
    assert failed == ["where one random word decides, it decides by exactly that law"]


def test_a_lie_that_is_a_millionth_too_rare_is_found_too():
    made = OffReport(Off(4, ONE // 25, ONE // 25 // 10**6))
    found = list(word_findings(made))
    assert len(found) == 8  # four outputs in each of two datasets
    assert "has a chance of" in found[0]


def test_outputs_that_depend_on_their_place_are_not_measured():
    class Placed(OffReport):
        def run(self, dataset, n, bits):
            rows = super().run(dataset, n, bits)
            return np.roll(rows, 1, axis=0)

    assert exact_chances(Placed(Off(4, ONE // 25, 0)), 0) is None
