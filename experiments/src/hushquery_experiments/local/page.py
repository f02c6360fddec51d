"""The experiment on randomizers as text and as a page, from the plain data that ``results.json`` holds."""

from __future__ import annotations

from collections.abc import Mapping

from hushquery_experiments.local import charts
from hushquery_experiments.page import (
    INVENTED,
    Data,
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


def command(data: Data) -> str:
    """Return the command that measures the same again."""
    settings = data["settings"]
    return (
        f"hushquery experiment local --clients {settings['clients']} --runs {settings['runs']} "
        f"--seed {settings['seed']}"
    )


def as_text(data: Data) -> str:
    """Return the tables for a terminal."""
    settings = data["settings"]
    epsilons = settings["epsilons"]
    lines = [
        f"{settings['clients']:,} invented clients, noise from seed {settings['seed']}: may be published",
        "",
        "mean squared error of a cell's frequency, and measured over theory with its standard error; * = chosen",
    ]
    for k in settings["domains"]:
        lines += ["", f"{f'k = {k:,}':17}" + "".join(f"{f'epsilon {e:g}':>26}" for e in epsilons)]
        for name, row in _by_oracle(data, k).items():
            lines.append(f"{name:17}" + "".join(f"{_cell(row[e]):>26}" for e in epsilons))
    lines += ["", f"average of numbers in 0..100{'epsilon':>9}{'error':>9}{'theory':>9}{'bound':>9}{'beyond':>9}"]
    for p in data["means"]:
        bound = ("-", "-") if p["bound"] is None else (f"{p['bound']:.3f}", f"{p['beyond']:.1%}")
        lines.append(
            f"  {p['mechanism']:26}{p['epsilon']:>9g}{p['measured']:>9.3f}{p['theory']:>9.3f}{bound[0]:>9}{bound[1]:>9}"
        )
    lines += ["", f"dBitFlip, 32 buckets{'epsilon':>17}{'largest':>9}{'worst':>9}{'bound':>9}{'beyond':>9}"]
    for p in data["histograms"]:
        name = f"d = {p['d']}"
        lines.append(
            f"  {name:26}{p['epsilon']:>9g}{p['largest']:>9.4f}{p['worst']:>9.4f}{p['bound']:>9.4f}{p['beyond']:>9.1%}"
        )
    asked = data["attacks"][0]["asked"]
    lines += [
        "",
        f"{'devices whose value is found':37}" + "".join(f"{f'{n} asked':>11}" for n in asked) + "    allowed",
    ]
    for attack in data["attacks"]:
        name = f"{attack['mechanism']}, {_response(attack)}"
        allowed = "-" if attack["redrawn"] else f"{attack['limit']:.1%}"
        lines.append(f"  {name:35}" + "".join(f"{found:>11.1%}" for found in attack["found"]) + f"{allowed:>11}")
    lines += ["", "of the true top 10, found at" + "".join(f"{f'epsilon {e:g}':>12}" for e in epsilons)]
    for name, found in _by_finder(data).items():
        lines.append(f"  {name:26}" + "".join(f"{found[e]:>12.1f}" for e in epsilons))
    return "\n".join([*lines, "", *claim_lines(data)])


def _by_oracle(data: Data, k: int) -> dict[str, dict[float, Data]]:
    table: dict[str, dict[float, Data]] = {}
    for point in data["oracles"]:
        if point["k"] == k:
            table.setdefault(point["oracle"], {})[point["epsilon"]] = point
    return table


def _by_finder(data: Data) -> dict[str, dict[float, float]]:
    table: dict[str, dict[float, float]] = {}
    for point in data["hitters"]:
        table.setdefault(point["finder"], {})[point["epsilon"]] = point["found"]
    return table


def _cell(point: Data) -> str:
    star = "*" if point["chosen"] else ""
    return f"{star}{point['measured']:.2e} {point['ratio']:.3f}±{point['stderr']:.3f}"


def _response(attack: Data) -> str:
    return "redrawn each time" if attack["redrawn"] else "kept"


#: The figures of the page: a name, how to draw it from the data, and its caption.
FIGURES: Figures = {
    "errors": (
        lambda data: charts.errors(data["oracles"]),
        "Lines are theory, dots were measured. Where one line covers another, the oracles are as good as each other: "
        "olh, oue and subset over many cells, krr and tight two-stage response everywhere. Two-stage response as "
        "published leaves part of epsilon unused.",
    ),
    "ratios": (
        lambda data: charts.ratios(data["oracles"]),
        "Measured over theory, with two standard errors to each side. The fewer cells, the fewer measurements.",
    ),
    "means": (
        lambda data: charts.means(data["means"]),
        "Lines are theory, dots were measured, and dashed is the published bound. One bit beats Laplace noise where "
        "epsilon is small, and the number with Laplace noise wins where it is large: for these clients, of whom most "
        "have small numbers, from about 3.4 on.",
    ),
    "histograms": (
        lambda data: charts.histograms(data["histograms"]),
        "The largest error of 32 buckets, mean of the runs, and dashed the published bound, which is cautious.",
    ),
    "attacks": (
        lambda data: charts.attacks(data["attacks"]),
        "A device holds one of two values; a guess without any report finds half. Dashed: the most that epsilon allows "
        "for all its reports together.",
    ),
    "hitters": (
        lambda data: charts.hitters(data["hitters"]),
        "PEM puts clients into groups by length of prefix; LDPMiner halves epsilon between finding and measuring.",
    ),
}


def page(data: Data) -> Page:
    """Describe the page."""
    settings = data["settings"]
    parts: list[Part] = [
        Facts(
            {
                "clients": f"{settings['clients']:,}",
                "settings of oracles": f"{len(data['oracles'])}",
                "devices attacked": f"{settings['devices']:,}",
            }
        ),
        Heading("What had to be shown"),
        claim_table(data),
        Heading("Frequency oracles: error against theory and each other"),
        Text(f"Clients: {settings['population']}."),
        figure(FIGURES, "errors", data),
        figure(FIGURES, "ratios", data),
        Text(
            "Mean squared error of a cell's frequency, and below it measured over theory; * marks the oracle that "
            "`choose_oracle` picks."
        ),
        *(_oracle_table(data, k) for k in settings["domains"]),
        Heading("1BitMean and Laplace: the average of numbers"),
        figure(FIGURES, "means", data),
        _mean_table(data),
        Heading("dBitFlip: a histogram"),
        figure(FIGURES, "histograms", data),
        _histogram_table(data),
        Heading("Averaging attacks"),
        Text(
            "Whoever asks a device often averages noise away that is drawn anew. So a permanent response is drawn "
            "once, from the device's secret, and stays: asking again tells nothing new. RAPPOR's reports also carry "
            "fresh noise; averaging removes that, and finds the permanent response at most."
        ),
        figure(FIGURES, "attacks", data),
        _attack_table(data),
        Heading("Heavy hitters without an opt-in group"),
        Text("The ten most frequent of 4,096 values, by the finder's first ten."),
        figure(FIGURES, "hitters", data),
        _hitter_table(data),
    ]
    return Page(
        "What can be learnt when nobody is trusted?",
        INVENTED,
        parts,
        command(data),
        data,
        f"Noise: {settings['noise']}.",
    )


def _oracle_table(data: Data, k: int) -> Table:
    epsilons = data["settings"]["epsilons"]
    rows = [
        (
            f"{name}\n{_lengths(row)}",
            *(
                f"{'* ' if row[e]['chosen'] else ''}{row[e]['measured']:.2e}\n"
                f"{row[e]['ratio']:.3f} ± {row[e]['stderr']:.3f}"
                for e in epsilons
            ),
        )
        for name, row in _by_oracle(data, k).items()
    ]
    return Table((f"k = {k:,}", *(f"epsilon = {e:g}" for e in epsilons)), rows)


def _lengths(row: Mapping[float, Data]) -> str:
    sizes = sorted({point["report_bytes"] for point in row.values()})
    if len(sizes) > 1:
        return f"{sizes[0]:,} to {sizes[-1]:,} bytes"
    return f"{sizes[0]:,} byte{'s' if sizes[0] > 1 else ''}"


def _mean_table(data: Data) -> Table:
    rows = [
        (
            p["mechanism"],
            f"{p['epsilon']:g}",
            f"{p['measured']:.3f}",
            f"{p['theory']:.3f}",
            *(("-", "-") if p["bound"] is None else (f"{p['bound']:.3f}", f"{p['beyond']:.1%}")),
        )
        for p in data["means"]
    ]
    return Table(("", "epsilon", "error (rms)", "theory", "bound", "runs beyond it"), rows)


def _histogram_table(data: Data) -> Table:
    rows = [
        (
            f"d = {p['d']}",
            f"{p['epsilon']:g}",
            *(f"{p[name]:.4f}" for name in ("largest", "worst", "bound")),
            f"{p['beyond']:.1%}",
        )
        for p in data["histograms"]
    ]
    return Table(("", "epsilon", "largest error", "in the worst run", "bound", "runs beyond it"), rows)


def _attack_table(data: Data) -> Table:
    heads = (
        "devices whose value is found",
        *(f"{n} asked" for n in data["attacks"][0]["asked"]),
        "allowed",
        "different answers",
    )
    rows = [
        (
            f"{attack['mechanism']}, {_response(attack)}",
            *(f"{found:.1%}" for found in attack["found"]),
            "-" if attack["redrawn"] else f"{attack['limit']:.1%} ± {attack['spread']:.1%}",
            f"{attack['answers']}",
        )
        for attack in data["attacks"]
    ]
    return Table(heads, rows)


def _hitter_table(data: Data) -> Table:
    epsilons = data["settings"]["epsilons"]
    rows = [(name, *(f"{found[e]:.1f}" for e in epsilons)) for name, found in _by_finder(data).items()]
    return Table(("found of 10", *(f"epsilon = {e:g}" for e in epsilons)), rows)
