"""Charts of randomizers on the client, as specifications; :mod:`hushquery.plot` writes them to a file.

Each takes plain data, as ``results.json`` of ``hushquery experiment local`` holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hushquery.plot import need_altair

if TYPE_CHECKING:
    import altair

__all__ = ["attacks", "errors", "histograms", "hitters", "means", "ratios"]

Rows = Sequence[Mapping[str, Any]]

_COLOURS = {
    "krr": "#1b2530",
    "hadamard": "#d1495b",
    "olh": "#e59f3c",
    "oue": "#5aa9d6",
    "subset": "#2a9d6f",
    "two-stage": "#b9a1d3",
    "two-stage tight": "#8f5ad6",
}
# Lines that cover each other: the ones that are drawn later have gaps, through which the earlier ones are seen.
_DASHES = {"oue": [7, 5], "subset": [2, 6], "two-stage tight": [5, 5]}
_TOOLTIP = ["oracle:N", "k:Q", "epsilon:Q", "measured:Q", "theory:Q", "ratio:Q", "stderr:Q", "report_bytes:Q"]


def errors(points: Rows) -> altair.HConcatChart:
    """Draw the mean squared error of every oracle against epsilon, a panel for each k: theory a line, measured dots."""
    alt = _altair()

    panels = []
    for k in sorted({point["k"] for point in points}):
        base = alt.Chart(_inline(point for point in points if point["k"] == k)).encode(
            x=_epsilon(points), color=_colour(_COLOURS, "oracle"), tooltip=_TOOLTIP
        )
        axis = alt.Axis(format=".0e", values=[10.0**power for power in range(-9, 2)])
        dash = alt.Scale(domain=list(_COLOURS), range=[_DASHES.get(name, [1, 0]) for name in _COLOURS])
        line = base.mark_line().encode(
            y=alt.Y("theory:Q", title="mean squared error", scale=alt.Scale(type="log"), axis=axis),
            strokeDash=alt.StrokeDash("oracle:N", scale=dash, legend=None),
        )
        dots = base.mark_point(filled=True, size=45).encode(y="measured:Q")
        panels.append(alt.layer(line, dots).properties(width=220, height=260, title=f"k = {k:,}"))
    chart: altair.HConcatChart = alt.hconcat(*panels)
    return chart


def ratios(points: Rows) -> altair.HConcatChart:
    """Draw measured over theory with two standard errors to each side, a panel for each k."""
    alt = _altair()

    names = [name for name in _COLOURS if any(point["oracle"] == name for point in points)]
    panels = []
    for k in sorted({point["k"] for point in points}):
        rows = [
            {**point, "low": point["ratio"] - 2 * point["stderr"], "high": point["ratio"] + 2 * point["stderr"]}
            for point in points
            if point["k"] == k
        ]
        base = alt.Chart(_inline(rows)).encode(
            x=alt.X("epsilon:O", title="epsilon", axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("oracle:N", sort=names),
            color=_colour(_COLOURS, "oracle"),
        )
        bars = base.mark_rule().encode(
            y=alt.Y("low:Q", title="measured over theory", scale=alt.Scale(zero=False)), y2="high:Q"
        )
        dots = base.mark_point(filled=True, size=28).encode(y="ratio:Q", tooltip=_TOOLTIP)
        one = alt.Chart(_inline([{"one": 1}])).mark_rule(strokeDash=[5, 4], color="#5b6773").encode(y="one:Q")
        panels.append(alt.layer(one, bars, dots).properties(width=240, height=220, title=f"k = {k:,}"))
    chart: altair.HConcatChart = alt.hconcat(*panels)
    return chart


def means(points: Rows) -> altair.LayerChart:
    """Draw the error of an average against epsilon: 1BitMean, its bound, and Laplace."""
    alt = _altair()

    colours = {"1BitMean": "#2e6f9e", "1BitMean's bound (95%)": "#a9cde4", "Laplace": "#e59f3c"}
    rows = [{**point, "line": point["mechanism"], "error": point["theory"]} for point in points]
    rows += [
        {**point, "line": "1BitMean's bound (95%)", "error": point["bound"], "measured": None}
        for point in points
        if point["bound"] is not None
    ]
    base = alt.Chart(_inline(rows)).encode(x=_epsilon(points), color=_colour(colours, "line"))
    dash = alt.condition("datum.measured == null", alt.value([5, 4]), alt.value([1, 0]))
    line = base.mark_line().encode(y=alt.Y("error:Q", title="error of the average (0 to 100)"), strokeDash=dash)
    dots = base.transform_filter("datum.measured != null").mark_point(filled=True, size=45).encode(y="measured:Q")
    return _sized(alt.layer(line, dots), 440, 240)


def histograms(points: Rows) -> altair.LayerChart:
    """Draw dBitFlip's largest error against epsilon, for each number of bits, and its bound dashed."""
    alt = _altair()

    bits = [f"d = {d}" for d in sorted({point["d"] for point in points})]
    colours = dict(zip(bits, ("#d1495b", "#e59f3c", "#2e6f9e"), strict=False))
    rows = [{**point, "bits": f"d = {point['d']}"} for point in points]
    base = alt.Chart(_inline(rows)).encode(x=_epsilon(points), color=_colour(colours, "bits"))
    axis = alt.Axis(format="~%", values=[0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1])
    y = alt.Y("largest:Q", title="largest error of a bucket's share", scale=alt.Scale(type="log"), axis=axis)
    bound = base.mark_line(strokeDash=[5, 4]).encode(y="bound:Q")
    return _sized(alt.layer(base.mark_line(point=True).encode(y=y), bound), 440, 260)


