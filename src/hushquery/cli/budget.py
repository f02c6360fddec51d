"""``hushquery budget``: open accounts of privacy budget, and see what was spent of them."""

from __future__ import annotations

import math
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hushquery.cli.common import Anyway, JsonFlag, NewPopulation, emit, flag, group, ledger_option, may_be_new, option
from hushquery.errors import UsageError

if TYPE_CHECKING:
    from hushquery.core.budget import Budget
    from hushquery.core.ledger.ledger import Account


app = group(
    "budget",
    """Open accounts of privacy budget, and see what was spent of them.

    The ledger holds one account per population (the people), under one
    relation (what is hidden of them). A release is recorded in it before any
    data is read, and refused when the account has not enough left.

    --ledger takes a path (a SQLite file) or a URL such as
    postgresql://analyst@db.example/privacy. A URL with a password does not
    belong on a command line, where every user of the machine can read it:
    put it in the environment variable HUSHQUERY_LEDGER instead.
    """,
)

LedgerOption = Annotated[
    str,
    ledger_option(
        "The ledger: a file, or postgresql://USER@HOST/DATABASE. "
        "Give a URL with a password only through the environment variable.",
        envvar="HUSHQUERY_LEDGER",
    ),
]
PopulationFilter = Annotated[str | None, option("NAME", "Only this population.", "--population")]


@app.command("open")
def open_(
    population: Annotated[str, option("NAME", "Whose budget it is; always the same name for the same people.")],
    relation: Annotated[
        str,
        option(
            "RELATION", "add-remove (a person is in the data or not) or replace-one (a person's data is exchanged)."
        ),
    ],
    epsilon: Annotated[str, option("E", "What may be spent: 1, 0.5, 1/3 or ln(10).")],
    delta: Annotated[str, option("D", "The chance that the promise fails: 0, 1e-6 or 1/1000000.")],
    period: Annotated[str | None, option("P", "Give this budget anew in each period: 7d, 12h or 30m.")] = None,
    lifetime_epsilon: Annotated[str | None, option("E", "With --period: what all periods together may spend.")] = None,
    lifetime_delta: Annotated[
        str | None, option("D", "With --lifetime-epsilon: the delta of all periods together.")
    ] = None,
    users: Annotated[
        int | None,
        option("N", "How many people there are, if that is public; a delta of 1/N or more is refused.", min=1),
    ] = None,
    new_population: NewPopulation = False,
    anyway: Anyway = False,
    ledger: LedgerOption = "",
    as_json: JsonFlag = False,
) -> None:
    r"""Open an account. Its budget can't be changed later, because people were promised it.

    One budget for good:

        hushquery budget open --population readers --relation add-remove \
            --epsilon 'ln(10)' --delta 1e-6

    A budget for each week, and one for all weeks together:

        hushquery budget open --population readers --relation add-remove \
            --epsilon 1 --delta 1e-6 --period 7d \
            --lifetime-epsilon 10 --lifetime-delta 1e-5
    """
    from hushquery.core.budget import Budget
    from hushquery.core.ledger.ledger import Ledger, Terms

    if (lifetime_epsilon is None) != (lifetime_delta is None):
        fix = "Give both --lifetime-epsilon and --lifetime-delta"
        raise UsageError("a lifetime budget has an epsilon and a delta", fix=fix)
    lifetime = None if lifetime_epsilon is None else Budget(lifetime_epsilon, str(lifetime_delta))
    terms = Terms(Budget(epsilon, delta), period, lifetime)
    for budget in filter(None, (terms.budget, terms.lifetime)):
        if users is not None:
            _check_delta(budget, users)
        budget.check_publishable(anyway=anyway)
        budget.warn(users)
    book = Ledger.open(ledger)
    new = may_be_new(book, population, new=new_population)
    account = book.open_account(population, relation, terms.budget, terms.period, terms.lifetime, new_population=new)
    text = f"opened {account.name}: it may spend {terms}"
    if terms.period is not None and terms.lifetime is None:
        text += "\nnote: nothing caps all periods together; --lifetime-epsilon would"
    emit({"ledger": book.name, "head": book.head, "account": account.to_json()}, text, as_json)


