"""What is listed where: pages below their folder, and the headings and names of a page beside it."""

from __future__ import annotations

import functools
import re
from typing import Any

from docutils import nodes  # type: ignore[import-untyped]
from sphinx.addnodes import toctree
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.search.en import SearchEnglish


def with_contents(_app: Sphinx, page: str, text: list[str]) -> None:
    """Put all pages of a folder below its README or index, unless that names them in a toctree of its own."""
    folder, _, name = page.rpartition("/")
    if folder and name in ("README", "index") and not re.search(r"^(`{3,}|:{3,})\{toctree\}", text[0], re.MULTILINE):
        text[0] += "\n\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"


def keep_headings_apart(_app: Sphinx, env: BuildEnvironment) -> None:
    """Keep headings and names inside a page out of the contents that each page carries, which lists pages only.

    There are thousands. Sphinx copies them for every page of the site and throws them away again, which would take
    as long as everything else together.
    """
    if not hasattr(env, "whole_contents"):
        env.whole_contents = {}  # type: ignore[attr-defined]
    for page, contents in env.tocs.items():
        inside = list(contents.findall(nodes.list_item))[1:]
        if inside and not list(contents.findall(toctree)):
            env.whole_contents[page] = contents.deepcopy()  # type: ignore[attr-defined]
            for item in inside:
                item.parent.remove(item)


def contents_beside(app: Sphinx, page: str, _file: str, context: dict[str, Any], _tree: nodes.document | None) -> None:
    """Show the headings and names of a page beside it."""
    contents = getattr(app.env, "whole_contents", {}).get(page)
    if contents is not None:
        shown = contents.deepcopy()
        for link in shown.findall(nodes.reference):
            link["refuri"] = link["anchorname"] or "#"
        context["toc"] = app.builder.render_partial(shown)["fragment"]  # type: ignore[attr-defined]
        context["furo_hide_toc"] = False


def setup(app: Sphinx) -> dict[str, bool]:
    """Join in."""
    search: Any = SearchEnglish
    search.stem = functools.cache(search.stem)  # most words are on many pages
    app.connect("source-read", with_contents)
    app.connect("env-updated", keep_headings_apart)
    app.connect("html-page-context", contents_beside, priority=600)  # after the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}
