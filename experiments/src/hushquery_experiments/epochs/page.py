"""The experiment on repeated epochs as text and as a page, from the plain data that ``results.json`` holds."""

from __future__ import annotations

from hushquery_experiments.epochs import charts
from hushquery_experiments.page import (
    INVENTED,
    Data,
    Details,
    Facts,
    Figures,
    Heading,
    Page,
    Part,
    Table,
    Text,
    claim_lines,
    claim_table,
    figure,
)

__all__ = ["FIGURES", "as_text", "command", "page"]

_TOTALS = ("epsilon: typical / worst", "people", "as opt-in users", "delta", "as clients", "one person's sum")


def command(data: Data) -> str:
    """Return the command that measures the same again."""
    settings = data["settings"]
    return (
        f"hushquery experiment epochs --users {settings['users']} --epochs {settings['epochs']} "
        f"--moving {settings['moving']:g} --changing {settings['changing']:g} --runs {settings['runs']} "
        f"--seed {settings['seed']}"
    )


def as_text(data: Data) -> str:
    """Return the tables for a terminal."""
    settings = data["settings"]
    lines = [
        f"{settings['users']:,} invented people in {settings['epochs']} epochs, noise from seed {settings['seed']}: "
        "may be published",
    ]
    for run in data["runs"]:
        lines += [
            "",
            f"{_kept(run)}: total epsilon after {len(run['epochs'])} epochs (typical is the median)",
            f"  {'':32}{'people':>9}{'opt-in':>9}{'worst':>7}{'client':>9}{'worst':>7}{'person':>9}{'worst':>7}",
        ]
        for t in run["totals"]:
            numbers = zip(
                (9, 7, 9, 7, 9, 7),
                ("optin_typical", "optin_worst", "client_typical", "client_worst", "person_typical", "person_worst"),
                strict=True,
            )
            lines.append(
                f"  {t['group']:32}{t['people']:>9,}" + "".join(f"{t[name]:>{width}g}" for width, name in numbers)
            )
        first, last = run["epochs"][0], run["epochs"][-1]
        lines.append(
            f"  L1 {first['l1']:.4f} in the first epoch, {last['l1']:.4f} in the last; NDCG {first['ndcg']:.3f}, "
            f"{last['ndcg']:.3f}; clients with nothing left in the last: {last['silent'] / last['clients']:.1%}"
        )
    lines += ["", f"intervals of changes at {settings['level']:.0%}"]
    for row in data["coverage"]:
        lines.append(
            f"  {_pair(row):54}{row['covered']:>7.1%} of {row['intervals']:,} hold the truth; errors are "
            f"{row['spread']:.2f} of what is stated"
        )
    return "\n".join([*lines, "", *claim_lines(data)])


def _kept(run: Data) -> str:
    return "A new list each period" if run["keep"] == 1 else f"A list kept for {run['keep']} periods"


def _pair(row: Data) -> str:
    people = "everybody has another record" if row["changing"] == 1 else f"{row['changing']:.0%} have another record"
    return (
        f"{'new lists' if row['keep'] == 1 else 'a kept list'}, {people}, epoch {row['first'] + 1} to {row['last'] + 1}"
    )


def _for_movement(data: Data) -> Data:
    """Choose the run that shows changes best: a list that was kept all the time has every query in both epochs."""
    longest: Data = data["runs"][-1]
    return longest


#: The figures of the page: a name, how to draw it from the data, and its caption.
FIGURES: Figures = {
    "spending": (
        lambda data: charts.spending(data["runs"], data["settings"]["lifetime"]),
        "Those who have been clients from the first epoch on. A new list asks everybody anew. On a kept list only "
        "those whose record moved to another cell of the list pay again, and most people's record is never on it.",
    ),
    "silence": (
        lambda data: charts.silence(data["runs"]),
        "Who can't pay for a new answer sends one that says nothing, and counts as everything else. Newcomers can pay.",
    ),
    "quality": (
        lambda data: charts.quality(data["runs"]),
        "Against the true shares and the true order of the same epoch. With a new list each time the error grows once "
        "clients have fallen silent; a list that is kept too long misses what has become frequent since.",
    ),
    "movement": (
        lambda data: charts.movement(_for_movement(data)),
        "`trends` from the first epoch to the last on the list that is kept longest: the surest changes.",
    ),
}


