"""What is listed where: pages below their folder, and the names of a reference page beside it."""

from __future__ import annotations

import functools
import re
from typing import Any

from docutils import nodes  # type: ignore[import-untyped]
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.search.en import SearchEnglish


def with_contents(_app: Sphinx, page: str, text: list[str]) -> None:
    """Put all pages of a folder below its README or index, unless that names them in a toctree of its own."""
    folder, _, name = page.rpartition("/")
    if folder and name in ("README", "index") and not re.search(r"^(`{3,}|:{3,})\{toctree\}", text[0], re.MULTILINE):
        text[0] += "\n\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"


def keep_names_apart(_app: Sphinx, env: BuildEnvironment) -> None:
    """Keep the names of the reference out of the contents that each page carries.

    There are thousands. Sphinx copies them for every page of the site and throws them away again, which would take
    as long as everything else together.
    """
    if not hasattr(env, "contents_with_names"):
        env.contents_with_names = {}  # type: ignore[attr-defined]
    for page, contents in env.tocs.items():
        if page.startswith("reference/api/") and any(is_name(item) for item in contents.findall(nodes.list_item)):
            env.contents_with_names[page] = contents.deepcopy()  # type: ignore[attr-defined]
            for item in [item for item in contents.findall(nodes.list_item) if is_name(item)]:
                item.parent.remove(item)


def is_name(item: nodes.list_item) -> bool:
    """Whether an item of the contents is a Python name, and not a heading."""
    link = next(iter(item.findall(nodes.reference)), None)
    return link is not None and link["anchorname"].startswith("#hushquery.")


def names_beside(app: Sphinx, page: str, _template: str, context: dict[str, Any], _tree: nodes.document | None) -> None:
    """Show the names of a reference page beside it."""
    contents = getattr(app.env, "contents_with_names", {}).get(page)
    if contents is not None:
        shown = contents.deepcopy()
        for link in shown.findall(nodes.reference):
            link["refuri"] = link["anchorname"] or "#"
        context["toc"] = app.builder.render_partial(shown)["fragment"]  # type: ignore[attr-defined]


def setup(app: Sphinx) -> dict[str, bool]:
    """Join in."""
    search: Any = SearchEnglish
    search.stem = functools.cache(search.stem)  # most words are on many pages
    app.connect("source-read", with_contents)
    app.connect("env-updated", keep_names_apart)
    app.connect("html-page-context", names_beside, priority=400)  # before the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}
