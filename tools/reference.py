"""Write docs/reference: the command line from its help, and a page per package that Sphinx fills from docstrings.

``make reference`` runs this. The pages are kept in the repository, so that they can be read and compared without a
build; a test says when they are not current.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import hushquery

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "reference"
NOTE = "<!-- Written by `make reference`. Do not edit: run it again. -->\n"

# ---- the command line ------------------------------------------------------------------------------------------------

CLI_TOP = """\
# Command line

{note}
{help}

```console
$ hushquery COMMAND [OPTIONS] [ARGUMENTS]
$ hushquery COMMAND --help
```

Every command that prints a result takes `--json` and then prints it for programs. Errors say what, why, and what to do.
The exit code is 0 when all went well, else:

| exit code | error | what happened |
|---|---|---|
{codes}

{commands}
"""


def exit_codes() -> str:
    """Give the table of exit codes, from the error tree."""
    errors = importlib.import_module("hushquery.errors")
    classes: list[Any] = [
        item for _, item in inspect.getmembers(errors, inspect.isclass) if item.__module__ == errors.__name__
    ]
    own = [item for item in classes if "exit_code" in vars(item)]
    rows = sorted((item.exit_code, item.__name__, first_sentence(item.__doc__)) for item in own)
    return "\n".join(f"| {code} | [`{name}`](api/errors.md) | {cell(told([text]))} |" for code, name, text in rows)


def first_sentence(text: str | None) -> str:
    """Give the first sentence of a docstring, on one line."""
    words = " ".join((text or "").strip().split("\n\n")[0].split())
    end = re.search(r"(?<! al)\. ", words)
    return words if end is None else words[: end.start() + 1]


def cell(text: str) -> str:
    """Make a text fit into a cell of a Markdown table."""
    return text.replace("|", "\\|")


def is_example(lines: list[str]) -> bool:
    """Whether a paragraph of help is something to type: it is indented, or each line begins with the program's name."""
    if all(line.startswith("    ") for line in lines):
        return True
    return lines[0].startswith("hushquery ") and all(line.startswith(("hushquery ", " ")) for line in lines)


def prose(help_text: str) -> str:
    """Write help as Markdown: what is to be typed in blocks of its own, and options in the text as code."""
    paragraphs: list[tuple[bool, list[str]]] = []
    for chunk in inspect.cleandoc(help_text).replace("\b\n", "").split("\n\n"):
        lines = [line.rstrip() for line in chunk.splitlines() if line.strip()]
        if not lines:
            continue
        example = is_example(lines)
        if example and paragraphs and paragraphs[-1][0]:
            paragraphs[-1][1].extend(["", *inspect.cleandoc("\n" + "\n".join(lines)).splitlines()])
        else:
            paragraphs.append((example, inspect.cleandoc("\n" + "\n".join(lines)).splitlines()))
    return "\n\n".join(typed(lines) if example else told(lines) for example, lines in paragraphs)


def typed(lines: list[str]) -> str:
    """Write lines to be typed."""
    return "\n".join(["```bash", *lines, "```"])


def told(lines: list[str]) -> str:
    """Write lines of prose; what Markdown would take for its own is marked as code or escaped."""
    words = []
    for line in lines:
        for word in line.split(" "):
            bare = word.strip("().,;:'\"")
            if "`" not in word and re.fullmatch(r"--[a-z][\w-]*|[A-Z]+(_[A-Z]+)+", bare):
                word = word.replace(bare, f"`{bare}`")
            elif "`" not in word:
                word = word.replace("<", "\\<").replace("*", "\\*").replace("_", "\\_").replace("[", "\\[")
            words.append(word)
        words.append("\n")
    return " ".join(words).replace(" \n ", "\n").replace("``", "`").strip()


def default_of(parameter: Any) -> str:
    """Say what holds when an option is left out; nothing where leaving it out simply means without it."""
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    value = parameter.default
    if value is None or value is False or value == "" or value == [] or value == () or callable(value):
        return ""
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return "yes" if value is True else f"`{shown}`"


def takes_what(parameter: Any) -> str:
    """Name what a parameter takes: FILE, N; with dots where it takes several."""
    if parameter.param_type_name == "argument":
        name: str = parameter.metavar or parameter.name.upper()
        return name if parameter.nargs == 1 or "..." in name else f"{name}..."
    kind = getattr(parameter.type_descriptor.annotation, "__name__", "")
    return str(parameter.metavar or {"int": "N", "float": "X", "Path": "PATH"}.get(kind, "TEXT"))


