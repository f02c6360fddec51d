"""``hushquery serve``: run a collector."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushquery.cli.common import JsonFlag, emit

__all__ = ["serve"]


def serve(
    task: Annotated[
        list[Path], typer.Option(metavar="FILE", help="A task file; may be given several times.", show_default=False)
    ],
    store: Annotated[
        str, typer.Option(metavar="URL", help="Where reports are kept: a file, or postgresql://USER@HOST/DATABASE.")
    ] = "collector.db",
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Its port; 0 takes one that is free.")] = 8080,
    admin_host: Annotated[str, typer.Option(help="The address for health and metrics.")] = "127.0.0.1",
    admin_port: Annotated[int, typer.Option(min=-1, max=65535, help="Its port; -1 for none.")] = 8081,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes; more than one needs PostgreSQL.")] = 1,
    ledger: Annotated[
        str, typer.Option(metavar="URL", help="What head lists are paid from: a file, or postgresql://...")
    ] = "ledger.db",
    keys: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER",
            help="Where the keys of opt-in records are: one folder for all servers of a store, out of backups.",
        ),
    ] = Path("collector-keys"),
    operator_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Base64 of 32 bytes that wraps those keys; else HUSHQUERY_OPERATOR_KEY, if it is set.",
            show_default=False,
        ),
    ] = None,
    max_store: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help='The size the store may have, such as "500MB".', show_default=False),
    ] = None,
    tick: Annotated[float, typer.Option(min=0, help="Seconds between looks at the clock; 0: never.")] = 5,
    store_seconds: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="How long an upload waits for the store before it is answered with 503."),
    ] = 6,
    optin_share: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Which part of a period its opt-in phase takes; all servers alike."),
    ] = 0.25,
    as_json: JsonFlag = False,
) -> None:
    r"""Take reports over HTTP and move epochs from phase to phase, until stopped.

    A report is acknowledged when it is on the disk. No address, no user agent and no value is logged.

        hushquery task new --kind setting --out task.toml
        hushquery serve --task task.toml

    prints the address to open. For production: a PostgreSQL store, several workers, and TLS in front.

        hushquery serve --task task.toml --store postgresql://collector@db.example.org/reports --workers 4
    """
    from hushquery.collect.collector import Settings
    from hushquery.collect.http.serve import run
    from hushquery.task.model import size

    settings = Settings(
        tasks=tuple(str(one) for one in task),
        store=store,
        ledger=ledger,
        keys=str(keys),
        most_bytes=None if max_store is None else size(max_store),
        tick_seconds=tick,
        store_seconds=store_seconds,
        optin_share=optin_share,
        operator_key_file=None if operator_key is None else str(operator_key),
    )

    def ready(public: str, admin: str | None) -> None:
        lines = [f"open {public}/", f"collecting at {public}/v1/tasks"]
        if admin is not None:
            lines.append(f"health and metrics at {admin}/metrics")
        emit({"address": public, "admin": admin}, "\n".join(lines), as_json=as_json)

    run(
        settings,
        host=host,
        port=port,
        admin_host=admin_host,
        admin_port=None if admin_port < 0 else admin_port,
        workers=workers,
        ready=ready,
    )
