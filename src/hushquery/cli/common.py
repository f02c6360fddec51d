"""What commands share: options, whose budget is spent, and how results, progress and errors are shown."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from hushquery._version import __version__
from hushquery.errors import AccountMissing, HushqueryError, UsageError

if TYPE_CHECKING:
    from hushquery.core.description import Description
    from hushquery.core.ledger.ledger import Ledger
    from hushquery.log import Log


_NARROW = 74  # characters of a line of an example that every terminal shows
_WIDE = 110  # columns of a terminal from which on the table of options cuts none of them


def option(metavar: str, help: str, *names: str, **more: Any) -> Any:
    """Describe an option: what stands for its value, what it does, and its name where that is not its parameter's."""
    return typer.Option(*names, metavar=metavar, help=help, **more)


def flag(name: str, help: str) -> Any:
    """Describe an option that has no value."""
    return typer.Option(name, help=help)


def argument(metavar: str, help: str) -> Any:
    """Describe an argument: what stands for it, and what it is."""
    return typer.Argument(metavar=metavar, help=help)


def group(name: str, help: str, **more: Any) -> typer.Typer:
    """Make a command that has commands of its own; in a narrow terminal its help has no columns, which cut options."""
    more |= {"no_args_is_help": True, "context_settings": {"help_option_names": ["-h", "--help"]}, "cls": _Group}
    more["rich_markup_mode"] = "rich" if shutil.get_terminal_size().columns >= _WIDE else None
    return _Commands(name=name, help=help, **more)


