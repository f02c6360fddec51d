"""RAPPOR on the server: the gates on the reference's demo, exactness without noise, and lists it can't tell apart."""

from __future__ import annotations

import csv
import io
import math
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hushquery.errors import DataError, UsageError
from hushquery.local.rappor.decode import RESULT_FIELDS, TWO_SD, Decoded, Found, Rule, decode, write_results
from hushquery.local.rappor.files import Candidates, hash_candidates, read_counts, read_map, read_params, write_map
from hushquery.local.rappor.plan import LECTURE, forecast, share_std_error
from hushquery.local.rappor.response import Encoder, Params, Variant
from hushquery.noise.sampler import SeededBits

FOLDER = Path(__file__).parents[2] / "vectors" / "rappor_decode"


class Case:
    """One of the reference's simulations, with its truth."""

    def __init__(self, name: str, decoys: int = 0) -> None:
        folder = FOLDER / name
        self.params = read_params(folder / "params.csv")
        self.counts = read_counts(folder / "counts.csv", self.params)
        text = io.StringIO((folder / "map.csv").read_text(encoding="utf-8"), newline="")
        text.seek(0, io.SEEK_END)
        write_map(hash_candidates(self.params, [f"decoy {i}" for i in range(decoys)]), text)
        text.seek(0)
        self.candidates = read_map(text, self.params)
        with (folder / "true_hist.csv").open(encoding="utf-8", newline="") as lines:
            held = {row["string"]: int(row["count"]) for row in csv.DictReader(lines)}
        self.truth = {string: count / sum(held.values()) for string, count in held.items()}

    def true(self, decoded: Decoded) -> int:
        return sum(found.string in self.truth for found in decoded.results)

    def total_variation(self, decoded: Decoded) -> float:
        told = {found.string: found.proportion for found in decoded.results}
        return sum(abs(told.get(s, 0) - self.truth.get(s, 0)) for s in {*told, *self.truth}) / 2

    def covered(self, decoded: Decoded) -> float:
        inside = [f.prop_low_95 <= self.truth.get(f.string, 0) <= f.prop_high_95 for f in decoded.results]
        return sum(inside) / len(inside)


@cache
def case(name: str, decoys: int = 0) -> Case:
    return Case(name, decoys)


# ---- the gates -----------------------------------------------------------------------------------------------------


def test_demo3_by_two_sd() -> None:
    demo = case("demo3")
    assert len(demo.candidates) == 190
    decoded = decode(demo.params, demo.counts, demo.candidates, rule="two-sd")
    assert demo.true(decoded) >= 49
    assert demo.total_variation(decoded) <= 0.14
    assert demo.covered(decoded) >= 0.9


def test_demo3_by_bonferroni() -> None:
    demo = case("demo3")
    decoded = decode(demo.params, demo.counts, demo.candidates, rule="bonferroni")
    assert demo.true(decoded) >= 34
    assert demo.true(decoded) == len(decoded.results)
    assert demo.total_variation(decoded) <= 0.14
    assert demo.covered(decoded) >= 0.95


@pytest.mark.parametrize(
    ("name", "two_sd", "variation", "bonferroni"),
    [("demo1", 87, 0.152, 77), ("r-exp-small-typical", 37, 0.20, 28), ("r-exp-small-sharp", 40, 0.17, 32)],
)
def test_the_other_simulations_are_decoded_as_well_as_by_the_reference(
    name: str, two_sd: int, variation: float, bonferroni: int
) -> None:
    demo = case(name)
    many = decode(demo.params, demo.counts, demo.candidates, rule="two-sd")
    assert demo.true(many) >= two_sd
    assert demo.total_variation(many) <= variation
    few = decode(demo.params, demo.counts, demo.candidates, rule="bonferroni")
    assert demo.true(few) == len(few.results) >= bonferroni


@pytest.mark.parametrize(
    ("name", "true", "false", "variation"),
    [
        ("demo1", 88.8, 10.4, 0.150),
        ("demo3", 49.4, 12.7, 0.149),
        ("r-exp-small-typical", 41.6, 1.8, 0.185),
        ("r-exp-small-sharp", 44.1, 0.1, 0.150),
    ],
)
def test_two_sd_finds_more_than_the_reference_with_fewer_false_strings_and_a_smaller_error(
    name: str, true: float, false: float, variation: float
) -> None:
    """The reference's means over its coins, on these counts: docs/rappor-decode.md."""
    demo = case(name)
    decoded = decode(demo.params, demo.counts, demo.candidates, rule="two-sd")
    assert demo.true(decoded) >= true
    assert len(decoded.results) - demo.true(decoded) < false
    assert demo.total_variation(decoded) < variation


