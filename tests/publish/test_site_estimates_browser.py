"""The pages of a task's periods in a real Chromium: the randomiser of every kind, two periods compared, and attacks."""

from __future__ import annotations

import json

import pytest

from chromium import CONTRAST, browser, static_server
from estimate_releases import FIRST, HELD, TASKS, configuration, counted, period, weeks
from hushquery.local.server.estimate import estimate_support
from hushquery.publish.site import HEADERS
from site_files import NASTY, built

PAGES = ("index.html", "releases.html", "privacy.html")
READY = {
    "index.html": "!document.getElementById('periods') || document.querySelector('#periods-table table')",
    "privacy.html": "!document.getElementById('try').hidden",
}


def hostile(kind, week):
    """Give a release whose every text is an attack."""
    texts = [text for text in NASTY if text.isprintable()]
    names = {"name": texts[0], "population": texts[1]}
    values = [texts[number % len(texts)] for number in range(600)]
    changes = {"task": {**names, "domain": texts}} if kind == "setting" else {"task": names}
    fixed = configuration(kind, **changes)
    support = counted(fixed, values, f"hostile {week}")
    candidates = texts if kind == "text" else None
    return estimate_support(fixed, support, 600, periods=(FIRST + week,), candidates=candidates).release()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("web")
    for kind in TASKS:
        built(folder / kind, weeks(kind, 5, missing=[2]), missing={FIRST + 2: "12 reports, fewer than 1,000"})
    for kind in ("setting", "text"):
        built(folder / f"hostile-{kind}", [hostile(kind, week) for week in (0, 1)], missing={FIRST + 9: NASTY[0]})
    older = [period("setting", week, client={"epsilon": 2, "lifetime_epsilon": 8}) for week in (0, 1)]
    built(folder / "changed", [*older, *weeks("setting", 5)[3:]])
    return folder


@pytest.fixture(scope="module")
def web(root):
    with static_server(root, HEADERS) as server:
        yield server


@pytest.fixture
def tab(chromium):
    opened = []

    def make(address, **options):
        page = chromium.page(**options)
        opened.append(page)
        page.open(address)
        page.wait(READY.get(address.rpartition("/")[2], "true"))
        return page

    yield make
    for page in opened:
        origin = page.run("location.origin")
        assert page.problems == []
        assert origin == "null" or [one for one in page.requests if not one.startswith(origin)] == []
        page.close()


def texts(page, selector):
    return page.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent.trim())")


def go_to(page, wanted, most=60):
    for _ in range(most):
        page.press("Tab")
        if page.run("document.activeElement.id") == wanted:
            return
    pytest.fail(f"the keyboard does not reach {wanted!r}")


def randomise(page, value):
    """Type a value and press Enter, as a person without a mouse does; give what is said of it."""
    go_to(page, "try-text")
    page.run("document.activeElement.select()")
    page.type(str(value))
    page.press("Enter")
    page.wait("document.getElementById('try-bytes').textContent")
    report = json.loads(texts(page, "#try-bytes")[0])
    assert set(report) == {"version", "id", "task", "configuration", "time", "payload"}
    assert page.run("document.activeElement.id") == "try-text"
    return texts(page, "#try-sent")[0], texts(page, "#try-status")[0]


def rows(page):
    return page.run(
        "[...document.querySelectorAll('.outcomes li')].map((row) => ["
        "row.querySelector('.label').textContent.trim(), Number.parseFloat(row.querySelector('.value').textContent),"
        "Number(row.querySelector('.value small').textContent.replace('expected ', ''))])"
    )


def near(count, expected):
    # A hundred draws; six standard deviations, which chance leaves once in 500 million runs.
    return abs(count - expected) < 6 * max(1.0, expected * (1 - expected / 100)) ** 0.5


def test_a_setting_is_randomised(web, tab):
    page = tab(f"{web.address}/setting/privacy.html")
    sent, status = randomise(page, "dark")
    assert sent.removeprefix("Your answer would be sent as ").rstrip(".") in {
        *("dark", "light", "system", "anything else")
    }
    ((label, count, expected), *_) = rows(page)
    oracle = configuration("setting").oracle
    assert label == "dark"
    assert expected == pytest.approx(100 * float(oracle.p), abs=0.06)
    assert near(count, expected)
    assert f"Your value was named by {count:.0f} of 100 answers" in status


def test_searches_are_randomised(web, tab):
    page = tab(f"{web.address}/searches/privacy.html")
    sent, status = randomise(page, "opening hours")
    assert sent.startswith("Your answer would be sent as ")
    assert "Your value was named by" in status
    assert texts(page, "#try-page option") == ["no click", "https://library.example/hours", "any other page"]


