"""The log of Kaggle's personalised search challenge by Yandex: lines that speak of sessions, put together to rows."""

from __future__ import annotations

from hushquery.log.formats import Format

__all__ = ["yandex", "yandex_rows"]

_MICROS = 1_000_000
_DAY = 86_400

_PROBLEM = """CASE
  WHEN cells[2] = 'M' AND len(cells) = 4 THEN NULL
  WHEN cells[3] IN ('Q', 'T') AND len(cells) >= 6 THEN NULL
  WHEN cells[3] = 'C' AND len(cells) = 5 THEN NULL
  WHEN cells[2] = 'M' AND len(cells) > 4 OR cells[3] = 'C' AND len(cells) > 5 THEN 'too many columns'
  ELSE 'too few columns' END"""


def yandex() -> Format:
    """Give what a single line can tell: whether it is a part of a session, and which of its cells are unusable."""
    time = "CASE WHEN cells[2] = 'M' THEN cells[3] ELSE cells[2] END"
    return Format(
        name="yandex",
        cells=0,
        parsed="SELECT *, string_split(line, '\t') AS cells FROM ({lines})",
        skipped="false",
        problem=_PROBLEM,
        fields={
            "user": "CASE WHEN cells[2] = 'M' THEN cells[4] ELSE cells[1] END",
            "query": "CASE WHEN cells[3] IN ('Q', 'T') THEN replace(cells[6], ',', ' ') ELSE cells[1] END",
            "time": f"TRY_CAST({time} AS INTEGER)::BIGINT",
        },
        origins={
            "user": "the user that a session's M line names",
            "query": "the words of a Q or T line",
            "time": "the session's day and the line's time",
            "url": "the URL of a C line",
            "rank": "its place among the results",
        },
        raw_time=time,
        reads_time=True,
    )


def yandex_rows(lines: str) -> str:
    """Write the query that puts sessions together: one row per click, one without url for a query without clicks.

    A session belongs to whom its M lines name. If two lines name two users, both have it: each user's rows then depend
    on lines that name this user and on the session's own, never on who else is named. A session without a readable
    query is a row without a query: its user is one of the users.
    """
    # A day or a time that is no number, or too large, makes the row timeless.
    time = f"TRY((TRY_CAST(s.day AS INTEGER)::BIGINT * {_DAY} + TRY_CAST(q.passed AS INTEGER)::BIGINT) * {_MICROS})"
    return f"""
WITH parts AS NOT MATERIALIZED (
  SELECT cells FROM (SELECT string_split(line, '\t') AS cells FROM ({lines})) WHERE ({_PROBLEM}) IS NULL
), sessions AS (
  SELECT DISTINCT cells[1] AS session, cells[3] AS day, cells[4] AS "user" FROM parts WHERE cells[2] = 'M'
), queries AS (
  SELECT cells[1] AS session, cells[2] AS passed, cells[4] AS serp, replace(cells[6], ',', ' ') AS query,
    cells[7:] AS shown
  FROM parts WHERE cells[2] <> 'M' AND cells[3] IN ('Q', 'T')
), clicks AS (
  SELECT cells[1] AS session, cells[4] AS serp, cells[5] AS url FROM parts WHERE cells[2] <> 'M' AND cells[3] = 'C'
)
SELECT s."user", q.query, {time} AS time, c.url,
  list_position(list_transform(q.shown, lambda pair: split_part(pair, ',', 1)), c.url)::BIGINT AS rank
FROM sessions s LEFT JOIN queries q ON q.session = s.session
  LEFT JOIN clicks c ON c.session = q.session AND c.serp = q.serp
"""  # noqa: S608
