"""Mutants of what a client remembers and spends, and of the browser client."""

from __future__ import annotations

from mutants.model import mutant

_CLIENT = "src/hushquery/local/device/client.py"
_TEST = "tests/local/test_client.py::"
_JS = "js/src/"
_JS_WORDS = "js/test/words.test.ts"
_JS_CLIENT = "js/test/client.test.ts"

PYTHON = (
    mutant(
        "memo-key-without-slot",
        "two records of one period share an answer: that they are equal shows",
        _CLIENT,
        ('configuration + slot.to_bytes(4, "big") + named)', "configuration + bytes(4) + named)"),
        tests=_TEST + "test_records_share_epsilon_and_have_their_own_answers",
    ),
    mutant(
        "memo-key-without-task",
        "two tasks share an answer: their reports are linked",
        _CLIENT,
        ('b"hushquery-v1 " + purpose + b"\\0" + task + rest', 'b"hushquery-v1 " + purpose + b"\\0" + bytes(32) + rest'),
        tests=_TEST + "test_what_is_derived_from_the_secret_matches_the_vectors",
    ),
    mutant(
        "memo-not-recalled",
        "each period draws an unchanged value anew: averaging reveals it",
        _CLIENT,
        (
            "        if known is not None:\n            return known\n        cost",
            "        if known is not None and not period:\n            return known\n        cost",
        ),
        ('"INSERT INTO memo (key', '"INSERT OR REPLACE INTO memo (key'),
        tests=_TEST + "test_a_repeated_value_repeats_its_answer_under_a_new_id",
    ),
    mutant(
        "second-report-of-a-period",
        "asking again in one period draws a second report",
        _CLIENT,
        (
            "        if known is not None:\n            return known\n        cell",
            "        if known is None and value is None:\n            return known\n        cell",
        ),
        ('"INSERT INTO report (client', '"INSERT OR REPLACE INTO report (client'),
        tests=_TEST + "test_asking_again_gives_the_same_bytes",
    ),
    mutant(
        "coins-of-every-configuration",
        "kept coins are compared with whatever chances a collector serves: a few of them reveal the value",
        "src/hushquery/local/randomizer.py",
        (
            'b"hushquery-v1 coins\\0" + self.task + self.configuration, "sha256")',
            'b"hushquery-v1 coins\\0" + self.task, "sha256")',
        ),
        tests="tests/local/test_report.py::test_the_vectors_are_what_the_tool_makes",
    ),
    mutant(
        "cap-not-kept",
        "a task's lifetime is forgotten when another task asks: the promise of the stricter one is broken",
        _CLIENT,
        ('connection.execute("UPDATE client SET cap = ? WHERE id = ?", (str(cap), self.client_id))', "pass"),
        tests=_TEST + "test_the_smallest_promise_of_the_answered_tasks_is_kept",
    ),
    mutant(
        "cap-ignored",
        "a device answers for ever",
        _CLIENT,
        ("if spent + cost <= cap:", "if spent <= cap:"),
        tests=_TEST + "test_after_the_cap_old_answers_stay_and_new_ones_are_empty",
    ),
    mutant(
        "spent-not-kept",
        "what a new value costs is not written down",
        _CLIENT,
        (
            'connection.execute("UPDATE client SET spent = ? WHERE id = ?", (str(spent + cost), self.client_id))',
            "pass",
        ),
        tests=_TEST + "test_tasks_share_the_lifetime_budget",
    ),
    mutant(
        "sampling-by-value",
        "a refused value is looked at before the stored report: whether it is refused tells a second value",
        _CLIENT,
        (
            "        known = self._made(connection, period, slot)\n",
            "        self.configuration.space.cell(value, url)\n        known = self._made(connection, period, slot)\n",
        ),
        tests=_TEST + "test_a_period_has_one_report_also_when_asked_with_a_value_that_is_refused",
    ),
    mutant(
        "state-file-for-everybody",
        "every user of a machine may read the secrets of all clients",
        "src/hushquery/local/device/store.py",
        ("os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)", "os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)"),
        tests=_TEST + "test_no_value_and_no_cell_is_stored",
    ),
    mutant(
        "any-task-is-answered",
        "a collector serves another task under the id that a program carries, with an epsilon of its own",
        "src/hushquery/local/device/fetch.py",
        ("if task.id != task_id:", 'if task.id == "":'),
        tests="tests/local/test_reporting.py::test_a_collector_that_serves_something_else_gets_nothing",
    ),
    mutant(
        "upload-under-a-new-name",
        "an opt-in log that is uploaded again counts its people twice",
        "src/hushquery/cli/upload.py",
        ("hmac.new(key, user.encode(), hashlib.sha256)", "hashlib.sha256(os.urandom(16))"),
        ("import json\n", "import json\nimport os\n"),
        tests="tests/collect/test_upload.py::test_each_user_gives_once_within_the_bound_however_often_it_runs",
    ),
    mutant(
        "report-with-exact-time",
        "a report tells the second in which it was made",
        _CLIENT,
        (
            "self.configuration.digest, self.task.truncate(now), payload)",
            "self.configuration.digest, int(now), payload)",
        ),
        tests=_TEST + "test_a_report_belongs_to_its_task_and_tells_a_coarse_time",
    ),
    mutant(
        "movers-taken-for-average",
        "who moved is taken to vary as everybody else: noise is called a change",
        "src/hushquery/release/repeats.py",
        ("moved = max(self.held + self.other + 1, 2 * self.other)", "moved = self.held + self.other"),
        ("return max(self.unit**2 * moved, 2 * self.most)", "return self.unit**2 * moved"),
        tests="tests/publish/test_periods.py::test_no_population_varies_more_than_the_bound",
    ),
    mutant(
        "sampled-devices-repeat",
        "of a sampled task all devices are taken to report twice: noise is called a change",
        "src/hushquery/publish/periods.py",
        ("return self._collected.sampling * max(0.0,", "return max(0.0,"),
        tests="tests/publish/test_periods.py::test_changes_of_a_sampled_task_are_covered",
    ),
    mutant(
        "share-of-any-distance",
        "a share that is declared for one period is used for any distance: noise is called a change",
        "src/hushquery/publish/periods.py",
        ("1 - abs(later - earlier) * (1 - self.same_devices)", "self.same_devices"),
        tests="tests/publish/test_periods.py::test_the_share_over_several_periods_is_what_two_changes_leave",
    ),
)

