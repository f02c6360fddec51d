"""`hushquery stat`, `explain`, `demo` and `budget` as a person types them.

One command of each kind runs in a process of its own; all others in this one, without a second to start.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.main

from commands import hushquery, spawn
from hushquery.cli.app import app
from hushquery.core.ledger.ledger import Ledger
from hushquery.core.loss import Loss
from visits import BRANCHES, write_visits

MARKER = "Zyxwvut-Marker"
LEVELS = {"add-remove": "present or absent", "replace-one": "exchanged"}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def good(*arguments, call=hushquery, **environment):
    done = call(*arguments, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def bad(code, *arguments, call=hushquery, **environment):
    """Run what must fail; the message says what and what to do, and there is no traceback."""
    done = call(*arguments, **environment)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stdout if "--json" in arguments else done.stderr and not done.stdout
    return done


@pytest.fixture
def visits(tmp_path):
    """A small file of visits; nobody in it exists."""
    return write_visits(tmp_path / "visits.csv", users=150).name


STAT = {
    "count": ["count", "visits.csv"],
    "rows": ["count", "visits.csv", "--rows-per-unit", "3"],
    "sum": ["sum", "visits.csv", "minutes", "--lower", "0", "--upper", "120"],
    "mean": ["mean", "visits.csv", "age", "--lower", "0", "--upper", "120"],
    "histogram": ["histogram", "visits.csv", "branch", "--keys", ",".join(BRANCHES), "--keys-per-unit", "2"],
}
WHO = ["--population", "visits"]
COST = ["--unit", "user", "--epsilon", "0.5", *WHO]


# ---- stat ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STAT)
def test_a_statistic_is_text_on_stdout_and_notes_on_stderr(name, visits):
    done = good("stat", *STAT[name], *COST, call=spawn if name == "mean" else hushquery)
    assert "estimate" in done.stdout
    assert "95% intervals" in done.stdout
    assert 'epsilon 0.5, delta 0 for one user, present or absent (add-remove), of "visits"' in done.stdout
    said = 'note: Created account "visits" (add-remove) with a lifetime budget of epsilon 0.5, delta 0.'
    assert f"{said} Spent: 0.5. Left: 0" in done.stderr
    assert "note" not in done.stdout
    assert "reader-0" not in done.stdout + done.stderr


@pytest.mark.parametrize("relation", LEVELS)
def test_json_has_the_guarantee_with_unit_and_relation(visits, relation):
    done = good("stat", *STAT["histogram"], *COST, "--relation", relation, "--delta", "1e-6", "--json")
    data = json.loads(done.stdout)
    assert [row["label"] for row in data["estimates"]] == list(BRANCHES)
    promise = data["guarantee"]
    assert (promise["unit"], promise["relation"], promise["population"]) == ("user", relation, "visits")
    assert promise["epsilon"] <= 0.5 * (1 + 1e-9)
    assert promise["test_noise"] is False
    charged = Ledger.open("ledger.db", create=False).history()[-1].loss
    assert Loss.from_json(promise["steps"][0]["loss"]) == charged
    assert "note" in done.stderr


def test_the_same_command_again_is_refused(visits):
    command = ("stat", *STAT["count"], *COST)
    good(*command)
    refused = bad(3, *command)
    assert "Insufficient budget in account" in refused.stderr
    as_json = json.loads(bad(3, *command, "--json").stdout)
    assert as_json["error"] == "BudgetRefused"
    assert set(as_json) == {"error", "what", "why", "fix"}
    assert len(Ledger.open("ledger.db").history()) == 2


def test_no_create_refuses_at_once(visits):
    bad(3, "stat", *STAT["count"], *COST, "--no-create")
    assert not Path("ledger.db").exists()
    terms = ("--relation", "add-remove", "--epsilon", "1", "--delta", "0")
    good("budget", "open", "--population", "others", *terms)
    assert "no account" in bad(3, "stat", *STAT["count"], *COST, "--no-create").stderr
    assert len(Ledger.open("ledger.db").history()) == 1


def test_an_account_opened_beforehand_is_spent_from_and_says_what_is_left(visits):
    good("budget", "open", "--population", "visits", "--relation", "add-remove", "--epsilon", "2", "--delta", "0")
    # The ledger keeps names without the spaces around them.
    for name, spent, left in (("visits", "0.5", "1.5"), (" visits ", "1", "1")):
        done = good("stat", *STAT["count"], *COST, "--population", name)
        assert "Created" not in done.stderr
        said = f'note: Account "visits" (add-remove) has spent {spent} of epsilon 2, delta 0. Left: {left}'
        assert f"{said} (ledger: ledger.db)\n" in done.stderr
    assert Ledger.open("ledger.db").account("visits", "add-remove").remaining_epsilon == 1.0


@pytest.mark.parametrize("by_environment", [False, True])
def test_naming_duckdb_opens_no_second_account_and_guesses_no_types(monkeypatch, by_environment):
    Path("p.csv").write_text("user,x\n" + "".join(f"00{number},1\n{number},1\n" for number in range(9)))
    shutil.copy("p.csv", "P.CSV")
    terms = ("--relation", "add-remove", "--epsilon", "40", "--delta", "0", "--anyway")
    good("budget", "open", "--population", "people", *terms)
    if by_environment:
        monkeypatch.setenv("HUSHQUERY_ENGINE", "duckdb")
    named = () if by_environment else ("--engine", "duckdb")
    for file in ("p.csv", "P.CSV"):
        cost = ("--unit", "user", "--epsilon", "20", "--population", "people", "--json")
        done = good("stat", "count", file, *cost, *named, "--no-create")
        # As numbers 007 and 7 would be one user, and there would be nine.
        assert json.loads(done.stdout)["estimates"][0]["estimate"] == pytest.approx(18, abs=3)
    assert [account.spent_epsilon for account in Ledger.open("ledger.db").accounts()] == [40.0]


@pytest.mark.parametrize("file", ["p.csv", "P.CSV", "p.csv.gz", "p.parquet", "p.json"])
def test_a_database_of_duckdb_has_no_table_that_is_a_file(file):
    Path("p.csv").write_text("user,x\n1,1\n")
    shutil.copy("p.csv", "P.CSV")
    refused = bad(2, "stat", "count", file, *COST, "--engine", "duckdb://some.db")
    assert "is the name of a file" in refused.stderr
    assert not Path("ledger.db").exists()


def test_whatever_an_engine_calls_a_table_the_people_are_those_named(monkeypatch):
    monkeypatch.setattr("hushquery.engine.connect", lambda url: url)
    monkeypatch.setattr("hushquery.engine.engine_table", lambda *_: {"user": ["a"]})
    codes = []
    for file in ("x.PARQUET", "hdfs://host/logs/x.parquet/", "searches", "a.searches"):
        codes.append(hushquery("stat", "count", file, *COST, "--engine", "spark").returncode)
    assert codes == [0, 3, 3, 3]
    assert [account.population for account in Ledger.open("ledger.db").accounts()] == ["visits"]


@pytest.mark.parametrize("name", STAT)
def test_explain_spends_nothing_and_says_what_it_would(name, visits, tmp_path):
    text = good("stat", *STAT[name], *COST, "--explain").stdout
    for said in ("Plan for", "one user", "add-remove", "bound", "standard error", "in all"):
        assert said in text
    data = json.loads(good("stat", *STAT[name], *COST, "--explain", "--json").stdout)
    assert "SELECT" in data["sql"]
    assert (data["guarantee"]["unit"], data["guarantee"]["epsilon"]) == ("user", 0.5)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["visits.csv"]


def test_keys_are_found_in_files_of_every_type(tmp_path):
    pq.write_table(pa.table({"user": ["a", "b", "c"], "code": [1, 2, 2]}), tmp_path / "codes.parquet")
    (tmp_path / "days.csv").write_text("user,day\na,2024-01-01\nb,2024-01-01\nc,2024-01-02\n")
    wide = ("--unit", "user", "--epsilon", "900", "--population", "patients", "--json", "--anyway")
    found = json.loads(good("stat", "histogram", "codes.parquet", "code", "--keys", "1,2", *wide).stdout)
    assert [row["estimate"] for row in found["estimates"]] == [1, 2]
    found = json.loads(
        good("stat", "histogram", "days.csv", "day", "--keys", "2024-01-01", *wide, "--ledger", "b.db").stdout
    )
    assert [row["estimate"] for row in found["estimates"]] == [2]
    done = hushquery("stat", "histogram", "codes.parquet", "code", "--keys", "1,two", *COST)
    assert done.returncode in (2, 4)
    assert "two" in done.stderr


def test_an_average_of_nobody_is_still_a_result(tmp_path):
    """With a small epsilon the noisy number of units is often zero or below; the budget is gone, so say something."""
    (tmp_path / "few.csv").write_text("user,age\na,30\n")
    for number in range(12):
        command = ("stat", "mean", "few.csv", "age", "--lower", "0", "--upper", "120", "--unit", "user")
        done = good(*command, "--epsilon", "2", "--population", "p", "--ledger", f"{number}.db", "--json")
        (row,) = json.loads(done.stdout)["estimates"]
        assert 0 <= row["low"] <= row["estimate"] <= row["high"] <= 120
        assert "warning" in done.stderr or row["stderr"] is not None


# ---- what goes wrong -------------------------------------------------------------------------------------------------

USAGE = {
    "no population": ["count", "visits.csv", "--unit", "user", "--epsilon", "1"],
    "no epsilon": ["count", "visits.csv", "--unit", "user"],
    "no unit": ["count", "visits.csv", "--epsilon", "1", *WHO],
    "epsilon is no number": ["count", "visits.csv", "--unit", "user", "--epsilon", "much", *WHO],
    "epsilon is nan": ["count", "visits.csv", "--unit", "user", "--epsilon", "nan", *WHO],
    "delta is one": ["count", "visits.csv", "--unit", "user", "--epsilon", "1", "--delta", "1", *WHO],
    "no such relation": ["count", "visits.csv", *COST, "--relation", "edit"],
    "no such noise": ["count", "visits.csv", *COST, "--noise", "pink"],
    "bounds reversed": ["sum", "visits.csv", "age", "--lower", "3", "--upper", "0", *COST],
    "no keys": ["histogram", "visits.csv", "branch", "--keys", ",", *COST],
    "unknown ending": ["count", "visits.txt", *COST],
    "no number of users": [
        "mean",
        "visits.csv",
        "age",
        "--lower",
        "0",
        "--upper",
        "9",
        *COST,
        "--relation",
        "replace-one",
    ],
}


@pytest.mark.parametrize("arguments", USAGE.values(), ids=USAGE)
def test_usage_errors_are_two_and_cost_nothing(arguments, visits):
    done = bad(2, "stat", *arguments)
    assert len(done.stderr) > 20
    assert not Path("ledger.db").exists() or not Ledger.open("ledger.db").history()


def test_usage_errors_are_two_in_a_process_too():
    bad(2, "stat", "count", "visits.csv", "--unit", "user", "--epsilon", "nan", call=spawn)


FILES = {
    "missing.csv": None,
    "empty.csv": b"",
    "noise.csv": bytes(range(256)) * 9,
    "noise.parquet": bytes(range(256)) * 9,
    "no header.csv": f"{MARKER},secret\nbob,2\n".encode(),
    "no such column.csv": f"name,x\n{MARKER},1\n".encode(),
}


@pytest.mark.parametrize("name", FILES)
def test_bad_files_are_four_and_their_values_are_not_shown(name, tmp_path):
    if FILES[name] is not None:
        (tmp_path / name).write_bytes(FILES[name])
    command = ("stat", "sum", name, "x", "--lower", "0", "--upper", "1", *COST, "--population", "p")
    text, as_json = hushquery(*command, "--ledger", "a.db"), hushquery(*command, "--ledger", "b.db", "--json")
    for done in (text, as_json):
        assert done.returncode == 4, done.stdout + done.stderr
        assert MARKER not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    assert "error:" in text.stderr
    assert json.loads(as_json.stdout)["error"] == "DataError"


def test_a_header_alone_is_a_file_of_nobody(tmp_path):
    """Whether there is anybody is a secret too: no error may tell."""
    (tmp_path / "nobody.csv").write_text("user,x\n")
    good("stat", "count", "nobody.csv", *COST, "--ledger", "a.db")
    good("stat", "sum", "nobody.csv", "x", "--lower", "0", "--upper", "1", *COST, "--ledger", "b.db")


def test_a_ledger_that_is_not_there_is_unavailable_and_its_password_stays_secret(visits):
    url = "postgresql://analyst:hunter2@127.0.0.1:1/privacy"
    done = bad(69, "stat", *STAT["count"], *COST, HUSHQUERY_LEDGER=url)
    assert "hunter2" not in done.stderr
    assert "127.0.0.1" in done.stderr
    data = json.loads(bad(69, "stat", *STAT["count"], *COST, "--ledger", url, "--json").stdout)
    assert data["error"] == "Unavailable"
    assert "hunter2" not in json.dumps(data)


# ---- explain ---------------------------------------------------------------------------------------------------------


def test_explain_guarantee_in_words_json_and_a_picture(tmp_path):
    arguments = (
        "explain",
        "guarantee",
        "--epsilon",
        "ln(3)",
        "--delta",
        "1e-6",
        "--prior",
        "0.02",
        "--unit",
        "household",
    )
    text = good(*arguments, "--plot", "worlds.svg").stdout
    for said in ("household", "add-remove", "1e-06", "2.0%", "everybody in the data", "worlds.svg"):
        assert said in text
    assert (tmp_path / "worlds.svg").read_text().startswith("<svg")
    data = json.loads(good(*arguments, "--relation", "replace-one", "--json").stdout)
    assert (data["unit"], data["relation"]) == ("household", "replace-one")
    (posterior,) = data["posteriors"]
    assert abs(posterior["posterior"] - 0.06 / (0.06 + 0.98)) < 1e-9
    assert data["words"]


def test_explain_compose_group_and_shuffle():
    command = ("explain", "compose", "--epsilon", "0.1", "--times", "30", "--delta", "1e-6", "--json")
    assert json.loads(good(*command).stdout)
    groups = json.loads(good("explain", "group", "--epsilon", "1", "--people", "3", "--json").stdout)["groups"]
    assert [(g["people"], g["epsilon"], g["delta"]) for g in groups] == [(1, 1.0, 0.0), (2, 2.0, 0.0), (3, 3.0, 0.0)]
    command = ("explain", "shuffle", "--epsilon", "1", "--reports", "2000", "--delta", "1e-6", "--k", "50")
    assert "replace-one" in good(*command).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["guarantee", "--epsilon", "-1"],
        ["guarantee", "--epsilon", "1", "--prior", "1.5"],
        ["guarantee", "--epsilon", "1", "--plot", "worlds.pdf"],
        ["compose", "--times", "3", "--delta", "1e-6"],
        ["group", "--epsilon", "nan"],
    ],
)
def test_explain_refuses_what_means_nothing(arguments):
    bad(2, "explain", *arguments)


# ---- budget ----------------------------------------------------------------------------------------------------------


def test_budget_open_show_history_check(visits):
    opened = good(
        "budget", "open", "--population", "visits", "--relation", "add-remove", "--epsilon", "1", "--delta", "0"
    )
    assert 'opened "visits"' in opened.stdout
    good("stat", *STAT["mean"], *COST)
    account = json.loads(good("budget", "show", "--json").stdout)["accounts"][0]
    assert "0.5" in json.dumps(account)
    assert "remaining 0.5" in good("budget", "show").stdout
    history = good("budget", "history").stdout
    assert "'age'" in history
    assert "reader-0" not in history
    assert json.loads(good("budget", "check", "--json").stdout)["ok"] is True
    bad(3, "budget", "show", "--ledger", "elsewhere.db")


# ---- demo ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("users", [100, 20_000])
def test_demo_ends_in_a_page_without_the_log_and_without_network(tmp_path, users):
    done = good("demo", "--out", "here", "--users", str(users), "--json", call=spawn if users == 100 else hushquery)
    page = (tmp_path / "here" / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", page)
    # The one script is the search box, which the page's policy names by its hash; the other is its data.
    assert page.count("<script") == (2 if users == 20_000 else 0)
    # What each group has spent is drawn, and shares are in per cent, also where a query is the sum of its records.
    assert page.count('class="gauge"') == 2
    assert "Epsilon 4 of 4 is spent" in page
    assert ("sum over its records" in page) == (users == 20_000)
    for said in ("refused", "replace-one", "one user", "one client", "NOT PRIVATE"):
        assert (said in page) == (said != "NOT PRIVATE" and (said != "one client" or users == 20_000))
    summary = json.loads(done.stdout)
    assert set(summary["tables"]) == {"queries", "clicks", "records"}
    assert (summary["tables"]["queries"] > 0) == (users == 20_000)
    assert "Insufficient budget in account" in summary["refused"]
    assert [one["unit"] for one in summary["guarantees"]] == (["user", "client"] if users == 20_000 else ["user"])
    good("verify", "here/release")
    good("demo", "--out", "here", "--users", "100", "--json")  # again into the same folder


def test_demo_never_touches_a_ledger_that_is_not_its_own(tmp_path, visits):
    """ledger.db is what every ledger is called; deleting it would give everybody's budget back."""
    good("stat", *STAT["count"], *COST)
    before = Ledger.open("ledger.db").head
    done = hushquery("demo", "--out", ".", "--users", "100")
    assert Ledger.open("ledger.db").head == before
    assert done.returncode in (0, 2)
    assert not (tmp_path / "index.html").exists() or done.returncode == 0


