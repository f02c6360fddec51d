"""Traps that peers fell into, end to end: at an epsilon of 900 noise is zero, and a release shows what was counted."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import statistical
from hushquery.core.budget import Budget
from hushquery.core.loss import LaplaceHistogram
from hushquery.curator.counting import Bound
from hushquery.curator.plan import ReleasePlan, ReleaseSpec, calibrate, plan_release
from hushquery.curator.reformulations import Reformulations
from hushquery.errors import DataError, HushqueryError
from hushquery.log import read_log
from hushquery.noise.law import DiscreteLaplace
from hushquery.noise.sampler import Bits
from hushquery.release import Release

Row = tuple[str, int | None, str, str | None]
USERS = 30


def log(rows: list[Row]) -> pa.Table:
    names = ("user", "time", "query", "url")
    kinds = (pa.string(), pa.int64(), pa.string(), pa.string())
    return pa.table({n: pa.array([r[i] for r in rows], kinds[i]) for i, n in enumerate(names)})


def everybody(*rows: tuple[int | None, str, str | None]) -> list[Row]:
    """Let each of thirty users do the same, later and later."""
    return [(f"u{u}", None if t is None else 100_000 * u + t, q, url) for u in range(USERS) for t, q, url in rows]


def released(folder: Path, rows: list[Row] | pa.Table, selector: str = "laplace", d: int = 3, **asked: Any) -> Release:
    table = rows if isinstance(rows, pa.Table) else log(rows)
    ledger = folder / f"{len(list(folder.iterdir()))}.db"
    plan = plan_release(
        table, epsilon=900, delta="1e-4", queries_per_user=d, selector=selector, population="readers", **asked
    )  # type: ignore[arg-type]
    return run_without_noise(plan, ledger, statistical.bits("traps", selector))


def run_without_noise(plan: ReleasePlan, ledger: Path, bits: Bits | None = None) -> Release:
    with warnings.catch_warnings():  # test_no_warning_of_numpy_reaches_the_steward has this one
        warnings.filterwarnings("ignore", "divide by zero encountered in log1p")
        return plan.run(ledger, bits=bits, anyway=True)


def counts(release: Release, table: str = "queries") -> dict[Any, int]:
    rows = release.tables[table].to_pydict()
    keys = list(zip(*[rows[c] for c in rows if c not in ("count", "stderr", "low", "high")], strict=True))
    return {key[0] if len(key) == 1 else key: n for key, n in zip(keys, rows["count"], strict=True)}


SELECTORS = ("laplace", "gaussian", "optimal", "weighted", "guided")


# ---- what counts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("selector", [*SELECTORS, "korolova2009"])
def test_the_first_d_are_the_earliest_and_exactly_d(selector: str, tmp_path: Path) -> None:
    # In time: zebra, yak, ant; by the alphabet: ant, yak, zebra. The rows come in neither order.
    table = everybody((300, "ant", None), (100, "zebra", None), (200, "yak", None), (250, "yak", None))
    assert counts(released(tmp_path, table, selector, d=2)) == {"zebra": USERS, "yak": USERS}
    three = counts(released(tmp_path, table, selector, d=3))
    if selector == "korolova2009":  # counts searches: the second yak is the third of them
        assert three == {"zebra": USERS, "yak": 2 * USERS}
    else:
        assert three == {"zebra": USERS, "yak": USERS, "ant": USERS}
    assert set(counts(released(tmp_path, table, selector, d=1))) == {"zebra"}


@pytest.mark.parametrize("selector", ["laplace", "korolova2009"])
def test_ties_go_by_the_query_and_timeless_rows_come_last(selector: str, tmp_path: Path) -> None:
    table = everybody((None, "ant", None), (500, "cow", None), (500, "bee", None), (900, "dog", None))
    assert set(counts(released(tmp_path, table, selector, d=1))) == {"bee"}
    assert set(counts(released(tmp_path, table, selector, d=3))) == {"bee", "cow", "dog"}
    assert set(counts(released(tmp_path, table, selector, d=4))) == {"bee", "cow", "dog", "ant"}


@pytest.mark.parametrize("selector", [*SELECTORS, "korolova2009"])
def test_a_search_with_several_clicks_is_one_search_of_one_user(selector: str, tmp_path: Path) -> None:
    clicks = [(100, "weather", f"http://w{i}.example.org/") for i in range(5)]
    table = everybody(*clicks, (200, "news", None))
    made = released(tmp_path, table, selector, d=2, clicks_per_user=3)
    assert counts(made) == {"weather": USERS, "news": USERS}
    assert sum(counts(made, "clicks").values()) == 3 * USERS


def test_without_times_the_choice_is_random_but_the_same_in_all_steps(tmp_path: Path) -> None:
    queries = [f"query {i}" for i in range(8)]
    table = log(everybody(*((None, q, None) for q in queries))).drop_columns(["time", "url"])
    one = released(tmp_path, table, "laplace", d=3)
    assert sum(counts(one).values()) == 3 * USERS
    assert len(counts(one)) == 8  # not always the first three of the alphabet
    assert one.manifest["parameters"]["keep"] == "random"
    assert "chosen at random" in one.manifest["meanings"]["queries"]
    # Selected from and counted among the same three of each user: nobody's fourth query slips in.
    for selector in ("optimal", "weighted", "guided"):
        assert sum(counts(released(tmp_path, table, selector, d=3)).values()) == 3 * USERS
    plan = plan_release(table, epsilon=900, delta="1e-4", queries_per_user=3, selector="laplace", population="readers")
    chosen = [counts(run_without_noise(replace(plan), tmp_path / f"again{i}.db")) for i in range(3)]
    assert any(other != chosen[0] for other in chosen[1:])  # another key, another choice


def test_keep_random_does_not_look_at_times(tmp_path: Path) -> None:
    table = everybody(*((100 * i, f"query {i}", None) for i in range(8)))
    made = released(tmp_path, table, d=2, keep="random")
    assert sum(counts(made).values()) == 2 * USERS
    assert len(counts(made)) > 2
    assert made.manifest["parameters"]["keep"] == "random"


@pytest.mark.parametrize("selector", ["optimal", "weighted", "guided"])
def test_counting_released_queries_again_keeps_the_bound(selector: str, tmp_path: Path) -> None:
    """Half of the users hold both released queries, and with d = 1 each of them counts in one."""
    rows: list[Row] = [(f"u{u}", 100 * u, "news", None) for u in range(USERS)]
    rows += [(f"u{u}", 100 * u + 1, "maps", None) for u in range(2 * USERS)]
    assert counts(released(tmp_path, rows, selector, d=1)) == {"news": USERS, "maps": USERS}


def test_the_bound_on_clicks_is_its_own(tmp_path: Path) -> None:
    """Clicks are bounded among released queries: neither the queries' d nor unreleased queries take places away."""
    rows = everybody((300, "news", "http://n.example.org/"), (400, "maps", "http://m.example.org/"))
    rows += [(f"u{u}", 100_000 * u, f"secret {u}", f"http://s{u}.example.org/") for u in range(USERS)]
    made = released(tmp_path, rows, d=3, clicks_per_user=1)
    assert counts(made) == {"news": USERS, "maps": USERS}
    assert counts(made, "clicks") == {("news", "http://n.example.org"): USERS}
    # d = 2 leaves maps out of everybody's queries, and so out of the clicks.
    made = released(tmp_path, rows, d=2, clicks_per_user=5)
    assert set(counts(made, "clicks")) == {("news", "http://n.example.org")}


