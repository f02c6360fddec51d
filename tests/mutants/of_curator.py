"""Mutants of the curator: what of a user counts, what is selected, counted, spent, and shown."""

from __future__ import annotations

from mutants.model import mutant

_CURATOR = "src/hushquery/curator/"
_AUDIT = "tests/curator/test_audit.py::"
_FLOOR = "tests/curator/test_floor.py::"
_LAW = "tests/conformance/test_conformance.py::test_runs_follow_the_law_at_every_output"
_BOUND = "tests/curator/test_bound.py::"
_PLAN = "tests/curator/test_plan.py::"
_TRAPS = "tests/curator/test_traps.py::"

MUTANTS = (
    mutant(
        "threshold-15-low",
        "queries are released 15 users below the threshold: those of one person come out",
        _CURATOR + "counting.py",
        ("noisy, noisy >= threshold)]", "noisy, noisy >= threshold - 15)]"),
        tests=_LAW + "[laplace]",
        audits="laplace gaussian-selector clicks",
    ),
    mutant(
        "threshold-one-low",
        "queries are released one user below the threshold",
        _CURATOR + "counting.py",
        ("noisy, noisy >= threshold)]", "noisy, noisy >= threshold - 1)]"),
        tests=_LAW + "[laplace]",
        audits="laplace gaussian-selector clicks",
    ),
    mutant(
        "selecting-noise-halved",
        "the noise that selects and is published is half of what is claimed",
        _CURATOR + "counting.py",
        (
            'noisy = add_noise(singly["n"].to_numpy(), law, bits)',
            'noisy = (add_noise(singly["n"].to_numpy(), law, bits) + singly["n"].to_numpy()) // 2',
        ),
        tests=_LAW + "[laplace]",
        audits="laplace gaussian-selector clicks weighted",
    ),
    mutant(
        "fresh-noise-for-the-count",
        "selection and count get noise of their own: two looks are sold for the price of one",
        _CURATOR + "counting.py",
        (
            "chosen = [_with_noisy(singly.select(columns), noisy, noisy >= threshold)]",
            "chosen = [_with_noisy(singly.select(columns), add_noise(singly['n'].to_numpy(), law, bits), "
            "noisy >= threshold)]",
        ),
        tests=_PLAN + "test_the_count_published_is_the_one_that_met_the_threshold",
        audits="laplace gaussian-selector clicks",
    ),
    mutant(
        "floor-one-low",
        "under a floor of N users, queries of N - 1 come out",
        _CURATOR + "counting.py",
        ("counted.filter(counted.n > beneath)", "counted.filter(counted.n >= beneath)"),
        tests=_FLOOR + "test_what_too_few_users_hold_never_comes_out",
        audits="floor",
    ),
    mutant(
        "floor-takes-off-one-more",
        "under a floor of N, N users are taken off a count: those with N have none and are drawn all the same",
        _CURATOR + "counting.py",
        ("mutate(n=lambda t: t.n - beneath)", "mutate(n=lambda t: t.n - beneath - 1)"),
        tests=_FLOOR + "test_one_user_more_adds_one_to_at_most_d_counts_above_the_floor",
        audits="floor",
    ),
    mutant(
        "floor-is-a-filter",
        "a query goes from absent to a count of N: it comes out more often than delta says",
        _CURATOR + "counting.py",
        ("mutate(n=lambda t: t.n - beneath)", "mutate(n=lambda t: t.n)"),
        tests=_FLOOR + "test_one_user_more_adds_one_to_at_most_d_counts_above_the_floor",
        audits="floor",
    ),
    mutant(
        "floor-not-added-again",
        "counts are published N - 1 too low, and intervals miss",
        _CURATOR + "counting.py",
        ('passed["noisy"].to_numpy() + hidden', 'passed["noisy"].to_numpy()'),
        tests=_LAW + "[floor]",
        audits="floor",
    ),
    mutant(
        "floor-not-in-the-threshold-of-intervals",
        "intervals are computed for a threshold N - 1 below the real one",
        _CURATOR + "counting.py",
        ("step.threshold + hidden, law, least=least)", "step.threshold, law, least=least)"),
        tests=_FLOOR + "test_intervals_under_a_floor_cover",
    ),
    mutant(
        "floor-not-stated",
        "a release under a floor does not say so",
        _CURATOR + "plan.py",
        ('parameters["min_users"] = spec.min_users', "pass"),
        tests=_FLOOR + "test_a_release_states_its_floor",
    ),
    mutant(
        "floor-not-verified",
        "a release may state any floor",
        "src/hushquery/release/verification.py",
        ('ran["parameters"].get("min_users", 1) != floor', "False"),
        tests=_FLOOR + "test_a_floor_that_does_not_fit_is_found",
    ),
    mutant(
        "floor-under-rows",
        "a floor of N rows, which one user can have, is called one of N users",
        "src/hushquery/core/loss.py",
        ("(threshold is None or row_counts)", "(threshold is None)"),
        tests=_FLOOR + "test_a_step_without_a_proof_takes_no_floor",
    ),
    mutant(
        "public-keys-noise-halved",
        "counts of released queries get half of the noise that is claimed",
        _CURATOR + "counting.py",
        (
            'noisy = add_noise(exact["n"].to_numpy(), law, bits)',
            'noisy = (add_noise(exact["n"].to_numpy(), law, bits) + exact["n"].to_numpy()) // 2',
        ),
        tests=_AUDIT + "test_listed_clicks_all_get_noise_and_nothing_else_does",
        audits="korolova2009",
    ),
    mutant(
        "public-keys-without-zeros",
        "a listed pair that nobody clicked is left out: its presence proves a click",
        _CURATOR + "counting.py",
        ("joined = keys.left_join(counted, columns)", "joined = keys.inner_join(counted, columns)"),
        tests=_TRAPS + "test_listed_zeros_get_noise_and_may_be_negative",
    ),
    mutant(
        "bulk-keys-of-other-counts",
        "keys of another count are looked up where one count's are drawn",
        _CURATOR + "counting.py",
        ("same = counted.filter(counted.n == count)", "same = counted.filter(counted.n <= count)"),
        tests=_PLAN + "test_order_files_threads_and_chunks_change_nothing",
    ),
    mutant(
        "d-plus-one",
        "one query more of each user counts than the noise is for",
        _CURATOR + "counting.py",
        ("placed.filter((placed.place < most) & ", "placed.filter((placed.place <= most) & "),
        tests=_BOUND + "test_exactly_d_of_those_who_have_more_and_all_of_the_others",
    ),
    mutant(
        "bound-ignored",
        "all queries of a user count",
        _CURATOR + "counting.py",
        ("placed.filter((placed.place < most) & ", "placed.filter((placed.place < 10**9) & "),
        tests=_BOUND + "test_exactly_d_of_those_who_have_more_and_all_of_the_others",
    ),
    mutant(
        "repeats-count-again",
        "a query that a user repeats counts again where there are no times",
        _CURATOR + "counting.py",
        ('each = table.select("user", *columns).distinct()', 'each = table.select("user", *columns)'),
        tests=_AUDIT + "test_one_user_more_adds_one_to_at_most_d_queries",
    ),
    mutant(
        "several-clicks-are-several-searches",
        "a search with several clicks counts several times",
        _CURATOR + "counting.py",
        ('each = table.select("user", "time", "query").distinct()', 'each = table.select("user", "time", "query")'),
        tests="tests/curator/test_korolova.py::"
        "test_a_search_counts_as_often_as_it_is_made_and_several_clicks_do_not_make_it_two",
    ),
    mutant(
        "tie-rule-dropped",
        "which of two searches of one time counts is the engine's whim: a second look sees other rows",
        _CURATOR + "counting.py",
        ('for column in ("order", *columns)]', 'for column in ("order",)]'),
        tests=(
            _BOUND + "test_ties_go_by_the_query_and_timeless_rows_come_last",
            _BOUND + "test_nobody_moves_when_somebody_joins",
        ),
    ),
    mutant(
        "bound-over-all-users",
        "what of a user counts depends on who else is there: one person moves many counts",
        _CURATOR + "counting.py",
        ('ibis.window(group_by="user", order_by=order)', "ibis.window(order_by=order)"),
        tests=_BOUND + "test_nobody_moves_when_somebody_joins",
    ),
    mutant(
        "clicks-of-unreleased-queries",
        "clicks after queries that were not released take places and are counted",
        "src/hushquery/log/read.py",
        (
            'joined = clicked.inner_join(queries, "query")',
            'joined = clicked.left_join(queries, "query")\n'
            "        joined = joined.mutate(number=joined.number.fill_null(0))",
        ),
        tests=_TRAPS + "test_the_bound_on_clicks_is_its_own",
        audits="release",
    ),
    mutant(
        "released-count-of-all-rows",
        "counts of released queries forget the bound: a user counts in all of them",
        _CURATOR + "counting.py",
        ('counted = tally(first_rows(each, ["number"], most), ["number"])', 'counted = tally(each, ["number"])'),
        tests=_TRAPS + "test_counting_released_queries_again_keeps_the_bound",
    ),
    mutant(
        "weights-not-normalised",
        "users with many queries weigh more than L2 norm one",
        _CURATOR + "selectors/weighted.py",
        (
            '(WEIGHT_GRID / counted.t.cast("float64").sqrt()).floor()',
            '(WEIGHT_GRID / counted.t.cast("float64").sqrt().sqrt()).floor()',
        ),
        tests="tests/curator/test_weights.py::test_equal_weights_of_the_engine_are_the_exact_ones",
        audits="weighted",
    ),
    mutant(
        "guided-weights-not-normalised",
        "guided weights are not scaled to L2 norm one, and the guard against that is gone",
        _CURATOR + "selectors/guided.py",
        ("WEIGHT_GRID * kept.share / kept.norm", "WEIGHT_GRID * kept.share / kept.norm.sqrt()"),
        ("kept.filter((kept.squares <= WEIGHT_GRID**2) & (kept.weight > 0))", "kept.filter(kept.weight > 0)"),
        tests="tests/curator/test_weights.py::test_guided_weights_have_norm_at_most_one_whatever_the_shares",
        audits="guided",
    ),
    mutant(
        "guided-guard-gone",
        "a user whose weights are too heavy by a rounding error is not left out",
        _CURATOR + "selectors/guided.py",
        ("kept.filter((kept.squares <= WEIGHT_GRID**2) & (kept.weight > 0))", "kept.filter(kept.weight > 0)"),
        tests="tests/curator/test_weights.py::test_a_user_whose_weights_would_have_too_large_a_norm_is_left_out",
    ),
    mutant(
        "sketch-counts-a-bucket-twice",
        "two queries of a user in one bucket add up to more than L2 norm one",
        _CURATOR + "selectors/guided.py",
        ('rows.select("user", "bucket").distinct())', 'rows.select("user", "bucket"))'),
        tests="tests/curator/test_weights.py::test_two_queries_of_a_user_in_one_bucket_count_once",
    ),
    mutant(
        "sketch-without-noise-on-empty-buckets",
        "an empty bucket stays empty: whoever fills one is seen",
        _CURATOR + "selectors/guided.py",
        (
            "return add_noise(exact, law_of(self.sketch), bits)",
            "return np.where(exact, add_noise(exact, law_of(self.sketch), bits), 0)",
        ),
        tests="tests/curator/test_weights.py::test_empty_buckets_get_noise_too",
        audits="sketch",
    ),
    mutant(
        "korolova-threshold-one-low",
        "on integers 'above K' is taken for 'K or more'",
        _CURATOR + "selectors/korolova2009.py",
        ("return int(self.threshold // 1) + 1", "return int(self.threshold // 1)"),
        tests="tests/curator/test_korolova.py::test_above_k_means_the_next_integer_also_for_a_whole_k",
    ),
    mutant(
        "optimal-coin-of-one-more",
        "the coin of a query is that of one user more",
        _CURATOR + "selectors/optimal.py",
        (
            "return SelectionCoin(count, self.selection.epsilon, self.selection.delta)",
            "return SelectionCoin(count + 1, self.selection.epsilon, self.selection.delta)",
        ),
        tests=_AUDIT + "test_selectors_follow_their_laws_on_many_logs_at_once",
        audits="optimal",
    ),
    mutant(
        "reformulations-without-empty-pairs",
        "only pairs that somebody made can be published: one person's pair is proved by its presence",
        _CURATOR + "reformulations.py",
        (
            "draw(times, bits) if empty else np.zeros(times, int)",
            "draw(times, bits) * 0 if empty else np.zeros(times, int)",
        ),
        tests=_AUDIT + "test_reformulations_follow_their_law",
        audits="reformulations",
    ),
    mutant(
        "reformulations-threshold-of-the-log",
        "the threshold depends on how many pairs the log has, which is secret",
        _CURATOR + "reformulations.py",
        (
            "law, least = law_of(self.step), self.publish_from(size)",
            "law, least = law_of(self.step), self.publish_from(max(2, size - len(cells) // size))",
        ),
        tests=_TRAPS + "test_the_threshold_of_reformulations_comes_from_the_public_domain_alone",
    ),
    mutant(
        "delta-not-split-laplace",
        "queries and clicks each spend the whole delta, and nothing checks the sum",
        _CURATOR + "plan.py",
        ("    delta -= for_pairs\n", "    for_pairs = delta if secret_pairs else for_pairs\n"),
        ("if not steps.loss.fits(budget.epsilon, budget.delta):", "if not steps:"),
        tests="tests/curator/test_calibrate.py::test_all_steps_fit_the_budget_together_and_use_it",
    ),
    mutant(
        "delta-not-split-gaussian",
        "thresholds and noise each spend the whole delta, and nothing checks the sum",
        _CURATOR + "plan.py",
        (
            "mu_for(budget.epsilon, budget.delta * (1 - part)) ** 2",
            "mu_for(budget.epsilon, budget.delta) ** 2",
        ),
        ("if not steps.loss.fits(budget.epsilon, budget.delta):", "if not steps:"),
        tests="tests/curator/test_calibrate.py::test_all_steps_fit_the_budget_together_and_use_it",
    ),
    mutant(
        "spend-after-read",
        "the log is read before the spend is recorded: killed in between, it was free",
        "src/hushquery/plan.py",
        (
            "            for charge in charges:\n                book.spend(\n",
            "            read(Paid(expressions, guarantee, source, lambda *_: None))\n"
            "            for charge in charges:\n                book.spend(\n",
        ),
        tests=_PLAN + "test_the_spend_is_recorded_before_a_row_is_read",
    ),
    mutant(
        "spend-of-one-step",
        "the ledger is charged for the first step only",
        "src/hushquery/plan.py",
        (
            "self.unit.relation, self.loss, what, self.budget)",
            "self.unit.relation, self._steps()[0].loss, what, self.budget)",
        ),
        tests=_PLAN + "test_the_charge_is_the_sum_of_the_steps_and_the_noise_drawn_is_the_noise_stated",
    ),
    mutant(
        "test-noise-not-marked",
        "a release made from test bits says that it is private",
        "src/hushquery/plan.py",
        ("guarantee = replace(self.guarantee, test_noise=not source.secret)", "guarantee = self.guarantee"),
        tests=_PLAN + "test_the_charge_is_the_sum_of_the_steps_and_the_noise_drawn_is_the_noise_stated",
    ),
    mutant(
        "materialize-removed-in-weighted",
        "the engine computes the weights anew for each question: noise drawn for one look meets the rows of another",
        _CURATOR + "selectors/__init__.py",
        (
            "with materialize(self.to_select(table, bound)) as counted:",
            "for counted in [self.to_select(table, bound)]:",
        ),
        tests=_TRAPS + "test_a_log_is_read_once_for_one_table",
    ),
    mutant(
        "materialize-removed-in-clicks",
        "the engine counts pairs anew for each question",
        _CURATOR + "clicks.py",
        (
            "with materialize(self._by_number(table, bound, queries)) as counted:",
            "for counted in [self._by_number(table, bound, queries)]:",
        ),
        tests=_TRAPS + "test_a_log_is_read_once_for_one_table",
    ),
    mutant(
        "materialize-removed-in-guided",
        "the sketch, the weights and the counts each read the log anew",
        _CURATOR + "selectors/guided.py",
        ("with materialize(self.each(table, bound)) as each:", "for each in [self.each(table, bound)]:"),
        tests=_TRAPS + "test_a_log_is_read_once_for_one_table",
    ),
    mutant(
        "selection-retried",
        "after a failure of the engine the selection is drawn again: two draws are sold for the price of one",
        _CURATOR + "plan.py",
        (
            '    tables = {"queries": steps.selector.run(log.rows, bound, bits)}\n',
            "    try:\n"
            '        tables = {"queries": steps.selector.run(log.rows, bound, bits)}\n'
            "    except Exception:\n"
            '        tables = {"queries": steps.selector.run(log.rows, bound, bits)}\n',
        ),
        tests=_PLAN + "test_a_step_that_failed_is_not_drawn_again",
    ),
    mutant(
        "raw-count-in-a-manifest",
        "the manifest says how many rows the log has",
        _CURATOR + "plan.py",
        (
            '"log_steps": list(self.log.steps),',
            '"log_steps": [*self.log.steps, f"{self.log.rows.count().to_pyarrow().as_py()} rows"],',
        ),
        tests=_PLAN + "test_a_release_tells_nothing_that_only_the_log_knows",
    ),
    mutant(
        "row-in-a-repr",
        "what a notebook shows of a log is its first row",
        "src/hushquery/log/read.py",
        (
            'return f"Log({columns}; rows are secret)"',
            'return f"Log({columns}; {self.table.limit(1).to_pyarrow().to_pylist()})"',
        ),
        tests=_PLAN + "test_a_plan_shows_no_row",
    ),
    mutant(
        "plan-runs-twice",
        "a plan runs again and again: each run draws its noise anew",
        "src/hushquery/plan.py",
        ("if not self._turn.acquire(blocking=False):", "if False:"),
        tests="tests/test_plans.py::test_a_second_run_of_the_same_plan_is_refused_and_not_charged",
    ),
    mutant(
        "weak-delta-published",
        "a release whose delta is a tenth or more runs on real noise and is published",
        "src/hushquery/plan.py",
        ("budget.check_publishable(users, anyway=anyway)", "pass"),
        tests="tests/cli/test_weak_promises.py::test_python_warns_when_the_plan_is_made_and_refuses_real_noise",
    ),
    mutant(
        "exclude-users-ignored",
        "people who objected are in the release all the same",
        "src/hushquery/cli/common.py",
        ('{"patterns": not self.no_patterns}', '{"patterns": not self.no_patterns, "exclude_users": None}'),
        tests="tests/cli/test_objections.py::test_people_who_object_and_denied_queries_are_left_out_of_a_release",
    ),
    mutant(
        "drop-ignored",
        "queries on the deny list are released",
        "src/hushquery/cli/common.py",
        ('{"patterns": not self.no_patterns}', '{"patterns": not self.no_patterns, "drop": None}'),
        tests="tests/cli/test_objections.py::test_people_who_object_and_denied_queries_are_left_out_of_a_release",
    ),
    mutant(
        "exclude-users-ignored-for-head-lists",
        "people who objected are in the head list all the same",
        "src/hushquery/cli/hybrid.py",
        ("opened = reading.open(log)", "opened = LogOptions().open(log)"),
        tests="tests/cli/test_objections.py::test_people_who_object_and_denied_queries_are_left_out_of_a_head_list",
    ),
    mutant(
        "iterated-forgets-evidence",
        "only the evidence of the last round is compared with the threshold",
        _CURATOR + "selectors/iterated.py",
        ("evidence = evidence + step.evidence[r]", "evidence = step.evidence[r]"),
        tests=_LAW + "[iterated]",
    ),
    mutant(
        "iterated-threshold-low",
        "iterated selection releases at half of its threshold",
        _CURATOR + "selectors/iterated.py",
        ("(*step.cuts, step.threshold)[r]", "(*step.cuts, step.threshold // 2)[r]"),
        tests="tests/curator/test_private_tail.py::test_what_one_person_searched_for_comes_out_as_rarely_as_promised[iterated]",
    ),
    mutant(
        "iterated-integer-test-gone",
        "a user's weights may be larger than the grid",
        _CURATOR + "selectors/iterated.py",
        ("weighed.filter(weighed.squares <= grid * grid)", "weighed.filter(weighed.squares <= 4 * grid * grid)"),
        tests="tests/curator/test_iterated.py::test_a_user_whose_weights_are_too_large_gives_nothing_and_others_do",
    ),
    mutant(
        "iterated-certificate-for-one-string",
        "the certificate forgets that a user has many strings",
        "src/hushquery/core/iterated.py",
        ("worst = max(worst, _UP * n * float(alive @ rises))", "worst = max(worst, _UP * float(alive @ rises))"),
        tests="tests/curator/test_iterated.py::test_golden_calibrations",
    ),
    mutant(
        "union-not-charged",
        "what holds on average only costs nothing",
        "src/hushquery/core/loss.py",
        ("rest + rational_mpf(self.union_delta)", "rest"),
        tests="tests/curator/test_iterated.py::test_a_union_is_added_outside_what_the_rest_costs",
    ),
)
