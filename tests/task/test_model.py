"""Task files: what they may say, what is refused and how, and what their id depends on."""

from __future__ import annotations

import hashlib
import json
import random
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from hushquery.errors import DataError, UsageError
from hushquery.task import Task, template
from hushquery.task.model import duration, size, whole

SETTING = """
[task]
name = "theme"
population = "app users"
kind = "setting"
domain = ["dark", "light"]
[client]
epsilon = 4
lifetime_epsilon = 16
"""

# The task file of the design, as people will write it.
SEARCHES = """
[task]
name = "example-searches"
population = "browser users"
period = "7d"
[optin]
epsilon = 4.0
delta = 1e-5
records_per_user = 1
relation = "replace-one"
[client]
epsilon = 4.0
records_per_user = 1
oracle = "auto"
unknown = "wildcard"
lifetime_epsilon = 16.0
sampling = 1.0
[head]
size = 50
mode = "best"
[collect]
min_batch = 1000
time_precision = "30m"
clock_skew = "1m"
retention = "90d"
max_body = 65536
origins = []
"""


def refused(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        Task.loads(text)
    return str(caught.value)


def test_reads_the_task_of_the_design() -> None:
    task = Task.loads(SEARCHES)
    assert task.task.period == 7 * 86400
    assert task.task.kind == "searches"
    assert task.optin is not None
    assert task.optin.delta == Fraction(1, 100000)
    assert task.client.epsilon == 4
    assert task.client.enabled
    assert task.head is not None
    assert task.head.size == 50
    assert (task.collect.time_precision, task.collect.clock_skew, task.collect.retention) == (1800, 60, 7776000)


@pytest.mark.parametrize("kind", ["searches", "setting"])
def test_the_template_is_valid_and_shows_every_key(kind: str) -> None:
    text = template(kind)
    written = tomllib.loads(text)
    for part, content in Task.loads(text).to_json().items():
        if content is not None:
            missing = {key for key in content if key not in written[part]} - {"domain"}
            assert not missing, f"{part}: {missing}"


def test_the_id_is_the_hash_of_the_canonical_form() -> None:
    task = Task.loads(SEARCHES)
    assert task.id == hashlib.sha256(task.canonical().encode()).hexdigest() == task.digest.hex()
    assert Task.from_json(task.canonical()).id == task.id
    assert Task.from_json(json.dumps(task.to_json())).id == task.id


def test_a_golden_id() -> None:
    # A change here is a change of every task's id: then it needs a new version of the format.
    assert Task.loads(SETTING).canonical() == (
        '{"client":{"epsilon":"4","lifetime_epsilon":"16","oracle":"auto","records_per_user":1,"sampling":"1",'
        '"unknown":"wildcard"},"collect":{"time_precision":1800},"head":null,"optin":null,"task":{"domain":["dark",'
        '"light"],"kind":"setting","name":"theme","period":null,"population":"app users"}}'
    )


@given(st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_order_comments_and_spelling_do_not_change_the_id(chance: random.Random) -> None:
    spellings = {
        "epsilon": ["4", "4.0", '"4"', '"8/2"', "4e0", '"4.00"'],
        "lifetime_epsilon": ["16", "16.0", '"16"'],
        "sampling": ["1", "1.0", '"1"'],
        "records_per_user": ["1", "1.0"],
    }
    period = chance.choice(['"7d"', '"168h"', '"1w"', "604800"])
    client = [f"{key} = {chance.choice(ways)}  # {chance.random()}" for key, ways in spellings.items()]
    size = chance.choice(["65536", '"64KiB"', "65536.0"])
    head = ['name = "t"', 'population = "p"', 'kind = "setting"', 'domain = ["a", "b"]', f"period = {period}"]
    chance.shuffle(client)
    chance.shuffle(head)
    parts = [["[client]", *client], ["[task]", *head], ["[collect]", f"max_body = {size}"]]
    chance.shuffle(parts)
    text = "\n".join(line for part in parts for line in part)
    plain = (
        '[task]\nname="t"\npopulation="p"\nkind="setting"\ndomain=["a","b"]\nperiod="7d"\n'
        "[client]\nepsilon=4\nlifetime_epsilon=16"
    )
    assert Task.loads(text).id == Task.loads(plain).id


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("epsilon = 4\n", "epsilon = 4.0000001\n"),
        ('"theme"', '"themes"'),
        ('["dark", "light"]', '["light", "dark"]'),
        ('["dark", "light"]', '["dark", "light", "blue"]'),
        ('kind = "setting"', 'kind = "setting"\nperiod = "7d"'),
        ("epsilon = 4\n", 'epsilon = 4\nunknown = "refuse"\n'),
        ("epsilon = 4\n", "epsilon = 4\nsampling = 0.5\n"),
        ("[client]", '[collect]\ntime_precision = "1h"\n[client]'),
    ],
)
def test_what_a_task_says_changes_its_id(old: str, new: str) -> None:
    assert old in SETTING
    assert Task.loads(SETTING).id != Task.loads(SETTING.replace(old, new, 1)).id


