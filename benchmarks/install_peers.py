"""Make the environments of the peers: one for each list of requirements in peers/, in the benchmarks' cache.

    python benchmarks/install_peers.py [NAME ...]

What is there already stays. What can't be installed is said, and the others are made all the same.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from job_log import cache
from measure import last_line

LISTS = Path(__file__).resolve().parent / "peers"


class NotInstalled(Exception):
    """A peer that could not be installed; says why."""


def names() -> list[str]:
    """Give the names of the environments there can be."""
    return sorted(path.stem for path in LISTS.glob("*.txt"))


def python_of(name: str) -> Path:
    """Give the interpreter of a peer's environment; makes it at the first call, which takes from seconds to minutes."""
    wanted = LISTS / f"{name}.txt"
    home = cache() / "peers" / name
    python, done = home / "bin" / "python", home / "installed.txt"
    if not done.exists() or done.read_text() != wanted.read_text():
        print(f"installing {name}, once", file=sys.stderr, flush=True)
        quiet = ["--quiet", "--quiet", "--disable-pip-version-check"]
        for command in (
            [sys.executable, "-m", "venv", str(home)],
            [str(python), "-m", "pip", "install", *quiet, "--requirement", str(wanted)],
        ):
            tried = subprocess.run(command, capture_output=True, text=True, check=False)
            if tried.returncode:
                raise NotInstalled(last_line(tried.stderr) or f"pip ended with code {tried.returncode}")
        done.write_text(wanted.read_text())
    return python


def versions(name: str) -> dict[str, str]:
    """Say which versions of what was asked for an environment has."""
    lines = (LISTS / f"{name}.txt").read_text().splitlines()
    asked = [re.split(r"[\[=<>~ ]", line)[0] for line in lines if line.strip() and not line.startswith("#")]
    program = "import sys, importlib.metadata as m; [print(m.version(name)) for name in sys.argv[1:]]"
    told = subprocess.run([python_of(name), "-c", program, *asked], capture_output=True, text=True, check=False)
    return dict(zip(asked, told.stdout.split(), strict=False))


def main() -> None:
    failed = False
    for name in sys.argv[1:] or names():
        try:
            python_of(name)
            print(f"{name}: " + ", ".join(f"{package} {version}" for package, version in versions(name).items()))
        except NotInstalled as error:
            failed = True
            print(f"{name}: not installed: {error}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
