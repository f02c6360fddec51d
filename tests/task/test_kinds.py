"""Numbers and texts in task files: which keys belong to which kind, and what the id depends on."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from hushquery.errors import UsageError
from hushquery.local.configuration import Configuration
from hushquery.task import Domain, GroupedDomain, Numbers, Task, Texts, template

NUMBER = """
[task]
name = "minutes"
population = "app users"
kind = "number"
highest = 100
[client]
epsilon = 1
lifetime_epsilon = 4
"""
TEXT = """
[task]
name = "pages"
population = "app users"
kind = "text"
[client]
epsilon = 4.5
lifetime_epsilon = 9
[client.rappor]
k = 64
h = 2
m = 8
p = 0.25
q = 0.75
f = 0.5
"""
PAIRS = """
[task]
name = "searches"
population = "app users"
domain = [["a", "https://a.example"], ["b", ""]]
[client]
epsilon = 1
lifetime_epsilon = 4
oracle = "two-stage"
"""
HEADED = PAIRS.replace('domain = [["a", "https://a.example"], ["b", ""]]', "") + "[head]\nsize = 3\n"
PAPER = HEADED + 'mode = "paper"\n'


@pytest.mark.parametrize(
    ("text", "old", "new", "problem"),
    [
        (NUMBER, "highest = 100", "", "highest is missing"),
        (NUMBER, "highest = 100", "highest = 0", "greater than or equal to 1"),
        (NUMBER, "highest = 100", "highest = 1.5", "not a whole number"),
        (NUMBER, "highest = 100", "highest = nan", "not a whole number"),
        (NUMBER, "highest = 100", 'highest = "100"', "not a whole number"),
        (NUMBER, "highest = 100", "highest = 4294967296", "less than or equal to"),
        (NUMBER, "highest = 100", 'highest = 100\ndomain = ["1"]', "has none"),
        (NUMBER, "[client]", "[head]\nsize = 3\n[client]", "has none"),
        (NUMBER, "[client]", "[optin]\nepsilon = 1\ndelta = 0\n[client]", "has none"),
        (NUMBER, "[client]", '[client]\noracle = "krr"', "auto, onebit, dbitflip"),
        (NUMBER, "[client]", "[client]\nstep = 30", "must divide"),
        (NUMBER, "[client]", "[client]\nstep = 200", "must divide"),
        (NUMBER, "[client]", "[client]\nbuckets = 3", 'belongs to oracle = "dbitflip"'),
        (NUMBER, "[client]", '[client]\noracle = "dbitflip"', "buckets and bits are missing"),
        (NUMBER, "[client]", '[client]\noracle = "dbitflip"\nbuckets = 5\nbits = 6', "more than there are buckets"),
        (NUMBER, "[client]", '[client]\noracle = "dbitflip"\nbuckets = 102\nbits = 1', "more than there are numbers"),
        (NUMBER, "[client]", '[client]\noracle = "dbitflip"\nbuckets = 5\nbits = 1\nstep = 5', "belongs to"),
        (NUMBER, "[client]", "[client]\nrecords_per_user = 2", "no wildcard to fill"),
        (NUMBER, "[client]", '[client]\nunknown = "wildcard"', "has no wildcard"),
        (NUMBER, "[client]", "[client]\nstepp = 5", "did you mean step?"),
        (TEXT, "[client.rappor]", "[client.other]", "unknown key 'other'"),
        (TEXT, "k = 64", "kk = 64", "did you mean k?"),
        (TEXT, "k = 64", "k = 1", "greater than or equal to 2"),
        (TEXT, "k = 64", "k = 70000", "less than or equal to 65536"),
        (TEXT, "m = 8", "m = 8.5", "not a whole number"),
        (TEXT, "p = 0.25", "p = 0.8", "p must be below q"),
        (TEXT, "p = 0.25", "p = -0.1", "a chance from 0 to 1"),
        (TEXT, "f = 0.5", "f = nan", "not a finite number"),
        (TEXT, "[client.rappor]", "[client.rappor2]", "unknown key"),
        (TEXT, 'kind = "text"', 'kind = "text"\nhighest = 3', 'highest is for kind = "number"'),
        (TEXT, "[client]", '[client]\noracle = "onebit"', "auto, rappor"),
        (PAIRS, 'oracle = "two-stage"', 'oracle = "two-stage"\nunknown = "refuse"', 'must be "wildcard"'),
        (PAIRS, 'oracle = "two-stage"', 'oracle = "krr"\nquery_share = 0.5', 'belongs to oracle = "two-stage"'),
        (PAIRS, 'oracle = "two-stage"', 'oracle = "two-stage"\nquery_share = 1', "above 0 and below 1"),
        (PAIRS, 'oracle = "two-stage"', 'oracle = "rappor"', 'is for kind = "text"'),
        (PAIRS, 'oracle = "two-stage"', 'oracle = "onebit"', 'is for kind = "number"'),
        (HEADED, "size = 3", 'size = 3\nmode = "best"', 'belongs to [head] mode = "paper"'),
        (PAPER, 'oracle = "two-stage"', 'oracle = "krr"', "is for two-stage reports"),
        (PAPER, 'oracle = "two-stage"', 'oracle = "krr"\nquery_share = 0.5', "is for two-stage reports"),
        (PAPER, 'oracle = "two-stage"', 'unknown = "refuse"', 'must be "wildcard"'),
        (
            PAPER,
            "[head]",
            "[optin]\nepsilon = 1\ndelta = 0\nrecords_per_user = 2\n[head]",
            "different records_per_user",
        ),
        (PAIRS, "[client]", "highest = 5\n[client]", 'highest is for kind = "number"'),
        (template("setting"), 'oracle = "auto"', 'oracle = "two-stage"', 'kind = "searches"'),
    ],
)
def test_refuses(text: str, old: str, new: str, problem: str) -> None:
    assert old in text
    with pytest.raises(UsageError) as caught:
        Task.loads(text.replace(old, new, 1))
    assert problem in str(caught.value)


def test_the_papers_mode_means_its_mechanism() -> None:
    auto = Task.loads(PAPER.replace('oracle = "two-stage"', ""))
    tight = Task.loads(PAPER)
    given = Task.loads(PAPER.replace('"two-stage"', '"two-stage"\nquery_share = 0.85'))
    assert (auto.oracle, auto.query_share) == (given.oracle, given.query_share) == ("two-stage", Fraction(17, 20))
    assert (tight.oracle, tight.query_share) == ("two-stage", None)
    assert len({auto.id, tight.id, given.id}) == 3
    half = Task.loads(PAPER.replace('oracle = "two-stage"', "query_share = 0.5"))
    assert (half.oracle, half.query_share) == ("two-stage", Fraction(1, 2))
    head = [["a", "https://a.example"], ["b", ""]]
    fixed = Configuration.of(auto, head)
    assert fixed.channel.describe() == Configuration.of(given, head).channel.describe()
    assert fixed.channel.describe() != Configuration.of(tight, head).channel.describe()
    assert "0.85" in fixed.why
    best = Task.loads(HEADED.replace('oracle = "two-stage"', ""))
    assert (best.oracle, best.query_share) == ("auto", None)


def test_both_sides_have_equally_many_records() -> None:
    optin = "[optin]\nepsilon = 1\ndelta = 0\nrecords_per_user = 2\n[head]"
    text = PAPER.replace("[head]", optin).replace("epsilon = 1\n", "epsilon = 1\nrecords_per_user = 2\n", 1)
    task = Task.loads(text)
    assert task.optin is not None
    assert task.optin.records_per_user == task.client.records_per_user == 2


def test_rappor_needs_its_table() -> None:
    with pytest.raises(UsageError, match="rappor] is missing"):
        Task.loads(TEXT[: TEXT.index("[client.rappor]")])


@pytest.mark.parametrize("text", [NUMBER, TEXT, PAIRS])
def test_the_canonical_form_is_read_back_and_names_only_keys_that_are_there(text: str) -> None:
    task = Task.loads(text)
    assert Task.from_json(task.canonical()).id == task.id
    said = json.loads(task.canonical())
    special = {"highest", "query_share", "step", "buckets", "bits", "rappor"}
    assert (set(said["task"]) | set(said["client"])) & special == {
        name for name in special if f"{name} =" in text or f".{name}]" in text
    }
    assert said["client"]["unknown"] == ("wildcard" if text == PAIRS else "refuse")


def test_how_a_number_is_spelled_makes_no_difference() -> None:
    assert Task.loads(TEXT).id == Task.loads(TEXT.replace("0.25", '"1/4"').replace("k = 64", "k = 64.0")).id
    assert Task.loads(NUMBER).id != Task.loads(NUMBER + "step = 100\n").id
    assert Task.loads(NUMBER).id == Task.loads(NUMBER + 'unknown = "refuse"\n').id


def test_the_schema_knows_the_new_keys() -> None:
    parts: dict[str, Any] = Task.json_schema()["$defs"]
    assert parts["TaskPart"]["properties"]["kind"]["enum"] == ["searches", "setting", "number", "text"]
    assert {"query_share", "step", "buckets", "bits", "rappor"} <= set(parts["ClientPart"]["properties"])
    assert set(parts["RapporPart"]["required"]) == {"k", "h", "m", "p", "q", "f"}


def test_values_in_their_normal_form() -> None:
    assert Texts().cell(" cafe\u0301 ") == "caf\u00e9".encode()
    assert [Numbers(5).cell(value) for value in (0, 5)] == [0, 5]
    pairs = Domain.read("searches", [["A b", "HTTP://X.example/"], ["c", ""]], wildcard=True)
    assert GroupedDomain.of(pairs).cell("a  B", "http://x.example") == 0
    with pytest.raises(UsageError, match="no cell 5"):
        GroupedDomain.of(pairs).label(5)
    with pytest.raises(UsageError, match="can be grouped"):
        GroupedDomain.of(Domain.read("setting", ["a", "b"], wildcard=True))
    with pytest.raises(UsageError, match="can be grouped"):
        GroupedDomain.of(Domain.read("searches", [["a", ""], ["b", ""]], wildcard=False))
