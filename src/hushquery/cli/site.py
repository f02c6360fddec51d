"""``hushquery site``: make web pages out of releases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from hushquery.cli.common import JsonFlag, emit, flag, option
from hushquery.cli.listing import Folders, open_release
from hushquery.errors import DataError


def site(
    folders: Folders,
    out: Annotated[Path, option("DIR", "The folder to make. It must not exist (see --force).")],
    task: Annotated[
        Path | None,
        option(
            "FILE_OR_DIR",
            "What the clients of the last release ran: a task file with a list of its own, or the folder that "
            "`hushquery head` wrote. With it the privacy page shows what leaves a device.",
        ),
    ] = None,
    ledger: Annotated[
        str | None, option("PATH_OR_URL", "Show the spends of these populations from this ledger. It becomes public.")
    ] = None,
    title: Annotated[str | None, option("WHO", "Whom the pages speak of; the population by default.")] = None,
    same_devices: Annotated[
        float,
        option("R", "For periods of a task: declare the share of devices that answer the same in the next period."),
    ] = 0.0,
    rows: Annotated[int, option("N", "How many queries, records or values a table shows.", min=1)] = 200,
    searched: Annotated[int, option("N", "How many queries the search knows.", min=1)] = 10_000,
    force: Annotated[bool, flag("--force", "Replace an older site at --out.")] = False,
    as_json: JsonFlag = False,
) -> None:
    r"""Make web pages out of releases: what people did, what changed, and what it all cost in privacy.

        hushquery site week1/ week2/ week3/ --task head3/ --ledger ledger.db --out site/
        python -m http.server --directory site

    Releases of searches get trends, comparisons and a search that works offline. The periods of a setting, a number or
    a text that clients reported get pages made for that: shares, an average or a histogram over time, any two periods
    compared, and the randomiser to try. They hold their task.

    The pages load nothing from anywhere else, work under any path of any server, and send nothing that is typed into
    them. The search is also a module: import {load} from "./search.mjs".
    """
    from hushquery.publish.site import build_site, write_site
    from hushquery.publish.site.build import SITE_FILES
    from hushquery.release import check_target

    check_target(out, force, known=SITE_FILES)
    releases = [open_release(folder) for folder in folders]
    people = {guarantee.population for release in releases for guarantee in release.guarantees}
    privacy: dict[str, Any] = {} if task is None else {"task": _served(task)}
    if ledger is not None:
        privacy |= _spends(ledger, people)
    files = build_site(releases, privacy=privacy, title=title, rows=rows, searched=searched, same_devices=same_devices)
    folder = write_site(files, out, force)
    size, many = sum(map(len, files.values())), f"{len(releases)} release{'' if len(releases) == 1 else 's'}"
    text = (
        f"{folder}: {len(files)} files, {size / 1000:,.0f} kB, from {many}\n"
        f"serve it with any server, for example: python -m http.server --directory {folder}"
    )
    emit({"site": str(folder), "files": {name: len(data) for name, data in files.items()}}, text, as_json)


def _served(path: Path) -> dict[str, Any]:
    """Return a task as a collector serves it."""
    import json

    from hushquery.hybrid.published import PublishedHead
    from hushquery.local.configuration import Configuration
    from hushquery.task import Task

    configuration = (
        Configuration.of(Task.load(path)) if path.suffix == ".toml" else PublishedHead.load(path).configuration
    )
    task = configuration.task
    return {"id": task.id, "task": task.to_json(), "configuration": json.loads(configuration.canonical())}


def _spends(ledger: str, people: set[str]) -> dict[str, Any]:
    """Return the entries of some populations; a ledger may hold others, whose entries are nobody's business here."""
    from hushquery.core.ledger.ledger import Ledger

    book = Ledger.open(ledger, create=False)
    accounts = [account.to_json() for account in book.accounts() if account.population in people]
    if not accounts:
        raise DataError(
            "this ledger has no account of the people in these releases",
            why=f"they are: {', '.join(sorted(people))}",
            fix="Give the ledger that the releases were paid from",
        )
    return {"ledger": [row for who in sorted(people) for row in book.over_time(who)], "accounts": accounts}
