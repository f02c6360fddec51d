"""Every test of the ledger that asks for a store runs on real SQLite and on real PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

_numbers = itertools.count()


class Clock:
    """A clock that tells what a test says."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **amount: float) -> None:
        self.now += timedelta(**amount)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def new_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], str]:
    """A function that gives the URL of another empty store each time."""
    if request.param == "sqlite":
        folder = tmp_path_factory.mktemp("ledgers")
        return lambda: f"sqlite:///{folder}/{next(_numbers)}.db"
    server = request.getfixturevalue("postgres_url")

    def new_schema() -> str:
        schema = f"s{next(_numbers)}"
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")
        return f"{server}?options=-csearch_path%3D{schema}"

    return new_schema


@pytest.fixture
def store_url(new_store: Callable[[], str]) -> str:
    """The URL of an empty store."""
    return new_store()
