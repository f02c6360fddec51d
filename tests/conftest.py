"""What all tests share: a real PostgreSQL server, started when a test of this process first asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from postgres import server


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a throwaway PostgreSQL server; where PostgreSQL is not installed this fails, never skips."""
    with server() as url:
        yield url
