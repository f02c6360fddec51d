"""The trends page: what is frequent, what changed since the last release, and whether that is more than noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import quote

from hushquery.publish.site.layout import Shell, fact, published, section
from hushquery.publish.site.ranked import Ranked, Row, ranked_queries, ranked_records
from hushquery.release import Release
from hushquery.release.card import limits
from hushquery.release.comparison import compared, comparison, disagreement
from hushquery.release.markup import address, isolated, number, percent, plural, shown
from hushquery.release.tables import REST, release_measure

__all__ = ["trends_page"]

# All changes of a table together miss zero by chance in one of twenty releases.
_LEVEL = 0.95
_MOVERS = 5


def trends_page(releases: Sequence[Release], shell: Shell, names: Sequence[str], most: int) -> bytes:
    """Write the page.

    Args:
        releases: The releases, oldest first, all of counts or all of shares.
        shell: What all pages share.
        names: What each release is called.
        most: How many queries, and how many records, to show.
    """
    last = releases[-1]
    measure = release_measure(last.tables) or "count"
    queries, records = ranked_queries(releases, _LEVEL, most), ranked_records(releases, _LEVEL, most)
    said = published(names[-1], str(last.manifest["created"]))
    lead = f"{shown(said[0].upper() + said[1:])}."
    if len(names) > 1:
        lead += f" Changes are since {shown(names[-2])}."
    lead += (
        " It is a list without numbers."
        if release_measure(last.tables) is None
        else " Every number has noise in it that protects people; its interval says how much."
    )
    parts = [
        _facts(last, queries, measure),
        _movers(queries, measure) if queries.found else "",
        _filter(),
        _table("queries", "Queries", queries, measure, last),
        _table("records", "Queries with the page that was chosen", records, measure, last),
        _gone(queries, measure, names),
        _groups(last),
        section("limits", "What these numbers can't tell", _list([*_notes(queries), *_limits(last)])),
    ]
    return shell.page("index.html", f"Searches of {isolated(shell.whom)}", lead, parts, "trends.mjs")


def _facts(last: Release, queries: Ranked, measure: str) -> str:
    facts = [fact(number(queries.released), f"{plural(queries.released, 'queries')} listed")]
    if "clicks" in last.tables:
        # Where searches without a click are listed too, the report says records as well.
        clicks, what = last.tables["clicks"].num_rows, "records" if measure == "share" else "clicks"
        facts.append(fact(number(clicks), f"{plural(clicks, what)} listed"))
    if measure == "share":
        facts.append(fact(percent(last.manifest["parameters"][REST]), "of all records are not listed"))
    if queries.found:
        facts.append(fact(number(len(queries.moved)), f"{plural(len(queries.moved), 'queries')} surely changed"))
    return f'<dl class="facts">{"".join(facts)}</dl>'


def _movers(queries: Ranked, measure: str) -> str:
    """Name the surest changes, those upward and those downward."""
    if not queries.moved:
        told = "No query changed by more than its noise."
        return section("changed", "What changed", f"<p>{told}</p>")
    columns = []
    for title, kind, sign in (("More than before", "up", 1), ("Less than before", "down", -1)):
        moved = [row for row in queries.moved if row.change is not None and sign * row.change.change > 0]
        lines = "".join(
            f'<li><span class="label">{_link(row.key[0])}</span> <span class="value {kind}">'
            f"{_from_to(row, _say(measure))}</span></li>"
            for row in moved[:_MOVERS]
        )
        columns.append(
            f"<div><h3>{title}</h3>" + (f"<ol>{lines}</ol>" if lines else '<p class="soft">None.</p>') + "</div>"
        )
    return section("changed", "What changed", f'<div class="movers">{"".join(columns)}</div>')


def _from_to(row: Row, say: Callable[[float], str]) -> str:
    old, new = row.series[-2:]
    return f'{say(old or 0)} <span aria-hidden="true">→</span><span class="unseen">to</span> <b>{say(new or 0)}</b>'


def _filter() -> str:
    return (
        '<form id="filter" role="search" hidden><label for="filter-text">Search within these tables</label>'
        '<input id="filter-text" type="search" autocomplete="off" spellcheck="false" maxlength="200">'
        '<p id="filter-status" role="status"></p></form>'
    )


def _table(name: str, title: str, ranked: Ranked, measure: str, last: Release) -> str:
    if name == "records" and not ranked.rows:
        return ""
    if not ranked.rows:
        return section(name, title, '<p class="soft">Nothing was frequent enough to be listed.</p>')
    rows = ranked.rows
    numbered, several = rows[0].value is not None, len(rows[0].series) > 1
    top = max((row.high or 0.0 for row in rows), default=1.0) or 1.0
    level = 100 * float(last.manifest["interval_level"])
    heads = ['<th scope="col" data-sort="number">#</th>', '<th scope="col" data-sort="text">Query</th>']
    if numbered:
        what = {"share": "Share", "count": "Count"}[measure]
        heads.append(f'<th scope="col" class="much" data-sort="number" aria-sort="descending">{what}</th>')
        heads.append('<th scope="col" class="drawn"><span class="unseen">Bar with interval</span></th>')
    if several:
        heads.append('<th scope="col" class="much" data-sort="number">Change</th>')
        heads.append('<th scope="col" class="line">Over time</th>')
    lines = "".join(
        f"<tr>{_cells(rank, row, measure, top, numbered=numbered, several=several)}</tr>"
        for rank, row in enumerate(rows, 1)
    )
    cut = (
        f" These are the first {len(rows):,} of {ranked.released:,}; the search knows more."
        if len(rows) < ranked.released
        else ""
    )
    meaning = last.manifest["meanings"]["queries" if name == "queries" else "clicks"]
    told = f"A {measure} is: {meaning}. " if numbered else f"A row is: {meaning}. "
    told += f"The small numbers are {level:g}% intervals.{cut}" if numbered else cut
    told += " Changes are in points of per cent." if several and measure == "share" else ""
    return section(
        name,
        title,
        f'<p class="soft" id="{name}-about">{shown(told)}</p>',
        f'<div class="scroll"><table class="ranked" aria-labelledby="{name}" aria-describedby="{name}-about">'
        f"<thead><tr>{''.join(heads)}</tr></thead><tbody>{lines}</tbody></table></div>",
    )


def _cells(rank: int, row: Row, measure: str, top: float, *, numbered: bool, several: bool) -> str:
    say = _say(measure)
    page = f' <small class="page">{_address(row.key[1])}</small>' if len(row.key) > 1 else ""
    cells = [f'<td class="rank" data-value="{rank}">{rank}</td>', f'<th scope="row">{_link(row.key[0])}{page}</th>']
    if numbered:
        value, low, high = row.value or 0.0, row.low or 0.0, row.high or 0.0
        between = f"{say(low).removesuffix('%')} to {say(high)}"
        cells.append(f'<td class="much" data-value="{value!r}">{say(value)} <small>{between}</small></td>')
        cells.append(f'<td class="drawn" aria-hidden="true">{_bar(value, low, high, top)}</td>')
    if several:
        cells.append(_change(row, measure))
        cells.append(f'<td class="line" aria-hidden="true">{_line(row.series)}</td>')
    return "".join(cells)


def _link(query: str) -> str:
    """Let a query lead to the search; behind the # it stays in the browser."""
    return f'<a href="search.html#q={quote(query.encode("utf-8", "replace"), safe="")}">{isolated(query)}</a>'


