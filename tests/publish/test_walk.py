"""The absorbing walk against a dense linear solve; keywords and classes on top of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery.errors import DataError, UsageError
from hushquery.publish import classify, keywords
from hushquery.publish.keywords import absorbing_walk, read_labels
from hushquery.publish.tables import click_graph
from small_releases import QUERIES, release_of, whole_release


def dense(weights, query_seeds, url_seeds, alpha):
    """Solve both equations at once, as written, by Gaussian elimination."""
    n, m = weights.shape
    clipped = np.maximum(weights, 0)
    equations = np.eye(n + m)
    right = np.zeros(n + m)
    for q in range(n):
        if q in query_seeds:
            right[q] = 1
        elif clipped[q].sum() > 0:
            equations[q, n:] -= (1 - alpha) * clipped[q] / clipped[q].sum()
    for u in range(m):
        if u in url_seeds:
            right[n + u] = 1
        elif clipped[:, u].sum() > 0:
            equations[n + u, :n] -= (1 - alpha) * clipped[:, u] / clipped[:, u].sum()
    return np.linalg.solve(equations, right)[:n]


def as_release(weights):
    n, m = weights.shape
    clicks = {
        (f"q{q}", f"https://example.org/{u}"): int(weights[q, u]) for q in range(n) for u in range(m) if weights[q, u]
    }
    return release_of({f"q{q}": 10 for q in range(n)}, clicks)


def in_order(graph, values, n):
    """A walk's result in the order of q0, q1, ..."""
    return [values[graph.by_query[f"q{q}"]] for q in range(n)]


@pytest.mark.parametrize("alpha", [0.001, 0.1, 0.5, 0.9])
def test_the_walk_solves_its_equations(alpha):
    weights = np.random.default_rng(7).integers(-5, 30, (12, 9)) * (np.random.default_rng(8).random((12, 9)) < 0.3)
    graph = click_graph(as_release(weights), "")
    urls = [u for u in range(9) if f"https://example.org/{u}" in graph.by_url]
    seeds, url_seeds = {0, 5}, {urls[1]}
    found = absorbing_walk(
        graph,
        {graph.by_query[f"q{q}"]: 0 for q in seeds},
        {graph.by_url[f"https://example.org/{u}"]: 0 for u in url_seeds},
        alpha,
    )
    np.testing.assert_allclose(in_order(graph, found[:, 0], 12), dense(weights, seeds, url_seeds, alpha), atol=2e-9)


@settings(max_examples=60)
@given(st.data())
def test_the_walk_solves_its_equations_on_any_graph(data):
    n, m = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    numbers = data.draw(st.lists(st.integers(-3, 9), min_size=n * m, max_size=n * m))
    weights = np.array(numbers).reshape(n, m)
    seeds = data.draw(st.sets(st.integers(0, n - 1), max_size=2))
    alpha = data.draw(st.floats(0.01, 0.99))
    graph = click_graph(as_release(weights), "")
    found = absorbing_walk(graph, {graph.by_query[f"q{q}"]: 0 for q in seeds}, {}, alpha)
    np.testing.assert_allclose(in_order(graph, found[:, 0], n), dense(weights, seeds, set(), alpha), atol=2e-9)


def test_one_step_by_hand():
    # q1 clicks 3 of 4 times on the seed URL, and else where only q1 clicks.
    release = release_of({"q1": 9}, {("q1", "https://example.org/a"): 3, ("q1", "https://example.org/b"): 1})
    # P(q) = .9 (3/4 + 1/4 P(b)), P(b) = .9 P(q)
    expected = 0.9 * 0.75 / (1 - 0.9 * 0.25 * 0.9)
    (row,) = keywords(release, "https://example.org/a", alpha=0.1).keywords
    assert row.probability == pytest.approx(expected, abs=1e-9)
    assert (row.query, row.count) == ("q1", 9)


def test_keywords_stay_in_the_topic():
    found = keywords(whole_release(), ["weather leeds"], gamma=0.1)
    names = [row.query for row in found.keywords]
    assert set(names) == {"waether leeds", "weather", "weather london"}
    assert names[0] == "waether leeds"
    assert "weather leeds" not in names
    assert [row.probability for row in found.keywords] == sorted((r.probability for r in found.keywords), reverse=True)
    assert all(row.count == QUERIES[row.query] for row in found.keywords)


@pytest.mark.parametrize("seed", ["https://football.example.org/leeds", "football.example.org/leeds", "LEEDS  united"])
def test_a_seed_may_be_a_url_or_a_query_as_people_write_them(seed):
    assert "leeds united tickets" in [row.query for row in keywords(whole_release(), seed).keywords]


def test_gamma_cuts_and_limit_limits():
    release = whole_release()
    every = keywords(release, "weather", gamma=0).keywords
    cut = every[1].probability
    assert len(keywords(release, "weather", gamma=cut - 1e-6).keywords) == 2
    assert keywords(release, "weather", gamma=0, limit=1).keywords == every[:1]
    assert all(row.probability > 0 for row in every)


