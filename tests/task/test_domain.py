"""The domain: which cell a value falls into, and that a device writes it as an engine would."""

from __future__ import annotations

import ibis
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hushquery.errors import DataError, UsageError
from hushquery.log.normalise import normal_query as engine_query
from hushquery.log.normalise import normal_url as engine_url
from hushquery.task import Domain, GroupedDomain
from hushquery.task.domain import LONGEST, UnknownValue, normal_query, normal_url

RECORDS = [["Weather Leeds", "https://weather.example"], ["news", ""], ["weather leeds", "http://other.example/a?b"]]


def searches(*, wildcard: bool = True) -> Domain:
    return Domain.read("searches", RECORDS, wildcard=wildcard)


@pytest.mark.parametrize(
    ("query", "url", "cell"),
    [
        ("weather leeds", "https://weather.example", 0),
        ("  WEATHER\tLeeds ", "HTTPS://Weather.example:443/#now", 0),
        ("weather leeds", "http://other.example/a?b", 2),
        ("weather leeds", None, 3),
        ("news", None, 1),
        ("news", "-", 1),
        ("news", "https://weather.example", 3),
        ("something private", "https://weather.example", 3),
        (None, None, 3),
        ("", "", 3),
        ("x" * (LONGEST + 1), None, 3),
        ("\ud800", None, 3),
        ("news\0", None, 1),
    ],
)
def test_cells(query: str | None, url: str | None, cell: int) -> None:
    assert len(searches()) == 4
    assert searches().cell(query, url) == cell


def test_unknown_values_are_refused_without_being_shown() -> None:
    with pytest.raises(UnknownValue) as caught:
        searches(wildcard=False).cell("my secret disease", "https://secret.example")
    assert isinstance(caught.value, DataError)
    assert "secret" not in str(caught.value)
    with pytest.raises(UnknownValue):
        searches(wildcard=False).cell(None)
    with pytest.raises(UsageError, match="is text"):
        searches().cell(7)


def test_a_setting_has_no_url() -> None:
    theme = Domain.read("setting", ["dark", "Caf\u0065\u0301"], wildcard=True)
    assert [theme.cell(value) for value in ("dark", "Dark", "Caf\xe9", " dark ", "light")] == [0, 2, 1, 0, 2]
    with pytest.raises(UsageError, match="only searches have a URL"):
        theme.cell("dark", "https://example.org")


def test_labels() -> None:
    assert [searches().label(cell) for cell in range(4)] == [
        "weather leeds\thttps://weather.example",
        "news",
        "weather leeds\thttp://other.example/a?b",
        "*",
    ]
    with pytest.raises(UsageError):
        searches().label(4)


@pytest.mark.parametrize(
    ("kind", "items"),
    [
        ("setting", ["dark", "*"]),
        ("setting", ["dark", " * "]),
        ("searches", [["news", ""], ["*", ""]]),
        ("searches", [["news", ""], ["*", "https://a.example"]]),
        ("searches", [["maps", ""], ["news", "*"]]),
        ("searches", [["maps", ""], ["news", "*/"]]),
    ],
)
@pytest.mark.parametrize("wildcard", [True, False])
def test_the_name_of_everything_else_is_no_value(kind: str, items: list[object], wildcard: bool) -> None:
    with pytest.raises(UsageError, match=r"entry 2 of the domain is '\*', which stands for everything else"):
        Domain.read(kind, items, wildcard=wildcard)


@given(st.lists(st.tuples(st.text("ab*\t ", max_size=3), st.text("ab*/\t ", max_size=3)), max_size=8))
@settings(max_examples=200, deadline=None)
def test_labels_are_all_different(items: list[tuple[str, str]]) -> None:
    try:
        domain = Domain.read("searches", items, wildcard=True)
    except UsageError:
        return
    assert len(set(domain.labels())) == len(domain)
    grouped = GroupedDomain.of(domain)
    assert len(set(grouped.labels())) == len(grouped)


@pytest.mark.parametrize(
    "items",
    [
        [],
        [["a"]],
        [["a", "b", "c"]],
        [["a", 1]],
        ["a"],
        [["", "b"]],
        [["a", ""], ["A ", "-"]],
        [["\ud800", ""]],
        [None],
    ],
)
def test_no_list_of_searches(items: list[object]) -> None:
    with pytest.raises(UsageError):
        Domain.read("searches", items, wildcard=True)


@given(st.lists(st.text(max_size=8), max_size=8))
@settings(max_examples=100, deadline=None)
def test_every_listed_value_has_its_own_cell(values: list[str]) -> None:
    try:
        domain = Domain.read("setting", values, wildcard=True)
    except UsageError:
        return
    assert [domain.cell(value) for value in values] == list(range(len(values)))
    assert domain == Domain.read("setting", [one for (one,) in domain.records], wildcard=True)


@pytest.fixture(scope="module")
def engine() -> ibis.BaseBackend:
    return ibis.duckdb.connect()


# Letters whose capitals are special in some way, blanks, and whatever is in a URL.
LETTERS = "aZé É ß ẞ İ ı Σ ς σ ǅ ﬁ Ω Å \u00c5 A\u030a \u0130 \u1e9e \u200b\u3000\ufeff\t\n\0 .:/#?@-[]%80443httpHTTPS"


@given(st.lists(st.text(st.sampled_from(LETTERS), max_size=12), min_size=20, max_size=60))
@settings(max_examples=12, deadline=None)
@example(
    ["https://User:pw@Host.Example:443/A#b", "HTTP://h.example:80?x", "www.Example.org/", "a b\n", "x#\n", "-", " - "]
)
def test_a_device_and_an_engine_agree(engine: ibis.BaseBackend, texts: list[str]) -> None:
    texts = [text.replace("\0", "") for text in texts]  # an engine's text may end there; readers drop it before
    table = ibis.memtable(pa.table({"t": texts, "n": list(range(len(texts)))}))
    expression = table.select("n", q=engine_query(table.t, "duckdb"), u=engine_url(table.t, "duckdb")).order_by("n")
    rows = engine.to_pyarrow(expression).to_pylist()
    assert [normal_query(text) for text in texts] == [row["q"] for row in rows]
    assert [normal_url(text) for text in texts] == [row["u"] or "" for row in rows]