def row(parameter: Any) -> str:
    """Write one argument or option as a row of a table."""
    if parameter.param_type_name == "argument":
        name = f"`{takes_what(parameter)}`"
    else:
        takes = "" if parameter.is_flag else f" {takes_what(parameter)}"
        name = ", ".join(f"`{spelled}{takes}`" for spelled in [*parameter.opts, *parameter.secondary_opts])
    text = parameter.help or ""
    if getattr(parameter, "multiple", False) and "several times" not in text and "repeated" not in text:
        text += " May be given several times."
    if parameter.envvar:
        text += f" Also from the environment variable `{parameter.envvar}`."
    return f"| {cell(name)} | {default_of(parameter)} | {cell(told(text.splitlines()))} |"


def usage(path: str, command: Any) -> str:
    """Write how a command is called."""
    needed = [item for item in command.params if item.required and item.param_type_name == "option"]
    words = [path, *(f"{item.opts[0]} {takes_what(item)}" for item in needed)]
    words += ["[OPTIONS]"] if len(command.params) > len(needed) else []
    words += [takes_what(item) for item in command.params if item.param_type_name == "argument"]
    return " ".join(words)


def command_text(path: str, command: Any, level: int) -> str:
    """Write a command, and its own commands below it."""
    head = f"{'#' * level} {path}\n\n{prose(command.help or '')}"
    parts = [head]
    inner = getattr(command, "commands", {})
    if inner:
        parts.append("\n".join(summary(f"{path} {name}", item) for name, item in inner.items()))
    else:
        parts.append(f"```text\n{usage(path, command)}\n```")
    rows = [row(item) for item in command.params if not item.hidden and "completion" not in item.name]
    if rows:
        parts.append("\n".join(["| argument or option | default | |", "|---|---|---|", *rows]))
    parts += [command_text(f"{path} {name}", item, level + 1) for name, item in inner.items()]
    return "\n\n".join(parts)


def anchor(path: str) -> str:
    """Give the name by which other pages link to a command: hushquery-budget-open."""
    return path.replace(" ", "-")


def summary(path: str, command: Any) -> str:
    """Write a command as an item of a list."""
    return f"- [`{path}`](#{anchor(path)}): {told([first_sentence(command.help)])}"


def cli_page() -> str:
    """Write the page of the command line."""
    import typer

    from hushquery.cli.commands import command_line

    root: Any = typer.main.get_command(command_line())
    texts = [command_text(f"hushquery {name}", command, 2) for name, command in root.commands.items()]
    listed = "\n".join(summary(f"hushquery {name}", command) for name, command in root.commands.items())
    commands = f"## All commands\n\n{listed}\n\n" + "\n\n".join(texts)
    return CLI_TOP.format(note=NOTE, help=prose(root.help), codes=exit_codes(), commands=commands)


# ---- packages --------------------------------------------------------------------------------------------------------

#: The front page, by what one comes for. A test compares it with ``hushquery.__all__``.
FRONT = {
    "Logs": ["look", "Look", "advise", "Advice", "read_log", "Log"],
    "Curator: publish a log": ["plan_release", "ReleasePlan"],
    "Local: nobody is trusted": [
        "Task",
        "report",
        "Reported",
        "fetch_task",
        "Client",
        "Sender",
        "estimate",
        "ClientEstimate",
    ],
    "Hybrid: some opt in": ["plan_head", "HeadPlan", "PublishedHead", "blend"],
    "Releases, and using them": ["load", "Release", "Description", "SigningKey", "verify", "SearchIndex"],
    "Statistics of any table": ["plan_statistic", "StatisticPlan", "statistics", "Estimates"],
    "Budget, guarantee, ledger": ["Budget", "Guarantee", "Ledger", "Loss", "Relation", "Unit", "compose"],
    "Audit": ["audit"],
    "Errors and warnings": [
        "HushqueryError",
        "BudgetRefused",
        "CalibrationError",
        "DataError",
        "NotReady",
        "Unavailable",
        "UsageError",
        "PrivacyWarning",
    ],
    "Version": ["__version__"],
}
#: The pages of packages, in the order in which a reader meets them. The command line has a page of its own.
PACKAGES = {
    "log": "reading logs, and synthetic ones",
    "curator": "publishing a log: queries, clicks, reformulations",
    "task": "the file on which clients and collector agree",
    "local": "randomizers, clients, reports, estimators",
    "hybrid": "head lists, opt-in estimates, blending",
    "release": "public tables with their guarantee: saved, checked, exported",
    "publish": "using releases: search, suggestions, trends, pages",
    "statistics": "counts, sums, means and histograms of any table",
    "collect": "the collector: storage, phases, HTTP",
    "core": "budgets, losses, composition, guarantees, the ledger",
    "noise": "exact draws and the mechanisms made of them",
    "engine": "where counting happens: DuckDB, Spark, PostgreSQL",
    "auditing": "attacks on mechanisms, and checks of their laws and claims",
    "plan": "what a release, a head list and a statistic share: check, spend, run once",
    "plot": "charts as specifications",
    "templates": "pages, data cards and notebook cells, by Jinja2",
    "errors": "what can go wrong",
}