def test_unknown_seeds_are_named_and_lead_nowhere():
    found = keywords(whole_release(), ["nowhere", "leeds united"])
    assert found.unknown == ("nowhere",)
    assert found.keywords
    assert keywords(whole_release(), "nowhere").keywords == ()


@pytest.mark.parametrize(
    "options",
    [{"alpha": 0}, {"alpha": 1}, {"alpha": float("nan")}, {"alpha": -1}, {"alpha": "x"}, {"gamma": 2}, {"limit": 0}],
)
def test_parameters_that_mean_nothing_are_refused(options):
    with pytest.raises(UsageError):
        keywords(whole_release(), "weather", **options)


def test_no_seed_and_no_clicks_are_refused():
    with pytest.raises(UsageError, match="seed"):
        keywords(whole_release(), [])
    for call in (lambda r: keywords(r, "weather"), lambda r: classify(r, {"weather": "sky"})):
        with pytest.raises(DataError, match="no table of clicks") as refused:
            call(release_of(QUERIES))
        assert "--clicks-per-user" in refused.value.fix


def test_clicks_alone_are_enough_for_keywords():
    release = release_of(None, {("a", "https://example.org/"): 3, ("b", "https://example.org/"): 4})
    (row,) = keywords(release, "a").keywords
    assert (row.query, row.count) == ("b", None)


def test_only_negative_clicks_are_no_clicks():
    release = release_of({"a": 5, "b": 5}, {("a", "https://example.org/"): -3, ("b", "https://example.org/"): 0})
    assert keywords(release, "a", gamma=0).keywords == ()


def test_classes_are_those_with_the_highest_probability():
    rng = np.random.default_rng(3)
    weights = rng.integers(0, 20, (10, 8)) * (rng.random((10, 8)) < 0.4)
    release = as_release(weights)
    found = {row.query: row for row in classify(release, {"q0": "x", "q1": "y", "q2": "x"}).queries}
    # A seed of another class is fixed at 0, which the dense solve has as a query without a way on.
    for label, own, other in (("x", {0, 2}, [1]), ("y", {1}, [0, 2])):
        blocked = weights.copy().astype(float)
        n, m = blocked.shape
        equations, right = np.eye(n + m), np.zeros(n + m)
        for q in range(n):
            if q in own:
                right[q] = 1
            elif q not in other and blocked[q].sum():
                equations[q, n:] -= 0.9 * blocked[q] / blocked[q].sum()
        for u in range(m):
            if blocked[:, u].sum():
                equations[n + u, :n] -= 0.9 * blocked[:, u] / blocked[:, u].sum()
        solved = np.linalg.solve(equations, right)
        for q in range(n):
            row = found.get(f"q{q}")
            if row is None:
                assert solved[q] == pytest.approx(0, abs=1e-9)
            elif row.label == label:
                assert row.probability == pytest.approx(solved[q], abs=1e-8)
            else:
                assert row.probability - row.margin == pytest.approx(solved[q], abs=1e-8)


def test_classes_of_the_example():
    found = classify(whole_release(), {"https://news.example.org/": "press", "weather": "sky", "nowhere": "sky"})
    assert {row.query: row.label for row in found.queries} == {
        "news": "press",
        "weather": "sky",
        "weather london": "sky",
        "weather leeds": "sky",
        "waether leeds": "sky",
    }
    assert [row.query for row in found.queries if row.given] == ["weather"]
    assert found.unknown == ("nowhere",)
    assert all(0 < row.margin <= row.probability <= 1 for row in found.queries)
    assert len(classify(whole_release(), {"weather": "sky"}, limit=2).queries) == 2


def test_the_same_query_can_not_have_two_labels():
    with pytest.raises(UsageError, match="two labels"):
        classify(whole_release(), {"weather": "sky", "WEATHER": "press"})
    with pytest.raises(UsageError, match="no labels"):
        classify(whole_release(), {})


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", "weather,sky\nnews,press\n", {"weather": "sky", "news": "press"}),
        ("a.csv", "item,label\r\nweather, sky \r\n\r\n", {"weather": "sky"}),
        ("a.csv", '\ufeff"a, b",sky\n', {"a, b": "sky"}),
        ("a.tsv", "query\tlabel\nhello, world\tx\n", {"hello, world": "x"}),
        ("a.csv", "天气,天\nweather,sky\nweather,sky", {"天气": "天", "weather": "sky"}),
    ],
)
def test_label_files(tmp_path, name, content, expected):
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    assert read_labels(tmp_path / name) == expected


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "no labels"),
        (b"item,label\n", "no labels"),
        (b"a,b,c\n", "line 1"),
        (b"a,b\nlonely\n", "line 2"),
        (b"a,\n", "line 1"),
        (b"a,x\na,y\n", "second label"),
        (b"\xff\xfe", "UTF-8"),
        (b"a," + b"x" * 200_000 + b"\n", "not CSV"),
    ],
)
def test_bad_label_files(tmp_path, content, match):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(DataError, match=match) as refused:
        read_labels(tmp_path / "a.csv")
    assert refused.value.fix


def test_a_label_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="can't be read"):
        read_labels(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="can't be read"):
        read_labels(tmp_path)
