"""What a guarantee says is true: its numbers against Bayes' rule by brute force, its words against its numbers."""

from __future__ import annotations

import itertools
import json
import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from hushquery.core.budget import Relation, Unit
from hushquery.core.calibration import mu_for
from hushquery.core.guarantee import Guarantee, Step, best_posterior, two_worlds
from hushquery.core.loss import Loss
from hushquery.core.sensitivity import of_clamped_sum, of_counts
from hushquery.errors import UsageError
from hushquery.noise.law import DiscreteLaplace

QUICK = settings(max_examples=100, deadline=None)
NEARLY = 1e-12

PRIORS = [1e-9, 0.01, 0.1, 0.5, 0.9, 0.999]
EPSILONS = ["0.1", "0.5", "1", "ln(10)", "5"]


def stated(epsilon, delta=0.0, relation="add-remove", **more):
    return Guarantee("readers", "curator", Unit("user", relation), float(epsilon), delta, **more)


# ---- unit ------------------------------------------------------------------------------------------------------------


def test_a_unit_says_whom_and_between_which_worlds():
    assert str(Unit("user", "add-remove")) == "one user, present or absent (add-remove)"
    assert str(Unit("household", Relation.REPLACE_ONE)) == "one household, with its data exchanged (replace-one)"


def test_a_unit_is_given_whole_or_by_its_column():
    household = Unit("household", "replace-one")
    assert Unit.of(household) is household
    assert Unit.of(household, "replace-one") is household
    assert Unit.of("household", Relation.REPLACE_ONE) == household
    assert Unit.of("user") == Unit("user", "add-remove")
    with pytest.raises(UsageError, match="replace-one, not add-remove"):
        Unit.of(household, "add-remove")


@pytest.mark.parametrize("name", ["", " ", "\t\n"])
def test_a_unit_has_a_name(name):
    with pytest.raises(UsageError) as refused:
        Unit(name, "add-remove")
    assert "column" in refused.value.fix


@pytest.mark.parametrize("relation", ["", "add_remove", "replace", "ADD-REMOVE", "both"])
def test_there_are_two_relations(relation):
    with pytest.raises(UsageError) as refused:
        Unit("user", relation)
    assert "add-remove" in refused.value.fix
    assert "replace-one" in refused.value.fix


# ---- what an attacker can conclude, by enumeration -------------------------------------------------------------------


def laplace_grid(b, centre, reach):
    """The probabilities of centre + discrete Laplace noise on -reach..reach."""
    a = math.exp(-1 / float(b))
    return (1 - a) / (1 + a) * a ** np.abs(np.arange(-reach, reach + 1) - centre)


def largest_belief(prior, one, other):
    """Bayes' rule for every result; the largest belief in the first of two worlds."""
    return float(np.max(prior * one / (prior * one + (1 - prior) * other)))


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_posterior_of_taking_part_is_what_bayes_gives_for_a_noisy_count(prior, epsilon):
    loss = Loss(pure=(epsilon,))
    guarantee = Guarantee.of("readers", "curator", Unit("user", "add-remove"), [Step("count", "", loss)])
    b = 1 / loss.pure[0]
    absent, present = laplace_grid(b, 0, 60), laplace_grid(b, 1, 60)
    for one, other in ((present, absent), (absent, present)):  # belief that somebody is there, or is not
        belief = largest_belief(prior, one, other)
        assert belief <= guarantee.posterior(prior) * (1 + NEARLY)
        assert math.isclose(belief, guarantee.posterior(prior), rel_tol=1e-9)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_posterior_of_a_secret_under_replace_one_is_what_bayes_gives_for_a_clamped_sum(prior, epsilon):
    loss = Loss(pure=(epsilon,))
    unit = Unit("user", "replace-one")
    guarantee = Guarantee.of("readers", "curator", unit, [Step("sum", "", loss)])
    b = of_clamped_sum(0, 3, unit.relation).l1 / loss.pure[0]
    worlds = [laplace_grid(b, albums, 200) for albums in range(4)]
    reached = max(largest_belief(prior, one, other) for one, other in itertools.permutations(worlds, 2))
    assert math.isclose(reached, guarantee.posterior(prior), rel_tol=1e-9)
    assert reached <= guarantee.posterior(prior) * (1 + NEARLY)


