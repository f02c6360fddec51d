"""Nothing is spent in vain: what is refused before the spend, with the way out, and the same bytes in the ledger."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import hushquery as hq
from commands import answer, hushquery, spawn
from hushquery.cli.commands import command_line
from hushquery.core.budget import Budget, exact
from hushquery.errors import BudgetRefused, UsageError
from hushquery.plan import Plan
from hushquery.statistics import plan_count

WHO = ("--population", "readers")
SPEND = ("--epsilon", "1", "--delta", "1e-6")
STAT = ("stat", "count", "log.csv", "--unit", "user", *WHO)
RELEASE = ("release", "log.csv", "--queries-per-user", "2", "--selector", "laplace", *WHO, "--out", "out")
PLAN = ("plan", "--queries-per-user", "2", "--selector", "laplace")
TASK = """
[task]
name = "searches"
population = "readers"
[optin]
epsilon = {epsilon}
delta = {delta}
[client]
epsilon = 4
lifetime_epsilon = 8
[head]
size = 10
[collect]
min_batch = 2
"""


@pytest.fixture(autouse=True)
def _heeds_interrupts() -> Iterator[None]:
    """A test run in the background of a shell may ignore Ctrl-C, as the shell told it to."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_text("user,query,url\n" + "".join(f"u{i},news,https://news.example\n" for i in range(200)))
    book = hq.Ledger.open("ledger.db")
    book.open_account("other people", "add-remove", Budget(1, 0))


def head(epsilon: str, delta: str, *more: str) -> tuple[str, ...]:
    Path("task.toml").write_text(TASK.format(epsilon=epsilon, delta=delta))
    return ("head", "log.csv", "--task", "task.toml", "--out", "out", *more)


def refused(code: int, *words: str) -> str:
    """Run a command that must be refused, and leave the ledger and everything else as it was; what it said."""
    before = Path("ledger.db").read_bytes()
    got, out, err = answer(*words)
    assert got == code, out + err
    assert Path("ledger.db").read_bytes() == before
    assert not Path("out").exists()
    return err


def test_an_epsilon_above_20_needs_anyway_in_every_command() -> None:
    large = ("--epsilon", "21", "--delta", "1e-6")
    for words in (
        (*RELEASE, *large),
        (*RELEASE, *large, "--explain"),
        (*STAT, *large),
        (*STAT, *large, "--explain"),
        head("21", "1e-6"),
        head("21", "1e-6", "--explain"),
        (*PLAN, *large),
        ("plan", *large),
        ("budget", "open", *WHO, "--relation", "add-remove", *large),
        ("blend", "--simulate", "log.csv", "--optin", "0.5", "--epsilon", "21", *WHO, "--out", "out"),
    ):
        said = refused(2, *words)
        assert "error: epsilon 21 is above 20. Nothing was spent" in said
        assert "--anyway (anyway=True) if you mean it" in said
    for words in ((*RELEASE, *large), (*STAT, *large, "--explain"), head("21", "1e-6", "--explain"), (*PLAN, *large)):
        assert answer(*words, "--anyway")[0] == 0, words


def test_a_delta_above_one_over_the_declared_users_needs_anyway() -> None:
    large = ("--epsilon", "4", "--delta", "1e-3", "--users", "2000")
    for words in (
        (*RELEASE, *large),
        (*RELEASE, *large, "--explain"),
        (*STAT, *large),
        (*STAT, *large, "--explain"),
        head("4", "1e-3", "--users", "2000"),
        (*PLAN, *large),
        ("plan", *large, "--selector", "laplace"),
    ):
        said = refused(2, *words)
        assert "error: delta 1e-03 is above one over the 2,000 declared users. Nothing was spent" in said
        assert "Use a delta of 1e-06 or less, or --anyway" in said
    assert answer(*RELEASE, *large[:4], "--users", "999", "--explain")[0] == 0
    assert answer(*RELEASE, *large, "--anyway")[0] == 0


@pytest.mark.parametrize("anyway", [(), ("--anyway",)])
def test_a_delta_of_a_tenth_is_refused_always(anyway: tuple[str, ...]) -> None:
    large = ("--epsilon", "1", "--delta", "0.1", *anyway)
    for words in (
        (*RELEASE, *large),
        (*RELEASE, *large, "--explain"),
        (*STAT, *large),
        head("4", "0.1", *anyway),
        (*PLAN, *large),
        ("budget", "open", *WHO, "--relation", "add-remove", *large),
    ):
        assert "delta 1e-01 is too large to publish anything" in refused(2, *words)


