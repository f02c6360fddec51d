"""The pages that a collector serves: what they show, with which headers, and that no path leads out of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from collect.helpers import SETTING, WEEKLY, Clock, make_report, put, running, settings_for
from collect.test_hybrid_work import TASK, TEXT, open_accounts, whole_epoch
from hushquery.task import Task

WEEK = 7 * 86400
SITE = f"/sites/{TASK.id}/"
TRICKS = [
    *("../", "..%2f", "%2e%2e/%2e%2e/v1/tasks", "../../etc/passwd", "..%5c..%5cledger.db", "/etc/passwd"),
    *("index.html/", "index.html%00.css", "INDEX.HTML", ".", "static/site.css", "%69ndex.html%20", "collector.db"),
]


def test_pages_of_a_hybrid_task(store_url: str, folder: Path, clock: Clock) -> None:
    open_accounts(folder, epochs=2)
    with running(settings_for(store_url, folder, TEXT), clock) as (client, collector):
        entered = client.get("/", follow_redirects=False)
        assert (entered.status_code, entered.headers["location"]) == (307, SITE.removeprefix("/"))
        assert client.get(f"/sites/{TASK.id}").url.path == SITE
        early = client.get(SITE)
        assert "Nothing has been published yet" in early.text
        assert client.get(f"{SITE}search.html").status_code == 404
        browser_client = client.get(f"{SITE}client.mjs")
        assert browser_client.headers["content-type"] == "text/javascript; charset=utf-8"

        first = whole_epoch(client, collector, clock)
        page = client.get(SITE)
        assert page.status_code == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "weather leeds" in page.text
        assert f"epoch {first.number}" in page.text
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["cache-control"] == "no-cache"
        again = client.get(SITE, headers={"If-None-Match": page.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert client.head(SITE).status_code == 200
        assert client.get(f"{SITE}client.mjs").content == browser_client.content

        # Every file that the worker keeps for offline use is there, with a type under which a browser runs it.
        kept = json.loads(client.get(f"{SITE}sw.js").text.split("FILES = ")[1].split("]")[0] + "]")
        assert {"index.html", "search.html", "privacy.html", "index.json", "task.json"} <= set(kept)
        types = {"html": "text/html", "js": "text/javascript", "mjs": "text/javascript", "css": "text/css"}
        for name in kept:
            file = client.get(SITE + name)
            assert file.status_code == 200, name
            kind = file.headers["content-type"].partition(";")[0]
            assert kind == types.get(name.rpartition(".")[2], kind)

        # The privacy page has the ledger and what clients run.
        privacy = client.get(f"{SITE}privacy.html").text
        assert "The ledger over time" in privacy
        assert "browser users who opted in" in privacy
        served = client.get(f"/v1/tasks/{TASK.id}").json()
        assert client.get(f"{SITE}task.json").json()["configuration"] == served["configuration"]

        # A new release builds them anew.
        clock.now += WEEK
        second = whole_epoch(client, collector, clock)
        later = client.get(SITE, headers={"If-None-Match": page.headers["etag"]})
        assert later.status_code == 200
        assert f"epoch {second.number}" in later.text


@pytest.mark.parametrize("trick", TRICKS)
def test_no_path_leads_out(tmp_path: Path, clock: Clock, trick: str) -> None:
    with running(settings_for(str(tmp_path / "collector.db"), tmp_path, TEXT), clock) as (client, _):
        answer = client.get(SITE + trick, follow_redirects=False)
        assert answer.status_code in (307, 404)
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert "root:" not in answer.text


def test_what_is_not_a_page_keeps_the_strict_policy(tmp_path: Path, clock: Clock) -> None:
    with running(settings_for(str(tmp_path / "collector.db"), tmp_path, SETTING), clock) as (client, _):
        sent = put(client, make_report(Task.loads(SETTING)))
        assert (sent.status_code, sent.headers["cache-control"]) == (201, "no-store")
        for answer in (sent, client.get("/v1/tasks"), client.get("/nothing"), client.post("/")):
            assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert client.post("/").status_code == 405


def test_several_tasks_and_tasks_without_queries(tmp_path: Path, clock: Clock) -> None:
    odd = SETTING.replace('name = "theme"', 'name = "<b>theme</b>"')
    task = Task.loads(odd)
    with running(settings_for(str(tmp_path / "collector.db"), tmp_path, odd, TEXT), clock) as (client, collector):
        listed = client.get("/").text
        assert f'href="sites/{task.id}/"' in listed
        assert "&lt;b&gt;theme" in listed
        assert "<b>theme" not in listed
        for number in range(4):
            assert put(client, make_report(task, number)).status_code == 201
        early = client.get(f"/sites/{task.id}/")
        assert "It ended with" not in early.text
        assert "Nothing has been published yet" in early.text
        assert client.get(f"/sites/{task.id}/site.css").status_code == 200
        for _ in range(2):
            collector.phases.advance(task, 1, 0)
        collector.cache.refresh()
        page = client.get(f"/sites/{task.id}/")
        assert "<b>theme" not in page.text
        assert "This is the first period" in page.text
        assert all(value in page.text for value in ("dark", "light", "system", "everything else", "epsilon"))
        assert "<style" not in page.text  # the policy lets no page of a collector have one
        style = client.get(f"/sites/{task.id}/site.css")
        assert (style.status_code, style.headers["content-type"]) == (200, "text/css; charset=utf-8")
        kept = json.loads(client.get(f"/sites/{task.id}/sw.js").text.split("FILES = ")[1].split("]")[0] + "]")
        assert {"index.html", "releases.html", "privacy.html", "index.json", "task.json", "client.mjs"} <= set(kept)
        linked = re.findall(r'(?:href|src)="([^"#]+)"', page.text + client.get(f"/sites/{task.id}/releases.html").text)
        assert {client.get(f"/sites/{task.id}/{name}").status_code for name in {*kept, *linked}} == {200}
        assert "One answer costs at most epsilon 1" in client.get(f"/sites/{task.id}/privacy.html").text
        assert client.get(f"/sites/{'0' * 64}/").status_code == 404


def test_periods_are_a_series_and_say_why_one_is_missing(tmp_path: Path, clock: Clock) -> None:
    task = Task.loads(WEEKLY)
    with running(settings_for(str(tmp_path / "collector.db"), tmp_path, WEEKLY), clock) as (client, collector):
        waiting = client.get(f"/sites/{task.id}/").text
        for said in (
            "Devices are reporting now",
            "which of 3 values",
            "app users",
            "every 7 days",
            "has 3 reports or more",
        ):
            assert said in waiting
        first = task.period_at(clock())
        assert "2026-09-24 UTC" in waiting  # when the period of the clock ends
        for week, reports in enumerate((4, 1, 5, 2)):
            collector.phases.ensure(task, 1)
            collector.cache.refresh()
            for number in range(reports):
                sent = make_report(task, 100 * week + number, time=clock())
                assert put(client, sent).status_code == 201
            collector.phases.advance(task, 1, first + week, "closed")
            if reports >= 3:
                collector.phases.advance(task, 1, first + week, "released")
            clock.now += WEEK
        collector.cache.refresh()
        page = client.get(f"/sites/{task.id}/").text
        assert "1 report, fewer than 3" in page
        assert "Missing, and shaded: 2026-09-24 (1 report, fewer than 3)" in page
        assert "The period from 2026-10-08 is not published: 2 reports, fewer than 3." in page
        assert "Changes are since the data of 2026-09-17 to 2026-09-23" in page


def test_too_few_reports_are_said(tmp_path: Path, clock: Clock) -> None:
    task = Task.loads(SETTING)
    with running(settings_for(str(tmp_path / "collector.db"), tmp_path, SETTING), clock) as (client, collector):
        put(client, make_report(task))
        collector.phases.advance(task, 1, 0, "closed")
        collector.cache.refresh()
        assert "It ended with 1 report, fewer than 3: so few are not published" in client.get(f"/sites/{task.id}/").text
