"""Without an optional part, whatever needs it says what to type; whatever does not need it works.

Each test runs in a process of its own in which the packages of an extra can't be imported, as if nobody had installed
them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hushquery.release import SigningKey
from small_releases import private_hybrid, whole_release

ROOT = Path(__file__).resolve().parents[2]
# What is imported for each extra; the names of the packages are in pyproject.toml.
IMPORTED = {
    "accounting": ["dp_accounting"],
    "plot": ["altair", "vl_convert"],
    "serve": ["cryptography", "fastapi", "h11", "psycopg", "starlette", "uvicorn"],
    "sign": ["cryptography"],
    "spark": ["pandas", "pyspark"],
}
ALL = sorted({name for names in IMPORTED.values() for name in names})

# Runs each command line of the second argument without the packages of the first, and tells how each ended.
PROGRAM = """
import contextlib, io, json, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

hidden, lines = json.loads(sys.argv[1]), json.loads(sys.argv[2])
sys.meta_path.insert(0, Missing())
from hushquery.cli import main

told = []
for line in lines:
    said, code = io.StringIO(), 0
    sys.argv = ["hushquery", *line]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            code = end.code
    told.append([code, said.getvalue()])
print(json.dumps(told))
"""


def without(hidden: list[str], lines: list[list[str]], folder: Path) -> list[tuple[int, str]]:
    """How some command lines end where some packages are missing: exit code and output of each."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(hidden), json.dumps(lines)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [(code or 0, said) for code, said in json.loads(done.stdout)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    whole_release().save(tmp_path / "release")
    return tmp_path


CHARTS = [
    ["trends", "release", "--plot", "trends.svg"],
    ["explain", "guarantee", "--epsilon", "1", "--plot", "worlds.svg"],
    ["plan", "--epsilon", "1", "--delta", "1e-6", "--users", "1000", "--plot", "plan.svg"],
    ["budget", "show", "--ledger", "ledger.db", "--population", "people", "--plot", "budget.svg"],
]
OPENED = ["budget", "open", "--ledger", "ledger.db", "--population", "people", "--epsilon", "1", "--delta", "0"]
OPENED += ["--relation", "add-remove"]


@pytest.mark.parametrize(("hidden", "lines"), [(["altair", "vl_convert"], CHARTS), (["vl_convert"], CHARTS[:2])])
def test_charts(hidden: list[str], lines: list[list[str]], folder: Path) -> None:
    [opened, *told] = without(hidden, [OPENED, *lines], folder)
    assert opened[0] == 0
    for code, said in told:
        assert code == 69
        assert "pip install 'hushquery[plot]'" in said
    assert not list(folder.glob("*.svg"))


def test_composition_by_privacy_loss_distributions(folder: Path) -> None:
    line = ["explain", "compose", "--epsilon", "0.1", "--times", "10", "--delta", "1e-6"]
    [(code, said)] = without(IMPORTED["accounting"], [line], folder)
    assert code == 0  # the other rules hold without it
    assert "* mixed" in said
    assert "pip install 'hushquery[accounting]'" in said


WHO = ["--population", "people"]
POSTGRESQL = "postgresql://somebody@localhost/nothing"
SERVED = [
    ["serve", "--task", "task.toml"],
    ["demo", "--serve", "--out", "demo"],
    ["budget", "show", "--ledger", POSTGRESQL],
    ["collect", "status", "--store", POSTGRESQL],
    ["serve", "--task", "task.toml", "--store", POSTGRESQL],
    ["stat", "count", "people", "--unit", "user", "--epsilon", "1", "--engine", POSTGRESQL, *WHO],
]
NEW = ["task", "new", "--kind", "setting", "--out", "task.toml"]


def test_the_collector_and_postgresql(folder: Path) -> None:
    [made, *told] = without(IMPORTED["serve"], [NEW, *SERVED], folder)
    assert made[0] == 0
    for line, (code, said) in zip(SERVED, told, strict=True):
        assert code == 69, (line, said)
        assert "pip install 'hushquery[serve]'" in said, line
    assert not (folder / "demo").exists()
    assert not (folder / "collector.db").exists()


