"""The list on a release's own page in a real Chromium: all queries, found, opened and downloaded, and always text."""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import io
import json
import re
from html.parser import HTMLParser

import pyarrow as pa
import pytest

from chromium import CONTRAST, browser
from hushquery.release import page as module
from hushquery.release.manifest import NUMBERS
from hushquery.release.page import SCRIPT, SCRIPT_HASH, compared, explorer
from hushquery.templates import macro
from small_releases import private_hybrid, release_of, shares_of, whole_release

NASTY = [
    '</script><script>alert("x")</script>',
    "</script><img src=x onerror=alert(1)>",
    "]]>",
    "a\u2028b",
    "\u202eevil",
    "&lt;",
    "=1+1",
    'say "hi", twice',
    "__proto__",
]
RARE = "zzyzx road"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture
def tab(chromium, tmp_path):
    """Open the page of a release from its folder; nothing may go wrong in it, and it may load nothing else."""
    opened = []

    def make(release, **options):
        folder = release.save(tmp_path / f"release{len(opened)}")
        page = chromium.page(**options)
        opened.append(page)
        page.open((folder / "report.html").as_uri())
        page.wait("!document.getElementById('explorer').hidden")
        return page

    yield make
    for page in opened:
        assert page.problems == []
        assert [address for address in page.requests if not address.endswith("report.html")] == []
        page.close()


def listed(page):
    return page.run("[...document.querySelectorAll('#explorer-list .label')].map((one) => one.textContent)")


def status(page):
    return page.run("document.getElementById('explorer-status').textContent")


def search(page, text):
    page.run("document.getElementById('explorer-text').focus(); document.getElementById('explorer-text').select()")
    page.type(text)
    return listed(page)


def elements(page):
    return page.run("document.getElementsByTagName('*').length")


def focused(page):
    return page.run("document.activeElement.textContent.trim() || document.activeElement.id")


def many(number=20_000):
    """Give a release of many queries, of which the last is rare."""
    counts = {f"query {place:05} about {place % 97}": 90_000 - place for place in range(number - 1)}
    clicks = {(query, f"https://example.org/{query[6:11]}"): 500 for query in list(counts)[:1000]}
    return release_of({**counts, RARE: 41}, clicks)


def test_twenty_thousand_queries_make_no_more_elements_than_fifty(tab):
    page = tab(many())
    assert status(page) == "1 to 50 of 20,000 queries"
    assert len(listed(page)) == 50
    whole = elements(page)
    assert whole < 2000
    assert search(page, "zzyzx") == [RARE]
    assert status(page) == "1 query found"
    search(page, "about 41")
    assert len(listed(page)) == 50
    assert elements(page) <= whole
    page.run("document.getElementById('explorer-text').select()")
    page.press("Backspace")
    page.run("document.getElementById('explorer-text').value = ''")
    page.run("document.getElementById('explorer-text').dispatchEvent(new Event('input'))")
    page.run("document.getElementById('explorer-next').focus()")
    page.press("Enter")
    assert status(page) == "51 to 100 of 20,000 queries"
    assert listed(page)[0] == "query 00050 about 50"
    page.run("for (let i = 0; i < 398; i++) document.getElementById('explorer-next').click()")
    assert status(page) == "19,951 to 20,000 of 20,000 queries"
    assert listed(page)[-1] == RARE
    assert focused(page) == "Back"  # the other button can't be pressed any more
    assert elements(page) <= whole


@pytest.mark.parametrize(
    ("typed", "query"),
    [
        ("weather leeds", "weather leeds"),
        ("WEATHER   Léeds", "weather leeds"),
        ("waether leds", "weather leeds"),
        ("leeds weather", "weather leeds"),
        ("fear of fl", "fear of flying"),
        ("tickets", "leeds united tickets"),
        ("newz", "news"),
    ],
)
def test_it_finds_what_was_meant(hybrid, typed, query):
    assert search(hybrid, typed)[0] == query
    assert "found" in status(hybrid)


@pytest.fixture(scope="module")
def hybrid(chromium, tmp_path_factory):
    """The page of a blend, opened once."""
    page = chromium.page()
    page.open((private_hybrid().save(tmp_path_factory.mktemp("hybrid") / "r") / "report.html").as_uri())
    page.wait("!document.getElementById('explorer').hidden")
    return page


def test_nothing_typed_and_nothing_found(hybrid):
    everything = search(hybrid, "   ")
    assert len(everything) == 9
    assert search(hybrid, "zzzzqqqq") == []
    assert status(hybrid).startswith("No listed query is near to this text.")
    assert search(hybrid, "w" * 5000) == []


