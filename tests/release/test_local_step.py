"""What a report costs by the integers of its randomizer: the same fraction as the randomizer's own, and the law's."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushquery.core.budget import Relation
from hushquery.core.local_loss import CHANNELS, LocalChannel, report_epsilon, worst_ratio
from hushquery.core.loss import loss_from
from hushquery.errors import DataError, HushqueryError
from hushquery.local.numbers.dbitflip import DBitFlip
from hushquery.local.numbers.onebit import OneBitMean
from hushquery.local.oracles.hadamard import Hadamard
from hushquery.local.oracles.krr import KRR
from hushquery.local.oracles.olh import OLH
from hushquery.local.oracles.subset import SubsetSelection
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.local.oracles.unary import OUE
from hushquery.local.rappor.channel import Rappor
from hushquery.local.rappor.response import Params

ORACLES = [
    cls.calibrate(k, e) for cls in (KRR, SubsetSelection, OUE, OLH, Hadamard) for k in (2, 7, 51) for e in (1, 4)
]
ORACLES += [TwoStage.calibrate(urls, 4, mode=mode) for urls in ([1] * 50, [6, 3, 1]) for mode in ("paper", "tight")]
OTHERS = [
    *(OneBitMean.calibrate(most, e) for most in (1, 100) for e in (1, "ln 3")),
    *(DBitFlip.calibrate(8, d, e) for d in (1, 2, 8) for e in (1, 4)),
    *(Rappor(Params(16, h, 4, 0.25, 0.75, f)) for h in (1, 2) for f in (0.25, 0.5)),
]


def by_name(oracle):
    return f"{oracle.name}-{float(oracle.epsilon):.1f}"


@pytest.mark.parametrize("oracle", ORACLES + OTHERS, ids=by_name)
def test_both_computations_give_the_same_fraction(oracle):
    told = json.loads(json.dumps(oracle.describe()))
    assert report_epsilon(told) == oracle.epsilon
    assert loss_from(LocalChannel(told).to_json()).pure == (oracle.epsilon,)


@pytest.mark.parametrize("oracle", [o for o in ORACLES if o.k <= 7 and o.name not in ("olh",)], ids=by_name)
def test_it_is_the_worst_ratio_of_the_law(oracle):
    laws = [oracle.law(value) for value in range(oracle.k)]
    worst = max(one[report] / other[report] for one in laws for other in laws for report in one)
    assert float(worst_ratio(oracle.describe())) == pytest.approx(worst, rel=1e-9)


def test_every_oracle_of_a_release_is_known():
    assert {oracle.name for oracle in ORACLES + OTHERS} == set(CHANNELS)


def test_two_reports_cost_twice():
    channel = LocalChannel({"name": "krr", "k": 3, "lie": 2**53 // 5}, reports=2)
    assert channel.loss.epsilon(0) == pytest.approx(2 * math.log(3))
    assert loss_from(json.loads(json.dumps(channel.to_json()))) == channel.loss


def test_a_lifetime_ends_what_several_periods_cost_and_is_named_only_there():
    oracle = {"name": "krr", "k": 3, "lie": 2**53 // 5}
    assert "lifetime" not in LocalChannel(oracle, reports=2).to_json()  # as blends have always stated it
    ended = LocalChannel(oracle, reports=12, lifetime=Fraction(5))
    assert ended.to_json()["lifetime"] == "5"
    assert ended.loss.pure == (5,)
    assert loss_from(json.loads(json.dumps(ended.to_json()))) == ended.loss
    early = LocalChannel(oracle, reports=2, lifetime=Fraction(5))
    assert early.loss.epsilon(0) == pytest.approx(2 * math.log(3))
    for wrong in ("-1", "x", [], True):
        with pytest.raises(HushqueryError):
            loss_from({**ended.to_json(), "lifetime": wrong})


def test_one_cell_tells_nothing():
    assert report_epsilon({"name": "krr", "k": 1, "lie": 5}) == 0
    assert report_epsilon(TwoStage.calibrate([], 4).describe()) == 0


@pytest.mark.parametrize(
    "oracle",
    [
        {},
        None,
        [],
        {"name": "magic", "k": 3},
        {"name": ["krr"], "k": 3},
        {"name": "krr", "k": 3},
        {"name": "krr", "k": 3, "lie": 0},
        {"name": "krr", "k": 3, "lie": -1},
        {"name": "krr", "k": 3, "lie": 2**52},  # the truth would be rarer than a lie
        {"name": "krr", "k": 3, "lie": "5"},
        {"name": "krr", "k": True, "lie": 5},
        {"name": "krr", "k": 3, "lie": 5.0},
        {"name": "subset", "k": 3, "omega": 3, "truth": 2**52},
        {"name": "subset", "k": 3, "omega": 1, "truth": 2**53},
        {"name": "two-stage", "k": 5, "urls": [1, 1], "query_lie": 2**40, "url_lies": []},
        {"name": "two-stage", "k": 5, "urls": 7, "query_lie": 2**40, "url_lies": [[2, 2**40]]},
        {"name": "two-stage", "k": 5, "urls": [1, 1], "query_lie": 2**40, "url_lies": [[2, 0]]},
        {"name": "two-stage", "k": 5, "urls": [1, 1], "query_lie": 2**52, "url_lies": [[2, 2**40]]},  # as above
        {"name": "two-stage", "k": 5, "urls": [1, 1], "query_lie": 2**40, "url_lies": [[2, 2**52 + 1]]},
        {"name": "two-stage", "k": 5, "urls": [1, 1], "query_lie": 2**40, "url_lies": [[2, 2**40], [2, 2**41]]},
        {"name": "two-stage", "k": 1, "urls": [1, 1], "query_lie": 2**40, "url_lies": [[2, 2**40]]},
        {"name": "two-stage", "k": 6, "urls": [1, 1], "query_lie": 2**40, "url_lies": [[2, 2**40]]},
        {"name": "oue", "k": 3, "lie": 2**52 + 1},
        {"name": "hadamard", "k": 3, "lie": 2**52 + 1},
        {"name": "olh", "k": 3, "g": 4, "lie": 2**51 + 1},
        {"name": "subset", "k": 4, "omega": 2, "truth": 2**52 - 1},
    ],
)
def test_integers_that_make_no_sense_are_refused(oracle):
    with pytest.raises(DataError):
        loss_from({"kind": "local-channel", "oracle": oracle})


@pytest.mark.parametrize("change", [{"reports": 0}, {"reports": True}, {"reports": "2"}, {"relation": "add-remove"}])
def test_a_local_step_is_replace_one_with_a_report(change):
    good = LocalChannel({"name": "oue", "k": 3, "lie": 2**51}).to_json()
    assert good["relation"] == Relation.REPLACE_ONE.value
    with pytest.raises(DataError):
        loss_from({**good, **change})


@given(st.integers(2, 10**6), st.integers(1, 2**53))
def test_never_below_the_exact_ratio(k, lie):
    told = {"name": "krr", "k": k, "lie": lie}
    if (2**53 - (k - 1) * lie) < lie:
        with pytest.raises(DataError):
            report_epsilon(told)
        return
    assert worst_ratio(told) == Fraction(2**53 - (k - 1) * lie, lie)
    assert float(report_epsilon(told)) >= math.log(worst_ratio(told)) - 1e-12
