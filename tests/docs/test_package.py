"""What the source archive, the wheel and the npm package hold: all that they should, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from hushquery import __version__

ROOT = Path(__file__).resolve().parents[2]
# What whoever gets the source archive needs to build, test, read and carry on.
SOURCES = ["LICENSE", "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CITATION.cff"]
SOURCES += ["pyproject.toml", "constraints.txt", "Makefile", "src/hushquery/py.typed", "src/hushquery/__init__.py"]
SOURCES += [
    "tests/conftest.py",
    "tests/docs/test_package.py",
    "docs/install.md",
    "src/hushquery/schemas/task.schema.json",
]
SOURCES += ["docs/images/demo.png", "vectors/report_v1.json", "js/package.json", "js/src/index.ts", "js/README.md"]
SOURCES += [
    "experiments/pyproject.toml",
    "tools/smoke.sh",
    "benchmarks/run_all.py",
    "examples/extension/src/manifest.json",
]
BUILT = ("node_modules", "__pycache__", "/dist/", ".venv", ".pyc", "_build", "demo-output", ".cache")


def build(target: str, source: Path, folder: Path) -> Path:
    """Build with the hatchling that is installed here; nothing is fetched."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    [made] = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel as it is built from the source archive, not from this folder."""
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    [source] = folder.iterdir()
    return zipfile.ZipFile(build("wheel", source, tmp_path_factory.mktemp("wheel")))


def test_the_source_archive_holds_what_one_needs(archive: Path) -> None:
    with tarfile.open(archive) as packed:
        names = {member.name.partition("/")[2] for member in packed.getmembers() if member.isfile()}
    assert archive.name == f"hushquery-{__version__}.tar.gz"
    assert [name for name in SOURCES if name not in names] == []
    assert [name for name in names if any(part in f"/{name}" for part in BUILT)] == []
    folders = (ROOT / "src", ROOT / "experiments")
    tracked = {path.relative_to(ROOT).as_posix() for folder in folders for path in folder.rglob("*.py")}
    assert tracked <= names


def test_the_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    told = f"hushquery-{__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"hushquery", told}
    package = ROOT / "src" / "hushquery"
    ours = {
        f"hushquery/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if name.startswith("hushquery/")} == ours
    assert {"hushquery/py.typed", "hushquery/schemas/manifest.schema.json"} <= ours
    assert {name.removeprefix(f"{told}/") for name in names if name.startswith(told)} == {
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
        "licenses/LICENSE",
    }


def test_the_wheel_describes_itself(wheel: zipfile.ZipFile) -> None:
    told = f"hushquery-{__version__}.dist-info"
    metadata = wheel.read(f"{told}/METADATA").decode()
    for line in ("Requires-Python: >=3.11", "License-Expression: Apache-2.0", "Classifier: Typing :: Typed"):
        assert line in metadata.splitlines()
    for extra in ("plot", "serve", "spark"):
        assert f"Provides-Extra: {extra}" in metadata.splitlines()
    assert "hushquery = hushquery.cli:main" in wheel.read(f"{told}/entry_points.txt").decode().splitlines()
    assert wheel.read(f"{told}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()


def test_the_browser_client_has_our_version_and_licence() -> None:
    package = json.loads((ROOT / "js" / "package.json").read_text("utf-8"))
    assert package["version"] == __version__
    assert package["license"] == "Apache-2.0"
    assert (ROOT / "js" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert package["files"] == ["dist"]  # npm adds package.json, README.md and LICENSE; tools/client.sh packs it


def test_the_sizes_in_the_docs_are_measured_ones() -> None:
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    part = page.partition("<!-- sizes: written by tools/sizes.py -->")[2].partition("<!-- end of sizes -->")[0]
    for extra in ("hushquery", "hushquery[plot]", "hushquery[serve]", "hushquery[spark]"):
        assert f"| `pip install '{extra}'` | " in part
    assert "Measured 20" in part
