"""Charts of BLENDER's evaluation, as specifications; :mod:`hushquery.plot` writes them to a file.

Each takes plain rows, as ``results.json`` of ``hushquery experiment blender`` holds them. A panel for each profile;
solid lines are ``best``, dashed ones the paper's algorithm; bars reach two standard errors to each side. A point whose
head list was shorter than asked for in some run is left out, as in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hushquery.plot import need_altair

if TYPE_CHECKING:
    import altair

__all__ = ["ablation", "against_local", "budget_split", "sweep", "top_queries"]

Rows = Sequence[Mapping[str, Any]]

_NAMES = {"aol": "AOL", "yandex": "Yandex"}
_LOG = {"type": "log", "nice": False, "padding": 8}
_TICKS = [digit * 10.0**power for power in range(-5, 1) for digit in (1, 2, 5)]
# Of each measure: the title of its axis, the format of its numbers and its scale.
_MEASURES: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "l1": ("L1 (log scale)", "~g", _LOG),
    "ndcg": ("NDCG", "~g", {"zero": False, "domainMax": 1, "nice": False, "padding": 6}),
    "passed": ("records that pass the threshold", ",.0f", {"zero": True}),
    "hit_rate": ("share of searches on the list", "~%", {"zero": True}),
}
_SIZE_COLOURS = {10: "#1b2530", 50: "#2e6f9e", 100: "#2a9d6f", 500: "#e59f3c"}
_MODE_COLOURS = {"best": "#2e6f9e", "paper": "#e59f3c"}
_DASHES = {"best": [1, 0], "paper": [6, 4]}
_AXES = {
    "optin": ("users who opt in", "~%"),
    "epsilon": ("epsilon", "~g"),
    "f_o": ("f_O: opt-in users who find the list", ".2~f"),
    "f_c": ("f_C: the query's share of epsilon", ".2~f"),
    "m_c": ("m_C: records per client", "d"),
    "head_size": ("M: size of the head list (log scale)", "d"),
}

# Values that are not all labelled, because they lie close together.
_LABELS = {"optin": [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1], "f_o": [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99]}


def sweep(rows: Rows, x: str, measures: Sequence[str]) -> altair.VConcatChart:
    """Draw measures against the parameter that moves: a row of panels for each measure, a panel for each profile.

    Args:
        rows: The rows of one figure.
        x: The parameter.
        measures: What is drawn, of ``l1``, ``ndcg``, ``passed`` and ``hit_rate``.
    """
    alt = _altair()

    full = [row for row in rows if row["complete"] == row["runs"]]
    sizes = sorted({row["head_size"] for row in full}) if x != "head_size" else []
    lines = []
    for measure in measures:
        panels = []
        for profile in dict.fromkeys(row["profile"] for row in full):
            own = _stretched([row for row in full if row["profile"] == profile], x)
            if measure == "passed":  # the same for every size
                own = [row for row in own if row["head_size"] == min(r["head_size"] for r in own)]
            panels.append(_panel(own, x, measure, sizes if len(sizes) > 1 and measure != "passed" else [], profile))
        lines.append(alt.hconcat(*panels))
    chart: altair.VConcatChart = alt.vconcat(*lines).resolve_scale(color="independent")
    return chart


def budget_split(rows: Rows) -> altair.VConcatChart:
    """Draw figure 11: L1 and NDCG of opt-in users, clients and the blend against f_C."""
    alt = _altair()

    colours = {
        "opt-in alone": "#e59f3c",
        "clients alone": "#8f5ad6",
        "blend, paper": "#2a9d6f",
        "blend, variance as printed": "#d1495b",
        "blend, best": "#2e6f9e",
    }
    full = [row for row in rows if row["complete"] == row["runs"]]
    lines = []
    for measure in ("l1", "ndcg"):
        panels = []
        for profile in dict.fromkeys(row["profile"] for row in full):
            flat = []
            for row in _stretched([row for row in full if row["profile"] == profile], "f_c"):
                blend = {"paper": "blend, paper", "printed": "blend, variance as printed", "best": "blend, best"}
                flat.append(_between(row, measure) | {"f_c": row["f_c"], "line": blend[row["mode"]]})
                if row["mode"] == "paper":
                    flat += [
                        _between(row, f"{side}_{measure}") | {"f_c": row["f_c"], "line": f"{name} alone"}
                        for side, name in (("optin", "opt-in"), ("client", "clients"))
                    ]
            base = alt.Chart(_inline(flat)).encode(x=_x("f_c", flat), color=_colour(colours, "line"))
            panels.append(_with_bars(base, measure, None).properties(width=340, height=220, title=_NAMES[profile]))
        lines.append(alt.hconcat(*panels))
    chart: altair.VConcatChart = alt.vconcat(*lines)
    return chart


def against_local(rows: Rows) -> altair.VConcatChart:
    """Draw figure 12: the ten first queries of BLENDER's list, LDPMiner's and PEM's, under both relevance rules."""
    alt = _altair()

    colours = {"BLENDER, best": "#2e6f9e", "BLENDER, paper": "#e59f3c", "LDPMiner": "#8f5ad6", "PEM": "#d1495b"}
    names = dict(zip(("best", "paper", "ldpminer", "pem"), colours, strict=True))
    rules = {"ndcg": "NDCG by true shares", "ndcg_rank_based": "NDCG by ranks"}
    lines = []
    for measure, title in rules.items():
        panels = []
        for profile in dict.fromkeys(row["profile"] for row in rows):
            own = [row for row in rows if row["profile"] == profile]
            size = max(row["head_size"] or 0 for row in own)
            flat = [
                _between(row, measure) | {"epsilon": row["epsilon"], "line": names[row["mode"]]}
                for row in own
                if row["head_size"] in (None, size)
            ]
            base = alt.Chart(_inline(flat)).encode(x=_x("epsilon", flat), color=_colour(colours, "line"))
            y = alt.Y("value:Q", title=title, scale=alt.Scale(domain=[0, 1]))
            chart = alt.layer(base.mark_rule().encode(y="low:Q", y2="high:Q"), base.mark_line(point=True).encode(y=y))
            panels.append(chart.properties(width=340, height=220, title=f"{_NAMES[profile]}, M = {size}"))
        lines.append(alt.hconcat(*panels))
    made: altair.VConcatChart = alt.vconcat(*lines)
    return made


