"""The privacy page: what was collected, from whom, under which guarantee, what it cost, and what leaves a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hushquery.errors import UsageError
from hushquery.publish.site.layout import Shell, section
from hushquery.publish.site.ledger_chart import ledger_charts
from hushquery.release import Release
from hushquery.release.card import two_promises, weakness
from hushquery.release.markup import isolated, shown, words_as_html
from hushquery.release.page import in_numbers, promise, steps

__all__ = ["checked_task", "privacy_page"]

# What a person gives, by the kind of task.
_GIVES = {
    "searches": "what they search for and which result they choose",
    "setting": "the value of one setting",
}


def checked_task(privacy: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Give the task that clients of the latest release run, as a collector serves it, or None; refuse half of one."""
    task = privacy.get("task")
    if task is None:
        return None
    if not isinstance(task, Mapping) or not {"id", "task", "configuration"} <= set(task):
        raise UsageError(
            "the task of a site is incomplete", fix="Give it as a collector serves it: id, task, configuration"
        )
    return task if task["configuration"] is not None else None


def privacy_page(releases: Sequence[Release], shell: Shell, names: Sequence[str], privacy: Mapping[str, Any]) -> bytes:
    """Write the page.

    Args:
        releases: The releases, oldest first.
        shell: What all pages share.
        names: What each release is called.
        privacy: ``task`` and ``ledger``, as :func:`hushquery.publish.site.build_site` takes them.
    """
    last = releases[-1]
    several = len(last.guarantees) > 1
    task = checked_task(privacy)
    parts = [
        section(
            "collected",
            "What was collected, and from whom",
            _collected(last, task),
            f"<p>{shown(two_promises(last.guarantees))}</p>" if several else "",
        ),
        *(promise(guarantee, named=several) for guarantee in last.guarantees),
        _device(last, task),
        section(
            "words",
            "What that promises, in words",
            *(
                f"<details{' open' if not several else ''}><summary>For {isolated(g.population)}</summary>"
                f"{words_as_html(replace(g, steps=()).in_words())}</details>"
                for g in last.guarantees
            ),
        ),
        _ledger(privacy.get("ledger"), privacy.get("accounts")),
        _history(releases, names) if len(releases) > 1 else "",
        section(
            "steps",
            "What was done, step by step",
            *(
                f"<details><summary>With {isolated(g.population)}</summary>{steps(g, last.manifest)}</details>"
                for g in last.guarantees
            ),
        ),
        section(
            "check",
            "How to check it",
            '<p>The numbers above are computed from what each step ran with; <a href="manifest.json">the manifest</a> '
            "has them all, exactly. Whoever has the folder of the release can compute the promise anew:</p>"
            "<pre><code>hushquery verify FOLDER</code></pre>",
        ),
    ]
    lead = "What these pages know of people, what was promised to each group of them, and what has been spent of it."
    return shell.page("privacy.html", "What this costs in privacy", lead, parts, "privacy.mjs")


def _collected(last: Release, task: Mapping[str, Any] | None) -> str:
    kind = "searches" if task is None else str(task["task"]["task"]["kind"])
    gives = _GIVES.get(kind, "one value")
    records = last.manifest["parameters"].get("records_per_user")
    bound = f" Each person counts with at most {records} of them." if isinstance(records, int) and records > 1 else ""
    lines = []
    for guarantee in last.guarantees:
        if guarantee.model == "curator":
            but = "with a weak promise (below)" if weakness(guarantee) else "and nothing that few did"
            how = f"trust the operator with {gives}. Only noisy numbers of it are published, {but}."
        else:
            how = (
                f"trust nobody: {gives} stays on the device. What leaves it is an answer made by chance, true or not; "
                "the numbers below bound what anybody can conclude from it."
            )
        lines.append(f"<li><b>{isolated(guarantee.population)}</b> {shown(how)}</li>")
    return f"<ul>{''.join(lines)}</ul>" + (f"<p>{shown(bound.strip())}</p>" if bound else "")


def _device(last: Release, task: Mapping[str, Any] | None) -> str:
    """Give the place where a value is randomised before the reader's eyes."""
    if not any(guarantee.model == "local" for guarantee in last.guarantees):
        return section(
            "device",
            "What leaves your device",
            "<p>Nothing: this release was made from a log that the operator already held. No device was asked.</p>",
        )
    title = "What leaves your device"
    if task is None:
        return section("device", title, "<p>The randomiser of this release is not part of this site.</p>")
    searches = task["task"]["task"]["kind"] == "searches"
    pages = '<div><label for="try-page">Page you chose</label><select id="try-page"></select></div>' if searches else ""
    what = "A query" if searches else "A value"
    return section(
        "device",
        title,
        "<p>Try it: the program that runs on people’s devices runs here too. It makes one answer in each period, keeps "
        "it, and sends only that. Here it makes a hundred, each as a new device would, so that you can see the chance "
        "in them. They are thrown away; nothing is sent.</p>"
        '<p id="needs-script" class="soft">This part needs a script, which this browser has not started.</p>'
        '<form id="try" hidden><div class="fields">'
        f'<div><label for="try-text">{what}</label><input id="try-text" type="text" list="try-known" '
        'autocomplete="off" autocapitalize="off" spellcheck="false" maxlength="200"><datalist id="try-known">'
        "</datalist></div>"
        f'{pages}<div><button type="submit">Randomise 100 times</button></div></div></form>'
        '<p id="try-status" role="status"></p><div id="try-result" hidden><div id="try-chart"></div>'
        '<details><summary>One of these answers, as it would be sent</summary><pre><code id="try-bytes"></code></pre>'
        '<p class="soft">The last part, the payload, is the randomised answer; everything else is the same for '
        "everybody, or drawn anew for each report.</p></details></div>",
    )


def _ledger(rows: Any, accounts: Any) -> str:
    if not rows:
        return ""
    for given in (rows, accounts or ()):
        if not isinstance(given, Sequence) or not all(isinstance(row, Mapping) for row in given):
            raise UsageError("the ledger of a site is a list of rows", fix="Give what Ledger.over_time() gives")
    told = (
        "Every release is paid for from a budget before any data is read, and refused when too little is left. Each "
        "group has its own."
    )
    return section("ledger", "The ledger over time", f"<p>{shown(told)}</p>", ledger_charts(rows, accounts or ()))


def _history(releases: Sequence[Release], names: Sequence[str]) -> str:
    """List what each release promised to each group."""
    people = list(dict.fromkeys(g.population for release in releases for g in release.guarantees))
    heads = "".join(f'<th scope="col">{isolated(who)}</th>' for who in people)
    lines = []
    for release, name in zip(releases, names, strict=True):
        promised = {g.population: g for g in release.guarantees}
        cells = "".join(f"<td>{shown(in_numbers(promised[who])) if who in promised else ''}</td>" for who in people)
        lines.append(f'<tr><th scope="row">{shown(name)}</th><td>{shown(release.manifest["created"])}</td>{cells}</tr>')
    return section(
        "releases",
        "What each release promised",
        '<div class="scroll"><table class="spends"><thead><tr><th scope="col">Release</th>'
        f'<th scope="col">Published</th>{heads}</tr></thead><tbody>{"".join(reversed(lines))}</tbody></table></div>'
        '<p class="soft">Whoever is in several releases has lost at most the sum of theirs. Different groups are never '
        "added up.</p>",
    )
