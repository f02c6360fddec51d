"""Commands of hushquery as a person types them: in this process, or in one of its own where that is the point.

A process of its own costs half a second to a second of CPU before it does anything. `hushquery` runs the same code,
from the entry point on, and returns the same: exit code, standard output and standard error.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout

import pytest

from hushquery.cli import main

SHOWN = {"COLUMNS": "120", "NO_COLOR": "1"}


def hushquery(*words: object, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in this process; whatever the entry point does not catch fails the test."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(), redirect_stdout(out), redirect_stderr(err):
        for name, value in (SHOWN | environment).items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["hushquery", *map(str, words)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        warnings.simplefilter("default")  # pytest may make errors of them; a person sees them
        with pytest.raises(SystemExit) as end:
            main()
    code = end.value.code
    shown = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]  # a BytesIO
    return subprocess.CompletedProcess(words, code if isinstance(code, int) else 0, *shown)


def spawn(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "hushquery", *map(str, words)],
        env=os.environ | SHOWN | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def answer(*words: object) -> tuple[int, str, str]:
    """Run a command in this process; return its exit code, standard output and standard error."""
    done = hushquery(*words)
    return done.returncode, done.stdout, done.stderr
