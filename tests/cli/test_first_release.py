"""What a steward stumbles on with a first log: each is told, and nothing is spent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.test_release import OPTIONS, spends
from commands import answer


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_without_a_folder_nothing_is_spent() -> None:
    Path("log.tsv").write_text("user\tquery\n" + "".join(f"u{i}\tnews\n" for i in range(200)))
    code, _, err = answer("release", "log.tsv", *OPTIONS)
    assert code == 2
    assert "--out DIR" in err
    assert spends() == 0


def test_clicks_of_a_log_without_urls_are_refused_for_free() -> None:
    Path("log.tsv").write_text("user\tquery\n" + "".join(f"u{i}\tnews\n" for i in range(200)))
    code, _, err = answer("release", "log.tsv", *OPTIONS, "--clicks-per-user", "3", "--out", "r")
    assert code == 2
    assert "no URL column" in err
    assert "--columns url=" in err
    assert spends() == 0
    code, out, _ = answer("release", "log.tsv", *OPTIONS, "--out", "r", "--json")
    assert code == 0
    assert json.loads(out)["tables"] == {"queries": 1}
    assert json.loads(Path("r/manifest.json").read_text())["parameters"]["clicks_per_user"] is None


def test_a_column_can_be_left_out() -> None:
    Path("log.csv").write_text("user,time,query\n" + "".join(f"u{i},3/10/2026,news\n" for i in range(200)))
    code, _, err = answer("release", "log.csv", *OPTIONS, "--explain")
    assert (code, "can't be read" in err) == (4, True)
    code, out, _ = answer("release", "log.csv", *OPTIONS, "--columns", "time=", "--explain")
    assert (code, "chosen at random" in out) == (0, True)
    for wrong in ("user=", "time", "=time"):
        assert answer("release", "log.csv", *OPTIONS, "--columns", wrong, "--explain")[0] == 2


def test_a_spreadsheet_is_published_and_says_who_a_user_is() -> None:
    rows = "".join(f"c{i},26.09.2026 12:20,news\n" for i in range(200))
    Path("log.csv").write_text(f"Customer ID,Date,Search term\n{rows}")
    columns = ("--columns", "user=Customer ID,query=Search term", "--columns", "time=Date")
    for wrong in (
        columns,  # no form
        (*columns, "--time-format", "dd.mm.yyyy"),
        (*columns, "--columns", "time=", "--time-format", "%d.%m.%Y %H:%M"),
        ("--columns", "user=Date,query=Search term,time=Date"),
        ("--columns", "user=CustomerID,query=Search term"),
    ):
        code, _, err = answer("release", "log.csv", *OPTIONS, *wrong, "--out", "r")
        assert code in (2, 4), err
        assert "note:" not in err
        assert spends() == 0
    code, _, err = answer("release", "log.csv", *OPTIONS, *columns, "--time-format", "%d.%m.%Y %H:%M", "--out", "r")
    assert code == 0, err
    assert "note: one user is one value of the column 'Customer ID'" in err
    steps = json.loads(Path("r/manifest.json").read_text())["parameters"]["log_steps"]
    assert "time: a column that the steward named, written %d.%m.%Y" in steps[1]
    assert "user: a column that the steward named" in Path("r/README.md").read_text()
    assert not [file for file in Path("r").iterdir() if b"Customer" in file.read_bytes()]
    assert answer("verify", "r")[0] == 0


def test_no_note_where_the_column_is_called_user() -> None:
    Path("log.csv").write_text("User,query\n" + "".join(f"c{i},news\n" for i in range(200)))
    code, out, err = answer("release", "log.csv", *OPTIONS, "--columns", "user=user", "--explain")
    assert (code, "one user is" in err) == (0, False)
    assert "user: the column 'User'; query: the column 'query'" in out


def test_an_epsilon_that_promises_little_is_told() -> None:
    Path("log.tsv").write_text("user\tquery\n" + "".join(f"u{i}\tnews\n" for i in range(200)))
    budget = ("--epsilon", "8", "--delta", "1e-6", "--queries-per-user", "2")
    for command in (("release", "log.tsv", *budget, "--explain"), ("plan", *budget)):
        code, out, err = answer(*command)
        assert code == 0
        assert "epsilon 8 is above 5: an attacker's odds about a person may grow 2,981 times" in out + err
