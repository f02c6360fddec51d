"""The site's modules, run by Node: they rank as Python does, fold as Python does, and know the mechanisms' laws."""

from __future__ import annotations

import base64
import json
import random

import numpy as np
import pytest

from hushquery.noise.bits import SeededBits
from hushquery.publish import SearchIndex
from hushquery.publish.example import CLICKS, QUERIES
from hushquery.publish.text import allowed_edits, edits, fold, key_of, tokens
from hushquery.templates import number, percent
from site_files import NASTY, built, in_node, setting_task, task_of, weeks
from small_releases import private_hybrid, release_of, shares_of

TYPED = [
    "weather leeds",
    "WEATHER   Léeds",
    "waether leds",
    "leeds weather",
    "fear of fl",
    "tickets",
    "newz",
    "w",
    "weath",
    "united leeds tikcets",
    "the",
    "zzzzqqqq",
    "",
    "   ",
    "weather" * 60,
    *NASTY,
    "😀😀😀",
    "北京",
]

SEARCH = """
import { SearchIndex } from "./search.mjs";
import { readFileSync } from "node:fs";
const index = new SearchIndex(JSON.parse(readFileSync(new URL("index.json", import.meta.url), "utf8")));
tell(given[0].map((text) => index.search(text, 10)));
"""


def agree(folder, release, typed):
    """Ask both, and compare what they say, down to the reasons."""
    site = built(folder, [release])
    index = SearchIndex(release)
    for text, said in zip(typed, in_node(site, SEARCH, typed), strict=True):
        found = index.search(text)
        queries = [(hit.query, hit.why, hit.low, hit.high) for hit in found.queries]
        assert [(hit["query"], hit["why"], hit["low"], hit["high"]) for hit in said["queries"]] == queries, text
        assert [hit["score"] for hit in said["queries"]] == pytest.approx([hit.score for hit in found.queries])
        values = [hit.count if hit.share is None else hit.share for hit in found.queries]
        assert [hit["value"] for hit in said["queries"]] == values
        assert [(hit["url"], hit["why"], tuple(hit["queries"])) for hit in said["urls"]] == [
            (hit.url, hit.why, hit.queries) for hit in found.urls
        ], text
        assert (said["moreUrls"], said["moreQueries"]) == (found.more_urls, found.more_queries), text
        assert [hit["score"] for hit in said["urls"]] == pytest.approx([hit.score for hit in found.urls])


def test_it_ranks_as_python_does(tmp_path):
    agree(tmp_path / "counts", release_of(QUERIES, CLICKS), TYPED)
    agree(tmp_path / "shares", private_hybrid(), TYPED)
    queries = [
        *NASTY,
        "😀😀 party",
        "北京天气",
        "北京 news",
        "straße",
        "STRASSE berlin",
        "Σίσυφος",
        "don't",
        "dont panic",
    ]
    hostile = shares_of(
        {query: 0.01 + i / 1000 for i, query in enumerate(queries)},
        {(query, f"https://{i}.example.org/"): 0.005 for i, query in enumerate(queries)},
    )
    agree(tmp_path / "hostile", hostile, [*TYPED, *queries, "strase", "σισυφοσ", "北京天", "DON’T"])


def test_a_list_without_counts_ranks_as_python_does(tmp_path):
    agree(tmp_path / "list", release_of(["weather leeds", "weather york", "news", "newsagent"]), TYPED)


def test_it_finds_all_queries_with_the_words_as_python_does(tmp_path):
    names = ["weather", "wether", "rain", "train", "today", "to", "how", "recipe", "10", "day", "forecast", "tomorrow"]
    rng = random.Random(9)
    queries = {" ".join(rng.sample(names, rng.randint(1, 4))): rng.randint(1, 5000) for _ in range(79)}
    typed = [
        *names,
        "weather forecast",
        "how to",
        "wether today",
        "weath",
        "t",
        "wether weather",
        "train to rain",
        "rai",
    ]
    agree(tmp_path / "words", release_of(queries), typed)


def test_it_ranks_as_python_does_while_python_looks_at_all(tmp_path):
    # Python compares with up to 80 candidates of each kind, so up to 80 queries the two must agree on everything.
    rng = random.Random(7)
    words = ["".join(rng.choices("abcde", k=rng.randint(2, 7))) for _ in range(30)]
    queries = {" ".join(rng.choices(words, k=rng.randint(1, 4))): rng.randint(-5, 500) for _ in range(80)}
    clicks = {(query, f"https://{rng.randrange(9)}.example.org/"): rng.randint(-5, 90) for query in queries}
    typed = ["".join(rng.choices("abcde ", k=rng.randint(1, 14))) for _ in range(150)]
    agree(tmp_path / "random", release_of(queries, clicks), [*typed, *list(queries)[:20]])


def test_a_cut_index_says_what_it_left_out(tmp_path):
    site = built(tmp_path / "site", [weeks()[-1]], searched=2)
    data = json.loads((site / "index.json").read_text())
    assert [row[0] for row in data["queries"]] == ["weather leeds", "news"]
    assert data["all"] == 4
    script = SEARCH.replace("tell(given", "tell([index.size, index.released, index.measure, index.created]); (given")
    assert in_node(site, script, ["x"]) == [2, 4, "share", "2026-11-15"]


