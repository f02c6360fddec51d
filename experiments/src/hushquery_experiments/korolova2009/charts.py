"""Charts of what was measured against a true log, as specifications; :mod:`hushquery.plot` writes them to a file.

Each takes plain data, as ``results.json`` of an experiment holds it. Altair is imported inside: charts are an extra.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hushquery.plot import need_altair

if TYPE_CHECKING:
    import altair

__all__ = ["coverage_by_budget", "coverage_by_d", "coverage_with_counts", "fears", "keywords"]

Rows = Sequence[Mapping[str, Any]]

# The paper's own selector stands out; the Laplace family is warm, the Gaussian family cold.
_COLOURS = {
    "korolova2009": "#1b2530",
    "laplace": "#d1495b",
    "optimal": "#e59f3c",
    "gaussian": "#5aa9d6",
    "weighted": "#2e6f9e",
    "guided": "#2a9d6f",
}
_TOOLTIP = ["selector:N", "queries_per_user:Q", "queries:Q", "volume_share:Q", "threshold:Q"]


def coverage_by_d(points: Rows) -> altair.HConcatChart:
    """Draw queries released and share of the search volume against d, a line for each selector."""
    need_altair()
    import altair as alt

    values = sorted({point["queries_per_user"] for point in points})
    base = _lines(points, alt.X("queries_per_user:Q", title="d, queries per user that count", axis=_ticks(values)))
    base.encoding.x.scale = alt.Scale(type="log", domain=[values[0], max(values[-1], values[0] + 1)])
    queries = base.encode(y=alt.Y("queries:Q", title="queries released"))
    volume = base.encode(y=alt.Y("volume_share:Q", title="share of the search volume", axis=_percent()))
    both: alt.HConcatChart = alt.hconcat(queries, volume)
    return both


def coverage_by_budget(by_epsilon: Rows, by_delta: Rows) -> altair.HConcatChart:
    """Draw queries released against epsilon and against delta, a line for each selector."""
    need_altair()
    import altair as alt

    epsilon = _lines(by_epsilon, alt.X("epsilon:Q", title="epsilon"))
    deltas = sorted({point["delta"] for point in by_delta})
    axis = alt.Axis(values=deltas, format=".0e", grid=False)
    delta = _lines(by_delta, alt.X("delta:Q", title="delta", axis=axis, scale=alt.Scale(type="log")))
    y = alt.Y("queries:Q", title="queries released")
    both: alt.HConcatChart = alt.hconcat(epsilon.encode(y=y), delta.encode(y=y))
    return both


def coverage_with_counts(points: Rows) -> altair.Chart:
    """Draw what each selector releases as a list only, and with noisy counts from the same budget."""
    need_altair()
    import altair as alt

    names = {False: "list of queries only", True: "with noisy counts"}
    rows = [{**point, "released": names[point["with_counts"]]} for point in points]
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar()
        .encode(
            y=alt.Y("selector:N", title=None, sort=list(_COLOURS)),
            yOffset=alt.YOffset("released:N", sort=list(names.values())),
            x=alt.X("queries:Q", title="queries released"),
            color=alt.Color(
                "released:N",
                title=None,
                sort=list(names.values()),
                scale=alt.Scale(domain=list(names.values()), range=["#2e6f9e", "#a9cde4"]),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=_TOOLTIP,
        )
    )
    return chart.properties(width=640, height=230)


def keywords(scores: Rows) -> altair.Chart:
    """Draw how the keywords of a release agree with those of the log, against the least probability of a keyword."""
    need_altair()
    import altair as alt

    names = {
        "precision": "precision",
        "recall_released": "recall among released queries",
        "recall": "recall among all queries",
        "jaccard": "Jaccard",
    }
    rows = [
        {"gamma": score["gamma"], "measure": words, "share": score[name]}
        for score in scores
        for name, words in names.items()
        if score[name] is not None
    ]
    gammas = sorted({score["gamma"] for score in scores})
    colours = alt.Scale(domain=list(names.values()), range=["#2e6f9e", "#2a9d6f", "#d1495b", "#e59f3c"])
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_line(point=True)
        .encode(
            x=alt.X(
                "gamma:Q",
                title="gamma, least probability of a keyword",
                axis=_ticks(gammas),
                scale=alt.Scale(zero=False),
            ),
            y=alt.Y("share:Q", title=None, axis=_percent(), scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("measure:N", title=None, sort=list(names.values()), scale=colours),
            tooltip=["measure:N", "gamma:Q", "share:Q"],
        )
    )
    return chart.properties(width=440, height=240)


def fears(ranking: Rows) -> altair.LayerChart:
    """Draw the ranks of the release's most searched fears beside their ranks in the log."""
    need_altair()
    import altair as alt

    sides = ("release", "log")
    rows = [
        {"fear": row["fear"], "side": side, "rank": rank, "moved": row["rank"] != row["raw_rank"]}
        for row in ranking
        for side, rank in zip(sides, (row["rank"], row["raw_rank"]), strict=True)
        if rank is not None
    ]
    lowest = max((row["rank"] for row in rows), default=1)
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X(
            "side:N",
            title=None,
            sort=list(sides),
            axis=alt.Axis(labelAngle=0, orient="top"),
            scale=alt.Scale(padding=0.75),
        ),
        y=alt.Y(
            "rank:Q",
            title="rank",
            scale=alt.Scale(reverse=True, domain=[0.5, lowest + 0.5], nice=False),
            axis=alt.Axis(tickMinStep=1, grid=False),
        ),
        color=alt.Color("moved:N", legend=None, scale=alt.Scale(domain=[False, True], range=["#2e6f9e", "#d1495b"])),
        detail="fear:N",
    )
    text = base.mark_text(dx=12, fontSize=12).encode(text="fear:N")
    chart = alt.layer(
        base.mark_line(point=True),
        text.transform_filter("datum.side == 'release'").mark_text(dx=-12, align="right", fontSize=12),
        text.transform_filter("datum.side == 'log'").mark_text(dx=12, align="left", fontSize=12),
    )
    sized: alt.LayerChart = chart.properties(width=560, height=300)  # type: ignore[assignment]  # it has no facets
    return sized


def _lines(points: Rows, x: Any) -> Any:
    need_altair()
    import altair as alt

    present = [name for name in _COLOURS if any(point["selector"] == name for point in points)]
    colours = alt.Scale(domain=present, range=[_COLOURS[name] for name in present])
    return (
        alt.Chart(alt.InlineData(values=[dict(point) for point in points]))
        .mark_line(point=True)
        .encode(x=x, color=alt.Color("selector:N", title="selector", sort=present, scale=colours), tooltip=_TOOLTIP)
        .properties(width=330, height=260)
    )


def _ticks(values: Sequence[float]) -> altair.Axis:
    import altair as alt

    return alt.Axis(values=list(values), grid=False, format=".4~g")


def _percent() -> altair.Axis:
    import altair as alt

    return alt.Axis(format="~%")