def top_queries(rows: Rows) -> altair.VConcatChart:
    """Draw figure 9: true shares of the top ten queries as bars, estimates as dots, those out of order ringed red."""
    alt = _altair()

    colours = {
        "blend": "#2e6f9e",
        "opt-in, summed": "#e59f3c",
        "clients, direct": "#2a9d6f",
        "clients, summed": "#8f5ad6",
    }
    columns = dict(zip(("blended", "optin", "direct", "client"), colours, strict=True))
    offsets = dict(zip(columns, (-0.3, -0.1, 0.1, 0.3), strict=True))
    lines = []
    for profile in dict.fromkeys(row["profile"] for row in rows):
        panels = []
        for mode in dict.fromkeys(row["mode"] for row in rows):
            own = [row for row in rows if (row["profile"], row["mode"]) == (profile, mode)]
            dots = [
                {
                    "rank": row["rank"] + offsets[name],
                    "value": row[name],
                    "line": line,
                    "regressed": row[f"{name}_regressed"],
                }
                for row in own
                for name, line in columns.items()
                if row[name] is not None
            ]
            axis = alt.Axis(values=[row["rank"] for row in own], grid=False, format="d")
            scale = alt.Scale(domain=[0.4, len(own) + 0.6], nice=False)
            x = alt.X("rank:Q", title="true rank of the query", scale=scale, axis=axis)
            bars = (
                alt.Chart(_inline(own)).mark_bar(color="#d9dee3", size=30).encode(x=x, y=alt.Y("true:Q", title="share"))
            )
            base = alt.Chart(_inline(dots)).encode(x=x, y="value:Q")
            points = base.mark_point(filled=True, size=45, opacity=1).encode(color=_colour(colours, "line"))
            rings = base.transform_filter("datum.regressed").mark_point(size=130, color="#c1121f", strokeWidth=1.6)
            title = f"{_NAMES[profile]}, {mode}"
            panels.append(alt.layer(bars, points, rings).properties(width=340, height=230, title=title))
        lines.append(alt.hconcat(*panels).resolve_scale(y="shared"))
    chart: altair.VConcatChart = alt.vconcat(*lines)
    return chart


