"""Mutants of the hybrid model, of plain statistics, and of what a release may say."""

from __future__ import annotations

from mutants.model import mutant

_HYBRID = "src/hushquery/hybrid/"

MUTANTS = (
    mutant(
        "wildcard-drawn-anew",
        "the wildcard of a head list gets a draw of its own: a third count that one exchange moves, and 1.5 epsilon",
        _HYBRID + "headlist.py",
        (
            "        1.0 - math.fsum(values),\n",
            "        1.0 - float(top.counts.sum() + round(np.random.default_rng().laplace(0, 100))) / n,\n",
        ),
        tests="tests/hybrid/test_wildcards.py::test_a_reused_wildcard_is_what_is_left_and_no_draw_of_its_own",
    ),
    mutant(
        "wildcard-without-noise",
        "the measured wildcard is published as it is",
        _HYBRID + "remeasure.py",
        ("return add_noise(rest, law_of(step), bits)", "return rest"),
        tests="tests/hybrid/test_wildcards.py::test_a_measured_wildcard_has_noise_of_its_own",
        audits="headlist-split",
    ),
    mutant(
        "kept-wildcard-without-noise",
        "the wildcard of a kept list is published as it is",
        _HYBRID + "remeasure.py",
        (
            "wildcard, draws = int(noisy_rest(np.array([n - of_list]), step, source)[0]) / n, 1",
            "wildcard, draws = (n - of_list) / n, 1",
        ),
        tests="tests/hybrid/test_wildcards.py::test_the_wildcard_of_a_kept_list_has_noise_of_its_own",
    ),
    mutant(
        "split-measures-everybody",
        "those who found the list are measured too: they pay once and are asked twice",
        _HYBRID + "remeasure.py",
        ("step, bound, bits, parts.measurers)", "step, bound, bits, None)"),
        tests="tests/hybrid/test_optin.py::test_split_measures_with_the_users_who_did_not_find",
    ),
    mutant(
        "parallel-takes-the-cheaper",
        "of two parts the cheaper one's delta is charged",
        _HYBRID + "headlist.py",
        ("max(loss.threshold_delta for loss in losses)", "min(loss.threshold_delta for loss in losses)"),
        tests="tests/hybrid/test_optin.py::test_split_costs_what_the_dearer_part_costs",
    ),
    mutant(
        "head-noise-of-add-remove",
        "exchanging a record moves two counts, and the noise is for one",
        _HYBRID + "headlist.py",
        ("changed = records_per_user * (2 if related is Relation.REPLACE_ONE else 1)", "changed = records_per_user"),
        tests="tests/hybrid/test_headlist.py::test_golden_thresholds",
    ),
    mutant(
        "kept-noise-of-add-remove",
        "a kept list is measured with half of the noise",
        _HYBRID + "remeasure.py",
        ("changed = records_per_user * (2 if related is Relation.REPLACE_ONE else 1)", "changed = records_per_user"),
        tests="tests/experiments/test_epochs_follow.py::test_a_kept_period_costs_pure_epsilon_and_both_accounts_are_charged_each_time",
    ),
    mutant(
        "paper-threshold-one-low",
        "'above tau' is taken for 'tau or more'",
        _HYBRID + "headlist.py",
        ("return int(mpmath.floor(tau)) + 1", "return int(mpmath.floor(tau))"),
        tests="tests/hybrid/test_headlist.py::test_golden_thresholds",
    ),
    mutant(
        "head-order-of-the-log",
        "records come in the engine's order, which says something about the log",
        _HYBRID + "headlist.py",
        ("key=lambda r: (-r[2], r[0], r[1])", "key=lambda r: -r[2]"),
        tests="tests/hybrid/test_headlist.py::test_ties_are_broken_by_query_and_url",
    ),
    mutant(
        "blend-weights-swapped",
        "the side that varies more gets the larger weight",
        _HYBRID + "inference.py",
        (
            "weight = client_variance / (optin_variance + client_variance)",
            "weight = optin_variance / (optin_variance + client_variance)",
        ),
        tests="tests/hybrid/test_blend.py::test_weights_go_to_the_side_that_varies_less",
    ),
    mutant(
        "variance-as-printed",
        "every blend of two-stage reports is weighted by the paper's wrong variance",
        _HYBRID + "blend.py",
        (
            "    weight = pooled.weight\n    if mode",
            "    weight = pooled.weight\n    if two_stage is not None:\n"
            "        from hushquery_experiments.blender.printed import printed_weights\n"
            "        weight = printed_weights(two_stage, optin.variances)\n    if mode",
        ),
        tests="tests/hybrid/test_wildcards.py::test_two_stage_blends_are_weighted_by_the_variances_that_hold",
    ),
    mutant(
        "variance-without-covariance",
        "the covariance of query and record is that of Theorem 5: E[XY] where a covariance belongs",
        "src/hushquery/local/oracles/two_stage.py",
        ("2 * c / a * share * (1 - query_share)", "2 * c / a * share"),
        tests="tests/hybrid/test_wildcards.py::test_the_standard_error_of_a_two_stage_share_is_that_of_many_batches",
    ),
    mutant(
        "statistics-noise-halved",
        "plain statistics get half of the noise that is claimed",
        "src/hushquery/statistics/plan.py",
        ("return [t + int(z) for t, z in", "return [t + int(z) // 2 for t, z in"),
        tests="tests/statistics/test_plan.py::test_counts_are_unbiased_with_the_stated_error_and_intervals_that_cover",
        audits="histogram clamped-sum",
    ),
    mutant(
        "sum-not-clamped",
        "one person's sum moves the answer by any amount",
        "src/hushquery/statistics/queries.py",
        (
            'in_steps = per_unit.select(s=steps.clip(low, high).cast("int64"))',
            'in_steps = per_unit.select(s=steps.cast("int64"))',
        ),
        tests="tests/statistics/test_queries.py::test_what_is_beyond_the_bounds_counts_as_the_bound",
        audits="clamped-sum",
    ),
    mutant(
        "any-key-is-trusted",
        "a release that somebody else signed passes the check against the publisher's key",
        "src/hushquery/release/signature.py",
        ("if trusted is not None and trusted != self.fingerprint:", "if trusted is not None and not self.fingerprint:"),
        tests="tests/release/test_signature.py::test_signed_anew_with_another_key",
    ),
    mutant(
        "signature-without-a-purpose",
        "a signature that was made for something else passes for that of a release",
        "src/hushquery/release/signature.py",
        ('sha256 {digest}\\n".encode()', 'sha256 {digest}\\n".encode()[-72:]'),
        tests="tests/release/test_signature.py::test_a_signature_for_another_purpose",
    ),
    mutant(
        "unsigned-passes-with-a-key",
        "a release without a signature passes where the publisher's key is given",
        "src/hushquery/release/signature.py",
        (
            'return None, [] if key is None else ["it is not signed, and a key to check it with was given"]',
            "return None, []",
        ),
        tests="tests/release/test_signature.py::test_an_unsigned_one_fails_where_a_key_is_given",
    ),
    mutant(
        "one-file-under-two-names",
        "the same people get a second budget under another name",
        "src/hushquery/core/ledger/ledger.py",
        ("if near is None and (new_population or not charged):", "if near is None:"),
        tests="tests/ledger/test_place.py",
    ),
    mutant(
        "secrets-in-a-manifest-pass",
        "numbers that only the log knows may stand in a manifest",
        "src/hushquery/release/manifest.py",
        ("if name in _SECRET_NAMES or name.endswith(_SECRET_ENDINGS):", "if not name:"),
        tests="tests/release/test_make.py::test_names_of_what_only_the_log_knows_are_refused",
    ),
    mutant(
        "verify-does-not-compare-counts",
        "a count below the threshold passes verification",
        "src/hushquery/release/verification.py",
        ("if least is not None and least < users:", "if least is None:"),
        tests="tests/release/test_verification.py::test_a_count_below_the_threshold_is_found_and_one_at_it_is_not",
    ),
)
