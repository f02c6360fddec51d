"""``hushquery randomize``: the same report again, the outbox, the account, and nothing of a value in an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from hushquery.cli.reports import randomize
from hushquery.errors import DataError, UsageError
from hushquery.local.device.client import Client
from hushquery.local.report import Report, from_base64url
from hushquery.task import Task, template
from hushquery.task.domain import UnknownValue

app = typer.Typer()
app.command()(randomize)


def text_report(text: str) -> Report:
    return Report.from_bytes(from_base64url(text))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # One epoch: midnight must not fall between two calls.
    (tmp_path / "task.toml").write_text(template("setting").replace('period = "7d"', ""))
    return tmp_path


def run(*arguments: str, text: str | bytes | None = None) -> str:
    result = CliRunner().invoke(app, ["--task", "task.toml", *arguments], catch_exceptions=False, input=text)
    assert result.exit_code == 0, result.output
    return result.stdout


def told(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


def test_prints_one_report_however_often(folder: Path) -> None:
    (first,) = told("--client", "laptop", "dark")["reports"]
    report = Report.from_json(first["report"])
    assert text_report(first["bytes"]) == report
    assert told("--client", "laptop", "dark") == {"reports": [first]}
    assert run("--client", "laptop", "light").strip() == first["bytes"]
    assert text_report(run("--client", "phone", "dark").strip()).id != report.id
    client = Client(Task.load(folder / "task.toml"), folder / "client.db", "laptop")
    assert client.report("dark") == report


def test_notes_say_what_became_of_a_value_and_nothing_of_what_is_kept(folder: Path) -> None:
    def notes(*arguments: str) -> list[str]:
        result = CliRunner().invoke(app, ["--task", "task.toml", *arguments], catch_exceptions=False)
        assert result.exit_code == 0
        return result.stderr.splitlines()

    unlisted = "note: the value is not on the task's list"
    assert notes("dark") == []
    (again,) = notes("dark")
    assert "the same report again" in again
    assert notes("light") == [again]  # no telling whether it is the first value
    assert notes("purple", "--json") == [unlisted, again]
    for number, value in enumerate(("purple", "", "Dark")):
        assert notes("--client", f"new {number}", value) == [f"{unlisted}, and reported as *, everything else"]
    assert notes("--client", "silent", "--nothing") == []


def test_a_value_that_the_task_refuses_is_noted_when_it_comes_second(folder: Path) -> None:
    task = folder / "task.toml"
    task.write_text(task.read_text().replace('unknown = "wildcard"', 'unknown = "refuse"'))
    with pytest.raises(UnknownValue):
        run("purple")
    first = run("dark")
    result = CliRunner().invoke(app, ["--task", "task.toml", "purple"], catch_exceptions=False)
    assert result.stdout == first
    assert result.stderr.startswith("note: the value is not on the task's list\nnote: this client has reported")


def test_outbox_and_account(folder: Path) -> None:
    assert told("--state", "s.db", "--outbox") == {"outbox": []}
    assert "nothing waits" in run("--state", "s.db", "--outbox")
    (report,) = told("--state", "s.db", "dark")["reports"]
    assert told("--state", "s.db", "--outbox") == {"outbox": [report["report"]]}
    assert run("--state", "s.db", "--outbox").strip() == report["bytes"]
    Client(Task.load(folder / "task.toml"), folder / "s.db").sent(text_report(report["bytes"]).id)
    assert told("--state", "s.db", "--outbox") == {"outbox": []}
    account = told("--state", "s.db", "--account")
    assert (account["spent"], account["lifetime"]) == (1.0, 16.0)
    assert "given the change times" in account["claim"]
    assert "given the change times" in run("--state", "s.db", "--account")


def test_searches_with_a_head_list(folder: Path) -> None:
    (folder / "task.toml").write_text(template("searches").replace('period = "7d"', ""))
    head = folder / "head.json"
    head.write_text('[["weather leeds", "https://weather.example"], ["news", ""]]')
    asked = ("--head", "head.json", "--url", "https://weather.example", "weather leeds")
    assert told(*asked) == told(*asked)
    with pytest.raises(UsageError, match="head list"):
        run("news")
    for text in ("{}", "[", "7"):
        head.write_text(text)
        with pytest.raises(DataError, match="head list"):
            run("--head", "head.json", "news")
    with pytest.raises(DataError, match="can't be read"):
        run("--head", "missing.json", "news")


def test_several_values_fill_all_slots(folder: Path) -> None:
    text = (folder / "task.toml").read_text()
    (folder / "task.toml").write_text(text.replace("records_per_user = 1 ", "records_per_user = 3 "))
    reports = told("dark", "light")["reports"]
    assert len(reports) == len({one["bytes"] for one in reports}) == 3
    assert run("light").split() == [one["bytes"] for one in reports]
    assert len(told("--outbox")["outbox"]) == 3
    assert len(told("--client", "empty", "--nothing")["reports"]) == 3
    assert run("--client", "third", "-", "-", text="dark\nlight\n").count("\n") == 3
    with pytest.raises(UsageError, match="at most 3"):
        run("a", "b", "c", "d")


def test_each_value_has_its_url(folder: Path) -> None:
    text = template("searches").replace("records_per_user = 1 ", "records_per_user = 2 ").replace('period = "7d"', "")
    (folder / "task.toml").write_text(text.replace("records_per_user = 1\n", "records_per_user = 2\n"))
    (folder / "head.json").write_text('[["news", "https://a.example"], ["maps", ""]]')
    asked = ("--head", "head.json", "--url", "https://a.example", "--url", "")
    assert len(run(*asked, "news", "maps").split()) == 2
    for values in (("news",), ("news", "maps", "x"), ()):
        with pytest.raises(UsageError, match=r"as many --url|give a VALUE"):
            run(*asked, *values)


def test_the_folder_of_a_head_list(folder: Path) -> None:
    (folder / "task.toml").write_text(template("searches").replace('mode = "best"', 'mode = "paper"'))
    (folder / "head").mkdir()
    (folder / "head" / "head.json").write_text('{"records": [["news", ""], ["maps", ""]]}')
    (folder / "head.json").write_text('[["news", ""], ["maps", ""]]')
    assert told("--head", "head", "news") == told("--head", "head.json", "news")
    with pytest.raises(DataError, match="can't be read"):
        run("--head", ".git-is-no-head-list", "news")


def test_numbers_are_given_as_digits(folder: Path) -> None:
    (folder / "task.toml").write_text(template("number"))
    assert text_report(run(" 90 ").strip()).payload in (b"\0", b"\1")
    assert run("-", text="90\n") == run("90")
    for wrong in ("1.5", "-3", "nan", "1e3", "٣", "9" * 30, "", "ninety"):
        with pytest.raises(UsageError, match="no whole number") as caught:
            run("--client", "other", "--", wrong)
        assert "ninety" not in str(caught.value)
    with pytest.raises(UnknownValue):
        run("--client", "other", "1441")
    with pytest.raises(UsageError, match="nothing to report"):
        run("--client", "other", "--nothing")


def test_texts_need_no_list(folder: Path) -> None:
    (folder / "task.toml").write_text(template("text"))
    report = text_report(run("https://example.org").strip())
    assert len(report.payload) == 17
    assert report.payload[0] < 64
    assert told("--account")["spent"] == pytest.approx(4.394449)


def test_a_value_from_standard_input(folder: Path) -> None:
    (folder / "task.toml").write_text(template("setting").replace('"wildcard"', '"refuse"', 1))
    assert run("-", text="dark\n")
    with pytest.raises(UnknownValue):
        run("--client", "third", "-", text=b"\xff\xfe\n")
    with pytest.raises(UnknownValue) as caught:
        run("--client", "other", "-", text="my secret\n")
    assert "secret" not in str(caught.value)


@pytest.mark.usefixtures("folder")
def test_nothing_to_report_is_reported() -> None:
    assert text_report(run("--nothing").strip())


@pytest.mark.parametrize("line", ["enabled = false", "sampling = 1e-12"])
def test_nothing_to_send(folder: Path, line: str) -> None:
    key = line.partition(" =")[0]
    lines = [line if old.startswith(f"{key} =") else old for old in template("setting").splitlines()]
    (folder / "task.toml").write_text("\n".join(lines))
    answer = told("dark")
    assert answer["reports"] == []
    assert answer["why"]
    assert run("dark") == ""


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("arguments", [(), ("dark", "--outbox"), ("--outbox", "--account"), ("dark", "--nothing")])
def test_one_question_at_a_time(arguments: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="give a VALUE, or one of"):
        run(*arguments)


@pytest.mark.usefixtures("folder")
def test_help_has_examples() -> None:
    text = " ".join(run("--help").split())
    assert "hushquery randomize --task task.toml" in text
    assert "the same bytes" in text