def test_demo_does_not_overwrite_what_it_did_not_make(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    bad(2, "demo", "--out", ".", "--users", "100")
    bad(2, "demo", "--out", "notes.txt", "--users", "100")
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    own = tmp_path / "mine" / "log.parquet"  # a name that others may use too
    own.parent.mkdir()
    own.write_text("user,age\nreal,30\n")
    bad(2, "demo", "--out", "mine", "--users", "100")
    assert own.read_text() == "user,age\nreal,30\n"


# ---- help ------------------------------------------------------------------------------------------------------------


def commands(group=None, path=()):
    """Every command of the command line, with the words that call it."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands())


def test_all_commands_are_known_here():
    known = {" ".join(path) for path in COMMANDS}
    assert {"demo", "doctor", "audit", "stat count", "stat sum", "stat mean", "stat histogram"} <= known
    assert {"budget open", "budget show", "budget history", "budget check"} <= known
    assert {"explain guarantee", "explain compose", "explain group", "explain shuffle"} <= known


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(path):
    text = COMMANDS[path].callback.__doc__
    assert re.search(rf"^\s+hushquery {' '.join(path)}\b", text, re.MULTILINE)
    done = good(*path, "--help")
    assert "Usage" in done.stdout
    assert not done.stderr
    shown = " ".join(done.stdout.split())
    assert f"hushquery {' '.join(path)}" in shown
    assert " ".join(text.split(".")[0].split())[:40] in shown


@pytest.mark.parametrize("group", ["stat", "budget", "explain"])
def test_every_group_has_help(group):
    text = good(group, "-h").stdout
    for path in COMMANDS:
        if path[0] == group:
            assert path[1] in text
