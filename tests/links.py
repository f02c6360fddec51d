"""Links inside the repository: those of Markdown files, and those of built pages. Nothing is asked of the network."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt

__all__ = ["BuiltPage", "broken_in_markdown", "broken_in_pages", "built_pages", "markdown_files", "outside", "slugs"]

_INCLUDE = re.compile(r"^```\{include\} (?P<path>\S+)$", re.MULTILINE)
_TARGET = re.compile(r"^\((?P<name>[\w.-]+)\)=$", re.MULTILINE)
_ID = re.compile(r"<a (?:id|name)=\"(?P<name>[^\"]+)\"")


def markdown_files(root: Path) -> list[Path]:
    """Give the Markdown files of a repository: what git tracks or would track; in an archive whatever is there."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    try:
        told = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
        found = [root / name for name in told if name]
    except (OSError, subprocess.CalledProcessError):
        hidden = {"node_modules", "_build", "build", "dist"}
        inside = (path.relative_to(root) for path in root.rglob("*.md"))
        found = [root / path for path in inside if not any(p in hidden or p[0] == "." for p in path.parts)]
    return sorted(path for path in found if path.is_file())


# ---- Markdown --------------------------------------------------------------------------------------------------------


@cache
def _tokens(path: Path) -> tuple[Any, ...]:
    return tuple(MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8")))


def _links(path: Path) -> Iterator[tuple[int, str]]:
    """Give the line of the paragraph and the target of each link and image of a Markdown file."""
    for token in _tokens(path):
        for child in token.children or ():
            target = child.attrGet("href") if child.type == "link_open" else child.attrGet("src")
            if child.type in ("link_open", "image") and target is not None:
                yield (token.map or [0])[0] + 1, str(target)


@cache
def slugs(path: Path) -> frozenset[str]:
    """Give the names by which one can link to a place in a Markdown file, as code hosts and MyST make them."""
    text = path.read_text(encoding="utf-8")
    found: list[str] = []
    tokens = _tokens(path)
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            title = "".join(
                child.content for child in tokens[place + 1].children if child.type in ("text", "code_inline")
            )
            slug = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
            same = sum(re.sub(r"-\d+$", "", other) == slug or other == slug for other in found)
            found.append(f"{slug}-{same}" if slug in found else slug)
    found += [match["name"] for pattern in (_TARGET, _ID) for match in pattern.finditer(text)]
    for match in _INCLUDE.finditer(text):
        found += slugs((path.parent / match["path"]).resolve())
    return frozenset(found)


def _problem(path: Path, link: str, root: Path) -> str | None:
    """Say what is wrong with a link in a file; None if nothing is, or if it leads outside."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_relative_to(root):
        return "leads out of the repository"
    if not target.exists():
        return "there is no such file"
    anchor = unquote(parts.fragment)
    if not anchor:
        return None
    if target.suffix == ".md":
        return None if anchor in slugs(target) else f"there is no heading #{anchor}"
    line = re.fullmatch(r"L(\d+)", anchor)
    lines = len(target.read_text(encoding="utf-8").splitlines()) if line and target.is_file() else 0
    return None if line and 0 < int(line[1]) <= lines else f"there is no line #{anchor}"


def broken_in_markdown(paths: Iterable[Path], root: Path) -> list[str]:
    """Say which links of Markdown files lead nowhere."""
    return [
        f"{path.relative_to(root)}:{line}: {link}: {problem}"
        for path in paths
        for line, link in _links(path)
        if (problem := _problem(path, link, root)) is not None
    ]


# ---- built pages -----------------------------------------------------------------------------------------------------


@dataclass
class BuiltPage(HTMLParser):
    """What a built page has: its anchors, where it leads, what it loads, and what it says of each thing it names."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    contents: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    described: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._named: list[str] = []
        self._depth: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        given = {name: value or "" for name, value in attrs}
        classes = given.get("class", "").split()
        if given.get("id"):
            self.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
            if "reference" in classes and "internal" in classes:
                self.contents.append(given["href"])
        if tag in ("img", "script", "iframe", "source", "video", "audio", "embed") and "src" in given:
            self.loaded.append(given["src"])
        if tag == "link" and given.get("rel") not in ("canonical", "next", "prev", "index", "search"):
            self.loaded.append(given.get("href", ""))
        if tag == "dt":
            self._named = [given["id"]] if "sig" in classes and given.get("id") else []
            self._depth.append("")  # what a thing is called says nothing of the one it belongs to
        if tag == "dd":
            self._depth.append(self._named[0] if self._named else "")
            self._named = []
            if self._depth[-1]:
                self.described.setdefault(self._depth[-1], "")

    def handle_endtag(self, tag: str) -> None:
        """Leave an element."""
        if tag in ("dt", "dd") and self._depth:
            self._depth.pop()

    def handle_data(self, data: str) -> None:
        """Note what is said of the thing that is being described."""
        if self._depth and self._depth[-1]:
            self.described[self._depth[-1]] += data.strip()


def built_pages(folder: Path, without: str = "") -> dict[Path, BuiltPage]:
    """Read all pages of a built site, but for those in a folder of it."""
    found = {}
    for path in sorted(path for path in folder.rglob("*.html") if path.relative_to(folder).parts[0] != without):
        found[path] = BuiltPage()
        found[path].feed(path.read_text(encoding="utf-8"))
    return found


def broken_in_pages(pages: dict[Path, BuiltPage], root: Path) -> list[str]:
    """Say which links of built pages lead nowhere."""
    broken = []
    for path, page in pages.items():
        for link in {*page.links, *page.loaded}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link == "#":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                broken.append(f"{path.relative_to(root)}: {link}: there is no such file")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                broken.append(f"{path.relative_to(root)}: {link}: there is no such place in it")
    return sorted(broken)


def outside(folder: Path, pages: dict[Path, BuiltPage]) -> list[str]:
    """Say which pages and style sheets load something from another host."""
    found = [
        f"{path.relative_to(folder)}: {link}"
        for path, page in pages.items()
        for link in page.loaded
        if urlsplit(link).netloc
    ]
    for path in sorted(folder.rglob("*.css")):
        text = path.read_text(encoding="utf-8")
        loads = re.findall(r"url\(\s*[\"']?((?:https?:)?//[^)\"']*)|@import\s+[\"']([^\"']+)", text)
        found += [f"{path.relative_to(folder)}: {first or second}" for first, second in loads]
    return found
