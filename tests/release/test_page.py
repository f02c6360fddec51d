"""The page, the card and the notebook: strangers wrote the queries, so nothing in them may be markup."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery.core.budget import format_epsilon
from hushquery.errors import UsageError
from hushquery.release.page import setting
from hushquery.templates import STYLE, Axis, macro, number, shown

TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "section", "h1", "h2", "h3", "p", "dl", "div"),
    *("dt", "dd", "figure", "figcaption", "ol", "ul", "li", "span", "svg", "rect", "line", "small", "bdi", "i"),
    *("b", "pre", "code", "wbr", "form", "label", "input", "button", "script", "a", "main"),
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "dir", "aria-hidden", "height", "width"),
    *("x", "y", "x1", "x2", "y1", "y2", "rx", "id", "for", "type", "role", "hidden", "autocomplete", "spellcheck"),
    *("autocapitalize", "maxlength", "aria-describedby", "aria-label", "data-csv", "href", "download"),
}
VOID = {"meta", "rect", "line", "wbr", "input"}
NASTY = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><b>",
    "&lt;b&gt;&amp;",
    "javascript:alert(1)",
    "<!--",
    "]]>",
    "a\0b\x1b[31m\r\n",
    "\u202eevil\u2066",
]


class Reader(HTMLParser):
    """What a browser would see: tags and attributes, whether they are balanced, and the text of keys."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.open, self.keys, self.text = set(), set(), [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)
        if tag == "bdi":
            assert ("dir", "auto") in attrs
            self.keys.append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "script" in self.open:  # test_explorer.py looks at these
            return
        self.text.append(data)
        if "bdi" in self.open:
            self.keys[-1] += data


def read(page):
    reader = Reader()
    reader.feed(str(page))  # not as Markup, which would escape what is added to it
    reader.close()
    assert reader.open == []
    return reader


def nasty_tables(table_of):
    links = [(query, f"https://example.com/{query}", 900) for query in NASTY[:4]]
    return {
        "queries": table_of["queries"](NASTY, range(900, 900 + len(NASTY))),
        "clicks": table_of["pairs"]("url", links),
        "reformulations": table_of["pairs"]("next_query", [(NASTY[0], NASTY[1], 44), (NASTY[2], NASTY[3], -7)]),
    }


BUDGET = {"population": "<b>", "epsilon": 8, "delta": "1e-4", "remaining_epsilon": "6"}


def test_a_page_has_no_markup_but_ours_and_loads_nothing(recipe, table_of):
    words = "<i onclick=x>" + "".join(NASTY)
    made = recipe(
        tables=nasty_tables(table_of),
        population=words,
        notes=(words,),
        parameters={f"so {words}": f"so {words}"},
        quick=True,
    ).make(meanings=dict.fromkeys(("queries", "clicks", "reformulations"), words), kind=words)
    page = made.page(budget=BUDGET)
    reader = read(page)
    assert reader.tags <= TAGS
    assert reader.attributes <= ATTRIBUTES
    assert not re.search(r"url|@import|http|//", STYLE)
    assert "default-src 'none'" in page
    assert {NASTY[0], NASTY[1], NASTY[2], f"https://example.com/{NASTY[3]}", "a␀b␛[31m␍␊"} <= set(reader.keys)
    assert "\0" not in page


@given(st.text())
def test_shown_text_is_text(text):
    reader = read(f"<p>{shown(text)}</p>")
    assert reader.tags == {"p"}
    printable = re.sub("[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef\ufff9-\uffff]", "", text)
    assert re.sub("[\u2400-\u241f\u2421\ufffd]", "", "".join(reader.text)) == re.sub(
        "[\u2400-\u241f\u2421]", "", printable
    )
    assert not re.search("[\x00-\x1f]", "".join(reader.text))


@given(st.text())
def test_a_key_keeps_to_itself(text):
    reader = read(macro("key")(text))
    assert reader.tags <= {"bdi", "i"}
    assert len("".join(reader.keys)) <= 161


