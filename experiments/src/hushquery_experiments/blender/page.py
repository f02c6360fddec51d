"""The evaluation of BLENDER as text and as a page, from the plain data that ``results.json`` holds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hushquery_experiments.blender import charts
from hushquery_experiments.blender.paper import VERDICTS, where
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

__all__ = ["FIGURES", "as_text", "command", "page", "point_text"]

_HARMLESS = (
    "The populations here are invented: nobody is in them, so sharing this page does no harm. The same page about a "
    "real log must stay with its steward: every number on it is computed against the true records, without noise."
)
_HARMFUL = (
    "Every number below is computed against the true records of the log, without any noise. Keep this for the choice "
    "of parameters, and delete it. No budget was spent, because nothing was released."
)
_NAMES = {"aol": "AOL", "yandex": "Yandex", "ldpminer": "LDPMiner", "pem": "PEM"}
# Characters of a table's row that fit a terminal.
_WIDE = 150
_UNFILLED = "Where a line is missing, some run's head list was shorter than M, as in the paper."
_COLUMNS_OF_9 = {
    "blended": "blend",
    "optin": "opt-in, summed",
    "direct": "clients, direct",
    "client": "clients, summed",
}


def _drawn(name: str, x: str, *measures: str) -> Any:
    return lambda data: charts.sweep(data["figures"][name], x, measures)


#: The figures of the page: a name, how to draw it from the data, and its caption.
FIGURES: Figures = {
    "figure-9": (
        lambda data: charts.top_queries(data["figures"]["9"]),
        "Grey: true shares. An estimate out of order, above that of a more frequent query, has a red ring. Sums are "
        "lower than the truth where a query has URLs that are not on the list.",
    ),
    "figure-11": (
        lambda data: charts.budget_split(data["figures"]["11"]),
        "With the variance as printed the blend is what opt-in users say alone from f_C = 0.5 on (the lines cover "
        "each other), as in the paper's own figure for NDCG. `best` has no such split.",
    ),
    "figure-12": (
        lambda data: charts.against_local(data["figures"]["12"]),
        "The first ten queries of BLENDER's list beside those that all users together find under local privacy.",
    ),
    "figure-13": (_drawn("13", "optin", "l1"), f"L1 of the list against the share of users who opt in. {_UNFILLED}"),
    "figure-14": (_drawn("14", "optin", "ndcg"), f"NDCG of the list of lists. {_UNFILLED}"),
    "figure-15": (_drawn("15", "epsilon", "l1"), f"L1 against epsilon. {_UNFILLED}"),
    "figure-16": (_drawn("16", "epsilon", "ndcg"), f"NDCG against epsilon. {_UNFILLED}"),
    "figure-fo": (
        _drawn("fo", "f_o", "passed", "l1", "ndcg"),
        "`best` lets every opt-in user do both, find the list and measure it, so it is a level line.",
    ),
    "figure-mc": (
        _drawn("mc", "m_c", "l1", "ndcg"),
        "Each of m records gets epsilon/m. The records of a client are independent here, which favours many.",
    ),
    "figure-m": (
        _drawn("m", "head_size", "hit_rate", "l1", "ndcg"),
        f"A longer list answers more searches, each a little less exactly. {_UNFILLED}",
    ),
    "ablation": (
        lambda data: charts.ablation(data["figures"]["ablation"]),
        "L1 of the paper's algorithm with one thing changed (orange), and of `best` with one thing left out (blue). "
        "A dot is missing where some run's list was shorter than M.",
    ),
}


def command(data: Data) -> str:
    """Return the command that measures the same again."""
    settings = data["settings"]
    figures = "all" if len(settings["figures"]) > 11 else " --figure ".join(settings["figures"])
    line = f"hushquery experiment blender --figure {figures}"
    if len(settings["profiles"]) == 1:
        line += f" --profile {settings['profiles'][0]}"
    if not settings["law"]:
        profile = settings["populations"][0].removeprefix("synthetic ")
        line += f" --synth {profile} --users {settings['users'][0]}" if settings["log"] == "synthetic" else " --log LOG"
    return f"{line} --runs {settings['runs']} --seed {settings['seed']}"


def as_text(data: Data) -> str:
    """Return the page's tables for a terminal."""
    given = data["settings"]["log"] == "given"
    lines = [MARK + ("" if given else " (an invented one: nobody is in it)")]
    for part in page(data).parts:
        match part:
            case Heading(text):
                lines += ["", text.upper()]
            case Facts(numbers):
                lines += [f"{name}: {value}" for name, value in numbers.items()]
            case Table():
                lines += ["", *_plain(part)]
            case Details(summary, table):
                lines += ["", summary, *_plain(table)]
    return "\n".join(lines)


