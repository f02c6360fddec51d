"""The hybrid from a log to a release: two populations, spent before read, and numbers that are right."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hushquery.core.budget import Budget
from hushquery.core.ledger.ledger import Ledger
from hushquery.errors import BudgetRefused, DataError, UsageError
from hushquery.hybrid.headlist import number_of_users
from hushquery.hybrid.plan import plan_head
from hushquery.hybrid.published import HEAD_FILE, PublishedHead, blended_release, blended_shares
from hushquery.hybrid.simulate import client_cells, send_all, simulate, split_log
from hushquery.local.device.client import Client
from hushquery.local.server.estimate import estimate
from hushquery.log import Log, read_log
from hushquery.release import verify
from hushquery.task import Task
from statistical import bits

# The crowd: each user has one record, so that shares are known exactly.
CROWD = {
    ("weather leeds", "https://weather.example"): 0.3,
    ("weather leeds", "https://rain.example"): 0.1,
    ("news", "https://news.example"): 0.2,
    ("maps", ""): 0.1,
}
USERS = 20_000


def crowd(users: int = USERS) -> Log:
    """Give a log of users with one record each; the rest of them searched for something that nobody else did."""
    rows: list[tuple[str, str, str | None]] = []
    for (query, url), share in CROWD.items():
        rows += [(f"u{len(rows) + i}", query, url or None) for i in range(round(share * users))]
    rows += [(f"u{i}", f"secret number {i} of mine", None) for i in range(len(rows), users)]
    columns = zip(*rows, strict=True)
    kinds = {"user": pa.string(), "query": pa.string(), "url": pa.string()}
    return read_log(pa.table({name: pa.array(c, kind) for (name, kind), c in zip(kinds.items(), columns, strict=True)}))


def task(mode: str = "best", **head: object) -> Task:
    paper = {"oracle": "two-stage", "query_share": "0.85"} if mode == "paper" else {}
    return Task.make(
        {
            "task": {"name": "searches", "population": "readers"},
            "optin": {"epsilon": 4, "delta": "1e-5"},
            "client": {"epsilon": 4, "lifetime_epsilon": 8, **paper},
            "head": {"size": 10, "mode": mode, **head},
            "collect": {"min_batch": 2},
        }
    )


def true_share(query: str, url: str) -> float:
    return CROWD[query, url]


@pytest.mark.parametrize("mode", ["best", "paper"])
def test_a_simulated_epoch_finds_the_shares(mode: str, tmp_path: Path) -> None:
    made = simulate(crowd(), task(mode), "0.2", str(tmp_path / "ledger.db"), key="split", bits=bits("epoch", mode))
    assert set(made.head.records) == set(CROWD)
    release = made.release
    for row in release.tables["clicks"].to_pylist():
        assert abs(row["share"] - true_share(row["query"], row["url"])) < 6 * row["stderr"]
        # In paper mode a twentieth of the opt-in users measure: 200 of them.
        assert row["stderr"] < (0.006 if mode == "best" else 0.02)
    weather = next(row for row in release.tables["queries"].to_pylist() if row["query"] == "weather leeds")
    assert abs(weather["share"] - 0.4) < 6 * weather["stderr"]
    parameters = release.manifest["parameters"]
    if mode == "best":
        assert parameters["rest"] == pytest.approx(0.3, abs=0.05)
    folder = release.save(tmp_path / "release")
    assert verify(folder).ok
    assert "secret number" not in "".join(p.read_text(errors="replace") for p in folder.iterdir())


def test_two_populations_are_charged_and_never_added(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    plan_head(crowd(2000), task()).run(ledger, bits=bits("charged"))
    spent = {account.population: account for account in ledger.accounts()}
    assert set(spent) == {"readers", "readers who opted in"}
    assert spent["readers"].spent.epsilon(0) == 4
    assert 0 < spent["readers who opted in"].spent.epsilon(1e-5) <= 4
    assert all(account.relation.value == "replace-one" for account in spent.values())


def test_a_refused_epoch_reads_nothing_and_charges_no_opted_in_user(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    plan_head(crowd(2000), task()).run(ledger, bits=bits("first"))
    before = ledger.account("readers who opted in", "replace-one").spent
    with pytest.raises(BudgetRefused):
        plan_head(crowd(2000), task()).run(ledger, epoch=1, bits=bits("second"))
    assert ledger.account("readers who opted in", "replace-one").spent == before


def test_what_the_guarantees_say_is_what_ran(tmp_path: Path) -> None:
    made = plan_head(crowd(2000), task()).run(tmp_path / "ledger.db", bits=bits("said"))
    optin, client = made.optin_guarantee, made.client_guarantee
    assert (optin.model, client.model) == ("curator", "local")
    assert optin.population != client.population
    assert optin.epsilon <= 4
    assert 0 < optin.delta <= 1e-5
    assert client.epsilon <= 4
    assert client.delta == 0
    assert optin.test_noise
    assert client.test_noise
    # The cost is recomputed from the numbers that were drawn with, and so is the plan's promise.
    assert optin.loss == made.optin.loss == plan_head(crowd(10), task()).guarantee.loss


def test_a_published_head_round_trips_and_a_changed_one_is_refused(tmp_path: Path) -> None:
    made = plan_head(crowd(2000), task()).run(tmp_path / "ledger.db", bits=bits("saved"))
    folder = made.save(tmp_path / "head")
    again = PublishedHead.load(folder)
    assert again.records == made.records
    assert again.configuration.digest == made.configuration.digest
    assert np.array_equal(again.optin.values, made.optin.values)
    with pytest.raises(UsageError, match="exists already"):
        made.save(tmp_path / "head")
    file = folder / HEAD_FILE
    good = json.loads(file.read_text())
    for change in (
        {"records": list(reversed(good["records"]))},
        {"records": good["records"][:-1]},
        {"configuration": "00" * 32},
        {"task": {**good["task"], "client": {**good["task"]["client"], "epsilon": "5"}}},
        {"version": 2},
        {"epoch": -1},
        {"created": "yesterday"},
        {"format": "something"},
    ):
        file.write_text(json.dumps({**good, **change}))
        with pytest.raises(DataError):
            PublishedHead.load(folder)
    file.write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        PublishedHead.load(folder)
    with pytest.raises(DataError, match="can't be read"):
        PublishedHead.load(tmp_path / "nowhere")


def test_an_empty_head_list_asks_nobody_and_says_only_the_rest(tmp_path: Path) -> None:
    made = simulate(crowd(10), task(), "0.5", str(tmp_path / "ledger.db"), key="k", bits=bits("empty"))
    assert made.head.records == []
    assert made.tally is None
    assert made.release.manifest["parameters"]["rest"] == 1.0
    assert made.release.tables["records"].num_rows == 0
    made.head.save(tmp_path / "head")
    assert PublishedHead.load(tmp_path / "head").records == []
    with pytest.raises(DataError, match="empty"):
        _ = made.head.configuration


def test_real_clients_and_their_reports_blend_like_simulated_ones(tmp_path: Path) -> None:
    asked = task()
    head = plan_head(crowd(4000), asked).run(tmp_path / "ledger.db", bits=bits("real"))
    reports, source = [], bits("clients")
    values = [*CROWD, ("something", "else"), None]
    for number in range(300):
        client = Client(asked, tmp_path / "clients.db", f"c{number}", head=head.records, bits=source)
        value = values[number % len(values)]
        report = client.report(*value) if value else client.report(None)
        assert report is not None
        reports.append(report)
    told = estimate(asked, reports, head=head.records)
    assert told.digest == head.configuration.digest
    release = blended_release(head, blended_shares(head, told.support, told.n))
    assert len(release.guarantees) == 2
    assert release.tables["records"].num_rows == 4


def test_the_wrong_head_list_is_refused(tmp_path: Path) -> None:
    from hushquery.hybrid.published import blend

    asked = task()
    one = plan_head(crowd(4000), asked).run(tmp_path / "a.db", bits=bits("one"))
    reports = [Client(asked, tmp_path / "c.db", f"c{i}", head=one.records[:2]).report(None) for i in range(3)]
    told = estimate(asked, [r for r in reports if r], head=one.records[:2])
    with pytest.raises(DataError, match="not about this head list"):
        blend(one, told)


def test_split_and_cells_leave_nobody_out(tmp_path: Path) -> None:
    optin, clients = split_log(crowd(4000), "0.25", "a key")
    again, _ = split_log(crowd(4000), "0.25", "a key")
    counted = [number_of_users(g) for g in (optin, clients, again)]
    assert counted[0] + counted[1] == 4000
    assert counted[0] == counted[2]
    assert 800 < counted[0] < 1200
    head = plan_head(optin, task()).run(tmp_path / "ledger.db", bits=bits("cells"))
    counts = client_cells(clients, head.configuration, bits("which"))
    assert counts.sum() == counted[1]
    domain = head.configuration.domain
    for pair, share in CROWD.items():
        assert counts[domain.cell(*pair)] == pytest.approx(share * counted[1], rel=0.15)
    assert send_all(head.configuration.oracle, counts, bits("sent")).n == counted[1]
    for share in ("0", "1", "-1", "2"):
        with pytest.raises(UsageError):
            split_log(crowd(10), share, "k")


def test_a_plan_takes_the_file_of_a_task_and_shows_itself(tmp_path: Path) -> None:
    file = tmp_path / "task.json"
    file.write_text(json.dumps(task().to_json()))
    plan = plan_head(crowd(2000), file)
    assert plan.task == task()
    assert "readers who opted in" in plan._repr_html_()
    assert (plan.population, plan.unit.relation.value, plan.budget) == (
        "readers who opted in",
        "replace-one",
        Budget(4, "1e-5"),
    )
    made = plan.run(tmp_path / "ledger.db", epoch=0, bits=bits("shown"))
    assert repr(made) == "<PublishedHead: 4 records for epoch 0 of 'searches'>"
    assert all(len(repr(shown)) < 300 for shown in (plan, made, made.optin))


def test_plans_refuse_what_can_not_be(tmp_path: Path) -> None:
    raw = read_log({"user": ["a"], "query": ["b"]}, normalise=False)
    with pytest.raises(UsageError, match="normal form"):
        plan_head(raw, task())
    listed = Task.make(
        {
            "task": {"name": "n", "population": "p", "domain": [["a", "b"], ["c", ""]]},
            "client": {"epsilon": 1, "lifetime_epsilon": 1},
        }
    )
    with pytest.raises(UsageError, match="no head list"):
        plan_head(crowd(10), listed)
    added = Task.make({**task().to_json(), "optin": {"epsilon": 4, "delta": "1e-5", "relation": "add-remove"}})
    with pytest.raises(UsageError, match="how many users"):
        plan_head(crowd(1000), added).run(tmp_path / "l.db")
    for asked, users in ((task(), 0), (task(), 1.5), (task("paper"), 1000)):
        with pytest.raises(UsageError, match="does not fit"):
            plan_head(crowd(1000), asked).run(tmp_path / "l.db", users=users)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="non-negative integer"):
        plan_head(crowd(1000), task()).run(tmp_path / "l.db", epoch=-1)
    assert not (tmp_path / "l.db").exists()  # none of them spent anything
    made = plan_head(crowd(1000), added).run(tmp_path / "l2.db", users=1000, bits=bits("added"))
    assert made.optin_guarantee.unit.relation.value == "add-remove"
    assert "readers who opted in" in plan_head(crowd(10), task()).explain()
    assert "SELECT" in plan_head(crowd(10), task()).sql()


def test_numbers_that_state_another_cost_are_refused(tmp_path: Path) -> None:
    for mode in ("best", "paper"):
        made = plan_head(crowd(2000), task(mode)).run(tmp_path / f"{mode}.db", bits=bits("cost", mode))
        good = json.dumps(made.to_json())

        def changed(name: str, value: object, of: str = good) -> object:
            data = json.loads(of)
            if name in ("relation", "keys_per_user", "threshold", "scale"):
                for part in data["optin"]["parts"]:
                    for step in part:
                        step[name] = value
            else:
                data["optin"][name] = value
            return data

        tried = [
            ("relation", "add-remove"),
            ("keys_per_user", 7),
            ("threshold", None),
            ("threshold", 1),
            ("scale", "5"),
            ("parts", 3 * made.to_json()["optin"]["parts"][:1]),
            ("way", "split" if mode == "best" else "reuse"),
            ("n", 10**400),
            ("values", ["0.1"] * len(made)),
            ("values", [True] * len(made)),
            ("values", [-5e300] * len(made)),
            ("wildcard_draws", -1),
        ]
        tried += [("wildcard", 77.0), ("wildcard_draws", 0)] if mode == "best" else []
        for name, value in tried:
            with pytest.raises(DataError):
                PublishedHead.from_json(changed(name, value))
        assert PublishedHead.from_json(json.loads(good)).records == made.records
        for records in (None, 5, [None], [["a"]]):
            with pytest.raises(DataError):
                PublishedHead.from_json({**json.loads(good), "records": records})


def test_a_guided_list_goes_through_the_same_plan(tmp_path: Path) -> None:
    asked = task(algorithm="guided", weighed=5)
    plan = plan_head(crowd(4000), asked)
    assert "sketch that guides" in plan.explain()
    assert plan.guarantee.epsilon <= 4
    made = plan.run(tmp_path / "ledger.db", bits=bits("guided"))
    assert set(made.records) == set(CROWD)
    assert made.optin_guarantee.loss == plan.loss
    assert len(made.optin_steps) == 3
    made.save(tmp_path / "head")
    assert PublishedHead.load(tmp_path / "head").records == made.records
    counts = client_cells(crowd(4000), made.configuration, bits("which"))
    tally = send_all(made.configuration.oracle, counts, bits("sent"))
    release = blended_release(made, blended_shares(made, tally.support, tally.n))
    for row in release.tables["clicks"].to_pylist():
        assert abs(row["share"] - true_share(row["query"], row["url"])) < 6 * row["stderr"]
    assert verify(release.save(tmp_path / "release")).ok
    for head in ({"algorithm": "guided", "mode": "paper"}, {"weighed": 5}):
        with pytest.raises(UsageError):
            task(**{"mode": "best", **head})  # type: ignore[arg-type]
