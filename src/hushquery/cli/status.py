"""``hushquery collect status`` and ``next``: what an operator sees of a collector, and its next head list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from hushquery.cli.common import JsonFlag, emit, ledger_option, option
from hushquery.cli.stores import StoreOption, TaskOption, choose_task, open_store
from hushquery.errors import UsageError

if TYPE_CHECKING:
    from hushquery.collect.epochs.epochs import Epoch

_LedgerOption = Annotated[str, ledger_option("Where the budgets of head lists are.", "URL")]


def status(
    store: StoreOption = "collector.db",
    ledger: _LedgerOption = "",
    optin_share: Annotated[
        float, option("SHARE", "Which part of a period its opt-in phase takes, as `serve` has it.")
    ] = 0.25,
    as_json: JsonFlag = False,
) -> None:
    r"""Show each task: its epochs, what error their reports will give, how uploads ended, budgets and room.

    No value and no client is shown. The same is on the page of the admin listener.

        hushquery collect status
    """
    import time

    from hushquery.collect.epochs.epochs import epochs_of, registered
    from hushquery.collect.overview import overview

    with open_store(store) as opened:
        data = overview(opened, ledger, now=time.time(), optin_share=optin_share)
        for shown, (number, task) in zip(data["tasks"], registered(opened), strict=True):
            whole = {epoch.number: described(epoch) for epoch in epochs_of(opened, task, number)}
            shown["epochs"] = [whole.get(epoch["number"], {}) | epoch for epoch in shown["epochs"]]
    emit(data, "\n".join(_lines(data)), as_json)


def described(epoch: Epoch) -> dict[str, Any]:
    """Return an epoch as plain data."""
    shown = ("number", "phase", "moving", "since", "reports", "checksum", "counts", "release", "trouble")
    checksum = None if epoch.checksum is None else epoch.checksum.hex()
    return {name: getattr(epoch, name) for name in shown} | {"checksum": checksum}


def stopped_lines(error: Mapping[str, str], indent: str) -> Iterator[str]:
    """Yield why something stopped."""
    return (f"{indent}{error[part]}" for part in ("what", "why", "fix") if error[part])


def _lines(data: dict[str, Any]) -> Iterator[str]:
    free = "" if data["disk_free"] is None else f"; its disk has {data['disk_free']:,} bytes free"
    yield f"{data['store']}: {data['bytes']:,} bytes{free}"
    if data["log"] is not None:
        settings = ", ".join(f"{name} {value}" for name, value in data["log"].items())
        yield f"PostgreSQL's log may keep reports that were erased, for as long as it keeps its files: {settings}"
    if data["clock_stopped"] is not None:
        yield "\nno epoch moves by time"
        yield from stopped_lines(data["clock_stopped"], "  ")
    for task in data["tasks"]:
        yield f"\n{task['name']}  {task['id']}"
        for epoch in task["epochs"]:
            yield from _epoch_lines(epoch, task["min_batch"])
        for reason, number in task["uploads"].items():
            yield f"  {reason:<20} {number:>12,}"
        for account in task["accounts"]:
            yield f"  budget of {_account(account)}"
        if task["next"] is not None:
            proposed = task["next"]
            yield f"  next list, epoch {proposed['epoch']}: {proposed['will']}; `hushquery collect next` shows its cost"
    if data["ledger_trouble"] is not None and any(task["kind"] == "searches" for task in data["tasks"]):
        yield f"\nno budgets are shown: {data['ledger_trouble']}"


def _epoch_lines(epoch: dict[str, Any], fewest: int) -> Iterator[str]:
    from hushquery.collect.epochs.clock import format_time
    from hushquery.collect.forecast import in_words

    more = "" if epoch["ends"] is None else f" until {format_time(epoch['ends'])}"
    more += "" if epoch["reports"] is None else f", {epoch['reports']:,} reports counted"
    or_more = " or more" if epoch["more"] else ""
    more += "" if epoch["received"] is None else f", {epoch['received']:,}{or_more} reports so far"
    more += "" if epoch["moving"] is None else f", {epoch['moving']} has begun"
    more += "" if epoch["release"] is None else f", release {epoch['release'][:12]}"
    yield f"  epoch {epoch['number']}: {epoch['phase']}{more}"
    reports = epoch["reports"] if epoch["received"] is None else epoch["received"]
    if reports:
        few = f"; nothing is released from fewer than {fewest:,}" if reports < fewest else ""
        yield f"    {in_words(epoch['forecast'])}{few}"
    if epoch["at_end"] is not None:
        yield f"    at this rate {epoch['at_end']['reports']:,} at the end: {in_words(epoch['at_end'])}"
    if epoch["trouble"] is not None:
        yield from stopped_lines(epoch["trouble"], "    ")


def _account(account: Mapping[str, Any]) -> str:
    from hushquery.core.ledger.entries import down_text, epsilon_text

    spent = "infinite" if account["spent_epsilon"] is None else epsilon_text(account["spent_epsilon"])
    left = down_text(account["remaining_epsilon"])
    delta = f", delta {down_text(account['remaining_delta'])}" if account["delta"] else ""
    return f'"{account["population"]}": epsilon {spent} of {account["epsilon"]:g} spent, {left}{delta} left'


def next_list(
    task: TaskOption = None,
    store: StoreOption = "collector.db",
    ledger: _LedgerOption = "",
    as_json: JsonFlag = False,
) -> None:
    r"""Propose the head list of the next epoch, kept or new: what each costs both populations, and which we advise.

    Spends nothing. What the list misses is taken from published releases. The task decides (keep, in its head table).

        hushquery collect next
    """
    import time

    from hushquery.collect.overview import next_list as propose
    from hushquery.core.ledger.ledger import Ledger

    with open_store(store) as opened:
        number, chosen = choose_task(opened, task)
        if chosen.head is None:
            raise UsageError("this task has no head list", why="its list is its domain", fix="It needs none")
        accounts = Ledger.open(ledger, create=False).accounts()
        proposed = propose(opened, chosen, number, now=time.time(), accounts=accounts)
    if proposed is None:
        raise UsageError("this task gets no further list", why="it has no periods", fix="Begin another task")
    data = {"task": chosen.id, **proposed.to_json()}
    emit(data, "\n".join(_proposal_lines(data)), as_json)


def _proposal_lines(data: dict[str, Any]) -> Iterator[str]:
    listed, device = data["list"], data["device"]
    yield f"head list of epoch {data['epoch']}: the task says {data['will']}, we advise {data['advice']}"
    yield f"  because {data['why']}"
    if data["change"] is not None:
        yield f"  {data['change']}"
    if data["begun"]:
        yield "  the list is being made: it may be paid for already, and is paid for once"
    if listed is not None:
        yield (
            f"the latest list was made in epoch {listed['made']}: {listed['records']:,} records, kept until epoch "
            f"{listed['kept_until']}"
        )
    if data["missed"] is not None:
        share, low, high = (f"{data['missed'][name]:.1%}" for name in ("share", "low", "high"))
        yield f"  in epoch {data['missed']['epoch']} it missed {share} of searches ({low} to {high})"
    for kind in ("keep", "new"):
        choice = data[kind]
        yield f"{kind}{'' if choice['possible'] else ': not possible, ' + choice['why_not']}"
        for role in ("optin", "clients"):
            yield f"  {_cost(choice[role])}"
        each = f"epsilon {device['answer_epsilon']:g}"
        yield f"  a device: {each} for a new answer" + (
            "; nothing if its record did not move" if kind == "keep" else ""
        )
    yield (
        f"a device that has answered every list can answer {device['answers_left']:,} more new ones, within epsilon "
        f"{device['lifetime_epsilon']:g} for its life"
    )


def _cost(cost: Mapping[str, Any]) -> str:
    from hushquery.core.ledger.entries import down_text

    delta = f", delta {cost['delta']:.2g}" if cost["delta"] else ""
    said = f'"{cost["population"]}": epsilon {cost["epsilon"]:g}{delta}'
    if not cost["has_account"]:
        return f"{said}; there is no account yet"
    if not cost["fits"]:
        return f"{said}; refused: too little is left in the account"
    left = f", delta {down_text(cost['left_delta'])}" if cost["left_delta"] else ""
    return f"{said}; leaves {down_text(cost['left_epsilon'])}{left}; {cost['epochs']:,} such epochs fit"