def test_the_page_says_what_a_reader_needs(recipe):
    release = recipe().make(
        parameters={
            "queries_per_user": 20,
            "expected_false_reformulations": 5.0,
            "steps": ["lower case"],
            "cut": None,
            "on": True,
        }
    )
    text = " ".join("".join(read(release.page(budget=BUDGET)).text).split())
    promise = release.guarantees[0]
    for said in (
        "Search statistics of readers of example.org",
        "A count is: users, counted in at most a few queries",
        "whatever could be published, the chance that exactly this was published changes by a factor of at most",
        "made by noise alone: 5.",
        "numbers were dropped before counting",
        "It cost epsilon 0.25",
        "threshold 80",
        "queries per user",
        "After this release epsilon 6 is left at that delta",
        "25% of epsilon is spent",
        "hushquery verify FOLDER",
        "not forgers",
        "95% intervals",
        "2026-11-15",
    ):
        assert said in text, said
    assert f"All steps together cost epsilon {format_epsilon(promise.epsilon)} at delta 1e-05" in text
    assert "NOT PRIVATE" not in text
    assert "Budget left" not in release.page()


@pytest.mark.parametrize("budget", [{}, {**BUDGET, "users": 7}, {**BUDGET, "epsilon": "x"}])
def test_a_budget_to_show_is_whole(recipe, budget):
    with pytest.raises(UsageError):
        recipe().make().page(budget=budget)


def test_everything_shouts_where_the_noise_is_a_tests(recipe):
    release = recipe(test_noise=True).make()
    for text in (release.page(), release.card(), release._repr_html_(), repr(release)):
        assert "NOT PRIVATE" in text
    assert "Nothing is promised to anybody" in release.page()
    assert "Nothing is promised to anybody" in release.card()
    assert "A private release" not in release.page()
    for text in (release.page(), release.card()):
        assert text.index("NOT PRIVATE") < text.index("epsilon")


def weak(recipe, epsilon=1.0, delta=0.05):
    """Give a release whose promise is weak, and nothing else about it."""
    made = recipe(quick=True).make()
    return replace(made, guarantees=(replace(made.guarantees[0], epsilon=epsilon, delta=delta),))


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"delta": 0.05}, "Delta 5e-02 is above 1e-04: with this probability everything of a person may be published"),
        ({"epsilon": 20.0, "delta": 1e-6}, "Epsilon 20 is above 5: an attacker"),
    ],
)
def test_a_weak_promise_is_marked_wherever_the_release_is_read(recipe, numbers, said):
    release = weak(recipe, **numbers)
    for text in (release.page(), release.card(), release._repr_html_()):
        assert f"WEAK PROMISE. {said}" in text
    page, card = release.page(), release.card()
    assert '<p class="alarm">WEAK PROMISE' in page
    assert page.count('<dd class="weak">') == 1
    assert card.index("WEAK PROMISE") < card.index("## What is in it")
    for text in (page, card):
        assert "Rows may come from very few people, or from one" in text
        for untrue in ("A private release", "Private release of", "missing on purpose", "protect every single person"):
            assert untrue not in text
    strong = recipe(quick=True).make()
    strong = replace(strong, guarantees=(replace(strong.guarantees[0], epsilon=5.0, delta=1e-4),))
    for text in (strong.page(), strong.card(), strong._repr_html_()):
        assert "WEAK" not in text
        assert 'class="weak"' not in text


def test_beyond_a_million_the_page_promises_no_million(recipe):
    page = weak(recipe, epsilon=20.0).page()
    assert "the probability of any result by at most a factor of 10^9." in page
    assert "There is a chance of at most 1 in 20 that this fails" in page


def test_a_pair_that_may_be_noise_alone_is_marked(recipe, table_of):
    rows = [("news", "weather leeds", 90), ("weather leeds", "news", 20)]  # intervals reach 25.5 below
    tables = {"queries": table_of["queries"](), "reformulations": table_of["pairs"]("next_query", rows)}
    given = {"tables": tables, "parameters": {"expected_false_reformulations": 0.96}, "quick": True}
    page = recipe(**given).make().page()
    drawn = page[page.index("<h2>Reformulations") :]
    sure, doubtful = drawn[drawn.index("<figure>") :].split('<span class="label">')[1:3]
    assert "noise alone" not in sure
    assert sure.endswith("<li class=doubtful>")
    assert "may be noise alone" in doubtful
    assert ".doubtful .drawn { opacity" in STYLE
    caption = re.search("<figcaption>(.*?)</figcaption>", drawn)[1]
    assert "made by noise alone: 0.96." in caption
    card = recipe(**given).make().card()
    told = card[card.index("### `reformulations.parquet`") : card.index("## What protects people")]
    assert "made by noise alone: 0.96. The intervals of 1 of the 2 rows reach 0: these may be noise alone." in told