def belief_in_a_sex(prior, epsilon):
    """The deck's two sexes: what a release that is epsilon-DP under add-remove tells about the sex of one person."""
    b = of_counts(1, Relation.ADD_REMOVE).l1 / Fraction(epsilon)
    zero, one = laplace_grid(b, 0, 60), laplace_grid(b, 1, 60)
    female, male = np.outer(one, zero), np.outer(zero, one)
    return largest_belief(prior, female, male)


def promises(words):
    """Read from the words, for each kind of conclusion, the beliefs that are said to be the largest."""
    found, header = [], ""
    for line in words.splitlines():
        header = line if line.rstrip().endswith(":") else header
        if match := re.search(r"believed it with ([\d.e-]+)% before\s+->\s+at most ([\d.e-]+)% after", line):
            found.append((header, float(match[1]) / 100, float(match[2]) / 100))
    return found


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_words_do_not_promise_more_about_a_secret_than_bayes_leaves(epsilon):
    """Exchanging a person's data is removing and adding: under add-remove it costs epsilon twice."""
    found = promises(stated(epsilon).in_words([0.01, 0.1, 0.5]))
    assert len(found) >= 3
    for header, prior, most in found:
        if "secret" in header:
            assert most >= belief_in_a_sex(prior, epsilon) - NEARLY, header
        else:
            assert "took part" in header or "taken part" in header or "present" in header
            assert most >= best_posterior(prior, epsilon) - NEARLY
    assert any(most >= belief_in_a_sex(prior, epsilon) for _, prior, most in found if prior == 0.5)


@given(st.floats(1e-6, 13), st.lists(st.floats(1e-12, 1 - 1e-6), min_size=1, max_size=3))
@QUICK
def test_no_number_in_the_words_is_rounded_in_our_favour(epsilon, priors):
    words = stated(epsilon, relation="replace-one").in_words(priors)
    factor = re.search(r"factor of at most ([\d.,e+]+)", words)[1].replace(",", "")
    assert Fraction(factor) >= Fraction(math.exp(epsilon)) * (1 - Fraction(1, 10**15))
    assert Fraction(factor) <= Fraction(math.exp(epsilon)) * Fraction(1002, 1000)
    for prior, (_, shown, most) in zip(priors, promises(words), strict=True):
        assert shown > 0
        assert most >= best_posterior(prior, epsilon) * (1 - 1e-15)
        assert most <= min(1, best_posterior(prior, epsilon) * 1.15 + 1e-15)


def test_a_belief_that_stays_the_same_is_not_rounded_at_all():
    words = stated(0).in_words([0.01, 0.1, 0.07, 0.5])
    for percent in ("1.0%", "10.0%", "7.0%", "50.0%"):
        assert f"believed it with {percent} before  ->  at most {percent} after" in words
    # The least that may be concluded beyond that is said.
    assert "believed it with 1.0% before  ->  at most 1.1% after" in stated(1e-20).in_words([0.01])


@pytest.mark.parametrize("epsilon", [13.9, 20, 21 * math.log(10), 900])
def test_a_factor_beyond_a_million_is_a_bound_all_the_same(epsilon):
    power = int(re.search(r"by a factor of at most 10\^(\d+) depending", stated(epsilon).in_words())[1])
    assert epsilon / math.log(10) <= power < epsilon / math.log(10) + 1.01


def test_a_guarantee_has_the_concerns_of_its_numbers():
    assert stated(5, 1e-4).concerns == []
    assert [said.split()[0] for said in stated(5.1, 1.1e-4).concerns] == ["epsilon", "delta"]
    assert len(stated(2000).concerns) == 1  # larger than any budget


def test_a_small_belief_is_not_printed_as_none():
    words = stated(1).in_words([1e-9])
    assert " 0.000%" not in words
    assert " 0%" not in words


