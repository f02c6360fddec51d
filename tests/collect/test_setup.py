"""The first-run page: who gets in, what it writes, and that nobody else's page, name, path or text does anything."""

from __future__ import annotations

import html
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from collect.first_runs import HERE, LISTED, NASTY, NUMBER, OWN, SEARCHES, SETTING, TEXT, Visit, written
from hushquery.collect.http.setup import ENTER, PATH
from hushquery.task import Task


@pytest.fixture
def visit(tmp_path: Path) -> Iterator[Visit]:
    folder = tmp_path / "empty"
    folder.mkdir()
    one = Visit(folder)
    with one.client:
        yield one


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
