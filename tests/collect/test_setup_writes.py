"""What a first run writes is what the commands write, and passes `task check`; and `serve` goes on with it."""

from __future__ import annotations

import html
import json
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collect.first_runs import LISTED, NUMBER, SEARCHES, SETTING, TEXT, Visit, serving, written
from commands import answer, hushquery
from hushquery.collect.forecast import SIZES, cells, forecast_task
from hushquery.collect.http.setup import ENTER, PATH
from hushquery.task import Answers, Task


@pytest.fixture
def visit(tmp_path: Path) -> Iterator[Visit]:
    folder = tmp_path / "empty"
    folder.mkdir()
    one = Visit(folder)
    with one.client:
        yield one


# ---- what is written -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form", [SETTING, NUMBER, TEXT, SEARCHES, LISTED], ids=["setting", "number", "text", "searches", "list"]
)
def test_the_page_shows_what_the_commands_say_and_writes_what_they_write(
    visit: Visit, form: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    visit.enter()
    shown = visit.send(form | {"do": "show"})
    assert shown.status_code == 200
    assert (written(visit), visit.ended) == ([], 0)
    text = html.unescape(shown.text)
    done = visit.send(form)
    assert (done.status_code, visit.ended) == (200, 1)
    file = visit.run.folder / "task.toml"
    assert visit.run.written == file
    assert file.read_text() in text
    assert (
        html.unescape(shown.text.split("<textarea")[1].split(">", 1)[1].split("</textarea>")[0]).split()
        == form["values"].split()
        if form in (SETTING, LISTED)
        else True
    )
    task = Task.load(file)
    assert task.id in done.text
    assert task.task.period == (None if form["period"] == "once" else 7 * 86400)
    assert (task.head is None, task.optin is None) == ((True, True) if form is not SEARCHES else (False, False))

    told = json.loads(hushquery("task", "forecast", file, "--json").stdout)
    assert [one["clients"] for one in told["forecasts"]] == list(SIZES)
    printed = hushquery("task", "forecast", file).stdout
    for clients in SIZES:
        made = forecast_task(task, clients)
        for cell in cells(task, made).values():
            assert f"<td>{cell}</td>" in text
            assert cell in printed
        error = json.loads(hushquery("task", "check", file, "--clients", clients, "--json").stdout)["error"]
        assert (error["stderr"], error["stderr_most"]) == (made["stderr"], made["stderr_most"])

    command = text.split("The same as a command")[1].split("<code>")[1].split("</code>")[0]
    monkeypatch.chdir(visit.run.folder)
    file.rename("by-page.toml")
    assert answer(*shlex.split(command)[1:])[0] == 0
    assert file.read_bytes() == Path("by-page.toml").read_bytes()
    # And the page is over.
    assert visit.send(form | {"file": "second.toml"}).status_code == 422
    assert sorted(file.name for file in visit.run.folder.iterdir()) == ["by-page.toml", "task.toml"]


lines = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
epsilons = st.one_of(
    st.sampled_from(["1", "4.5", "ln(3)", "1/3", "0.5", "20", "1e-3", ""]),
    st.floats(1e-6, 25).map(lambda e: f"{e:.4g}"),
)
forms = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["setting", "number", "text", "searches"]),
        "name": lines | st.just("theme"),
        "population": lines | st.just("app users"),
        "values": st.lists(lines | st.sampled_from(["dark", "light", "a https://a.example"]), max_size=6).map(
            "\r\n".join
        ),
        "highest": st.integers(0, 2**31).map(str) | st.sampled_from(["1440", "1e3", "-1"]),
        "period": st.sampled_from(["once", "1d", "7d", "30d", "90m", "45m"]),
        "epsilon": epsilons,
        "lifetime": epsilons | st.just("100"),
        "optin": st.sampled_from(["yes", "no"]),
        "optin_epsilon": epsilons,
        "optin_delta": st.sampled_from(["1e-5", "1e-9", "0", "1/1000000", "0.5"]),
        "file": st.just("task.toml"),
        "do": st.just("write"),
    }
)


@given(forms)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_whatever_the_page_writes_passes_task_check(
    tmp_path_factory: pytest.TempPathFactory, form: dict[str, str]
) -> None:
    folder = tmp_path_factory.mktemp("first")
    visit = Visit(folder)
    visit.enter()
    status = visit.send(form).status_code
    file = folder / "task.toml"
    assert status == (200 if file.exists() else 422)
    if not file.exists():
        assert visit.run.written is None
        return
    code, told, error = answer("task", "check", file, "--clients", 1000, "--json")
    assert code == 0, error
    task = json.loads(told)["task"]
    assert task["task"]["name"] == form["name"].strip()
    assert task["task"]["population"] == form["population"].strip()
    assert answer("task", "forecast", file)[0] == 0
    assert tomllib.loads(file.read_text()) == tomllib.loads(Answers(**_given(form)).to_toml())


def _given(form: dict[str, str]) -> dict[str, Any]:
    from hushquery.collect.http.setup import _answers

    return vars(_answers(form))


# ---- the command ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "no-such-name.invalid"])  # noqa: S104 -- refused
def test_the_page_is_never_on_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, error = answer("serve", "--admin-host", host, "--admin-port", "0")
    assert code == 2
    assert "for this machine alone" in error
    assert not any(tmp_path.iterdir())
    assert answer("serve", "--admin-port", "-1")[0] == 2


def test_a_folder_with_something_in_it_needs_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, error = answer("serve", "--store", "postgresql://db.example/reports")
    assert (code, "needs a task" in error) == (2, True)
    Path("collector.db").write_bytes(b"")
    assert "there is a store" in answer("serve")[2]
    Path("theme.toml").write_text("")
    assert "hushquery serve --task theme.toml" in answer("serve")[2]


def test_serve_goes_from_an_empty_folder_to_a_collector(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    with serving(folder) as said:
        address = said()["setup"]
        origin, _, token = address.partition(ENTER + "?token=")
        with httpx.Client(base_url=origin, follow_redirects=True) as client:
            assert client.get(PATH).status_code == 403
            assert client.get(address).status_code == 200
            done = client.post(PATH, data=SETTING, headers={"Origin": origin})
            assert (done.status_code, done.text.count("hushquery serve --task task.toml")) == (200, 1)
        served = said()
        task = Task.load(folder / "task.toml")
        assert httpx.get(f"{served['address']}/v1/tasks/{task.id}").status_code == 200
        for name in (PATH, ENTER):
            assert httpx.get(f"{served['admin']}{name}").status_code == 404
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and token.encode() in file.read_bytes()]


def test_a_stop_before_the_task_is_written_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    with serving(folder) as said:
        assert said()["setup"].startswith("http://127.0.0.1:")
    assert not any(folder.iterdir())