@given(st.floats(0, 1), st.floats(0, 50))
@QUICK
def test_a_posterior_is_a_probability_that_grows_with_prior_and_epsilon(prior, epsilon):
    posterior = best_posterior(prior, epsilon)
    assert prior * (1 - 1e-12) <= posterior <= 1
    assert posterior <= best_posterior(prior, epsilon + 1) + 1e-15
    assert math.isclose(best_posterior(prior, 0.0), prior, rel_tol=1e-12)


def test_certainty_stays_certain():
    assert (best_posterior(0.0, 5.0), best_posterior(1.0, 5.0)) == (0.0, 1.0)
    assert best_posterior(0.5, math.inf) == 1.0
    assert best_posterior(1e-310, 1.0) >= 2.718e-310


@pytest.mark.parametrize("prior", [-0.1, 1.1, math.nan, math.inf])
def test_a_prior_is_a_probability(prior):
    with pytest.raises(UsageError):
        best_posterior(prior, 1.0)


def test_delta_is_not_the_probability_that_the_factor_fails():
    """The classic mistake: for Gaussian noise the factor e^epsilon fails more often than delta, here 16 times."""
    epsilon, delta = 1.0, 1e-5
    mu = float(mu_for(1, "1e-5"))
    fails = norm.sf((epsilon - mu**2 / 2) / mu)  # P[privacy loss > epsilon]
    assert fails > 10 * delta
    guarantee = stated(epsilon, delta)
    assert not re.search(r"probability of at most \S+ .*this promise\s+may fail", guarantee.in_words())
    # What is true: the result is a function of a message that reveals all with probability delta.
    for text in (best_posterior.__doc__, Guarantee.posterior.__doc__):
        assert "except with probability delta" not in " ".join(text.split())


# ---- words, JSON, marks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_words_name_everything(relation, delta):
    steps = (Step("gaussian", "counts of queries, noise of scale 7", Loss(mu_squared="1/4")),)
    words = Guarantee("readers of <x>", "curator", Unit("household", relation), 1.25, delta, steps).in_words(
        [0.03, 0.5]
    )
    for said in (
        '"readers of <x>"',
        "household",
        relation,
        "1.25",
        "3.0%",
        "50.0%",
        "trusted",
        *(s.detail for s in steps),
    ):
        assert said in words
    assert ("1e-06" in words) == bool(delta)
    assert ("1,000,000" in words) == bool(delta)
    assert "NOT PRIVATE" not in words


def test_who_is_trusted_depends_on_the_model():
    unit = Unit("user", "add-remove")
    assert "Nobody is trusted" in Guarantee("p", "local", unit, 1.0, 0.0).in_words()
    assert "is trusted with it" in Guarantee("p", "curator", unit, 1.0, 0.0).in_words()


def test_replace_one_says_that_taking_part_is_not_hidden():
    assert "how many" in stated(1, relation="replace-one").in_words()
    assert "how many" not in stated(1).in_words()


def test_groups_are_told_that_delta_grows_too():
    assert re.search(r"two users together epsilon doubles and delta", stated(1, 1e-6).in_words())
    assert re.search(r"two users together epsilon doubles\.", stated(1).in_words())


def test_one_in_so_many_is_not_rounded_in_our_favour():
    for delta in (0.4, 0.66, 1.5e-6, 3e-7, 1e-5):
        shown = int(re.search(r"1 in ([\d,]+)", stated(1, delta).in_words())[1].replace(",", ""))
        assert shown <= 1 / delta * (1 + 1e-9) < shown + 1


def test_test_noise_voids_every_form_of_the_promise():
    void = stated(1, test_noise=True)
    assert void.summary().startswith("NOT PRIVATE")
    assert str(void).startswith("NOT PRIVATE")
    assert "NOT PRIVATE" in void.in_words().splitlines()[0]
    assert void.to_json()["test_noise"] is True
    assert "NOT PRIVATE" in void._repr_html_()
    assert stated(1).to_json()["test_noise"] is False


def test_html_escapes_names():
    page = Guarantee("<script>", "curator", Unit("<b>", "add-remove"), 1.0, 0.0)._repr_html_()
    assert "<script>" not in page
    assert "<b>," not in page


losses = st.builds(
    Loss,
    mu_squared=st.fractions(0, 2),
    pure=st.lists(st.fractions(0, 2), max_size=3).map(tuple),
    threshold_delta=st.fractions(0, Fraction(1, 10**7)),
)