def _address(url: str) -> str:
    """Show a URL as browsers do, without the scheme that nearly all have."""
    return address(url.removeprefix("https://").removesuffix("/")) if url else "<i>no click</i>"


def _bar(value: float, low: float, high: float, top: float) -> str:
    def place(at: float) -> str:
        return f"{100 * max(0.0, min(1.0, at / top)):.4g}"

    ends = f"M{place(low)} 8H{place(high)}M{place(low)} 5v6M{place(high)} 5v6"
    return (
        '<svg viewBox="0 0 100 16" preserveAspectRatio="none">'
        f'<rect class="bar" y="3" width="{place(value)}" height="10"/><path class="range" d="{ends}"/></svg>'
    )


def _change(row: Row, measure: str) -> str:
    if row.change is None:
        new = row.series[-2] is None
        known = f" <small>at most {number(row.most_before)} before</small>" if row.most_before is not None else ""
        return f'<td class="much" data-value="">{f"<b>new</b>{known}" if new else ""}</td>'
    change = row.change
    said, low, high = (_points(value, measure) for value in (change.change, change.low, change.high))
    up = change.change > 0
    if not row.sure:
        why = "other pages listed" if row.relisted else "maybe noise"
        return (
            f'<td class="much soft" data-value="{change.change!r}">{said} <small>{why}'
            f'<span class="unseen">, {low} to {high}</span></small></td>'
        )
    mark = f'<span aria-hidden="true">{"▲" if up else "▼"}</span>'
    return (
        f'<td class="much {"up" if up else "down"}" data-value="{change.change!r}">{mark} <b>{said}</b> '
        f"<small>{low} to {high}</small></td>"
    )


