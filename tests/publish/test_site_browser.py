"""Every page in a real Chromium: by keyboard, by ear, by night, on a telephone, without a network, and under attack."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from chromium import CONTRAST, browser, static_server
from hushquery.publish.site import HEADERS
from site_files import LEDGER, NASTY, built, setting_task, task_of, weeks
from small_releases import private_hybrid, shares_of

PAGES = ["index.html", "query.html", "search.html", "releases.html", "privacy.html"]
READY = {
    "index.html": "!document.getElementById('filter').hidden",
    "search.html": "!document.getElementById('search').hidden",
    "query.html": "!document.getElementById('result').hidden",
    "releases.html": "document.querySelector('.downloads')",
    "privacy.html": "!document.getElementById('try').hidden",
}


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    """Sites under several paths of one server, which serves them as a collector does; other tests use a plain one."""
    root = tmp_path_factory.mktemp("web")
    served = {"task": task_of("krr")[1], "ledger": LEDGER}
    built(root / "weeks", weeks(), privacy=served)
    (root / "deep").mkdir()
    built(root / "deep" / "tiny", [private_hybrid()], privacy=served)
    hostile = shares_of(dict.fromkeys(NASTY, 0.02), {(query, query): 0.01 for query in NASTY})
    built(root / "hostile", [hostile, hostile], title=NASTY[0], privacy={"task": setting_task("oue")[1]})
    strict = task_of("krr", sampling="1/4", unknown="refuse")[1]
    built(root / "strict", [private_hybrid()], privacy={"task": strict})
    with static_server(root, HEADERS) as server:
        yield server


@pytest.fixture
def tab(chromium):
    """A tab; when the test is done nothing may have gone wrong in it, and nothing may have come from elsewhere."""
    opened = []

    def make(address, **options):
        page = chromium.page(**options)
        opened.append(page)
        page.open(address)
        page.wait(READY.get(address.partition("#")[0].rpartition("/")[2] or "index.html", "true"))
        return page

    yield make
    for page in opened:
        origin = page.run("location.origin")
        assert page.problems == []
        assert [address for address in page.requests if not address.startswith(origin)] == []
        page.close()


def texts(page, selector):
    return page.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent.trim())")


def shown_queries(page, table="queries"):
    return page.run(
        f"[...document.querySelectorAll('table[aria-labelledby={table}] tbody tr')].filter((row) => !row.hidden)"
        ".map((row) => row.querySelector('bdi').textContent)"
    )


def focused(page):
    return page.run("document.activeElement.textContent.trim() || document.activeElement.id")


def go_to(page, wanted, most=40):
    """Press the tabulator until the focus is somewhere."""
    for _ in range(most):
        page.press("Tab")
        if focused(page) == wanted:
            return
    pytest.fail(f"the keyboard does not reach {wanted!r}")


def test_tables_are_sorted_by_keyboard(web, tab):
    page = tab(f"{web.address}/weeks/index.html")
    page.press("Tab")
    assert focused(page) == "Skip to the content"
    assert shown_queries(page) == ["weather leeds", "news", "christmas market", "flu jab"]
    go_to(page, "Query")
    page.press("Enter")
    assert shown_queries(page) == ["christmas market", "flu jab", "news", "weather leeds"]
    page.press("Enter")
    assert shown_queries(page) == ["weather leeds", "news", "flu jab", "christmas market"]
    page.press("Enter")
    assert shown_queries(page)[0] == "christmas market"
    go_to(page, "Change")
    page.press(" ", " ")
    # The one without a change comes last, whichever way.
    assert shown_queries(page) == ["news", "weather leeds", "flu jab", "christmas market"]
    page.press(" ", " ")
    assert shown_queries(page) == ["flu jab", "weather leeds", "news", "christmas market"]
    heads = page.run("[...document.querySelectorAll('table thead')][0].querySelectorAll('[aria-sort]').length")
    assert heads == 1


def test_searching_within_the_tables(web, tab):
    page = tab(f"{web.address}/weeks/")
    go_to(page, "filter-text")
    page.type("LEEDS")
    page.wait("document.getElementById('filter-status').textContent")
    assert shown_queries(page) == ["weather leeds"]
    assert texts(page, "#filter-status") == ["2 of 7 rows"]
    page.run("document.activeElement.select()")
    page.type("news.example")
    assert shown_queries(page) == []
    assert shown_queries(page, "records") == ["news"]


def test_a_long_table_is_shown_in_part(chromium, tmp_path):
    many = shares_of({f"query {i:03}": 0.01 - i / 1e5 for i in range(60)})
    with static_server(built(tmp_path / "site", [many])) as server:
        page = chromium.page()
        page.open(f"{server.address}/")
        page.wait(READY["index.html"])
        assert len(shown_queries(page)) == 20
        page.run("document.querySelector('.more').focus()")
        page.press("Enter")
        assert len(shown_queries(page)) == 60
        assert focused(page) == "query 020"
        page.close()


def test_a_screen_reader_is_told_everything(web, tab):
    page = tab(f"{web.address}/weeks/index.html")
    told = page.tree()
    for wanted in (
        ("navigation", "Pages"),
        ("heading", "What changed"),
        ("table", "Queries"),
        ("columnheader", "Share"),
        ("rowheader", "weather leeds"),
        ("searchbox", "Search within these tables"),
        ("main", ""),
    ):
        assert wanted in told, wanted
    assert any(role == "cell" and "maybe noise" in name for role, name in told)
    for name, wanted in (("search", ("searchbox", "Search for")), ("privacy", ("button", "Randomise 100 times"))):
        assert wanted in tab(f"{web.address}/weeks/{name}.html").tree()
    for name in ("index", "query", "search", "releases", "privacy"):
        found = tab(f"{web.address}/weeks/{name}.html").tree()
        nameless = [
            role for role, said in found if role in ("button", "link", "searchbox", "textbox", "combobox") and not said
        ]
        assert nameless == []


def test_search_answers_while_one_types_and_asks_nobody(web, tab):
    page = tab(f"{web.address}/deep/tiny/search.html")
    assert focused(page) == "search-text"
    assert texts(page, "#queries-found") == ["Frequent queries"]
    asked, requests = len(web.asked), len(page.requests)
    page.type("waether leds")
    page.wait("document.querySelector('#pages li')")
    assert texts(page, "#queries .hit")[0].startswith("weather leeds")
    assert texts(page, "#pages a")[0] == "https://weather.example.org/leeds"
    assert "found" in texts(page, "#search-status")[0]
    assert "2 typing mistakes away" in texts(page, "#queries .soft")[0]
    page.run("document.getElementById('search-text').select()")
    page.type("zzzzqqqq")
    assert "No listed query" in texts(page, "#search-status")[0]
    assert page.run("document.getElementById('found').hidden")
    assert "waether" not in " ".join(web.asked)
    page.wait("document.getElementById('offline').textContent")  # the worker keeps the files meanwhile
    later = [path for path in web.asked[asked:] if not path.startswith("/deep/tiny/")]
    assert later == []
    assert len(page.requests) == requests
    assert page.run("location.href").endswith("/search.html")  # nothing typed gets into the address


def test_search_by_keyboard_alone(web, tab):
    page = tab(f"{web.address}/deep/tiny/search.html")
    page.type("weather")
    page.wait("document.querySelector('#pages li')")
    page.press("Tab")
    assert page.run("document.activeElement.closest('#pages') !== null")
    while not page.run("document.activeElement.closest('#queries') !== null"):
        page.press("Tab")
    name = focused(page)
    page.press("Enter")
    assert page.run("document.getElementById('search-text').value") == name
    assert focused(page) == "search-text"
    page.press("Tab")
    page.press("/", "/")
    assert focused(page) == "search-text"
    assert page.run("document.getElementById('search-text').value") == name


def numbers(page):
    """What the table of a comparison says: its heads, and its rows by release."""
    rows = page.run(
        "Array.from(document.querySelectorAll('#numbers tr'), (row) => "
        "Array.from(row.cells, (one) => one.textContent.trim()))"
    )
    return rows[0][1:], {row[0]: row[1:] for row in rows[1:]}


def test_a_query_of_the_trends_leads_to_its_history(web, tab):
    page = tab(f"{web.address}/weeks/index.html")
    go_to(page, "news")
    page.press("Enter")
    page.wait("location.pathname.endsWith('query.html') && document.querySelector('#numbers td')")
    assert numbers(page) == (["news"], {"epoch 2": ["8.00% 7.80 to 8.20%"], "epoch 1": ["5.00% 4.80 to 5.20%"]})
    assert texts(page, "#compared") == ["news over time"]
    assert "https://news.example.com/" in texts(page, "#around bdi")
    assert page.run("document.querySelectorAll('#chart .mark').length") == 2
    assert "news" not in " ".join(web.asked[-8:])
    page.run("location.hash = '#q=half%20term'")
    page.wait("document.getElementById('compared').textContent === 'half term over time'")
    assert numbers(page)[1] == {"epoch 2": ["not listed"], "epoch 1": ["4.00% 3.80 to 4.20%"]}


def test_queries_are_compared_by_keyboard(web, tab):
    page = tab(f"{web.address}/weeks/query.html")
    assert numbers(page)[0] == ["weather leeds", "news"]  # the two most frequent, where nobody asks for others
    go_to(page, "compare-text")
    page.type("flu jab")
    page.press("Enter")
    page.wait("location.hash === '#q=flu%20jab' && document.querySelectorAll('.chip').length === 1")
    assert focused(page) == "compare-text"
    page.type("wether")
    page.wait("document.querySelector('#suggested button')")
    page.press("Tab")
    while focused(page) != "weather leeds":
        page.press("Tab")
    page.press("Enter")
    page.wait("document.querySelectorAll('.chip').length === 2")
    heads, rows = numbers(page)
    assert heads == ["flu jab", "weather leeds"]
    assert rows["epoch 1"] == ["2.00% 1.80 to 2.20%", "10.00% 9.80 to 10.20%"]
    assert page.run("document.querySelectorAll('#chart .trend').length") == 2
    assert page.run("document.querySelectorAll('#chart .band').length") == 2  # with their intervals
    told = page.tree()
    assert ("button", "Remove flu jab") in told
    assert ("image", "Compared over time") in told
    page.run("document.querySelector('.chip button').focus()")
    page.press("Enter")
    page.wait("document.querySelectorAll('.chip').length === 1")
    assert numbers(page)[0] == ["weather leeds"]
    # A query of an older release is found by its own text; one of none says so.
    page.type("half term")
    page.press("Enter")
    page.wait("document.querySelectorAll('.chip').length === 2")
    page.type("zzzzqqqq")
    page.press("Enter")
    page.wait("document.getElementById('compare-status').textContent.startsWith('No listed query')")
    page.run("location.hash = '#q=my%20secret'")
    page.wait("document.getElementById('compare-status').textContent.startsWith('Not listed in any release')")
    assert "secret" not in " ".join(web.asked)


def test_without_a_network_everything_works_after_one_visit(chromium, tmp_path):
    root = tmp_path / "web"
    root.mkdir()
    built(root / "site", weeks(), privacy={"task": task_of("krr")[1]})
    with static_server(root) as server:
        page = chromium.page()
        page.open(f"{server.address}/site/search.html")
        page.wait("document.getElementById('offline').textContent")
        server.close()  # nobody answers there any more
        page.offline()
        for name in ("index.html", "privacy.html", "releases.html", "", "search.html#q=wether"):
            page.open("about:blank")
            page.open(f"{server.address}/site/{name}")
            page.wait(READY[name.partition("#")[0] or "index.html"])
        page.wait("document.querySelector('#queries li')")
        assert texts(page, "#queries .hit bdi") == ["weather leeds"]
        assert texts(page, "#pages .hit bdi") == ["https://weather.example.org/leeds"]
        # The history of a query is kept once somebody has asked for it, and says so where it was not.
        page.open(f"{server.address}/site/query.html#q=news")
        page.wait("document.getElementById('compare-status').textContent.includes('there is no network')")
        missing = page.run("fetch('./nothing.json').then(() => 'there', () => 'no network')")
        assert missing == "no network"
        page.close()


def test_a_new_release_replaces_what_was_kept(chromium, tmp_path):
    root = tmp_path / "web"
    root.mkdir()
    site = built(root / "site", weeks()[:1])
    built(root / "other", weeks()[:1])
    for file in site.iterdir():
        os.utime(file, (1.7e9, 1.7e9))  # the server tells versions apart by seconds
    with static_server(root) as server:
        page = chromium.page()
        for name in ("other", "site"):
            page.open(f"{server.address}/{name}/search.html")
            page.wait("document.getElementById('offline').textContent")
        before = page.run("caches.keys()")
        assert len(before) == 2
        for file in site.iterdir():
            file.unlink()
        site.rmdir()
        built(site, weeks())
        page.open(f"{server.address}/site/index.html")
        assert "Epoch 2" in texts(page, ".lead")[0]  # fresh at once, not only after the next visit
        page.wait(f"caches.keys().then((names) => names.length === 2 && !names.includes({json.dumps(before[1])}))")
        # The site beside it under the same origin has kept its own.
        assert before[0] in page.run("caches.keys()")
        assert [name.split()[1] for name in before] == ["/other/", "/site/"]
        page.close()


def test_others_can_use_the_module(web, tab):
    page = tab(f"{web.address}/weeks/index.html")
    found = page.run(
        "import('./search.mjs').then(({ load }) => load('./index.json'))"
        ".then((index) => index.search('wether leds').queries[0].query)"
    )
    assert found == "weather leeds"
    refused = page.run(
        "import('./search.mjs').then(({ load }) => load('./manifest.json')).catch((error) => error.message)"
    )
    assert refused == "this is no search index of hushquery, version 1"


def randomised(page):
    page.wait("document.getElementById('try-bytes').textContent")
    return page.run(
        "[...document.querySelectorAll('.outcomes li')].map((row) => ["
        "row.querySelector('.label').textContent.trim(), Number.parseFloat(row.querySelector('.value').textContent),"
        "Number(row.querySelector('.value small').textContent.replace('expected ', ''))])"
    )


def test_what_leaves_the_device_is_shown_by_the_real_client(web, tab):
    configuration, _ = task_of("krr")
    page = tab(f"{web.address}/deep/tiny/privacy.html")
    go_to(page, "try-text")
    page.run("document.activeElement.select()")
    page.type("News")  # as a person writes it
    page.press("Enter")
    rows = randomised(page)
    label, count, expected = rows[0]
    assert label.startswith("news")
    p = float(configuration.oracle.p)
    assert expected == pytest.approx(100 * p, abs=0.06)
    # 100 answers; six standard deviations, which chance leaves once in 500 million runs.
    assert abs(count - 100 * p) < 6 * (100 * p * (1 - p)) ** 0.5
    *single, averaged = rows  # 11 cells: the own one, eight others, and two on average
    assert sum(row[1] for row in single) + 2 * averaged[1] == 100
    report = json.loads(page.run("document.getElementById('try-bytes').textContent"))
    assert set(report) == {"version", "id", "task", "configuration", "time", "payload"}
    assert f"named by {count} of 100 answers" in texts(page, "#try-status")[0]
    assert focused(page) == "try-text"
    # Nothing of it is kept, and nothing was sent.
    left = page.run(
        "new Promise((done) => { indexedDB.open('hushquery-demonstration').onsuccess = ({ target }) => {"
        "const all = target.result.transaction('state').objectStore('state').getAllKeys();"
        "all.onsuccess = () => done(all.result.length) } })"
    )
    assert left == 0
    assert page.run("indexedDB.databases().then((all) => all.map((one) => one.name))") == ["hushquery-demonstration"]
    assert not [path for path in web.asked if "reports" in path]


def test_a_value_that_is_not_listed_is_randomised_as_anything_else(web, tab):
    page = tab(f"{web.address}/deep/tiny/privacy.html")
    page.run("document.getElementById('try-text').value = 'my secret'")
    page.run("document.querySelector('#try button').click()")
    assert randomised(page)[0][0] == "anything else"
    assert "not on the list" in texts(page, "#try-status")[0]
    page.run("document.getElementById('try-text').value = 'weather leeds';")
    page.run("document.getElementById('try-text').dispatchEvent(new Event('input'))")
    # In the form that normalising gives them, as in the task.
    listed = ["https://weather.example.org", "https://weather.example.org/leeds", "any other page"]
    assert texts(page, "#try-page option") == listed


def test_a_task_that_samples_and_refuses(web, tab):
    page = tab(f"{web.address}/strict/privacy.html")
    page.run("document.querySelector('#try button').click()")
    rows = randomised(page)
    status = texts(page, "#try-status")[0]
    took = int(status.partition(" of ")[2].partition(" ")[0])
    # A quarter takes part; six standard deviations.
    assert abs(took - 25) < 26
    assert f"{100 - took} devices were not drawn" in status
    assert rows[0][2] == pytest.approx(took * float(task_of("krr", unknown="refuse")[0].oracle.p), abs=0.06)
    page.run("document.getElementById('try-text').value = 'my secret'; document.querySelector('#try button').click()")
    page.wait("document.getElementById('try-status').textContent.includes('takes no others')")
    assert page.run("document.getElementById('try-result').hidden")


def test_settings_and_bit_vectors_are_shown_too(web, tab):
    page = tab(f"{web.address}/hostile/privacy.html")
    assert not page.run("document.getElementById('try-page')")
    page.run("document.getElementById('try-text').value = 'light'; document.querySelector('#try button').click()")
    rows = randomised(page)
    assert rows[0][0] == "light"
    assert rows[0][2] == 50.0
    assert {row[0] for row in rows} == {"light", "dark", "system", "anything else"}


@pytest.mark.parametrize("name", PAGES)
def test_hostile_texts_stay_texts(web, tab, name):
    page = tab(f"{web.address}/hostile/{name}")
    if name == "query.html":
        for query in NASTY:
            page.run(f"location.hash = '#q=' + encodeURIComponent({json.dumps(query)}) + '&q=news'")
            shown = query.replace("\x00", "␀").replace("\x1b", "␛").replace("\x7f", "�")
            page.wait(f"document.querySelector('.chip bdi')?.textContent === {json.dumps(shown)}")
            assert numbers(page)[1]["release 2"][0].startswith("2.00%"), query
    if name == "search.html":
        for query in NASTY:
            page.run("document.getElementById('search-text').select()")
            page.type(query)
            shown = query.replace("\x00", "␀").replace("\x1b", "␛").replace("\x7f", "�")
            assert shown in texts(page, "#queries bdi"), query
        hrefs = page.run("[...document.querySelectorAll('#pages a')].map((one) => one.getAttribute('href'))")
        assert [href for href in hrefs if not href.startswith("http")] == []
    assert (
        page.run("document.querySelectorAll('img, iframe, object, script:not([src]), [onerror], [onload]').length") == 0
    )
    assert page.run("document.scripts.length") == 1


@pytest.mark.parametrize("dark", [False, True], ids=["day", "night"])
@pytest.mark.parametrize("name", PAGES)
def test_a_telephone_by_day_and_night(web, tab, name, dark):
    page = tab(f"{web.address}/deep/tiny/{name}", width=360, height=800, dark=dark)
    assert page.run("document.documentElement.scrollWidth") <= 360
    paper = page.run("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(18, 24, 30)" if dark else "rgb(255, 255, 255)")
    # All text stands out from what is behind it: the ratio that the WCAG asks for, over the colours the page uses.
    assert page.run(CONTRAST) >= 4.5
    small = page.run(
        "[...document.querySelectorAll('nav a, form button, form input, form select')]"
        ".filter((one) => one.offsetParent).map((one) => one.getBoundingClientRect().height)"
        ".filter((height) => height < 36)"
    )
    assert small == []


def test_the_policy_forbids_what_the_pages_do_not_need(web, chromium):
    page = chromium.page()
    page.open(f"{web.address}/weeks/index.html")
    for script in (
        "fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')",
        "new Promise((done) => { const one = document.createElement('script'); one.textContent = 'window.ran = 1';"
        "document.body.append(one); setTimeout(() => done(window.ran ? 'ran' : 'refused'), 50) })",
        "new Promise((done) => { const one = new Image();"
        "one.onload = () => done('loaded'); one.onerror = () => done('refused');"
        "one.src = 'data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA=' })",
    ):
        assert page.run(script) == "refused"
    assert len(page.problems) >= 3
    assert "frame-ancestors 'none'" in HEADERS["Content-Security-Policy"]
    page.close()


def test_pages_work_when_they_are_opened_as_files(chromium, tmp_path):
    site = built(tmp_path / "site", weeks())
    page = chromium.page()
    page.open(f"{(site / 'search.html').as_uri()}#q=wether")
    page.wait("document.querySelector('#pages li')")
    assert texts(page, "#queries .hit bdi") == ["weather leeds"]
    page.open((site / "index.html").as_uri())
    page.wait(READY["index.html"])
    assert len(shown_queries(page)) == 4
    page.open(f"{(site / 'query.html').as_uri()}#q=news&q=flu%20jab")
    page.wait("document.querySelectorAll('#chart .trend').length === 2")
    assert numbers(page)[1]["epoch 1"] == ["5.00% 4.80 to 5.20%", "2.00% 1.80 to 2.20%"]
    for link in page.run("[...document.querySelectorAll('nav a')].map((one) => one.href)"):
        assert Path(link.removeprefix("file://")).is_file()
    assert page.problems == []
    page.close()