def test_a_threshold_above_the_declared_users_is_refused_with_the_epsilon_that_would_do() -> None:
    said = refused(2, *RELEASE, "--epsilon", "0.05", "--delta", "1e-6", "--users", "200")
    assert "The threshold for queries is" in said
    assert "200 users are declared. Nothing was spent" in said
    least = said.split("can release anything is about ")[1].split(")")[0]
    found = [
        json.loads(answer(*PLAN, "--epsilon", str(e), "--delta", "1e-6", "--json")[1])["threshold"]
        for e in (float(least), 0.9 * float(least))
    ]
    assert found[0] <= 200 < found[1]
    assert "200 users are declared" in refused(2, *head("0.1", "1e-6", "--users", "200"))
    # To look is not to spend: a plan warns.
    few = ("--epsilon", "0.05", "--delta", "1e-6", "--users", "200")
    assert "200 users are declared" in answer(*RELEASE, *few, "--explain")[1]
    assert "200 users are declared" in answer(*PLAN, *few)[1]
    assert answer(*RELEASE, *few, "--anyway")[0] == 0


def test_clicks_and_searches_have_thresholds_too() -> None:
    unbalanced = ("--epsilon", "1", "--delta", "1e-6", "--clicks-per-user", "2", "--shares", "queries=.9,clicks=.01")
    assert "The threshold for clicks is" in refused(2, *RELEASE, *unbalanced, "--users", "200")
    few = ("--epsilon", "0.05", "--delta", "1e-6", "--selector", "korolova2009", "--users", "200")
    assert "searches, and 200 users are declared" in refused(2, *RELEASE, *few)


def test_python_refuses_and_insists_in_the_same_words() -> None:
    rows = {"user": ["a"], "query": ["b"]}
    with pytest.warns(hq.PrivacyWarning):
        plan = hq.plan_release(rows, epsilon=30, delta=1e-6, queries_per_user=1, population="readers")
    with pytest.raises(UsageError, match=r"epsilon 30 is above 20.*anyway=True"):
        plan.run("new.db")
    assert not Path("new.db").exists()
    plan.run("new.db", anyway=True)
    quiet = hq.plan_release(rows, epsilon="0.1", delta=1e-6, queries_per_user=9, population="readers")
    with pytest.raises(UsageError, match=r"threshold for queries is .* and 50 users are declared"):
        quiet.run("other.db", users=50)
    assert not Path("other.db").exists()


def test_a_refusal_says_which_epsilon_fits_and_it_does() -> None:
    opened = ("budget", "open", *WHO, "--relation", "add-remove", "--epsilon", "1.5", "--delta", "3e-6")
    assert answer(*opened)[0] == 0
    assert answer(*RELEASE[:-1], "first", *SPEND)[0] == 0
    said = refused(3, *RELEASE, *SPEND, "--users", "200")
    assert "Insufficient budget" in said
    assert "a useful release of this plan, with a threshold of at most 100 of the 200 declared users, needs" in said
    assert "at that delta" in said
    assert "Ask for less" not in said
    epsilon, delta = said.split("This plan fits with epsilon ")[1].split(";")[0].split(" at delta ")
    assert answer(*RELEASE, "--epsilon", epsilon, "--delta", delta)[0] == 0


def test_what_is_left_but_of_no_use_is_called_used_up() -> None:
    """Both numbers are at one delta, and what ten thousand people can't use is not offered to them."""
    opened = ("budget", "open", *WHO, "--relation", "add-remove", "--epsilon", "1.01", "--delta", "1.1e-6")
    assert answer(*opened)[0] == 0
    assert answer(*RELEASE[:-1], "first", "--epsilon", "1", "--delta", "1e-6")[0] == 0
    said = refused(3, *RELEASE, "--epsilon", "1", "--delta", "1e-6", "--users", "10000")
    assert "The budget of these people is used up for a release like this (left: epsilon 0.0" in said
    assert "at delta " in said
    assert "a threshold of at most 100 of the 10,000 declared users, needs epsilon" in said
    assert "This plan fits with" not in said


def test_a_statistic_and_a_head_list_say_what_fits_too() -> None:
    count = ("stat", "count", "log.csv", "--unit", "user", "--population", "staff", "--epsilon", "1")
    assert answer(*count)[0] == 0
    said = refused(3, *count)
    assert "The budget of these people is used up (left: epsilon 0)" in said
    assert "can't have a second budget" in said
    book = hq.Ledger.open("ledger.db")
    book.open_account("readers who opted in", "replace-one", Budget(2, 1e-4))
    before = book.account("readers who opted in", "replace-one").spent
    code, _, err = answer(*head("3", "1e-5"))
    assert code == 3
    assert "This plan fits with epsilon 2 at delta 1e-05" in err
    assert book.account("readers who opted in", "replace-one").spent == before


def test_refusals_for_nothing_left_do_not_go_in_circles(tmp_path: Path) -> None:
    plan = plan_count({"user": [1]}, unit="user", epsilon=1, population="a lab")
    plan.run(tmp_path / "lab.db")
    again = plan_count({"user": [1]}, unit="user", epsilon=1, population="a lab")
    with pytest.raises(BudgetRefused) as error:
        again.run(tmp_path / "lab.db")
    assert "Ask for less" not in str(error.value)
    assert error.value.account.remaining_epsilon == 0


# ---- Ctrl-C ----------------------------------------------------------------------------------------------------------


def interrupt(*_: object, **__: object) -> None:
    signal.raise_signal(signal.SIGINT)