def attacks(rows: Rows) -> altair.HConcatChart:
    """Draw how many devices' values an attacker finds after so many reports, a panel for each mechanism."""
    alt = _altair()

    colours = {"redrawn each time": "#d1495b", "kept": "#2e6f9e"}
    panels = []
    for name in dict.fromkeys(row["mechanism"] for row in rows):
        own = [row for row in rows if row["mechanism"] == name]
        flat = [
            {"asked": asked, "found": found, "response": "redrawn each time" if row["redrawn"] else "kept"}
            for row in own
            for asked, found in zip(row["asked"], row["found"], strict=True)
        ]
        line = alt.Chart(_inline(flat)).mark_line(point=True)
        line = line.encode(
            x=alt.X(
                "asked:Q",
                title="reports of each device",
                scale=alt.Scale(type="log", base=4),
                axis=alt.Axis(values=list(own[0]["asked"]), grid=False),
            ),
            y=alt.Y(
                "found:Q",
                title="devices whose value is found",
                axis=alt.Axis(format="~%"),
                scale=alt.Scale(domain=[0.5, 1]),
            ),
            color=_colour(colours, "response"),
        )
        limit = alt.Chart(_inline([{"limit": own[0]["limit"]}])).mark_rule(strokeDash=[5, 4], color="#5b6773")
        both = alt.layer(limit.encode(y=alt.Y("limit:Q", scale=alt.Scale(domain=[0.5, 1]))), line)
        panels.append(both.properties(width=220, height=220, title=f"{name}, epsilon = {own[0]['epsilon']:.2g}"))
    chart: altair.HConcatChart = alt.hconcat(*panels)
    return chart


def hitters(points: Rows) -> altair.Chart:
    """Draw how many of the ten most frequent values are found, against epsilon."""
    alt = _altair()

    chart: altair.Chart = (
        alt.Chart(_inline(points))
        .mark_line(point=True)
        .encode(
            x=_epsilon(points),
            y=alt.Y("found:Q", title="of the true top 10", scale=alt.Scale(domain=[0, 10])),
            color=_colour({"PEM": "#2e6f9e", "LDPMiner": "#e59f3c"}, "finder"),
        )
    )
    return chart.properties(width=440, height=220)


def _altair() -> Any:
    """Return the package, or say how to install it."""
    need_altair()
    import altair

    return altair


def _inline(rows: Any) -> Any:
    alt = _altair()

    return alt.InlineData(values=[dict(row) for row in rows])


def _epsilon(points: Rows) -> Any:
    alt = _altair()

    values = sorted({point["epsilon"] for point in points})
    return alt.X("epsilon:Q", title="epsilon", scale=alt.Scale(zero=False), axis=alt.Axis(values=values, grid=False))


def _colour(colours: Mapping[str, str], field: str) -> Any:
    alt = _altair()

    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    legend = alt.Legend(orient="top", columns=7, symbolStrokeWidth=0)
    return alt.Color(f"{field}:N", title=None, sort=list(colours), scale=scale, legend=legend)


def _sized(chart: Any, width: int, height: int) -> altair.LayerChart:
    sized: altair.LayerChart = chart.properties(width=width, height=height)
    return sized
