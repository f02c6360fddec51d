"""Every test of the collector that asks for a store runs on real SQLite and on real PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from collect.helpers import Clock
from hushquery.collect.collector import Collector

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process readiness has time, because the machine may be busy, and time passes when a test says so only."""
    monkeypatch.setattr("hushquery.collect.http.admin.READY_SECONDS", 60.0)
    ticking = Collector._tick
    monkeypatch.setattr(Collector, "_tick", lambda self: ticking(self) if self.settings.tick_seconds else None)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def new_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], str]:
    """A function that gives the URL of another empty store each time."""
    if request.param == "sqlite":
        folder = tmp_path_factory.mktemp("collectors")
        return lambda: f"sqlite:///{folder}/{next(_numbers)}.db"
    server = request.getfixturevalue("postgres_url")

    def new_schema() -> str:
        schema = f"c{next(_numbers)}"
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")
        return f"{server}?options=-csearch_path%3D{schema}"

    return new_schema


@pytest.fixture
def store_url(new_store: Callable[[], str]) -> str:
    """The URL of an empty store."""
    return new_store()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for task files and keys."""
    return tmp_path