def rows(page, place):
    return page.run(
        f"[...document.querySelectorAll('#explorer-list > li')[{place}].querySelectorAll('h3, .opened p, .opened li')]"
        ".map((one) => one.textContent)"
    )


def test_a_query_is_opened_by_keyboard_with_its_pages_and_next_searches(tab):
    page = tab(whole_release())
    search(page, "weather leeds")
    page.press("Tab")
    assert focused(page).startswith("weather leeds")
    page.press("Enter")
    page.wait("document.querySelector('.opened')")
    found = rows(page, 0)
    assert found[0] == "Pages that people clicked on"
    assert found[1].startswith("https://weather.example.org/leeds")
    assert "What people searched for next" in found
    page.press("Enter")
    assert not page.run("document.querySelector('#explorer-list details').open")
    assert search(page, "weather")[0] == "weather"
    page.run("document.querySelector('#explorer-list details').open = true")
    page.wait("document.querySelector('.opened')")
    assert any("may be noise alone" in row for row in rows(page, 0))  # it was counted -4 times
    # An interval is cut at zero, and only what has something to show can be opened.
    assert not page.run("[...document.querySelectorAll('.opened small')].some((one) => one.textContent.includes('−'))")
    search(page, "")
    openable, listed = (
        page.run(f"document.querySelectorAll('#explorer-list {w}').length") for w in ("summary", "> li")
    )
    assert 0 < openable < listed
    assert f"{openable} of the queries can be opened" in page.run("document.body.innerText")
    told = page.tree()
    assert ("searchbox", "Search all queries") in told
    assert ("button", "Download queries as CSV") in told
    assert ("link", "Download queries as Parquet") in told


def test_shares_and_searches_without_a_click(hybrid):
    search(hybrid, "fear of flying")
    hybrid.run("document.querySelector('#explorer-list details').open = true")
    hybrid.wait("document.querySelector('.opened')")
    assert rows(hybrid, 0)[1] == "no click1.31% 1.01 to 1.61%"
    assert "1.31%" in hybrid.run("document.querySelector('#explorer-list .value').textContent")


def test_a_list_without_counts_and_without_clicks_has_nothing_to_open(tab):
    page = tab(release_of(["news", "rain"]))
    assert listed(page) == ["news", "rain"]
    assert page.run("document.querySelectorAll('#explorer-list details, #explorer-list svg').length") == 0
    assert search(page, "newz") == ["news"]


def hostile():
    clicks = {(query, query): 90 for query in NASTY}
    follows = {(query, NASTY[1]): 90 for query in NASTY}
    return release_of({query: 900 + place for place, query in enumerate(NASTY)}, clicks, follows)


def test_hostile_texts_stay_texts(tab):
    page = tab(hostile())
    page.run("document.querySelectorAll('#explorer-list details').forEach((one) => { one.open = true })")
    page.wait(f"document.querySelectorAll('.opened').length === {len(NASTY)}")
    assert set(listed(page)) == set(NASTY)
    shown = page.run("[...document.querySelectorAll('.opened bdi')].map((one) => one.textContent)")
    assert set(shown) == set(NASTY)
    assert page.run("document.querySelectorAll('img, iframe, object, [onerror], [onload]').length") == 0
    assert page.run("document.scripts.length") == 2
    for query in NASTY:
        assert query in search(page, query)


def test_csv_is_the_table(tab, chromium, tmp_path):
    release = hostile()
    chromium.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path / "down"))
    page = tab(release)
    for name, table in release.tables.items():
        page.run(f"document.querySelector('[data-csv={name}]').click()")
        file = tmp_path / "down" / f"{name}.csv"
        page.until(file.exists, "the download")
        page.until(lambda file=file: file.read_bytes().endswith(b"\r\n"), "all of it")
        head, *found = csv.reader(io.StringIO(file.read_bytes().decode(), newline=""))
        assert head == table.column_names
        keys = [column for column in head if table.schema.field(column).type == pa.string()]
        expected = [[row[c] if c in keys else float(row[c]) for c in head] for row in table.to_pylist()]
        assert [[v if c in keys else float(v) for c, v in zip(head, row, strict=True)] for row in found] == expected
    links = page.run("[...document.querySelectorAll('.downloads a')].map((one) => one.getAttribute('href'))")
    assert links == [f"{name}.parquet" for name in release.tables]
    assert all((tmp_path / "release0" / link).is_file() for link in links)


@pytest.mark.parametrize("dark", [False, True], ids=["day", "night"])
def test_a_telephone_by_day_and_night(tab, dark):
    page = tab(whole_release(), width=360, height=800, dark=dark)
    page.run("document.querySelectorAll('#explorer-list details').forEach((one) => { one.open = true })")
    page.wait("document.querySelector('.opened')")
    assert page.run("document.documentElement.scrollWidth") <= 360
    assert page.run(CONTRAST) >= 4.5