def modules_of(package: str) -> list[str]:
    """Give the public modules of a package, itself first."""
    module = importlib.import_module(package)
    found = [package]
    if hasattr(module, "__path__"):
        inside = sorted(item.name for item in pkgutil.iter_modules(module.__path__) if not item.name.startswith("_"))
        for name in inside:
            found += modules_of(f"{package}.{name}")
    return found


def public_names(module: ModuleType) -> list[str]:
    """Give the public names of a module: its ``__all__``, or what it defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    own = [name for name, item in vars(module).items() if getattr(item, "__module__", None) == module.__name__]
    return [name for name in own if not name.startswith("_")]


def home(module: ModuleType, name: str) -> str | None:
    """Give the module in which a name that another one offers again is described; None where that is its own."""
    item = getattr(module, name)
    where: str | None = getattr(item, "__module__", None)
    if inspect.isclass(item) or inspect.isfunction(item):
        return where if where != module.__name__ else None
    for statement in ast.parse(inspect.getsource(module)).body:
        if isinstance(statement, ast.ImportFrom) and any(alias.name == name for alias in statement.names):
            return statement.module
    return None


def offered_again(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Give the public names of a module that have their home elsewhere, each with its home."""
    for name in public_names(module):
        where = home(module, name)
        if where is not None:
            yield name, where


def role_of(item: Any) -> str:
    """Say what Sphinx calls a thing."""
    return "class" if inspect.isclass(item) else "function" if inspect.isfunction(item) else "data"


def comment_above(module: ModuleType, name: str) -> str:
    """Give the ``#:`` comment that says what a constant is."""
    lines = inspect.getsource(module).splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith((f"{name} =", f"{name}:")))
    told: list[str] = []
    while lines[place - 1 - len(told)].startswith("#:"):
        told.insert(0, lines[place - 1 - len(told)].removeprefix("#:").strip())
    return " ".join(told)


def in_short(module: ModuleType) -> list[str]:
    """Write a line of Markdown for each class and function of a module: a forge shows nothing of what Sphinx fills."""
    lines = []
    for name in public_names(module):
        item = getattr(module, name)
        if role_of(item) == "data" or item.__module__ != module.__name__:
            continue
        try:
            given = ", ".join(inspect.signature(item).parameters) if inspect.isfunction(item) else None
        except ValueError:
            given = None
        said = re.sub(
            r":[a-z:]+:`~?([^`]*)`", lambda found: f"`{found[1].split('.')[-1]}`", first_sentence(item.__doc__)
        )
        lines.append(f"- `{name}{'' if given is None else f'({given})'}`: {told([said])}")
    return [*lines, ""] if lines else []


def module_text(name: str, level: int) -> str:
    """Write the part of a page that Sphinx fills from one module, after what it holds in short."""
    module = importlib.import_module(name)
    names = public_names(module)
    entries = {}
    for public, where in offered_again(module):
        item = getattr(module, public)
        kind = role_of(item)
        said = first_sentence(item.__doc__) + " " if kind != "data" else ""
        reference = {"class": "class", "function": "func", "data": "data"}[kind]
        entries[public] = (kind, f"{said}From :py:{reference}:`{where}.{public}`.")
    # Of a type with conditions on it Sphinx would write out all conditions.
    conditional = [public for public in names if hasattr(getattr(module, public), "__metadata__")]
    entries |= {public: ("data", comment_above(module, public)) for public in conditional}
    lines = ["```{eval-rst}", f".. automodule:: {name}"]
    if set(entries) == set(names):
        lines.append("   :no-members:")
    elif entries:
        lines.append(f"   :exclude-members: {', '.join(entries)}")
    inner = {other.removeprefix(f"{name}.") for other in modules_of(name)}
    for public, (kind, said) in entries.items():
        lines += ["", f".. py:{kind}:: {public}", f"   :module: {name}", "   :no-contents-entry:"]
        if public in inner:  # one name can have one entry, and the module below has it
            lines.append("   :no-index:")
        lines += ["", f"   {said}"]
    about = told([first_sentence(module.__doc__)])
    return f"{'#' * level} {name}\n\n{about}\n\n" + "\n".join([*in_short(module), *lines, "```"])


