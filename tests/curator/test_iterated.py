"""Iterated selection: its certificate, its loss, its weights in the engine, and what a broken one would lose."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import ibis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import statistical
from hushquery.core.budget import Budget
from hushquery.core.calibration import mu_for
from hushquery.core.composition import compose
from hushquery.core.iterated import SHAPE, IteratedSelection, Rounds, Shape, calibrate_rounds, lone_strings
from hushquery.core.loss import Loss, loss_from, step_from
from hushquery.curator.counting import Bound
from hushquery.curator.plan import ReleaseSpec, calibrate
from hushquery.curator.selectors import iterated
from hushquery.curator.selectors.iterated import Iterated, IteratedSelector
from hushquery.errors import DataError, HushqueryError

# ---- the certificate -----------------------------------------------------------------------------------------------

GOLDEN = [
    ("ln 10", "1e-5", 1, ["788.05078125", "851.1923828125"], (3553, 20197), 19, 59698, 4.970191e-06, 7.692308e-07),
    ("ln 10", "1e-5", "7/10", ["941.900390625", "1017.369140625"], (4255, 24127), 23, 70679, 4.960156e-06, 6.5e-07),
    (1, "1e-6", 1, ["1888.8857421875", "2040.2294921875"], (8507, 48410), 47, 149319, 4.956048e-07, 4.225e-08),
    (4, "1e-7", 1, ["574.609375", "620.6494140625"], (2590, 14728), 14, 51002, 4.988814e-08, 1.3e-08),
]


@pytest.mark.parametrize(("epsilon", "delta", "part", "sigmas", "cuts", "step", "threshold", "f", "second"), GOLDEN)
def test_golden_calibrations(epsilon, delta, part, sigmas, cuts, step, threshold, f, second):
    half = Fraction(delta) / 2
    rounds = calibrate_rounds(mu_for(epsilon, half) ** 2 * Fraction(part), half)
    assert [str(s) for s in rounds.sigmas] == [str(Fraction(s)) for s in (*sigmas, sigmas[0])]
    assert (rounds.cuts, rounds.step, rounds.threshold) == (cuts, step, threshold)
    assert lone_strings(rounds) == pytest.approx(f, rel=1e-6)
    assert rounds.multipliers == pytest.approx((second, 0.0), rel=1e-6)
    assert lone_strings(replace(rounds, threshold=threshold - step)) > half  # the least threshold on the lattice
    loss = IteratedSelection.certified(rounds).loss
    if part == 1:
        assert Budget(epsilon, delta).delta * Fraction(99, 100) < Fraction(loss.delta(epsilon)) <= Fraction(delta)


def exact_value(rounds: Rounds) -> float:
    """The bound's own programme without any rounding: every z, every j, every n, on the whole numbers."""
    evidence, sigmas = rounds.evidence, [float(s) for s in rounds.sigmas]
    levels = (*rounds.cuts, rounds.threshold)
    top = rounds.threshold + int(12 * evidence[-1] * sigmas[-1])
    z = np.arange(0, top)
    value = np.ones(len(z))  # V_R
    for r in range(len(sigmas) - 1, 0, -1):
        noise = np.arange(-int(9 * sigmas[r]), int(9 * sigmas[r]) + 1)
        chance = ndtr((noise + 0.5) / sigmas[r]) - ndtr((noise - 0.5) / sigmas[r])
        before = np.zeros(len(z))
        for g, p in zip(noise, chance, strict=True):
            after = z + evidence[r] * g
            inside = np.clip(after, 0, top - 1)
            before += p * np.where(after >= levels[r], value[inside], 0.0)
        weights = np.arange(rounds.grid + 1)
        lifted = np.minimum(z[:, None] + evidence[r] * weights[None, :], top - 1)
        gains = before[lifted] - rounds.multipliers[r - 1] * (weights[None, :] / rounds.grid) ** 2
        value = np.maximum(gains.max(axis=1), 0.0)
    worst = 0.0
    noise = np.arange(-int(9 * sigmas[0]), int(9 * sigmas[0]) + 1)
    chance = ndtr((noise + 0.5) / sigmas[0]) - ndtr((noise - 0.5) / sigmas[0])
    for n in range(1, rounds.kept + 1):
        first = evidence[0] * (math.isqrt(rounds.grid**2 // n) + noise)
        alive = first >= levels[0]
        worst = max(worst, n * float((chance * np.where(alive, value[np.clip(first, 0, top - 1)], 0.0)).sum()))
    return worst + sum(rounds.multipliers)


SMALL = [
    Shape(kept=6, grid=8, evidence=(1, 2, 3), shares=(Fraction(1, 3),) * 3, cuts=(1.0, 1.5)),
    Shape(kept=9, grid=12, evidence=(1, 2), shares=(Fraction(1, 2),) * 2, cuts=(1.0,)),
    Shape(kept=4, grid=16, evidence=(2, 3), shares=(Fraction(2, 3), Fraction(1, 3)), cuts=(1.5,)),
]


@pytest.mark.parametrize("shape", SMALL, ids=str)
def test_the_certificate_is_above_the_exact_programme_and_not_by_much(shape):
    rounds = calibrate_rounds(Fraction(1, 2), Fraction(1, 100), shape)
    exact = exact_value(rounds)
    assert exact <= lone_strings(rounds) <= 0.01
    assert exact > 0.6 * lone_strings(rounds)  # a lattice of whole steps is coarse on so small a grid


STRATEGIES = {
    "equal": lambda _, alive: alive.astype(float),
    "highest": lambda z, alive: (z == np.where(alive, z, -(10**9)).max(axis=1, keepdims=True)) & alive,
    "soft": lambda z, alive: np.where(alive, np.exp((z - z.max(axis=1, keepdims=True)) / 4000.0), 0.0),
    "first": lambda _, alive: alive & (np.cumsum(alive, axis=1) == 1),
}


@pytest.mark.parametrize("n", [1, 20, 200])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_strategy_of_one_user_brings_out_more_than_the_certificate(strategy, n):
    """2,000 users at f = .02, far above any production value, so that a bound that is too low would show."""
    rounds, runs = calibrate_rounds(Fraction(3, 10), Fraction(1, 50)), 2000
    rng = np.random.default_rng([n, *strategy.encode()])
    weight = np.full((runs, n), math.isqrt(rounds.grid**2 // n), dtype=float)
    z, alive = np.zeros((runs, n)), np.ones((runs, n), dtype=bool)
    for r, level in enumerate((*rounds.cuts, rounds.threshold)):
        z = z + rounds.evidence[r] * (weight + np.rint(rng.normal(0, float(rounds.sigmas[r]), (runs, n))))
        alive &= z >= level
        wanted = np.where(alive, np.asarray(STRATEGIES[strategy](z, alive), dtype=float), 0.0)
        norm = np.sqrt((wanted**2).sum(axis=1, keepdims=True))
        weight = np.floor(rounds.grid * wanted / np.where(norm > 0, norm, 1))
    statistical.rate_at_most(int(alive.any(axis=1).sum()), runs, lone_strings(rounds))


def test_a_threshold_lowered_on_purpose_is_seen_by_the_same_simulation():
    rounds, runs = calibrate_rounds(Fraction(3, 10), Fraction(1, 50)), 2000
    broken = replace(rounds, threshold=rounds.step * (rounds.threshold // rounds.step // 2))
    rng = np.random.default_rng(7)
    z, alive = np.zeros((runs, 200)), np.ones((runs, 200), dtype=bool)
    for r, level in enumerate((*broken.cuts, broken.threshold)):
        spread = rounds.grid / np.sqrt(np.maximum(alive.sum(axis=1, keepdims=True), 1))
        weight = np.where(alive, np.floor(spread), 0)
        z = z + rounds.evidence[r] * (weight + np.rint(rng.normal(0, float(rounds.sigmas[r]), z.shape)))
        alive &= z >= level
    with pytest.raises(AssertionError):
        statistical.rate_at_most(int(alive.any(axis=1).sum()), runs, lone_strings(rounds))


def forged(**changes: object) -> dict[str, object]:
    return {**IteratedSelection.certified(calibrate_rounds(Fraction(3, 10), Fraction(5, 10**6))).to_json(), **changes}


@pytest.mark.parametrize(
    "changes",
    [
        {"threshold": 59812},
        {"threshold": 59830},
        {"threshold": True},
        {"threshold": 19 * 10**9},
        {"multipliers": ["0", "-1/100000"]},
        {"multipliers": ["0", "0"]},
        {"multipliers": ["0"]},
        {"multipliers": ["nan", "0"]},
        {"sigmas": ["1", "1", "1"]},
        {"sigmas": ["404497/512", "436907/512", "404999/512"]},
        {"sigmas": ["404497/512", "0", "404497/512"]},
        {"cuts": [0, 20235]},
        {"cuts": [20235, 3572]},
        {"cuts": 3},
        {"union_delta": "1/1000000"},
        {"union_delta": "-1"},
        {"union_delta": "1"},
        {"keys_per_user": 0},
        {"keys_per_user": 10**9},
        {"grid": 512},
        {"grid": "256"},
        {"evidence": [3, 8, 2.5]},
        {"evidence": [3, 8, 10, 10]},
        {"least": "0"},
    ],
    ids=str,
)
def test_a_step_that_states_more_than_its_certificate_is_refused(changes):
    assert loss_from(forged())  # the honest one is read
    with pytest.raises(HushqueryError):
        loss_from(forged(**changes))


def test_a_step_survives_its_json():
    step = IteratedSelection.certified(calibrate_rounds(Fraction(3, 10), Fraction(5, 10**6)))
    assert step_from(step.to_json()) == step
    assert Loss.from_json(step.loss.to_json()) == step.loss


@pytest.mark.parametrize("budget", [(12, "1e-10"), ("0.05", "1e-9"), ("0.5", "1e-4"), (20, "1e-12")])
def test_calibration_from_one_end_to_the_other(budget):
    epsilon, half = budget[0], Fraction(budget[1]) / 2
    step = IteratedSelection.certified(calibrate_rounds(mu_for(epsilon, half) ** 2, half))
    assert step.loss.fits(epsilon, 2 * half)


# ---- a chance that holds on average only ---------------------------------------------------------------------------


@given(
    st.fractions(0, 1).filter(lambda f: f.denominator < 10**6),
    st.fractions(0, Fraction(1, 2)).filter(lambda f: f.denominator < 10**6),
    st.lists(st.fractions(0, 1).filter(lambda f: f.denominator < 1000), max_size=2),
)
def test_a_union_is_added_outside_what_the_rest_costs(union, failing, pure):
    rest = Loss(Fraction(1, 4), tuple(pure), failing)
    both = rest + Loss(union_delta=union)
    for epsilon in (Fraction(1, 2), 2):
        assert both.delta(epsilon) == pytest.approx(min(1.0, rest.delta(epsilon) + float(union)), rel=1e-12)
        assert both.delta(epsilon) >= min(1.0, rest.delta(epsilon) + float(union)) * (1 - 1e-15)


def test_every_rule_of_composition_pays_for_a_union():
    step, union = Loss(mu_squared=Fraction(1, 100)), Fraction(1, 10**6)
    plain = compose([step] * 4, Fraction(1, 10**6))
    whole = compose([step + Loss(union_delta=union / 4)] * 4, Fraction(2, 10**6))
    for rule, epsilon in plain.alternatives.items():
        other = whole.alternatives[rule]
        assert isinstance(epsilon, float) == isinstance(other, float)
        if isinstance(epsilon, float):
            assert other == pytest.approx(epsilon, rel=1e-6)  # exactly the union is taken off delta
    assert Loss(union_delta=union).epsilon(Fraction(1, 10**7)) == math.inf
    assert Loss(pure=("1/2",), union_delta=union).epsilon(union) == 0.5
    assert not Loss(union_delta=union).is_pure
    assert not Loss(union_delta=union).fits(5, union / 2)


# ---- hockey sticks by enumeration ----------------------------------------------------------------------------------


def largest_excess(mechanism: IteratedSelector, claimed: Loss) -> float:
    """The most by which the exact delta of any pair, in either direction, exceeds what is claimed."""
    worst = -1.0
    for pair in mechanism.pairs():
        laws = mechanism.law(pair.left), mechanism.law(pair.right)
        for one, other in (laws, laws[::-1]):
            for epsilon in (0, Fraction(1, 2), 1, 2, 3):
                factor = math.exp(epsilon)
                delta = math.fsum(max(0.0, p - factor * other.get(out, 0.0)) for out, p in one.items())
                worst = max(worst, delta - claimed.delta(epsilon))
    return worst


@pytest.mark.parametrize("counted", [False, True])
def test_no_pair_of_logs_is_told_apart_better_than_claimed(counted):
    mechanism = IteratedSelector.calibrate(Fraction(3), Fraction(1, 50), counted=counted)
    assert largest_excess(mechanism, mechanism.loss) <= 1e-12


def test_a_lowered_threshold_is_caught():
    mechanism = IteratedSelector.calibrate(Fraction(3), Fraction(1, 50), counted=False)
    step = mechanism.selector.selection
    broken = replace(
        mechanism, selector=replace(mechanism.selector, selection=replace(step, threshold=step.threshold - 24))
    )
    assert largest_excess(broken, mechanism.loss) > 0.01


# ---- weights in the engine -----------------------------------------------------------------------------------------


def production() -> Iterated:
    selector = calibrate(ReleaseSpec(Budget("ln 10", 1e-5), 20, selector="iterated", select_only=True)).selector
    assert isinstance(selector, Iterated)
    return selector


def labelled(rows: list[tuple[str, int]]) -> ibis.Table:
    users, digests = zip(*rows, strict=True)
    return ibis.memtable(pa.table({"user": users, "digest": digests, "nth": [0] * len(rows)}))


def test_first_weights_are_the_whole_parts_of_the_roots():
    rows = [(f"user {t}", 1000 * t + i) for t in range(1, SHAPE.kept + 1) for i in range(t)]
    sums = production().first_sums(labelled(rows)).to_pyarrow().to_pydict()
    assert len(sums["n"]) == len(rows)
    assert all(n == math.isqrt(256**2 // (digest // 1000)) for digest, n in zip(sums["digest"], sums["n"], strict=True))


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(20_971, 2**20), min_size=1, max_size=SHAPE.kept))
def test_later_weights_are_exact_and_within_the_norm(shares):
    alive = pa.table({"digest": range(len(shares)), "nth": [0] * len(shares), "share": shares})
    each = labelled([("zoe", place) for place in range(len(shares))])
    sums = production().later_sums(each, ibis.memtable(alive)).to_pyarrow().to_pydict()
    found = dict(zip(sums["digest"], sums["n"], strict=True))
    norm = sum(share**2 for share in shares)
    assert found == {i: math.isqrt(256**2 * share**2 // norm) for i, share in enumerate(shares)}
    assert sum(n**2 for n in found.values()) <= 256**2


@pytest.mark.parametrize("weights", [[257], [200, 200], [-1, 5], [None, 5], [256, 1]])
def test_a_user_whose_weights_are_too_large_gives_nothing_and_others_do(weights):
    rows = [("poisoned", i, w) for i, w in enumerate(weights)] + [("honest", 0, 256)]
    table = {"user": [r[0] for r in rows], "digest": [r[1] for r in rows], "nth": [0] * len(rows)}
    weighed = ibis.memtable(pa.table(table | {"weight": pa.array([r[2] for r in rows], pa.int64())}))
    sums = production()._summed(weighed, iterated.LABEL).to_pyarrow().to_pydict()
    assert dict(zip(sums["digest"], sums["n"], strict=True)) == {0: 256}


def test_every_query_that_is_alive_gets_noise_in_every_round(monkeypatch):
    drawn = []
    original = iterated.noisy_counts

    def watched(counted, public, *rest):
        out = original(counted, public, *rest)
        assert out.select(iterated.LABEL).to_pylist() == public.select(iterated.LABEL).to_pylist()
        drawn.append(public.num_rows)
        return out

    monkeypatch.setattr(iterated, "noisy_counts", watched)
    rows = [(f"user {i}", 0) for i in range(400)] + [(f"user {i}", 1000 + i % 60) for i in range(400)]
    production().rounds(labelled(rows), statistical.bits("alive"))
    assert len(drawn) == 2
    assert drawn[0] > drawn[1] >= 1


# ---- labels --------------------------------------------------------------------------------------------------------


def test_queries_with_the_same_digits_are_told_apart(monkeypatch):
    log = [(f"user {i}", "popular") for i in range(300)] + [(f"user {i}", f"own {i}") for i in range(300)]
    log += [(f"other {i}", "also popular") for i in range(300)]
    users, queries = zip(*log, strict=True)
    table = ibis.memtable(pa.table({"user": users, "query": queries}))
    plain = production().run(table, Bound("random"), statistical.bits("plain"))
    monkeypatch.setattr(iterated, "digits_of", lambda query: query.length().cast("int64") * 0 + 7)
    merged = production().run(table, Bound("random"), statistical.bits("merged"))
    assert plain["query"].to_pylist() == merged["query"].to_pylist() == ["also popular", "popular"]


def test_nothing_comes_of_nothing():
    table = ibis.memtable(pa.table({"user": pa.array([], pa.string()), "query": pa.array([], pa.string())}))
    assert production().run(table, Bound("random"), statistical.bits("nothing")).num_rows == 0


def test_a_certificate_that_would_take_for_ever_is_refused():
    rounds = calibrate_rounds(Fraction(3, 10), Fraction(5, 10**6))
    with pytest.raises(DataError, match="too long"):
        lone_strings(replace(rounds, threshold=rounds.step * 10**7))
