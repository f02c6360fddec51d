"""Head lists by guided weights under replace-one: exact loss, what is counted, and that many records pay off."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from hushquery.core.loss import GaussianWeights
from hushquery.core.registry import Pair
from hushquery.curator.audit import crowd, searcher
from hushquery.curator.selectors.guided import Guided, GuidedSelector
from hushquery.errors import UsageError
from hushquery.hybrid.headlist import OptInShares, estimate_reused
from hushquery.hybrid.remeasure import calibrate_guided_head, draw_guided_head
from hushquery.log import read_log
from hushquery.noise.law import RoundedGaussian
from hybrid_sides import create_head
from statistical import bits, hockey_stick


def create_guided_head(log, *, bits=None, users=None, **asked):
    """A guided head list of a log, with nothing spent."""
    return draw_guided_head(log, calibrate_guided_head(**asked), bits=bits, users=users)


def busy_log(users=1500, records=20):
    """Users who hold many records each, of which the most frequent are held by most."""
    draws = np.random.default_rng(5).zipf(1.4, size=(users, records)) % 5000
    names = [f"user {i}" for i in range(users) for _ in range(records)]
    ranks = draws.ravel().tolist()
    urls = [f"https://x.example/{rank % 3}" if rank % 2 else None for rank in ranks]
    return read_log({"user": names, "query": [f"query {rank}" for rank in ranks], "url": urls}, normalise=False)


@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
@pytest.mark.parametrize(("epsilon", "delta", "most"), [(1, 1e-5, 40), (4, 1e-7, 1), ("1/2", "1/100", 5)])
def test_steps_fit_the_budget_and_use_it(relation, epsilon, delta, most):
    steps = calibrate_guided_head(epsilon=epsilon, delta=delta, records_per_user=most, relation=relation)
    assert steps.loss.fits(epsilon, delta)
    assert steps.loss.epsilon(delta) > 0.97 * float(Fraction(epsilon))
    parts = steps.sketch.loss.mu_squared, steps.selection.loss.mu_squared, steps.counts.loss.mu_squared
    exchanged = 2 if relation == "replace-one" else 1
    assert parts[0] == exchanged * 64**2 / steps.sketch.sigma**2
    assert parts[2] == exchanged / steps.counts.sigma**2


def test_exact_loss_of_sketch_and_selection_when_a_users_records_are_exchanged():
    """Enumerated, with a sketch of one bucket: shared for new, new for new, some for none."""
    steps = calibrate_guided_head(epsilon=3, delta=Fraction(1, 100), records_per_user=2)
    mechanism = GuidedSelector(Guided(steps.sketch, steps.selection, None, buckets=1))
    around = int(steps.selection.threshold / 45)
    others = crowd(around, "ant", "bee")
    few = crowd(3, "ant")
    cost = steps.sketch.loss + steps.selection.loss
    for pair in [
        Pair("shared for new", others + searcher("zoe", "ant", "bee"), others + searcher("zoe", "cow")),
        Pair("new for new", few + searcher("zoe", "bee"), few + searcher("zoe", "cow", "bee")),
        Pair("some for none", few + searcher("zoe", "bee", "cow"), few),
    ]:
        left, right = mechanism.law(pair.left), mechanism.law(pair.right)
        for epsilon in (0.5, 1.5, 3.0):
            exact = max(hockey_stick(left, right, epsilon), hockey_stick(right, left, epsilon))
            assert exact <= cost.delta(epsilon) + 1e-12, pair.name


def test_guided_finds_more_records_than_noise_on_counts_and_its_counts_are_of_one_record_each():
    log = busy_log()
    asked = {"epsilon": 4, "delta": 1e-5, "records_per_user": 20}
    guided = create_guided_head(log, **asked, bits=bits("guided", "busy"))
    counted = create_head(log, **asked, bits=bits("laplace", "busy"))
    assert len(guided) > 1.3 * len(counted)
    assert (guided.users, guided.records_per_user) == (1500, 1)
    assert len(set(guided.records)) == len(guided)
    assert guided.records[0][0] == "query 1"
    assert guided.records[0][1] == "https://x.example/1"
    # One record of each user, at most, and a little noise.
    assert guided.counts.sum() < 1500 + 10 * float(guided.step.sigma) * len(guided) ** 0.5
    assert [type(step) for step in guided.before] == [GaussianWeights, GaussianWeights]
    # Its shares are priced and kept like those of any other head list.
    made = estimate_reused(guided, 3)
    assert made.n == 1500
    assert made.noise_variance == RoundedGaussian(guided.step.sigma).variance
    assert made.loss == OptInShares.from_json(made.to_json()).loss
    assert made.loss.fits(4, 1e-5)


def test_both_algorithms_may_find_nothing():
    log = read_log({"user": ["ann", "bob"], "query": ["ant", "bee"]})
    asked = {"epsilon": 4, "delta": 1e-5, "records_per_user": 1, "relation": "replace-one"}
    for name, create in (("laplace", create_head), ("guided", create_guided_head)):
        head = create(log, **asked, bits=bits("by name", name))
        assert (len(head), head.users) == (0, 2)


def test_refusals():
    log = read_log({"user": ["u"], "query": ["ant"]})
    for change, says in [
        ({"records_per_user": 0}, "records per user"),
        ({"delta": 0}, "0 < delta"),
        ({"relation": "add-remove"}, "must be given"),
    ]:
        with pytest.raises(UsageError, match=says):
            create_guided_head(log, **({"epsilon": 1, "delta": 1e-5, "bits": bits("no")} | change))
