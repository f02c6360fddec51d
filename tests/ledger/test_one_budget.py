"""One population has one budget: whatever command asks, whatever file it is in, under whatever relation."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hushquery as hq
from hushquery.cli.app import app
from hushquery.core.budget import Budget
from hushquery.core.ledger.ledger import Ledger
from hushquery.core.ledger.store import canonical, digest
from hushquery.core.loss import Loss
from hushquery.errors import BudgetError, BudgetRefused, HushqueryError, UsageError
from ledger.workers import sql

HALF = Loss(pure=("1/2",))
RELEASE = ("--epsilon", "1", "--delta", "1e-6", "--queries-per-user", "1")


def run(*arguments: str, answer: str | None = None) -> tuple[int, str]:
    found = CliRunner().invoke(app, list(arguments), input=answer)
    if isinstance(found.exception, HushqueryError):
        return found.exception.exit_code, f"{found.output}{found.exception}"
    return found.exit_code, found.output


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "log.csv"
    path.write_text("user,query\n" + "".join(f"u{n},news\n" for n in range(200)))
    shutil.copy(path, tmp_path / "copy.csv")
    return path


@pytest.mark.usefixtures("log")
def test_four_releases_of_one_log_do_not_all_pass() -> None:
    """The attack: four commands of epsilon 1 on one file and one ledger. One is paid for."""
    who = ("--population", "readers")
    attempts = [
        ("stat", "count", "log.csv", "--unit", "user", "--epsilon", "1", *who),
        ("release", "log.csv", *RELEASE, "--out", "out", *who),
        ("stat", "count", "copy.csv", "--unit", "user", "--epsilon", "1", *who),
        ("stat", "count", "log.csv", "--unit", "user", "--epsilon", "1", "--relation", "replace-one", *who),
    ]
    assert [run(*attempt)[0] for attempt in attempts] == [0, 3, 3, 3]
    (account,) = Ledger.open("ledger.db").accounts()
    assert (account.population, account.spent_epsilon) == ("readers", 1.0)


@pytest.mark.parametrize(
    "command",
    [
        ("stat", "count", "log.csv", "--unit", "user", "--epsilon", "1"),
        ("stat", "sum", "log.csv", "n", "--lower", "0", "--upper", "1", "--unit", "user", "--epsilon", "1"),
        ("stat", "mean", "log.csv", "n", "--lower", "0", "--upper", "1", "--unit", "user", "--epsilon", "1"),
        ("stat", "histogram", "log.csv", "query", "--keys", "a,b", "--unit", "user", "--epsilon", "1"),
        ("release", "log.csv", *RELEASE, "--out", "out"),
        ("blend", "--simulate", "log.csv", "--out", "out"),
    ],
)
@pytest.mark.usefixtures("log")
def test_who_spends_names_the_population(command: tuple[str, ...]) -> None:
    code, said = run(*command)
    assert code == 2
    assert "--population" in said
    assert "one budget for each population" in " ".join(said.split())
    assert not Path("ledger.db").exists()
    Ledger.open("ledger.db").open_account("readers of example.org", "add-remove", Budget(1, 0))
    assert 'known to the ledger: "readers of example.org"' in " ".join(run(*command)[1].split())
    assert len(Ledger.open("ledger.db").history()) == 1


@pytest.mark.usefixtures("log")
def test_looking_at_a_plan_needs_no_name_and_no_ledger() -> None:
    assert run("release", "log.csv", *RELEASE, "--explain")[0] == 0
    assert run("stat", "count", "log.csv", "--unit", "user", "--epsilon", "1", "--explain")[0] == 0
    assert not Path("ledger.db").exists()


def test_python_asks_for_the_name_too(log: Path) -> None:
    with pytest.raises(TypeError, match="population"):
        hq.plan_release(log, epsilon=1, delta=1e-6, queries_per_user=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="population"):
        hq.statistics.plan_count(log, unit="user", epsilon=1)  # type: ignore[call-arg]
    for blank in ("", "  "):
        with pytest.raises(UsageError, match="population"):
            hq.plan_release(log, epsilon=1, delta=1e-6, queries_per_user=1, population=blank)
        with pytest.raises(UsageError, match="population"):
            hq.statistics.plan_count(log, unit="user", epsilon=1, population=blank)


# ---- two relations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [("add-remove", "replace-one"), ("replace-one", "add-remove")])
def test_the_second_relation_of_a_population_is_refused(store_url: str, first: str, second: str) -> None:
    ledger = Ledger.open(store_url)
    ledger.spend("readers", first, HALF, what="x", create_with=Budget(1, 0))
    head = ledger.head
    for book in (ledger, Ledger.open(store_url)):
        with pytest.raises(BudgetError, match=f"under {first}") as refused:
            book.spend("readers", second, HALF, what="x", create_with=Budget(1, 0))
        assert "Nothing was spent" in str(refused.value)
        with pytest.raises(BudgetError, match=f"under {first}"):
            book.open_account("readers", second, Budget(1, 0))
        assert book.check() == head
    ledger.spend("readers", first, HALF, what="x")
    with pytest.raises(BudgetRefused):
        ledger.spend("readers", first, HALF, what="x")


def test_a_ledger_from_before_with_two_accounts_stays_readable_and_the_older_one_pays(store_url: str) -> None:
    """Versions before this one opened an account for each relation."""
    ledger = Ledger.open(store_url)
    ledger.spend("readers", "add-remove", HALF, what="x", create_with=Budget(1, 0))
    _as_before(store_url, ledger, "replace-one")
    old = Ledger.open(store_url)
    assert {account.relation.value for account in old.accounts("readers")} == {"add-remove", "replace-one"}
    assert old.account("readers", "replace-one").remaining_epsilon == 1
    old.check()
    with pytest.raises(BudgetError, match="under add-remove"):
        old.spend("readers", "replace-one", HALF, what="x")
    assert old.spend("readers", "add-remove", HALF, what="x").seq == 4


def _as_before(url: str, ledger: Ledger, relation: str) -> None:
    """Write the entry with which an older version opened a second account."""
    count, _, head = ledger.head.partition(":")
    row = {
        "seq": int(count) + 1,
        "kind": "open",
        "population": "readers",
        "relation": relation,
        "what": "account opened",
        "plan": "",
        "period": 0,
        "time": "2026-01-01T00:00:00.000000Z",
        "data": canonical({"budget": {"epsilon": "1", "delta": "0"}, "period": None, "lifetime": None}),
        "prev_hash": head,
    }
    row["hash"] = digest(row)
    marks = ", ".join("?" for _ in row)
    sql(url, f"INSERT INTO hushquery_ledger_entry ({', '.join(row)}) VALUES ({marks})", list(row.values()))  # noqa: S608
    sql(url, "UPDATE hushquery_ledger_meta SET entries = ?, head = ?", [row["seq"], row["hash"]])


# ---- names that are nearly the same ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("log")
def test_a_name_that_differs_in_a_digit_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger.open("ledger.db").open_account("users of 2025", "add-remove", Budget(1, 0))
    ask = ("stat", "count", "log.csv", "--unit", "user", "--epsilon", "1", "--population", "users of 2026")
    code, said = run(*ask)  # no terminal: nobody to ask
    assert code == 3
    assert '"users of 2025"' in said
    assert "--new-population" in said
    assert len(Ledger.open("ledger.db").history()) == 1
    monkeypatch.setattr("hushquery.cli.common.at_a_terminal", lambda: True)
    for answer in ("n\n", "\n"):
        assert run(*ask, answer=answer)[0] == 3
    assert len(Ledger.open("ledger.db").history()) == 1
    assert run(*ask, answer="y\n")[0] == 0
    assert [account.population for account in Ledger.open("ledger.db").accounts()] == ["users of 2025", "users of 2026"]


@pytest.mark.usefixtures("log")
@pytest.mark.filterwarnings("ignore:a file of:hushquery.PrivacyWarning")  # one file, and it is three populations'
def test_other_people_are_named_by_an_option() -> None:
    Ledger.open("ledger.db").open_account("users of 2025", "add-remove", Budget(1, 0))
    said = ("--population", "users of 2026", "--new-population")
    assert run("stat", "count", "log.csv", "--unit", "user", "--epsilon", "1", *said)[0] == 0
    opened = ("budget", "open", "--relation", "add-remove", "--epsilon", "1", "--delta", "0", "--population")
    code, text = run(*opened, "users of 2027")
    assert code == 3
    assert "--new-population" in text
    assert run(*opened, "users of 2027", "--new-population")[0] == 0
    assert run("release", "log.csv", *RELEASE, "--out", "out", "--population", "Users of 2027")[0] == 3
    assert (
        run("release", "log.csv", *RELEASE, "--out", "out", "--population", "Users of 2028", "--new-population")[0] == 0
    )
