"""The command line, one file per noun.

Anything heavy is imported inside the command that needs it, so that ``--help`` answers at once (a test checks this).
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import warnings
from typing import NoReturn

from hushquery.errors import HushqueryError

__all__ = ["main"]
_TRACEBACK = "HUSHQUERY_TRACEBACK"  #: Names the variable that makes a failure nobody foresaw show where it came from.
_ENDED: list[int] = []  # the exit code of a signal to end


def main() -> None:
    """Run the command line; errors of hushquery become one clear message and their exit code."""
    from hushquery.cli.commands import root_for
    from hushquery.cli.common import report_error, warn

    # Most objects of a command are modules and stay; collecting garbage among them takes a tenth of the start.
    gc.set_threshold(100_000)
    warnings.showwarning = lambda message, *_, **__: warn(message)  # without the line of code it came from
    if sys.argv[1:2] != ["serve"]:  # it handles its own signals
        _end_tidily()
    try:
        root_for(sys.argv[1:])()
    except HushqueryError as error:
        if _ENDED:  # an engine that gave up for a signal reports it as a failure of its own
            sys.exit(_ENDED[0])
        report_error(error, "--json" in sys.argv)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        if os.environ.get(_TRACEBACK):
            raise
        # Neither the message nor the traceback: an engine's may quote a row.
        unexpected = HushqueryError(
            "hushquery failed in a way that it did not foresee",
            why=type(error).__name__,
            fix="`hushquery budget history` shows whether anything was spent. To see more, which may quote rows of "
            f"your data, run it again with {_TRACEBACK}=1; please report it",
        )
        report_error(unexpected, "--json" in sys.argv)
        sys.exit(unexpected.exit_code)


def _end_tidily() -> None:
    """Let a signal to end also remove the folders with rows that did not fit into memory; ignored ones stay ignored.

    A thread makes the engine give up at once: Python itself notices a signal only when the engine has answered.
    """

    def end(number: int, _frame: object) -> NoReturn:
        _ENDED.append(128 + number)
        sys.exit(128 + number)

    def listen() -> None:
        while number := os.read(heard, 1):
            if number[0] in numbers and "hushquery.engine.duckdb" in sys.modules:
                sys.modules["hushquery.engine.duckdb"].interrupt()

    if threading.current_thread() is not threading.main_thread():
        return  # Python lets no other thread say what a signal does
    known = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    numbers = [number for number in known if signal.getsignal(number) is signal.SIG_DFL]
    if numbers:
        heard, signalled = os.pipe()
        os.set_blocking(signalled, False)
        signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
        threading.Thread(target=listen, daemon=True).start()
    for number in numbers:
        signal.signal(number, end)
