"""Measures what each extra takes on the disk, and writes the table of docs/install.md: `python tools/sizes.py`.

Builds the wheel, installs it into an empty environment with the pins of constraints.txt, first alone and then with one
extra after the other, and adds up what the environment holds after each. Takes some minutes, most of them for Spark.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "install.md"
BEGIN, END = "<!-- sizes: written by tools/sizes.py -->", "<!-- end of sizes -->"

#: What is measured, in the order of the table.
ROWS = ("", "accounting", "plot", "serve", "spark")


def pip(python: Path, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "--disable-pip-version-check", *arguments], check=True, stdout=sys.stderr)


def build(folder: Path) -> Path:
    """Build the wheel with what is installed here."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
    [wheel] = folder.glob("*.whl")
    return wheel


def held(environment: Path) -> tuple[int, int]:
    """How many bytes an environment holds, and how many packages."""
    [packages] = environment.glob("lib/python*/site-packages")
    size = sum(file.lstat().st_size for file in environment.rglob("*") if file.is_file() and not file.is_symlink())
    return size, len(list(packages.glob("*.dist-info")))


def measure(wheel: Path, environment: Path) -> dict[str, tuple[int, int]]:
    """Bytes and packages that each installation adds to those before it."""
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    pins = ["-qq", "--no-compile", "-c", str(ROOT / "constraints.txt")]
    # PySpark comes as source and is built by setuptools, which is no part of what is measured.
    pip(python, "install", *pins, "setuptools")
    found, before = {}, held(environment)
    for extra in ROWS:
        pip(python, "install", *pins, "--no-build-isolation", f"{wheel}[{extra}]" if extra else str(wheel))
        after = held(environment)
        found[extra] = (after[0] - before[0], after[1] - before[1])
        before = after
    return found


def table(found: dict[str, tuple[int, int]], wheel: int) -> str:
    """The part of the page between the marks."""
    lines = ["| installed with | adds to the rows above | packages |", "|---|---|---|"]
    for extra, (size, packages) in found.items():
        name = f"hushquery[{extra}]" if extra else "hushquery"
        lines.append(f"| `pip install '{name}'` | {size / 1e6:,.0f} MB | {packages} |")
    day, version = datetime.now(UTC).date().isoformat(), ".".join(map(str, sys.version_info[:3]))
    lines += ["", f"Measured {day} by `python tools/sizes.py`: Python {version}, {sys.platform}, the versions of"]
    lines += [f"constraints.txt, without compiled `.pyc` files. The wheel of hushquery itself is {wheel / 1e6:.2f} MB."]
    return "\n".join(lines)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(folder / "wheel")
        made = table(measure(wheel, folder / "environment"), wheel.stat().st_size)
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"{PAGE.name} has lost its marks")
    PAGE.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{after}", encoding="utf-8")
    print(made)


if __name__ == "__main__":
    main()