@pytest.mark.parametrize("time", [100, None], ids=["timed", "timeless"])
def test_a_url_that_was_removed_takes_no_place(time: int | None, tmp_path: Path) -> None:
    """A search whose URL is taken out for its token stays a search and is no click, not even an uncounted one."""
    secret = "http://a.example.org/?sessionid=" + "0123456789abcdef" * 2
    rows = everybody((time, "aaa", secret), (time, "bbb", "http://b.example.org/"))
    made = released(tmp_path, rows, d=2, clicks_per_user=1)
    assert counts(made) == {"aaa": USERS, "bbb": USERS}
    assert counts(made, "clicks") == {("bbb", "http://b.example.org"): USERS}


@pytest.mark.parametrize("clicks", [None, 2])
@pytest.mark.parametrize(
    ("selector", "scans"),
    # Those that count the released queries again read the log again; guided keeps what all of its steps ask for.
    [("laplace", 1), ("gaussian", 1), ("korolova2009", 1), ("optimal", 2), ("weighted", 2), ("guided", 1)],
)
def test_a_log_is_read_once_for_one_table(selector: str, scans: int, clicks: int | None, tmp_path: Path) -> None:
    """What is evaluated twice must be the same twice: here every scan of the log would count its rows."""
    looks: Counter[str] = Counter()
    engine = ibis.duckdb.connect()
    engine.create_table(
        "rows", log(everybody((1, "news", "http://n.example.org"), (2, "maps", "http://m.example.org")))
    )

    def look(user: str) -> str:
        looks[user] += 1
        return user

    engine.con.create_function("look", look, ["VARCHAR"], "VARCHAR", side_effects=True)
    secret = read_log(engine.sql("SELECT look(user) AS user, time, query, url FROM rows"))
    plan = plan_release(
        secret,
        epsilon=900,
        delta="1e-4",
        queries_per_user=3,
        clicks_per_user=clicks,
        selector=selector,  # type: ignore[arg-type]
        population="readers",
    )
    looks.clear()
    made = run_without_noise(plan, tmp_path / "ledger.db", statistical.bits("scans"))
    assert len(counts(made)) == 2
    assert clicks is None or len(counts(made, "clicks")) == 2
    assert set(looks.values()) == {2 * (scans + (clicks is not None))}  # two rows each


