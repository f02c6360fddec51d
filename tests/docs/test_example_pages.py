"""The pages of examples/ report to a real collector from a real Chromium."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

import chromium
from collect.servers import Server
from hushquery.task import Task

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "src" / "hushquery" / "publish" / "site" / "static"


@contextmanager
def shown(example: str, folder: Path) -> Iterator[tuple[Server, str, Task]]:
    """Do what the README says: the page's address into the task, the collector's and the id into the page."""
    source, site = ROOT / "examples" / example, folder / "site"
    site.mkdir()
    with chromium.static_server(site) as pages:
        text = (source / "task.toml").read_text(encoding="utf-8")
        origin = next(line for line in text.splitlines() if line.startswith("origins"))
        (folder / "task.toml").write_text(text.replace(origin, f'origins = ["{pages.address}"]'))
        task = Task.load(folder / "task.toml")
        assert task.id == Task.load(source / "task.toml").id  # where pages are is no part of the promise
        server = Server(str(folder / "collector.db"), folder, folder / "task.toml")
        try:
            page = (source / "index.html").read_text(encoding="utf-8")
            assert page.count("https://collect.example.org") == page.count("TASK-ID") == 1
            page = page.replace("https://collect.example.org", server.address).replace("TASK-ID", task.id)
            (site / "index.html").write_text(page, encoding="utf-8")
            shutil.copy(CLIENT / "client.mjs", site / "hushquery-client.js")
            shutil.copy(CLIENT / "more.js", site)
            yield server, pages.address, task
        finally:
            server.kill()


def reports(server: Server) -> int:
    """Read from the metrics how many reports the collector took."""
    text = httpx.get(f"{server.admin}/metrics", timeout=60).text
    lines = [line for line in text.splitlines() if "hushquery" in line and 'reason="accepted"' in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in lines)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    with chromium.browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


def sent_by(page: chromium.Page) -> list[dict[str, Any]]:
    """Give the requests with which something left the page."""
    asked = [event["request"] for event in page.told("Network.requestWillBeSent")]
    return [one for one in asked if one["method"] in ("PUT", "POST")]


def test_a_settings_page(browser: chromium.Browser, tmp_path: Path) -> None:
    with shown("settings-page", tmp_path) as (server, address, task):
        page = browser.page()
        page.open(address)
        page.run("document.querySelector('[value=dark]').click()")
        assert sent_by(page) == []  # nobody has agreed
        page.run("form.share.click()")
        page.wait("said.textContent.startsWith('Sent.')")
        (request,) = sent_by(page)
        assert f"/v1/tasks/{task.id}/reports/" in request["url"]
        assert json.loads(request["postData"]) == json.loads(page.run("sent.textContent"))[0]
        assert "dark" not in request["postData"] + request["url"]
        page.run("document.querySelector('[value=light]').click()")
        page.wait("said.textContent.startsWith('Sent before.')")
        page.open(address + "?again")
        page.wait("said.textContent === 'Sent before. Privacy loss so far: 1 of at most 16.'")
        assert page.problems == []
        page.until(lambda: reports(server) == 1, "the report to be counted")


def test_a_search_box(browser: chromium.Browser, tmp_path: Path) -> None:
    with shown("shop-search", tmp_path) as (server, address, task):
        page = browser.page()
        page.open(address)
        page.run("form.q.focus()")
        page.type("Lamp")
        page.press("Enter")
        page.wait("found.children.length === 2")
        assert sent_by(page) == []
        page.run("document.querySelector('#found li').click()")  # beside the link
        page.run("document.querySelector('#found a').click()")
        page.until(lambda: reports(server) == 1, "the report to be counted")
        (request,) = sent_by(page)
        assert f"/v1/tasks/{task.id}/reports/" in request["url"]
        assert "lamp" not in (request["postData"] + request["url"]).lower()
        assert page.problems == []


@pytest.mark.parametrize("example", ["settings-page", "shop-search"])
def test_the_readmes_snippet_is_what_the_page_does(example: str) -> None:
    text = (ROOT / "examples" / example / "README.md").read_text(encoding="utf-8")
    snippet = text.partition("```html\n")[2].partition("```")[0]
    assert 5 <= len(snippet.splitlines()) <= 9
    assert 'import { report } from "./hushquery-client.js";' in snippet
    assert "TASK-ID" in snippet
