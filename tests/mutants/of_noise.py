"""Mutants of the noise: its laws, how it is drawn, and which keys it carries over a threshold."""

from __future__ import annotations

from mutants.model import mutant

_NOISE = "src/hushquery/noise/"
_SAMPLER = "tests/noise/test_sampler.py::"

MUTANTS = (
    mutant(
        "laplace-scale-halved",
        "discrete Laplace noise of half the scale: epsilon is twice what is claimed",
        _NOISE + "law.py",
        (
            "return mpmath.exp(mpmath.mpf(-k * self.b.denominator) / self.b.numerator)",
            "return mpmath.exp(mpmath.mpf(-2 * k * self.b.denominator) / self.b.numerator)",
        ),
        tests=_SAMPLER + "test_every_word_at_and_around_every_table_entry_is_decided_exactly",
        audits="discrete-laplace",
    ),
    mutant(
        "gaussian-scale-off",
        "Gaussian noise of a thousandth less than claimed",
        _NOISE + "law.py",
        (
            "x = mpmath.mpf((2 * z + 1) * self.sigma.denominator) / (2 * self.sigma.numerator)",
            "x = mpmath.mpf((2 * z + 1) * self.sigma.denominator * 1001) / (2000 * self.sigma.numerator)",
        ),
        tests=_SAMPLER + "test_every_word_at_and_around_every_table_entry_is_decided_exactly",
    ),
    mutant(
        "gaussian-without-rounding",
        "the half of rounding is forgotten: the noise leans to one side and its curve is another",
        _NOISE + "law.py",
        (
            "x = mpmath.mpf((2 * z + 1) * self.sigma.denominator) / (2 * self.sigma.numerator)",
            "x = mpmath.mpf((2 * z) * self.sigma.denominator) / (2 * self.sigma.numerator)",
        ),
        tests=_SAMPLER + "test_every_word_at_and_around_every_table_entry_is_decided_exactly",
    ),
    mutant(
        "sampler-tie-to-the-left",
        "a word equal to a threshold is taken for one below it: rare values are likelier than their law",
        _NOISE + "sampler.py",
        (
            'index = np.searchsorted(self._table, words, side="right")',
            'index = np.searchsorted(self._table, words, side="left")',
        ),
        tests=_SAMPLER + "test_every_word_at_and_around_every_table_entry_is_decided_exactly",
    ),
    mutant(
        "sampler-ties-not-looked-at",
        "64 bits decide where they can't: tails end where a table does, and an output there proves a value",
        _NOISE + "sampler.py",
        (
            "undecided = (index > 0) & (self._table[np.maximum(index, 1) - 1] == words)",
            "undecided = np.zeros(n, dtype=np.bool_)",
        ),
        tests=_SAMPLER + "test_ties_are_decided_by_as_many_digits_as_it_takes",
    ),
    mutant(
        "sampler-mirror-off-by-one",
        "the upper half of a symmetric law is a unit off",
        _NOISE + "law.py",
        ("else (1 << bits) - 1 - mirrored\n", "else (1 << bits) - mirrored\n"),
        tests=_SAMPLER + "test_every_word_at_and_around_every_table_entry_is_decided_exactly",
    ),
    mutant(
        "stepped-table-does-not-fall",
        "the density of wide Gaussian noise falls by the same factor at every step",
        _NOISE + "law.py",
        ("height * falls >> digits, falls * shrink >> digits, product", "height * falls >> digits, falls, product"),
        tests=_SAMPLER + "test_stepped_tables_are_those_of_the_definition",
    ),
    mutant(
        "conditional-noise-below-its-least",
        "noise that should reach a threshold may stay one below it",
        _NOISE + "sampler.py",
        (
            "floor, _ = self.law.cdf_floor(least - 1, _WORD)\n",
            "least -= 1\n        floor, _ = self.law.cdf_floor(least - 1, _WORD)\n",
        ),
        tests="tests/noise/test_survivors.py::test_conditional_noise_follows_the_law_given_that_it_reaches_k",
    ),
    mutant(
        "uniform-with-modulo-bias",
        "small numbers are drawn more often",
        _NOISE + "sampler.py",
        ("ceiling = (2**64 // limit) * limit - 1", "ceiling = 2**64 - 1"),
        tests="tests/local/test_exact_words.py::test_a_uniform_draw_leaves_out_exactly_the_words_that_would_favour_small_numbers",
    ),
    mutant(
        "system-bits-are-seeded",
        "production noise comes from a seed: everybody can subtract it",
        _NOISE + "sampler.py",
        (
            "return np.frombuffer(os.urandom(8 * n), dtype=np.uint64)",
            "return np.random.default_rng(0).integers(0, 2**64, n, dtype=np.uint64)",
        ),
        tests="tests/noise/test_bits.py::test_system_bits_are_os_urandom_unchanged",
    ),
    mutant(
        "seeded-bits-called-secret",
        "a release made from test bits is marked as private",
        _NOISE + "sampler.py",
        ("    secret = False\n\n    def __init__(self, seed", "    secret = True\n\n    def __init__(self, seed"),
        tests="tests/noise/test_bits.py::test_only_the_systems_bits_are_secret",
    ),
    mutant(
        "survivors-tail-off",
        "keys far below the threshold are lifted with the chance of one user fewer",
        _NOISE + "survivors.py",
        (
            "sampler(Binomial(size, TailCoin(law, threshold - count))).draw_one(bits)",
            "sampler(Binomial(size, TailCoin(law, threshold - count + 1))).draw_one(bits)",
        ),
        tests="tests/noise/test_survivors.py::test_the_joint_law_of_all_keys_is_that_of_noise_on_every_key",
    ),
    mutant(
        "survivors-noise-too-low",
        "lifted keys get noise that does not reach the threshold",
        _NOISE + "survivors.py",
        (
            "count + conditional_noise(law, threshold - count, lifts, bits)",
            "count + conditional_noise(law, threshold - count - 1, lifts, bits)",
        ),
        tests="tests/noise/test_survivors.py::test_the_joint_law_of_all_keys_is_that_of_noise_on_every_key",
    ),
    mutant(
        "survivors-first-keys",
        "of many keys that share a count always the first are lifted: names decide, not noise",
        _NOISE + "survivors.py",
        ("return uniform_subset(size, lifts, bits), count", "return np.arange(lifts), count"),
        tests="tests/noise/test_survivors.py::test_the_joint_law_of_all_keys_is_that_of_noise_on_every_key",
    ),
    mutant(
        "geometric-starts-at-one",
        "lifted keys never get the smallest noise that lifts them",
        _NOISE + "law.py",
        (
            "mpmath.exp(mpmath.mpf(-(z + 1) * self.b.denominator) / self.b.numerator) if z >= 0",
            "mpmath.exp(mpmath.mpf(-z * self.b.denominator) / self.b.numerator) if z >= 0",
        ),
        tests=_SAMPLER + "test_every_word_at_and_around_every_table_entry_is_decided_exactly",
    ),
    mutant(
        "added-noise-halved",
        "all noise on counts is half of what is claimed",
        _NOISE + "sampler.py",
        (
            "return np.asarray(values, dtype=np.int64) + sampler(law).draw(len(values), bits)",
            "return np.asarray(values, dtype=np.int64) + sampler(law).draw(len(values), bits) // 2",
        ),
        tests="tests/curator/test_audit.py::test_listed_clicks_all_get_noise_and_nothing_else_does",
        audits="laplace gaussian discrete-laplace headlist headlist-split",
    ),
)
