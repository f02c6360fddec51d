"""What Spark stored for a release is gone after it, on disk and in memory, and no clean-up hides an error."""

from __future__ import annotations

import pyarrow as pa
import pytest

from hushquery.engine import execute, materialize
from hushquery.engine import spark as spark_engine
from hushquery.errors import DataError

SECRET = "secret rash"  # noqa: S105


@pytest.fixture
def rows(spark):
    spark._session.createDataFrame(pa.table({"text": [SECRET, "b"] * 50})).createOrReplaceTempView("secrets")
    yield spark.table("secrets")
    spark._session.catalog.dropTempView("secrets")


@pytest.fixture
def checkpoints(spark, tmp_path):
    """A checkpoint folder, for one test."""
    context = spark._session.sparkContext
    context.setCheckpointDir(tmp_path.as_uri())
    yield lambda: [path for path in tmp_path.rglob("*") if path.is_file()]
    getattr(context._jsc.sc(), "checkpointDir_$eq")(context._jvm.scala.Option.empty())


def test_no_checkpoint_file_is_left(rows, checkpoints):
    with materialize(rows) as table:
        assert any(SECRET.encode() in path.read_bytes() for path in checkpoints())
        assert execute(table.agg(n=table.count())).to_pydict() == {"n": [100]}
    assert checkpoints() == []
    with pytest.raises(ZeroDivisionError), materialize(rows):
        raise ZeroDivisionError
    assert checkpoints() == []


def test_a_checkpoint_that_fails_halfway_leaves_no_file(rows, checkpoints):
    session = rows._find_backend()._session
    halfway = "SELECT IF(id < 1, '{}', CAST(1 / (id - id) AS STRING)) AS text FROM range(0, 2, 1, 2)"
    session.sql(halfway.format(SECRET)).createOrReplaceTempView("halfway")
    with pytest.raises(DataError), materialize(rows._find_backend().table("halfway")):
        pass
    session.catalog.dropTempView("halfway")
    assert checkpoints() == []


def test_no_stored_rows_are_left(rows):
    context = rows._find_backend()._session.sparkContext
    before = context._jsc.getPersistentRDDs().size()
    with materialize(rows):
        assert context._jsc.getPersistentRDDs().size() == before + 1
    assert context._jsc.getPersistentRDDs().size() == before


def test_clean_up_does_not_hide_an_error(rows, monkeypatch):
    catalog = spark_engine.to_frame(rows).sparkSession.catalog
    with monkeypatch.context() as patch:
        patch.setattr(type(catalog), "dropTempView", lambda *_: 1 / 0)  # as when the JVM is gone
        with pytest.raises(DataError, match="why it failed"), spark_engine.materialize(rows):
            raise DataError("why it failed")
