"""``hushquery demo --serve`` in small: a whole epoch over HTTP, ending with pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from hushquery.collect.store.store import Store
from hushquery.core.ledger.ledger import Ledger
from hushquery.errors import UsageError
from hushquery_experiments.demo.crowd import find_browsers
from hushquery_experiments.demo.serve import FOLDER, serve_demo


def test_an_epoch_from_opt_in_to_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    serve_demo(tmp_path, 1200, 1, port=0, once=True, as_json=True, profile="tiny")
    told = json.loads(capsys.readouterr().out)
    assert told["optin_uploads"] == 400
    assert "mango" in told["most_searched"]  # sixteen gave it, twice the threshold: no noise hides that
    assert told["python_clients"] + told["chromium_clients"] == told["reports"] == 800
    assert told["chromium_clients"] == (0 if isinstance(find_browsers(), str) else 20)
    assert bool(told["note"]) == isinstance(find_browsers(), str)
    assert [one["epsilon"] for one in told["guarantees"]] == [pytest.approx(4), pytest.approx(4)]
    folder = tmp_path / FOLDER
    assert not list((folder / "collector-keys").iterdir())  # the opt-in records are gone
    store = Store.open(folder / "collector.db", create=False)
    with store.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM hushquery_collect_record").scalar_one() == 0
        assert connection.exec_driver_sql("SELECT count(*) FROM hushquery_collect_known").scalar_one() == 800
        assert not [name for name in sa.inspect(connection).get_table_names() if "_reports_" in name]
    store.close()
    assert len([one for one in Ledger.open(folder / "demo-ledger.db").history() if one.kind == "spend"]) == 2
    assert (folder / "server.log").read_text() == ""


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="not what a demo made"):
        serve_demo(tmp_path, 900, 1, port=0, once=True)
    assert (tmp_path / FOLDER / "thesis.txt").read_text() == "mine"