def test_the_off_switch_does_not_change_the_id() -> None:
    off = Task.loads(SETTING + "enabled = false\n")
    assert not off.client.enabled
    assert off.id == Task.loads(SETTING).id


@pytest.mark.parametrize(
    "line",
    ["min_batch = 50", 'clock_skew = "5m"', 'retention = "1d"', 'max_body = "1MiB"', 'origins = ["https://a.example"]'],
)
def test_what_only_the_collector_uses_does_not_change_the_id_and_is_served(line: str) -> None:
    task, plain = Task.loads(f"{SETTING}[collect]\n{line}\n"), Task.loads(SETTING)
    assert task.id == plain.id
    served = task.to_json()["collect"]
    assert served != plain.to_json()["collect"]
    assert set(served) == {"clock_skew", "max_body", "min_batch", "origins", "retention", "time_precision"}


def test_epsilons_are_exact() -> None:
    task = Task.loads(SETTING.replace("epsilon = 4\n", 'epsilon = "ln(10)"\n', 1))
    assert 2.302585 < task.client.epsilon < 2.302586
    assert Task.loads(SETTING.replace("epsilon = 4\n", "epsilon = 0.1\n", 1)).client.epsilon == Fraction(1, 10)
    shared = Task.loads(SETTING + "records_per_user = 3\n")
    assert shared.record_epsilon == Fraction(4, 3)


