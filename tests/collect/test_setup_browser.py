"""The first-run page in a real Chromium: by keyboard and by ear, and against the page of another site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chromium import Browser, Page, browser, static_server
from collect.first_runs import SETTING, serving
from hushquery.collect.http.setup import ENTER, PATH
from hushquery.task import Task


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


def test_a_first_run_by_keyboard_and_by_ear(chromium: Browser, tmp_path: Path) -> None:
    """From the printed address to the task file with Tab, Enter and letters, on a real server."""
    folder = tmp_path / "empty"
    folder.mkdir()
    with serving(folder) as said:
        page = chromium.page()
        page.open(said()["setup"])
        _answer(page, folder)
        assert "address" in said()  # the collector goes on
        page.close()


def _answer(page: Page, folder: Path) -> None:
    assert page.run("location.pathname + location.search") == PATH  # no token is left in the address

    def press_until(name: str, *, field: bool = False) -> None:
        for _ in range(40):
            page.press("Tab")
            if page.run("[document.activeElement.id, document.activeElement.textContent.trim()]")[not field] == name:
                return
        raise AssertionError(name)

    def follow() -> None:
        loads = len(page.told("Page.loadEventFired"))
        page.press("Enter")
        page.until(lambda: len(page.told("Page.loadEventFired")) > loads, "the next page")

    press_until("A number")
    follow()
    heard: Any = page.tree()
    assert ("textbox", "The highest number there can be") in heard
    assert ("group", "4. How private?") in heard
    press_until("Show what it can say")
    follow()
    assert page.run("document.activeElement.id") == "problems"  # what is wrong is read first
    assert [role for role, _ in page.tree() if role == "alert"]
    for field, typed in (("name", "minutes"), ("highest", "1440"), ("population", "app users")):
        press_until(field, field=True)
        page.type(typed)
    follow()  # Enter shows, and writes nothing
    assert page.run("location.hash") == "#forecast"
    assert ("table", "Forecast: how far 95% intervals reach to each side") in page.tree()
    assert not any(folder.iterdir())
    press_until("Write the task file")
    follow()
    assert page.run("document.querySelector('h1').textContent") == "The task file is written"
    assert Task.load(folder / "task.toml").task.highest == 1440


HOSTILE = """<!doctype html><html lang="en"><title>Another site</title><body>
<form method="post" action="{address}" target="shown">{fields}</form>
<iframe name="shown" src="{address}"></iframe>
<script>
const body = new URLSearchParams(new FormData(document.querySelector("form")));
window.sent = Promise.allSettled([
  fetch("{address}", {{ method: "POST", body, mode: "no-cors", credentials: "include" }}),
  fetch("{address}", {{ method: "POST", body, credentials: "include" }}).then((answer) => answer.text()),
  fetch("{address}", {{ credentials: "include" }}).then((answer) => answer.text()),
]).then((all) => all.map((one) => one.status));
document.querySelector("form").submit();
</script>"""


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_the_page_of_another_site_writes_and_reads_nothing(chromium: Browser, tmp_path: Path, name: str) -> None:
    """It knows all but the token, in the same browser: on the same machine (same site), and under another name."""
    folder = tmp_path / "empty"
    folder.mkdir()
    with serving(folder) as said:
        address = said()["setup"]
        page = chromium.page()
        page.open(address)
        own = page.run("location.href")
        assert own.endswith(PATH)
        site = tmp_path / "site"
        site.mkdir()
        fields = "".join(f'<input name="{key}" value="{value}">' for key, value in SETTING.items())
        (site / "index.html").write_text(HOSTILE.format(address=own, fields=fields))
        (site / "link.html").write_text(f'<a href="{address}">a link</a><a href="{own}">another</a>')
        with static_server(site) as other:
            hostile = chromium.page()
            hostile.open(other.address.replace("127.0.0.1", name))
            assert hostile.run("window.sent") == ["rejected"] * 3
            answers = hostile.told("Network.responseReceived")
            refused = [one["response"]["status"] for one in answers if one["response"]["url"].startswith(own)]
            assert set(refused) == {403}, answers
            for number in range(2):
                hostile.open(f"{other.address.replace('127.0.0.1', name)}/link.html")
                loads = len(hostile.told("Page.loadEventFired"))
                hostile.run(f"document.links[{number}].click()")
                hostile.until(lambda loads=loads: len(hostile.told("Page.loadEventFired")) > loads, "the link")
                assert "terminal" in hostile.run("document.body.textContent")
            hostile.close()
        assert not any(folder.iterdir())
        page.open(own)  # and the one who was let in still is
        assert page.run("document.querySelector('h1').textContent") == "What do you want to know?"
        assert [one for one in page.requests if ENTER in one] == [address]
        page.close()
