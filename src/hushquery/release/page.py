"""The page of a release: what came out, what it promises, and how it was made, in one file that loads nothing.

There is no network, no script but that of the search box (of releases of shares), and a policy that forbids everything
else. Queries are written by strangers: each is escaped, runs in its own direction, and no URL becomes a link.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hushquery.errors import UsageError
from hushquery.privacy.budget import UNUSUAL_DELTA, UNUSUAL_EPSILON, format_delta, format_epsilon
from hushquery.privacy.guarantee import Guarantee, factor
from hushquery.privacy.loss import Loss
from hushquery.privacy.rounding import exact
from hushquery.privacy.unit import Relation
from hushquery.release.card import false_pairs, limits, nothing_promised, populations, setting, two_promises, weakness
from hushquery.release.comparison import compared, comparison, disagreement
from hushquery.release.markup import Bar, bars, isolated, number, percent, shown, words_as_html
from hushquery.release.searchbox import script_policy, search_box
from hushquery.release.style import STYLE
from hushquery.release.tables import KINDS, REST, measure_of, release_measure

__all__ = ["in_numbers", "page", "promise", "steps", "summary"]

_TOP = 25
_CLICKED_QUERIES = 8
_PAGES_EACH = 5
_FIRST_ROWS = 10

# A share is ranked as if so many records had been counted.
_PER = 100_000


def page(
    tables: Mapping[str, pa.Table],
    guarantees: Sequence[Guarantee],
    manifest: Mapping[str, Any],
    *,
    budget: Mapping[str, Any] | None = None,
) -> str:
    """Write the page."""
    title = f"Search statistics of {populations(guarantees)}"
    what = "A release with a weak promise" if any(map(weakness, guarantees)) else "A private release"
    what = "Not a private release" if nothing_promised(guarantees) else what
    made = f"{what} · {shown(manifest['created'])} · hushquery {shown(manifest['hushquery'])}"
    level = float(manifest["interval_level"])
    body = [
        f'<header><p class="over">{made}</p><h1>Search statistics of {isolated(populations(guarantees))}</h1></header>',
        _alarm(guarantees),
        f'<p class="soft">{shown(two_promises(guarantees))}</p>' if len(guarantees) > 1 else "",
        *(promise(guarantee, named=len(guarantees) > 1) for guarantee in guarantees),
        f'<dl class="facts">{"".join(_fact(number(t.num_rows), name) for name, t in tables.items())}'
        f"{_rest(tables, manifest)}</dl>",
        _search(tables),
        _queries(tables, manifest, level),
        _clicks(tables, manifest),
        _reformulations(tables, manifest),
        _records(tables, manifest),
        *_section("What it can't tell", _plain_list(limits(tables, level, guarantees))),
        *_section("What is promised", *_each(guarantees, lambda g: words_as_html(replace(g, steps=()).in_words()))),
        *_section("What was done, and what it cost", *_each(guarantees, lambda g: steps(g, manifest))),
        *(_section("Budget left", _budget(budget)) if budget is not None else ()),
        *_section(
            "How it was made" if release_measure(tables) == "share" else "What the steward chose",
            _pairs({name: value for name, value in manifest["parameters"].items() if name != REST}),
        ),
        *(_section("Notes", _plain_list(manifest["notes"])) if manifest["notes"] else ()),
        *_section("How to check and to cite it", _check(guarantees, manifest)),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    if _has_search(tables):
        policy += f"; {script_policy()}; form-action 'none'; base-uri 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="referrer" content="no-referrer">\n<title>{shown(title)}</title>\n<style>{STYLE}</style></head>\n'
        f"<body>\n{chr(10).join(part for part in body if part)}\n</body></html>\n"
    )


def summary(tables: Mapping[str, pa.Table], guarantees: Sequence[Guarantee], manifest: Mapping[str, Any]) -> str:
    """Give a notebook the promise and the first rows of each table."""
    # A notebook has its own style sheet, and only its own.
    warning = (_alarm(guarantees) + "".join(map(_weak, guarantees))).replace(
        "<p ", '<p style="background:#a5211b;color:#fff;padding:.6em;font-weight:bold" '
    )
    parts = [warning, *(f"<p><b>{shown(g.summary())}</b></p>" for g in guarantees)]
    for name, table in tables.items():
        keys, head = KINDS[name].keys, "".join(f"<th>{column}</th>" for column in table.column_names)
        rows = "".join(
            "<tr>"
            + "".join(
                f"<td>{isolated(v) if k in keys else '' if v is None else f'{v:,.6g}'}</td>" for k, v in row.items()
            )
            + "</tr>"
            for row in table.slice(0, _FIRST_ROWS).to_pylist()
        )
        first = f"{name}: {table.num_rows:,}" + (f", the first {_FIRST_ROWS}" if table.num_rows > _FIRST_ROWS else "")
        meaning = shown(manifest["meanings"][name])
        parts.append(f"<table><caption>{first} ({meaning})</caption><tr>{head}</tr>{rows}</table>")
    return "\n".join(part for part in parts if part)


def _section(title: str, *parts: str) -> tuple[str, ...]:
    return (f"<section><h2>{shown(title)}</h2>", *parts, "</section>")


def _alarm(guarantees: Sequence[Guarantee]) -> str:
    warning = nothing_promised(guarantees)
    return f'<p class="alarm">{shown(warning)}</p>' if warning else ""


def _weak(guarantee: Guarantee) -> str:
    said = weakness(guarantee)
    return f'<p class="alarm">{shown(said)}</p>' if said else ""


def _fact(value: str, name: str, *, weak: bool = False) -> str:
    mark = ' class="weak"' if weak else ""
    return f"<div><dt>{shown(name)}</dt><dd{mark}>{shown(value)}</dd></div>"


def _each(guarantees: Sequence[Guarantee], part: Callable[[Guarantee], str]) -> list[str]:
    """Give a part per promise, under the name of its people where there are several."""
    if len(guarantees) == 1:
        return [part(guarantees[0])]
    return [f"<h3>For {isolated(guarantee.population)}</h3>{part(guarantee)}" for guarantee in guarantees]


def _rest(tables: Mapping[str, pa.Table], manifest: Mapping[str, Any]) -> str:
    shares = release_measure(tables) == "share"
    return _fact(percent(manifest["parameters"][REST]), "of all records are not listed") if shares else ""


def _has_search(tables: Mapping[str, pa.Table]) -> bool:
    return "queries" in tables and measure_of(tables["queries"]) == "share" and tables["queries"].num_rows > 0


def _search(tables: Mapping[str, pa.Table]) -> str:
    return "\n".join(_section("Search", search_box(tables, percent, _PER))) if _has_search(tables) else ""


def promise(guarantee: Guarantee, *, named: bool = False) -> str:
    """Give what one population is promised, as HTML: its numbers, and what they mean in a sentence."""
    who = guarantee.unit.name
    change = "not taken part" if guarantee.unit.relation is Relation.ADD_REMOVE else "had other data"
    but = " (but for delta)" if guarantee.delta else ""
    said = (
        "Nothing is promised: the noise is a test's."
        if guarantee.test_noise
        else f"Had any one {who} {change}, nothing that could have come out would have been more than "
        f"{factor(guarantee.epsilon)} times more or less likely{but}. Below, the same in words and in numbers."
    )
    model = "an operator holds their data" if guarantee.model == "curator" else "nobody is trusted with their data"
    name = f"<h2>For {isolated(guarantee.population)} <small>({model})</small></h2>" if named else ""
    return (
        f'<div class="promise">{name}{_weak(guarantee)}<dl class="facts">'
        + _fact(format_epsilon(guarantee.epsilon), "epsilon", weak=exact(guarantee.epsilon) > UNUSUAL_EPSILON)
        + _fact(format_delta(guarantee.delta), "delta", weak=exact(guarantee.delta) > UNUSUAL_DELTA)
        + _fact(f"one {who}", f"is protected ({guarantee.unit.relation.value})")
        + f"</dl><p>{shown(said)}</p></div>"
    )


def in_numbers(guarantee: Guarantee) -> str:
    """Give the promise as its two numbers, in print."""
    if guarantee.test_noise:
        return "nothing: test noise"
    return f"epsilon {format_epsilon(guarantee.epsilon)}, delta {format_delta(guarantee.delta)}"


def _meaning(name: str, manifest: Mapping[str, Any], what: str = "") -> str:
    what = what or f"A {manifest.get('measures', {}).get(name, 'count')}"
    return f"<p>{what} is: {shown(manifest['meanings'][name])}</p>"


def _queries(tables: Mapping[str, pa.Table], manifest: Mapping[str, Any], level: float) -> str:
    table = tables.get("queries")
    if table is None:
        return ""
    measure = measure_of(table)
    if measure is None:
        keys = table["query"].slice(0, 4 * _TOP).to_pylist()
        more = f", the first {len(keys)} in the order of their letters" if table.num_rows > len(keys) else ""
        listed = "".join(f"<li>{isolated(key)}</li>" for key in keys)
        body = f'<p class="soft">A list without counts{more}.</p><ul class="plain">{listed}</ul>'
        return "\n".join(_section("Queries", _meaning("queries", manifest, "A row"), body))
    rows = [Bar(isolated(r["query"]), r[measure], r["low"], r["high"]) for r in table.slice(0, _TOP).to_pylist()]
    which = f"The {len(rows)} queries with the highest {measure}s, of {number(table.num_rows)}. " if rows else ""
    caption = f"{which}The thin lines are {100 * level:g}% intervals."
    drawn = bars(rows, caption, _say(measure)) if rows else _nothing("queries")
    return "\n".join(_section("Queries", _meaning("queries", manifest), drawn))


def _say(measure: str) -> Callable[[float], str]:
    return percent if measure == "share" else number


def _clicks(tables: Mapping[str, pa.Table], manifest: Mapping[str, Any]) -> str:
    table = tables.get("clicks")
    if table is None:
        return ""
    measure = measure_of(table) or "count"
    groups: dict[str, list[Bar]] = {}
    for row in _of_top_queries(tables, table).to_pylist():
        if row["query"] not in groups and len(groups) == _CLICKED_QUERIES:
            continue
        group = groups.setdefault(row["query"], [])
        if len(group) < _PAGES_EACH:
            label = isolated(row["url"]) if row["url"] or measure == "count" else "<i>no click</i>"
            group.append(Bar(label, row[measure], row["low"], row["high"]))
    drawn = [f"<h3>{isolated(query)}</h3>{bars(group, say=_say(measure))}" for query, group in groups.items()]
    which = f"The pages most clicked on after {len(groups)} of the queries, of {number(table.num_rows)} pairs"
    told = f'<p class="soft">{which}. Each query has its own scale.</p>'
    return "\n".join(
        _section("Clicks", _meaning("clicks", manifest), *([told, *drawn] if drawn else [_nothing("clicks")]))
    )


def _of_top_queries(tables: Mapping[str, pa.Table], clicks: pa.Table) -> pa.Table:
    """Give the clicks of the top queries, or of any where these have none."""
    if "queries" in tables:
        top = tables["queries"]["query"].slice(0, _TOP).combine_chunks()
        theirs = clicks.filter(pc.is_in(clicks["query"], value_set=top))
        if theirs.num_rows:
            return theirs
    return clicks.slice(0, _TOP * _PAGES_EACH)


def _reformulations(tables: Mapping[str, pa.Table], manifest: Mapping[str, Any]) -> str:
    table = tables.get("reformulations")
    if table is None:
        return ""
    rows = [
        Bar(
            f'{isolated(row["query"])}<span class="to"> → </span>{isolated(row["next_query"])}',
            *(row[column] for column in ("count", "low", "high")),
        )
        for row in table.slice(0, _TOP).to_pylist()
    ]
    caption = f"The {len(rows)} with the highest counts, of {number(table.num_rows)}. {shown(false_pairs(manifest))}"
    drawn = bars(rows, caption.strip(), doubt=True) if rows else _nothing("reformulations")
    return "\n".join(_section("Reformulations", _meaning("reformulations", manifest), drawn))


def _records(tables: Mapping[str, pa.Table], manifest: Mapping[str, Any]) -> str:
    table = tables.get("records")
    if table is None:
        return ""
    rows = compared(tables)
    caption = f"The {len(rows)} most frequent records, of {number(table.num_rows)}. Lines reach two standard errors."
    parts = (
        [f"<p>{shown(disagreement(table))}</p>", comparison(rows, caption)]
        if rows
        else ['<p class="soft">The head list is empty.</p>']
    )
    return "\n".join(_section("Opt-in users against clients", _meaning("records", manifest, "A row"), *parts))


def _nothing(what: str) -> str:
    return f'<p class="soft">No {what} reached the threshold.</p>'


def _plain_list(lines: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{shown(line)}</li>" for line in lines) + "</ul>"


def steps(guarantee: Guarantee, manifest: Mapping[str, Any]) -> str:
    """Give the steps behind a guarantee as HTML: what was done, with which numbers, at which cost."""
    ran = [step for step in manifest["steps"] if step["population"] == guarantee.population]
    lines = []
    for step, told in zip(guarantee.steps, ran, strict=True):
        alone = format_epsilon(_alone(step.loss, guarantee.delta))
        numbers = " · ".join(f"{name.replace('_', ' ')} {setting(v)}" for name, v in told["parameters"].items())
        lines.append(
            f"<li><p><b>{shown(step.name)}</b>: {shown(step.detail)}</p>"
            f"<p>{shown(_cost(step.loss))}; alone it would be epsilon {alone} at the same delta.</p>"
            f'<p class="soft"><code>{shown(numbers)}</code></p></li>'
        )
    whole = (
        f"<p>All steps together cost epsilon {format_epsilon(guarantee.epsilon)} at delta "
        f"{format_delta(guarantee.delta)}. Costs add before they are stated as epsilon, so the whole may be "
        "less than the sum of its parts.</p>"
        if len(lines) > 1
        else ""
    )
    return f'<ol class="steps">{"".join(lines)}</ol>{whole}'


@lru_cache(maxsize=64)
def _alone(loss: Loss, delta: float) -> float:
    return loss.epsilon(delta)


def _cost(loss: Loss) -> str:
    """Say what a step costs in the form in which costs add."""
    parts = []
    squared = loss.mu_squared + sum(sparse.mu_squared for sparse in loss.sparse)
    if squared:
        parts.append(f"mu squared {format_epsilon(squared)} (Gaussian noise)")
    if loss.pure:
        parts.append(f"epsilon {format_epsilon(sum(loss.pure))}")
    failures = loss.threshold_delta + sum(exact(sparse.threshold_delta()) for sparse in loss.sparse)
    if failures:
        parts.append(f"delta {format_delta(failures)} for what a threshold may let through")
    return "It cost " + (" and ".join(parts) or "nothing")


def _budget(budget: Mapping[str, Any]) -> str:
    wanted = ("population", "epsilon", "delta", "remaining_epsilon")
    if set(budget) != set(wanted):
        raise UsageError("the budget to show is incomplete", fix=f"Give exactly: {', '.join(wanted)}")
    whole, left = (exact(budget[name], name) for name in ("epsilon", "remaining_epsilon"))
    share = max(0.0, min(1.0, float(1 - left / whole))) if whole > 0 else 1.0
    return (
        f"<p>The ledger of {isolated(str(budget['population']))} allows epsilon {float(whole):.3g} at delta "
        f"{format_delta(exact(budget['delta'], 'delta'))} in all. After this release epsilon {float(left):.3g} is left "
        "at that delta.</p>"
        f'<div class="gauge"><svg aria-hidden="true" height="10"><rect class="bar" width="{100 * share:.2f}%" '
        f'height="10"/></svg></div><p class="soft">{100 * share:.0f}% of epsilon is spent.</p>'
    )


def _pairs(values: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<dt>{shown(name.replace('_', ' '))}</dt><dd>{shown(setting(v))}</dd>" for name, v in values.items()
    )
    return f'<dl class="pairs">{rows}</dl>'


def _check(guarantees: Sequence[Guarantee], manifest: Mapping[str, Any]) -> str:
    promised = "; ".join(map(in_numbers, guarantees))
    what = "Release" if nothing_promised(guarantees) or any(map(weakness, guarantees)) else "Private release"
    cite = (
        f"Search statistics of “{populations(guarantees)}”. {what} of {manifest['created']} ({promised}), "
        f"made with hushquery {manifest['hushquery']}."
    )
    return (
        "<pre><code>hushquery verify FOLDER</code></pre><p>compares every file with the manifest and computes the "
        "promise anew from the numbers above. It finds accidents and inconsistencies, not forgers.</p>"
        f"<p>Cite it as: {shown(cite)}</p>"
    )