def simulated(seed: int, decoys: int) -> tuple[Case, Params]:
    """Draw counts from the law that devices give them: 60 strings with shares that fall exponentially."""
    made, rng = Case.__new__(Case), np.random.default_rng(seed)
    made.params = params = Params(16, 2, 32, 0.3, 0.7, 0.4)
    strings = [f"{seed} held {i}" for i in range(60)]
    shares = np.exp(-np.arange(60) / 12)
    shares /= shares.sum()
    everything = hashed(params, strings + [f"{seed} decoy {i}" for i in range(decoys)], Variant.NATIVE)
    chances = params.chances(Variant.NATIVE)
    sizes, on = np.zeros(params.m, dtype=np.int64), np.zeros(params.m * params.k, dtype=np.int64)
    for clients, bits in zip(rng.multinomial(300_000, shares), everything.bits, strict=False):
        each = rng.multinomial(clients, np.full(params.m, 1 / params.m))
        sizes += each
        on[bits] += each[bits // params.k]
    lit = on.reshape(params.m, params.k)
    counted = rng.binomial(lit, float(chances.q_star)) + rng.binomial(sizes[:, None] - lit, float(chances.p_star))
    made.counts = np.concatenate([sizes[:, None], counted], axis=1)
    listed = [i for i in range(len(everything)) if i >= 60 or i % 10 != 9]
    made.candidates = Candidates(
        tuple(everything.strings[i] for i in listed), tuple(everything.bits[i] for i in listed)
    )
    made.truth = dict(zip(strings, shares.tolist(), strict=True))
    return made, params


@pytest.mark.parametrize("rule", ["bonferroni", "two-sd"])
def test_intervals_hold_for_strings_that_are_shown(rule: Rule) -> None:
    """Seeds are fixed. With others: 350 to 600 intervals at 95%, fewer than 91.5% covered in one of 500 trials."""
    covered, shown = 0.0, 0
    for seed in range(20):
        drawn, params = simulated(seed, decoys=60)
        decoded = decode(params, drawn.counts, drawn.candidates, rule=rule, variant="native")
        assert all(f.prop_low_95 <= f.proportion <= f.prop_high_95 for f in decoded.results)
        covered += drawn.covered(decoded) * len(decoded.results)
        shown += len(decoded.results)
    assert shown > 300
    assert 0.915 <= covered / shown <= 0.985


def test_explaining_all_candidates_together_needs_no_coins_and_no_lasso() -> None:
    drawn, params = simulated(3, decoys=500)
    assert len(drawn.candidates) > 0.8 * params.m * params.k
    first, again = (decode(params, drawn.counts, drawn.candidates, rule="two-sd", variant="native") for _ in range(2))
    assert first.results == again.results
    assert drawn.true(first) >= 15
    assert len(first.results) - drawn.true(first) <= 3
    assert first.metrics.allocated_mass <= 1


def test_of_candidates_that_nobody_holds_hardly_any_is_kept() -> None:
    drawn, params = simulated(4, decoys=150)
    nobody = [i for i, string in enumerate(drawn.candidates.strings) if string not in drawn.truth]
    decoys = Candidates(
        tuple(drawn.candidates.strings[i] for i in nobody), tuple(drawn.candidates.bits[i] for i in nobody)
    )
    decoded = decode(params, drawn.counts, decoys, rule="two-sd", variant="native")
    assert len(decoded.results) <= 3


def test_a_list_longer_than_the_rows_goes_through_the_lasso() -> None:
    demo = case("r-exp-small-typical", decoys=980)
    assert len(demo.candidates) > 0.8 * demo.params.m * demo.params.k
    many = decode(demo.params, demo.counts, demo.candidates, rule="two-sd")
    assert demo.true(many) >= 29
    assert len(many.results) - demo.true(many) <= 8
    assert demo.total_variation(many) <= 0.23
    few = decode(demo.params, demo.counts, demo.candidates, rule="bonferroni")
    assert demo.true(few) >= 24
    assert len(few.results) - demo.true(few) <= 1  # after a lasso the 5% are no promise
    assert few.metrics.listed_mass is None


# ---- what is stated ------------------------------------------------------------------------------------------------


def expected_counts(
    params: Params, candidates: Candidates, shares: list[float], reports: int, variant: Variant
) -> np.ndarray:
    """Give what the counts would be without chance, the strings beyond the list spread evenly."""
    chances = params.chances(variant)
    on = np.full(params.m * params.k, (1 - sum(shares)) * (1 - (1 - 1 / params.k) ** params.h))
    for bits, share in zip(candidates.bits, shares, strict=True):
        on[bits] += share
    rate = float(chances.p_star) + float(chances.q_star - chances.p_star) * on
    counted = np.rint(rate * reports).reshape(params.m, params.k)
    return np.hstack([np.full((params.m, 1), reports), counted]).astype(np.int64)


def hashed(params: Params, strings: list[str], variant: Variant = Variant.GOOGLE_PYTHON) -> Candidates:
    text = io.StringIO(newline="")
    write_map(hash_candidates(params, strings, variant), text)
    text.seek(0)
    return read_map(text, params)


@pytest.mark.parametrize("variant", list(Variant))
def test_without_chance_the_shares_come_back_and_also_the_share_of_strings_not_listed(variant: Variant) -> None:
    params = Params(24, 2, 16, 0.4, 0.7, 0.3)  # the f of which google-python rounds to 39/128
    candidates = hashed(params, [f"w{i}" for i in range(40)], variant)
    shares = [0.2, 0.1, 0.05] + [0.01] * 20 + [0.0] * 17
    counts = expected_counts(params, candidates, shares, 10**12, variant)
    decoded = decode(params, counts, candidates, variant=variant)
    told = {found.string: found for found in decoded.results}
    assert len(told) == 23
    for string, share in zip(candidates.strings, shares, strict=True):
        if share:
            assert told[string].proportion == pytest.approx(share, abs=1e-7)
    assert decoded.metrics.listed_mass == pytest.approx(0.55, abs=1e-6)
    assert any("45% of the reports hold strings that are not among the candidates" in note for note in decoded.warnings)
    assert [f.estimate for f in decoded.results] == sorted((f.estimate for f in decoded.results), reverse=True)


def test_decoding_with_the_configured_f_would_be_wrong() -> None:
    params = Params(24, 1, 16, 0.4, 0.7, 0.3)
    candidates = hashed(params, [f"w{i}" for i in range(40)])
    counts = expected_counts(params, candidates, [0.5] + [0.0] * 39, 10**12, Variant.GOOGLE_PYTHON)
    right = decode(params, counts, candidates, variant="google-python").results[0].proportion
    wrong = decode(params, counts, candidates, variant="native").results[0].proportion
    assert right == pytest.approx(0.5, abs=1e-7)
    assert wrong / right == pytest.approx((1 - 39 / 128) / 0.7, abs=1e-3)


def test_reports_of_real_devices_come_back_within_their_errors() -> None:
    params, bits = Params(32, 2, 4, 0.25, 0.75, 0.25), SeededBits("devices")
    strings, truth = [f"w{i}" for i in range(12)], [600, 400, 300, 200, 100, 0, 0, 0, 0, 0, 0, 0]
    counts = np.zeros((4, 33), dtype=np.int64)
    any_device = Encoder(params, bytes(32), task=b"t")
    secrets = SeededBits("secrets")
    for string, clients in zip(strings, truth, strict=True):
        for client in range(clients):
            device = any_device.another(secrets.words(4).tobytes())
            report = device.instant(device.permanent(device.bloom(client % 4, string.encode())), bits)
            counts[client % 4] += [1] + [report >> i & 1 for i in range(32)]
    decoded = decode(params, counts, hashed(params, strings, Variant.NATIVE), variant="native")
    told = {found.string: found for found in decoded.results}
    assert {"w0", "w1", "w2"} <= set(told) <= set(strings[:5])
    for string, clients in zip(strings, truth, strict=True):
        if string in told:
            assert abs(told[string].estimate - clients) < 4.5 * told[string].std_error


def test_the_two_sd_constant_is_the_median_of_the_reference_rule() -> None:
    """5 fits, one of them the original; a string passes when their mean exceeds twice their standard deviation."""
    from scipy.special import ndtri

    uniform = (SeededBits("two-sd").words(4 * 200_000) >> np.uint64(11)).astype(float) / 2**53
    copies = ndtri(np.clip(uniform, 1e-12, None)).reshape(-1, 4)
    fits = np.hstack([np.zeros((len(copies), 1)), copies])
    threshold = 2 * fits.std(axis=1, ddof=1) - fits.mean(axis=1)
    assert float(np.median(threshold)) == pytest.approx(TWO_SD, abs=0.01)


# ---- lists that can't be told apart --------------------------------------------------------------------------------


def test_candidates_that_can_not_be_reached_are_named() -> None:
    params = Params(8, 1, 3, 0.25, 0.75, 0.5)
    bits = [[0, 9, 18], [1, 10, 19], [1, 10, 19], [17]]
    candidates = Candidates(("a", "b", "twin", "unseen"), tuple(np.array(row) for row in bits))
    counts = expected_counts(params, candidates, [0.3, 0.2, 0.0, 0.0], 10**9, Variant.GOOGLE_PYTHON)
    counts[2] = 0
    decoded = decode(params, counts, candidates)
    assert [found.string for found in decoded.results] == ["a", "b"]
    assert any("'unseen'" in note and "can't be reached" in note for note in decoded.warnings)
    assert any("'twin'" in note and "can't be told from" in note for note in decoded.warnings)


def test_a_mixture_of_other_candidates_is_dropped_and_said_so() -> None:
    params = Params(8, 2, 2, 0.25, 0.75, 0.5)
    bits = [[0, 1, 8, 9], [2, 3, 10, 11], [0, 2, 8, 10], [1, 3, 9, 11]]
    candidates = Candidates(tuple("abcd"), tuple(np.array(row) for row in bits))
    decoded = decode(params, expected_counts(params, candidates, [0.4, 0.2, 0, 0], 10**9, Variant.NATIVE), candidates)
    assert any("a mixture of those of others" in note for note in decoded.warnings)


def test_basic_rappor_one_bit_per_value() -> None:
    params = Params(8, 1, 1, 0.25, 0.75, 0.5)
    candidates = Candidates(tuple("abcdefgh"), tuple(np.array([i]) for i in range(8)))
    shares = [0.5, 0.3, 0.1, 0.1, 0, 0, 0, 0]
    decoded = decode(params, expected_counts(params, candidates, shares, 10**9, Variant.NATIVE), candidates)
    assert {f.string for f in decoded.results} == set("abcd")
    assert [f.proportion for f in decoded.results] == pytest.approx([0.5, 0.3, 0.1, 0.1], abs=1e-6)
    assert decoded.warnings == ()


def test_too_few_reports_are_said_to_be_too_few() -> None:
    params = Params(16, 1, 4, 0.25, 0.75, 0.5)
    candidates = hashed(params, [f"w{i}" for i in range(10)])
    counts = expected_counts(params, candidates, [0.0] * 10, 20, Variant.GOOGLE_PYTHON)
    assert any("too few" in note for note in decode(params, counts, candidates).warnings)


@pytest.mark.parametrize(
    ("params", "counts", "says"),
    [
        (Params(4, 1, 2, 0.25, 0.75, 0.5), np.zeros((2, 5), dtype=np.int64), "no reports"),
        (Params(4, 1, 2, 0.25, 0.75, 0.5), np.ones((1, 5), dtype=np.int64), "do not fit"),
        (Params(4, 1, 2, 0.25, 0.75, 0.5), -np.ones((2, 5), dtype=np.int64), "do not fit"),
        (Params(4, 1, 2, 0.25, 0.75, 1), np.ones((2, 5), dtype=np.int64), "all noise"),
        (Params(1, 1, 2, 0.25, 0.75, 0.5), np.ones((2, 2), dtype=np.int64), "one bit"),
        (Params(64, 1, 2, 0.25, 0.75, 0.5), np.ones((2, 65), dtype=np.int64), "too large for the google-python"),
    ],
)
def test_counts_that_can_not_be_decoded(params: Params, counts: np.ndarray, says: str) -> None:
    with pytest.raises((DataError, UsageError), match=says):
        decode(params, counts, Candidates(("a",), (np.array([0]),)))


def test_an_unknown_rule_is_refused() -> None:
    demo = case("demo3")
    with pytest.raises(UsageError, match="two-sd or bonferroni"):
        decode(demo.params, demo.counts, demo.candidates, rule="three-sd")  # type: ignore[arg-type]


def test_results_have_the_columns_of_the_reference() -> None:
    demo = case("demo3")
    decoded = decode(demo.params, demo.counts, demo.candidates)
    out = io.StringIO(newline="")
    write_results(decoded, out)
    rows = list(csv.reader(io.StringIO(out.getvalue(), newline="")))
    assert tuple(rows[0]) == RESULT_FIELDS == tuple(Found.__dataclass_fields__)
    assert [row[0] for row in rows[1:]] == [found.string for found in decoded.results]
    assert {
        "sample_size",
        "allocated_mass",
        "num_detected",
        "explained_var",
        "missing_var",
        "total_elapsed_time",
    } <= set(decoded.to_json()["metrics"])


# ---- the forecast --------------------------------------------------------------------------------------------------


def test_the_lecture() -> None:
    told = forecast(14_000_000)
    assert told.smallest_count == pytest.approx(14_000, rel=0.05)
    assert told.metrics == 100
    assert told.epsilon_metric == pytest.approx(4 * math.log(3), rel=1e-12)
    assert round(told.epsilon_metric, 1) == 4.4
    assert round(told.epsilon_report) == 2
    assert told.epsilon_client == 100 * told.epsilon_metric
    assert told.reports_until_permanent == 3
    assert LECTURE.f == Fraction(1, 2)


@pytest.mark.parametrize("name", ["demo1", "demo3", "r-exp-small-typical", "r-exp-small-sharp"])
def test_forecast_errors_are_those_of_the_decoder(name: str) -> None:
    demo = case(name)
    decoded = decode(demo.params, demo.counts, demo.candidates, rule="bonferroni")
    real = float(np.median([found.prop_std_error for found in decoded.results]))
    stated = share_std_error(demo.params, decoded.metrics.sample_size, len(demo.candidates), "google-python")
    assert 1 <= real / stated < 1.16  # strings beyond the list make it a little worse


def test_the_smallest_count_is_found_about_as_often_as_forecast() -> None:
    demo = case("demo3")
    told = forecast(10**6, demo.params, candidates=190, rule="bonferroni", variant="google-python", power=0.85)
    found = {f.string for f in decode(demo.params, demo.counts, demo.candidates, rule="bonferroni").results}
    common = [s for s in demo.candidates.strings if demo.truth.get(s, 0) >= told.smallest_share]
    rare = [s for s in demo.candidates.strings if 0 < demo.truth.get(s, 0) < told.smallest_share / 2]
    assert sum(s in found for s in common) >= 0.85 * len(common) > 20
    assert sum(s in found for s in rare) <= 0.15 * len(rare)


def test_forecasts_move_the_right_way() -> None:
    base = forecast(10**6)
    assert forecast(10**7).smallest_share < base.smallest_share
    assert forecast(10**7).smallest_count > base.smallest_count
    assert forecast(10**6, rule="bonferroni").smallest_count > base.smallest_count
    assert forecast(10**6, candidates=10_000).smallest_count > base.smallest_count
    noisier = Params(128, 2, 128, 0.25, 0.75, 0.75)
    assert forecast(10**6, noisier).smallest_count > base.smallest_count
    assert forecast(10**6, noisier).epsilon_metric < base.epsilon_metric
    assert "nothing can be found" in str(forecast(3))


@pytest.mark.parametrize(
    "bad",
    [{"clients": 0}, {"clients": 1.5}, {"metrics": -1}, {"candidates": 0}, {"power": 1.0}, {"rule": "none"}],
)
def test_nonsense_is_not_forecast(bad: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        forecast(**({"clients": 1000} | bad))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="all noise"):
        forecast(1000, Params(8, 1, 1, 0, 1, 1))
    with pytest.raises(UsageError, match="one bit"):
        forecast(1000, Params(1, 1, 1, 0, 1, 0.5))
