"""The synthetic log: shaped like a real one, repeatable, streamed, and with a private tail that is known exactly."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushquery.log.synthetic import people as synthetic_people
from hushquery.log.synthetic.language import MODIFIERS, PLACES, SERVICES, THEMES, language
from hushquery.log.synthetic.logs import FEARS, batches, which_private
from hushquery.log.synthetic.people import PROFILES
from hushquery.log.synthetic.private import PRIVATE_WORDS, private_numbers, private_texts

# Longer than any pause inside a session, shorter than any between two.
SESSION_GAP = timedelta(minutes=30)


#: Users of the largest log; the smaller ones of its seed are its beginning, as test_fewer_users_... makes sure.
MOST = 65_000


@lru_cache(maxsize=8)
def log(profile: str = "tiny", users: int = 700, seed: int = 1) -> pa.Table:
    if profile == "aol" and users < MOST:
        whole = log(profile, MOST, seed)
        of = whole["user"].combine_chunks()
        begins = np.flatnonzero(pc.not_equal(of[1:], of[:-1]).to_numpy(zero_copy_only=False)) + 1
        return whole.slice(0, int(begins[users - 1])).combine_chunks()
    return pa.Table.from_batches(list(batches(profile, users, seed)))


def describe(table: pa.Table) -> dict[str, float]:
    """Measure what the profile aol is fitted to."""
    engine = duckdb.connect()
    engine.register("rows", table)
    engine.execute('CREATE TABLE searches AS SELECT DISTINCT "user", time, query FROM rows')
    counts = np.array(engine.execute("SELECT count(*) AS n FROM searches GROUP BY query ORDER BY n DESC").fetchall())
    per_user = np.array(engine.execute('SELECT count(*) FROM rows GROUP BY "user"').fetchall())
    ranks = np.arange(1, 1001)

    def shared(first: int, users: int) -> int:
        """Count queries that so many users have among their first distinct ones."""
        sql = """
            WITH earliest AS (SELECT "user", query, min(time) AS t0 FROM searches GROUP BY ALL),
            numbered AS (
                SELECT query, row_number() OVER (PARTITION BY "user" ORDER BY t0, query) AS nth FROM earliest
            )
            SELECT count(*) FROM (SELECT query FROM numbered WHERE nth <= ? GROUP BY query HAVING count(*) >= ?)
        """
        return int(engine.execute(sql, [first, users]).fetchall()[0][0])

    return {
        "slope": float(np.polyfit(np.log(ranks), np.log(counts[:1000, 0]), 1)[0]),
        "once": float((counts == 1).mean()),
        "rows per user": float(per_user.mean()),
        "median": float(np.median(per_user)),
        "busiest": int(per_user.max()),
        "above 121 of 20": shared(20, 121),
        "above 12 of 40": shared(40, 12),
    }


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.prove)])
def test_the_aol_profile_is_shaped_like_aol(seed: int) -> None:
    told = describe(log("aol", MOST, seed))
    assert told["slope"] == pytest.approx(-0.77, abs=0.03)
    assert 0.62 <= told["once"] <= 0.70
    assert 30 <= told["rows per user"] <= 55
    assert told["median"] < 0.6 * told["rows per user"]
    assert told["busiest"] > 1000
    # What the selectors are compared on: Korolova's threshold, and what the best of them reaches.
    assert 200 <= told["above 121 of 20"] <= 400
    assert told["above 12 of 40"] > 1700


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 1200), st.integers(0, 2**64 - 1))
def test_fewer_users_are_the_beginning_of_more(users: int, seed: int) -> None:
    few, many = log(users=users, seed=seed), log(users=1200, seed=seed)
    assert few.equals(many.slice(0, len(few)).combine_chunks())
    assert len(set(few["user"].to_pylist())) == users
    assert users == 1200 or many["user"][len(few)] != few["user"][-1]


def test_chunks_are_drawn_apart() -> None:
    first, second = itertools.islice(batches("tiny", 1000, 3), 2)
    assert first.column("time").slice(0, 200) != second.column("time").slice(0, 200)
    assert not set(first.column("user").to_pylist()) & set(second.column("user").to_pylist())
    # The second chunk needs no first one.
    profile = PROFILES["tiny"]
    alone = synthetic_people.draw_chunk(profile, 3, 1, profile.chunk)
    assert profile.language().text(alone.code).to_pylist() == second.column("query").to_pylist()


def test_rows_have_the_columns_of_a_log() -> None:
    table = log()
    assert table.schema.names == ["user", "time", "query", "url", "rank"]
    assert table.schema.types == [pa.string(), pa.timestamp("us"), pa.string(), pa.string(), pa.int64()]
    for row in table.to_pylist():
        assert row["user"].isdigit()
        assert row["query"] == " ".join(row["query"].lower().split())
        assert row["query"].isascii()
        assert (row["url"] is None) == (row["rank"] is None)
        assert row["rank"] is None or 1 <= row["rank"] <= 10
        assert row["url"] is None or row["url"].startswith("https://")
        assert row["url"] is None or row["url"].split("/")[2].endswith(".example.com")


def test_ids_tell_nothing_of_activity() -> None:
    counts = Counter(log("aol", 20_000)["user"].to_pylist())
    ids, rows = np.array([int(user) for user in counts]), np.array(list(counts.values()))
    assert len(counts) == 20_000
    assert abs(np.corrcoef(ids, np.log(rows))[0, 1]) < 0.03
    assert abs(np.corrcoef(np.arange(len(ids)), ids)[0, 1]) < 0.03


def searches(table: pa.Table) -> dict[str, list[dict[str, Any]]]:
    """Put rows together: per user, each search once with its clicks, in the order of the file."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in table.to_pylist():
        own = found[row["user"]]
        if own and (own[-1]["time"], own[-1]["query"]) == (row["time"], row["query"]):
            own[-1]["clicks"].append((row["rank"], row["url"]))
        else:
            clicks = [] if row["url"] is None else [(row["rank"], row["url"])]
            own.append({"time": row["time"], "query": row["query"], "clicks": clicks})
    return found


