"""Charts, as Altair specifications; an extra (``hushquery[plot]``), so Altair is imported inside the functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hushquery.errors import DataError, Unavailable, UsageError, install

if TYPE_CHECKING:
    import os

    import altair

    from hushquery.core.budget import Number
    from hushquery.core.estimates import Estimates
    from hushquery.release import Release

__all__ = [
    *("estimates", "forecasts", "intervals", "ledger_over_time", "need_altair", "over_time", "queries", "save", "svg"),
    *("trend", "two_worlds"),
]

_FORMATS: tuple[Literal["html", "svg", "png"], ...] = ("html", "svg", "png")
_LEAST_TIME = timedelta(hours=1)
# So many queries can be told apart in one chart.
_TOGETHER = 5


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


def queries(release: Release, limit: int = 20) -> altair.LayerChart:
    """Draw the most frequent queries of a release with their intervals."""
    table = release.tables.get("queries")
    measure = next((name for name in ("count", "share") if table is not None and name in table.column_names), None)
    if table is None or measure is None:
        raise DataError("this release has no numbers of queries to draw", fix="Use a release with counts or shares")
    rows = [{"label": row["query"], "value": row[measure]} | row for row in table.slice(0, limit).to_pylist()]
    level = f"{100 * float(release.manifest['interval_level']):g}"
    return intervals(rows, f"noisy {measure} with {level}% interval", per_cent=measure == "share")


def trend(releases: Sequence[Release], query: str | Sequence[str]) -> altair.LayerChart | altair.FacetChart:
    """Draw what releases of a series say of a query, or of several compared, by the dates of their data.

    A release that does not list a query leaves a gap, which does not mean that nobody searched for it.
    """
    from hushquery.release.series import in_order, series_names

    wanted = [query] if isinstance(query, str) else list(query)
    ordered = in_order(releases)
    rows, shares = [], False
    for place, (release, name) in enumerate(zip(ordered, series_names(ordered), strict=True)):
        table = release.tables["queries"]
        measure = "share" if "share" in table.column_names else "count"
        shares = shares or measure == "share"
        listed = {row["query"]: row for row in table.to_pylist()} if measure in table.column_names else {}
        rows += [
            {"release": name, "order": place, "query": one, "value": listed[one][measure]}
            | {end: listed[one][end] for end in ("low", "high")}
            for one in wanted
            if one in listed
        ]
    if not rows:
        raise DataError(
            "no release lists what is to be drawn", why="rare searches are never released", fix="Use another query"
        )
    rows.sort(key=lambda row: wanted.index(row["query"]))
    return over_time(rows, series_names(ordered), per_cent=shares)


def over_time(
    rows: Sequence[Mapping[str, Any]], releases: Sequence[str], *, per_cent: bool = False, title: str = ""
) -> altair.LayerChart | altair.FacetChart:
    """Draw rows of ``release``, ``query``, ``value``, ``low`` and ``high``: few queries in one chart, more in one each.

    A line joins only releases that follow on one another.
    """
    need_altair()
    import altair as alt

    names = list(dict.fromkeys(row["query"] for row in rows))
    several, order = len(names) > _TOGETHER, {name: place for place, name in enumerate(releases)}
    data: list[dict[str, Any]] = []
    last: dict[str, int] = {}
    run = 0
    for row in sorted(rows, key=lambda row: (names.index(row["query"]), order[row["release"]])):
        place = order[row["release"]]
        run += last.get(row["query"]) != place - 1
        last[row["query"]] = place
        data.append({**row, "run": run})
    title = title or f"noisy {'share' if per_cent else 'count'}"
    base = alt.Chart().encode(
        x=alt.X(
            "release:N",
            sort=list(releases),
            scale=alt.Scale(domain=list(releases)),
            axis=alt.Axis(title=None, labelAngle=-35, labelOverlap="greedy"),
        ),
        color=alt.value("#2e6f9e")
        if several
        else alt.Color("query:N", scale=alt.Scale(domain=names), legend=alt.Legend(title=None, symbolOpacity=1)),
        detail="run:N",
    )
    axis = alt.Axis(format=".2~%") if per_cent else alt.Axis()
    y, low = (alt.Y(f"{name}:Q", title=None if several else title, axis=axis, stack=None) for name in ("value", "low"))
    tooltip = ["query:N", "release:N", "value:Q", "low:Q", "high:Q"]
    layers = alt.layer(
        base.mark_area(opacity=0.18).encode(y=low, y2="high:Q"),
        base.mark_rule().encode(y=low, y2="high:Q"),
        base.mark_line(point=True).encode(y=y, tooltip=tooltip),
        data=alt.InlineData(values=data),
    )
    if not several:
        return layers.properties(width=600, height=320)
    header = alt.Header(labelFontWeight="bold", labelLimit=220)
    charts: alt.FacetChart = layers.properties(width=220, height=110).facet(
        facet=alt.Facet("query:N", title=title, sort=names, header=header), columns=3
    )
    charts.resolve = alt.Resolve(scale=alt.ScaleResolveMap(y="independent"))
    return charts


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
