"""axe-core in a real Chromium: no violation on any page of the product, by day and night, at a desk and on a phone.

A new page is a line in PAGES, and a line in `web` that makes it. `test_every_page_is_looked_at` finds what is missing.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from chromium import Browser, Page, StaticServer, browser, static_server
from collect.first_runs import HERE, NUMBER, Visit
from collect.first_runs import SEARCHES as ASKED
from collect.helpers import SETTING, Clock, make_report, put, running, settings_for
from collect.test_hybrid_work import TEXT as SEARCHES
from commands import hushquery
from estimate_releases import FIRST
from estimate_releases import TASKS as KINDS
from estimate_releases import weeks as periods
from hushquery.collect.http.admin import make_admin, operator_page
from hushquery.collect.http.setup import PATH
from hushquery.core.budget import Budget
from hushquery.core.ledger.ledger import Ledger
from hushquery.task import Task
from release.forged import HISTOGRAM, MEAN, TEXT, of
from setting_reports import TASK, VALUES
from site_files import LEDGER, built, task_of, weeks
from small_releases import private_hybrid, release_of, whole_release

ROOT = Path(__file__).parents[2]
TEMPLATES, EXAMPLES = ROOT / "src" / "hushquery" / "templates", ROOT / "examples"
#: What a page must be before it is looked at, where its script makes something of it.
EXPLORER = "!document.getElementById('explorer').hidden"
#: Every page, by its address: the template that makes it, and when it is ready.
PAGES: dict[str, tuple[str, str]] = {
    "curator/report.html": ("report.html", EXPLORER),
    "hybrid/report.html": ("report.html", EXPLORER),
    "nothing/report.html": ("report.html", "true"),
    "setting/report.html": ("estimates.html", "true"),
    "mean/report.html": ("estimates.html", "true"),
    "histogram/report.html": ("estimates.html", "true"),
    "text/report.html": ("estimates.html", "true"),
    "site/index.html": ("trends.html", "!document.getElementById('filter').hidden"),
    "site/query.html": ("query.html", "!document.getElementById('result').hidden"),
    "site/search.html#q=weather": ("search.html", "!document.getElementById('search').hidden"),
    "site/releases.html": ("releases.html", "document.querySelector('.downloads')"),
    "site/privacy.html": ("privacy.html", "!document.getElementById('try').hidden"),
    **{
        f"periods/{kind}/index.html": ("results.html", "document.querySelector('#periods-table table, main')")
        for kind in KINDS
    },
    "periods/first/index.html": ("results.html", "true"),
    "periods/setting/releases.html": ("releases.html", "document.querySelector('main')"),
    **{f"periods/{kind}/privacy.html": ("privacy.html", "!document.getElementById('try').hidden") for kind in KINDS},
    "collector/index.html": ("collector/tasks.html", "true"),
    "collector/sites/waiting/index.html": ("collector/waiting.html", "true"),
    "collector/sites/few/index.html": ("collector/waiting.html", "true"),
    "collector/sites/released/index.html": ("results.html", "true"),
    "collector/operator.html": ("collector/operator.html", "true"),
    "collector/away.html": ("collector/operator.html", "true"),
    "look/look.html": ("look.html", "true"),
    "look/left-out.html": ("look.html", "true"),
    "demo/index.html": ("demo.html", "true"),
    "setup/start.html": ("setup/start.html", "true"),
    **{f"setup/{kind}.html": ("setup/form.html", "true") for kind in ("setting", "number", "text", "searches")},
    "setup/errors.html": ("setup/form.html", "true"),
    "setup/shown.html": ("setup/form.html", "true"),
    "setup/listed.html": ("setup/form.html", "true"),
    "setup/done.html": ("setup/done.html", "true"),
}
#: Pages of the examples, as they are before their scripts find a collector.
PAGES |= {
    f"examples/{file.relative_to(EXAMPLES).as_posix()}": ("", "true")
    for file in sorted(EXAMPLES.rglob("*.html"))
    if not {"node_modules", "dist"} & set(file.parts)
}
#: Width, and whether it is dark.
LOOKS = [(1280, False), (1280, True), (390, False), (390, True)]


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StaticServer]:
    """Every page there is, made as people make them, on one server."""
    root = tmp_path_factory.mktemp("web")
    whole_release().save(root / "curator")
    private_hybrid().save(root / "hybrid")
    release_of({}).save(root / "nothing")
    of(TASK, VALUES).save(root / "setting")
    of(MEAN, [number % 61 for number in range(300)]).save(root / "mean")
    of(HISTOGRAM, [number % 61 for number in range(300)]).save(root / "histogram")
    texts = ["example.org"] * 250 + ["example.com"] * 50
    of(TEXT, texts, candidates=["example.org", "example.com", "example.net"]).save(root / "text")
    built(root / "site", weeks(), privacy={"task": task_of("krr")[1], "ledger": LEDGER})
    for kind in KINDS:
        built(
            root / "periods" / kind, periods(kind, 4, missing=[2]), missing={FIRST + 2: "12 reports, fewer than 1,000"}
        )
    built(root / "periods" / "first", periods("setting", 1))
    _collector(root / "collector", tmp_path_factory.mktemp("collector"))
    (root / "look").mkdir()
    with chdir(root / "look"):
        rows = "".join(f"user{number % 50}\tquery {number % 7}\n" for number in range(400))
        Path("log.tsv").write_text("user\tquery\n" + rows)
        assert hushquery("look", "log.tsv", "--yes", "--html", "look.html").returncode == 0
        Path("log.tsv").write_text("user\tquery\n" + rows + "\ttea\n" * 100)
        assert hushquery("look", "log.tsv", "--yes", "--html", "left-out.html").returncode == 0
    assert hushquery("demo", "--out", root / "demo", "--users", 1000).returncode == 0
    _first_run(root / "setup", tmp_path_factory.mktemp("empty"))
    shutil.copytree(EXAMPLES, root / "examples", ignore=shutil.ignore_patterns("node_modules", "dist", "*.py"))
    with static_server(root) as server:
        yield server


def _saved(client: TestClient, path: str, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    answer = client.get(path)
    assert answer.status_code == 200, path
    file.write_text(answer.text)


def _collector(root: Path, folder: Path) -> None:
    """Save the pages of a collector with several tasks: one waits, one had too few reports, one is released."""
    names = ("released", "few", "waiting")
    texts = [SETTING.replace('"theme"', f'"{name}"') for name in names]
    clock = Clock()
    with running(settings_for(str(folder / "collector.db"), folder, *texts, SEARCHES), clock) as (client, collector):
        for row, (name, text) in enumerate(zip(names, texts, strict=True), 1):
            task = Task.loads(text)
            for number in range({"released": 4, "few": 1}.get(name, 0)):
                assert put(client, make_report(task, number)).status_code == 201
            if name != "waiting":
                collector.phases.advance(task, row, 0, "closed")
            if name == "released":
                collector.phases.advance(task, row, 0, "released")
        collector.cache.refresh()
        for name, text in zip(names, texts, strict=True):
            path = f"/sites/{Task.loads(text).id}/"
            _saved(client, path, root / "sites" / name / "index.html")
            _saved(client, f"{path}site.css", root / "sites" / name / "site.css")
        _saved(client, "/", root / "index.html")
        ledger = Ledger.open(folder / "ledger.db")
        ledger.open_account("browser users", "replace-one", Budget(48, 0))
        with TestClient(make_admin(collector.store, ledger=str(folder / "ledger.db")), base_url=HERE) as admin:
            _saved(admin, "/", root / "operator.html")
        (root / "away.html").write_text(operator_page(None, 0.0, "the store is away"))
        for beside in set(re.findall(r'href="(sites/[0-9a-f]+/site\.css)"', (root / "index.html").read_text())):
            _saved(client, f"/{beside}", root / beside)


def _first_run(root: Path, folder: Path) -> None:
    """Save the first-run page in all its states."""
    visit = Visit(folder)
    root.mkdir()
    with visit.client:
        visit.enter()
        _saved(visit.client, PATH, root / "start.html")
        for kind in ("setting", "number", "text", "searches"):
            _saved(visit.client, f"{PATH}?kind={kind}", root / f"{kind}.html")
        wrong = ASKED | {"name": "", "epsilon": "many", "optin_delta": "2", "file": "no"}
        listed = ASKED | {"optin": "no", "values": "tea https://tea.example\ntea https://tea.example"}
        unusual = NUMBER | {"epsilon": "12", "do": "show"}
        for name, form in (("errors", wrong), ("listed", listed), ("shown", unusual), ("done", ASKED)):
            (root / f"{name}.html").write_text(visit.send(form).text)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as running_browser:
        yield running_browser


@pytest.fixture(scope="module")
def axe() -> str:
    file = ROOT / "js" / "node_modules" / "axe-core" / "axe.min.js"
    assert file.exists(), "`tools/client.sh install` installs axe-core, as `make client` does"
    return file.read_text("utf-8")


def violations(page: Page, axe: str) -> list[str]:
    """Run axe-core on an open page in every look, and return what it finds, with the elements."""
    page.run(axe + "; true")
    # What a reader may open is looked at too.
    page.run("for (const one of document.querySelectorAll('details')) one.open = true")
    found = []
    for width, dark in LOOKS:
        page.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        rules = "axe.run({resultTypes: ['violations']}).then((all) => all.violations.map((one) => [one.id, one.help, "
        told = page.run(rules + "one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200))]))")
        found += [f"{width}{' dark' if dark else ''}: {json.dumps(one)}" for one in told]
    return found


@pytest.mark.parametrize("address", PAGES)
def test_no_violation(web: StaticServer, chromium: Browser, axe: str, address: str) -> None:
    page = chromium.page()
    page.open(f"{web.address}/{address}")
    page.wait(PAGES[address][1])
    try:
        assert violations(page, axe) == []
    finally:
        page.close()


BROKEN = """<!doctype html><html lang="en"><head><title>A page</title>
<meta name="viewport" content="width=device-width"><style>
:root { color-scheme: light dark } body { background: #fff; color: #000 }
@media (prefers-color-scheme: dark) { body { background: #111; color: #333 } }
@media (max-width: 600px) { .phone { color: #eee } }</style></head>
<body><main><h1>A page</h1>%s</main></body></html>"""


@pytest.mark.parametrize(
    ("body", "rule", "where"),
    [
        ('<img src="a.png">', "image-alt", {"1280", "1280 dark", "390", "390 dark"}),
        ("<input name=a>", "label", {"1280", "1280 dark", "390", "390 dark"}),
        ("<details><summary>more</summary><button></button></details>", "button-name", {"1280", "390"}),
        ("<p>text</p>", "color-contrast", {"1280 dark", "390 dark"}),
        ('<p class="phone">text</p>', "color-contrast", {"390"}),
    ],
)
def test_a_page_with_a_violation_is_caught(
    chromium: Browser, axe: str, tmp_path: Path, body: str, rule: str, where: set[str]
) -> None:
    (tmp_path / "broken.html").write_text(BROKEN % body)
    page = chromium.page()
    page.open((tmp_path / "broken.html").as_uri())
    found = {one.partition(":")[0] for one in violations(page, axe) if f'["{rule}"' in one}
    page.close()
    assert where <= found
    if rule == "color-contrast" and "phone" not in body:
        assert found == where


def test_every_page_is_looked_at() -> None:
    """A template that is a page, and not the ground of others, is in the list."""
    texts = {str(file.relative_to(TEMPLATES)): file.read_text("utf-8") for file in TEMPLATES.rglob("*.html")}
    extended = {name: match[1] for name, text in texts.items() if (match := re.search(r'{% extends "(.+?)" %}', text))}
    assert set(extended) - set(extended.values()) == {template for template, _ in PAGES.values() if template}