def test_a_list_without_counts_has_no_chart(recipe):
    keys = [f"query {i:03}" for i in range(120)]
    release = recipe(tables={"queries": pa.table({"query": keys})}, quick=True).make()
    reader = read(release.page())
    assert "rect" not in reader.tags
    assert reader.keys[1:] == keys[:100]
    assert "A row is" in "".join(reader.text)
    assert "What a row is" in release.card()
    assert "`count`" not in release.card()
    assert "interval" not in release.card()


def test_a_table_without_rows_says_so(recipe, table_of):
    tables = {
        "queries": table_of["queries"]([]),
        "clicks": table_of["pairs"]("url", []),
        "reformulations": table_of["pairs"]("next_query", []),
    }
    text = "".join(read(recipe(tables=tables).make().page()).text)
    for name in tables:
        assert f"No {name} reached the threshold." in text


def test_one_row_is_one_and_all_rows_are_all(recipe, table_of):
    one = {"queries": table_of["queries"](["news"], [90]), "clicks": table_of["pairs"]("url", [("news", "a", 90)])}
    one["reformulations"] = table_of["pairs"]("next_query", [("news", "news", 90)])
    text = " ".join("".join(read(recipe(tables=one).make().page()).text).split())
    for said in ("query1", "click1", "reformulation1", "The only query.", "The only reformulation.", "of 1 pair."):
        assert said in text, said
    assert not re.search(r"\b1 (queries|rows|pairs|clicks|reformulations)\b|[a-z]+s1\b", text)
    two = {"queries": table_of["queries"](["news", "weather"], [90, 80])}
    assert "All 2 queries." in "".join(read(recipe(tables=two).make().page()).text)


def test_steps_with_commas_are_a_list(recipe):
    steps = ["queries without digits, names and <b>", "lower case"]
    made = recipe().make(parameters={"log_steps": steps})
    assert "<dd><ul><li>queries without digits, names and &lt;b&gt;</li><li>lower case</li></ul></dd>" in made.page()
    assert "- log steps:\n  - queries without digits, names and \\<b\\>\n  - lower case\n" in made.card()


@given(st.text())
def test_an_address_breaks_at_its_joints_and_stays_the_same_text(text):
    assert read(macro("address")(text)).keys == read(macro("key")(text)).keys
    assert macro("address")("https://example.org/a-long/path?q=b") == (
        '<bdi dir="auto">https://example.org/<wbr>a-long/<wbr>path?<wbr>q=<wbr>b</bdi>'
    )


def test_the_top_of_a_large_table_is_shown_and_its_clicks(recipe, table_of):
    keys = [f"q{i:04}" for i in range(1000)]
    rows = [(key, f"https://example.com/{i}", 950) for key in keys for i in range(7)]
    tables = {"queries": table_of["queries"](keys, range(1900, 900, -1)), "clicks": table_of["pairs"]("url", rows)}
    reader = read(recipe(tables=tables, quick=True).make().page())
    assert [key for key in reader.keys if key.startswith("q")] == keys[:25] + keys[:8]
    text = "".join(reader.text)
    assert "The 25 queries with the highest counts, of 1,000. All are in queries.parquet; hushquery show" in text
    assert "All are in clicks.parquet; hushquery show FOLDER --limit 7000 prints them." in text
    assert len([key for key in reader.keys if key.startswith("https")]) == 8 * 5


def test_clicks_are_shown_also_where_the_top_queries_have_none(recipe, table_of):
    tables = {"clicks": table_of["pairs"]("url", [("only here", "https://example.com/", 90)])}
    assert "only here" in read(recipe(tables=tables).make().page()).keys


def bars(*rows):
    given = [dict(zip(("query", "count", "low", "high"), row, strict=True)) for row in rows]
    return str(macro("bars")(given, Axis.of(given, "count"), "count", caller=lambda row: row["query"]))