def package_page(package: str) -> str:
    """Write the page of a package."""
    first, *others = modules_of(f"hushquery.{package}")
    parts = [module_text(first, 1).replace("\n\n", f"\n\n{NOTE}\n", 1), *(module_text(name, 2) for name in others)]
    return "\n\n".join(parts) + "\n"


def front_page() -> str:
    """Write the page of the names that ``import hushquery`` gives."""
    parts = ["# hushquery", NOTE.strip(), "What `import hushquery as hq` gives. Everything else is in the packages."]
    for title, names in FRONT.items():
        lines = [f"## {title}", "", "```{eval-rst}"]
        for name in names:
            item = getattr(hushquery, name)
            if inspect.ismodule(item):
                lines += [f".. py:data:: {name}", "   :module: hushquery", "   :no-index:", ""]
                lines.append(f"   {first_sentence(item.__doc__)}")
                lines += [f"   The package :py:mod:`hushquery.{name}`.", ""]
            elif name == "__version__":
                lines += [f".. py:data:: {name}", "   :module: hushquery", "   :type: str", "", "   The version.", ""]
            else:
                kind = "exception" if inspect.isclass(item) and issubclass(item, BaseException) else role_of(item)
                lines += [f".. auto{kind}:: hushquery.{name}", ""]
        parts.append("\n".join([*lines[:-1], "```"]))
    return "\n\n".join(parts) + "\n"


def index_page() -> str:
    """Write the page that lists all of the reference."""
    lines = ["# Reference", "", NOTE, "- [Command line](cli.md): every command, with its options and examples"]
    lines.append("- [hushquery](api/hushquery.md): the names that `import hushquery` gives; begin here")
    lines += ["", "By package, from the docstrings:", ""]
    lines += [f"- [hushquery.{name}](api/{name}.md): {text}" for name, text in PACKAGES.items()]
    lines += [
        "",
        "All of it is written by [tools/reference.py](../../tools/reference.py) (`make reference`) and by Sphinx.",
    ]
    lines += ["", "```{toctree}", ":hidden:", "", "cli", "api/hushquery", *(f"api/{name}" for name in PACKAGES), "```"]
    return "\n".join(lines) + "\n"


def tree() -> str:
    """List every file of the package with the first sentence of its docstring, folder by folder."""
    package = ROOT / "src" / "hushquery"
    lines = []
    for path in sorted(package.rglob("*.py"), key=lambda path: (path.parent.parts, path.name)):
        text = first_sentence(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))).rstrip(".")
        if path.name == "__init__.py":
            name = f"{path.parent.relative_to(package.parent)}/"
            lines += ["", f"{name} : {text}"]
        elif path.name not in ("_version.py", "__main__.py"):
            lines.append(f"  {path.name:<18} {text}")
    return "```text\n" + "\n".join(lines).strip() + "\n```\n"


def architecture() -> str:
    """Write ARCHITECTURE.md with the tree of the package as it is."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    start, end = "<!-- the tree, by `make reference` -->\n", "<!-- end of the tree -->\n"
    before, _, rest = text.partition(start)
    return f"{before}{start}{tree()}{end}{rest.partition(end)[2]}"


def pages() -> dict[Path, str]:
    """Give what each page of the reference has to say."""
    made = {TARGET / "index.md": index_page(), TARGET / "cli.md": cli_page().rstrip() + "\n"}
    made[TARGET / "api" / "hushquery.md"] = front_page()
    made[ROOT / "ARCHITECTURE.md"] = architecture()
    return made | {TARGET / "api" / f"{name}.md": package_page(name) for name in PACKAGES}


def main() -> int:
    """Write the pages that are not current, and remove those of packages that are gone."""
    wanted = pages()
    (TARGET / "api").mkdir(parents=True, exist_ok=True)
    for path in {*TARGET.rglob("*.md")} - set(wanted):
        print(f"removing {path.relative_to(ROOT)}")
        path.unlink()
    for path, text in wanted.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"writing {path.relative_to(ROOT)}")
            path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
