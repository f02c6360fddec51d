"""The experiment of Korolova et al. 2009 as text and as a page, from the plain data that ``results.json`` holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hushquery.curator.selectors.korolova2009 import calibrate_korolova
from hushquery_experiments.korolova2009 import charts
from hushquery_experiments.korolova2009.study import DELTA, EPSILON, QUERIES_PER_USER
from hushquery_experiments.page import (
    Data,
    Details,
    Facts,
    Figures,
    Heading,
    Page,
    Part,
    Table,
    Text,
    figure,
    verdict,
)
from hushquery_experiments.unpublishable import MARK

__all__ = ["FIGURES", "as_text", "command", "main_grid", "page", "percent", "pivot"]

_HARMLESS = (
    "This log is synthetic: nobody is in it, so sharing this page does no harm. The same page about a real log must "
    "stay with its steward: every number on it is a question to the log answered without noise."
)
_HARMFUL = (
    "Every number below is the answer to a question about the log without any noise. Keep this for the choice of d, "
    "epsilon and delta, and delete it. No budget was spent, because nothing was released."
)


def main_grid(data: Data) -> list[Data]:
    """Return the points of the paper's epsilon and delta, selection only: the curves against d."""
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
    """Return the command that measures the same again."""
    settings = data["settings"]
    source = f"--users {settings['users']} --seed {settings['seed']}" if settings["users"] else "--log LOG"
    d = ",".join(str(value) for value in settings["queries_per_user"])
    return f"hushquery experiment korolova2009 {source} --runs {settings['runs']} --d {d}"


def percent(share: float | None, digits: int = 1) -> str:
    """Print a share.

    >>> percent(0.2512), percent(0.00184, 2), percent(None)
    ('25.1%', '0.18%', '-')
    """
    return "-" if share is None else f"{100 * share:.{digits}f}%"


def _tau(data: Data) -> str:
    """Print Kendall's tau of the fears."""
    value = data["fears"]["kendall_tau"]
    return "-" if value is None else f"{value:.3f}"


