"""The documentation builds without a warning, all its links lead somewhere, and every public name is in it.

The site is built once, by the command that ``make docs`` runs; all tests that look at it run in one of pytest's
processes.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import ParamSpec, TypeVar
from urllib.parse import unquote, urlsplit

import pytest

import hushquery
from links import BuiltPage, broken_in_markdown, broken_in_pages, built_pages, markdown_files, outside, slugs

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
BIN = Path(sys.executable).parent
pytestmark = pytest.mark.xdist_group("docs")


# ---- the build -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """The built site."""

    folder: Path
    pages: dict[Path, BuiltPage]
    inventory: dict[str, str]  # of each Python name its kind


def make_docs() -> list[str]:
    """The command of ``make docs``."""
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ndocs: ")[2].partition("\n\n")[0]
    [command] = [line for line in recipe.splitlines() if "sphinx-build" in line]
    return shlex.split(command.replace("$(BIN)", str(BIN)))


def read_inventory(path: Path) -> dict[str, str]:
    """The Python names of an inventory, each with its kind."""
    data = path.read_bytes()
    for _ in range(4):
        _, _, data = data.partition(b"\n")
    lines = zlib.decompress(data).decode().splitlines()
    entries = [line.split(" ")[:2] for line in lines]
    return {name: kind.removeprefix("py:") for name, kind in entries if kind.startswith("py:")}


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site") / "html"
    *command, source, _target = make_docs()
    command += ["-d", str(folder.parent / "doctrees"), source, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    # Pages of files of the repository are highlighted source under a line of ours; a test below looks at one.
    return Site(folder, built_pages(folder, without="files"), read_inventory(folder / "objects.inv"))


def test_warnings_are_errors() -> None:
    assert {"-W", "-n", "--keep-going"} <= set(make_docs())


def test_it_builds_without_a_warning(site: Site) -> None:
    assert (site.folder / "index.html").is_file()
    written = {path.relative_to(DOCS).with_suffix(".html") for path in sources()}
    assert written <= {path.relative_to(site.folder) for path in site.pages}


def test_it_loads_nothing_from_outside(site: Site) -> None:
    assert not outside(site.folder, site.pages)


# ---- links -----------------------------------------------------------------------------------------------------------


def sources() -> list[Path]:
    return [path for path in markdown_files(ROOT) if path.is_relative_to(DOCS)]


def test_links_of_markdown_files_lead_somewhere() -> None:
    files = markdown_files(ROOT)
    assert {ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "js/README.md", DOCS / "index.md"} <= set(files)
    assert not broken_in_markdown(files, ROOT)


def test_links_of_built_pages_lead_somewhere(site: Site) -> None:
    assert not broken_in_pages(site.pages, site.folder)


def test_files_of_the_repository_have_pages(site: Site) -> None:
    page = site.folder / "files/tools/reference.py.html"
    shown = page.read_text(encoding="utf-8")
    assert "def cli_page" in re.sub(r"<[^>]+>", "", shown)
    assert page.with_suffix("").read_bytes() == (ROOT / "tools/reference.py").read_bytes()
    assert not broken_in_pages(built_pages(page.parent), site.folder)
    assert not outside(page.parent, built_pages(page.parent))
    assert "../files/tools/reference.py.html" in site.pages[site.folder / "reference/index.html"].links


def test_every_page_can_be_reached_from_the_first(site: Site) -> None:
    first = site.folder / "index.html"
    found, waiting = {first}, [first]
    while waiting:
        path = waiting.pop()
        links = {(path.parent / unquote(urlsplit(link).path)).resolve() for link in site.pages[path].contents}
        new = {target for target in links if target in site.pages} - found
        found |= new
        waiting += new
    written = {(site.folder / path.relative_to(DOCS)).with_suffix(".html") for path in sources()}
    assert not written - found


MARKDOWN = """\
# One & two: `three`

# Two

# Two

