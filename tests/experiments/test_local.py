"""The experiment on randomizers: theory holds on invented clients, and kept responses withstand averaging."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from hushquery.errors import UsageError
from hushquery.local.configuration import ORACLES, choose_oracle
from hushquery.local.oracles.krr import KRR
from hushquery.local.oracles.two_stage import TwoStage
from hushquery.noise.sampler import SeededBits
from hushquery_experiments.cli import experiment
from hushquery_experiments.local.attacks import averaging_attacks
from hushquery_experiments.local.page import FIGURES, as_text, command, page
from hushquery_experiments.local.study import BETA, _variances, check_claims, local, zipf
from hushquery_experiments.page import as_html, as_markdown

K, EPSILONS, CLIENTS = (11, 51), (1, 4), 2000
SMALL = {"clients": CLIENTS, "runs": 8, "domains": K, "epsilons": EPSILONS, "devices": 60, "asked": (1, 16, 128)}

app = typer.Typer()
app.add_typer(experiment.app)


def call(*arguments):
    return CliRunner().invoke(app, ["experiment", "local", *map(str, arguments)], env={"COLUMNS": "120"})


@pytest.fixture(scope="module")
def small():
    """A small experiment, and what it told of its progress."""
    told = []
    return local(seed=1, progress=lambda what, done: told.append((what, done)), **SMALL), told


@pytest.fixture(scope="module")
def found(small):
    return small[0]


# ---- what is measured -----------------------------------------------------------------------------------------------


def test_every_oracle_is_measured_in_every_setting(found):
    names = {*ORACLES, "two-stage", "two-stage tight"}
    assert {(p.oracle, p.k, p.epsilon) for p in found.oracles} == {
        (n, k, e) for n in names for k in K for e in EPSILONS
    }
    assert len(found.oracles) == len(names) * len(K) * len(EPSILONS)
    for k in K:
        for epsilon in EPSILONS:
            (chosen,) = [p for p in found.oracles if (p.k, p.epsilon, p.chosen) == (k, epsilon, True)]
            assert chosen.oracle == choose_oracle(k, epsilon).oracle.name


def test_measured_errors_are_those_of_theory(found):
    for p in found.oracles:
        assert p.ratio == pytest.approx(p.measured / p.theory)
        assert abs(p.ratio - 1) < 4 * p.stderr, p
        assert p.stderr < 0.5  # so that the line above could fail
    # All of them together are a far sharper test.
    z = [(p.ratio - 1) / p.stderr for p in found.oracles]
    assert abs(sum(z)) / math.sqrt(len(z)) < 4


def test_theory_is_the_variance_that_the_oracle_claims():
    law = zipf(7)
    oracle = KRR.calibrate(7, 2)
    assert _variances(oracle, law, 50).tolist() == [oracle.variance(f, 50) for f in law.tolist()]
    for mode in ("paper", "tight"):
        two = TwoStage.calibrate([1] * 3, 2, mode=mode)
        of_query = [law[0] + law[1]] * 2 + [law[2] + law[3]] * 2 + [law[4] + law[5]] * 2 + [law[6]]
        claimed = [two.variance(cell, law[cell], of_query[cell], 50) for cell in range(7)]
        assert _variances(two, law, 50) == pytest.approx(claimed, rel=1e-9)


def test_a_wrong_theory_is_seen(found):
    """The claim can fail: one ratio that is five standard errors away breaks it."""
    wrong = [replace(p, ratio=1 + 5 * p.stderr) if i == 3 else p for i, p in enumerate(found.oracles)]
    assert found.claims[0].holds
    assert not check_claims(wrong, found.means, found.histograms, found.attacks)[0].holds


def test_means_and_histograms_stay_within_their_bounds(found):
    for p in found.means:
        assert p.measured == pytest.approx(p.theory, rel=4 / math.sqrt(2 * p.runs))
        assert (p.bound is None) == (p.mechanism == "Laplace")
        if p.bound is not None:
            assert p.measured < p.bound
            assert p.beyond <= BETA
    error = {(p.mechanism, p.epsilon): p.theory for p in found.means}
    assert error["1BitMean", 1] < error["Laplace", 1]
    assert error["1BitMean", 4] > error["Laplace", 4]
    for p in found.histograms:
        assert p.largest <= p.worst
        assert p.beyond <= BETA
    more_bits = {p.d: p.largest for p in found.histograms if p.epsilon == 4}
    assert more_bits[32] < more_bits[1]


def test_a_redrawn_response_is_averaged_away_and_a_kept_one_is_not(found):
    redrawn = {a.mechanism: a for a in found.attacks if a.redrawn}
    kept = {a.mechanism: a for a in found.attacks if not a.redrawn}
    assert set(redrawn) == set(kept) == {"1BitMean", "dBitFlip", "RAPPOR"}
    for name, attack in redrawn.items():
        assert attack.found[-1] >= 0.97, name
        assert attack.answers > 1
    for name, attack in kept.items():
        assert attack.answers == 1, name
        assert max(attack.found) <= attack.limit + 4 * attack.spread
        assert attack.found[-1] < 0.9
    for name in ("1BitMean", "dBitFlip"):
        assert len(set(kept[name].found)) == 1, "asking again gave something new"
    assert kept["1BitMean"].limit == pytest.approx(math.e / (1 + math.e))
    assert kept["RAPPOR"].limit == pytest.approx(0.9)  # 2 ln 3


def test_an_attack_on_a_response_that_is_not_kept_breaks_the_claim(found):
    broken = [replace(a, found=(*a.found[:-1], 1.0)) if a.mechanism == "dBitFlip" else a for a in found.attacks]
    claims = check_claims(found.oracles, found.means, found.histograms, broken)
    assert [c.holds for c in claims] == [True] * 5 + [False]


def test_asking_more_often_finds_no_more_of_what_is_kept():
    short, long = (averaging_attacks(40, asked, SeededBits(2)) for asked in ((1,), (1, 200)))
    for few, many in zip(short, long, strict=True):
        if not few.redrawn and few.mechanism != "RAPPOR":
            assert many.found == (few.found[0], few.found[0])


def test_more_epsilon_finds_more_heavy_hitters(found):
    hits = {(p.finder, p.epsilon): p.found for p in found.hitters}
    for finder in ("PEM", "LDPMiner"):
        assert 0 <= hits[finder, 1] < hits[finder, 4] <= 10


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others():
    tiny = SMALL | {"clients": 100, "runs": 2, "domains": (11,), "epsilons": (2,), "devices": 10, "asked": (1, 2)}
    one, again, other = (local(seed=seed, **tiny).to_json() for seed in (3, 3, 4))
    for data in (one, again, other):
        data.pop("settings")
    assert one == again
    assert [p["measured"] for p in one["oracles"]] != [p["measured"] for p in other["oracles"]]


def test_progress_only_grows(small):
    done = [share for _, share in small[1]]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0.0, 1.0)


@pytest.mark.parametrize(
    "bad", [{"clients": 99}, {"clients": 10**9}, {"runs": 1}, {"devices": 2}, {"domains": (4,)}, {"epsilons": ()}]
)
def test_what_can_not_be_measured_is_refused(bad):
    with pytest.raises(UsageError) as error:
        local(**SMALL | bad)
    assert error.value.fix


def test_zipf_is_a_law():
    law = zipf(501)
    assert law.sum() == pytest.approx(1)
    assert law[0] / law[9] == pytest.approx(10)
    assert (np.diff(law) < 0).all()


# ---- the page and the command ---------------------------------------------------------------------------------------


def test_the_page_says_that_it_may_be_published_and_stands_alone(found):
    data = found.to_json()
    assert data["publishable"] is True
    html = as_html(page(data))
    assert "may be published" in html
    assert "would protect nobody" in html
    assert html.count("<svg") == len(FIGURES)
    for needs_network_or_script in ("<script", "src=", "<link", "href=", "url(", "@import"):
        assert needs_network_or_script not in html
    for p in found.oracles:
        assert f"{p.ratio:.3f} ± {p.stderr:.3f}" in html
    assert command(data) in html


def test_the_page_of_the_docs_has_the_same_numbers(found):
    data = found.to_json()
    text = as_markdown(page(data), "pictures")
    for p in found.oracles:
        assert f"{p.measured:.2e}<br>{p.ratio:.3f} ± {p.stderr:.3f}" in text
    assert command(data) in text
    assert data["settings"]["date"] in text
    assert "\n\n\n" not in text
    assert re.findall(r"!\[.+?\]\(pictures/local-(.+?)\.png\)", text) == list(FIGURES)
    widths = [line.count(" | ") for line in text.splitlines() if line.startswith("| k = ")]
    assert widths == [len(EPSILONS)] * len(K)


def test_without_altair_the_page_has_words_in_place_of_pictures(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    html = as_html(page(found.to_json()))
    assert "<svg" not in html
    assert html.count("no picture") == len(FIGURES)


def test_the_text_has_every_number(found):
    text = as_text(found.to_json())
    for p in found.oracles:
        assert f"{p.measured:.2e} {p.ratio:.3f}±{p.stderr:.3f}" in text
    assert text.count("pass  ") + text.count("FAIL  ") == len(found.claims)


def test_the_command_writes_the_page_and_the_results(tmp_path):
    out = tmp_path / "out"
    done = call("--clients", 100, "--runs", 2, "--seed", 5, "--out", out, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    printed = json.loads(done.stdout)
    assert printed.pop("page") == str(out / "index.html")
    assert printed == json.loads((out / "results.json").read_text())
    assert printed["settings"]["domains"] == [51, 501, 5001]
    assert printed["settings"]["epsilons"] == [1, 2, 3, 4, 5]
    assert len(printed["oracles"]) == 7 * 3 * 5
    assert sorted(file.name for file in out.iterdir()) == ["index.html", "results.json"]
    assert "--clients 100 --runs 2 --seed 5" in (out / "index.html").read_text()


def test_the_command_writes_into_no_foreign_folder(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    done = call("--out", tmp_path)
    assert isinstance(done.exception, UsageError)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mine.txt"]