def test_bars_lie_where_their_numbers_are():
    drawn = bars(("a", 50, 25, 75), ("b", -25, -25, 0))
    # The axis runs from -25 to 75, so zero is at a quarter.
    assert 'x="25.00%" y="3" width="50.00%"' in drawn
    assert 'x1="50.00%" x2="100.00%"' in drawn
    assert 'x="0.00%" y="3" width="25.00%"' in drawn
    assert "−25" in drawn
    flat = bars(("a", 0, 0, 0))
    assert 'width="0.00%"' in flat


@pytest.mark.parametrize(
    ("value", "said"), [(1234567, "1,234,567"), (-0.2, "0"), (-1234, "−1,234"), (-0.6, "−1"), (2**62, f"{2**62:,}")]
)
def test_numbers_as_people_read_them(value, said):
    assert number(value) == said


def test_words_become_paragraphs_and_lists():
    assert macro("words")("a <b>\n\nc:\n  d -> e\n  f\ng").split("\n")[:-1] == [
        "<p>a &lt;b&gt;</p>",
        "<p>c:</p>",
        "<ul><li>d → e</li><li>f</li></ul>",
        "<p>g</p>",
    ]


def test_settings_as_people_read_them():
    assert setting({"a": [None, True, False], "b": 3, "c": [], "d": "23/10"}) == "a none, yes, no, b 3, c none, d 23/10"
    assert setting("55834574848/4294967296") == "about 13"
    assert setting(f"1/{10**300}") == f"1/{10**300}"
    assert setting("123456789012/0") == "123456789012/0"
    assert [setting(value) for value in (0.5, 3.0, 0.9638621058683867)] == ["0.5", "3", "about 0.9639"]
    assert setting(1800.0, "session_gap") == "1800 seconds"


# ---- the card ------------------------------------------------------------------------------------------------


def test_the_card_says_what_a_reader_needs(recipe):
    release = recipe().make()
    card = release.card()
    for said in (
        "# Search statistics of readers of example.org",
        "### `clicks.parquet`: 2 rows, each a query and a page that people clicked on after it",
        "| `next_query` | text |",
        "| `count` | whole number | the noisy count; it may be below zero",
        "What a count is: users, counted in at most a few clicks",
        "What few people did is missing on purpose",
        "must not be used to look for individual people",
        "given that the count was",
        "- selector: gaussian",
        "- epsilon: 23/10",
        'hq.Release.load("FOLDER")',
        "FROM 'FOLDER/queries.parquet'",
        "not forgers",
    ):
        assert said in card, said
    shown = card.replace("\\", "")
    for line in release.guarantees[0].in_words().splitlines():
        assert " ".join(line.replace("->", "→").split()) in shown, line
    assert "\\>" not in card
    assert re.search("\n> 1. [a-z]", card)  # a list of its own, not an escaped number in one


@settings(deadline=None, max_examples=50)
@given(st.text(min_size=1))
def test_the_words_of_the_steward_make_no_markdown(recipe, words):
    card = recipe(population=words, notes=(words,), quick=True).make().card()
    plain = recipe(quick=True).make().card()
    headings = [line for line in card.splitlines() if re.match("#{1,3} ", line)]
    assert len(headings) == len([line for line in plain.splitlines() if re.match("#{1,3} ", line)])
    assert not re.search(r"(?<!\\)<", card)
    assert card.count("```") == plain.count("```") == 6


def test_the_population_is_text_wherever_the_card_names_it(recipe):
    card = recipe(population="<b>a\n```\n# Free\n1. [x](https://example.org)\n- y\n<script>").make().card()
    assert "<b>" not in card
    assert "<script>" not in card
    assert not re.search(r"(?m)^[> ]*(# Free|1[.] \\?\[|- y|\[)|^>.*```", card)
    assert "\\<script\\>" in card


# ---- the notebook --------------------------------------------------------------------------------------------


def test_a_notebook_shows_the_promise_and_the_first_rows(recipe, table_of):
    tables = {"queries": table_of["queries"]([*NASTY, "and one more"], range(900, 911))}
    release = recipe(tables=tables, quick=True).make()
    reader = read(release._repr_html_())
    assert reader.tags == {"p", "b", "table", "caption", "tr", "th", "td", "bdi"}
    assert len(reader.keys) == 10
    text = "".join(reader.text)
    assert release.guarantees[0].summary() in text
    assert "queries: 11, the first 10" in text
