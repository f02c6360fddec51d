"""Estimates that somebody changed: with the hashes left, and with every hash, card and page written anew.

A forger who writes everything anew is found out where numbers contradict each other, because `verify` computes a whole
release anew from its task, its domain and its counts. What is left (:data:`UNSEEN`) only a signature can show.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hushquery.errors import DataError
from hushquery.local.configuration import Configuration
from hushquery.local.server.estimate import ClientEstimate, estimate, estimate_support
from hushquery.release import Release, verify
from hushquery.release.release import manifest_bytes, sign
from hushquery.task import Task
from release.forged import HISTOGRAM, MEAN, TEXT, Forged, loss, of, put, swapped
from setting_reports import DAY, FIXED, REPORTS, TASK, VALUES, made
from small_releases import private_hybrid

# ---- what a forger may do ------------------------------------------------------------------------------------------


def lower_epsilon(one: Forged) -> None:
    one.promise["epsilon"] = 1.0


def lower_epsilon_and_loss(one: Forged) -> None:
    for step in (one.step, one.promise["steps"][0]):
        step["loss"] = loss("1")
    one.promise["epsilon"] = 1.0
    one.parameters["answer_epsilon"] = "1"


def state_an_older_epsilon(one: Forged) -> None:
    one.parameters["answer_epsilon"] = "1"


def change_an_integer(one: Forged) -> None:
    one.step["parameters"]["oracle"]["lie"] += 1


def change_an_integer_and_its_cost(one: Forged) -> None:
    one.costs({**one.step["parameters"]["oracle"], "lie": 2 * one.step["parameters"]["oracle"]["lie"]})


def change_an_integer_everywhere(one: Forged) -> None:
    change_an_integer_and_its_cost(one)
    one.text("configuration", lambda data: data["oracle"].update(one.step["parameters"]["oracle"]))


def name_another_mechanism(one: Forged) -> None:
    one.costs({"name": "oue", "k": 4, "lie": 2**51})
    one.step["name"] = one.promise["steps"][0]["name"] = "oue"


def claim_fewer_answers(one: Forged) -> None:
    one.text("task", lambda data: data["client"].update(records_per_user=2))


def change_a_cell(one: Forged) -> None:
    one.column("estimates", "estimate", lambda values: put(values, 1, values[1] + 0.001))


def narrow_errors(one: Forged) -> None:
    one.column("estimates", "stderr", lambda values: [value / 2 for value in values])


def narrow_intervals(one: Forged) -> None:
    one.column("estimates", "high", lambda values: [value - 0.001 for value in values])


def swap_labels(one: Forged) -> None:
    one.column("estimates", "value", swapped)


def rename_a_label(one: Forged) -> None:
    one.column("estimates", "value", lambda values: put(values, 0, "sepia"))


def turn_the_rows_round(one: Forged) -> None:
    one.rows("estimates", [3, 2, 1, 0])


def leave_a_row_out(one: Forged) -> None:
    one.rows("estimates", [0, 1, 3])


def more_reports(one: Forged) -> None:
    one.parameters["reports"] += 10
    one.parameters["received"] += 10


def fewer_reports(one: Forged) -> None:
    one.parameters["reports"] -= 10
    one.parameters["received"] -= 10


def lose_received_reports(one: Forged) -> None:
    one.parameters["received"] += 1


def refuse_nothing(one: Forged) -> None:
    one.parameters["refused"] = {"ReportMalformed": -1}
    one.parameters["received"] -= 1


def raise_a_count(one: Forged) -> None:
    one.column("support", "reports", lambda values: put(values, 0, values[0] + 1))


def move_a_report(one: Forged) -> None:
    one.column("support", "reports", lambda values: [values[0] + 1, values[1] - 1, *values[2:]])


def swap_counts(one: Forged) -> None:
    one.column("support", "reports", swapped)


def more_than_all(one: Forged) -> None:
    one.column("support", "reports", lambda values: [values[0] + values[1] + 5, -5, *values[2:]])


def number_cells_otherwise(one: Forged) -> None:
    one.column("support", "cell", swapped)


def leave_a_cell_out(one: Forged) -> None:
    one.rows("support", [0, 1, 2])


def another_level(one: Forged) -> None:
    one.manifest["interval_level"] = 0.99


def claim_post_processing(one: Forged) -> None:
    one.parameters |= {"post": "clip", "post_processing": ["clipped to 0..1"]}


def tables_of_another_day(one: Forged) -> None:
    other = estimate(TASK, made(FIXED, reversed(VALUES[300:]), time=DAY)).release()
    one.tables["estimates"] = other.tables["estimates"]


def tables_of_another_task(one: Forged) -> None:
    one.tables = dict(of(MEAN, [10, 30] * 200).release().tables)


def lower_the_lifetime(one: Forged) -> None:
    one.parameters["lifetime_epsilon"] = "2"


def lower_the_lifetime_in_the_task(one: Forged) -> None:
    one.text("task", lambda data: data["client"].update(lifetime_epsilon="2"), hashed=False)


def lower_the_tasks_epsilon(one: Forged) -> None:
    one.text("task", lambda data: data["client"].update(epsilon="1"))
    one.text("configuration", lambda data: data.update(task=one.parameters["task"]))


def one_more_period(one: Forged) -> None:
    one.parameters["periods"] = [0, 1]


def periods_that_run_backwards(one: Forged) -> None:
    one.parameters["periods"] = [1, 0]


def no_period(one: Forged) -> None:
    one.parameters["periods"] = []


def another_period_than_noted(one: Forged) -> None:
    one.parameters["periods"] = [7]


def change_the_domain(one: Forged) -> None:
    one.text("configuration", lambda data: data["domain"].update(records=[["dark"], ["light"], ["sepia"]]))
    one.column("estimates", "value", lambda values: put(values, 2, "sepia"))


def change_the_domain_of_the_task(one: Forged) -> None:
    one.text("task", lambda data: data["task"].update(domain=["dark", "light", "sepia"]))


def another_task_id(one: Forged) -> None:
    one.parameters["task"] = "0" * 64


def another_configuration(one: Forged) -> None:
    one.parameters["configuration"] = "0" * 64


def promise_it_to_others(one: Forged) -> None:
    one.promise["population"] = one.step["population"] = "nobody"


def another_relation(one: Forged) -> None:
    one.promise["relation"] = one.step["parameters"]["relation"] = "add-remove"


def call_it_a_test(one: Forged) -> None:
    one.promise["test_noise"] = True


def call_it_a_blend(one: Forged) -> None:
    one.manifest["kind"] = "hybrid"


def say_less(one: Forged) -> None:
    one.manifest["notes"] = one.manifest["notes"][1:]


def mean_something_else(one: Forged) -> None:
    one.manifest["meanings"]["estimates"] = "the true share of all people"


SETTING_FORGERIES = [
    *(lower_epsilon, lower_epsilon_and_loss, state_an_older_epsilon, change_an_integer, change_an_integer_and_its_cost),
    *(change_an_integer_everywhere, name_another_mechanism, claim_fewer_answers, change_a_cell, narrow_errors),
    *(narrow_intervals, swap_labels, rename_a_label, turn_the_rows_round, leave_a_row_out, more_reports),
    *(fewer_reports, lose_received_reports, refuse_nothing, raise_a_count, move_a_report, swap_counts, more_than_all),
    *(number_cells_otherwise, leave_a_cell_out, another_level, claim_post_processing, tables_of_another_day),
    *(tables_of_another_task, lower_the_lifetime, lower_the_lifetime_in_the_task, lower_the_tasks_epsilon),
    *(one_more_period, periods_that_run_backwards, no_period, another_period_than_noted, change_the_domain),
    *(change_the_domain_of_the_task, another_task_id, another_configuration, promise_it_to_others, another_relation),
    *(call_it_a_test, call_it_a_blend, say_less, mean_something_else),
]


def add_a_candidate(one: Forged) -> None:
    one.tables["candidates"] = pa.table({"text": [*one.tables["candidates"]["text"].to_pylist(), "other.example"]})


def hide_a_candidate(one: Forged) -> None:
    one.rows("candidates", [1])


def find_what_was_not_found(one: Forged) -> None:
    one.column("estimates", "value", lambda values: put(values, 0, "nobody.example"))


def bits_of_nobody(one: Forged) -> None:
    one.column("support", "reports", lambda values: put(values, 1, values[0] + 1))


def weaker_filter(one: Forged) -> None:
    one.costs({**one.step["parameters"]["oracle"], "h": 1})


def raise_the_average(one: Forged) -> None:
    one.column("estimates", "estimate", lambda values: [value + 1 for value in values])


def one_more_one(one: Forged) -> None:
    one.column("support", "reports", lambda values: [values[0] - 1, values[1] + 1])


def a_larger_range(one: Forged) -> None:
    one.text("task", lambda data: data["task"].update(highest=600))
    one.text("configuration", lambda data: data["domain"].update(highest=600))


def say_one_unasked(one: Forged) -> None:
    one.column("support", "reports", lambda values: put(values, 6, values[0] + 1))


OTHER_FORGERIES: list[tuple[str, Callable[[Forged], None]]] = [
    *(("text", forge) for forge in (add_a_candidate, hide_a_candidate, find_what_was_not_found, bits_of_nobody)),
    *(("text", forge) for forge in (weaker_filter, raise_a_count)),
    *(("mean", forge) for forge in (raise_the_average, one_more_one, a_larger_range, lower_epsilon, fewer_reports)),
    *(("histogram", forge) for forge in (say_one_unasked, raise_a_count, swap_labels, narrow_intervals)),
]
FORGERIES = [*(("setting", forge) for forge in SETTING_FORGERIES), *OTHER_FORGERIES]


@pytest.fixture(scope="module")
def releases() -> dict[str, Release]:
    words = ["news.example"] * 400 + ["weather.example"] * 200
    return {
        "setting": estimate(TASK, REPORTS).release(),
        "text": of(TEXT, words, candidates=["news.example", "nobody.example"]).release(),
        "mean": of(MEAN, [10, 30] * 200).release(),
        "histogram": of(HISTOGRAM, [10, 30] * 200).release(),
    }


def test_there_are_enough_and_the_unforged_are_sound(releases: dict[str, Release], tmp_path: Path) -> None:
    assert len(FORGERIES) >= 30
    for name, release in releases.items():
        assert verify(Forged(release).save(tmp_path / name)).problems == ()


@pytest.mark.parametrize(("kind", "forge"), FORGERIES, ids=lambda one: getattr(one, "__name__", one))
def test_a_forged_estimate_is_refused(
    releases: dict[str, Release], kind: str, forge: Callable[[Forged], None], tmp_path: Path
) -> None:
    whole = json.loads((releases[kind].save(tmp_path / "whole") / "manifest.json").read_bytes())
    one = Forged(releases[kind])
    forge(one)
    folder = one.save(tmp_path / "forged")
    found = verify(folder)
    assert found.problems, "the forger wrote every hash anew, and nothing contradicts the numbers"
    with pytest.raises(DataError):
        ClientEstimate.load(folder)
    # And with the hashes as they were.
    forged = json.loads((folder / "manifest.json").read_bytes())
    left = {**forged, "files": whole["files"], "manifest_sha256": whole["manifest_sha256"]}
    (folder / "manifest.json").write_bytes(manifest_bytes(left))
    assert any("was changed" in problem for problem in verify(folder).problems)


# ---- what only a signature can show --------------------------------------------------------------------------------


def _another_day(one: Forged) -> None:
    one.manifest["created"] = "2001-01-01"


def _another_machine(one: Forged) -> None:
    one.manifest["versions"] = {"python": "9.9"}


def _a_claim_of_its_own(one: Forged) -> None:
    """Names that a reader does not know are passed over: a later version may say more."""
    one.parameters["certified"] = True


def _more_repeats(one: Forged) -> None:
    one.parameters["repeated"] += 5
    one.parameters["received"] += 5


def _other_reports(one: Forged) -> None:
    """Counts of reports that nobody sent, and all that follows from them."""
    _made_anew(one, estimate_support(FIXED, np.array([900, 50, 25, 25], dtype=np.int64), 1000))


def _another_task(one: Forged) -> None:
    """The task under another name, and all that follows from it."""
    plain = TASK.to_json()
    task = Task.make(plain | {"task": plain["task"] | {"name": "another"}})
    _made_anew(one, estimate_support(Configuration.of(task), np.array([400, 300, 200, 100], dtype=np.int64), 1000))


def _another_period(one: Forged) -> None:
    support = np.array(one.tables["support"]["reports"].to_pylist(), dtype=np.int64)
    _made_anew(one, estimate_support(FIXED, support, 1000, periods=(7,)))


def _made_anew(one: Forged, other: ClientEstimate) -> None:
    release = other.release()
    one.tables, one.manifest = dict(release.tables), copy.deepcopy(dict(release.manifest))


UNSEEN = [
    _another_day,
    _another_machine,
    _a_claim_of_its_own,
    _more_repeats,
    _other_reports,
    _another_task,
    _another_period,
]


@pytest.mark.parametrize("forge", UNSEEN, ids=lambda one: one.__name__.strip("_"))
def test_what_is_stated_once_needs_a_signature(
    releases: dict[str, Release], forge: Callable[[Forged], None], tmp_path: Path
) -> None:
    one = Forged(releases["setting"])
    forge(one)
    assert verify(one.save(tmp_path / "forged")).ok


def test_words_of_another_version_may_differ_and_numbers_not(releases: dict[str, Release], tmp_path: Path) -> None:
    one = Forged(releases["setting"])
    one.manifest["hushquery"] = "0.0.9"
    one.manifest["notes"] = ["as an earlier version put it"]
    one.promise["steps"][0]["detail"] = one.step["detail"] = "one answer"
    assert verify(one.save(tmp_path / "older")).ok
    lower_epsilon_and_loss(one)
    assert not verify(one.save(tmp_path / "forged")).ok


def test_the_lifetime_is_a_bound_that_may_not_be_lowered(tmp_path: Path) -> None:
    reports = [report for day in range(3) for report in made(FIXED, VALUES[:200], time=day * DAY, name=str(day))]
    release = estimate(TASK, reports, period="all").release()
    assert release.guarantees[0].epsilon == pytest.approx(5)
    assert verify(release.save(tmp_path / "whole")).ok
    one = Forged(release)
    one.step["parameters"]["lifetime"] = "3"
    for step in (one.step, one.promise["steps"][0]):
        step["loss"] = loss("3")
    one.promise["epsilon"] = 3.0
    assert Fraction(one.parameters["lifetime_epsilon"]) == 5
    assert not verify(one.save(tmp_path / "forged")).ok


def test_no_blend_hides_behind_a_lifetime(tmp_path: Path) -> None:
    """A blend is of one period: a lifetime budget would only make its reports look cheaper than their integers say."""
    one = Forged(private_hybrid())
    assert verify(one.save(tmp_path / "whole")).ok
    promise, step = one.manifest["guarantees"][1], one.manifest["steps"][1]
    step["parameters"]["lifetime"] = "1/100"
    for part in (step, promise["steps"][0]):
        part["loss"] = loss("1/100")
    promise["epsilon"] = 0.01
    assert not verify(one.save(tmp_path / "forged")).ok


def test_damage_of_any_kind_is_a_finding_and_never_a_crash(releases: dict[str, Release], tmp_path: Path) -> None:
    odd: list[Any] = [None, True, -1, 0.5, 10**400, "", "x", "1/0", "{", "[]", [], [None], {}, {"x": None}]
    folder = releases["setting"].save(tmp_path / "whole")
    whole = json.loads((folder / "manifest.json").read_bytes())
    for name, value in ((name, value) for name in whole["parameters"] for value in odd):
        changed = {**whole, "parameters": {**whole["parameters"], name: value}}
        (folder / "manifest.json").write_bytes(manifest_bytes(sign(changed)))
        same = value == whole["parameters"][name] and type(value) is type(whole["parameters"][name])
        assert verify(folder).ok is same, (name, value)
        try:
            loaded = Release.load(folder)
        except DataError:
            continue
        assert loaded.card()
        assert loaded.page()
