"""Charts of a task over many epochs, as specifications; :mod:`hushquery.plot` writes them to a file.

Each takes plain data, as ``results.json`` of ``hushquery experiment epochs`` holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hushquery.plot import need_altair

if TYPE_CHECKING:
    import altair

__all__ = ["movement", "quality", "silence", "spending"]

Runs = Sequence[Mapping[str, Any]]

_COLOURS = ("#d1495b", "#e59f3c", "#2e6f9e", "#2a9d6f")


def spending(runs: Runs, lifetime: float) -> altair.HConcatChart:
    """Draw what the median client and the worst one have spent after each epoch, and the lifetime budget."""
    alt = _altair()

    panels = []
    for who, title in (("typical", "the median client"), ("worst", "the worst client")):
        rows = [
            {"epoch": row["epoch"] + 1, "list": _name(run), "epsilon": row[who]}
            for run in runs
            for row in run["epochs"]
        ]
        line = _lines(rows, runs, "epsilon:Q", "epsilon spent so far")
        cap = alt.Chart(_inline([{"cap": lifetime, "said": "lifetime budget of a device"}]))
        rule = cap.mark_rule(color="#5b6773", strokeDash=[5, 4]).encode(y="cap:Q")
        text = cap.mark_text(align="left", dx=4, dy=-8, color="#5b6773", x=0).encode(y="cap:Q", text="said:N")
        # Room for the words above the line.
        room = alt.Chart(_inline([{"top": 1.1 * lifetime}])).mark_point(opacity=0).encode(y="top:Q")
        panels.append(alt.layer(room, rule, text, line).properties(width=320, height=230, title=title))
    chart: altair.HConcatChart = alt.hconcat(*panels)
    return chart


def quality(runs: Runs) -> altair.HConcatChart:
    """Draw the error and the NDCG of every epoch."""
    alt = _altair()

    panels = []
    for name, title, zero in (("l1", "L1 error of the shares", True), ("ndcg", "NDCG", False)):
        rows = [
            {"epoch": row["epoch"] + 1, "list": _name(run), "value": row[name]} for run in runs for row in run["epochs"]
        ]
        panels.append(_lines(rows, runs, "value:Q", None, zero=zero).properties(width=320, height=230, title=title))
    chart: altair.HConcatChart = alt.hconcat(*panels)
    return chart


def silence(runs: Runs) -> altair.Chart:
    """Draw the share of clients who have nothing left, epoch by epoch."""
    rows = [
        {"epoch": row["epoch"] + 1, "list": _name(run), "silent": row["silent"] / row["clients"]}
        for run in runs
        for row in run["epochs"]
    ]
    chart: altair.Chart = _lines(rows, runs, "silent:Q", "clients with nothing left", percent=True)
    return chart.properties(width=520, height=220)


def movement(run: Mapping[str, Any], most: int = 12) -> altair.LayerChart:
    """Draw the surest changes from the first epoch to the last, with intervals, and the true ones beside them."""
    alt = _altair()

    rows = [{**row, "kind": "estimate and interval", "value": row["change"]} for row in run["changes"][:most]]
    order = [row["query"] for row in sorted(run["changes"][:most], key=lambda row: -row["true"])]
    truth = [{**row, "kind": "truth", "value": row["true"]} for row in run["changes"][:most]]
    y = alt.Y("query:N", title=None, sort=order)
    colour = alt.Color(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=["estimate and interval", "truth"], range=["#2e6f9e", "#d1495b"]),
        legend=alt.Legend(orient="top"),
    )
    axis = alt.Axis(format="+~p")
    bars = alt.Chart(_inline(rows)).mark_rule(strokeWidth=2)
    bars = bars.encode(
        y=y, x=alt.X("low:Q", title="change of the share, first to last epoch", axis=axis), x2="high:Q", color=colour
    )
    dots = alt.Chart(_inline(rows)).mark_point(filled=True, size=50).encode(y=y, x="value:Q", color=colour)
    ticks = alt.Chart(_inline(truth)).mark_tick(thickness=3, height=14).encode(y=y, x="value:Q", color=colour)
    zero = alt.Chart(_inline([{"zero": 0}])).mark_rule(color="#5b6773", strokeDash=[5, 4]).encode(x="zero:Q")
    chart: altair.LayerChart = alt.layer(zero, bars, dots, ticks)
    return chart.properties(width=520, height=24 * max(1, len(order)))


def _name(run: Mapping[str, Any]) -> str:
    return "a new list each time" if run["keep"] == 1 else f"list kept {run['keep']} periods"


def _lines(
    rows: list[dict[str, Any]], runs: Runs, y: str, title: str | None, *, zero: bool = True, percent: bool = False
) -> Any:
    alt = _altair()

    names = [_name(run) for run in runs]
    axis = alt.Axis(format="~%") if percent else alt.Axis()
    legend = alt.Legend(orient="top", symbolStrokeWidth=2)
    return (
        alt.Chart(_inline(rows))
        .mark_line(point=True)
        .encode(
            x=alt.X("epoch:O", title="epoch", axis=alt.Axis(labelAngle=0)),
            y=alt.Y(y, title=title, scale=alt.Scale(zero=zero), axis=axis),
            color=alt.Color(
                "list:N",
                title=None,
                sort=names,
                scale=alt.Scale(domain=names, range=_COLOURS[: len(names)]),
                legend=legend,
            ),
        )
    )


def _altair() -> Any:
    """Return the package, or say how to install it."""
    need_altair()
    import altair

    return altair


def _inline(rows: list[dict[str, Any]]) -> Any:
    alt = _altair()

    return alt.InlineData(values=rows)
