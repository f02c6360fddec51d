"""What a release says of itself: validated, public, and never read from rows."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hushquery as hq
from hushquery.core.description import Description
from hushquery.errors import DataError, HushqueryError, UsageError

WHOLE = {
    "title": "Searches of a week",
    "publisher": "Example Library",
    "licence": "CC-BY-4.0",
    "period": {"start": "2026-11-02", "end": "2026-11-08"},
    "contact": "library@example.org",
    "people": 2500,
}


def test_it_goes_to_json_and_back():
    about = Description.from_json(WHOLE)
    assert about.to_json() == WHOLE
    assert Description.from_json({**WHOLE, "later": 1}) == about  # a later version may say more
    assert dict(about.facts())["people"] == "about 2,500 (declared)"
    assert about.for_ledger() == "title: Searches of a week\nperiod: 2026-11-02 to 2026-11-08"
    assert not Description()
    assert Description().to_json() == {}
    assert hq.Description is Description


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"title": ""}, "empty"),
        ({"title": " \t "}, "empty"),
        ({"title": "a\nb"}, "control"),
        ({"title": "a\x1b[31mb"}, "control"),
        ({"title": "a\u202eb"}, "control"),
        ({"title": "a\u2066b"}, "control"),
        ({"title": "x" * 201}, "longer"),
        ({"title": 5}, "not text"),
        ({"licence": "x" * 201}, "longer"),
        ({"contact": "somebody"}, "neither"),
        ({"contact": "http://example.org"}, "neither"),
        ({"contact": "javascript:alert(1)"}, "neither"),
        ({"contact": "https://user:secret@example.org/"}, "neither"),
        ({"contact": "https://example.org/ a"}, "neither"),
        ({"contact": "a@b"}, "neither"),
        ({"contact": "a@b.c <x>"}, "neither"),
        ({"period": "2026-11-02"}, "two ISO dates"),
        ({"period": "2026-11-02.."}, "two ISO dates"),
        ({"period": "2026-02-30..2026-03-01"}, "two ISO dates"),
        ({"period": "yesterday..today"}, "two ISO dates"),
        ({"period": "2026-11-08..2026-11-02"}, "ends before"),
        ({"people": 0}, "from 1"),
        ({"people": -5}, "from 1"),
        ({"people": True}, "from 1"),
        ({"people": 2.5}, "from 1"),
        ({"people": 10**12}, "from 1"),
    ],
)
def test_what_can_not_be_published_is_refused(given, said):
    with pytest.raises(UsageError, match=said):
        Description(**given)


@pytest.mark.parametrize("contact", ["a.b+c@example.org", "https://example.org", "https://example.org/a?b=c#d"])
def test_contacts(contact):
    assert Description(contact=contact).contact == contact


@pytest.mark.parametrize("damage", [None, 5, "text", [], [1], {"period": "2026"}, {"period": {"start": "2026-01-01"}}])
def test_damaged_ones_are_refused(damage):
    with pytest.raises(DataError):
        Description.from_json(damage)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # a busy machine is no defect
@given(st.dictionaries(st.sampled_from(sorted(WHOLE)), st.none() | st.text() | st.integers() | st.lists(st.integers())))
def test_nothing_else_is_raised(data):
    try:
        assert Description.from_json(Description.from_json(data).to_json())
    except HushqueryError:
        pass
    except AssertionError:
        assert not any(data.values()) or all(value is None for value in data.values())


def test_the_period_follows_from_the_times_that_were_asked_for():
    week = {"since": "2026-11-02T00:00:00Z", "until": "2026-11-09T00:00:00Z"}
    assert Description().within(week).period == "2026-11-02..2026-11-08"
    assert Description().within({**week, "until": "2026-11-09T00:00:01Z"}).period == "2026-11-02..2026-11-09"
    assert Description().within({"since": week["since"]}).period is None
    assert Description().within({}).period is None
    assert Description(period="2026-11-03..2026-11-04").within(week).period == "2026-11-03..2026-11-04"
    for beyond in ("2026-11-01..2026-11-08", "2026-11-02..2026-11-09"):
        with pytest.raises(UsageError, match="beyond the times"):
            Description(period=beyond).within(week)
    assert Description().within({"since": "5 microseconds after 1970", "until": "9"}).period is None
