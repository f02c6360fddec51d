"""Charts, as Altair specifications; an extra (``hushquery[plot]``), so Altair is imported inside the functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hushquery.errors import Unavailable, UsageError, install

if TYPE_CHECKING:
    import os

    import altair

    from hushquery.core.budget import Number
    from hushquery.core.estimates import Estimates

__all__ = ["estimates", "forecasts", "intervals", "ledger_over_time", "need_altair", "save", "svg", "two_worlds"]

_FORMATS: tuple[Literal["html", "svg", "png"], ...] = ("html", "svg", "png")
_LEAST_TIME = timedelta(hours=1)


def ledger_over_time(rows: Sequence[Mapping[str, Any]]) -> altair.FacetChart:
    """Draw what each account has spent over time, under its budget, from the rows of :meth:`Ledger.over_time`."""
    need_altair()
    import altair as alt

    spent = (
        alt.Chart()
        .mark_line(interpolate="step-after", point=True)
        .encode(
            x=alt.X("time:T", title="time (UTC)", scale=_times([str(row["time"]) for row in rows])),
            y=alt.Y("spent_epsilon:Q", title="epsilon spent"),
            detail="period:N",  # each period starts anew from nothing
            tooltip=["time:T", "what:N", "spent_epsilon:Q", "period:Q"],
        )
    )
    budget = alt.Chart().mark_rule(strokeDash=[6, 4], color="firebrick").encode(y="max(budget_epsilon):Q")
    # Inline data, not a data frame: no pandas, and no limit on the number of rows.
    layers = alt.layer(budget, spent, data=alt.InlineData(values=[dict(row) for row in rows]))
    # An account's name may be long: above its chart, where there is room for it.
    named = alt.Row("account:N", title=None, header=alt.Header(labelOrient="top", labelAnchor="start", labelLimit=600))
    charts: alt.FacetChart = layers.properties(width=600, height=160).facet(row=named)
    charts.resolve = alt.Resolve(scale=alt.ScaleResolveMap(y="independent"))
    return charts


def _times(times: Sequence[str]) -> altair.Scale:
    """Return the scale of times; those of less than an hour lie in the middle of one, not on axes of milliseconds."""
    import altair as alt

    moments = [datetime.fromisoformat(time) for time in times]
    if not moments or max(moments) - min(moments) >= _LEAST_TIME:
        return alt.Scale(type="utc")
    middle = min(moments) + (max(moments) - min(moments)) / 2
    ends = [(middle + side * _LEAST_TIME / 2).isoformat() for side in (-1, 1)]
    return alt.Scale(type="utc", domain=ends)


def two_worlds(epsilon: Number, sensitivity: int = 1) -> altair.LayerChart:
    """Draw the distribution of a noisy count in the world with you and in the world without.
    Nowhere do the two curves differ by more than the factor e^epsilon.
    """
    need_altair()
    import altair as alt

    from hushquery.core.guarantee import two_worlds as tabulate

    rows = tabulate(epsilon, sensitivity)
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X("result:Q", title="noisy result, relative to the world without you"),
        y=alt.Y("probability:Q", title="probability", stack=None),
        color=alt.Color("world:N", title=None, scale=alt.Scale(range=["#d1495b", "#2e6f9e"])),
    )
    chart: alt.LayerChart = base.mark_area(opacity=0.25, interpolate="monotone") + base.mark_line(
        interpolate="monotone", point=alt.OverlayMarkDef(size=18)
    )
    return chart.properties(width=600, height=240)


def estimates(table: Estimates) -> altair.LayerChart:
    """Draw estimates as points with their intervals, one line each, in their order."""
    rows = [{"label": r.label, "value": r.value, "low": r.low, "high": r.high} for r in table]
    return intervals(rows, f"estimate with {100 * table.level:g}% interval", zero=False)


def intervals(
    rows: Sequence[Mapping[str, Any]], title: str, *, zero: bool = True, per_cent: bool = False
) -> altair.LayerChart:
    """Draw rows of ``label``, ``value``, ``low`` and ``high`` as points with their intervals, in their order, and in
    another colour where ``marked``. ``zero`` puts zero on the axis.
    """
    need_altair()
    import altair as alt

    data = alt.InlineData(values=[{"marked": False, **row} for row in rows])
    base = alt.Chart(data).encode(
        y=alt.Y("label:N", title=None, sort=None),
        color=alt.Color("marked:N", legend=None, scale=alt.Scale(domain=[False, True], range=["#2e6f9e", "#d1495b"])),
    )
    # Labels stay where their ticks are: pushed inward, those at the ends would run into their neighbours.
    axis = alt.Axis(labelFlush=False, labelOverlap="greedy", labelSeparation=6)
    if per_cent:
        axis.format = ".2~%"
    x = alt.X("low:Q", title=title, axis=axis, scale=alt.Scale(zero=zero))
    chart: alt.LayerChart = base.mark_rule(strokeWidth=3, opacity=0.5).encode(x=x, x2="high:Q") + base.mark_point(
        filled=True, size=60
    ).encode(x="value:Q", tooltip=["label:N", "value:Q", "low:Q", "high:Q"])
    return chart.properties(width=600, height=max(40, 24 * len(rows)))


def forecasts(rows: Sequence[Mapping[str, Any]]) -> altair.LayerChart:
    """Draw the rows of :func:`hushquery.curator.forecast.compare`: queries released by each selector, against d."""
    need_altair()
    import altair as alt

    base = alt.Chart(alt.InlineData(values=[dict(row) for row in rows])).encode(
        x=alt.X("queries_per_user:Q", title="d, queries per user that count", scale=alt.Scale(type="log", nice=False))
    )
    numbers = ("released_low", "released_high", "threshold", "noise", "expected_rare")
    released = base.mark_area(opacity=0.25, line={"strokeWidth": 1}).encode(
        y=alt.Y("released_low:Q", stack=None, title="queries released, nine times of ten"),
        y2="released_high:Q",
        color=alt.Color("selector:N", title="selector"),
        tooltip=["selector:N", "queries_per_user:Q", *(f"{name}:Q" for name in numbers)],
    )
    untouched = base.mark_line(strokeDash=[5, 4], color="#999").encode(
        y=alt.Y("mean(untouched):Q", title="typical users untouched by d (dashed)", axis=alt.Axis(format="%")),
    )
    chart: alt.LayerChart = alt.layer(released, untouched).properties(width=600, height=320)  # type: ignore[assignment]
    chart.resolve = alt.Resolve(scale=alt.ScaleResolveMap(y="independent"))
    return chart


def svg(chart: altair.TopLevelMixin) -> str:
    """Return a chart as SVG text, to put into a page that needs no network and no script."""
    need_altair()
    import io

    buffer = io.StringIO()
    chart.save(buffer, format="svg")
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def save(chart: altair.TopLevelMixin, path: str | os.PathLike[str]) -> Path:
    """Save a chart as HTML (one file that needs no network), SVG or PNG, by the ending of ``path``."""
    target = Path(path)
    ending = next((known for known in _FORMATS if target.suffix.lower() == f".{known}"), None)
    if ending is None:
        raise UsageError(f"a chart can't be saved as {target.name!r}", fix="Give a file name in .html, .svg or .png")
    need_altair()
    try:
        chart.save(str(target), format=ending, inline=ending == "html")
    except OSError as error:
        raise UsageError(
            f"the chart can't be written to {target}",
            why=error.strerror or type(error).__name__,
            fix="Give a path in a folder that exists and where you may write",
        ) from None
    return target


def need_altair() -> None:
    """Refuse with advice where charts can't be drawn."""
    try:
        import altair  # noqa: F401
        import vl_convert  # noqa: F401 -- saving needs it, and half an installation is none
    except ImportError:
        raise Unavailable(
            "charts need the packages altair and vl-convert-python",
            why="they are not installed",
            fix=install("plot"),
        ) from None
