"""The import contracts of pyproject.toml: every package has one, none allows more than is used, breaches are caught."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "hushquery"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
IMPORTERS = {
    one["protected_modules"][0].removeprefix("hushquery."): {
        name.removeprefix("hushquery.") for name in one["allowed_importers"] if name != "hushquery_experiments"
    }
    for one in CONTRACTS
    if one["type"] == "protected"
}
#: Everybody may import these.
FREE = {"errors", "_version"}

#: Imports that nobody may add: a file, and what it would import.
FORBIDDEN = [
    ("publish/search.py", "log"),
    ("publish/search.py", "curator"),
    ("publish/search.py", "core"),
    ("core/loss.py", "noise"),
    ("engine/__init__.py", "log"),
    ("release/manifest.py", "log"),
    ("local/report.py", "hybrid"),
    ("statistics/queries.py", "curator"),
    ("log/read.py", "task"),
    ("auditing/attacks.py", "collect"),
]


def packages() -> set[str]:
    names = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    return names - {"__init__", "__main__"}


def test_every_package_has_a_contract():
    assert set(IMPORTERS) == packages() - FREE


def test_nothing_is_allowed_that_is_not_used():
    graph = grimp.build_graph("hushquery", cache_dir=None)
    used: dict[str, set[str]] = {name: set() for name in IMPORTERS}
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            importer, package = module.split(".")[1:2], imported.split(".")[1:2]
            if importer and package and importer != package and package[0] in used:
                used[package[0]] |= set(importer)
    assert used == IMPORTERS


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What import-linter says of a copy of the code with all forbidden imports added."""
    copy = tmp_path_factory.mktemp("contracts")
    shutil.copytree(ROOT / "src", copy / "src")
    shutil.copytree(ROOT / "experiments" / "src", copy / "experiments")
    shutil.copy(ROOT / "pyproject.toml", copy)
    for name, package in FORBIDDEN:
        file = copy / "src" / "hushquery" / name
        file.write_text(f"{file.read_text(encoding='utf-8')}\nimport hushquery.{package}\n", encoding="utf-8")
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-logo", "--no-cache"],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy / 'experiments'}", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("name", "package"), FORBIDDEN)
def test_a_forbidden_import_is_caught(complaints, name, package):
    importer = "hushquery." + name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert re.search(rf"{re.escape(importer)} -> hushquery\.{package}\b", complaints)
