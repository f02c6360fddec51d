"""The command line, one file per noun.

Modules here import only Typer and the error tree at the top; everything heavy is imported inside the command that
needs it, so that ``hushquery --help`` answers at once (a test on ``sys.modules`` holds this).
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

#: Names the variable that makes a failure nobody foresaw show where it came from.
_TRACEBACK = "HUSHQUERY_TRACEBACK"
_ENDED: list[int] = []  # the exit code of a signal to end


def main() -> None:
    """Run the command line; errors of hushquery become one clear message and their exit code."""
    from hushquery.cli.commands import root_for
    from hushquery.cli.common import report_error, show_warning

    # Most of what a command makes is there to stay: modules. Looking for garbage among them takes a tenth of its start.
    gc.set_threshold(100_000)
    warnings.showwarning = show_warning
    if sys.argv[1:2] != ["serve"]:  # it handles its own signals
        _end_tidily()
    try:
        root_for(sys.argv[1:])()
    except HushqueryError as error:
        if _ENDED:  # an engine that gave up for a signal reports it as a failure of its own
            sys.exit(_ENDED[0])
        report_error(error, as_json="--json" in sys.argv)
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
        report_error(unexpected, as_json="--json" in sys.argv)
        sys.exit(unexpected.exit_code)


def _end_tidily() -> None:
    """Let a signal to end do what the end does: remove the folders with rows that did not fit into memory.

    What is ignored (nohup) stays ignored. Python takes note of a signal only when the engine has answered, which may
    take minutes: a thread hears of it at once, and makes the engine give up.
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
        heard, said = os.pipe()
        os.set_blocking(said, False)
        signal.set_wakeup_fd(said, warn_on_full_buffer=False)
        threading.Thread(target=listen, daemon=True).start()
    for number in numbers:
        signal.signal(number, end)
