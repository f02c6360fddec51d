"""What holds for the repository as a whole: what files may say, how long they are, what our rules catch."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
import typing
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import hushquery
import hushquery_experiments
from hushquery import __version__

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
LINES = 500


@cache
def files() -> list[Path]:
    """The files of the repository: what git tracks or would track; in a source archive, whatever is there."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        hidden = {".git", ".venv", "node_modules", "build", "dist", "demo-output"}
        found = (path for path in ROOT.rglob("*") if not hidden & set(path.relative_to(ROOT).parts))
        return sorted(path for path in found if path.is_file() and "cache" not in str(path.relative_to(ROOT)))
    return sorted(path for name in told.split("\0") if name and (path := ROOT / name).is_file())


def texts() -> list[tuple[str, str]]:
    """Every text file: its name and what it says."""
    found = []
    for path in files():
        data = path.read_bytes()
        if b"\0" not in data[:8192]:
            found.append((str(path.relative_to(ROOT)), data.decode("utf-8", errors="replace")))
    return found


def saying(pattern: str) -> list[str]:
    """Where a pattern stands, as "file:line"."""
    compiled = re.compile(pattern)
    return [
        f"{name}:{number}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), start=1)
        if compiled.search(line)
    ]


# ---- what the files may say --------------------------------------------------------------------------------


# Written in pieces, so that this file does not find itself.
HOSTS = ["py" + r"pi\.org", "python" + r"hosted\.org", "npm" + r"js\.(org|com)", "deb" + r"\.debian\.org"]
HOSTS += [
    "yarn" + r"pkg\.com",
    "security" + r"\.debian\.org",
    "crates" + r"\.io",
    "conda" + r"\.anaconda\.org",
]


@pytest.mark.parametrize("host", HOSTS)
def test_no_file_names_a_registry(host: str) -> None:
    assert not saying(host)


def test_no_file_reads_what_lies_outside_the_repository() -> None:
    assert not saying(r"\.\./" + "shared")


@pytest.mark.parametrize("folder", ["work", "root", "home"])
def test_no_file_names_a_path_of_one_machine(folder: str) -> None:
    assert not saying(rf"(?<![\w.$}}~*-])/{folder}/\w")


def test_constraints_are_exact_and_name_no_address() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    for line in pins:
        assert re.fullmatch(r'[a-z0-9-]+==[0-9][\w.+]*( ; python_version == "3\.\d+")?', line), line
    assert pins == sorted(pins, key=lambda line: line.partition("==")[0])
    assert any("make constraints" in line for line in lines if line.startswith("#"))


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    asked += [line for extra in project["project"]["optional-dependencies"].values() for line in extra]
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    names = {re.split(r"[\s\[<>=!~;]", line, maxsplit=1)[0].lower() for line in asked}
    assert not names - pinned, "run `make constraints`"


def test_citation_has_the_version() -> None:
    assert f'version: "{__version__}"' in (ROOT / "CITATION.cff").read_text()


def test_a_file_is_one_thought() -> None:
    python = [path for path in files() if path.suffix == ".py"]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in python}
    assert python
    assert {name: length for name, length in lengths.items() if length >= LINES} == {}


def test_scripts_can_be_run() -> None:
    for path in files():
        if path.suffix == ".sh" or path == ROOT / ".ci" / "run":
            assert path.stat().st_mode & 0o111, f"chmod +x {path.relative_to(ROOT)}"
            assert "set -euo pipefail" in path.read_text()


