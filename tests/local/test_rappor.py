"""RAPPOR on the client: the reference's vectors bit for bit, the native variant's promises, and averaging attacks."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery.errors import HushqueryError, UsageError
from hushquery.local.randomizer import ONE
from hushquery.local.rappor.mechanisms import RapporPermanent, RapporReport
from hushquery.local.rappor.response import (
    Chances,
    Encoder,
    Params,
    Variant,
    bit_string,
    bloom_bits,
    google_masks,
    instant_epsilon,
    permanent_epsilon,
)
from hushquery.noise.sampler import SeededBits, SystemBits

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "rappor.json").read_text(encoding="utf-8"))
CASES = VECTORS["python_client"]["encode"]
SMALL = Params(16, 2, 64, 0.5, 0.75, 0.5)
WIDE = Params(128, 2, 8, 0.25, 0.75, 0.5)
SECRET = bytes(range(32))


class Words:
    """Bits that say exactly what a test wants: coins come out as the given heads and tails."""

    secret = False

    def __init__(self, *masks: int, k: int) -> None:
        self._coins = [mask >> i & 1 for mask in masks for i in range(k)]

    def words(self, n: int) -> Any:
        now, self._coins = self._coins[:n], self._coins[n:]
        return np.array([0 if heads else 2**64 - 1 for heads in now], dtype=np.uint64)


# ---- google-python -------------------------------------------------------------------------------------------------


def test_every_vector_of_the_reference_client() -> None:
    assert len(CASES) == 600
    for case in CASES:
        params, secret, value = (
            Params(**case["params"]),
            *(bytes.fromhex(case[f"{n}_hex"]) for n in ("secret", "value")),
        )
        assert bloom_bits(params, "google-python", case["cohort"], value) == case["bloom_bits"]
        noise = math.ceil(128 * params.f)
        message = case["bloom"].to_bytes(4, "big")
        assert google_masks(secret, message, noise, params.k) == (case["uniform"], case["f_mask"])
        device = Encoder(params, secret, Variant.GOOGLE_PYTHON)
        assert device.bloom(case["cohort"], value) == case["bloom"]
        assert device.permanent(case["bloom"]) == case["prr"]
        assert device.instant(case["prr"], Words(case["p_mask"], case["q_mask"], k=params.k)) == case["irr"]


def test_constants_that_the_reference_asserts() -> None:
    encoder, masks = VECTORS["upstream_asserted"]
    params, cycle = Params(**encoder["params"]), [0.0, 0.6, 0.0]
    drawn = [sum((cycle[i % 3] < chance) << i for i in range(params.k)) for chance in (params.p, params.q)]
    device = Encoder(params, encoder["secret"].encode(), Variant.GOOGLE_PYTHON)
    prr = device.permanent(device.bloom(encoder["cohort"], encoder["value"].encode()))
    assert device.instant(prr, Words(*drawn, k=params.k)) == encoder["irr"] == 64493
    for case in masks["cases"]:
        made = google_masks(masks["secret"].encode(), case["msg"].encode(), math.ceil(128 * masks["f"]), masks["k"])
        assert made == (case["uniform"], case["f_mask"])


@pytest.mark.parametrize("example", VECTORS["privacy_examples"])
def test_privacy_formulas(example: dict[str, Any]) -> None:
    params = Params(*(example[name] for name in "khmpqf"))
    chances = Chances(params.p, params.q, params.f)
    assert float(chances.p_star) == pytest.approx(example["p_star"], rel=1e-15)
    assert float(chances.q_star) == pytest.approx(example["q_star"], rel=1e-15)
    assert instant_epsilon(params.h, chances) == pytest.approx(example["eps_1"], rel=1e-13)
    ever = permanent_epsilon(params.h, params.f)
    assert ever == (math.inf if example["eps_inf"] is None else pytest.approx(example["eps_inf"], rel=1e-13))


def test_the_claim_is_made_from_the_f_that_runs() -> None:
    params = Params(16, 2, 64, 0.5, 0.75, 0.3)
    assert params.chances("google-python").f == Fraction(39, 128)
    assert params.permanent_epsilon("google-python") == permanent_epsilon(2, Fraction(39, 128))
    assert (
        params.permanent_epsilon("google-python") < params.permanent_epsilon("native") <= permanent_epsilon(2, params.f)
    )


@given(st.fractions(0, 1), st.fractions(0, 1), st.fractions(0, 1))
def test_chances_that_run_never_lose_more_than_configured(p: Fraction, q: Fraction, f: Fraction) -> None:
    if p >= q:
        return
    for variant in Variant:
        runs = Params(8, 1, 2, p, q, f).chances(variant)
        assert runs.f >= f
        assert p <= runs.p
        assert runs.q <= q
        assert (runs.p * ONE).denominator == (runs.q * ONE).denominator == (runs.f / 2 * ONE).denominator == 1


# ---- native --------------------------------------------------------------------------------------------------------


def test_native_takes_any_k_and_always_answers_alike() -> None:
    for k in (2, 7, 33, 100, 1001):
        params = Params(k, 3, 5, 0.25, 0.75, 0.5)
        device = Encoder(params, SECRET, task=b"a")
        bloom = device.bloom(4, b"weather leeds")
        assert 1 <= bloom.bit_count() <= 3
        assert 0 <= device.permanent(bloom) < 1 << k
        assert device.permanent(bloom) == Encoder(params, SECRET, task=b"a").permanent(bloom)
        assert 0 <= device.cohort() < 5


def test_coins_differ_between_tasks_secrets_and_values() -> None:
    bloom = Encoder(WIDE, SECRET, task=b"a").bloom(0, b"x")
    answers = [
        Encoder(WIDE, SECRET, task=b"a").permanent(bloom),
        Encoder(WIDE, SECRET, task=b"b").permanent(bloom),
        Encoder(WIDE, SECRET[::-1], task=b"a").permanent(bloom),
        Encoder(WIDE, SECRET, task=b"a").permanent(bloom ^ 1) ^ 1,
    ]
    assert len(set(answers)) == len(answers)


def test_native_flips_exactly_as_often_as_it_says() -> None:
    """f = 1 is a fair coin for each bit, f = 0 no coin, and between them flips come at f/2."""
    for f, low, high in ((Fraction(0), 0, 0), (Fraction(1), 470, 554), (Fraction(1, 4), 95, 165)):
        device = Encoder(Params(1024, 2, 1, 0, 1, f), SECRET)
        bloom = device.bloom(0, b"x")
        assert low <= (device.permanent(bloom) ^ bloom).bit_count() <= high


def test_reports_have_the_stated_rates() -> None:
    device = Encoder(WIDE, SECRET)
    permanent = np.zeros((1000, 128), dtype=bool)
    permanent[:, 64:] = True
    rates = device.instant_many(permanent, SeededBits("rates")).reshape(1000, 2, 64).mean(axis=(0, 2))
    assert rates == pytest.approx([0.25, 0.75], abs=0.01)  # five standard errors


def test_both_paths_of_a_report_use_the_same_coins() -> None:
    device = Encoder(WIDE, SECRET)
    permanent = device.permanent(device.bloom(1, b"x"))
    row = np.array([[permanent >> i & 1 for i in range(128)]], dtype=bool)
    many = device.instant_many(row, SeededBits(5))[0]
    assert device.instant(permanent, SeededBits(5)) == sum(int(bit) << i for i, bit in enumerate(many))


# ---- what memoising is for -----------------------------------------------------------------------------------------


def averaged(device: Encoder, cohort: int, value: bytes, reports: int, *, redraw: bool) -> int:
    """Give the Bloom filter that an attacker reads off the average of one client's reports."""
    bits, secrets = SeededBits("attack"), SeededBits("secrets")
    bloom, rows = device.bloom(cohort, value), []
    for _ in range(reports):
        now = device.another(secrets.words(4).tobytes()) if redraw else device
        answer = now.permanent(bloom)
        rows.append([answer >> i & 1 for i in range(device.params.k)])
    mean = device.instant_many(np.array(rows, dtype=bool), bits).mean(axis=0)
    return sum(int(share > 0.5) << i for i, share in enumerate(mean))