@app.command()
def show(
    population: PopulationFilter = None,
    plot: Annotated[Path | None, option("FILE", "Also draw it over time, in a .html, .svg or .png file.")] = None,
    ledger: LedgerOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Show what every account has spent and what remains.

    As bars on the terminal, and as a chart over time:

        hushquery budget show
        hushquery budget show --population readers --plot budget.html

    The epsilon shown is that of all releases together at the account's
    delta. With Gaussian noise it grows slower than the sum of their epsilons,
    so more releases may fit than the remaining number suggests.
    """
    from hushquery.core.ledger.ledger import Ledger

    book = Ledger.open(ledger, create=False)
    accounts = book.accounts(population)
    text = "\n".join(_account_lines(account) for account in accounts) or "no account is open"
    if any(account.counted for account in accounts):
        text += (
            "\n(spent is counted for all releases together at the account's delta: at a larger delta than a release's "
            "own, the same noise counts as less epsilon)"
        )
    data = {"ledger": book.name, "head": book.head, "accounts": [account.to_json() for account in accounts]}
    if plot is not None:
        from hushquery.plot import ledger_over_time, save

        saved = save(ledger_over_time(book.over_time(population)), plot)
        data["plot"] = str(saved)
        text += f"\nwrote {saved}"
    emit(data, text, as_json)


@app.command()
def history(
    population: PopulationFilter = None,
    files: Annotated[
        bool, flag("--files", "Also list which files were charged to whom: private, for your eyes only.")
    ] = False,
    ledger: LedgerOption = "",
    as_json: JsonFlag = False,
) -> None:
    """List every entry of the ledger, oldest first: what was released, when, from which plan, at what cost.

    For example:

        hushquery budget history
        hushquery budget history --population readers --json
    """
    from hushquery.core.ledger.ledger import Ledger

    book = Ledger.open(ledger, create=False)
    entries = book.history(population)
    lines = []
    for entry in entries:
        people = f"{entry.population} ({entry.relation.value})"
        lines.append(f"{entry.seq:>5}  {entry.time:%Y-%m-%d %H:%M:%S}  {people}  {entry.what}: {entry.cost()}")
        described = ("title: ", "period: ")
        lines += [f"       {'' if line.startswith(described) else 'plan '}{line}" for line in entry.plan.splitlines()]
    data = {"ledger": book.name, "head": book.head, "entries": [entry.to_json() for entry in entries]}
    if files:
        known = [(who, path) for who, path in book.files() if population in (None, who)]
        data["files"] = [{"population": who, "path": path} for who, path in known]
        lines += [f"file of {who} (private): {path}" for who, path in known]
    emit(data, "\n".join(lines) or "nothing was recorded", as_json)


@app.command()
def check(
    expect_head: Annotated[str | None, option("COUNT:HASH", "A head noted earlier; an old copy lacks it.")] = None,
    ledger: LedgerOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Verify the ledger from its first entry to its last, and print its head.

    For example:

        hushquery budget check

    Keep the head in another place. A ledger that was replaced by an older
    copy of itself is whole, and only a head noted since can tell:

        hushquery budget check --expect-head 12:9f86d081884c7d65...
    """
    from hushquery.core.ledger.ledger import Ledger

    book = Ledger.open(ledger, create=False)
    head = book.check(expect_head)
    entries = int(head.partition(":")[0])
    text = f"the ledger {book.name} is whole: {entries} entries\nhead {head}"
    emit({"ledger": book.name, "ok": True, "entries": entries, "head": head}, text, as_json)


def _check_delta(budget: Budget, users: int) -> None:
    """Refuse, before an account is opened for good, a delta that lets one of all these people be shown in full."""
    from hushquery.core.budget import format_delta, suggested_delta

    if budget.delta * users >= 1:
        raise UsageError(
            what=f"delta {format_delta(budget.delta)} is not below one over the {users:,} users, and no account was "
            "opened",
            why=f"publishing {float(budget.delta * users):,.0f} of them in full would be within it, and a budget can't "
            "be changed later",
            fix=f"Give a delta of {suggested_delta(users):.0e} or less",
        )


def _account_lines(account: Account) -> str:
    """Draw an account: its terms, a bar for the period or lifetime, and one for the cap on all periods."""
    from hushquery.core.ledger.entries import left_text

    terms = account.terms
    now = "" if terms.period is None else f"  period {account.period}"
    left = left_text(terms.budget, account.remaining_epsilon, account.remaining_delta, "remaining ")
    lines = [f"{account.name}: {terms}", _bar(account.spent_epsilon, account.remaining_epsilon, left + now)]
    ends = account.period_ends
    if ends is not None:
        lines[-1] += f", until {ends:%Y-%m-%d %H:%M} UTC"
    if terms.lifetime is not None:
        cap_left = account.lifetime_remaining_epsilon or 0.0
        left = left_text(terms.lifetime, cap_left, account.lifetime_remaining_delta or 0.0, "remaining ")
        lines.append(_bar(account.lifetime_spent_epsilon, cap_left, f"{left}  lifetime"))
    return "\n".join(lines)


def _bar(spent: float, remaining: float, left: str) -> str:
    from hushquery.core.ledger.entries import epsilon_text

    width = max(10, min(40, shutil.get_terminal_size().columns - 60))
    used_up = not 0 < spent + remaining < math.inf
    filled = width if used_up else round(width * spent / (spent + remaining))
    if spent > 0 and remaining > 0:  # neither something nor something left looks like nothing
        filled = min(max(filled, 1), width - 1)
    full, empty = ("█", "░") if (sys.stdout.encoding or "").lower().startswith("utf") else ("#", ".")
    return f"  {full * filled}{empty * (width - filled)}  spent {epsilon_text(spent)}  {left}"