def test_it_refuses_what_is_no_index(tmp_path):
    site = built(tmp_path / "site", weeks())
    script = """
import { SearchIndex } from "./search.mjs";
tell(given[0].map((data) => { try { return new SearchIndex(data).size } catch (error) { return error.message } }));
"""
    told = in_node(site, script, [None, {}, {"format": "hushquery-index", "version": 2, "queries": []}])
    assert told == ["this is no search index of hushquery, version 1"] * 3


# Scripts that have been stable in Unicode for long, so that Node and Python know the same characters.
RANGES = [(0x20, 0x250), (0x370, 0x530), (0x531, 0x700), (0x900, 0xE80), (0x1E00, 0x2000), (0x2010, 0x2070)]
RANGES += [(0x2100, 0x2200), (0x3041, 0x3130), (0x4E00, 0x4E80), (0xF900, 0xFA20), (0xFB00, 0xFB50), (0xFF01, 0xFF60)]


def test_it_folds_and_cuts_as_python_does(tmp_path):
    site = built(tmp_path / "site", weeks())
    letters = [chr(point) for first, last in RANGES for point in range(first, last)] + ["𝒜", "🎉", "𠀀"]
    texts = [f"a{one}b" for one in letters] + [f"{one} {one}{one}" for one in letters] + TYPED
    script = """
import { fold, keyOf, tokens } from "./matching.mjs";
tell(given[0].map((text) => { const folded = fold(text); return [folded, tokens(keyOf(folded))] }));
"""
    assert len(texts) > 7000
    wrong = [
        (text, said, fold(text))
        for text, said in zip(texts, in_node(site, script, texts), strict=True)
        if said != [fold(text), list(tokens(key_of(fold(text))))]
    ]
    assert wrong == []


def test_it_counts_mistakes_as_python_does(tmp_path):
    site = built(tmp_path / "site", weeks())
    rng = random.Random(3)
    pairs = [
        ["".join(rng.choices("ab😀", k=rng.randint(0, 7))) for _ in range(2)] + [rng.randint(0, 3)] for _ in range(3000)
    ]
    script = """
import { allowedEdits, edits } from "./matching.mjs";
tell(given[0].map(([one, other, limit]) => [edits(one, other, limit), allowedEdits(one)]));
"""
    expected = [[edits(one, other, limit), allowed_edits(one)] for one, other, limit in pairs]
    assert in_node(site, script, pairs) == expected
    assert {distance for distance, _ in expected} == {None, 0, 1, 2, 3}


def test_it_prints_numbers_as_python_does(tmp_path):
    site = built(tmp_path / "site", weeks())
    shares = [0, 1, 0.1234, 0.00042, 0.0000042, -0.01, -1e-12, 0.5, 3e-7, 0.001, 0.99999]
    counts = [0, 12, 1234567, -1234, 12.4]
    script = 'import { number, percent } from "./pages.mjs"; tell([given[0].map(percent), given[1].map(number)]);'
    assert in_node(site, script, shares, counts) == [[percent(share) for share in shares], [number(n) for n in counts]]


LAW = """
import { law, Cells } from "./demonstration.mjs";
import { unpack } from "./reading.js";
const [served, payloads, values] = given;
const { oracle: description, domain } = served.configuration;
const { speaks, chance } = law(description);
const cells = new Cells({ description, domain, task: served.task });
const counts = new Array(cells.names.length).fill(0);
for (const one of payloads) {
  const answer = unpack(description, new Uint8Array(Buffer.from(one, "base64")));
  for (const cell of speaks(answer)) counts[cell] += 1;
}
const all = [...counts.keys()];
const chances = all.map((cell) => all.map((other) => chance(cell, other)));
tell({ counts, chances, cells: values.map(([value, url]) => cells.of(value, url) ?? null) });
"""


@pytest.mark.parametrize("name", ["krr", "oue", "subset", "olh", "hadamard", "two-stage"])
def test_the_demonstration_knows_the_law_of_the_mechanism(tmp_path, name):
    configuration, served = task_of(name)
    oracle, domain = configuration.oracle, configuration.domain
    site = built(tmp_path / "site", [private_hybrid()], privacy={"task": served})
    reports = oracle.randomize_many(np.arange(400) % oracle.k, SeededBits(5))
    payloads = [base64.b64encode(oracle.pack(oracle.report(row))).decode() for row in reports]
    values = [
        *domain.records,
        ("Weather  LEEDS", "https://weather.example.org/leeds"),
        ("weather leeds", "nowhere"),
        ("no", ""),
    ]
    said = in_node(site, LAW, served, payloads, values)
    assert said["counts"] == oracle.support(reports).tolist()
    assert said["cells"] == [domain.cell(*value) for value in values]
    chances = np.array(said["chances"])
    if name == "two-stage":
        expected = np.array(
            [[oracle.law(cell).get(other, 0.0) for other in range(oracle.k)] for cell in range(oracle.k)]
        )
    else:
        expected = np.where(np.eye(oracle.k, dtype=bool), float(oracle.p), float(oracle.q))
    assert chances == pytest.approx(expected, rel=1e-6)


def test_the_demonstration_knows_settings(tmp_path):
    configuration, served = setting_task()
    site = built(tmp_path / "site", [private_hybrid()], privacy={"task": served})
    said = in_node(site, LAW, served, [], [["dark"], [" Light "], ["sepia"]])
    expected = [configuration.domain.cell(value) for value in ("dark", " Light ", "sepia")]
    assert said["cells"] == expected