class _Examples:
    """Help that leaves the lines of its examples alone."""

    help: str | None
    rich_markup_mode: Any

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; a paragraph that begins with a command is an example, and no line of it is joined."""
        told = inspect.cleandoc(self.help or "")
        self.help = "\n\n".join(
            _example(one, plain=self.rich_markup_mode is None) if one.lstrip().startswith("hushquery ") else one
            for one in told.split("\n\n")
        )
        try:
            super().format_help(ctx, formatter)  # type: ignore[misc]  # of the class that this is mixed into
        finally:
            self.help = told


def _example(text: str, *, plain: bool) -> str:
    """Write examples one below the other; in plain help narrow, as a shell takes them, with comments above."""
    if not plain:
        return textwrap.dedent(text)
    lines = ["\b"]  # how plain help marks a paragraph that is not to be wrapped
    for line in re.sub(r"\\\n\s*", "", text).split("\n"):
        command, _, comment = line.strip().partition(" # ")
        lines += [f"    # {comment}"] if comment else []
        lines.append("   ")
        for word in re.findall(r"""(?:--[\w-]+ (?![-#]))?(?:"[^"]*"|'[^']*'|\S)+""", command):
            if len(lines[-1]) + len(word) > _NARROW:
                lines[-1:] = [f"{lines[-1]} \\", "       "]
            lines[-1] += f" {word}"
    return "\n".join(lines)


class _Command(_Examples, TyperCommand):
    pass


class _Group(_Examples, TyperGroup):
    pass


class _Commands(typer.Typer):
    def command(self, name: str | None = None, **more: Any) -> Any:
        return super().command(name, **({"cls": _Command} | more))


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take dataclasses of options: Typer sees each of their fields as a parameter of the command."""
    parameters, groups = list[inspect.Parameter](), dict[str, Any]()
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        if not is_dataclass(parameter.annotation):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[name] = parameter.annotation
        hints = get_type_hints(parameter.annotation, include_extras=True)
        for field in fields(parameter.annotation):
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(field.name, kind, default=default, annotation=hints[field.name]))

    @wraps(command)
    def run(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what inspect looks for
    return run


JsonFlag = Annotated[bool, flag("--json", "Print the result as JSON instead of text.")]
Explain = Annotated[bool, flag("--explain", "Only show the plan and its cost; spend and read nothing.")]


def _ledger(given: str) -> str:
    """Return the ledger that is meant: the one given, else that of this person on this machine, in every folder."""
    if given:
        return given
    from hushquery.core.ledger.store import default_ledger

    place = default_ledger()
    if Path("ledger.db").is_file():
        note(f"ledger.db in this folder is not used, but your ledger {place}; to use it: --ledger ledger.db")
    return place


def ledger_option(help: str, metavar: str = "PATH_OR_URL", **more: Any) -> Any:
    """Describe the option for a ledger; its default is the same in every folder, so that `cd` resets no budget."""
    return option(metavar, help, "--ledger", callback=_ledger, show_default="yours, on this machine", **more)


LedgerOption = Annotated[str, ledger_option("The ledger to spend from.", envvar="HUSHQUERY_LEDGER")]
Anyway = Annotated[
    bool, flag("--anyway", "Go on although epsilon is above 20, delta above 1/users, or the threshold above users.")
]
NewPopulation = Annotated[
    bool,
    flag(
        "--new-population",
        "These are other people than those of an account with nearly the same name (users of 2025, of 2026).",
    ),
]
Engine = Annotated[
    str | None,
    option(
        "URL",
        "Where to count: spark (this machine), spark://host:port, or postgresql://user@host/database. LOG is then "
        "one of its tables, or for Spark Parquet files that all its machines see. By default DuckDB counts here. "
        "Leave a password to PGPASSWORD or a password file; it is never shown.",
        envvar="HUSHQUERY_ENGINE",
    ),
]
LogFiles = Annotated[
    list[str],
    argument(
        "LOG...",
        "The log: files, folders or a quoted pattern such as 'logs/*.tsv.gz'; with --engine the name of its table.",
    ),
]
Format = Annotated[
    str | None,
    option(
        "FORMAT",
        "aol, sogou, yandex, excite, csv, tsv, parquet or jsonl; by default what the ending says, "
        "with columns user, time, query, url, rank.",
    ),
]
Columns = Annotated[
    list[str] | None,
    option(
        "OURS=THEIRS,...",
        'Their names for our columns: "user=Customer ID,query=Query", or places from 1: user=2,query=3; time= does '
        "without that column. May be repeated. One user is one value of the column for user.",
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first line of a CSV or TSV file names the columns; without, --columns are places from 1. "
        "By default it does, unless it looks like a row: then you are asked.",
    ),
]
Separator = Annotated[
    str | None,
    option("SIGN", "What is between the cells of a CSV file: ',' ';' '|' or tab; by default its header decides."),
]
Encoding = Annotated[
    str, option("NAME", "The encoding of text files: utf-16 (spreadsheets' Unicode text), gb18030, cp1252, ...")
]
TimeFormat = Annotated[
    str | None,
    option("FORM", "How times are written that are neither ISO nor numbers: '%d.%m.%Y %H:%M', '%m/%d/%Y %I:%M %p'."),
]


@dataclass(frozen=True)
class LogOptions:
    """How a search log is read."""

    engine: Engine = None
    format: Format = None
    columns: Columns = None
    header: Header = None
    separator: Separator = None
    unwrap: Annotated[
        str | None, option("SIGNS", "Two characters to take off where they enclose a query: '[]' or '<>'.")
    ] = None
    drop: Annotated[Path | None, option("FILE", "A deny list: queries that hold one of its lines are left out.")] = None
    exclude_users: Annotated[Path | None, option("FILE", "Users who objected, one id a line.")] = None
    no_patterns: Annotated[
        bool, flag("--no-patterns", "Do not leave out queries with e-mail, phone, card or identity numbers.")
    ] = False
    since: Annotated[str | None, option("TIME", "Only rows from this time on (ISO, or a number).")] = None
    until: Annotated[str | None, option("TIME", "Only rows before this time.")] = None
    strict: Annotated[bool, flag("--strict", "Refuse a log with malformed rows (costs a second pass).")] = False
    private_report: Annotated[
        Path | None,
        option(
            "FILE", "Write what is wrong with the log, by kind with line numbers. For your eyes only: never publish it."
        ),
    ] = None
    encoding: Encoding = "utf-8"
    time_unit: Annotated[str | None, option("s|ms", "What times that are numbers count.")] = None
    time_format: TimeFormat = None

    def arguments(self) -> dict[str, Any]:
        """Return what :func:`hushquery.read_log` is asked for."""
        given = {field.name: getattr(self, field.name) for field in fields(LogOptions)}
        del given["no_patterns"], given["private_report"]
        changed = {"columns": columns_of(self.columns), "separator": sign(self.separator)}
        return given | changed | {"patterns": not self.no_patterns}

    def open(self, files: list[str], *, normalise: bool = True) -> Log:
        """Open a log, and name its column of users where not obvious; the steward's report precedes any spending."""
        from hushquery.log import read_log
        from hushquery.log.columns import quote_name

        log = read_log(files[0] if len(files) == 1 else files, normalise=normalise, **self.arguments())
        names = columns_of(self.columns)
        user = (names or {}).get("user", "user")
        if user.lower() != "user":
            shown = user if user.isdecimal() else quote_name(user)
            note(f"one user is one value of the column {shown}")
        if self.private_report is not None:
            defects = log.describe_defects()
            write_secret(self.private_report, json.dumps(defects.to_json(), indent=2) + "\n")
            typer.echo(f"private report (never publish it): {self.private_report}: {defects.in_short()}", err=True)
        if self.strict:
            log.refuse_defects()
        return log


def tell_left_out(log: Log) -> None:
    """Warn the steward, never the public, where many lines of a log that was just read are no rows."""
    from hushquery.log import MANY

    share, why = log.left_out()
    if share > MANY:
        warn(
            f"about {share:.0%} of the log's lines were left out ({why}). The budget is spent, and what was published "
            "counts the other lines only. Only you see this. Before you give it away or spend again: "
            "`hushquery look` shows which lines, and how to read them"
        )


def pairs(text: str | None, which: str, *, empty: bool = False) -> dict[str, str] | None:
    """Read ``a=b,c=d``; with ``empty`` also ``a=``."""
    if text is None:
        return None
    parts = [part.partition("=") for part in text.split(",") if part.strip()]
    if not parts or any(not name.strip() or not (value.strip() or (empty and mark)) for name, mark, value in parts):
        raise UsageError(f"{which} can't be read", fix=f"Write it like {which} a=b,c=d")
    values = {name.strip(): value.strip() for name, _, value in parts}
    if len(values) < len(parts):
        raise UsageError(f"{which} names something twice", fix="Name each once")
    return values


def columns_of(texts: list[str] | None) -> dict[str, str] | None:
    """Add up what every ``--columns`` says; refuse two names for one column."""
    names: dict[str, str] = {}
    for text in texts or ():
        for ours, theirs in (pairs(text, "--columns", empty=True) or {}).items():
            if names.setdefault(ours, theirs) != theirs:
                raise UsageError(f"--columns names two columns for {ours}", fix="Name one, or nothing to do without it")
    return names or None


def sign(separator: str | None) -> str | None:
    """Return the character that a name of a separator stands for, which a shell makes hard to type."""
    return {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "\\x01": "\x01"}.get(str(separator), separator)


def read_texts(path: Path | None) -> list[str] | None:
    """Read the texts of a file, one per line; None where no file is named."""
    if path is None:
        return None
    from hushquery.local.rappor.files import read_lines

    return [line for line in read_lines(path) if line]


Title = Annotated[str | None, option("TEXT", "What it is called, for people. Public.")]
Period = Annotated[
    str | None,
    option("START..END", "The first and last day of the data: 2026-11-02..2026-11-08; else by --since and --until."),
]


@dataclass(frozen=True)
class Described:
    """What the release says of itself; all of it is public."""

    title: Title = None
    publisher: Annotated[str | None, option("WHO", "Who publishes it.")] = None
    licence: Annotated[str | None, option("SPDX", "Its licence: CC-BY-4.0, CC0-1.0, or a short text.")] = None
    period: Period = None
    contact: Annotated[str | None, option("MAIL_OR_URL", "A mail address, or an https:// address.")] = None

    def with_people(self, people: int | None) -> Description:
        """Return the description, with a declared number of people."""
        from hushquery.core.description import Description

        return Description(self.title, self.publisher, self.licence, self.period, self.contact, people)


@dataclass(frozen=True)
class Spending:
    """Which ledger is spent from, and which accounts may be opened in it."""

    ledger: LedgerOption = ""
    no_create: Annotated[bool, flag("--no-create", "Refuse (exit code 3) when an account does not exist yet.")] = False
    new_population: NewPopulation = False
    anyway: Anyway = False

    @contextmanager
    def open(self, plan: Any, population: str, users: int | None) -> Iterator[tuple[Ledger, dict[str, Any]]]:
        """Check the plan, then yield the ledger and how the plan may run; then print what is left."""
        from hushquery.core.ledger.ledger import Ledger

        plan.check_before_spend(users, anyway=self.anyway)
        book = Ledger.open(self.ledger, create=not self.no_create)
        before, entries = {account.name for account in book.accounts()}, len(book.history())
        new = may_be_new(book, population, new=self.new_population)
        how = {"create": not self.no_create, "new_population": new, "users": users, "anyway": self.anyway}
        yield book, how
        spent = {(entry.population, entry.relation) for entry in book.history()[entries:] if entry.loss is not None}
        for account in book.accounts():
            if (account.population, account.relation) in spent:
                created = account.name not in before
                counted = "" if created or not account.counted else f"; {account.counted}"
                note(f"{account.after_spend(created=created)} (ledger: {book.name}{counted})")


def named(population: str | None, ledger: str, *, explain: bool = False) -> str:
    """Return whose privacy is spent, which only the person who spends can know; to look at a plan needs no name."""
    if population is not None:
        return population
    if explain:
        return "(no population named)"
    book = _existing(ledger)
    known = sorted({f'"{account.population}"' for account in book.accounts()}) if book else []
    shown = f", or one that is known to the ledger: {', '.join(known[:10])}" if known else ""
    raise UsageError(
        "--population is missing: whose data is this?",
        why="The ledger keeps one budget for each population, whatever files, copies and tables their data is in",
        fix=f"Use --population NAME, such as 'readers of example.org', always the same for the same people{shown}",
    )


def at_a_terminal() -> bool:
    """Return whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def may_be_new(ledger: Ledger | str, population: str, *, new: bool) -> bool:
    """Return whether an account beside one of nearly the same name may be opened: as the option says, else ask."""
    if new or not at_a_terminal():
        return new
    book = _existing(ledger) if isinstance(ledger, str) else ledger
    near = book.near(population) if book else None
    if near is None:
        return new
    question = f'There is already a population "{near}". Are "{population}" other people, with a budget of their own?'
    return typer.confirm(question, default=False, err=True)


def _existing(ledger: str) -> Ledger | None:
    from hushquery.core.ledger.ledger import Ledger

    try:
        return Ledger.open(ledger, create=False)
    except AccountMissing:
        return None


def _version(show: bool) -> None:
    if show:
        typer.echo(f"hushquery {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Learn what a crowd searches for and clicks on without learning what any one person searched for."""
    del version


def emit(data: dict[str, Any], text: str, as_json: bool) -> None:
    """Print a result on standard output: JSON where asked for, else text."""
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) if as_json else text)


def emit_plan(plan: Any, as_json: bool, users: int | None = None, *, anyway: bool = False) -> None:
    """Print a plan: every step with its cost, and in JSON also its SQL and its guarantee."""
    plan.check(users, anyway=anyway)
    text = plan.explain(users)
    emit({"plan": text, "sql": plan.sql(), "guarantee": plan.guarantee.to_json()}, text, as_json)


def note(text: str) -> None:
    """Print a note on standard error."""
    typer.echo(f"note: {text}", err=True)


def warn(text: object) -> None:
    """Print a warning on standard error."""
    typer.secho(f"warning: {text}", err=True, fg=typer.colors.YELLOW)


def sizes_in_words(sizes: Mapping[str, int]) -> str:
    """Write how many rows each table has, by its name."""
    from hushquery.templates import plural

    return ", ".join(f"{rows:,} {plural(rows, name)}" for name, rows in sizes.items())


@contextmanager
def progress(description: str, total: float | None = None) -> Iterator[Callable[..., None]]:
    """Show a progress bar on standard error if it is a terminal, and yield what moves it: ``show(what, done)``."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(description, total=total)
        yield lambda what=None, done=None, more=None: bar.update(task, description=what, completed=done, advance=more)


@contextmanager
def writing(path: Path | str, kind: type[HushqueryError] = UsageError) -> Iterator[None]:
    """Raise an error of hushquery where a file can't be written."""
    try:
        yield
    except FileExistsError:
        raise UsageError(f"{path} exists already", fix="Choose another name, or --force where there is one") from None
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise kind(f"{path} can't be written", why=why, fix="Choose a place where you may write") from None


def write_secret(path: Path, text: str) -> None:
    """Write a file for its owner only; it is never there with other permissions, nor half written."""
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    with writing(path):
        handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                os.fchmod(handle, 0o600)  # a umask may have taken something from the owner too
                file.write(text)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
