"""The first-run page: who gets in, what it writes, and that nobody else's page, name, path or text does anything."""

from __future__ import annotations

import html
import json
import os
import shlex
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from children import HANG, start
from commands import answer, hushquery
from hushquery.collect.forecast import SIZES, forecast
from hushquery.collect.http.setup import ENTER, PATH, FirstRun, make_setup
from hushquery.task import Answers, Task

HERE = "http://127.0.0.1:8081"
OWN = {"Origin": HERE, "Sec-Fetch-Site": "same-origin"}
SETTING = {
    "kind": "setting", "name": "theme", "values": "light\ndark\r\nsystem\n", "population": "app users", "period": "7d",
    "epsilon": "1", "lifetime": "16", "file": "task.toml", "do": "write",
}  # fmt: skip
NUMBER = SETTING | {"kind": "number", "highest": "1440", "period": "once"}
TEXT = SETTING | {"kind": "text", "epsilon": "4.5", "lifetime": "18"}
SEARCHES = SETTING | {"kind": "searches", "optin": "yes", "optin_epsilon": "4", "optin_delta": "1e-5", "epsilon": "4"}
LISTED = SEARCHES | {"optin": "no", "values": "weather leeds https://weather.example\nbus times"}
NASTY = "<script>alert(1)</script>\"'&{{ 7*7 }}"


class Visit:
    """A first run in this process, and somebody's browser."""

    def __init__(self, folder: Path) -> None:
        self.run, self.ended = FirstRun(folder), 0
        self.token = self.run.token or ""
        self.client = TestClient(make_setup(self.run, done=self._end), base_url=HERE, follow_redirects=False)

    def _end(self) -> None:
        self.ended += 1

    def enter(self) -> httpx.Response:
        return self.client.get(ENTER, params={"token": self.token})

    def send(self, form: dict[str, str], **headers: str) -> httpx.Response:
        return self.client.post(PATH, data=form, headers=OWN | headers)


@pytest.fixture
def visit(tmp_path: Path) -> Iterator[Visit]:
    folder = tmp_path / "empty"
    folder.mkdir()
    one = Visit(folder)
    with one.client:
        yield one


def written(visit: Visit) -> list[str]:
    return sorted(file.name for file in visit.run.folder.parent.rglob("*") if file.is_file())


# ---- who gets in ---------------------------------------------------------------------------------------------------


def test_the_token_opens_the_page_once(visit: Visit) -> None:
    assert len(visit.token) >= 43  # 256 bits
    entered = visit.enter()
    assert (entered.status_code, entered.headers["location"]) == (303, PATH)
    assert entered.headers["referrer-policy"] == "no-referrer"
    cookie = entered.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", f"Path={PATH}"} <= set(cookie.split("; ")), cookie
    assert visit.token not in cookie
    assert visit.client.get(PATH).status_code == 200
    again = TestClient(visit.client.app, base_url=HERE).get(ENTER, params={"token": visit.token})
    assert again.status_code == 403
    assert "set-cookie" not in again.headers


@pytest.mark.parametrize("token", ["", "x", "é\udcff".encode("utf-8", "replace").decode(), "A" * 43, None])
def test_no_other_token_opens_it_or_closes_it(visit: Visit, token: str | None) -> None:
    refused = visit.client.get(ENTER, params={} if token is None else {"token": token})
    assert refused.status_code == 403
    assert visit.client.get(f"{ENTER}?token={visit.token}&token={visit.token}").status_code == 403
    assert visit.client.get(PATH).status_code == 403
    assert visit.enter().status_code == 303