def point_text(data: Mapping[str, Any]) -> str:
    """Return one point for a terminal."""
    setting = data["setting"]
    return "\n".join(
        [
            MARK,
            f"{setting['population']}, {setting['users']:,} users, {setting['optin']:.3g} opt in, "
            f"epsilon {setting['epsilon']:g}, delta {setting['delta']:g}, {setting['mode']}, {setting['runs']} runs",
            *(
                f"{name:18}{data[name]:>10.5g} ± {data[f'{name}_stderr']:.2g}"
                for name in ("ndcg", "ndcg_rank_based", "l1", "hit_rate", "head_list_size")
            ),
            f"lists of the size asked for: {data['complete']} of {setting['runs']}",
        ]
    )


def page(data: Data) -> Page:
    """Describe the page."""
    settings = data["settings"]
    parts: list[Part] = []
    for show in (_beginning, _tables_8_and_10, _top, _split, _local, _by_optin, _by_epsilon, _others, _ablation):
        parts += show(data)
    return Page(
        "What do a few who opt in add to what everyone else tells privately?",
        _HARMFUL if settings["log"] == "given" else _HARMLESS,
        parts,
        command(data),
        data,
        f"Means of {settings['runs']} populations per setting, twice as many in figure 12; ± is one standard error. "
        "Counts of reports were drawn from their exact joint law; `--point --through randomizers` sends every client "
        "through its randomizer instead. `paper` is the published algorithm with Theorem 5 corrected; a variance that "
        "is estimated below zero is taken as next to nothing. NDCG is over the true top of the whole population.",
        MARK,
    )


def _beginning(data: Data) -> Iterator[Part]:
    settings = data["settings"]
    yield Facts(
        {
            **{
                f"users, {name}": f"{users:,}"
                for name, users in zip(settings["populations"], settings["users"], strict=True)
            },
            "runs per setting": f"{settings['runs']}",
            "figures and tables": f"{len(settings['figures'])}",
        }
    )
    known = [claim for claim in data["claims"] if claim["holds"] is not None]
    if known:
        yield Heading("What had to be shown")
        yield Table(
            ("claim", "measured", ""), [(claim["what"], claim["measured"], verdict(claim["holds"])) for claim in known]
        )
    if data["paper"]:
        yield Heading("What the paper says, and what was measured here")
        verdicts = [one["verdict"] for one in data["paper"]]
        yield Text(
            "The paper's text, about the real logs; its plots and the cells of its tables were not at hand. Ours is on "
            "the populations named here. A verdict is about the paper's own algorithm (`paper`, Theorem 6's weights "
            "with Theorem 5 corrected), and is given where two standard errors decide it: "
            + ", ".join(f"{verdicts.count(word)} {word}" for word in VERDICTS.values())
            + ". `best` stands beside it."
        )
        rows = [
            (
                ", ".join([one["figure"], "both" if one["profile"] == "both" else _NAMES[one["profile"]]]),
                one["said"],
                one["paper"],
                one["best"],
                one["verdict"],
            )
            for one in data["paper"]
        ]
        yield Table(("figure", "the paper says", "`paper`, measured", "`best`, measured", "verdict"), rows)


def _tables_8_and_10(data: Data) -> Iterator[Part]:
    if "8" in data["figures"]:
        yield Heading("Figure 8: the populations")
        shares = ("first_query", "first_10_queries", "first_50_records", "first_500_records")
        rows = [
            (
                f"{row['population']}\nparameters of {_NAMES[row['profile']]}",
                f"{row['users']:,}",
                f"{row['queries']:,}",
                f"{row['paper_unique_queries']:,}",
                *(f"{row[name]:.1%}" for name in shares),
                "-" if row["own_record"] is None else f"{row['own_record']:.0%}",
            )
            for row in data["figures"]["8"]
        ]
        heads = ("", "users", "queries", "queries, paper", "query 1", "queries 1 to 10", "records 1 to 50", "1 to 500")
        yield Table((*heads, "own record"), rows)
        yield Text(
            "How many users hold the most frequent queries and records, and an own record that nobody else has. Of the "
            "paper's table only the numbers of unique queries could be recovered."
        )
    if "10" in data["figures"]:
        yield Heading("Figure 10: the parameters")
        rows = [
            (
                _NAMES[row["profile"]],
                f"{row['epsilon']:g}",
                f"{row['delta']:.0e}",
                f"{row['optin']:.1%}",
                *(f"{row[name]:g}" for name in ("m_o", "m_c", "f_o", "f_c", "head_size")),
            )
            for row in data["figures"]["10"]
        ]
        yield Table(("", "epsilon", "delta", "opt-in", "m_O", "m_C", "f_O", "f_C", "M"), rows)