def as_text(data: Data) -> str:
    """Return the tables for a terminal."""
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
        f"fears: {fears['overlap']} of the top {fears['top']} agree, Kendall tau {_tau(data)} over the fears in both "
        f"({fears['private']} released of {fears['raw']})",
        "",
    ]
    for claim in data["claims"]:
        ratio = "-" if claim["ratio"] is None else f"{claim['ratio']:.2f}"
        lines.append(f"{verdict(claim['holds']):13}{claim['what']}: {ratio} times (at least {claim['at_least']:g})")
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
FIGURES: Figures = {
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


def page(data: Data) -> Page:
    """Describe the page."""
    settings = data["settings"]
    synthetic = settings["log"] == "synthetic"
    note = f"Mean of {settings['runs']} run{'s' if settings['runs'] > 1 else ''} per setting."
    if synthetic:
        note += " The noise came from the seed, so the numbers can be repeated."
    return Page(
        "How much of a search log can be published privately?",
        _HARMLESS if synthetic else _HARMFUL,
        [*_setting(data), *_coverage(data), *_keywords(data), *_fears(data)],
        command(data),
        data,
        note,
        MARK,
    )


def _setting(data: Data) -> list[Part]:
    """Put the paper's setting beside ours; K and b are computed from the theorem."""
    log, settings = data["log"], data["settings"]
    ds, gaussian = settings["queries_per_user"], pivot(main_grid(data))["gaussian"]
    theorems = [calibrate_korolova(d, EPSILON, DELTA) for d in ds]
    ours = (
        f"synthetic, profile `{settings['profile']}`, seed {settings['seed']}"
        if settings["log"] == "synthetic"
        else "the log that was given"
    )
    return [
        Facts(
            {
                "users": f"{log['users']:,}",
                "searches": f"{log['searches']:,}",
                "distinct queries": f"{log['distinct_queries']:,}",
                "of them searched once": percent(log["searched_once_share"], 0),
            }
        ),
        Heading("The setting"),
        Text("Korolova, Kenthapadi, Mishra and Ntoulas 2009, measured again."),
        Table(
            ("", "the paper", "here"),
            [
                ("log", "the log of a search engine, which nobody else can have", ours),
                ("budget", "e^epsilon = 10, delta = 1e-5", "the same"),
                ("d", ", ".join(map(str, QUERIES_PER_USER)), ", ".join(map(str, ds))),
                ("algorithm", "Algorithm 1", "Algorithm 1 (`korolova2009`) and five other selectors"),
                ("noise", "continuous", "discrete, exact to the last bit"),
                ("runs", "-", f"mean of {settings['runs']}"),
            ],
        ),
        Text(
            "The thresholds, which are known before any row is read: K and b of the paper's Theorem 1 as its slides "
            "have them, and the threshold of `gaussian` at the same budget."
        ),
        Table(
            ("d", *map(str, ds)),
            [
                ("K, in searches", *(f"{float(theorem.threshold):.2f}" for theorem in theorems)),
                ("b", *(f"{float(theorem.scale):.2f}" for theorem in theorems)),
                ("`gaussian`, in users", *(f"{gaussian[d]['threshold']:g}" for d in ds)),
            ],
        ),
        Heading("What had to be reached"),
        Table(
            ("ratio of queries released", "measured", "at least", ""),
            [
                (
                    claim["what"],
                    "-" if claim["ratio"] is None else f"{claim['ratio']:.2f}",
                    f"{claim['at_least']:g}",
                    verdict(claim["holds"]),
                )
                for claim in data["claims"]
            ],
        ),
    ]


def _coverage(data: Data) -> list[Part]:
    grid, ds = pivot(main_grid(data)), data["settings"]["queries_per_user"]
    parts: list[Part] = [Heading("Coverage against d"), figure(FIGURES, "coverage", data)]
    shown: dict[str, Callable[[Data], str]] = {
        "Queries released:": lambda p: f"{p['queries']:,.0f}",
        "Their share of all distinct queries:": lambda p: percent(p["distinct_share"], 2),
        "Their share of the search volume:": lambda p: percent(p["volume_share"]),
    }
    for title, show in shown.items():
        rows = [(f"`{name}`", *(show(row[d]) for d in ds)) for name, row in grid.items()]
        parts += [Text(title), Table(("selector", *(f"d = {d}" for d in ds)), rows)]
    others = [
        (
            f"`{p['selector']}`",
            f"{p['epsilon']:.4g}",
            f"{p['delta']:.0e}",
            "with counts" if p["with_counts"] else "list only",
            f"{p['queries']:,.0f}",
            percent(p["volume_share"]),
        )
        for p in data["coverage"]
        if p not in main_grid(data)
    ]
    heads = ("selector", "epsilon", "delta", "what is made", "queries released", "search volume")
    return [
        *parts,
        Heading("Coverage against epsilon and delta, and with counts"),
        figure(FIGURES, "budget", data),
        figure(FIGURES, "counts", data),
        Table(heads, others),
    ]


def _keywords(data: Data) -> list[Part]:
    release, found = data["settings"]["release"], data["keywords"]
    parts: list[Part] = [Heading("Keywords: release against log")]
    if not found:
        return [*parts, Text("The log has no clicks to walk on.")]
    heads = ("gamma", "in release", "in log", "of them released", "both", "precision", "recall", "recall of released")

    def numbers(score: Data) -> tuple[str, ...]:
        return (
            f"{score['gamma']:g}",
            *(f"{score[name]:,}" for name in ("private", "raw", "raw_released", "both")),
            *(percent(score[name]) for name in ("precision", "recall", "recall_released", "jaccard")),
        )

    return [
        *parts,
        Text(
            f"A release with `{release['selector']}`, d = {release['queries_per_user']} and "
            f"{release['clicks_per_user']} clicks per user at the same budget, against the click graph of the whole "
            "log. A topic is given by its sites; a keyword is a query from which a random walk with alpha = "
            f"{found['alpha']} ends at them with probability gamma or more."
        ),
        figure(FIGURES, "keywords", data),
        Table((*heads, "Jaccard"), [numbers(score) for score in found["together"]]),
        Details(
            "by topic",
            Table(("topic", *heads, "Jaccard"), [(score["topic"], *numbers(score)) for score in found["topics"]]),
        ),
    ]


def _fears(data: Data) -> list[Part]:
    found = data["fears"]
    parts: list[Part] = [
        Heading("Human fears: release against log"),
        Text(
            f"Queries `fear of X` and `X phobia`, ranked by count. {found['overlap']} of the top {found['top']} agree; "
            f"Kendall's tau of the order is {_tau(data)} over the fears that both have. The release names "
            f"{found['private']} fears, the log {found['raw']}; those that only the log has are not named here."
        ),
    ]
    if not found["ranking"]:
        return parts
    rows = [
        (row["fear"], f"{row['rank']}", f"{row['count']:,}", f"{row['raw_rank'] or '-'}", f"{row['raw_count']:,}")
        for row in found["ranking"]
    ]
    heads = ("fear", "rank in release", "noisy count, capped", "rank in log", "users in log")
    return [*parts, figure(FIGURES, "fears", data), Table(heads, rows)]