(a-label)=
[here](#two-1) [there](other.md#far_away) [folder](sub) [line](code.py#L2) [label](#a-label) ![picture](<a b.png>)

| a [cell](sub/none.md) |
|---|

[gone](gone.md) [no heading](other.md#near) [no line](code.py#L3) [out](../secret) [own](#three)
`[code](nothing.md)` [outside](https://example.org/none) [mail](mailto:somebody@example.org)
"""


def test_broken_links_of_markdown_are_found(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name, text in {"a.md": MARKDOWN, "other.md": "## Far_away\n", "code.py": "1\n2\n", "a b.png": ""}.items():
        (tmp_path / name).write_text(text)
    assert slugs(tmp_path / "a.md") == {"one--two-three", "two", "two-1", "a-label"}
    (tmp_path / "sub/page.md").write_text("```{include} ../other.md\n```\n")
    assert slugs(tmp_path / "sub/page.md") == {"far_away"}
    broken = broken_in_markdown(markdown_files(tmp_path), tmp_path)
    assert [line.partition(": ")[2] for line in broken] == [
        "sub/none.md: there is no such file",
        "gone.md: there is no such file",
        "other.md#near: there is no heading #near",
        "code.py#L3: there is no line #L3",
        "../secret: leads out of the repository",
        "#three: there is no heading #three",
    ]
    assert broken[0].startswith("a.md:10")


PAGE = """\
<html><head><link rel="stylesheet" href="https://fonts.example.org/a.css"><script src="b.js?v=1"></script></head>
<body id="top"><a href="#top">up</a><a href="other.html#there">on</a><a href="https://example.org">out</a>
<a href="#bottom">down</a><a href="other.html#here">x</a><a href="gone.html">y</a><img src="//example.org/x.png">
<dl><dt class="sig sig-object py" id="a.b">b</dt><dd><p>Something.</p>
<dl><dt class="sig sig-object py" id="a.b.c">c</dt><dd></dd></dl></dd></dl></body></html>
"""


def test_broken_links_and_loads_of_pages_are_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(PAGE)
    (tmp_path / "other.html").write_text('<p id="there">')
    (tmp_path / "b.js").write_text("")
    (tmp_path / "c.css").write_text("@font-face { src: url('https://fonts.example.org/x.woff2'); } a { b: url(x.png) }")
    pages = built_pages(tmp_path)
    assert [line.split(": ")[1] for line in broken_in_pages(pages, tmp_path)] == [
        "#bottom",
        "gone.html",
        "other.html#here",
    ]
    assert outside(tmp_path, pages) == [
        "index.html: https://fonts.example.org/a.css",
        "index.html: //example.org/x.png",
        "c.css: https://fonts.example.org/x.woff2",
    ]
    assert pages[tmp_path / "index.html"].described == {"a.b": "Something.", "a.b.c": ""}


# ---- names -----------------------------------------------------------------------------------------------------------


def public_modules() -> list[str]:
    """Every module that can be imported under a public name; the command line has a page of its own."""
    found = [item.name for item in pkgutil.walk_packages(hushquery.__path__, "hushquery.")]
    hidden = [name for name in found if "._" in name or name == "hushquery.cli" or name.startswith("hushquery.cli.")]
    return [name for name in found if name not in hidden]


def public_names(module: ModuleType) -> list[str]:
    """What a module offers: its ``__all__``, or what it defines under a public name; type variables are no offer."""
    items = {name: item for name, item in vars(module).items() if not isinstance(item, TypeVar | ParamSpec)}
    own = [name for name, item in items.items() if getattr(item, "__module__", "") == module.__name__]
    return list(getattr(module, "__all__", None) or [name for name in own if not name.startswith("_")])


def members(item: object) -> list[str]:
    """The methods and properties that a public class defines."""
    if not inspect.isclass(item) or hasattr(item, "model_fields"):
        return []
    kinds = (property, classmethod, staticmethod)
    return [
        name
        for name, value in vars(item).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, kinds))
    ]


def test_every_name_of_the_front_is_in_the_reference(site: Site) -> None:
    assert not {f"hushquery.{name}" for name in hushquery.__all__} - set(site.inventory)


def test_every_public_name_is_in_the_reference(site: Site) -> None:
    missing = []
    for name in public_modules():
        module = importlib.import_module(name)
        assert site.inventory.get(name) == "module", f"{name} is not in the reference: run `make reference`"
        for public in public_names(module):
            item = getattr(module, public)
            wanted = [f"{name}.{public}"]
            if getattr(item, "__module__", name) == name:
                wanted += [f"{name}.{public}.{member}" for member in members(item)]
            missing += [each for each in wanted if each not in site.inventory]
    assert not missing


def test_nothing_private_and_nothing_undocumented_is_in_the_reference(site: Site) -> None:
    private = [name for name in site.inventory if re.search(r"\._", name) and name != "hushquery.__version__"]
    assert not private
    empty = [name for page in site.pages.values() for name, said in page.described.items() if not said]
    assert not empty
    described = {name for page in site.pages.values() for name in page.described}
    assert not {name for name, kind in site.inventory.items() if kind != "module"} - described


# ---- what `make reference` writes ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    """tools/reference.py as a module."""
    spec = importlib.util.spec_from_file_location("reference_tool", ROOT / "tools/reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_current(reference: ModuleType) -> None:
    wanted = reference.pages()
    stale = [path for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    gone = set((DOCS / "reference").rglob("*.md")) - set(wanted)
    assert not [*stale, *gone], "run `make reference`"


def test_the_front_page_has_every_name_once(reference: ModuleType) -> None:
    listed = [name for names in reference.FRONT.values() for name in names]
    assert sorted(listed) == sorted(hushquery.__all__)


def test_every_package_has_a_page(reference: ModuleType) -> None:
    found = {item.name for item in pkgutil.iter_modules(hushquery.__path__) if not item.name.startswith("_")}
    assert found - {"cli"} == set(reference.PACKAGES)


def test_help_becomes_markdown(reference: ModuleType) -> None:
    text = reference.prose(
        """Do it. With --json, or a_b <c>.

        hushquery do --it

            hushquery do \\
                --more

        All of *this* counts:
        it goes on."""
    )
    assert text == (
        "Do it. With `--json`, or a\\_b \\<c>.\n\n"
        "```bash\nhushquery do --it\n\nhushquery do \\\n    --more\n```\n\n"
        "All of \\*this\\* counts:\nit goes on."
    )


def test_every_command_is_on_its_page(reference: ModuleType) -> None:
    page = reference.cli_page()
    from hushquery.cli.commands import COMMANDS, GROUPS

    assert {f"\n## hushquery {name}\n" in page for name in (*COMMANDS, *GROUPS)} == {True}
    for shown in (
        "### hushquery collect tokens\n",
        "#### hushquery collect tokens new\n",
        "| `--epsilon E` | required |",
    ):
        assert shown in page
    assert "| `--ledger PATH_OR_URL` | yours, on this machine | The ledger to spend from." in page
    assert "environment variable `HUSHQUERY_LEDGER`" in page