def test_a_number_is_randomised_to_one_bit(web, tab):
    page = tab(f"{web.address}/mean/privacy.html")
    sent, status = randomise(page, 15)
    assert sent.removeprefix("Your answer would be sent as ")[1:] == (
        ": a single bit, which is 1 the more often the larger the number is."
    )
    channel = configuration("mean").channel
    (zero, zeros, _), (one, ones, expected) = rows(page)
    assert (zero, one, zeros + ones) == ("0", "1", 100)
    assert expected == pytest.approx(100 * channel.chance(15) / 2**53, abs=0.06)
    assert near(ones, expected)
    assert f"{ones:.0f} of 100 devices with your number would send 1" in status
    page.run("document.getElementById('try-text').value = '61'; document.getElementById('try').noValidate = true")
    page.run("document.querySelector('#try button').click()")
    page.wait("document.getElementById('try-status').textContent.includes('nothing would be sent')")
    assert texts(page, "#try-sent") == [""]


def test_a_number_is_randomised_to_ranges(web, tab):
    page = tab(f"{web.address}/histogram/privacy.html")
    sent, status = randomise(page, 25)
    assert sent.count(": yes") + sent.count(": no") == 3
    ((label, count, expected), *_) = rows(page)
    assert label == "20..29"
    assert expected == pytest.approx(50 * configuration("histogram").channel.keep / 2**53, abs=0.06)
    assert near(count, expected)
    assert "Your range was named by" in status


def test_a_text_is_randomised_to_bits(web, tab):
    page = tab(f"{web.address}/text/privacy.html")
    sent, status = randomise(page, "my home page")
    assert " of 8 and the 64 bits of the first strip below." in sent
    assert page.run("document.querySelectorAll('.strip').length") == 6
    assert page.run("document.querySelectorAll('.strip rect').length") == 6 * 64
    assert "is sent as on with a chance of 0.800, every other bit with 0.200" in status
    ((_, on, expected),) = rows(page)
    assert abs(on - expected) < 6 * (64 * 0.16 / 100) ** 0.5


def choose(page, which, name):
    """Choose a period by typing its name into the list that has the focus."""
    page.run(f"document.getElementById('{which}').focus()")
    for letter in name:
        page.press(letter, letter)


def test_two_periods_are_compared_by_keyboard(web, tab):
    page = tab(f"{web.address}/setting/index.html")
    go_to(page, "earlier")
    for letter in "2026-09-24":
        page.press(letter, letter)
    page.wait("document.getElementById('periods-status').textContent.startsWith('2026-09-24')")
    page.press("Tab")
    assert page.run("document.activeElement.id") == "later"
    index = page.run("fetch('./index.json').then((answer) => answer.json())")
    changes = index["changes"]["0-3"]
    shown = page.run(
        "[...document.querySelectorAll('#periods-table tbody tr')].map((row) => row.lastElementChild.textContent)"
    )
    assert len(shown) == len(changes) == 4
    for (difference, _, _, noise), said in zip(changes, shown, strict=True):
        assert said.startswith(f"{100 * difference:+.2f}".replace("-", "−"))
        assert ("maybe noise" in said) == bool(noise)
    sure = sum(not change[3] for change in changes)
    assert texts(page, "#periods-status") == [
        f"2026-09-24 to 2026-09-30 and 2026-10-22 to 2026-10-28: {sure} of 4 changed by more than noise."
    ]
    choose(page, "later", "2026-09-24")
    page.wait("document.getElementById('periods-status').textContent === 'Choose two different periods.'")
    assert page.run("document.getElementById('periods-table').hidden")


def test_periods_of_two_series_are_not_compared(web, tab):
    page = tab(f"{web.address}/changed/index.html")
    choose(page, "earlier", "2026-09-24")
    page.wait("document.getElementById('periods-status').textContent.startsWith('The task changed')")


def test_it_works_from_a_folder_and_without_a_script(root, tab, chromium):
    page = tab(f"{(root / 'mean' / 'index.html').as_uri()}")
    assert "changed by more than noise" in texts(page, "#periods-status")[0]
    bare = chromium.page()
    bare.call("Emulation.setScriptExecutionDisabled", value=True)
    bare.open((root / "setting" / "index.html").as_uri())
    said = " ".join(name for _, name in bare.tree())
    assert "The table above compares the last two" in said
    assert "Changes are since the data of 2026-10-15 to 2026-10-21" in said
    assert ("columnheader", "Change") in bare.tree()
    assert ("combobox", "From") not in bare.tree()
    bare.close()


@pytest.mark.parametrize("kind", ["setting", "text"])
@pytest.mark.parametrize("name", PAGES)
def test_hostile_texts_stay_texts(web, tab, kind, name):
    page = tab(f"{web.address}/hostile-{kind}/{name}")
    if name == "index.html":
        assert NASTY[1] in texts(page, "main bdi")
        assert NASTY[1] in texts(page, "#periods-table bdi")
    if name == "privacy.html":
        randomise(page, NASTY[0])
    assert (
        page.run("document.querySelectorAll('img, iframe, object, script:not([src]), [onerror], [onload]').length") == 0
    )


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("kind", TASKS)
def test_it_fits_a_telephone_and_can_be_read(web, tab, kind, dark):
    for name in PAGES:
        page = tab(f"{web.address}/{kind}/{name}", width=390, height=800, dark=dark)
        if name == "privacy.html" and not dark:
            randomise(page, next(iter(HELD[kind](0))) if kind != "searches" else "loans")
        assert page.run("document.documentElement.scrollWidth") <= 390
        assert page.run(CONTRAST) >= 4.5
