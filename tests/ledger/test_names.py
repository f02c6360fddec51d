"""Who opens an account beside one of nearly the same name is told: the same people may pay twice."""

from __future__ import annotations

import warnings

import pytest

from hushquery.privacy.budget import Budget, PrivacyWarning
from hushquery.privacy.ledger import Ledger
from hushquery.privacy.loss import Loss

HALF = Loss(pure=("1/2",))


@pytest.mark.parametrize(
    "name", ["Customers of A", "customersofa", "custmers of a", "customers  of a", "cutsomers of a", "customers of aa"]
)
def test_a_new_account_beside_one_of_nearly_the_same_name_warns(tmp_path, name):
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.open_account("customers of a", "add-remove", Budget(1, 0))
    with pytest.warns(PrivacyWarning, match=r'already an account "customers of a": did you mean it\?'):
        ledger.spend(name, "add-remove", HALF, what="x", create_with=Budget(1, 0))
    assert ledger.account(name, "add-remove").remaining_epsilon == 0.5
    ledger.spend(name, "add-remove", HALF, what="said once", create_with=Budget(1, 0))


@pytest.mark.parametrize(("name", "other"), [("visits", "data/visits"), ("visits.csv", "visits"), ("public.a", "a")])
def test_a_file_or_table_of_the_same_name_elsewhere_warns(tmp_path, name, other):
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.open_account(other, "add-remove", Budget(1, 0))
    with pytest.warns(PrivacyWarning, match="did you mean it"):
        ledger.open_account(name, "add-remove", Budget(1, 0))


@pytest.mark.parametrize(("name", "other"), [("week 1", "week 2"), ("us", "uk"), ("readers", "authors"), ("?", "!")])
def test_other_names_do_not_warn(tmp_path, name, other):
    ledger = Ledger.open(tmp_path / "ledger.db")  # warnings are errors in tests
    ledger.open_account(other, "add-remove", Budget(1, 0))
    ledger.open_account(name, "add-remove", Budget(1, 0))
    ledger.open_account(name, "replace-one", Budget(1, 0))


def test_who_makes_an_error_of_the_warning_spends_nothing(tmp_path):
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.open_account("customers", "add-remove", Budget(1, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PrivacyWarning):
            ledger.spend("Customers", "add-remove", HALF, what="x", create_with=Budget(1, 0))
    assert len(ledger.history()) == 1