BROWSER = (
    mutant(
        "js-math-random",
        "the browser's coins come from Math.random: a page can predict them",
        _JS + "bits.ts",
        (
            "for (let at = 0; at < n; at += MOST_WORDS) crypto.getRandomValues(out.subarray(at, at + MOST_WORDS));",
            "for (let at = 0; at < n; at++) out[at] = BigInt(Math.floor(Math.random() * 2 ** 53)) << 11n;",
        ),
        tests=_JS_WORDS,
    ),
    mutant(
        "js-secret-from-math-random",
        "a device's secret and report ids come from Math.random",
        _JS + "bits.ts",
        (
            "return crypto.getRandomValues(new Uint8Array(n));",
            "return new Uint8Array(n).map(() => Math.random() * 256);",
        ),
        tests=_JS_WORDS,
    ),
    mutant(
        "js-lie-low",
        "the browser lies .2% more rarely than claimed",
        _JS + "chance.ts",
        ("Number(fraction(bits) / lie)", "Number(fraction(bits) / (lie - lie / 500n))"),
        tests=_JS_WORDS,
    ),
    mutant(
        "js-coin-at-most",
        "the browser's coins are a unit too likely",
        _JS + "chance.ts",
        ("return fraction(bits) < numerator;", "return fraction(bits) <= numerator;"),
        tests=_JS_WORDS,
    ),
    mutant(
        "js-many-coins-without-the-rest",
        "the browser's coins of eight bits ignore the 45 others",
        _JS + "chance.ts",
        (">> 19n < BigInt.asUintN(45, numerator)", ">> 19n < 0n"),
        tests=_JS_WORDS,
    ),
    mutant(
        "js-oue-own-bit-true",
        "the browser always sets the own bit",
        _JS + "oue.ts",
        ("coin(ONE / 2n, bits)", "coin(ONE, bits)"),
        tests=_JS_WORDS,
    ),
    mutant(
        "js-subset-omega",
        "sets that hold the own cell have one cell more than the others: their size tells",
        _JS + "subset.ts",
        ("let last = k - 1 - omega + Number(kept)", "let last = k - 1 - omega"),
        tests=_JS_WORDS,
    ),
    mutant(
        "js-subset-unsorted",
        "the own cell comes last in a set",
        _JS + "subset.ts",
        ("      set.sort((a, b) => a - b);\n", ""),
        tests="js/test/vectors.test.ts",
    ),
    mutant(
        "js-hadamard-no-flip",
        "the browser sends the bit as it is",
        _JS + "hadamard.ts",
        ("let bit = Number(coin(each, bits));", "let bit = Number(coin(each, bits) && false);"),
        tests=_JS_WORDS,
    ),
    mutant(
        "js-olh-modulus",
        "the browser's hash has another modulus than the collector's",
        _JS + "olh.ts",
        ("* BigInt(cell) + seed) % PRIME)", "* BigInt(cell) + seed) % (PRIME - 1n))"),
        tests=_JS_WORDS,
    ),
    mutant(
        "js-two-stage-url-kept",
        "the browser always tells the URL truly where the query is",
        _JS + "two_stage.ts",
        ("size > 1 ? respond(cell - start, size, urlLies.get(size)!, bits) : 0", "size > 1 ? cell - start : 0"),
        tests=_JS_WORDS,
    ),
    mutant(
        "js-memo-key-without-slot",
        "two records of one period share an answer in the browser",
        _JS + "hash.ts",
        ("task, configuration, big(slot, 4), name));", "task, configuration, big(slot * 0, 4), name));"),
        tests="js/test/vectors.test.ts",
    ),
    mutant(
        "js-coins-of-every-configuration",
        "the browser compares kept coins with whatever chances a collector serves",
        _JS + "hash.ts",
        (
            'return macOf(await mac("hushquery-v1 coins\\0", task, configuration));',
            'return macOf(await mac("hushquery-v1 coins\\0", task));',
        ),
        tests="js/test/clients.test.ts",
    ),
    mutant(
        "js-memo-not-kept",
        "the browser draws an unchanged value anew in each period",
        _JS + "client.ts",
        ("if (known) return known.payload;", "if (known && period < 0) return known.payload;"),
        tests=_JS_CLIENT,
    ),
    mutant(
        "js-cap-not-kept",
        "a stricter task's lifetime is forgotten by the browser",
        _JS + "client.ts",
        ("const cap = (entry.cap = this.#cap(entry));", "const cap = this.#cap(entry);"),
        tests=_JS_CLIENT,
    ),
    mutant(
        "js-spent-not-kept",
        "the browser does not write down what a new value costs",
        _JS + "client.ts",
        ('if (paid) entry.spent = total.join("/");', ""),
        tests=_JS_CLIENT,
    ),
    mutant(
        "js-cap-ignored",
        "a browser answers for ever",
        _JS + "client.ts",
        ("const paid = atMost(total, ratio(cap));", "const paid = atMost(ratio(entry.spent), ratio(cap));"),
        tests=_JS_CLIENT,
    ),
    mutant(
        "js-loss-too-small",
        "the browser believes integers that lose more than the task allows",
        _JS + "exact.ts",
        (
            "2n * (artanh(a - b, a + b) + power * HALF_LN2) + SLACK",
            "artanh(a - b, a + b) + power * HALF_LN2 + SLACK",
        ),
        tests="js/test/exact.test.ts",
    ),
    mutant(
        "js-rappor-permanent-skipped",
        "the browser reports the Bloom filter itself",
        _JS + "rappor.ts",
        ("< flip) on[i] = !on[i];", "< flip) on[i] = on[i]!;"),
        tests="js/test/clients.test.ts",
    ),
)