@pytest.mark.parametrize("name", ["uvicorn", "h11", "cryptography"])
def test_half_an_installation_is_told_too(name: str, folder: Path) -> None:
    [_, (code, said)] = without([name], [NEW, SERVED[0]], folder)
    assert code == 69
    assert f"needs the package {name}" in said
    assert "pip install 'hushquery[serve]'" in said


def test_signatures(folder: Path) -> None:
    made = SigningKey.new()
    made.save(folder / "key")
    private_hybrid().save(folder / "signed", sign=made)
    lines = [["keys", "new"], ["sign", "release", "--key", "key"], ["verify", "signed", "--key", "key.pub"]]
    # Where nobody asks for a check, what is signed can be read and verified all the same.
    [*told, (code, said), (shown, _)] = without(
        IMPORTED["sign"], [*lines, ["verify", "signed"], ["show", "signed"]], folder
    )
    assert (code, shown) == (0, 0)
    assert "not checked against a key you trust" in said
    for line, (code, said) in zip(lines, told, strict=True):
        assert code == 69, (line, said)
        assert "pip install 'hushquery[sign]'" in said


def test_spark(folder: Path) -> None:
    budget = ["--epsilon", "1", "--engine", "spark", *WHO]
    counted = ["stat", "count", "people.parquet", "--unit", "user", *budget]
    released = ["release", "log.parquet", "--delta", "1e-6", "--queries-per-user", "2", "--out", "made", *budget]
    for code, said in without(IMPORTED["spark"], [counted, released], folder):
        assert code == 69
        assert "pip install 'hushquery[spark]'" in said


CORE = [
    ["doctor"],
    ["synth", "--profile", "tiny", "--users", "200", "--seed", "1", "--out", "log.tsv"],
    ["release", "log.tsv", "--epsilon", "2", "--delta", "1e-4", "--queries-per-user", "5", "--out", "made", *WHO],
    ["verify", "made"],
    ["search", "release", "weather"],
    ["trends", "release"],
    ["site", "release", "--out", "site"],
    NEW,
    ["task", "check", "task.toml"],
    ["randomize", "--task", "task.toml", "--state", "client.db", "dark"],
]


def test_all_else_works_without_any_extra(folder: Path) -> None:
    for line, (code, said) in zip(CORE, without(ALL, CORE, folder), strict=True):
        assert code == 0, (line, said)
        if line == ["doctor"]:
            assert "all that hushquery needs works" in said


def test_these_are_all_optional_packages() -> None:
    """Every extra is tried above, with each of its packages; and no module imports another package unasked."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {name: lines for name, lines in project["optional-dependencies"].items() if name in IMPORTED}
    assert set(project["optional-dependencies"]) - set(extras) <= {"dev", "docs"}
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    for name, lines in extras.items():
        assert f"| `{name}` | " in page
        asked = {re.split(r"[\[<>=]", line)[0].replace("-python", "").replace("-", "_") for line in lines}
        assert asked == set(IMPORTED[name]) - {"starlette"}  # which comes with fastapi


def test_only_the_http_application_is_imported_with_its_packages(folder: Path) -> None:
    program = PROGRAM.partition("from hushquery.cli")[0] + (
        "import importlib, pkgutil, hushquery\n"
        "wrong = []\n"
        "for module in pkgutil.walk_packages(hushquery.__path__, 'hushquery.'):\n"
        "    if module.name.endswith('__main__'):\n"
        "        continue\n"
        "    try:\n"
        "        importlib.import_module(module.name)\n"
        "    except ModuleNotFoundError:\n"
        "        wrong.append(module.name)\n"
        "print(json.dumps(wrong))\n"
    )
    command = [sys.executable, "-c", program, json.dumps(ALL), "[]"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    names = ("admin", "app", "limits", "setup")
    assert json.loads(done.stdout) == [f"hushquery.collect.http.{name}" for name in names]
