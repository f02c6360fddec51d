"""Make the pictures of the tutorials anew, in docs/images, from the tutorials' own commands.

``python tools/pictures.py`` (``make pictures``) runs every page of docs/tutorials in an empty folder, as the tests do,
then keeps the charts that the page itself drew and photographs the web pages that it made, with a headless Chromium.
``python tools/pictures.py hybrid`` does so for one page. The noise is real, so pictures differ from run to run.
"""

from __future__ import annotations

import base64
import importlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
MOST_BYTES = 200_000
WIDTH, MARGIN = 1000, 16

#: What tests share with us: the runner of pages, and the browser.
sys.path.insert(0, str(ROOT / "tests"))
documents, chromium = (importlib.import_module(name) for name in ("documents", "chromium"))


@dataclass(frozen=True)
class Photo:
    """A part of a web page that a tutorial made: from the top of one element to the bottom of another.

    Args:
        name: The end of the picture's name.
        file: The page.
        first: A selector of the element on top.
        last: A selector of the element at the bottom.
        typed: What is typed into the page's search box before.
    """

    name: str
    file: str
    first: str = "body"
    last: str = "body"
    typed: str = ""


#: The charts that each page draws, by the end of the picture's name.
CHARTS = {
    "curator": ("worlds", "plan", "trends"),
    "local": ("themes", "devices"),
    "hybrid": ("truth",),
}
PHOTOS = {
    "curator": (
        Photo("report", "april/report.html", last="section .bars li:nth-child(15)"),
        Photo("search", "site/search.html", typed="humidty ideas"),
    ),
    "local": (),
    "hybrid": (
        Photo("report", "everybody/report.html", last="section .bars li:nth-child(6)"),
        Photo("groups", "everybody/report.html", first="section:has(.compared)", last=".compared li:nth-child(10)"),
    ),
}


def run_page(name: str, folder: Path) -> None:
    """Run a tutorial's blocks; what went wrong ends the program."""
    text = (ROOT / "docs" / "tutorials" / f"{name}.md").read_text(encoding="utf-8")
    if wrong := documents.run_markdown(text, folder):
        sys.exit(f"docs/tutorials/{name}.md does not run as it says:\n" + "\n".join(wrong))


def photograph(photo: Photo, page: Any, address: str) -> bytes:
    """Give the part of a page as PNG."""
    page.open(f"{address}/{photo.file}")
    if photo.typed:
        page.wait("!document.querySelector('#search').hidden")
        page.run("document.querySelector('#search-text').focus()")
        page.type(photo.typed)
        page.wait("document.querySelector('#pages li')")
    first, last = (
        page.run(f"document.querySelector({json.dumps(name)}).getBoundingClientRect().toJSON()")
        for name in (photo.first, photo.last)
    )
    across = page.run("document.body.getBoundingClientRect().toJSON()")
    # No margin below: there the next row would begin.
    top, left = max(0, first["top"] - MARGIN), max(0, across["left"] - MARGIN)
    size = {"width": min(WIDTH, across["right"] + MARGIN) - left, "height": last["bottom"] - top}
    clip = {"x": left, "y": top, **size, "scale": 1}
    taken = page.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
    return base64.b64decode(taken["data"])


@contextmanager
def camera(profile: Path) -> Iterator[Callable[[Photo, Path], bytes]]:
    """Give a function that photographs what is in a folder."""
    with chromium.browser(profile) as browser:

        def take(photo: Photo, folder: Path) -> bytes:
            with chromium.static_server(folder) as server:
                page = browser.page(WIDTH, 900)
                try:
                    return photograph(photo, page, server.address)
                finally:
                    page.close()

        yield take


def main() -> None:
    names = sys.argv[1:] or list(CHARTS)
    if unknown := set(names) - set(CHARTS):
        sys.exit(f"there is no tutorial {', '.join(sorted(unknown))}; there are {', '.join(CHARTS)}")
    with tempfile.TemporaryDirectory() as folder, camera(Path(folder, "profile")) as take:
        for name in names:
            place = Path(folder, name)
            place.mkdir()
            run_page(name, place)
            made = {chart: (place / f"{chart}.png").read_bytes() for chart in CHARTS[name]}
            made |= {photo.name: take(photo, place) for photo in PHOTOS[name]}
            for what, picture in made.items():
                target = IMAGES / f"tutorial-{name}-{what}.png"
                if len(picture) > MOST_BYTES:
                    sys.exit(f"{target.name} would have {len(picture):,} bytes, more than {MOST_BYTES:,}")
                target.write_bytes(picture)
                print(f"{target.relative_to(ROOT)}: {len(picture):,} bytes")


if __name__ == "__main__":
    main()