@pytest.mark.parametrize("path", [PATH, f"{PATH}?kind=setting", f"{PATH}?kind=searches"])
def test_nothing_is_shown_or_written_without_the_cookie(visit: Visit, path: str) -> None:
    for cookie in ({}, {"Cookie": "hushquery-setup="}, {"Cookie": f"hushquery-setup={visit.token}"}):
        shown = visit.client.get(path, headers=cookie)
        assert (shown.status_code, "form" in shown.text) == (403, False)
        assert visit.send(SETTING, **cookie).status_code == 403
    assert written(visit) == []


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8081",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8081",
        "192.168.1.7:8081",
        "",
    ],
)
def test_another_name_of_this_machine_is_refused(visit: Visit, host: str) -> None:
    """A page of evil.example whose name points here (DNS rebinding) has that name as Host, and an Origin that fits."""
    headers = {"Host": host, "Origin": f"http://{host}"}
    assert visit.client.get(ENTER, params={"token": visit.token}, headers={"Host": host}).status_code == 421
    visit.enter()
    assert visit.client.get(PATH, headers={"Host": host}).status_code == 421
    assert visit.send(SETTING, **headers).status_code == 421
    assert written(visit) == []


@pytest.mark.parametrize("host", ["localhost:8081", "127.0.0.1:9000", "[::1]:8081", "LOCALHOST"])
def test_every_loopback_name_is_known(visit: Visit, host: str) -> None:
    assert visit.client.get(ENTER, params={"token": visit.token}, headers={"Host": host}).status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:8081"},  # the same machine, but not where the page came from
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "https://127.0.0.1:8081"},
        {"Origin": f"{HERE}/"},
        {"Origin": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_form_of_another_site_writes_nothing(visit: Visit, headers: dict[str, str]) -> None:
    visit.enter()
    assert visit.send(SETTING, **headers).status_code == 403
    assert visit.client.post(PATH, data=SETTING).status_code == 403  # without any origin
    assert written(visit) == []
    assert visit.send(SETTING).status_code == 200


def test_a_link_of_another_site_does_not_use_the_token_up(visit: Visit) -> None:
    for site in ("cross-site", "same-site"):
        headers = {"Sec-Fetch-Site": site}
        assert visit.client.get(ENTER, params={"token": visit.token}, headers=headers).status_code == 403
    visit.enter()
    assert visit.client.get(PATH, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert visit.client.get(PATH, headers={"Sec-Fetch-Site": "none"}).status_code == 200


def test_reading_changes_nothing(visit: Visit) -> None:
    visit.enter()
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"):
        asked = visit.client.request(method, PATH, params=SETTING, headers=OWN)
        assert asked.status_code in (200, 403, 405)
        assert asked.headers.get("access-control-allow-origin") is None
    assert written(visit) == []
    assert visit.ended == 0


def test_every_answer_lets_nothing_in_or_out(visit: Visit) -> None:
    before, entered = visit.client.get(PATH), visit.enter()
    answers = [before, entered, visit.client.get(PATH), visit.send(SETTING | {"do": "show"}), visit.send(SETTING)]
    for one in answers:
        policy = one.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in policy
        assert "script" not in policy
        for part in ("form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
            assert part in policy
        assert one.headers["x-frame-options"] == "DENY"
        assert one.headers["x-content-type-options"] == "nosniff"
        assert one.headers["cross-origin-opener-policy"] == "same-origin"
        assert one.headers["cache-control"] == "no-store"
        assert one.headers["referrer-policy"] in ("no-referrer", "same-origin")
        assert visit.token not in one.text
        assert "<script" not in one.text
        assert "src=" not in one.text


# ---- what is sent --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("../task.toml", "/srv/task.toml", "a/b.toml", "..", ".toml", ".hidden.toml", "task.toml/", "task", "task.db"),
        *(
            "..%2ftask.toml",
            "a\\b.toml",
            "task.toml\0",
            "task.toml\n",
            "tâsk.toml",
            "a" * 70 + ".toml",
            "C:task.toml",
            "",
        ),
    ],
)
def test_no_name_leaves_the_folder(visit: Visit, name: str) -> None:
    visit.enter()
    refused = visit.send(SETTING | {"file": name})
    assert refused.status_code == (200 if name == "task.toml\n" else 422)  # a browser's line end around it is taken off
    assert written(visit) == (["task.toml"] if name == "task.toml\n" else [])


def test_no_file_is_replaced(visit: Visit) -> None:
    visit.enter()
    target = visit.run.folder.parent / "elsewhere.toml"
    (visit.run.folder / "link.toml").symlink_to(target)  # which leads out, to nothing
    (visit.run.folder / "mine.toml").write_text("mine")
    for name in ("mine.toml", "link.toml"):
        refused = visit.send(SETTING | {"file": name})
        assert refused.status_code == 422
        assert "a file of this name is there already" in refused.text
    assert not target.exists()
    assert (visit.run.folder / "mine.toml").read_text() == "mine"
    assert visit.run.written is None


def test_a_file_that_appears_in_the_last_moment_is_kept(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes on one folder: whoever comes second is refused."""
    visit.enter()
    (visit.run.folder / "task.toml").write_text("the other's")
    monkeypatch.setattr("hushquery.collect.http.setup.os.path.lexists", lambda _: False)
    refused = visit.send(SETTING)
    assert (refused.status_code, visit.ended) == (422, 0)
    assert (visit.run.folder / "task.toml").read_text() == "the other's"
    assert written(visit) == ["task.toml"]  # and no draft


def test_a_file_is_whole_or_not_there(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    visit.enter()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("hushquery.task.answers.os.fsync", full)
        refused = visit.send(SETTING)
    assert refused.status_code == 422
    assert "No space left on device" in refused.text
    assert written(visit) == []
    assert visit.send(SETTING).status_code == 200


def test_everybody_may_read_the_file_whatever_the_umask(visit: Visit) -> None:
    visit.enter()
    before = os.umask(0o077)
    try:
        visit.send(SETTING)
    finally:
        os.umask(before)
    assert stat.S_IMODE((visit.run.folder / "task.toml").stat().st_mode) == 0o644


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"a=b", "application/json", 415),
        (b"a=b", "multipart/form-data; boundary=x", 415),
        (b"a=b", "text/plain", 415),  # what a form of another site may send without asking
        (b"a=b", "application/x-www-form-urlencoded", 400),
        (b"kind=setting&kind=number&do=show", "application/x-www-form-urlencoded", 400),
        (b"kind=" + NASTY.encode() + b"&do=show", "application/x-www-form-urlencoded", 400),
        (b"kind=setting&do=delete", "application/x-www-form-urlencoded", 400),
        (b"kind=setting&do=show&name=%ff", "application/x-www-form-urlencoded", 400),
        (b"kind=setting&do=show&name=\xff", "application/x-www-form-urlencoded", 400),
        (b"&".join(b"f%d=" % number for number in range(100)), "application/x-www-form-urlencoded", 400),
        (b"kind=setting&do=show&values=" + b"x" * (1 << 18), "application/x-www-form-urlencoded", 413),
    ],
)
def test_what_is_no_form_is_refused_without_repeating_it(visit: Visit, body: bytes, kind: str, status: int) -> None:
    visit.enter()
    refused = visit.client.post(PATH, content=body, headers=OWN | {"Content-Type": kind})
    assert refused.status_code == status
    assert "alert" not in refused.text
    assert written(visit) == []


@pytest.mark.parametrize("form", [SETTING, NUMBER, TEXT, SEARCHES, LISTED], ids=lambda form: form["kind"])
def test_text_of_the_form_is_never_markup(visit: Visit, form: dict[str, str]) -> None:
    visit.enter()
    nasty = {name: NASTY for name in form if name not in ("kind", "do", "optin")}
    page = visit.send(form | nasty)
    assert page.status_code == 422
    assert "<script" not in page.text
    assert "&lt;script&gt;" in page.text
    shown = visit.send(form | {"name": NASTY, "population": NASTY, "do": "show"})
    assert shown.status_code == 200  # it is a line of text, which a task may have as its name
    assert "<script" not in shown.text
    assert NASTY in html.unescape(shown.text)
    done = visit.send(form | {"name": NASTY, "population": NASTY})
    assert done.status_code == 200
    assert "<script" not in done.text
    assert Task.load(visit.run.folder / "task.toml").task.name == NASTY


@pytest.mark.parametrize(
    ("form", "field", "words"),
    [
        (SETTING | {"name": " "}, "name", "must not be empty"),
        (SETTING | {"values": "\r\n \n"}, "values", "must not be empty"),
        (SETTING | {"values": "dark\ndark"}, "values", "are the same value"),
        (SETTING | {"population": ""}, "population", "must not be empty"),
        (SETTING | {"period": "45m"}, "period", "not a multiple"),
        (SETTING | {"period": "soon"}, "period", "not a length of time"),
        (SETTING | {"epsilon": "none"}, "epsilon", "a number such as"),
        (SETTING | {"epsilon": "0"}, "epsilon", "must be above zero"),
        (SETTING | {"epsilon": "30", "lifetime": "40"}, "epsilon", "above 20"),
        (SETTING | {"lifetime": "0.5"}, "lifetime", "no client could ever report"),
        (NUMBER | {"highest": "1,440"}, "highest", "not a whole number"),
        (NUMBER | {"highest": ""}, "highest", "must not be empty"),
        (SEARCHES | {"optin_delta": "0"}, "optin_epsilon", "delta"),
        (SEARCHES | {"optin_delta": "1"}, "optin_delta", "below 1"),
        (LISTED | {"values": ""}, "values", "must not be empty"),
        (SETTING | {"file": "task"}, "file", ".toml"),
    ],
)
def test_an_error_is_beside_its_field(visit: Visit, form: dict[str, str], field: str, words: str) -> None:
    visit.enter()
    for wanted in ("show", "write"):
        page = visit.send(form | {"do": wanted})
        assert page.status_code == 422
        error = page.text.split(f'id="{field}-error"', 1)[1].split("</p>")[0]
        assert words in html.unescape(error)
        assert f'<a href="#{field}">' in page.text
        assert "What it will be able to say" not in page.text
    assert written(visit) == []


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
        made = forecast(task, clients)
        for cell in made.cells().values():
            assert f"<td>{cell}</td>" in text
            assert cell in printed
        error = json.loads(hushquery("task", "check", file, "--clients", clients, "--json").stdout)["error"]
        assert (error["stderr"], error["stderr_most"]) == (made.stderr, made.stderr_most)

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
    command = [sys.executable, "-m", "hushquery", "serve", "--port", "0", "--admin-port", "0", "--json"]
    log = tmp_path / "server.log"
    folder = tmp_path / "empty"
    folder.mkdir()
    with log.open("wb") as err:
        process = start(command, cwd=folder, stdout=subprocess.PIPE, stderr=err)
    assert process.stdout is not None

    def said() -> dict[str, str]:
        text = ""
        while not text.rstrip().endswith("}"):
            line = process.stdout.readline().decode()  # type: ignore[union-attr]
            assert line, log.read_text()
            text += line
        return dict(json.loads(text))

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
    process.terminate()
    assert process.wait(HANG) == 0
    process.stdout.close()
    assert token not in log.read_text()
    assert not [file for file in folder.rglob("*") if file.is_file() and token.encode() in file.read_bytes()]


def test_a_stop_before_the_task_is_written_leaves_nothing(tmp_path: Path) -> None:
    process = start(
        [sys.executable, "-m", "hushquery", "serve", "--admin-port", "0"], cwd=tmp_path, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"open http://127.0.0.1:")
    process.terminate()
    assert process.wait(HANG) == 0
    process.stdout.close()
    assert not any(tmp_path.iterdir())
