"""The audit: its bounds are valid, it convicts what is broken, and it says so on the command line."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import textwrap
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from controls import CONTROLS
from hushquery.auditing.attacks import AuditResult, Event, _EventSearch, audit, one_run_p_value
from hushquery.core.registry import SUPPRESSED, Pair, find, names
from hushquery.errors import UsageError
from hushquery.noise.mechanisms import GaussianCounts, LaplaceCounts
from hushquery.noise.sampler import SeededBits
from statistical import bits, number, rate_at_most, within

HONEST = LaplaceCounts.calibrate(Fraction(1), Fraction(0))
HALVED = CONTROLS["laplace noise halved"](Fraction(1), Fraction(0))


# ---- bounds are bounds ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "confidence"), [(Fraction(1), 0.8), (Fraction(1, 4), 0.5)])
def test_bounds_exceed_the_true_epsilon_no_more_often_than_they_may(epsilon, confidence):
    """Many small audits of a mechanism whose epsilon is known exactly, at a confidence that leaves room to be wrong."""
    audits, honest = 300, LaplaceCounts.calibrate(epsilon, Fraction(0))
    bounds = [
        audit(honest, epsilon, 0, runs=600, seed=number("valid", epsilon, i), confidence=confidence).lower_bound
        for i in range(audits)
    ]
    rate_at_most(sum(bound > epsilon for bound in bounds), audits, 1 - confidence)
    assert max(bounds) > 0.6 * epsilon  # they are not all empty


def test_bounds_with_a_delta_exceed_the_true_epsilon_no_more_often_than_they_may():
    """A Gaussian whose exact epsilon is 1 at delta = 0.1: rounding to integers hides the rest."""
    audits, confidence, gaussian = 200, 0.8, GaussianCounts.calibrate(Fraction(1), Fraction(1, 10))
    bounds = [
        audit(gaussian, 1, "1/10", runs=2000, seed=number("delta", i), confidence=confidence).lower_bound
        for i in range(audits)
    ]
    rate_at_most(sum(bound > 1 for bound in bounds), audits, 1 - confidence)


def test_choosing_and_testing_on_the_same_runs_would_not_be_a_bound():
    """Why the event is chosen on one half: the best of many events on the same runs exceeds epsilon far too often."""
    wrong, honest = 0, LaplaceCounts.calibrate(Fraction(1, 4), Fraction(0))
    for i in range(60):
        search = _EventSearch(honest, 0.0, 0.5, SeededBits(number("same", i)), lambda _: None)
        wrong += search._choose(honest.pairs()[0], 600)[0] > 1 / 4
    with pytest.raises(AssertionError):
        rate_at_most(wrong, 60, 0.5)


def test_more_runs_find_more():
    small, large = (audit(HONEST, 1, 0, runs=runs, seed=1).lower_bound for runs in (2000, 400_000))
    assert 0 <= small < large < 1
    assert large > 0.9


def test_a_claim_with_a_delta_is_given_that_delta():
    halved = CONTROLS["gaussian noise halved"](Fraction(1), Fraction(1, 100))
    assert audit(halved, 1, "1/100", runs=100_000, seed=2).flagged
    assert not audit(halved, 1, "1/2", runs=100_000, seed=2).flagged  # at delta 1/2 it keeps epsilon 1


def test_several_pairs_share_the_confidence():
    """The best of many bounds must be a bound too: each pair is one more chance to be wrong."""
    epsilon, audits = Fraction(1, 4), 60

    class ManyPairs(LaplaceCounts):
        def pairs(self):
            return [Pair(f"pair {i}", (10,), (11,)) for i in range(24)]

    mechanism = ManyPairs.calibrate(epsilon, Fraction(0))
    wrong = sum(
        audit(mechanism, epsilon, 0, runs=300, seed=number("pairs", i), confidence=0.5).lower_bound > epsilon
        for i in range(audits)
    )
    rate_at_most(wrong, audits, 0.5)


# ---- one run -------------------------------------------------------------------------------------------------------


def at_least(law):
    """Give P[W >= v] for v = 0..m from the law of W."""
    return np.append(np.cumsum(law[::-1])[::-1], 0.0)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-3, 0.02])
@pytest.mark.parametrize("canaries", [1, 7, 100, 600])
def test_one_run_p_values_cover_the_worst_mechanisms_exactly(epsilon, delta, canaries):
    """Randomised response that besides gives away a few canaries, so that each is given away with probability delta.

    It is (epsilon, delta)-DP in each canary's coin. How many are given away at once (i) is the adversary's choice, so
    several are tried; nothing is drawn, the law of the number of right guesses is listed.
    """
    chance = 1 / (1 + math.exp(-epsilon))
    shown = sorted({1, 2, 3, canaries // 10, canaries // 3, canaries} & set(range(1, canaries + 1)))
    bound = np.array([one_run_p_value(canaries, canaries, v, epsilon, delta) for v in range(canaries + 1)])
    assert np.all(np.diff(bound) <= 1e-12)
    for i in shown:
        happens = min(1.0, canaries * delta / i)
        usual = binom.pmf(np.arange(canaries + 1), canaries, chance)
        leaked = np.zeros(canaries + 1)
        leaked[i:] = binom.pmf(np.arange(canaries + 1 - i), canaries - i, chance)
        true = at_least((1 - happens) * usual + happens * leaked)
        assert np.all(true[:-1] <= bound + 1e-12), f"{i} given away at once"
    # The same, each canary given away by a coin of its own.
    apart = at_least(binom.pmf(np.arange(canaries + 1), canaries, delta + (1 - delta) * chance))
    assert np.all(apart[:-1] <= bound + 1e-12)


def test_one_run_p_values_with_abstention_reject_no_more_often_than_they_may():
    """An attacker who guesses all canaries that were given away and some others; every outcome is listed."""
    epsilon, delta, canaries, others = 1.0, 2e-3, 200, 20
    chance = 1 / (1 + math.exp(-epsilon))
    given = binom.pmf(np.arange(canaries + 1), canaries, delta)
    for alpha in (0.5, 0.1, 0.01):
        rejected = 0.0
        for shown in range(25):
            right = binom.pmf(np.arange(others + 1), others, chance)
            for extra in range(others + 1):
                if one_run_p_value(canaries, shown + others, shown + extra, epsilon, delta) <= alpha:
                    rejected += given[shown] * right[extra]
        assert rejected <= alpha


def test_one_run_p_values_without_delta_are_binomial_tails():
    assert one_run_p_value(100, 60, 50, 1.0, 0.0) == pytest.approx(binom.sf(49, 60, 1 / (1 + math.exp(-1))))
    assert one_run_p_value(100, 0, 0, 1.0, 0.0) == 1.0
    assert one_run_p_value(100, 0, 0, 1.0, 1e-3) == 1.0
    assert one_run_p_value(100, 100, 100, 0.0, 0.0) == pytest.approx(2.0**-100)


def test_one_run_flags_halved_noise_and_not_honest_noise():
    """At an epsilon where a single release of 20,000 canaries is enough."""
    flagged = audit(HALVED, 1, 0, runs=20_000, seed=number("one run"), method="one-run")
    assert flagged.flagged
    assert flagged.method == "one-run"
    assert flagged.lower_bound == pytest.approx(2, abs=0.35)
    honest = audit(HONEST, 1, 0, runs=20_000, seed=number("one run"), method="one-run", confidence=1 - 1e-9)
    assert not honest.flagged
    assert honest.lower_bound > 0.6


def test_one_run_bounds_exceed_the_true_epsilon_no_more_often_than_they_may():
    audits, confidence = 60, 0.8
    wrong = sum(
        audit(HONEST, 1, 0, runs=1000, seed=number("one", i), confidence=confidence, method="one-run").lower_bound > 1
        for i in range(audits)
    )
    rate_at_most(wrong, audits, 1 - confidence)


# ---- what it is asked ----------------------------------------------------------------------------------------------


def test_seeds_repeat_an_audit_and_no_seed_does_not():
    one, again, other = (audit("histogram", 1, 0, runs=2000, seed=s) for s in (1, 1, 2))
    assert one == again
    assert one.lower_bound != other.lower_bound
    free = {audit("discrete-laplace", 1, runs=2000).lower_bound for _ in range(3)}
    assert len(free) > 1


def test_progress_goes_from_nothing_to_all_and_never_back():
    for method in ("events", "one-run"):
        told = []
        audit("histogram", 1, 0, runs=2000, seed=1, method=method, progress=told.append)
        assert told[-1] == pytest.approx(1)
        assert all(0 <= part <= 1 + 1e-9 for part in told)
        if method == "events":
            assert told == sorted(told)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": math.nan},
        {"epsilon": -1},
        {"epsilon": 0},
        {"delta": math.nan},
        {"runs": 99},
        {"runs": 0},
        {"runs": -5},
        {"runs": 10**11},
        {"confidence": 1.0},
        {"confidence": 0.1},
        {"confidence": math.nan},
        {"mechanism": "discrete-laplac"},
        {"mechanism": "nowhere.py:Thing"},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(wrong):
    asked = {"mechanism": "discrete-laplace", "epsilon": 1, "runs": 1000} | wrong
    with within(10), pytest.raises(UsageError):
        audit(**asked)


@pytest.mark.parametrize(
    "wrong",
    [{"delta": -1}, {"delta": 2}, {"method": "magic"}, {"mechanism": HONEST, "epsilon": -1}],
    ids=["delta -1", "delta 2", "method", "epsilon -1"],
)
def test_what_else_makes_no_sense_is_refused(wrong):
    asked = {"mechanism": "discrete-laplace", "epsilon": 1, "runs": 1000, "seed": 1} | wrong
    with within(10), pytest.raises(UsageError):
        audit(**asked)


def test_unknown_names_are_answered_with_the_nearest_known_one():
    with pytest.raises(UsageError, match="did you mean 'discrete-laplace'"):
        find("discret-laplace")


# ---- a mechanism of one's own --------------------------------------------------------------------------------------

OWN = """
from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from hushquery.noise.law import DiscreteLaplace
from hushquery.noise.sampler import sampler
from hushquery.core.loss import Loss
from hushquery.core.registry import Mechanism, Pair


