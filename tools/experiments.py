"""Write docs/experiments/NAME.md and its pictures from the results.json that an experiment wrote.

``python tools/experiments.py RESULTS`` takes a file. ``python tools/experiments.py NAME`` runs the experiment first, at
its acceptance size. No number on a page is typed by hand. A new experiment is one line more in ``PAGES``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hushquery import plot
from hushquery_experiments.blender.page import page as blender
from hushquery_experiments.epochs.page import page as epochs
from hushquery_experiments.korolova2009.page import page as korolova2009
from hushquery_experiments.local.page import page as local
from hushquery_experiments.page import Page, as_markdown

DOCS = Path(__file__).resolve().parent.parent / "docs"

#: The experiments that the docs show, and what is on their pages.
PAGES: dict[str, Callable[[Any], Page]] = {
    "blender": blender,
    "epochs": epochs,
    "korolova2009": korolova2009,
    "local": local,
}


def measure(name: str, folder: Path) -> Path:
    """Run an experiment at its acceptance size."""
    program = str(Path(sys.executable).parent / "hushquery")
    out = f"experiment-{name}"
    subprocess.run([program, "experiment", name, "--out", out], cwd=folder, check=True)
    return folder / out / "results.json"


def write(data: Any) -> Path:
    """Write the page and the pictures of one experiment's results."""
    settings = data["settings"]
    if not data["publishable"] and settings.get("log") != "synthetic":
        sys.exit("these results are of a real log and must not be published")
    page = PAGES[settings["experiment"]](data)
    images, text = DOCS / "images", DOCS / "experiments" / f"{page.name}.md"
    for folder in (images, text.parent):
        folder.mkdir(parents=True, exist_ok=True)
    for figure in page.figures:
        plot.save(figure.draw(), images / f"{page.name}-{figure.name}.png")
    text.write_text(as_markdown(page, "../images"), encoding="utf-8")
    return text


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(f"give a results.json, or an experiment to run: {', '.join(PAGES)}")
    with tempfile.TemporaryDirectory() as folder:
        given = sys.argv[1]
        results = measure(given, Path(folder)) if given in PAGES else Path(given)
        data = json.loads(results.read_text(encoding="utf-8"))
    print(f"wrote {write(data).relative_to(DOCS.parent)}")
    if any(claim["holds"] is False for claim in data["claims"]):
        sys.exit("a claim of this experiment does not hold; see the page")


if __name__ == "__main__":
    main()