def ablation(rows: Rows) -> altair.HConcatChart:
    """Draw the ablation: L1 of every way, a panel for each setting."""
    alt = _altair()

    ways = list(dict.fromkeys(row["way"] for row in rows))
    panels: list[Any] = []
    for key in dict.fromkeys((row["profile"], row["place"]) for row in rows):
        own = [row for row in rows if (row["profile"], row["place"]) == key]
        flat = [
            _between(row, "l1")
            | {"way": row["way"], "kind": "best" if row["way"].startswith(("best:", "best without")) else "paper"}
            for row in own
            if row["complete"] == row["runs"]
        ]
        first = not panels
        y = alt.Y("way:N", sort=ways, scale=alt.Scale(domain=ways), title=None)
        if not first:
            y = alt.Y("way:N", sort=ways, scale=alt.Scale(domain=ways), axis=None)
        base = alt.Chart(_inline(flat)).encode(
            y=y, color=_colour({"best": "#2e6f9e", "paper": "#e59f3c"}, "kind", None)
        )
        x = alt.X("value:Q", title="L1 (log)", scale=alt.Scale(**_LOG), axis=alt.Axis(format="~g", values=_TICKS))
        dots = base.mark_point(filled=True, size=60, opacity=1).encode(x=x)
        bars = base.mark_rule().encode(x="low:Q", x2="high:Q")
        head = own[0]
        title = [f"{_NAMES[head['profile']]} {head['optin']:.1%}", f"eps {head['epsilon']:g}, M {head['head_size']}"]
        panels.append(alt.layer(bars, dots).properties(width=112, height=330, title=alt.Title(title, fontSize=11)))
    chart: altair.HConcatChart = alt.hconcat(*panels, spacing=8)
    return chart


def _panel(rows: Rows, x: str, measure: str, sizes: Sequence[int], profile: str) -> Any:
    """Draw one measure: lines by mode, and coloured by the list's size where there are several."""
    alt = _altair()

    name = "{}" if not sizes else "M = {}"
    flat = [
        _between(row, measure)
        | {x: row[x], "mode": row["mode"], "line": name.format(row["head_size"] if sizes else row["mode"])}
        for row in rows
    ]
    colours = {name.format(size): _SIZE_COLOURS.get(size, "#8f5ad6") for size in sizes}
    base = alt.Chart(_inline(flat)).encode(
        x=_x(x, flat), color=_colour(colours or _MODE_COLOURS, "line"), detail="mode:N"
    )
    scale = alt.Scale(domain=list(_DASHES), range=list(_DASHES.values()))
    dash = alt.StrokeDash("mode:N", scale=scale, legend=None)
    title = alt.Title(_NAMES[profile], subtitle="solid: best, dashed: paper" if sizes else "")
    return _with_bars(base, measure, dash).properties(width=340, height=230, title=title)


def _with_bars(base: Any, measure: str, dash: Any) -> Any:
    alt = _altair()

    title, show, scale = _MEASURES[measure]
    axis = alt.Axis(format=show, values=_TICKS) if scale.get("type") == "log" else alt.Axis(format=show, tickCount=5)
    y = alt.Y("value:Q", title=title, scale=alt.Scale(**scale), axis=axis)
    line = base.mark_line(point={"size": 32}).encode(y=y, **({"strokeDash": dash} if dash is not None else {}))
    return alt.layer(line, base.mark_rule(opacity=0.55).encode(y="low:Q", y2="high:Q"))


def _between(row: Mapping[str, Any], measure: str) -> dict[str, Any]:
    """Return a value with two standard errors to each side, within what the measure can be and the scale can show."""
    value, error = row[measure], row.get(f"{measure}_stderr", 0.0)
    low, high = value - 2 * error, value + 2 * error
    if "l1" in measure:
        return {"value": value, "low": max(low, value / 5), "high": high}
    return {"value": value, "low": max(low, 0.0), "high": min(high, 1.0) if "ndcg" in measure else high}


def _stretched(rows: Rows, x: str) -> Rows:
    """Let a mode that was run at one value only, because it does not use the parameter, span all of them."""
    values = sorted({row[x] for row in rows})
    out = []
    for row in rows:
        alone = sum(r["mode"] == row["mode"] and r["head_size"] == row["head_size"] for r in rows) == 1
        ends = (values[0], values[-1]) if alone and len(values) > 1 and x in ("f_o", "f_c") else (row[x],)
        out += [{**row, x: value} for value in ends]
    return out


def _x(name: str, rows: Rows) -> Any:
    alt = _altair()

    title, show = _AXES[name]
    values = _LABELS.get(name) or sorted({row[name] for row in rows})
    scale = alt.Scale(type="log" if name == "head_size" else "linear", zero=False, nice=False, padding=10)
    return alt.X(f"{name}:Q", title=title, scale=scale, axis=alt.Axis(values=values, format=show, grid=False))


def _colour(colours: Mapping[str, str], field: str, legend: Any = ...) -> Any:
    alt = _altair()

    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    if legend is ...:
        legend = alt.Legend(orient="top", columns=5, symbolStrokeWidth=0, symbolOpacity=1)
    return alt.Color(f"{field}:N", title=None, sort=list(colours), scale=scale, legend=legend)


def _inline(rows: Any) -> Any:
    return _altair().InlineData(values=[dict(row) for row in rows])


def _altair() -> Any:
    """Return the package, or say how to install it."""
    need_altair()
    import altair

    return altair
