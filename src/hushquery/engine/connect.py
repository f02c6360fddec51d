"""Connections to engines by URL: DuckDB, Spark, PostgreSQL, and what else Ibis knows."""

from __future__ import annotations

import weakref
from typing import Any

from hushquery.engine.duckdb import connect_duckdb
from hushquery.errors import HushqueryError, Unavailable

__all__ = ["connect"]

# Which of our extras brings what an engine needs; for all others Ibis has an extra of the engine's name.
_PACKAGES = {"spark": "hushquery[spark]", "postgresql": "hushquery[serve]", "postgres": "hushquery[serve]"}


def connect(url: str = "duckdb") -> Any:
    """Connect to an engine.

    Args:
        url: ``duckdb`` (in this process), ``spark`` (this process's Spark session, or a new local one),
            ``spark://host:port`` (a standalone cluster), ``postgresql://user@host/database``, or any URL that Ibis
            understands. It may hold a password, so no error repeats it.

    >>> connect("duckdb").name
    'duckdb'
    """
    import ibis

    if url == "duckdb":
        return connect_duckdb()
    scheme = url.split(":")[0]
    try:
        if scheme == "spark":
            from hushquery.engine.spark import connect_spark

            return connect_spark(url)
        engine = ibis.connect(url)
        if engine.name == "postgres":
            from hushquery.engine.postgres import prepare

            weakref.finalize(engine, engine.con.close)  # whoever gave a URL has nothing to close
            prepare(engine)
        return engine
    except HushqueryError:
        raise
    except ImportError:
        raise Unavailable(
            f"the engine {scheme!r} needs a package that is not installed",
            fix=f"Run: pip install '{_PACKAGES.get(scheme, f'ibis-framework[{scheme}]')}'",
        ) from None
    except Exception as error:
        # The URL may hold a password, so neither it nor the driver's message is repeated.
        raise Unavailable(
            f"the engine {scheme!r} can't be reached",
            why=type(error).__name__,
            fix="Check the address and that the server runs; `hushquery doctor` tells what works here",
        ) from None