def _points(value: float, measure: str) -> str:
    """Print a change with its sign; that of a share in points, with two digits where they say something."""
    if measure == "count":
        said = number(value)
    else:
        said = f"{100 * value:.2f}".replace("-", "−") if abs(value) >= 5e-5 else percent(value).removesuffix("%")
    return said if said.startswith("−") or value <= 0 else f"+{said}"


def _line(series: Sequence[float | None]) -> str:
    """Draw the numbers of all releases as a small line; it breaks where a release does not know the row."""
    top = max(0.0, *(value or 0.0 for value in series)) or 1.0
    step = 64 / max(1, len(series) - 1)
    drawn, joined = "", False
    for place, value in enumerate(series):
        if value is not None:
            drawn += f"{'L' if joined else 'M'}{4 + place * step:.3g} {20 - 16 * max(0.0, value) / top:.3g}"
        joined = value is not None
    last = 20 - 16 * max(0.0, series[-1] or 0.0) / top
    return f'<svg viewBox="0 0 72 24"><path d="{drawn}"/><circle cx="68" cy="{last:.3g}" r="2.5"/></svg>'


def _gone(queries: Ranked, measure: str, names: Sequence[str]) -> str:
    if queries.found is None or not queries.found.gone:
        return ""
    say = _say(measure)
    rows = "".join(
        f"<li>{isolated(row.query)} <small>{say((row.shares or row.counts)[0] or 0)} before</small></li>"
        for row in queries.found.gone[:20]
    )
    most = queries.found.most_missing[-1]
    why = "It is below the threshold now" if measure == "count" else "It is not on the list now"
    many = len(queries.found.gone)
    told = f"{many:,} of {names[-2]} {'is' if many == 1 else 'are'} not listed any more. {why}, which is not zero"
    told += (
        "." if most is None else f": at most {number(most)}, or it would have been missing by a chance of 5% or less."
    )
    return section("gone", "No longer listed", f'<p class="soft">{shown(told)}</p><ul class="plain">{rows}</ul>')


def _groups(last: Release) -> str:
    """Show what those who opted in and the others say, each for themselves."""
    if "records" not in last.tables or not last.tables["records"].num_rows:
        return ""
    rows = compared(last.tables, 10)
    caption = f"The {len(rows)} most frequent records. Lines reach two standard errors."
    return section(
        "groups",
        "Do the two groups search alike?",
        f"<p>{shown(disagreement(last.tables['records']))}</p>",
        comparison(rows, caption),
    )


def _notes(queries: Ranked) -> list[str]:
    found = queries.found
    if found is None or not found.compared:
        return []
    sure = (
        f"A change is called sure where its interval leaves out zero at a level at which all {found.compared:,} "
        f"comparisons together hold in {100 * _LEVEL:g} of 100 cases."
    )
    relisted = [
        "Of some queries other pages are listed than before. Their shares are sums over different pages, so that the "
        "difference may not be a change in what people search for."
    ]
    differ = [note for note in found.notes if "made with different" in note]
    return [sure, *(relisted if any(row.relisted for row in queries.rows) else []), *differ]


def _limits(last: Release) -> list[str]:
    return limits(last.tables, float(last.manifest["interval_level"]), last.guarantees)


def _list(lines: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{shown(line)}</li>" for line in lines) + "</ul>"


def _say(measure: str) -> Callable[[float], str]:
    return percent if measure == "share" else number
