"""``hushquery budget``: what it prints, what it returns, and what it never shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hushquery.cli.budget import app
from hushquery.core.budget import Budget, PrivacyWarning, suggested_delta
from hushquery.core.ledger.ledger import Ledger
from hushquery.core.loss import Loss
from hushquery.errors import AccountMissing, BudgetError, LedgerCorrupt, Unavailable, UsageError
from ledger.workers import READERS
from postgres import PASSWORD, URL_PASSWORD

OPEN = ("open", "--population", "readers", "--relation", "add-remove", "--epsilon", "1", "--delta", "0")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*arguments, **environment):
    """Run a command; give what it printed, or raise what it raised (main makes an exit code of it)."""
    done = CliRunner().invoke(app, arguments, env=environment, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def run_json(*arguments, **environment):
    return json.loads(run(*arguments, "--json", **environment))


def main(*arguments, **environment):
    """Run the command line in a process of its own, as a person does."""
    return subprocess.run(
        [sys.executable, "-m", "hushquery", "budget", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_open_show_history_check():
    assert run(*OPEN) == 'opened "readers" (add-remove): it may spend epsilon 1, delta 0 for its lifetime\n'
    ledger = Ledger.open("ledger.db")
    ledger.spend(*READERS, Loss(pure=("1/4",)), what="top queries of May", plan="sha256:abc")
    first, bar = run("show").splitlines()
    assert first == '"readers" (add-remove): epsilon 1, delta 0 for its lifetime'
    drawn, _, numbers = bar.strip().partition("  ")
    assert numbers == "spent 0.25  remaining 0.75"
    assert set(drawn) == {"█", "░"}
    assert drawn.count("█") * 3 == drawn.count("░")
    lines = run("history").splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "plan"]
    assert "top queries of May: epsilon 0.25" in lines[1]
    assert f"head {ledger.head}" in run("check")
    assert run("check", "--expect-head", ledger.head) == run("check")


def test_json_of_every_command():
    opened = run_json(*OPEN)
    assert opened["account"]["terms"]["budget"] == {"epsilon": "1", "delta": "0"}
    Ledger.open("ledger.db").spend(*READERS, Loss(pure=("1/4",)), what="x")
    shown = run_json("show")
    (account,) = shown["accounts"]
    assert (account["spent_epsilon"], account["remaining_epsilon"]) == (0.25, 0.75)
    history = run_json("history")
    assert [entry["kind"] for entry in history["entries"]] == ["open", "spend"]
    assert history["entries"][1]["loss"]["pure"] == ["1/4"]
    assert history["entries"][0]["hash"] == history["entries"][1]["prev_hash"] == opened["head"][2:]
    checked = run_json("check")
    assert checked == {"ledger": "ledger.db", "ok": True, "entries": 2, "head": shown["head"]}
    assert run_json("show", "--population", "nobody")["accounts"] == []
    assert run_json("history", "--population", "nobody")["entries"] == []


def test_periods_and_a_lifetime():
    account = run_json(*OPEN, "--period", "7d", "--lifetime-epsilon", "ln(10)", "--lifetime-delta", "1e-6")["account"]
    assert account["terms"]["period"] == "7d"
    assert account["terms"]["lifetime"]["delta"] == "1/1000000"
    assert account["period_ends"] > account["opened"]
    text = run("show")
    assert "period 0, until 20" in text
    assert text.splitlines()[-1].endswith("lifetime")
    assert "nothing caps all periods" in run("open", "--population", "b", *OPEN[3:], "--period", "7d")


def test_bars_never_hide_the_first_or_the_last_bit():
    ledger = Ledger.open("ledger.db")
    for name, spent in (("a", "0"), ("b", "1/100000"), ("c", "99999/100000"), ("d", "1")):
        ledger.spend(name, "add-remove", Loss(pure=(spent,)), what="x", create_with=Budget(1, 0))
    bars = [line.split()[0] for line in run("show").splitlines()[1::2]]
    assert [bar.count("█") for bar in bars] == [0, 1, len(bars[2]) - 1, len(bars[3])]


def test_a_terminal_without_blocks_gets_plain_bars():
    run(*OPEN)
    done = main("show", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert ".........." in done.stdout


def test_warnings_on_opening():
    with pytest.warns(PrivacyWarning, match="above 5"):
        run("open", "--population", "a", *OPEN[3:5], "--epsilon", "6", "--delta", "0")
    lifetime = ("--period", "1d", "--lifetime-epsilon", "9", "--lifetime-delta", "0")
    with pytest.warns(PrivacyWarning, match="above 5"):
        run("open", "--population", "c", *OPEN[3:], *lifetime)


@pytest.mark.parametrize("delta", ["0.5", "1/8000"])
def test_a_delta_of_one_over_the_users_or_more_is_refused_with_the_one_advice(delta):
    cost = ("--epsilon", "1", "--delta", delta, "--users", "8000")
    with pytest.raises(UsageError, match="not below one over the 8,000 users") as refused:
        run("open", "--population", "a", *OPEN[3:5], *cost)
    assert refused.value.fix == f"Give a delta of {suggested_delta(8000):.0e} or less"
    assert Path("ledger.db").exists() is False
    assert "opened" in run("open", "--population", "a", *OPEN[3:5], *cost[:3], str(suggested_delta(8000)), *cost[4:])


def test_show_says_what_is_left_of_delta():
    run("open", "--population", "readers", *OPEN[3:5], "--epsilon", "1", "--delta", "1e-6", "--period", "7d")
    Ledger.open("ledger.db").spend(*READERS, Loss(pure=("1/4",), threshold_delta="6e-7"), what="x")
    assert "spent 0.25  remaining 0.75 and delta 4e-07  period 0" in run("show")
    (account,) = run_json("show")["accounts"]
    assert account["remaining_delta"] == pytest.approx(4e-7)
    assert account["lifetime_remaining_delta"] is None


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((*OPEN, "--epsilon", "nan"), UsageError),
        ((*OPEN, "--epsilon", "0"), UsageError),
        ((*OPEN, "--epsilon", "-1"), UsageError),
        ((*OPEN, "--delta", "1"), UsageError),
        ((*OPEN, "--relation", "sideways"), UsageError),
        ((*OPEN, "--period", "1s"), UsageError),
        ((*OPEN, "--population", ""), UsageError),
        ((*OPEN, "--lifetime-epsilon", "1"), UsageError),
        ((*OPEN, "--lifetime-epsilon", "1", "--lifetime-delta", "0"), UsageError),
        ((*OPEN, "--ledger", "nowhere/ledger.db"), Unavailable),
        (("show",), AccountMissing),
        (("history",), AccountMissing),
        (("check",), AccountMissing),
    ],
)
def test_refusals_leave_no_ledger(tmp_path, arguments, error):
    with pytest.raises(error):
        run(*arguments)
    assert not any(entry.seq for path in tmp_path.glob("*.db") for entry in Ledger.open(path).history())


def test_exit_codes(tmp_path):
    assert main(*OPEN).returncode == 0
    again = main(*OPEN)
    assert (again.returncode, again.stdout) == (3, "")
    assert "exists already" in again.stderr
    assert main("show", "--ledger", "missing.db").returncode == 3
    assert main(*OPEN, "--epsilon", "x").returncode == 2
    assert main("open").returncode == 2
    assert main("show", "--ledger", "postgresql://nobody@127.0.0.1:1/x").returncode == 69
    (tmp_path / "text.db").write_text("not a ledger")
    broken = main("check", "--ledger", "text.db", "--json")
    assert broken.returncode == 3
    assert json.loads(broken.stdout)["error"] == "LedgerCorrupt"
    assert main("check", "--expect-head", f"9:{'0' * 64}").returncode == 3
    assert main("check", "--expect-head", "").returncode == 2


def test_twice_is_an_error_and_a_broken_ledger_too(tmp_path):
    run(*OPEN)
    with pytest.raises(BudgetError, match="exists already"):
        run(*OPEN)
    (tmp_path / "ledger.db").write_bytes((tmp_path / "ledger.db").read_bytes()[:-1])
    for command in ("show", "history", "check"):
        with pytest.raises(LedgerCorrupt):
            run(command)


def test_a_url_from_the_environment_keeps_its_password(postgres_url):
    environment = {"HUSHQUERY_LEDGER": postgres_url}
    for arguments in (OPEN, ("show",), ("history",), ("check",), ("show", "--json"), ("--help",)):
        done = main(*arguments, **environment)
        assert done.returncode == 0, done.stderr
        assert PASSWORD not in done.stdout + done.stderr
        assert URL_PASSWORD not in done.stdout + done.stderr
    lost = main("show", HUSHQUERY_LEDGER=f"postgresql://hush:{URL_PASSWORD}@127.0.0.1:1/x")
    assert lost.returncode == 69
    assert "127.0.0.1:1" in lost.stderr
    assert PASSWORD not in lost.stderr
    assert URL_PASSWORD not in lost.stderr


@pytest.mark.parametrize("command", [(), ("open",), ("show",), ("history",), ("check",)])
def test_help_teaches(command):
    text = run(*command, "--help", COLUMNS="200", TERM="dumb")
    assert "HUSHQUERY_LEDGER" in text
    if command:
        assert f"hushquery budget {command[0]}" in text


def test_importing_the_commands_imports_nothing_heavy():
    script = (
        "import sys, hushquery.cli.budget\n"
        "heavy = {'sqlalchemy', 'mpmath', 'numpy', 'altair', 'rich', 'psycopg', 'hushquery.core.ledger.ledger'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
