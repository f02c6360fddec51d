"""Mutants of the accounting: what a step is said to cost, what composes how, and what the ledger lets pass."""

from __future__ import annotations

from mutants.model import mutant

_CORE = "src/hushquery/core/"
_SUMS = "tests/core/test_steps_add_up.py::"

MUTANTS = (
    mutant(
        "laplace-threshold-one-low",
        "a threshold one too low: a query of one user alone is published more often than delta",
        _CORE + "calibration.py",
        (
            "return max(threshold, other_way, keys_per_user if row_counts else 1)",
            "return max(threshold - 1, other_way, keys_per_user if row_counts else 1)",
        ),
        tests="tests/core/test_thresholds.py::test_delta_of_row_counts_is_the_worst_of_all_splits_of_a_users_rows",
    ),
    mutant(
        "laplace-delta-of-one-key",
        "delta is claimed for one key of a user, who has d",
        _CORE + "calibration.py",
        (
            "singles = -mpmath.expm1(keys_per_user * mpmath.log1p(-_lift(scale, threshold - 1)))",
            "singles = -mpmath.expm1(mpmath.log1p(-_lift(scale, threshold - 1)))",
        ),
        tests="tests/core/test_thresholds.py::test_delta_of_row_counts_is_the_worst_of_all_splits_of_a_users_rows",
        audits="laplace",
    ),
    mutant(
        "laplace-delta-real-threshold",
        "delta is computed for a count that starts from 0 and not from 1",
        _CORE + "calibration.py",
        ("_lift(scale, threshold - 1)))", "_lift(scale, threshold)))"),
        tests="tests/core/test_thresholds.py::test_delta_of_row_counts_is_the_worst_of_all_splits_of_a_users_rows",
        audits="laplace",
    ),
    mutant(
        "laplace-replace-one-as-add-remove",
        "exchanging a record is charged like adding one: epsilon is half of the truth",
        _CORE + "loss.py",
        (
            "epsilon = Fraction(self.keys_per_user * both_ways) / self.scale",
            "epsilon = Fraction(self.keys_per_user) / self.scale + 0 * both_ways",
        ),
        tests="tests/core/test_laplace_histogram.py::test_cost_is_the_exact_divergence_over_all_neighbours",
        audits="headlist",
    ),
    mutant(
        "gaussian-replace-one-as-add-remove",
        "exchanging a record is charged like adding one",
        _CORE + "calibration.py",
        (
            "changed = self.keys_per_user * (1 if self.relation is Relation.ADD_REMOVE else 2)",
            "changed = self.keys_per_user",
        ),
        tests=_SUMS + "test_a_step_costs_what_the_furthest_neighbours_are_apart",
    ),
    mutant(
        "weights-replace-one-as-add-remove",
        "exchanging a user's weights is charged like adding them",
        _CORE + "loss.py",
        ("mu_squared = both_ways * WEIGHT_GRID**2 / self.sigma**2", "mu_squared = WEIGHT_GRID**2 / self.sigma**2"),
        tests=_SUMS + "test_a_step_costs_what_the_furthest_neighbours_are_apart",
    ),
    mutant(
        "sparse-threshold-half-off",
        "the threshold of integer noise is taken for that of real noise: delta is understated",
        _CORE + "calibration.py",
        (
            "x = (self.threshold - mpmath.mpf(3) / 2) / rational_mpf(self.sigma)",
            "x = (self.threshold - mpmath.mpf(1)) / rational_mpf(self.sigma)",
        ),
        tests="tests/core/test_sparse_gaussian.py::test_golden_calibration",
        audits="gaussian-selector",
    ),
    mutant(
        "sparse-one-direction",
        "only the world with more keys is looked at",
        _CORE + "calibration.py",
        ("+ [(0, d - j, j) for j in range(d + 1)])", ")"),
        tests=_SUMS + "test_beside_pure_steps_both_directions_count",
    ),
    mutant(
        "sparse-best-split",
        "the best of all splits is claimed and not the worst",
        _CORE + "calibration.py",
        ("return max(at(*split) for split in splits.tolist())", "return min(at(*split) for split in splits.tolist())"),
        tests="tests/core/test_sparse_gaussian.py::test_golden_calibration",
        audits="gaussian-selector",
    ),
    mutant(
        "gaussian-curve-without-its-second-term",
        "delta of the Gaussian is that of its tail, evaluated on the wrong side",
        _CORE + "calibration.py",
        (
            "first, beyond = normal_sf(ratio - mu / 2), ratio + mu / 2",
            "first, beyond = normal_sf(ratio), ratio + mu / 2",
        ),
        tests="tests/core/test_gaussian.py::test_curve_is_the_integral_of_the_densities",
        audits="gaussian",
    ),
    mutant(
        "sigma-rounded-down",
        "noise is a little smaller than the budget allows",
        _CORE + "calibration.py",
        (
            "sigma = grid_up(mpmath.sqrt(rational_mpf(s2 / m2)))",
            "sigma = grid_up(mpmath.sqrt(rational_mpf(s2 / m2))) - Fraction(1, 2**20)",
        ),
        ("while s2 > m2 * sigma**2:", "while s2 > 2 * m2 * sigma**2:"),
        tests="tests/core/test_gaussian.py::test_sigma_never_loses_more_than_mu_in_exact_arithmetic",
    ),
    mutant(
        "weights-delta-of-one-key",
        "the threshold of weights is computed for users with a single query",
        _CORE + "loss.py",
        (
            "worst = max(worst, -mpmath.expm1(t * mpmath.log1p(-normal_sf(reach))))",
            "worst = max(worst, -mpmath.expm1(mpmath.log1p(-normal_sf(reach))))",
        ),
        tests=_SUMS + "test_the_delta_of_equal_weights_is_that_of_the_worst_number_of_queries",
    ),
    mutant(
        "weight-rounded-up",
        "weights of one user have more than L2 norm one",
        _CORE + "loss.py",
        ("math.isqrt(WEIGHT_GRID**2 // keys)", "math.isqrt(WEIGHT_GRID**2 // keys) + 1"),
        tests="tests/curator/test_weights.py::test_equal_weights_of_the_engine_are_the_exact_ones",
    ),
    mutant(
        "knapsack-of-equal-weights",
        "the worst user is taken to spread weights equally: unequal ones pass the threshold more often than delta",
        _CORE + "calibration.py",
        ("        for j in range(1, grid + 1):\n", "        for j in (int(grid / most_keys**0.5),):\n"),
        tests="tests/core/test_thresholds.py::test_golden_thresholds_of_the_knapsack",
    ),
    mutant(
        "optimal-selection-one-count-more",
        "a query is released with the chance of one user more than it has",
        _CORE + "calibration.py",
        (
            "return min(mpmath.mpf(1), dd * mpmath.expm1(count * e) / growth)",
            "return min(mpmath.mpf(1), dd * mpmath.expm1((count + 1) * e) / growth)",
        ),
        tests="tests/core/test_thresholds.py::test_optimal_selection_is_the_solution_of_its_recursion",
    ),
    mutant(
        "optimal-loss-of-one-key",
        "the selection is charged for one query of a user",
        _CORE + "loss.py",
        (
            "return Loss(pure=(self.keys_per_user * self.epsilon,), threshold_delta=self.keys_per_user * self.delta)",
            "return Loss(pure=(self.epsilon,), threshold_delta=self.delta)",
        ),
        tests="tests/curator/test_calibrate.py::test_all_steps_fit_the_budget_together_and_use_it",
        audits="optimal",
    ),
    mutant(
        "losses-take-the-larger",
        "two steps on the same users cost what the dearer one does",
        _CORE + "loss.py",
        ("Loss(self.mu_squared + other.mu_squared, ", "Loss(max(self.mu_squared, other.mu_squared), "),
        tests=_SUMS + "test_steps_on_the_same_users_add_up",
    ),
    mutant(
        "failures-not-added",
        "the threshold's delta of an earlier step is forgotten",
        _CORE + "loss.py",
        (
            "self.sparse + other.sparse, self.threshold_delta + other.threshold_delta",
            "self.sparse + other.sparse, max(self.threshold_delta, other.threshold_delta)",
        ),
        tests=_SUMS + "test_steps_on_the_same_users_add_up",
    ),
    mutant(
        "delta-rounded-down",
        "a delta is claimed that the noise just does not keep",
        _CORE + "loss.py",
        (
            "return min(1.0, round_up(rest + rational_mpf(self.union_delta)))",
            "return min(1.0, float(rest + rational_mpf(self.union_delta)) * (1 - 1e-12))",
        ),
        tests="tests/core/test_loss.py::test_pure_steps_equal_kov_where_kov_speaks",
    ),
    mutant(
        "sequential-takes-the-larger",
        "many releases cost what the dearest of them does",
        _CORE + "composition.py",
        (
            'return round_up(sum(case.pure, Fraction(0))), "the epsilons add"',
            'return round_up(max(case.pure, default=Fraction(0))), "the epsilons add"',
        ),
        tests="tests/core/test_composition.py::test_sequential_adds_epsilons_and_deltas_exactly",
    ),
    mutant(
        "group-delta-not-grown",
        "a household is promised the delta of one person, times its size",
        _CORE + "composition.py",
        (
            "grown = rational_mpf(one.delta) * mpmath.expm1(people * e) / mpmath.expm1(e)",
            "grown = rational_mpf(one.delta) * people",
        ),
        tests="tests/core/test_composition.py::test_some_mechanism_needs_nearly_all_of_it",
    ),
    mutant(
        "sensitivity-replace-one-as-add-remove",
        "a count of exchanged units is given the noise of added ones",
        _CORE + "sensitivity.py",
        (
            "changed = Fraction(keys * (2 if relation is Relation.REPLACE_ONE else 1))",
            "changed = Fraction(keys)",
        ),
        tests="tests/core/test_sensitivity.py::test_a_histogram",
    ),
    mutant(
        "clamped-sum-of-the-upper-bound",
        "negative values move a sum by more than its noise covers",
        _CORE + "sensitivity.py",
        ('change, why = max(abs(low), abs(high)), "a unit', 'change, why = abs(high), "a unit'),
        tests="tests/core/test_sensitivity.py::test_a_clamped_sum",
    ),
    mutant(
        "local-reports-charged-once",
        "several reports of one client cost what one does",
        _CORE + "local_loss.py",
        (
            "return Loss(pure=(one,) * self.reports)",
            "return Loss(pure=(one,))",
        ),
        tests="tests/release/test_local_step.py::test_two_reports_cost_twice",
    ),
    mutant(
        "rappor-costs-one-bit",
        "the cost of RAPPOR is recomputed as if two texts differed in one bit of the filter",
        _CORE + "local_loss.py",
        ('"rappor": lambda oracle: 2 * _whole(oracle, "h"),', '"rappor": lambda oracle: 1,'),
        tests="tests/release/test_local_step.py::test_both_computations_give_the_same_fraction",
    ),
    mutant(
        "estimates-not-computed-anew",
        "a table of estimates that its counts contradict is believed",
        "src/hushquery/release/verification.py",
        ("        problems += _kind_problems(release)\n", ""),
        tests="tests/release/test_forged_estimates.py",
    ),
    mutant(
        "verify-ratio-without-the-set",
        "the cost of subset reports is recomputed without the size of the set",
        _CORE + "local_loss.py",
        (
            "return Fraction(truth * (cells - size), (_ONE - truth) * size)",
            "return Fraction(truth * (cells - size), (_ONE - truth) * cells)",
        ),
        tests="tests/release/test_local_step.py::test_both_computations_give_the_same_fraction",
    ),
    mutant(
        "ledger-refuses-nothing",
        "a spend beyond the budget is recorded and allowed",
        _CORE + "ledger/ledger.py",
        ("over = totals.exceeded(period, loss)", "over = None"),
        tests="tests/ledger/test_rules.py::test_a_budget_equal_to_a_claim_accepts_it_exactly_once",
    ),
    mutant(
        "ledger-does-not-look-again",
        "what another process has spent since is not seen: two processes spend one budget twice",
        _CORE + "ledger/ledger.py",
        (
            "                self._catch_up(transaction)\n                if once is not None",
            "                if once is not None",
        ),
        tests="tests/ledger/test_rules.py::test_others_append_in_between",
    ),
    mutant(
        "ledger-second-relation",
        "the other relation of a population gets a second budget for the same people",
        _CORE + "ledger/ledger.py",
        ("if kept is not key[1]:", "if kept is None:"),
        tests="tests/ledger/test_one_budget.py::test_the_second_relation_of_a_population_is_refused",
    ),
    mutant(
        "ledger-second-name",
        "a name that differs in a digit gets a second budget, unasked",
        _CORE + "ledger/ledger.py",
        ("near = None if new_population else self._near(key[0])", "near = None"),
        tests="tests/ledger/test_one_budget.py::test_a_name_that_differs_in_a_digit_is_asked_about",
    ),
    mutant(
        "ledger-accepts-edits",
        "an entry that was changed by hand still counts as recorded",
        _CORE + "ledger/ledger.py",
        ("if mark != (book.entries[number - 1].hash if number else GENESIS):", "if mark is None:"),
        tests="tests/ledger/test_tamper.py",
    ),
    mutant(
        "ledger-hash-not-compared",
        "a row whose numbers were changed is read as if it had been recorded so",
        _CORE + "ledger/store.py",
        ('return bool(row["hash"] == digest(row))', 'return bool(row["hash"])'),
        tests="tests/ledger/test_tamper.py",
    ),
    mutant(
        "ledger-periods-come-back",
        "a clock that is set back opens a period anew that was spent",
        _CORE + "ledger/entries.py",
        (
            "return max(self.last_period, (now - self.opened) // period_length(self.terms.period))",
            "return (now - self.opened) // period_length(self.terms.period)",
        ),
        tests="tests/ledger/test_rules.py",
    ),
    mutant(
        "ledger-lifetime-forgotten",
        "each period begins anew and the lifetime of the account bounds nothing",
        _CORE + "ledger/entries.py",
        ("(terms.lifetime, ever)]", "(terms.lifetime, Loss())]"),
        tests="tests/ledger/test_rules.py",
    ),
)