@given(st.lists(losses, max_size=3))
@settings(max_examples=25, deadline=None)
def test_json_leads_back_to_the_exact_loss(found):
    steps = [Step(f"s{i}", "", loss) for i, loss in enumerate(found)]
    guarantee = Guarantee.of("readers", "curator", Unit("user", "add-remove"), steps, delta="1e-6")
    data = json.loads(json.dumps(guarantee.to_json(), allow_nan=False))
    assert [Loss.from_json(step["loss"]) for step in data["steps"]] == found
    assert (data["unit"], data["relation"], data["population"]) == ("user", "add-remove", "readers")
    total = Loss()
    for loss in found:
        total += loss
    assert guarantee.loss == total
    assert total.fits(data["epsilon"], data["delta"])  # never below the exact one


@given(st.lists(st.fractions(0, 5), min_size=1, max_size=6))
@QUICK
def test_a_pure_guarantee_is_the_sum_rounded_up(pure):
    steps = [Step("laplace", "", Loss(pure=(r,))) for r in pure]
    guarantee = Guarantee.of("readers", "curator", Unit("user", "add-remove"), steps)
    assert guarantee.delta == 0.0
    assert sum(pure) <= Fraction(guarantee.epsilon) <= sum(pure) * (1 + Fraction(1, 10**15))


def test_a_delta_that_buys_nothing_is_not_quoted():
    step = Step("laplace", "", Loss(pure=(1,)))
    guarantee = Guarantee.of("readers", "curator", Unit("user", "add-remove"), [step], delta="1e-6")
    assert (guarantee.epsilon, guarantee.delta) == (1.0, 0.0)


def test_no_guarantee_is_made_up_where_there_is_none():
    step = Step("threshold", "", Loss(threshold_delta="1e-3"))
    with pytest.raises(UsageError, match="no epsilon holds"):
        Guarantee.of("readers", "curator", Unit("user", "add-remove"), [step], delta="1e-6")


# ---- the picture -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "sensitivity"), [("1", 1), ("0.2", 1), ("1", 3), ("5", 1), ("1/3", 2)])
def test_the_two_worlds_are_the_laws_of_the_noise(epsilon, sensitivity):
    law = DiscreteLaplace(sensitivity / Fraction(epsilon))
    rows = two_worlds(epsilon, sensitivity, spread=40)
    results = sorted({row["result"] for row in rows})
    for world, centre in (("without you", 0), ("with you", sensitivity)):
        chances = {row["result"]: row["probability"] for row in rows if row["world"] == world}
        assert sorted(chances) == results
        for result in (0, 1, sensitivity, results[len(results) // 2]):
            if result in chances:
                assert math.isclose(chances[result], law.pmf(result - centre), rel_tol=1e-9)
    by_result = {}
    for row in rows:
        by_result.setdefault(row["result"], []).append(row["probability"])
    bound = math.exp(Fraction(epsilon)) * (1 + 1e-9)
    assert all(max(p) <= bound * min(p) for p in by_result.values())
    assert any(math.isclose(max(p), math.exp(Fraction(epsilon)) * min(p), rel_tol=1e-9) for p in by_result.values())


def test_all_results_together_are_certain():
    rows = two_worlds(1, spread=60)
    for world in ("without you", "with you"):
        assert math.isclose(math.fsum(r["probability"] for r in rows if r["world"] == world), 1.0, abs_tol=1e-12)


@pytest.mark.parametrize("epsilon", ["1e-9", "1e-6", "1000"])
def test_the_picture_stays_small_and_does_not_vanish(epsilon):
    rows = two_worlds(epsilon)
    assert 4 <= len(rows) <= 2000
    assert max(row["probability"] for row in rows) > 0
    assert all(math.isfinite(row["probability"]) for row in rows)


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(0, 1), (-1, 1), (1, 0), ("nan", 1), ("1e-400", 1)])
def test_a_picture_of_nothing_is_refused(epsilon, sensitivity):
    with pytest.raises(UsageError):
        two_worlds(epsilon, sensitivity)
