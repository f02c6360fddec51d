"""A budget that promises little: said before, refused where it promises nothing, and marked on what comes out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hushquery as hq
import statistical
from commands import answer
from hushquery.errors import UsageError
from hushquery.hybrid.plan import plan_head
from hushquery.publish.site import build_site
from hushquery.task import Task
from small_releases import release_of

LARGE = "with this probability everything of a person may be published"
LOG = {"user": [f"u{i}" for i in range(60)], "query": ["news"] * 60}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_text("user,query\n" + "".join(f"u{i},news\n" for i in range(60)))


def test_a_weak_release_is_warned_of_and_marked_for_good() -> None:
    options = ("--epsilon", "1", "--delta", "0.05", "--queries-per-user", "1", "--population", "shop", "--out", "r")
    code, _, err = answer("release", "log.csv", *options)
    assert code == 0, err
    assert f"warning: delta 5e-02 is above 1e-04: {LARGE}" in err
    for arguments in (("verify", "r"), ("find", "r", "zz*"), ("show", "r")):
        code, out, err = answer(*arguments)
        assert code == 0
        assert f"warning: WEAK PROMISE. Delta 5e-02 is above 1e-04: {LARGE}" in err
        assert "never released" not in out
    (said,) = json.loads(answer("verify", "r", "--json")[1])["warnings"]
    assert LARGE in said
    page = build_site([hq.Release.load("r")])["privacy.html"].decode()
    assert '<p class="alarm">WEAK PROMISE' in page
    assert "nothing that few did" not in page


def test_an_ordinary_release_is_not_marked() -> None:
    release_of({"news": 90}).save("r")
    for arguments in (("show", "r"), ("find", "r", "zz*")):
        assert "WEAK" not in answer(*arguments)[2]
    assert "rare searches are never released" in answer("find", "r", "zz*")[1]
    assert "nothing that few did" in build_site([hq.Release.load("r")])["privacy.html"].decode()


@pytest.mark.parametrize("delta", ["0.1", "0.5"])
def test_a_delta_that_is_no_promise_is_refused_before_anything_is_spent(delta: str) -> None:
    options = ("--epsilon", "1", "--delta", delta, "--queries-per-user", "1", "--population", "shop", "--out", "r")
    code, _, err = answer("release", "log.csv", *options)
    assert code == 2
    assert "too large to publish anything" in err
    assert "often 1e-6 or less" in err
    assert not Path("r").exists()
    assert hq.Ledger.open("ledger.db").accounts() == []


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "--queries-per-user", "5"),
        ("explain", "guarantee"),
        ("budget", "open", "--population", "a", "--relation", "add-remove"),
        ("release", "log.csv", "--queries-per-user", "5", "--explain"),
    ],
)
def test_every_command_that_takes_a_delta_names_a_large_one(command: tuple[str, ...]) -> None:
    code, out, err = answer(*command, "--epsilon", "1", "--delta", "1e-3")
    assert code == 0, err
    assert f"warning: delta 1e-03 is above 1e-04: {LARGE}" in out + err
    assert LARGE not in "".join(answer(*command, "--epsilon", "1", "--delta", "1e-4")[1:])


def test_python_warns_when_the_plan_is_made_and_refuses_real_noise() -> None:
    with pytest.warns(hq.PrivacyWarning, match=LARGE):
        plan = hq.plan_release(LOG, epsilon=1, delta=0.5, queries_per_user=1, population="shop")
    assert f"warning: delta 5e-01 is above 1e-04: {LARGE}" in plan.explain()
    with pytest.raises(UsageError, match="too large to publish"):
        plan.run("ledger.db")
    assert plan.run("ledger.db", bits=statistical.bits("weak")).guarantees[0].test_noise


def test_a_head_list_is_held_to_the_same() -> None:
    def task(delta: str) -> Task:
        return Task.make(
            {
                "task": {"name": "searches", "population": "readers"},
                "optin": {"epsilon": 4, "delta": delta},
                "client": {"epsilon": 4, "lifetime_epsilon": 8},
                "head": {"size": 10},
                "collect": {"min_batch": 2},
            }
        )

    with pytest.warns(hq.PrivacyWarning, match=LARGE):
        plan = plan_head(LOG | {"url": [None] * 59 + ["https://a.example"]}, task("0.2"))
    assert LARGE in plan.explain()
    with pytest.raises(UsageError, match="too large to publish"):
        plan.run("ledger.db", epoch=0)
    assert not Path("ledger.db").exists()


def test_a_pair_that_may_be_noise_alone_is_marked_in_the_terminal() -> None:
    pairs = {("news", "maps"): 90, ("maps", "news"): 3}
    release_of({"news": 90, "maps": 80}, {}, pairs, parameters={"expected_false_reformulations": 0.96}).save("r")
    for arguments in (("show", "r"), ("show", "r", "--query", "maps")):
        out = answer(*arguments)[1]
        (marked,) = [line for line in out.splitlines() if "may be noise alone" in line]
        assert " 3 " in marked
    assert "made by noise alone: 0.96." in answer("show", "r")[1]
    assert "may be" not in answer("show", "r", "--query", "news")[1]