def page(data: Data) -> Page:
    """Describe the page."""
    settings = data["settings"]
    clients = {run["keep"]: run["totals"][0] for run in data["runs"]}
    parts: list[Part] = [
        Facts(
            {
                "people": f"{settings['users']:,}",
                "epochs": f"{settings['epochs']}",
                **{f"a typical client, list kept {keep}": f"ε {t['client_typical']:g}" for keep, t in clients.items()},
            }
        ),
        Heading("What had to be shown"),
        claim_table(data),
        Heading("The people and the task"),
        Text(
            f"{settings['optin']:.0%} of the people opt in. From one epoch to the next {settings['moving']:.0%} of the "
            f"opt-in users become clients and as many clients opt in, {settings['leaving']:.0%} of all leave and as "
            f"many newcomers join, and {settings['changing']:.0%} have another record. Queries of the ranks 6 to 10 "
            "fade, and those of the ranks 61 to 65 take their places by the last epoch."
        ),
        Text(
            f"Each epoch costs an opt-in user epsilon {settings['epsilon']:g} (and delta {settings['delta']:g} where a "
            f"list is made) and a client at most epsilon {settings['epsilon']:g}; a device loses at most "
            f"{settings['lifetime']:g} in its life. The list has up to {settings['size']} records."
        ),
        Heading("What a client loses"),
        figure(FIGURES, "spending", data),
        figure(FIGURES, "silence", data),
        Heading("What everybody loses in all epochs"),
        Text(
            "Opt-in users and clients are two populations with two guarantees, both for replace-one. Who moves is one "
            "person in two roles: the two numbers stand apart, and the person's sum is basic composition over both "
            "roles. Typical is the median, and delta that of the worst. A client's number holds given the change "
            "times, with delta zero."
        ),
        *(part for run in data["runs"] for part in _totals(run)),
        Text(
            "The ledger charges clients the worst case in each epoch, because the server can't know who repeats an "
            "answer: "
            + "; ".join(
                f"{_kept(run).lower()}: epsilon {run['client_account']:g} charged, "
                f"{clients[run['keep']]['client_worst']:g} lost at most"
                for run in data["runs"]
            )
            + "."
        ),
        Heading("What it is good for"),
        figure(FIGURES, "quality", data),
        *(Details(f"{_kept(run)}: every epoch", _epochs(run)) for run in data["runs"]),
        Heading("Trends between epochs"),
        Text(
            "`trends` adds the squares of two epochs' standard errors, as if they were independent. But most people "
            "are the same in both. A client who repeats an answer makes the same error twice, and so do opt-in users "
            "who differ from the rest in the same way twice; both drop out of the difference. So the intervals are too "
            "wide rather than too narrow, the more so the less has changed. "
            f"Measured on {settings['small_users']:,} people:"
        ),
        _coverage(data),
        Text(
            "A list holds what was frequent among the opt-in users of its first epoch, by chance too. So records near "
            "the threshold come out somewhat high at first, and changes on a kept list lean downward as other people "
            "and other records take the places. The stated errors have room for that (bias over stated)."
        ),
        figure(FIGURES, "movement", data),
        _changes(_for_movement(data)),
    ]
    return Page(
        "What does a year of reports cost, and is it worth it?",
        INVENTED,
        parts,
        command(data),
        data,
        f"Noise: {settings['noise']}.",
    )


def _totals(run: Data) -> list[Part]:
    rows = [
        (
            t["group"],
            f"{t['people']:,}",
            _both(t, "optin"),
            f"{t['optin_delta']:.1e}" if t["optin_delta"] else "0",
            _both(t, "client"),
            _both(t, "person"),
        )
        for t in run["totals"]
    ]
    return [Text(f"{_kept(run)}:"), Table(_TOTALS, rows)]


def _both(total: Data, role: str) -> str:
    return f"{total[f'{role}_typical']:g} / {total[f'{role}_worst']:g}"


def _epochs(run: Data) -> Table:
    heads = ("epoch", "list of", "records", "drew an answer", "nothing left", "L1", "NDCG", "hit rate")
    rows = [
        (
            f"{row['epoch'] + 1}",
            f"{row['listed'] + 1}",
            f"{row['records']}",
            f"{row['drawn'] / row['clients']:.1%}",
            f"{row['silent'] / row['clients']:.1%}",
            f"{row['l1']:.4f}",
            f"{row['ndcg']:.3f}",
            f"{row['hit_rate']:.2%}",
        )
        for row in run["epochs"]
    ]
    return Table(heads, rows)


def _coverage(data: Data) -> Table:
    heads = ("change of a query's share", "intervals", "hold the truth", "errors over stated", "bias over stated")
    rows = [
        (
            _pair(row),
            f"{row['intervals']:,}",
            f"{row['covered']:.1%} ± {row['stderr']:.1%}",
            f"{row['spread']:.2f}",
            f"{row['bias']:+.2f}",
        )
        for row in data["coverage"]
    ]
    return Table(heads, rows)


def _changes(run: Data) -> Table:
    rows = [
        (
            f"{row['query']}",
            f"{row['change']:+.3%}",
            f"{row['low']:+.3%} to {row['high']:+.3%}",
            f"{row['true']:+.3%}",
            "changed" if row["significant"] else "",
        )
        for row in run["changes"][:12]
    ]
    return Table(("query", "change", "interval", "truth", ""), rows)
