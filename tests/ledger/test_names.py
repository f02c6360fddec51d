"""Who opens an account beside one of nearly the same name is asked: the same people may get a second budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from hushquery.core.budget import Budget
from hushquery.core.ledger.ledger import Ledger
from hushquery.core.loss import Loss
from hushquery.errors import BudgetError, UsageError

HALF = Loss(pure=("1/2",))
NEAR = [
    ("Customers of A", "customers of a"),
    ("customersofa", "customers of a"),
    ("custmers of a", "customers of a"),
    ("customers  of a", "customers of a"),
    ("cutsomers of a", "customers of a"),
    ("customers of aa", "customers of a"),
    ("visits", "data/visits"),
    ("visits.csv", "visits"),
    ("public.a", "a"),
    ("users of 2026", "users of 2025"),
    ("week 1", "week 2"),
    ("week 1", "week 12"),
    ("users", "users 2"),
    ("2025", "2026"),
    ("users of \u0662\u0660\u0662\u0665", "users of 2025"),
    ("customers of shop", "customers of the shop"),
    ("customers of our shop", "customers of the shop"),
    ("shop customers", "customers of the shop"),
    ("the shop's customer", "customers of the shop"),
    ("shops' customers", "customers of the shop"),
    ("searches of the libraries", "search of a library"),
    ("\uff55\uff53\uff45\uff52\uff53", "users"),
]


@pytest.mark.parametrize(("name", "other"), NEAR)
def test_a_new_account_beside_one_of_nearly_the_same_name_is_refused(tmp_path: Path, name: str, other: str) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.open_account(other, "add-remove", Budget(1, 0))
    assert ledger.near(name) == other
    for _ in range(2):
        with pytest.raises(BudgetError, match="Nothing was spent") as refused:
            ledger.spend(name, "add-remove", HALF, what="x", create_with=Budget(1, 0))
        assert f'there is "{other}"' in refused.value.what
        assert "new_population=True" in refused.value.fix
        with pytest.raises(BudgetError):
            ledger.open_account(name, "add-remove", Budget(1, 0))
    assert len(ledger.history()) == 1
    # Who says that they are other people is believed, and is not asked again.
    ledger.spend(name, "add-remove", HALF, what="x", create_with=Budget(1, 0), new_population=True)
    assert ledger.near(name) is None
    ledger.spend(name, "add-remove", HALF, what="said once", create_with=Budget(1, 0))
    assert ledger.account(name, "add-remove").remaining_epsilon == 0


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("us", "uk"),
        ("readers", "authors"),
        ("?", "!"),
        ("browser users", "browser users who opted in"),
        ("2025", "users"),
        ("readers of example.org", "readers of example.com"),
        ("customers of a", "our customers"),
        ("customers of the shop", "customers of the bakery"),
    ],
)
def test_other_names_are_not_asked_about(tmp_path: Path, name: str, other: str) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.open_account(other, "add-remove", Budget(1, 0))
    assert ledger.near(name) is None
    ledger.open_account(name, "add-remove", Budget(1, 0))


@pytest.mark.parametrize("name", ["<name>", "WHOSE LOG IT IS", "NAME", "population", "YOUR_POPULATION", "TODO", "..."])
def test_a_placeholder_is_no_name(tmp_path: Path, name: str) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    for new in (False, True):
        with pytest.raises(UsageError, match=r"is a placeholder, not a name\. Nothing was spent"):
            ledger.spend(name, "add-remove", HALF, what="x", create_with=Budget(1, 0), new_population=new)
        with pytest.raises(UsageError, match="is a placeholder"):
            ledger.open_account(name, "add-remove", Budget(1, 0), new_population=new)
    assert ledger.history() == []


def test_a_known_name_is_never_asked_about(tmp_path: Path) -> None:
    """Not even beside another that an older version let somebody open."""
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.open_account("week 1", "add-remove", Budget(1, 0))
    ledger.open_account("week 2", "add-remove", Budget(1, 0), new_population=True)
    for name in ("week 1", "week 2", " week 2 "):
        ledger.spend(name, "add-remove", Loss(pure=("1/4",)), what="x")
