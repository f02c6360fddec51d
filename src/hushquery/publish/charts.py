"""Charts of trends, as specifications; :func:`hushquery.plot.save` writes them to a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hushquery.errors import DataError, Unavailable
from hushquery.publish.trends import Trends

if TYPE_CHECKING:
    import altair

__all__ = ["trend_chart"]


def trend_chart(found: Trends, names: Sequence[str] = ()) -> altair.LayerChart:
    """Draw the most frequent queries with their intervals, or, of several releases, the changes with theirs.

    Args:
        found: What :func:`hushquery.publish.trends.trends` gave.
        names: What the first and the last release are called.
    """
    if found.changes:
        rows = [
            {"query": row.query, "value": row.change, "low": row.low, "high": row.high, "changed": row.significant}
            for row in found.changes
        ]
        between = f" from {names[0]} to {names[-1]}" if len(names) > 1 else ""
        title = f"change of the noisy {found.measure}{between}, with {100 * found.level:.4g}% interval"
    elif found.top:
        rows = [
            {"query": row.query, "value": row.value, "low": row.low, "high": row.high, "changed": False}
            for row in found.top
        ]
        title = f"noisy {found.measure} with its interval"
    else:
        raise DataError("there is nothing to draw", why="the releases have no counts to compare", fix="Use others")
    try:
        import altair as alt
    except ImportError:
        raise Unavailable(
            "charts need the package altair", why="it is not installed", fix="pip install 'hushquery[plot]'"
        ) from None
    base = alt.Chart(alt.InlineData(values=rows)).encode(y=alt.Y("query:N", title=None, sort=None))
    # Labels stay where their ticks are: pushed inward, those at the ends would run into their neighbours.
    axis = alt.Axis(labelFlush=False, labelOverlap="greedy", labelSeparation=6)
    if found.measure == "share":
        axis.format = ".2~%"
    colour = alt.Color("changed:N", legend=None, scale=alt.Scale(domain=[False, True], range=["#2e6f9e", "#d1495b"]))
    chart: alt.LayerChart = base.mark_rule(strokeWidth=3, opacity=0.5).encode(
        x=alt.X("low:Q", title=title, axis=axis),
        x2="high:Q",
        color=colour,
    ) + base.mark_point(filled=True, size=60).encode(
        x="value:Q", color=colour, tooltip=["query:N", "value:Q", "low:Q", "high:Q"]
    )
    return chart.properties(width=600, height=max(60, 22 * len(rows)))