def test_a_task_is_frozen() -> None:
    task = Task.loads(SETTING)
    with pytest.raises(ValidationError):
        task.client.epsilon = Fraction(9)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("lifetime_epsilon", "lifetime_epsilom", "did you mean lifetime_epsilon?"),
        ("[client]", "[clients]", "did you mean client?"),
        ("population", "popolation", "did you mean population?"),
        ("[client]", "[client]\nzzz = 1", "unknown key 'zzz', it may be one of bits, buckets, enabled, epsilon"),
        ("epsilon = 4\n", "", "[client] epsilon is missing"),
        ("epsilon = 4\n", "epsilon = 0\n", "epsilon: must be above zero"),
        ("epsilon = 4\n", "epsilon = nan\n", "epsilon: the number is not a finite number"),
        ("epsilon = 4\n", "epsilon = inf\n", "not a finite number"),
        ("epsilon = 4\n", "epsilon = true\n", "not a finite number"),
        ("epsilon = 4\n", 'epsilon = "four"\n', "not a finite number"),
        ("epsilon = 4\n", "epsilon = 17\n", "lifetime_epsilon is below epsilon"),
        ("epsilon = 4\n", 'epsilon = 4\nunknown = "maybe"\n', "unknown"),
        ("epsilon = 4\n", "epsilon = 4\nsampling = 0\n", "at most 1. To collect nothing, set enabled = false"),
        ("epsilon = 4\n", "epsilon = 4\nsampling = 1.5\n", "sampling"),
        ("epsilon = 4\n", "epsilon = 4\nrecords_per_user = 1.5\n", "not a whole number"),
        ("epsilon = 4\n", "epsilon = 4\nrecords_per_user = true\n", "not a whole number"),
        ('["dark", "light"]', '["dark", "dark "]', "entries 1 and 2 of the domain are the same"),
        ('["dark", "light"]', "[]", "at least two cells"),
        ('["dark", "light"]', '["dark", ""]', "entry 2 of the domain is empty"),
        ('["dark", "light"]', '["dark", 5]', "domain: entry 2"),
        ('["dark", "light"]', '["dark", ["a", "b"]]', "entry 2 of the domain is not a text"),
        ('domain = ["dark", "light"]', "", "domain is missing"),
        ('kind = "setting"', 'kind = "settings"', "kind"),
        ('kind = "setting"', 'period = "1 fortnight"', "not a length of time"),
        ('kind = "setting"', 'kind = "setting"\nperiod = "45m"', "multiple of [collect] time_precision"),
        ("[client]", "[head]\nsize = 5\n[client]", "leave one of them out"),
        ("[client]", "[collect]\nmin_batch = 1\n[client]", "min_batch"),
        ('name = "theme"', 'name = "a\\nb"', "one line of text"),
        ("[task]", "[task", "not TOML"),
    ],
)
def test_refuses(old: str, new: str, said: str) -> None:
    assert old in SETTING
    assert said in refused(SETTING.replace(old, new, 1))


def test_all_problems_are_told_at_once() -> None:
    words = refused(SETTING.replace("population", "popolation").replace("epsilon = 4\n", "epsilon = -4\n", 1))
    assert "3 problems" in words  # unknown, hence missing, and negative


def test_searches_need_a_head_list_or_a_domain() -> None:
    bare = '[task]\nname="t"\npopulation="p"\n[client]\nepsilon=1\nlifetime_epsilon=1\n'
    assert "neither a [head] list" in refused(bare)
    listed = bare.replace("[client]", 'domain = [["Weather  Leeds", "HTTPS://Weather.Example/"]]\n[client]')
    assert Task.loads(listed).listed().records == (("weather leeds", "https://weather.example"),)
    # The normal form is what is hashed: both sides compare in it.
    normal = listed.replace("Weather  Leeds", "weather leeds").replace(
        "HTTPS://Weather.Example/", "https://weather.example"
    )
    assert Task.loads(normal).id == Task.loads(listed).id
    with pytest.raises(UsageError, match="head list, which was not given"):
        Task.loads(SEARCHES).listed()
    with pytest.raises(UsageError, match="takes no head list"):
        Task.loads(listed).listed([["a", ""]])


def test_periods_and_times() -> None:
    task = Task.loads(SEARCHES)
    week = 7 * 86400
    assert [task.period_at(moment) for moment in (0, week - 0.5, week, 10 * week)] == [0, 0, 1, 10]
    assert [task.truncate(moment) for moment in (0, 1799.9, 1800, 5399)] == [0, 0, 1800, 3600]
    assert Task.loads(SETTING).period_at(1e9) == 0


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    file.write_text(SETTING)
    assert Task.load(file) == Task.loads(SETTING)
    served = tmp_path / "task.json"
    served.write_text(Task.loads(SETTING).canonical())
    assert Task.load(served).id == Task.loads(SETTING).id
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="not UTF-8"):
        Task.load(file)
    with pytest.raises(DataError, match="can't be read"):
        Task.load(tmp_path / "missing.toml")
    for text in ("[1]", "{", "nul", "[" * 100000):
        served.write_text(text)
        with pytest.raises(UsageError):
            Task.load(served)