def test_saving_or_looking_twice_draws_no_new_noise(tmp_path: Path) -> None:
    plan = plan_release(
        log(everybody((1, "news", None), (2, "maps", None))),
        epsilon=2,
        delta=0.01,
        queries_per_user=2,
        reformulations_per_user=1,
        population="readers",
    )
    made = plan.run(tmp_path / "ledger.db", anyway=True)
    one, two = made.save(tmp_path / "one"), made.save(tmp_path / "two")
    for path in one.iterdir():
        assert path.read_bytes() == (two / path.name).read_bytes()
    assert Release.load(one).tables["queries"].equals(made.tables["queries"])


# ---- a public list of results --------------------------------------------------------------------------------------

LISTED = {
    "query": ["news", "news", "maps", "unreleased", "news", "news"],
    "url": [f"http://{h}.example.org" for h in ("n", "empty", "m", "u", "n", "other")],
}


@pytest.mark.parametrize("selector", ["laplace", "gaussian", "guided"])
def test_every_listed_pair_of_a_released_query_is_there_and_no_other(selector: str, tmp_path: Path) -> None:
    rows = everybody(
        (1, "news", "http://unlisted.example.org/"), (2, "news", "http://n.example.org/"), (3, "maps", None)
    )
    made = released(tmp_path, rows, selector, clicks_per_user=1, public_pairs=LISTED)
    # One click each, and the unlisted one does not take its place.
    assert counts(made, "clicks") == {
        ("news", "http://n.example.org"): USERS,
        ("news", "http://empty.example.org"): 0,
        ("news", "http://other.example.org"): 0,
        ("maps", "http://m.example.org"): 0,
    }
    assert made.manifest["steps"][-1]["parameters"]["threshold"] is None
    assert made.manifest["parameters"]["public_results"] is True


def test_listed_zeros_get_noise_and_may_be_negative(tmp_path: Path) -> None:
    listed = {"query": ["news"] * 400, "url": [f"http://x.example.org/{i}" for i in range(400)]}
    plan = plan_release(
        log(everybody((1, "news", None))),
        epsilon=6,
        delta=1e-3,
        queries_per_user=1,
        clicks_per_user=5,
        selector="laplace",
        public_pairs=listed,
        population="readers",
    )
    made = plan.run(tmp_path / "ledger.db", bits=statistical.bits("zeros"))
    values = list(counts(made, "clicks").values())
    assert len(values) == 400
    law = DiscreteLaplace(Fraction(made.manifest["steps"][-1]["parameters"]["scale"]))
    statistical.rate(sum(v < 0 for v in values), 400, float(law.tail(1)), "negative counts are kept")
    assert made.manifest["parameters"]["clicks_per_user"] == 5


