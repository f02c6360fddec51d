"""Links from pages to files of the repository, pages of the root folder, and formulas as plain text.

A relative link that names a page becomes a link to that page; one that names another file of the repository becomes a
link to a page that shows the file. So one text reads right both on a code host and in the built documentation, also
when it is included from the root folder.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import myst_parser.parsers.sphinx_
from docutils import nodes  # type: ignore[import-untyped]
from markdown_it.tree import SyntaxTreeNode
from myst_parser.mdit_to_docutils.sphinx_ import SphinxRenderer
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.osutil import relative_uri

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
#: Which page shows a Markdown file from outside docs/: the one that includes it.
INCLUDED = {"README.md": "index"}
for _page in sorted((DOCS / "project").glob("*.md")):
    for _line in re.findall(r"^```\{include\} (\S+)$", _page.read_text(encoding="utf-8"), re.MULTILINE):
        _file = (_page.parent / _line).resolve().relative_to(ROOT).as_posix()
        INCLUDED[_file] = f"project/{_page.stem}"
#: How the files that pages link to are highlighted.
LANGUAGES = {
    ".html": "html",
    ".js": "javascript",
    ".json": "json",
    ".md": "markdown",
    ".mjs": "javascript",
    ".py": "python",
    ".sh": "bash",
    ".sql": "sql",
    ".toml": "toml",
    ".ts": "typescript",
    ".yaml": "yaml",
    ".yml": "yaml",
}


def page_of(path: Path) -> str | None:
    """Give the name of the page that shows a Markdown file, if there is one."""
    if path.suffix != ".md" or not path.is_file():
        return None
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).with_suffix("").as_posix()
    return INCLUDED.get(path.relative_to(ROOT).as_posix())


def target_of(written_in: Path, link: str) -> Path | None:
    """Give the file that a link in a file means; of a folder its README or index; None outside the repository."""
    path = Path(os.path.normpath(written_in.parent / unquote(link)))
    if not path.is_relative_to(ROOT) or not path.exists():
        return None
    if path.is_dir():
        inside = [path / name for name in ("README.md", "index.md") if (path / name).is_file()]
        return inside[0] if inside else path
    return path


class Renderer(SphinxRenderer):
    """MyST's renderer, with links that are looked up from the file they are written in."""

    def render_link_unknown(self, token: SyntaxTreeNode) -> None:
        """Make a link to a page, or to the page of a file."""
        path, mark, anchor = str(token.attrGet("href") or "").partition("#")
        target = target_of(Path(self.document["source"]), path)
        page = target and page_of(target)
        if page:
            here = PurePosixPath(self.sphinx_env.docname).parent
            token.attrs["href"] = os.path.relpath(f"{page}.md", here) + mark + anchor
            super().render_link_unknown(token)
        elif target is None:
            super().render_link_unknown(token)  # a label of the documentation, or a mistake to be warned of
        elif target.is_dir():
            self.render_children(token)
        else:
            name = target.relative_to(ROOT).as_posix()
            noted(self.sphinx_env).setdefault(self.sphinx_env.docname, set()).add(name)
            link = nodes.reference(internal=True, refuri=uri_of(self.sphinx_env, name))
            self.add_line_and_source_path(link, token)
            with self.current_node_context(link, append=True):
                self.render_children(token)


def noted(env: BuildEnvironment) -> dict[str, set[str]]:
    """Give the files that each page links to."""
    if not hasattr(env, "repository_files"):
        env.repository_files = {}  # type: ignore[attr-defined]
    found: dict[str, set[str]] = env.repository_files  # type: ignore[attr-defined]
    return found


def uri_of(env: BuildEnvironment, name: str) -> str:
    """Give the address of a file's page, as seen from the page that is being read."""
    builder = env.app.builder
    return relative_uri(builder.get_target_uri(env.docname), builder.get_target_uri(f"files/{name}"))


def purge(_app: Sphinx, env: BuildEnvironment, page: str) -> None:
    """Forget what a page linked to, because it is read anew."""
    noted(env).pop(page, None)


def merge(_app: Sphinx, env: BuildEnvironment, pages: list[str], other: BuildEnvironment) -> None:
    """Take over what another process noted."""
    noted(env).update({page: names for page, names in noted(other).items() if page in pages})


PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{name} - hushquery</title>
<link rel="stylesheet" href="{up}_static/pygments.css">
<link rel="stylesheet" href="{up}_static/file.css">
</head>
<body>
<p><a href="{up}index.html">hushquery</a> / <strong>{name}</strong> <a href="{file}" download>download</a></p>
{shown}
</body>
</html>
"""


def write_files(app: Sphinx, problem: Exception | None) -> None:
    """Write a page for each file that is linked to, and put the file itself beside it.

    These pages do not carry the contents of the whole site: there are many, and that would take a while.
    """
    for name in sorted({name for names in noted(app.env).values() for name in names} if problem is None else ()):
        copy = Path(app.outdir) / "files" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy)
        text = copy.read_text(encoding="utf-8", errors="replace")
        language = LANGUAGES.get(copy.suffix, "text")
        shown = app.builder.highlighter.highlight_block(text, language)  # type: ignore[attr-defined]
        page = PAGE.format(name=name, up="../" * (name.count("/") + 1), file=copy.name, shown=shown)
        copy.with_name(f"{copy.name}.html").write_text(page, encoding="utf-8")


def plain_formula(self: Any, node: nodes.Element) -> None:
    """Write a formula as it is."""
    self.body.append(self.starttag(node, "code", "", CLASS="formula") + self.encode(node.astext()) + "</code>")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Join in."""
    parser: Any = myst_parser.parsers.sphinx_
    parser.SphinxRenderer = Renderer  # the parser has no other way in
    app.add_html_math_renderer("repository", (plain_formula, None), (plain_formula, None))
    app.connect("env-purge-doc", purge)
    app.connect("env-merge-info", merge)
    app.connect("build-finished", write_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