def _top(data: Data) -> Iterator[Part]:
    if "9" not in data["figures"]:
        return
    yield Heading("Figure 9: the ten most frequent queries")
    yield figure(FIGURES, "figure-9", data)
    for profile in data["settings"]["profiles"]:
        for mode in ("paper", "best"):
            rows = where(data["figures"]["9"], profile=profile, mode=mode)
            columns = [name for name in _COLUMNS_OF_9 if rows[0][f"{name}_regressions"] is not None]
            body = [(row["query"], f"{row['true']:.5f}", *(_estimate(row, name) for name in columns)) for row in rows]
            body.append(
                ("regressions, mean of all runs", "", *(f"{rows[0][f'{name}_regressions']:.1f}" for name in columns))
            )
            heads = ("query", "true", *(_COLUMNS_OF_9[name] for name in columns))
            summary = f"{_NAMES[profile]}, {mode}: the estimates of the first run; ▲ marks one that is out of order"
            yield Details(summary, Table(heads, body))


def _estimate(row: Mapping[str, Any], name: str) -> str:
    if row[name] is None:
        return "not listed"
    return f"{'▲ ' if row[f'{name}_regressed'] else ''}{row[name]:.5f}"


def _split(data: Data) -> Iterator[Part]:
    if "11" not in data["figures"]:
        return
    yield Heading("Figure 11: how a client divides epsilon between query and URL")
    yield figure(FIGURES, "figure-11", data)
    rows = [
        (
            f"{_NAMES[row['profile']]}, {row['mode']}",
            "-" if row["mode"] == "best" else f"{row['f_c']:g}",
            *(_value(row, name) for name in ("l1", "optin_l1", "client_l1", "ndcg", "optin_ndcg", "client_ndcg")),
        )
        for row in data["figures"]["11"]
    ]
    heads = ("", "f_C", "L1, blend", "opt-in", "clients", "NDCG, blend", "opt-in", "clients")
    yield Details("All numbers", Table(heads, rows))


def _local(data: Data) -> Iterator[Part]:
    if "12" not in data["figures"]:
        return
    yield Heading("Figure 12: against LDPMiner and PEM")
    yield Text(
        "LDPMiner and PEM get all users and know no opt-in group. They look for queries only, an easier task, so "
        "BLENDER is judged by the first ten queries of its list too, by two rules: the paper's, by true shares, and "
        "one by ranks after Qin et al., who report about 0.30 at best on AOL. LDPMiner is told the 20,000 most "
        "frequent queries as its domain, which nobody would know. The column `list of lists` is the paper's own "
        "measure, of queries and URLs together; the paper compares a list of ten records."
    )
    yield figure(FIGURES, "figure-12", data)
    rows = []
    for row in data["figures"]["12"]:
        name = _NAMES.get(row["mode"], f"{row['mode']}, M = {row['head_size']}")
        size = "-" if row["head_list_size"] is None else f"{row['head_list_size']:.1f}"
        listed = "-" if row["ndcg_list"] is None else _value(row, "ndcg_list")
        scores = (_value(row, "ndcg"), _value(row, "ndcg_rank_based"))
        rows.append((f"{_NAMES[row['profile']]}, {name}", f"{row['epsilon']:g}", size, listed, *scores))
    heads = ("", "epsilon", "records listed", "list of lists", "ten queries, by shares", "by ranks")
    yield from _close_calls(data["figures"]["12"])
    yield Details("All numbers", Table(heads, rows))