def test_a_public_list_is_read_like_the_log(tmp_path: Path) -> None:
    """The log is normalised, so a list in another case or with another form of URL names the same pairs."""
    rows = everybody((1, "Weather  Leeds", "HTTP://W.example.org/"))
    listed = {"query": ["Weather Leeds"], "url": ["http://W.example.org/"]}
    made = released(tmp_path, rows, clicks_per_user=1, public_pairs=listed)
    assert counts(made) == {"weather leeds": USERS}
    assert counts(made, "clicks") == {("weather leeds", "http://w.example.org"): USERS}


def test_a_public_list_must_have_its_columns(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column 'url'"):
        released(
            tmp_path, everybody((1, "news", "http://n.example.org/")), clicks_per_user=1, public_pairs={"query": ["a"]}
        )


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("list.csv", b'query,url\nnews,a.example\n"maps,b.example\n', r"list\.csv: 3\b"),
        ("list.csv", b"query,url\nnews,a\n\nmaps,b,c\nmaps\n", r"too few.*list\.csv: 5\b.*too many.*: 4\b"),
        ("list.tsv", b"query\turl\nnews\ta.example\ncaf\xe9\tb.example\n", r"list\.tsv: 3\b"),
        ("list.jsonl", b'{"query": "news", "url": "a.example"}\n{"query": "maps"\n', r"list\.jsonl: 2\b"),
        (
            "list.jsonl",
            b'{"query": "news", "url": "a.example"}\n{"query": "zebra", "URL": "b"}\n',
            "no query or no url",
        ),
        ("list.csv", b"query,url\nnews,a.example\nzebra,\n", "no query or no url"),
    ],
)
def test_a_malformed_line_of_a_public_list_is_refused(tmp_path: Path, name: str, data: bytes, told: str) -> None:
    """The steward gave it, and it is public: a pair that is left out of it in silence would be missing in public."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=told) as refused:
        released(tmp_path, everybody((1, "news", "a.example")), clicks_per_user=1, public_pairs=tmp_path / name)
    assert refused.value.fix
    assert "zebra" not in str(refused.value)
    assert not list(tmp_path.glob("*.db"))


@pytest.mark.parametrize("values", [["http://n.example.org", None], pa.array([b"n.org", b"\xff"]).view(pa.string())])
def test_a_pair_without_a_url_is_refused(tmp_path: Path, values: Any) -> None:
    table = pa.table({"query": ["news", "news"], "url": values})
    pq.write_table(table, tmp_path / "list.parquet")
    for listed in (table, tmp_path / "list.parquet"):
        with pytest.raises(DataError, match="no query or no url"):
            released(tmp_path, everybody((1, "news", "http://n.example.org/")), clicks_per_user=1, public_pairs=listed)


# ---- reformulations ------------------------------------------------------------------------------------------------


def test_reformulations_are_consecutive_before_filtering_and_end_with_the_session(tmp_path: Path) -> None:
    rows = everybody(
        (0, "news", None),
        (60, "maps", None),  # news > maps
        (120, "maps", None),  # no loop
        (180, "films", None),  # maps > films
        (180 + 1801, "news", None),  # a new session
        (180 + 1801 + 1800, "films", None),  # just in time: news > films
        (None, "maps", None),  # without a time there is no next
    )
    rows += [
        (f"u{u}", 100_000 * u + 9000 + 10 * i, q, None)
        for u in range(USERS)
        for i, q in enumerate(("news", f"own {u}", "maps"))
    ]
    made = released(tmp_path, rows, d=4, reformulations_per_user=9, session_gap=1800)
    assert set(counts(made)) == {"news", "maps", "films"}
    assert counts(made, "reformulations") == {
        ("news", "maps"): USERS,  # not once more across everybody's own query
        ("maps", "films"): USERS,
        ("news", "films"): USERS,
    }
    longer = released(tmp_path, rows, d=4, reformulations_per_user=9, session_gap=1801)
    assert counts(longer, "reformulations")[("films", "news")] == USERS
    two = released(tmp_path, rows, d=4, reformulations_per_user=2)
    assert set(counts(two, "reformulations")) == {("news", "maps"), ("maps", "films")}


def test_the_threshold_of_reformulations_comes_from_the_public_domain_alone(tmp_path: Path) -> None:
    queries = [f"query {i}" for i in range(9)]
    dense = [
        (f"u{u}", 100_000 * u + 60 * i, q, None)
        for u in range(USERS)
        for i, q in enumerate(random.Random(u).sample(queries, 9))
    ]
    sparse = [(f"u{u}", 100_000 * u + 9000 * i, q, None) for u in range(USERS) for i, q in enumerate(queries)]
    made = []
    for number, rows in enumerate((dense, sparse)):
        plan = plan_release(
            log(rows),
            epsilon=40,
            delta=1e-3,
            queries_per_user=9,
            reformulations_per_user=8,
            expected_false_pairs=5,
            shares={"reformulations": "1/20"},
            population="readers",
        )
        made.append(plan.run(tmp_path / f"{number}.db", bits=statistical.bits("domain")))
    assert made[0].manifest == made[1].manifest
    least = made[0].manifest["parameters"]["reformulations_published_from"]
    assert plan.calibrated.reformulations is not None
    assert 0 < plan.calibrated.reformulations.expected_false(9) <= 5
    assert least == plan.calibrated.reformulations.publish_from(9) > 1
    for one in made:
        for first, second in counts(one, "reformulations"):
            assert first != second
        assert min(counts(one, "reformulations").values(), default=least) >= least


@pytest.mark.parametrize("pairs_made", [0, 6000])
def test_expected_false_pairs_are_as_many_as_stated_and_fall_anywhere(pairs_made: int) -> None:
    """All ordered pairs of 200 queries; somebody made the first few of them once, which is below the threshold."""
    queries = [f"q{i:03}" for i in range(200)]
    all_pairs = [(a, b) for a in queries for b in queries if a != b]
    step = Reformulations(LaplaceHistogram(10, Fraction(5)), expected_false_pairs=300.0)
    rows: list[Row] = []
    for user, (a, b) in enumerate(all_pairs[:pairs_made]):
        rows += [(f"u{user}", 0, a, None), (f"u{user}", 60, b, None)]
    table = read_log(log(rows)).table if rows else read_log(log([("u", 1, "none", None)])).table
    found = step.run(table, Bound(), pa.table({"query": queries}), statistical.bits("false", pairs_made))
    least, law = step.publish_from(200), DiscreteLaplace(Fraction(5))
    keys = list(zip(found["query"].to_pylist(), found["next_query"].to_pylist(), strict=True))
    assert len(set(keys)) == len(keys)
    assert set(keys) <= set(all_pairs)
    assert step.expected_false(200) <= 300 < 39_800 * law.tail(least - 1)
    empty = [key for key in keys if key in set(all_pairs[pairs_made:])]
    statistical.rate(len(empty), len(all_pairs) - pairs_made, float(law.tail(least)), "empty pairs")
    half = len(all_pairs[pairs_made:]) // 2
    late = set(all_pairs[pairs_made + half :])
    statistical.rate(sum(key in late for key in empty), len(empty), 0.5, "anywhere")
    if pairs_made:
        statistical.rate(len(keys) - len(empty), pairs_made, float(law.tail(least - 1)), "pairs of one user")
    statistical.rate(
        sum(v > least for v in found["count"].to_pylist()), len(keys), float(law.tail(1) / law.tail(0)), "how high"
    )


# ---- one person's rows must not stop everybody's release -----------------------------------------------------------

POISON: dict[str, list[Row]] = {
    "times at both ends": [("p", 2**63 - 1, "news", None), ("p", -(2**63), "maps", None), ("p", 0, "news", None)],
    "times that differ by more than fits": [("p", -(10**12), "news", None), ("p", 9 * 10**12, "maps", None)],
    "a long query": [("p", 5, "x" * 3_000_000, "http://a.example.org/" + "y" * 100_000)],
    "control characters": [("p", 5, "a\x00b", "http://a.example.org/\x00"), ("p", 6, "\ud7ff\U0010ffff", "\u202e")],
    "quotes": [("p' OR 1=1 --", 5, "'; DROP TABLE rows; --", 'http://"example.org/'), ("p|", 6, "|", "|")],
    "odd urls": [
        ("p", 5, "news", u) for u in ("", " ", "http://", "http://[::1", "javascript:1", "%", "http://a:99999999/")
    ],
}


@pytest.mark.parametrize(
    ("poison", "selector"), [*((p, "laplace") for p in POISON), (next(iter(POISON)), "korolova2009")]
)
def test_a_row_of_one_person_does_not_stop_the_release(poison: str, selector: str, tmp_path: Path) -> None:
    rows = everybody((100, "news", "http://n.example.org/"), (200, "maps", None)) + POISON[poison]
    try:
        made = released(tmp_path, rows, selector, clicks_per_user=2, reformulations_per_user=2)
    except HushqueryError as error:
        pytest.fail(f"one person's row stops everybody's release: {error}")
    assert set(counts(made)) == {"news", "maps"}
    assert all(abs(n - USERS) <= 2 for n in counts(made).values())
    assert set(counts(made, "reformulations")) == {("news", "maps")}


@pytest.mark.parametrize("selector", ["laplace", "gaussian", "korolova2009"])
@pytest.mark.parametrize("epsilon", [40, 1000])
def test_no_warning_of_numpy_reaches_the_steward(epsilon: float, selector: str, tmp_path: Path) -> None:
    plan = plan_release(
        log(everybody((1, "news", None))),
        epsilon=epsilon,
        delta=0.1,
        queries_per_user=1,
        selector=selector,
        population="readers",
    )  # type: ignore[arg-type]
    plan.run(tmp_path / "ledger.db", bits=statistical.bits("warnings"))


# ---- thresholds at the ends of what may be asked for ---------------------------------------------------------------


@pytest.mark.parametrize("tables", [{}, {"clicks_per_user": 5}], ids=["queries", "clicks"])
@pytest.mark.parametrize("delta", ["1e-5", "1e-40", "1e-70", "1e-150", "1e-280"])
@pytest.mark.parametrize("selector", ["laplace", "gaussian", "korolova2009", "optimal", "weighted", "guided"])
def test_what_delta_lets_through_is_within_delta(selector: str, delta: str, tables: dict[str, int]) -> None:
    """A query of one person alone comes out with probability delta at most, however small that is."""
    made = calibrate(ReleaseSpec(Budget(1, delta), 4, selector=selector, **tables))  # type: ignore[arg-type]
    # rare_chance adds up d chances where delta is that of any of them, so it may be a hair larger.
    assert made.selector.rare_chance() <= float(delta) * 1.001
    if made.clicks is not None:
        step = made.clicks.step
        law = DiscreteLaplace(step.scale) if isinstance(step, LaplaceHistogram) else None
        if law is not None and step.threshold is not None:
            assert float(law.tail(step.threshold - 1)) * 5 <= float(delta) * 1.001


@pytest.mark.parametrize("selector", ["laplace", "gaussian", "korolova2009", "optimal"])
@pytest.mark.parametrize("epsilon", ["0.001", "0.01", "1", "1000"])
@pytest.mark.parametrize("delta", ["0.5", "1e-7", "1e-12"])
def test_any_sensible_request_has_a_calibration(selector: str, epsilon: str, delta: str) -> None:
    for d in (1, 20, 400, 10_000):
        made = calibrate(ReleaseSpec(Budget(epsilon, delta), d, selector=selector))  # type: ignore[arg-type]
        assert made.loss.fits(epsilon, delta)
        assert made.selector.rare_chance() <= float(delta) * (1.5 if delta == "0.5" else 1.001)
