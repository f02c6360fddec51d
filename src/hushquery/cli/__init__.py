"""The command line, one file per noun.

Modules here import only Typer and the error tree at the top; everything heavy is imported inside the command that
needs it, so that ``hushquery --help`` answers at once (a test on ``sys.modules`` holds this).
"""

from __future__ import annotations

import gc
import sys
import warnings

from hushquery.errors import HushqueryError

__all__ = ["main"]


def main() -> None:
    """Run the command line; errors of hushquery become one clear message and their exit code."""
    from hushquery.cli.commands import root_for
    from hushquery.cli.common import report_error, show_warning

    # Most of what a command makes is there to stay: modules. Looking for garbage among them takes a tenth of its start.
    gc.set_threshold(100_000)
    warnings.showwarning = show_warning
    try:
        root_for(sys.argv[1:])()
    except HushqueryError as error:
        report_error(error, as_json="--json" in sys.argv)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