def in_session(found: Iterable[list[dict[str, Any]]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    pairs = [pair for own in found for pair in itertools.pairwise(own)]
    return [(one, two) for one, two in pairs if two["time"] - one["time"] <= SESSION_GAP]


def test_times_have_sessions_and_nights() -> None:
    table = log("aol", 10_000)
    times = np.sort(table["time"].to_numpy())
    assert times[0] >= np.datetime64("2026-03-01")
    assert times[-1] < np.datetime64("2026-06-01")
    hours = np.bincount(times.astype("datetime64[h]").astype(int) % 24, minlength=24)
    assert hours[2:6].sum() < 0.3 * hours[14:18].sum()
    days = np.bincount(times.astype("datetime64[D]").astype(int) - int(times[0].astype("datetime64[D]").astype(int)))
    assert len(days) == 92
    assert days.min() > 0.7 * days.mean()

    gaps = []
    for own in searches(table.slice(0, 100_000)).values():
        gaps += [(two["time"] - one["time"]).total_seconds() for one, two in itertools.pairwise(own)]
    gap = np.array(gaps)
    assert gap.min() > 0, "searches of a user are in the order of time, one at a time"
    assert not ((gap > 25 * 60) & (gap < 45 * 60)).any(), "a pause is inside a session or between two"
    assert 0.3 < (gap >= 45 * 60).mean() < 0.5
    assert np.median(gap[gap < 25 * 60]) < 120


def test_busy_users_stay_in_the_period() -> None:
    rng = np.random.default_rng(0)
    of_user = np.repeat([0, 1, 2], [2000, 1, 1500])
    needed = rng.integers(2700, 3600, len(of_user))
    wish = np.full(len(of_user), 91 * 86_400)
    start = synthetic_people._apart(of_user, wish, needed)
    inside = of_user[1:] == of_user[:-1]
    assert (start[1:] - start[:-1] >= needed[:-1])[inside].all()
    assert start.min() >= 0
    assert (start + needed).max() <= 92 * 86_400


def topic(query: str) -> str:
    return query.split()[0]


def test_sessions_hold_reformulations() -> None:
    found = searches(log("aol", 6_000)).values()
    changed = [(one, two) for one, two in in_session(found) if one["query"] != two["query"]]
    longer = [two["query"].startswith(one["query"] + " ") for one, two in changed]
    shorter = [one["query"].startswith(two["query"] + " ") for one, two in changed]
    same_topic = [topic(one["query"]) == topic(two["query"]) for one, two in changed]
    assert 0.06 < np.mean(longer) < 0.15
    assert 0.06 < np.mean(shorter) < 0.15
    assert 0.25 < np.mean(same_topic) < 0.4
    # Across sessions nothing goes on.
    apart = [
        (one, two) for own in found for one, two in itertools.pairwise(own) if two["time"] - one["time"] > SESSION_GAP
    ]
    # A person's own queries come again, but do not go on from the last.
    assert np.mean([two["query"].startswith(one["query"] + " ") for one, two in apart]) < 0.02


def test_many_people_reformulate_alike() -> None:
    people: dict[tuple[str, str], set[str]] = defaultdict(set)
    for user, own in searches(log("aol", 20_000)).items():
        for one, two in in_session([own]):
            if one["query"] != two["query"]:
                people[one["query"], two["query"]].add(user)
    alike = {pair: len(users) for pair, users in people.items() if len(users) >= 15}
    assert len(alike) >= 60
    related = [topic(one) == topic(two) or {"fear", "phobia"} & {*one.split(), *two.split()} for one, two in alike]
    assert np.mean([bool(found) for found in related]) > 0.3


def test_slips_are_corrected_within_a_minute() -> None:
    words = {word for theme in THEMES.values() for word in theme}
    found = searches(log("aol", 6_000))
    fears = {text for fear in FEARS for text in (f"fear of {fear}", f"{fear} phobia")}
    slips = corrected = total = 0
    for own in found.values():
        total += len(own)
        for one, two in itertools.zip_longest(own, own[1:]):
            if topic(one["query"]) in words or which_private([one["query"]])[0] or one["query"] in fears:
                continue
            slips += 1
            assert one["clicks"] == []
            assert two is not None
            assert topic(two["query"]) in words
            assert one["query"].split()[1:] == two["query"].split()[1:]
            assert abs(len(topic(one["query"])) - len(topic(two["query"]))) <= 1
            corrected += two["time"] - one["time"] < timedelta(minutes=1)
    assert corrected == slips
    assert 0.01 < slips / total < 0.04


def test_people_search_again_what_they_found() -> None:
    again = total = 0
    for own in searches(log("aol", 6_000)).values():
        queries = [search["query"] for search in own]
        total += len(queries)
        again += len(queries) - len(set(queries))
    assert 0.15 < again / total < 0.5


def test_clicks_have_ranks_and_several_urls() -> None:
    found = [search for own in searches(log("aol", 6_000)).values() for search in own]
    clicks = np.array([len(search["clicks"]) for search in found])
    assert 0.3 < (clicks == 0).mean() < 0.6
    assert 0.03 < (clicks > 1).mean() < 0.2
    for search in found:
        ranks = [rank for rank, _ in search["clicks"]]
        assert ranks == sorted(set(ranks))
    first = Counter(rank for search in found for rank, _ in search["clicks"])
    assert first[1] > first[2] > first[4] > first[9] > 0, "the higher on the page, the more clicks"

    urls: dict[str, Counter[str]] = defaultdict(Counter)
    place: dict[tuple[str, str], set[int]] = defaultdict(set)
    for search in found:
        for rank, url in search["clicks"]:
            urls[search["query"]][url] += 1
            place[search["query"], url].add(rank)
    assert all(len(ranks) == 1 for ranks in place.values()), "a query has the same results for everybody"
    popular = [counts for counts in urls.values() if counts.total() >= 50]
    shares = np.array([counts.most_common(1)[0][1] / counts.total() for counts in popular])
    assert len(popular) > 30
    assert (shares > 0.8).sum() >= 3, "some queries name a site"
    assert np.mean([len(counts) >= 5 for counts in popular]) > 0.5
    assert np.median(shares) < 0.6


def test_related_queries_share_sites() -> None:
    words = language(64, 128, 128)

    def page(code: int) -> set[str]:
        return set(words.url(*words.results(np.full(10, code), np.arange(10))).to_pylist())

    # The code of a query of one word is its topic; 0 to 7 are one theme.
    assert words.text(np.array([0, 7, 100])).to_pylist() == ["chicken", "pancakes", "cookware"]
    assert page(0) & page(7)
    assert not page(0) & page(100)
    special = words.reformulate(np.array([0]), np.array([0.1]), np.array([0]))
    assert words.text(special).to_pylist() == ["chicken guide"]
    assert len(page(0) & page(int(special[0]))) >= 5
    rng = np.random.default_rng(0)
    start = words.codes(rng.integers(0, 100_000, 500))
    after = words.reformulate(start, rng.random(500), rng.integers(0, 5, 500))
    assert (start != after).all()
    for one, two in zip(start.tolist(), after.tolist(), strict=True):
        assert page(one) & page(two), "whoever reformulates sees a site again"
        assert len(page(one)) == 10


@pytest.mark.parametrize(
    ("shape", "ranks"), [((8, 16, 16), None), ((64, 128, 128), 400_000), ((4096, 1024, 1024), 400_000)], ids=str
)
def test_every_rank_has_its_own_text(shape: tuple[int, int, int], ranks: int | None) -> None:
    words = language(*shape, terms=shape[0] > 64)
    size = words.topics * (1 + words.modifiers * (1 + words.places)) + len(words.fear_ranks)
    first = np.arange(ranks or size)
    some = np.random.default_rng(0).integers(0, size, 200_000)
    every = np.unique(np.concatenate([first, some, size - 1 - np.arange(1000)]))
    codes = words.codes(every)
    topics = codes[words.can_slip(codes)]
    slips = np.concatenate([words.misspelt(topics[:50_000], np.full(50_000, v)[: len(topics)]) for v in (1, 2, 3)])
    texts = words.text(np.concatenate([codes, slips])).to_pylist()
    assert len(set(texts)) == len(texts)
    assert not which_private(texts).any()
    popular = [len(text.split()) for text in words.text(words.codes(np.arange(20))).to_pylist()]
    tail = [len(text.split()) for text in texts[: len(codes)][-20:]]
    assert np.mean(popular) < 2 < np.mean(tail)


def test_neighbours_in_rank_do_not_share_words() -> None:
    words = language(64, 128, 128)
    texts = [set(text.split()) for text in words.text(words.codes(np.arange(20_000))).to_pylist()]
    close = [bool(one & two - {"fear", "of", "phobia"}) for one, two in itertools.pairwise(texts)]
    assert np.mean(close) < 0.05


def test_zipf_is_what_it_says() -> None:
    profile = PROFILES["tiny"]
    weight = (np.arange(1, profile.vocabulary + 1) + profile.shift) ** -profile.exponent
    # Every quantile of the distribution, so that nothing is left to chance.
    grid = (np.arange(2_000_000) + 0.5) / 2_000_000
    drawn = np.bincount(synthetic_people._zipf(profile, grid), minlength=profile.vocabulary) / len(grid)
    assert drawn == pytest.approx(weight / weight.sum(), abs=2e-6, rel=0.002)
    aol = PROFILES["aol"]
    ends = synthetic_people._zipf(aol, np.array([0.0, 1 - 2**-53]))
    assert ends.tolist() == [0, aol.vocabulary - 1]


def test_lists_of_words_are_disjoint() -> None:
    topics = [word for theme in THEMES.values() for word in theme]
    fears = [word for fear in FEARS for word in fear.split()]
    words = [*topics, *MODIFIERS, *PLACES, *THEMES, *SERVICES, *fears, "fear", "of", "phobia", *PRIVATE_WORDS]
    assert [word for word, count in Counter(words).items() if count > 1] == []
    assert (len(topics), len(MODIFIERS), len(PLACES), len(FEARS)) == (512, 128, 128, 40)
    assert all(word.isalpha() and word.islower() and word.isascii() for word in words)


def test_fears_fall_in_popularity() -> None:
    counts = Counter(log("aol", 30_000)["query"].to_pylist())
    popular = [counts[f"fear of {fear}"] + counts[f"{fear} phobia"] for fear in FEARS]
    assert all(counts[f"fear of {fear}"] and counts[f"{fear} phobia"] for fear in FEARS)
    assert popular[0] > popular[5] > popular[15] > popular[35]
    assert np.corrcoef(np.log(np.arange(1, 41)), np.log(popular))[0, 1] < -0.9


@pytest.mark.parametrize("profile", ["aol", "yandex", "tiny"])
def test_the_private_tail_is_known_exactly(profile: str) -> None:
    shape = PROFILES[profile]
    words = shape.language()
    chunk = synthetic_people.draw_chunk(shape, 4, 0, shape.chunk)
    texts = words.text(chunk.code)
    secret = words.is_secret(chunk.code)
    assert which_private(texts).tolist() == secret.tolist()
    assert which_private(texts.to_pylist()).tolist() == secret.tolist()
    assert 0.003 < secret.mean() < 0.03
    owners = defaultdict(set)
    for text, user in zip(texts.filter(pa.array(secret)).to_pylist(), chunk.user[secret].tolist(), strict=True):
        owners[text].add(user)
    assert all(len(users) == 1 for users in owners.values()), "nobody types what is another's"


def test_private_texts_never_collide() -> None:
    # The ends of the range of users, too.
    user = np.concatenate([np.arange(3000), 100_000_000 - 1 - np.arange(3000)])
    number = private_numbers(np.repeat(user, 16), np.tile(np.arange(16), len(user)))
    assert len(np.unique(number)) == len(number)
    assert number.min() >= 0
    texts = [
        text for kind in range(6) for text in private_texts(np.full(len(number), kind), number, terms=False).to_pylist()
    ]
    assert len(set(texts)) == len(texts)
    assert which_private(texts).all()
    terms = private_texts(np.zeros_like(number), number, terms=True).to_pylist()
    assert len(set(terms)) == len(terms)
    assert which_private(terms).all()


@pytest.mark.parametrize(
    "query",
    ["", "cake", "alma", "alma cake", "order", "order number", "order number 12", "555", "12 street", "1234567",
     "a@example.org", "alma bada kilefo\n", " alma bada kilefo", "cake alma bada kilefo", "fear of heights"],
)  # fmt: skip
def test_near_misses_are_not_private(query: str) -> None:
    assert not which_private([query])[0]
    assert not which_private([query]).any()
    assert which_private(["alma bada kilefo"]).all()
