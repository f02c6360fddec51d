"""The command line, one file per noun.

Anything heavy is imported inside the command that needs it, so that ``--help`` answers at once (a test checks this).
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import NoReturn

from hushquery.errors import HushqueryError, Interrupted

__all__ = ["main"]
_TRACEBACK = "HUSHQUERY_TRACEBACK"  #: Names the variable that makes a failure nobody foresaw show where it came from.
_LEDGER = "hushquery.core.ledger.ledger"  # imported by what spends
_ENDED: list[int] = []  # the exit code of a signal to end


def main() -> None:
    """Run the command line; errors of hushquery become one clear message and their exit code."""
    from hushquery.cli.common import warn

    # Most objects of a command are modules and stay; collecting garbage among them takes a tenth of the start.
    gc.set_threshold(100_000)
    warnings.showwarning = lambda message, *_, **__: warn(message)  # without the line of code it came from
    _ENDED.clear()
    if _LEDGER in sys.modules:  # by an earlier command of this process
        sys.modules[_LEDGER].ASKED.clear()
    with _end_tidily() if sys.argv[1:2] != ["serve"] else nullcontext():  # it handles its own signals
        _run()


def _run() -> None:
    from hushquery.cli.commands import root_for

    try:
        root_for(sys.argv[1:])()
    except SystemExit:
        if not _ENDED:
            raise
        _report(_interrupted())
        sys.exit(_ENDED[0])
    except HushqueryError as error:
        # An engine that gave up for a signal reports it as a failure of its own.
        _report(_interrupted() if _ENDED else error)
        sys.exit(_ENDED[0] if _ENDED else error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        if _ENDED:
            _report(_interrupted())
            sys.exit(_ENDED[0])
        if os.environ.get(_TRACEBACK):
            raise
        # Neither the message nor the traceback: an engine's may quote a row.
        unexpected = HushqueryError(
            "hushquery failed in a way that it did not foresee",
            why=type(error).__name__,
            fix="`hushquery budget history` shows whether anything was spent. To see more, which may quote rows of "
            f"your data, run it again with {_TRACEBACK}=1; please report it",
        )
        _report(unexpected)
        sys.exit(unexpected.exit_code)


def _report(error: HushqueryError) -> None:
    """Print an error: what, why and what to do on standard error, or one JSON object on standard output."""
    import typer

    if "--json" in sys.argv:
        typer.echo(json.dumps(error.as_dict(), ensure_ascii=False))
        return
    typer.secho(f"error: {error.what}", err=True, fg=typer.colors.RED)
    for part in filter(None, (error.why, error.fix)):
        typer.echo(f"  {part}", err=True)


def _interrupted() -> HushqueryError:
    """Return an error that tells whether the interrupted command spent any budget, how much, and from which ledger."""
    spent = []
    if _LEDGER in sys.modules:
        try:
            spent = sys.modules[_LEDGER].spent_here()
        except HushqueryError as error:
            return Interrupted(
                "Interrupted, and the ledger can't be read: whether the budget was spent is not known",
                why=error.what,
                fix="`hushquery budget history` shows it once the ledger can be read again",
            )
    if not spent:
        return Interrupted("Interrupted. Nothing was spent")
    ledgers = ", ".join(sorted({ledger.name for ledger, _ in spent}))
    return Interrupted(
        "Interrupted after the budget was spent",
        why=f"{'; '.join(f'{entry.account}: {entry.cost()}' for _, entry in spent)}; recorded in the ledger {ledgers}",
        fix="It can't be returned: rows may have been read. What was to be written is there whole or not at all; to "
        "publish, run the command again from what is left",
    )


@contextmanager
def _end_tidily() -> Iterator[None]:
    """Let a signal to end also remove the folders with rows that did not fit into memory; ignored ones stay ignored.

    A thread makes the engine give up at once: Python itself notices a signal only when the engine has answered.
    """

    def end(number: int, _frame: object) -> NoReturn:
        _ENDED.append(128 + number)
        sys.exit(128 + number)

    def listen(heard: int) -> None:
        while number := os.read(heard, 1):
            if number[0] in before and "hushquery.engine.execute" in sys.modules:
                sys.modules["hushquery.engine.execute"].interrupt()
        os.close(heard)

    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets no other thread say what a signal does
        return
    known = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ends = (signal.SIG_DFL, signal.default_int_handler)
    before = {number: signal.getsignal(number) for number in known if signal.getsignal(number) in ends}
    heard, signalled = os.pipe()
    os.set_blocking(signalled, False)
    earlier = signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
    threading.Thread(target=listen, args=(heard,), daemon=True).start()
    try:
        for number in before:
            signal.signal(number, end)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(earlier)
        os.close(signalled)