# ---- what the page is made of ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page():
    return private_hybrid().page()


def embedded(page):
    return re.search(r'<script type="application/json" id="explorer-data">(.*?)</script>', page, re.DOTALL)[1]


def test_data_can_not_end_its_element_and_comes_back_whole():
    data = embedded(hostile().page())
    assert not re.search("[<>&\u2028\u2029]", data)
    assert set(json.loads(data)["tables"]["queries"]["query"]) == set(NASTY)


class Counter(HTMLParser):
    """How many scripts a browser would see, and which attributes."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.attributes, self.tags, self.links = [], set(), set(), []
        self.feed(str(text))

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value for name, value in attrs if name in ("href", "src")]
        if tag == "script":
            self.scripts.append(dict(attrs))


def test_the_policy_lets_this_script_run_and_no_other(page):
    for text in (page, hostile().page()):
        seen = Counter(text)
        assert seen.scripts == [{"type": "application/json", "id": "explorer-data"}, {}]
        assert not {name for name in seen.attributes if name.startswith("on") or name in ("src", "style")}
        assert set(seen.links) <= {f"{name}.parquet" for name in ("queries", "clicks", "reformulations", "records")}
        assert f"<script>{SCRIPT}</script>" in text
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    assert f"sha256-{digest}" == SCRIPT_HASH
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src '{SCRIPT_HASH}'; form-action 'none'" in page
    code = SCRIPT.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|fetch|XMLHttp|import|https?:|//\w", code)


def test_a_release_without_queries_has_no_script():
    for made in (shares_of({}, {}), release_of(None, {("a", "https://a.example/"): 5})):
        assert "<script" not in made.page()
        assert "script-src" not in made.page()


def test_a_longer_list_is_cut_and_says_so(monkeypatch):
    monkeypatch.setattr(module, "_EMBEDDED", 20)
    made = release_of({f"query {i:05}": 500 - i for i in range(30)}, {("query 00000", "https://a.example/"): 90})
    box = str(macro("explorer")(explorer(made.tables), caller=lambda: ""))
    assert "This page has the 20 most frequent of 30." in box
    assert "Tables of more than 20 rows are only in the Parquet files." in box
    assert len(json.loads(embedded(box))["tables"]["queries"]["query"]) == 20
    assert re.findall('data-csv="([a-z]+)', box) == ["clicks"]


def test_the_page_says_what_a_reader_needs(page):
    text = " ".join(html.unescape(re.sub("<[^>]+>", "", re.sub("(?s)<(script|style).*?</\\1>", "", page))).split())
    for said in (
        "For opt-in readers of example.org (an operator holds their data)",
        "For other readers of example.org (nobody is trusted with their data)",
        "each has a promise of its own",
        "64.35%",
        "of all records are not listed",
        "A share is: the share of all records that have the query",
        "11.12% 10.59 to 11.65%",
        "Opt-in users against clients",
        "Of 10 tested records, 1 is more than 3 standard errors apart",
        "opt-in 8.30% · clients 5.36%",
        "5.93% apart",
        "fear of flying no click",
        "the operator who holds the data is trusted".capitalize(),
        "Nobody is trusted: the answer was randomised before it left the device.",
        "Shares have noise",
    ):
        assert said in text, said
    assert page.count('<b class="apart">') == 1
    assert "A count is" not in text


def test_marks_lie_where_their_numbers_are(page):
    # The axis ends at the opt-in estimate of "weather leeds" with two standard errors, 9.4% + 1%, and begins at the
    # lowest line, 0.58% - 1%.
    least, most = 0.0058 - 0.01, 0.094 + 0.01
    place = 100 * (0.083 - least) / (most - least)
    assert f'<circle class="optin" cx="{place:.2f}%" cy="8" r="3.5"/>' in page
    place = 100 * (0.0536 - least) / (most - least)
    assert f'<circle class="client" cx="{place:.2f}%" cy="16" r="3.5"/>' in page
    assert f'width="{100 * 0.0593 / (most - least):.2f}%" height="20"' in page


def test_keys_of_records_are_text_too():
    numbers = {name: [0.1] * len(NASTY) for name in NUMBERS["estimates"]}
    tables = {"records": pa.table({"query": NASTY, "url": NASTY, **numbers})}
    seen = Counter(macro("comparison")(compared(tables), "so"))
    assert seen.tags <= {
        "figure",
        "wbr",
        "figcaption",
        "p",
        "span",
        "ol",
        "li",
        "small",
        "bdi",
        "svg",
        "rect",
        "line",
        "circle",
    }
    assert len(compared(tables)["rows"]) == len(NASTY)