def test_averaging_reports_finds_the_permanent_response_and_not_the_truth() -> None:
    device = Encoder(WIDE, SECRET)
    bloom = device.bloom(3, b"secret query")
    read = averaged(device, 3, b"secret query", 2000, redraw=False)
    assert read == device.permanent(bloom)
    assert (read ^ bloom).bit_count() >= 16  # a quarter of 128 bits lie, give or take


def test_averaging_finds_the_truth_where_the_permanent_response_is_redrawn() -> None:
    device = Encoder(WIDE, SECRET)
    assert averaged(device, 3, b"secret query", 2000, redraw=True) == device.bloom(3, b"secret query")


# ---- the registered mechanisms -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [RapporPermanent, RapporReport])
@pytest.mark.parametrize("epsilon", ["1/100", "1", "23/10", "8", "20"])
def test_claims_are_exact_and_within_budget(mechanism: Any, epsilon: str) -> None:
    built = mechanism.calibrate(Fraction(epsilon), Fraction(0))
    claimed = built.loss.epsilon(0)
    assert Fraction(epsilon) * Fraction(1 - 1e-9) <= claimed <= Fraction(epsilon)
    [pair] = built.pairs()
    left, right = built.law(pair.left), built.law(pair.right)
    assert math.fsum(left.values()) == pytest.approx(1, abs=1e-12)
    worst = max(abs(math.log(left[answer] / right[answer])) for answer in left)
    assert worst == pytest.approx(claimed, rel=1e-9)