{dataclass}
class Mine(Mechanism):
    name: ClassVar[str] = "mine"
    summary: ClassVar[str] = "a count with noise"
    audit_runs: ClassVar[int] = 50_000
    b: Fraction = Fraction(1)

    {init}

    @classmethod
    def calibrate(cls, epsilon, delta):
        return cls(1 / epsilon * {factor})

    @property
    def loss(self):
        return Loss(pure=(1 / self.b,))

    def pairs(self):
        return [Pair("one more", (0,), (1,))]

    def run(self, dataset, n, bits):
        return sampler(DiscreteLaplace(self.b)).draw(n, bits)[:, None] + dataset[0]


not_a_mechanism = 7
"""


def write(folder, *, dataclass=True, factor="1"):
    init = "" if dataclass else "def __init__(self, b):\n        self.b = b"
    path = folder / "own.py"
    path.write_text(
        textwrap.dedent(OWN).format(dataclass="@dataclass(frozen=True)" if dataclass else "", init=init, factor=factor),
        encoding="utf-8",
    )
    return path


def test_a_mechanism_in_a_file_is_audited(tmp_path):
    result = audit(f"{write(tmp_path, dataclass=False)}:Mine", 1, 0, seed=1)
    assert result.mechanism.endswith("own.py:Mine")
    assert result.runs == 50_000
    assert not result.flagged
    assert 0.8 < result.lower_bound < 1
    broken = audit(f"{write(tmp_path, dataclass=False, factor='Fraction(1, 2)')}:Mine", 1, 0, seed=1)
    assert broken.flagged


def test_a_dataclass_in_a_file_is_audited(tmp_path):
    assert not audit(f"{write(tmp_path)}:Mine", 1, 0, runs=1000, seed=1).flagged


@pytest.mark.parametrize("attribute", ["not_a_mechanism", "Nobody", "Fraction"])
def test_what_is_no_mechanism_is_refused(tmp_path, attribute):
    with pytest.raises(UsageError, match="is not a mechanism"):
        find(f"{write(tmp_path, dataclass=False)}:{attribute}")


@pytest.mark.parametrize("text", ["def (", "import no_such_module", "1/0"])
def test_a_file_that_can_not_be_read_is_refused_with_a_message(tmp_path, text):
    path = tmp_path / "broken.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError):
        find(f"{path}:Mine")


# ---- events --------------------------------------------------------------------------------------------------------


def test_events_are_what_they_print():
    views = {"output": np.array([SUPPRESSED, 1, 2, 3])}
    assert Event("output", "==", 2, True).happened(views).tolist() == [False, False, True, False]
    assert Event("output", ">=", 2, True).happened(views).tolist() == [False, False, True, True]
    assert Event("output", "<=", 1, True).happened(views).tolist() == [True, True, False, False]
    assert str(Event("output", ">=", 2, True)) == "output >= 2"
    assert str(Event("output", "==", SUPPRESSED, True)) == "output not published"


def test_results_are_plain_data():
    result = audit("discrete-laplace", 1, runs=1000, seed=1)
    assert json.loads(json.dumps(result.to_json()))["mechanism"] == "discrete-laplace"
    infinite = AuditResult("m", 1.0, 0.0, math.inf, 0.9, 100, True, "events", "p", "e")
    assert infinite.to_json()["lower_bound"] == "inf"


# ---- the command line ----------------------------------------------------------------------------------------------

KEYS = {"mechanism", "claimed_epsilon", "claimed_delta", "lower_bound", "confidence", "runs", "flagged"}


def cli(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "hushquery", "audit", *arguments],
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
        cwd=cwd,
        env=os.environ | {"NO_COLOR": "1", "COLUMNS": "120"},
    )


def test_the_command_prints_what_was_promised():
    done = cli("discrete-laplace", "--epsilon", "1", "--runs", "20000", "--seed", "4", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert set(said) >= KEYS
    assert said["mechanism"] == "discrete-laplace"
    assert said["claimed_epsilon"] == 1
    assert said["claimed_delta"] == 1e-5
    assert said["runs"] == 20_000
    assert said["flagged"] is False
    ours = audit("discrete-laplace", 1, runs=20_000, seed=4)
    assert said == ours.to_json()


def test_the_command_exits_with_one_when_it_flags(tmp_path):
    path = write(tmp_path, dataclass=False, factor="Fraction(1, 2)")
    done = cli(f"{path.name}:Mine", "--epsilon", "1", "--delta", "0", "--seed", "1", "--json", cwd=tmp_path)
    assert done.returncode == 1
    assert json.loads(done.stdout)["flagged"] is True
    text = cli(f"{path.name}:Mine", "--epsilon", "1", "--delta", "0", "--seed", "1", cwd=tmp_path)
    assert text.returncode == 1
    assert "FLAGGED" in text.stdout
    assert "lower bound on the true epsilon" in text.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["nobody", "--epsilon", "1"],
        ["discrete-laplace"],
        ["--epsilon", "1"],
        ["discrete-laplace", "--epsilon", "nan"],
        ["discrete-laplace", "--epsilon", "1", "--method", "magic"],
        ["discrete-laplace", "--epsilon", "1", "--runs", "3"],
    ],
    ids=" ".join,
)
def test_the_command_exits_with_two_on_nonsense(arguments):
    done = cli(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "error" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_lists_what_is_registered():
    done = cli("--list", "--json")
    assert done.returncode == 0
    assert [m["name"] for m in json.loads(done.stdout)["mechanisms"]] == names()
    assert {"discrete-laplace", "gaussian"} <= set(names())


# ---- at full size --------------------------------------------------------------------------------------------------


@pytest.mark.prove
@pytest.mark.parametrize("name", ["discrete-laplace", "gaussian"])
def test_full_audits_at_epsilon_one_come_within_a_tenth(name):
    done = cli(name, "--epsilon", "1", "--seed", str(number("full", name) % 1000), "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert 0.9 <= said["lower_bound"] <= 1.0
    assert not said["flagged"]


@pytest.mark.prove
def test_the_command_flags_every_control_at_full_size():
    done = cli("--controls", "--json", "--seed", str(number("controls") % 1000))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["all_flagged"]
    assert [row["mechanism"] for row in said["controls"]] == list(CONTROLS)
    assert all(set(row) >= KEYS and row["flagged"] for row in said["controls"])


def test_bits_of_an_audit_are_its_own():
    """A seed of an audit and the same seed elsewhere give different streams: no test reuses an audit's randomness."""
    assert SeededBits("audit 1").words(2).tolist() != bits("audit 1").words(2).tolist()
