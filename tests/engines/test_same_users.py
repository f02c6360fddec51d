"""A user of a PostgreSQL table is one user, however the id is written."""

from __future__ import annotations

import uuid

import pytest

from hushquery.engine import connect, execute
from hushquery.errors import DataError
from hushquery.log import read_log


@pytest.fixture
def made(postgres_url):
    """Make a table of users and give its log."""
    engine = connect(postgres_url)
    names = []

    def make(kind, *users):
        name = f"users_{uuid.uuid4().hex}"
        names.append(name)
        with engine.begin() as cursor:
            cursor.execute(f'CREATE TABLE {name} ("user" {kind}, query text)')
            for user in users:
                cursor.execute(f"INSERT INTO {name} VALUES (%s, 'q')", (user,))  # noqa: S608
        return read_log(name, engine=engine)

    with engine.begin() as cursor:
        cursor.execute("CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
        cursor.execute("CREATE DOMAIN weight AS double precision")
        cursor.execute("CREATE EXTENSION citext")
    yield make
    for name in names:
        engine.drop_table(name)
    with engine.begin() as cursor:
        cursor.execute("DROP COLLATION blind; DROP DOMAIN weight; DROP EXTENSION citext")
    engine.disconnect()


@pytest.mark.parametrize(
    ("kind", "users", "expected"),
    [
        ("numeric", ["1", "1.0", "1.00", "100", "2.50"], {"1", "100", "2.5"}),
        ("numeric(10, 2)", ["1", "1.00", "-3"], {"1", "-3"}),
        ("bigint", ["1", "10"], {"1", "10"}),
        ("text", ["1", "1.0", "A", "a"], {"1", "1.0", "A", "a"}),
        ('text COLLATE "und-x-icu"', ["A", "a"], {"A", "a"}),
        ("char(3)", ["a", "a "], {"a"}),
    ],
)
def test_equal_ids_are_one_user(made, kind, users, expected):
    rows = made(kind, *users).rows
    assert set(execute(rows.select("user").distinct())["user"].to_pylist()) == expected


@pytest.mark.parametrize("kind", ["double precision", "real", "weight", "citext", "text COLLATE blind", "interval"])
def test_ids_that_may_have_several_texts_are_refused(made, kind):
    with pytest.raises(DataError, match="text or bigint in a view"):
        made(kind)