def test_a_report_of_the_mechanism_costs_what_the_formula_says() -> None:
    params = RapporReport.calibrate(Fraction(2), Fraction(0)).params
    assert params.instant_epsilon("native") == pytest.approx(2, rel=1e-9)
    assert params.permanent_epsilon("native") > 2


# ---- Bloom filters -------------------------------------------------------------------------------------------------


def test_bloom_false_positives() -> None:
    assert Params(32, 1, 1, 0, 1, 0.5).bloom_false_positive_rate == 1 / 32
    assert Params(1, 3, 1, 0, 1, 0.5).bloom_false_positive_rate == 1
    # Two hashes of k: the filter has two bits with chance 1 - 1/k, one bit otherwise.
    params = Params(8, 2, 1, 0, 1, 0.5)
    assert params.bloom_false_positive_rate == pytest.approx((7 / 8) * (2 / 8) ** 2 + (1 / 8) * (1 / 8) ** 2)
    device, words = Encoder(params, SECRET), [b"%d" % i for i in range(3000)]
    filters = np.array([device.bloom(0, word) for word in words])
    inside = float(np.mean((filters[:, None] & filters[None, :]) == filters[:, None])) - 1 / len(words)
    assert inside == pytest.approx(params.bloom_false_positive_rate, abs=0.004)


# ---- nonsense ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"k": 33}, "too large for the google-python variant"),
        ({"h": 17}, "too large for the google-python variant"),
        ({"k": 0}, "whole number"),
        ({"k": 2**16 + 1}, "whole number"),
        ({"k": True}, "whole number"),
        ({"k": 16.0}, "whole number"),
        ({"m": -1}, "whole number"),
        ({"p": 0.9}, "must be below"),
        ({"q": 1.5}, "no chance"),
        ({"f": -0.1}, "no chance"),
        ({"f": float("nan")}, "finite number"),
        ({"f": "half"}, "finite number"),
    ],
)
def test_bad_parameters_are_refused_in_words(bad: dict[str, Any], says: str) -> None:
    params = {"k": 16, "h": 2, "m": 64, "p": 0.5, "q": 0.75, "f": 0.5} | bad
    with pytest.raises(UsageError, match=says):
        Encoder(Params(**params), b"secret", Variant.GOOGLE_PYTHON)


@pytest.mark.parametrize("cohort", [64, -1, True, 1.0, "0"])
def test_cohorts_that_do_not_exist_are_refused(cohort: Any) -> None:
    with pytest.raises(UsageError, match="out of range"):
        Encoder(SMALL, b"secret", Variant.GOOGLE_PYTHON).bloom(cohort, b"value")


def test_errors_and_reprs_show_no_secret() -> None:
    hidden = b"swordfish"
    assert b"swordfish".decode() not in repr(Encoder(SMALL, hidden, Variant.GOOGLE_PYTHON))
    for make in (
        lambda: Encoder(SMALL, hidden),
        lambda: Encoder(SMALL, "swordfish", Variant.GOOGLE_PYTHON),  # type: ignore[arg-type]
        lambda: Encoder(SMALL, hidden, Variant.GOOGLE_PYTHON, task=b"a"),
        lambda: Encoder(SMALL, hidden, Variant.GOOGLE_PYTHON).cohort(),
        lambda: Encoder(SMALL, hidden, Variant.GOOGLE_PYTHON).bloom(64, hidden),
        lambda: Encoder(SMALL, hidden, Variant.GOOGLE_PYTHON).bloom(0, "swordfish"),  # type: ignore[arg-type]
        lambda: Encoder(SMALL, hidden, Variant.GOOGLE_PYTHON).permanent(1 << 16),
        lambda: Encoder(SMALL, SECRET).another(hidden),
        lambda: Encoder(SMALL, SECRET).instant_many(np.zeros((1, 3), dtype=bool), SystemBits()),
        lambda: Encoder(SMALL, SECRET, "java"),
    ):
        with pytest.raises(HushqueryError) as caught:
            make()
        assert "swordfish" not in str(caught.value)


@given(st.binary(max_size=40), st.binary(min_size=16, max_size=40), st.integers(0, 7))
@settings(max_examples=50)
def test_any_value_has_a_report(value: bytes, secret: bytes, cohort: int) -> None:
    device = Encoder(WIDE, secret)
    report = device.instant(device.permanent(device.bloom(cohort, value)), SeededBits(1))
    assert len(bit_string(report, 128)) == 128