@pytest.mark.parametrize(
    ("counted", "status", "said"),
    [
        ("9 passed in 2.50s (0:00:02)", 0, "tests: 18 passed, 0 failed, 0 skipped"),
        ("1 failed, 8 passed, 2 skipped in 2.50s", 1, "tests: 8 passed, 1 failed, 2 skipped"),
    ],
)
def test_ci_ends_with_what_its_stages_ended_with(tmp_path: Path, counted: str, status: int, said: str) -> None:
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "run").write_bytes((ROOT / ".ci" / "run").read_bytes())
    make = tmp_path / "make"
    tests = f'case $1 in test*) echo "=== {counted} ==="; exit {status} ;; esac'
    make.write_text(f"#!/usr/bin/env bash\n{tests}\n")
    make.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    run = subprocess.run(
        ["bash", ".ci/run"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout.splitlines()[-1]) == (status, said), run.stderr


# ---- the ban on randomness that is not ours ----------------------------------------------------------------


def banned(source: str, name: str) -> bool:
    """Whether ruff, with our settings, refuses this source in a file of this name."""
    command = [
        str(BIN / "ruff"),
        "check",
        "--no-cache",
        "--output-format",
        "concise",
        "--stdin-filename",
        name,
        "-",
    ]
    done = subprocess.run(command, cwd=ROOT, input=source, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return "TID251" in done.stdout


RANDOM = [
    "import random\n\nrandom.random()\n",
    "from random import gauss\n\ngauss()\n",
    "import numpy as np\n\nnp.random.default_rng()\n",
    "import numpy.random\n\nnumpy.random.default_rng()\n",
    "from numpy.random import default_rng\n\ndefault_rng()\n",
    "from numpy import random\n\nrandom.default_rng()\n",
]


@pytest.mark.parametrize("source", RANDOM, ids=lambda source: source.splitlines()[0])
def test_randomness_that_is_not_ours_is_banned(source: str) -> None:
    for place in ("noise", "core", "statistics", "local", "cli", "log", "auditing"):
        assert banned(source, f"src/hushquery/{place}/x.py"), place


@pytest.mark.parametrize("source", RANDOM, ids=lambda source: source.splitlines()[0])
def test_randomness_is_allowed_where_nothing_is_private(source: str) -> None:
    for name in (
        "experiments/src/hushquery_experiments/x.py",
        "src/hushquery/log/synthetic/logs.py",
        "tests/test_x.py",
    ):
        assert not banned(source, name), name


# ---- every public name is documented and typed -------------------------------------------------------------


def modules() -> list[str]:
    names: list[str] = []
    for package in (hushquery, hushquery_experiments):
        walked = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        names += [package.__name__, *(found.name for found in walked if not found.name.endswith("__main__"))]
    return names


def unannotated(function: object) -> list[str]:
    """The parameters (and "return") of a function that have no type."""
    signature = inspect.signature(function)  # type: ignore[arg-type]
    missing = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.annotation is inspect.Parameter.empty and name not in ("self", "cls")
    ]
    return missing if signature.return_annotation is not inspect.Signature.empty else [*missing, "return"]


def described_value(module: ModuleType, name: str) -> bool:
    """Whether a constant has a ``#:`` comment above or beside it, or a string below it."""
    lines = inspect.getsource(module).splitlines()
    body = ast.parse("\n".join(lines)).body
    for place, statement in enumerate(body):
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        elif sys.version_info >= (3, 12) and isinstance(statement, ast.TypeAlias):
            targets = [statement.name]
        else:
            continue
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            after = body[place + 1] if place + 1 < len(body) else None
            string_below = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            own = lines[statement.lineno - 1 : statement.end_lineno]
            above = lines[statement.lineno - 2].lstrip()
            return string_below or above.startswith("#:") or any("#:" in line for line in own)
    return True  # made somewhere else, and looked at there


def problems(module: ModuleType, name: str) -> list[str]:
    """What a public name lacks."""
    thing = getattr(module, name)
    where = f"{module.__name__}.{name}"
    if inspect.ismodule(thing) or name.startswith("__"):
        return []
    if inspect.isclass(thing):
        found = [] if (thing.__doc__ or "").strip() else [f"{where}: no docstring"]
        generated = "__dataclass_fields__" in vars(thing) or typing.is_typeddict(thing)
        for key, value in vars(thing).items():
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if not inspect.isfunction(function) or function.__module__ != thing.__module__:
                continue
            if key.startswith("_") and (key != "__init__" or generated):
                continue
            if key != "__init__" and not inspect.getdoc(getattr(thing, key)):
                found.append(f"{where}.{key}: no docstring")
            found += [f"{where}.{key}: {missing} has no type" for missing in unannotated(function)]
        return found
    if inspect.isfunction(thing):
        found = [] if thing.__doc__ else [f"{where}: no docstring"]
        return found + [f"{where}: {missing} has no type" for missing in unannotated(thing)]
    return [] if described_value(module, name) else [f"{where}: no `#:` comment says what it is"]


def test_public_names_are_documented_and_typed() -> None:
    found = []
    for name in modules():
        module = importlib.import_module(name)
        found += [] if (module.__doc__ or "").strip() else [f"{name}: no docstring"]
        found += [problem for public in getattr(module, "__all__", ()) for problem in problems(module, public)]
    assert not found, "\n".join(found)


def test_that_test_finds_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bare_example.py").write_text(
        "class A:\n    '''An A.'''\n    def f(self, x: int): return x\n"
        "class B: pass\n"
        "def g(x, *, y: int = 0) -> int:\n    '''Does.'''\n"
        "C = 1\n"
        "#: A number.\nD = 2\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("bare_example")
    found = [problem for name in "ABgCD" for problem in problems(module, name)]
    assert found == [
        "bare_example.A.f: no docstring",
        "bare_example.A.f: return has no type",
        "bare_example.B: no docstring",
        "bare_example.g: x has no type",
        "bare_example.C: no `#:` comment says what it is",
    ]


@pytest.mark.xdist_group("together")
def test_groups_of_tests_stay_in_one_process(request: pytest.FixtureRequest) -> None:
    # Else each process would start a Spark cluster and build the docs; pytest-xdist knows groups by this ending.
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@together")
