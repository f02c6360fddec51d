"""``hushquery synth``: make a search log that nobody is in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushquery.cli.common import JsonFlag, emit, progress

__all__ = ["synth"]


def synth(
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Where to. The ending says the kind: .parquet, .csv, .tsv, .jsonl, or .txt for the format of the "
            "profile's own log; all but .parquet also with .gz.",
            show_default=False,
        ),
    ],
    profile: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="aol, yandex (words and URLs are numbers), or tiny (few queries, for trying things)."
        ),
    ] = "aol",
    users: Annotated[int, typer.Option(metavar="N", help="How many users; about 35 rows each.")] = 1000,
    seed: Annotated[int, typer.Option(metavar="S", help="The same seed makes the same log.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    as_json: JsonFlag = False,
) -> None:
    r"""Make a synthetic search log, to try things out on; nobody is in it.

    It has what makes real logs hard: few busy users and many quiet ones, few popular queries and many typed once,
    sessions in which people refine and misspell, several clicks on a search, and a private tail of names, numbers and
    addresses that no release may ever show. Millions of users need disk, not memory.

        hushquery synth --profile tiny --users 500 --out log.csv
        hushquery synth --profile aol --users 65000 --seed 1 --out log.parquet
        hushquery synth --profile yandex --users 10000 --out log.txt.gz
    """
    from hushquery.log.synthetic.logs import write_log

    rows = 0
    with progress("making users", users) as (bar, task):

        def tell(users_done: int, rows_done: int) -> None:
            nonlocal rows
            rows = rows_done
            bar.update(task, completed=users_done)

        path = write_log(out, profile, users, seed, tell, force=force)
    emit(
        {"path": str(path), "profile": profile, "users": users, "rows": rows, "seed": seed},
        f"wrote {path}: {rows:,} rows of {users:,} synthetic users (profile {profile}, seed {seed})",
        as_json=as_json,
    )
