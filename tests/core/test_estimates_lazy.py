"""A table of raw estimates keeps columns and makes its rows when somebody asks."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import pytest

from hushquery.core.budget import Unit
from hushquery.core.estimates import Estimates
from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.loss import Loss

GUARANTEE = Guarantee.of(
    "readers", "curator", Unit("user", "add-remove"), [Step("laplace", "a count", Loss(pure=("1/2",)))]
)


def test_a_raw_table_whose_rows_were_not_read_yet_is_like_any_other():
    """Rows are made when they are first asked for; nobody can tell."""
    labels, values = ["a", "b"], [1.0, 2.0]
    fresh = [Estimates.raw(labels, values, [1.0, 3.0], guarantee=GUARANTEE) for _ in range(8)]
    labels.append("c")
    values[0] = 7.0
    made = Estimates(fresh[0].rows, guarantee=GUARANTEE)
    assert [(row.label, row.value) for row in made] == [("a", 1.0), ("b", 2.0)]
    assert fresh[0].rows is fresh[0].rows
    assert fresh[1] == made
    assert hash(fresh[2]) == hash(made)
    assert repr(fresh[3]) == repr(made)
    assert pickle.loads(pickle.dumps(fresh[4])) == made  # noqa: S301 -- made here
    assert copy.deepcopy(fresh[5]) == made
    assert fresh[6].to_json() == made.to_json()
    assert replace(fresh[7], level=0.5) == replace(made, level=0.5)
    with pytest.raises(AttributeError):
        made.row  # noqa: B018 -- a misspelt name
    with pytest.raises(AttributeError):
        Estimates.raw([], [], []).row  # noqa: B018
    with pytest.raises(AttributeError):
        made.rows = ()