def test_an_interrupt_before_the_spend_says_that_nothing_was_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "check_before_spend", interrupt)
    said = refused(130, *RELEASE, *SPEND)
    assert "error: Interrupted. Nothing was spent" in said
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_after_the_spend_says_how_much_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushquery.curator.plan.ReleasePlan._read", interrupt)
    code, out, err = answer(*RELEASE, *SPEND)
    assert code == 130
    assert "error: Interrupted after the budget was spent" in err
    assert '"readers" (add-remove): epsilon 1 + delta' in err
    assert "recorded in the ledger ledger.db" in err
    assert "malformed" not in out + err
    assert hq.Ledger.open("ledger.db").account("readers", "add-remove").spent_epsilon > 0.9
    done = hushquery(*RELEASE, *SPEND, "--json")
    assert done.returncode == 3  # nothing is left, and nothing was spent a second time


def test_an_interrupted_engine_does_not_blame_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(*_: object) -> None:
        raise RuntimeError("Query interrupted")

    monkeypatch.setattr(sys.modules["hushquery.engine.execute"], "run", give_up)
    code, _, err = answer(*STAT, "--epsilon", "1")
    assert code == 4
    assert "interrupted after the budget was spent" in err
    assert "malformed" not in err


def test_a_process_of_its_own_ends_with_130(tmp_path: Path) -> None:
    """One spawn: the signal comes from the site module of a process that is about to read."""
    (tmp_path / "sitecustomize.py").write_text(
        "import signal, sys\n"
        "class Hook:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'hushquery.curator.forecast':\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Hook())\n"
    )
    done = spawn(*RELEASE, *SPEND, PYTHONPATH=str(tmp_path))
    assert done.returncode == 130, done.stderr
    assert "Interrupted. Nothing was spent" in done.stderr
    assert sys.executable not in done.stderr


# ---- one budget for a series -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("selector", "times"), [("laplace", 4), ("gaussian", 3)])
def test_a_series_fits_as_often_as_it_says_and_no_more(selector: str, times: int) -> None:
    words = ("release", "log.csv", "--queries-per-user", "2", "--selector", selector, *WHO, "--times", str(times))
    for week in range(times):
        code, _, err = answer(*words, "--epsilon", "2", "--delta", "1e-6", "--out", f"week{week}")
        assert code == 0, err
        assert f"this is one of {times} releases" in err
    account = hq.Ledger.open("ledger.db").account("readers", "add-remove")
    assert account.terms.budget == Budget(2, "1e-6")
    assert account.spent.fits(2, "1e-6")
    assert "Insufficient" in refused(3, *words, "--epsilon", "2", "--delta", "1e-6", "--out", "out")


def test_a_plan_and_an_explanation_divide_alike() -> None:
    words = ("--epsilon", "2", "--delta", "1e-6", "--times", "8", "--queries-per-user", "20")
    planned = json.loads(answer("plan", *words, "--json")[1])
    shown = json.loads(answer("explain", "compose", "--total", "2", *words[2:6], "--json")[1])
    assert planned["each"] == {name: shown["each"][name] for name in ("epsilon", "delta")}
    assert 1.9 < shown["together"] <= 2
    assert 8 * exact(shown["each"]["epsilon"]) > 4  # far more than an eighth
    assert "use one of" in answer("explain", "compose", "--total", "2", "--epsilon", "1", *words[2:6])[2]


# ---- small ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "meant"), [("publish", "release"), ("relase", "release"), ("ledger", "budget")])
def test_a_near_name_is_suggested_for_a_command(word: str, meant: str) -> None:
    said = refused(2, word)
    assert f"there is no command '{word}'" in said
    assert f"Did you mean `hushquery {meant}`?" in said


HELP = """
import typer
from hushquery.cli.commands import command_line

def show(command, context):
    print(command.get_help(context))
    for name, one in getattr(command, "commands", {}).items():
        show(one, type(context)(one, info_name=name, parent=context, **one.context_settings))

root = typer.main.get_command(command_line())
show(root, root.make_context("hushquery", [], resilient_parsing=True))
"""


def test_no_option_is_cut_in_a_narrow_terminal() -> None:
    """One process prints the help of every command at 80 columns."""
    environment = os.environ | {"COLUMNS": "80", "NO_COLOR": "1"}
    done = subprocess.run([sys.executable, "-c", HELP], env=environment, capture_output=True, text=True, check=True)
    assert "--reformulations-per-user D" in done.stdout
    assert not [line for line in done.stdout.splitlines() if "\u2026" in line or len(line) > 80]
    # Every example stands on lines of its own, whole: a shell that reads them sees the commands of the docstrings.
    shown = re.sub(r" \\\n +", " ", done.stdout)
    for command in every_command(typer.main.get_command(command_line())):
        for line in re.sub(r"\\\n\s*", "", command.help or "").splitlines():
            if line.strip().startswith("hushquery "):
                assert f"\n      {line.partition(' # ')[0].strip()}\n" in shown


def every_command(command: Any) -> list[Any]:
    """A command and those below it."""
    return [command, *(one for inner in getattr(command, "commands", {}).values() for one in every_command(inner))]
