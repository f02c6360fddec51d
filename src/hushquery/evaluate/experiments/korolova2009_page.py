"""The experiment of Korolova et al. 2009 as text and as a page, from the plain data that ``results.json`` holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hushquery import plot
from hushquery.errors import Unavailable
from hushquery.evaluate import charts
from hushquery.evaluate.unpublishable import MARK
from hushquery.release.markup import isolated, shown
from hushquery.release.style import STYLE

__all__ = ["FIGURES", "as_page", "as_text", "command", "main_grid", "percent", "pivot", "tau", "verdict"]

Data = Mapping[str, Any]

_HARMLESS = (
    "This log is synthetic: nobody is in it, so here the mark is a matter of principle and sharing does no harm."
)
_HARMFUL = (
    "Every number below is the answer to a question about the log without any noise. Keep this for the choice of d, "
    "epsilon and delta, and delete it. No budget was spent, because nothing was released."
)
_EXTRA_STYLE = """
figure svg { max-width: 100%; height: auto; background: #fff; border-radius: 8px; padding: .4rem }
table { border-collapse: collapse; margin: .8rem 0; font-size: .92rem; font-variant-numeric: tabular-nums }
th, td { padding: .28rem .7rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; overflow-wrap: normal }
th:first-child, td:first-child { text-align: left; white-space: normal }
thead th { color: var(--soft); font-weight: 600 }
td small { display: block } .wide { overflow-x: auto }
.facts { margin: 1.2rem 0 }
.big { font-size: 1.35rem; letter-spacing: .01em; text-align: center }
.holds { color: var(--accent); font-weight: 650 } .fails { color: var(--alarm); font-weight: 650 }
"""


def main_grid(data: Data) -> list[Data]:
    """Give the points of the paper's epsilon and delta, selection only: the curves against d."""
    first = data["coverage"][0]
    same = (first["epsilon"], first["delta"], False)
    return [p for p in data["coverage"] if (p["epsilon"], p["delta"], p["with_counts"]) == same]


def pivot(points: Sequence[Data]) -> dict[str, dict[int, Data]]:
    """Arrange points by selector and d."""
    table: dict[str, dict[int, Data]] = {}
    for point in points:
        table.setdefault(point["selector"], {})[point["queries_per_user"]] = point
    return table


def command(data: Data) -> str:
    """Give the command that measures the same again."""
    settings = data["settings"]
    made = f"--users {settings['users']} --seed {settings['seed']}" if settings["users"] else "--log LOG"
    d = ",".join(str(value) for value in settings["queries_per_user"])
    return f"hushquery experiment korolova2009 {made} --runs {settings['runs']} --d {d}"


def percent(share: float | None, digits: int = 1) -> str:
    """Print a share.

    >>> percent(0.2512), percent(0.00184, 2), percent(None)
    ('25.1%', '0.18%', '-')
    """
    return "-" if share is None else f"{100 * share:.{digits}f}%"


def verdict(claim: Data) -> str:
    """Say in a word whether a ratio was reached."""
    return {True: "pass", False: "FAIL", None: "not measured"}[claim["holds"]]


def tau(data: Data) -> str:
    """Print Kendall's tau of the fears."""
    value = data["fears"]["kendall_tau"]
    return "-" if value is None else f"{value:.3f}"


def as_text(data: Data) -> str:
    """Give the tables for a terminal."""
    log, grid = data["log"], pivot(main_grid(data))
    ds = data["settings"]["queries_per_user"]
    lines = [
        MARK + (" (a synthetic one: nobody is in it)" if data["settings"]["log"] == "synthetic" else ""),
        "",
        f"{log['users']:,} users, {log['searches']:,} searches, {log['distinct_queries']:,} distinct queries, "
        f"{percent(log['searched_once_share'], 0)} of them searched once",
        "",
        "queries released and their share of the search volume, e^epsilon = 10, delta = 1e-5, list of queries only",
        f"{'selector':14}" + "".join(f"{f'd={d}':>13}" for d in ds),
    ]
    for name, row in grid.items():
        cells = (f"{row[d]['queries']:,.0f} {percent(row[d]['volume_share'])}" for d in ds)
        lines.append(f"{name:14}" + "".join(f"{cell:>13}" for cell in cells))
    lines += ["", "other budgets at d=20 (queries released, share of the search volume)"]
    for point in data["coverage"]:
        if point in main_grid(data):
            continue
        what = "with counts" if point["with_counts"] else f"epsilon {point['epsilon']:.4g}, delta {point['delta']:.0e}"
        lines.append(f"  {point['selector']:14}{what:30}{point['queries']:>8,.0f}{percent(point['volume_share']):>8}")
    lines += ["", "keywords of a release against those of the log, all topics together", *_keyword_lines(data)]
    fears = data["fears"]
    lines += [
        "",
        f"fears: {fears['overlap']} of the top {fears['top']} agree, Kendall tau {tau(data)} over the fears in both "
        f"({fears['private']} released of {fears['raw']})",
        "",
    ]
    for claim in data["claims"]:
        ratio = "-" if claim["ratio"] is None else f"{claim['ratio']:.2f}"
        lines.append(f"{verdict(claim):13}{claim['what']}: {ratio} times (at least {claim['at_least']:g})")
    return "\n".join(lines)


def _keyword_lines(data: Data) -> list[str]:
    if not data["keywords"]:
        return ["  the log has no clicks to walk on"]
    rows: list[tuple[str, ...]] = [
        ("gamma", "in release", "in log", "both", "precision", "recall", "of released", "Jaccard")
    ]
    for score in data["keywords"]["together"]:
        sizes = (f"{score[name]:,}" for name in ("private", "raw", "both"))
        shares = (percent(score[name]) for name in ("precision", "recall", "recall_released", "jaccard"))
        rows.append((f"{score['gamma']:g}", *sizes, *shares))
    return ["".join(f"{cell:>12}" for cell in row) for row in rows]


def _by_budget(data: Data) -> Any:
    first, points = data["coverage"][0], [p for p in data["coverage"] if not p["with_counts"]]
    swept = {p["selector"] for p in points if p["epsilon"] != first["epsilon"]}
    d = next(p["queries_per_user"] for p in points if p["epsilon"] != first["epsilon"])
    points = [p for p in points if p["selector"] in swept and p["queries_per_user"] == d]
    return charts.coverage_by_budget(
        [p for p in points if p["delta"] == first["delta"]], [p for p in points if p["epsilon"] == first["epsilon"]]
    )


def _with_counts(data: Data) -> Any:
    d = next(p["queries_per_user"] for p in data["coverage"] if p["with_counts"])
    same = [p for p in main_grid(data) if p["queries_per_user"] == d]
    return charts.coverage_with_counts([*same, *(p for p in data["coverage"] if p["with_counts"])])


#: The figures of the page: a name, how to draw it from the data, and its caption.
FIGURES: Mapping[str, tuple[Callable[[Data], Any], str]] = {
    "coverage": (
        lambda data: charts.coverage_by_d(main_grid(data)),
        "At e^epsilon = 10 and delta = 1e-5, the list of queries only. More queries per user (d) count for more, and "
        "need more noise and a higher threshold: linearly in d with Laplace noise, with its square root with Gaussian.",
    ),
    "budget": (_by_budget, "At d = 20, against epsilon (delta = 1e-5) and against delta (e^epsilon = 10)."),
    "counts": (_with_counts, "At d = 20: what noisy counts cost when the same budget has to pay for them too."),
    "keywords": (
        lambda data: charts.keywords(data["keywords"]["together"]),
        "A walk from the sites of a topic finds its keywords. Recall among all queries counts the long tail, which no "
        "private release can name; recall among released queries leaves it out.",
    ),
    "fears": (
        lambda data: charts.fears(data["fears"]["ranking"]),
        "The most searched fears by the release's noisy counts, and the places they have in the log.",
    ),
}


def as_page(data: Data) -> str:
    """Give the page to look at, as HTML that needs neither network nor script."""
    log, settings, fears = data["log"], data["settings"], data["fears"]
    synthetic = settings["log"] == "synthetic"
    facts = {
        "users": f"{log['users']:,}",
        "searches": f"{log['searches']:,}",
        "distinct queries": f"{log['distinct_queries']:,}",
        "of them searched once": percent(log["searched_once_share"], 0),
    }
    release = settings["release"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>Not publishable: hushquery experiment korolova2009</title><style>{STYLE}{_EXTRA_STYLE}</style>",
        "<p class=over>hushquery experiment korolova2009</p>",
        "<h1>How much of a search log can be published privately?</h1>",
        f"<p class='alarm big'>{MARK}</p><p>{_HARMLESS if synthetic else _HARMFUL}</p>",
        "<dl class=facts>" + "".join(f"<div><dt>{k}</dt><dd>{v}</dd></div>" for k, v in facts.items()) + "</dl>",
        "<h2>What had to be reached</h2>",
        _table(("ratio of queries released", "measured", "at least", ""), [_claim_row(c) for c in data["claims"]]),
        "<h2>Coverage against d</h2>",
        _figure("coverage", data),
        "<p>Queries released, their share of all distinct queries, and their share of the search volume:</p>",
        _coverage_table(data),
        "<h2>Coverage against epsilon and delta</h2>",
        _figure("budget", data),
        "<h2>With counts</h2>",
        _figure("counts", data),
        "<h2>Keywords: release against log</h2>",
        f"<p>A release with selector {release['selector']}, d = {release['queries_per_user']} and "
        f"{release['clicks_per_user']} clicks per user, against the click graph of the whole log.</p>",
    ]
    if data["keywords"]:
        parts += [_figure("keywords", data), _keyword_table(data)]
    else:
        parts.append("<p>The log has no clicks to walk on.</p>")
    parts += [
        "<h2>Human fears: release against log</h2>",
        f"<p>Queries “fear of X” and “X phobia”. {fears['overlap']} of the top {fears['top']} agree; Kendall's tau of "
        f"the order is {tau(data)} over the fears that both have. The release names {fears['private']} fears, the log "
        f"{fears['raw']}; those that only the log has are not named here.</p>",
    ]
    if fears["ranking"]:
        parts += [_figure("fears", data), _fears_table(data)]
    parts += [
        "<h2>How this was made</h2>",
        f"<pre>{shown(command(data))}</pre>",
        f"<p class=soft>hushquery {shown(settings['version'])}, {shown(settings['date'])}, {settings['seconds']:,.0f} "
        f"seconds, mean of {settings['runs']} run{'s' if settings['runs'] > 1 else ''} per setting. "
        f"{'The noise came from the seed, so the numbers can be repeated.' if synthetic else ''}</p>",
        f"<p class='alarm big'>{MARK}</p></html>",
    ]
    return "\n".join(parts)


def _figure(name: str, data: Data) -> str:
    draw, caption = FIGURES[name]
    try:
        return f"<figure>{plot.svg(draw(data))}<figcaption>{shown(caption)}</figcaption></figure>"
    except Unavailable as error:
        return f"<p>(no picture: {shown(error.fix)})</p>"


def _claim_row(claim: Data) -> tuple[str, ...]:
    ratio = "-" if claim["ratio"] is None else f"{claim['ratio']:.2f}"
    style = "fails" if claim["holds"] is False else "holds"
    return shown(claim["what"]), ratio, f"{claim['at_least']:g}", f"<span class={style}>{verdict(claim)}</span>"


def _coverage_table(data: Data) -> str:
    ds = data["settings"]["queries_per_user"]
    rows = [
        (
            shown(name),
            *(
                f"{row[d]['queries']:,.0f}<small>{percent(row[d]['distinct_share'], 2)}</small>"
                f"<small>{percent(row[d]['volume_share'])}</small>"
                for d in ds
            ),
        )
        for name, row in pivot(main_grid(data)).items()
    ]
    return _table(("selector", *(f"d = {d}" for d in ds)), rows)


def _keyword_table(data: Data) -> str:
    heads = ("topic", "gamma", "in release", "in log", "both", "precision", "recall", "of released", "Jaccard")
    scores = [*data["keywords"]["together"], *data["keywords"]["topics"]]
    rows = [
        (
            isolated(score["topic"]),
            f"{score['gamma']:g}",
            *(f"{score[name]:,}" for name in ("private", "raw", "both")),
            *(percent(score[name]) for name in ("precision", "recall", "recall_released", "jaccard")),
        )
        for score in scores
    ]
    together = len(data["keywords"]["together"])
    return (
        _table(heads, rows[:together])
        + f"<details><summary>by topic</summary>{_table(heads, rows[together:])}</details>"
    )


def _fears_table(data: Data) -> str:
    rows = [
        (
            isolated(row["fear"]),
            f"{row['rank']}",
            f"{row['count']:,}",
            "-" if row["raw_rank"] is None else f"{row['raw_rank']}",
            f"{row['raw_count']:,}",
        )
        for row in data["fears"]["ranking"]
    ]
    heads = ("fear", "rank in release", "noisy count, capped", "rank in log", "users in log")
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{one}</th>" for one in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
