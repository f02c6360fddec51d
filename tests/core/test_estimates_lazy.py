"""A table of raw estimates keeps columns and makes its rows when somebody asks."""

from __future__ import annotations

import copy
import math
import pickle
import sys
from dataclasses import replace

import pyarrow as pa
import pytest

from hushquery.core.budget import Unit
from hushquery.core.estimates import Estimates
from hushquery.core.guarantee import Guarantee, Step
from hushquery.core.loss import Loss
from hushquery.errors import Unavailable

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


def test_a_table_goes_into_other_libraries_and_is_not_dumped_by_its_repr():
    few = Estimates.raw(["a", "b"], [1.0, -2.5], [1.0, math.inf], guarantee=GUARANTEE)
    rows = [dict(zip(("label", "estimate", "stderr", "low", "high"), row, strict=True)) for row in few]
    assert few.to_arrow().to_pylist() == rows
    assert few.to_pandas().to_dict("records") == rows
    assert few.to_polars().to_dicts() == rows
    assert pa.table(few).to_pylist() == rows
    assert Estimates(()).to_arrow().schema == few.to_arrow().schema
    many = Estimates.raw([f"zq-{n}" for n in range(1000)], [0.0] * 1000, [1.0] * 1000, guarantee=GUARANTEE)
    assert repr(many) == f"<Estimates of 1000 numbers with 95% intervals: {GUARANTEE.summary()}>"
    page = many._repr_html_()
    assert page.count("zq-") == 100
    assert "and 900 more" in page


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_what_is_not_installed_is_named(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    table = Estimates.raw(["a"], [1.0], [1.0])
    with pytest.raises(Unavailable, match=f"pip install {package}"):
        getattr(table, f"to_{package}")()
    assert table.to_arrow().num_rows == 1