@given(st.text(max_size=60) | st.from_regex(r"\[[a-z]+\]\n[a-z]+ = [\"0-9a-z.]+", fullmatch=True))
@settings(max_examples=100, deadline=None)
def test_any_text_is_a_task_or_an_error_of_ours(text: str) -> None:
    with pytest.raises(UsageError):
        Task.loads(text)


PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from([("task", "period"), ("task", "domain"), ("client", "epsilon"), ("client", "sampling")])
    | st.sampled_from([("collect", "max_body"), ("task", "name"), ("client", "oracle"), ("collect", "origins")]),
    PLAIN,
)
@settings(max_examples=200, deadline=None)
def test_any_value_is_read_or_refused_with_words(place: tuple[str, str], value: Any) -> None:
    data = tomllib.loads(SETTING) | {"collect": {}}
    data[place[0]][place[1]] = value
    try:
        task = Task.make(data)
    except UsageError as error:
        words = str(error)
    else:
        words = place[1]
        assert Task.from_json(task.canonical()).id == task.id
    assert any(name in words for name in (place[1], "domain", "period", "lifetime"))


def test_schema_names_every_key_and_accepts_what_templates_say() -> None:
    schema = Task.json_schema()
    assert schema["$schema"].endswith("2020-12/schema")
    assert json.loads(json.dumps(schema)) == schema
    assert set(schema["properties"]) == {"task", "optin", "client", "head", "collect"}
    assert set(schema["required"]) == {"task", "client"}
    client = schema["$defs"]["ClientPart"]
    assert set(client["required"]) == {"epsilon", "lifetime_epsilon"}
    assert client["additionalProperties"] is False
    assert "off-switch" in client["properties"]["enabled"]["description"]


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (duration, "7"),
        (duration, "d"),
        (duration, "-1d"),
        (duration, "0d"),
        (duration, "1.5h"),
        (duration, "999999999d"),
        (duration, True),
        (duration, None),
        (size, "1TB "),
        (size, "-1kB"),
        (whole, "50"),
        (whole, float("nan")),
        (whole, float("inf")),
        (whole, 1e300),
        (whole, [1]),
    ],
)
def test_no_number(read: Any, value: object) -> None:
    with pytest.raises(UsageError):
        read(value)


def test_numbers() -> None:
    assert [duration(text) for text in ("45s", "30m", "12h", "7d", "2w", 90)] == [45, 1800, 43200, 604800, 1209600, 90]
    assert [size(text) for text in ("10B", "1kB", "1KiB", "2MB", "1MiB", 7)] == [10, 1000, 1024, 2000000, 1048576, 7]
    assert [size(text) for text in ("50GB", "1GiB")] == [50 * 10**9, 2**30]  # stores are large


def test_the_schema_judges_files_as_we_do() -> None:
    import jsonschema

    check = jsonschema.Draft202012Validator(Task.json_schema())
    for text in (SEARCHES, SETTING, template("searches"), template("setting")):
        assert check.is_valid(tomllib.loads(text))
    assert check.is_valid(json.loads(Task.loads(SEARCHES).canonical()))
    for old, new in [("epsilon = 4\n", "epsilom = 4\n"), ('"setting"', '"settings"'), ("[client]", "[clients]")]:
        assert not check.is_valid(tomllib.loads(SETTING.replace(old, new, 1)))


def test_completion_shows_a_tasks_own_names_only() -> None:
    task = Task.loads(SETTING)
    assert dir(task) == dir(Task)
    assert {"task", "client", "collect", "load", "loads", "id", "canonical", "period_at"} <= set(dir(task))
    assert all(name in vars(Task) or name in Task.model_fields for name in dir(task))
    assert not [name for name in dir(task) if name.startswith(("_", "model_")) or name in ("copy", "dict", "json")]
    assert all(hasattr(task, name) for name in dir(task))
    assert set(dir(task.client)) == set(type(task.client).model_fields)