def _close_calls(rows: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    """Describe where a finder of the local model is ahead of `best`, or not clearly behind it."""
    close = []
    for row in rows:
        if row["mode"] != "best" or row["head_size"] == 10:
            continue
        for other in where(rows, profile=row["profile"], epsilon=row["epsilon"], head_size=None):
            for measure, rule in (("ndcg", "shares"), ("ndcg_rank_based", "ranks")):
                margin = row[measure] - other[measure]
                spread = math.hypot(row[f"{measure}_stderr"], other[f"{measure}_stderr"])
                if margin <= 2 * spread:
                    close.append(
                        (
                            f"{_NAMES[row['profile']]}, epsilon {row['epsilon']:g}, by {rule}",
                            f"M = {row['head_size']}",
                            _value(row, measure),
                            f"{_NAMES[other['mode']]}: {_value(other, measure)}",
                            "ahead" if margin <= 0 else "a tie",
                        )
                    )
    if close:
        yield Text(
            "Not everywhere is `best` clearly ahead. These margins are within two standard errors, or on the other "
            "side. With many users and a large epsilon everybody finds the right ten; and the first queries of a short "
            "list lack some of their URLs, so their sums are out of order even without noise."
        )
        yield Table(("", "list", "`best`", "the other", "the other is"), close)


def _by_optin(data: Data) -> Iterator[Part]:
    yield from _swept(data, ("13", "14"), "Figures 13 and 14: how many users opt in", "optin", "opt-in", "{:.1%}")


def _by_epsilon(data: Data) -> Iterator[Part]:
    yield from _swept(data, ("15", "16"), "Figures 15 and 16: epsilon", "epsilon", "epsilon", "{:g}")


def _others(data: Data) -> Iterator[Part]:
    yield from _swept(data, ("fo",), "f_O: who finds the list, and who measures it", "f_o", "f_O", "{:g}")
    yield from _swept(data, ("mc",), "m_C: records per client", "m_c", "m_C", "{:g}")
    yield from _swept(data, ("m",), "M: how long the list is", "head_size", "M", "{:g}")


def _swept(data: Data, names: Sequence[str], title: str, x: str, head: str, show: str) -> Iterator[Part]:
    present = [name for name in names if name in data["figures"]]
    if not present:
        return
    yield Heading(title)
    for name in present:
        yield figure(FIGURES, f"figure-{name}", data)
    rows = [
        (
            f"{_NAMES[row['profile']]}, {row['mode']}",
            show.format(row[x]),
            f"{row['head_size']}",
            f"{row['complete']} of {row['runs']}",
            f"{row['passed']:.0f}",
            _value(row, "l1"),
            _value(row, "ndcg"),
            f"{row['hit_rate']:.1%}",
        )
        for row in data["figures"][present[0]]
    ]
    heads = ("", head, "M", "lists of that size", "passed", "L1", "NDCG", "hit rate")
    yield Details("All numbers", Table(heads, rows))


def _ablation(data: Data) -> Iterator[Part]:
    rows = data["figures"].get("ablation")
    if not rows:
        return
    yield Heading("Ablation: what each improvement brings")
    yield Text(
        "Above: the paper's algorithm with one thing changed. Below: `best` with one thing left out. L1, and under it "
        "NDCG. Where a list was shorter than M in some run, its mean size is given: its L1 sums fewer records."
    )
    yield figure(FIGURES, "ablation", data)
    keys = list(dict.fromkeys((row["profile"], row["place"]) for row in rows))
    heads = [""]
    for profile, place in keys:
        row = where(rows, profile=profile, place=place)[0]
        heads.append(f"{_NAMES[profile]}, {row['optin']:.1%}, epsilon {row['epsilon']:g}, M {row['head_size']}")
    body = []
    for way in dict.fromkeys(row["way"] for row in rows):
        cells = [where(rows, way=way, profile=profile, place=place)[0] for profile, place in keys]
        body.append((way, *map(_ablation_cell, cells)))
    yield Table(heads, body)


def _ablation_cell(row: Mapping[str, Any]) -> str:
    short = "" if row["complete"] == row["runs"] else f"\n{row['head_list_size']:.0f} records"
    return f"{row['l1']:.4f} ± {row['l1_stderr']:.4f}\n{row['ndcg']:.4f} ± {row['ndcg_stderr']:.4f}{short}"


def _value(row: Mapping[str, Any], name: str) -> str:
    return f"{row[name]:.4f} ± {row[f'{name}_stderr']:.4f}"


def _plain(table: Table) -> list[str]:
    """Align a table's columns for a terminal; the cells of one that is too wide stand below each other."""
    rows = [[cell.replace("\n", ", ").replace("`", "") for cell in row] for row in (table.heads, *table.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.heads))]
    if sum(widths) > _WIDE:
        return [line for row in rows[1:] for line in _stacked(rows[0], row)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _stacked(heads: Sequence[str], row: Sequence[str]) -> list[str]:
    return [
        row[0],
        *(f"    {f'{head}: ' if head else ''}{cell}" for head, cell in zip(heads[1:], row[1:], strict=True)),
    ]
