"""``hushquery doctor``: what is installed, which engines and stores work, and what to type when one does not.

Each check is a function that really does the thing, small: a query through Ibis, a row in a database. It
gives a detail to show, or raises; ``_check`` turns an exception into a line of the report, so that one broken
part never hides the others.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from hushquery._version import __version__
from hushquery.cli.common import JsonFlag, emit
from hushquery.errors import Unavailable

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

__all__ = ["doctor"]

_OLDEST_JAVA = 17  # what Spark 4 runs on
_JAVA = f"install Java {_OLDEST_JAVA} or newer (on Debian: apt-get install openjdk-17-jre-headless)"
_EXTRA = re.compile(r"""extra\s*==\s*['"]([\w-]+)['"]""")

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Also open this ledger or store: a path, or postgresql://user@host/database. "
        "Leave the password to PGPASSWORD or a password file; it is never shown.",
    ),
]


class _Missing(Exception):
    """A part that is simply not installed, as opposed to one that is there and does not work.

    Args:
        what: What is missing.
        fix: What to type, where that differs from what the check itself advises.
    """

    def __init__(self, what: str, fix: str = "") -> None:
        self.fix = fix
        super().__init__(what)


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    group: str
    name: str
    state: str  # "ok", "missing" or "failed"
    required: bool
    detail: str
    fix: str


def doctor(as_json: JsonFlag = False, store: StoreOption = None) -> None:
    """Say what is installed, which engines and stores work, and what to type when one does not.

    hushquery doctor
    hushquery doctor --store postgresql://analyst@db.example/privacy
    """
    checks = list(_checks(store))
    broken = [check for check in checks if check.required and check.state != "ok"]
    data = {
        "version": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": f"{platform.system()} {platform.machine()}",
        "ok": not broken,
        "checks": [asdict(check) for check in checks],
    }
    emit(data, "" if as_json else _table(checks, broken), as_json=as_json)
    if broken:
        raise typer.Exit(Unavailable.exit_code)


def _checks(store: str | None) -> Iterator[Check]:
    plot, spark, postgresql = (_install(extra) for extra in ("plot", "spark", "serve"))
    yield _check("python", "version", _python, required=True, fix="install Python 3.11 or newer")
    yield from _packages()
    yield _check("random", "system", _random, required=True, fix="allow this process to call getrandom()")
    yield _check("engine", "duckdb", _duckdb, required=True, fix=_install(""))
    yield _check("engine", "spark", _spark, fix=spark)
    yield _check("engine", "postgresql", _psycopg, fix=postgresql)
    yield _check("store", "sqlite", _sqlite, required=True, fix="set TMPDIR to a folder that can be written")
    yield _check("store", "postgresql", _psycopg, fix=postgresql)
    if store is not None:  # whoever names a store needs it: not reaching it is a failure
        name, opened = _store_name(store), partial(_open_store, store)
        yield _check("store", name, opened, required=True, fix=_store_fix(store))
    yield _check("charts", "svg", _chart, fix=plot)


def _check(group: str, name: str, run: Callable[[], str], *, fix: str, required: bool = False) -> Check:
    """Run one check; whatever goes wrong becomes its line."""
    try:
        return Check(group, name, "ok", required, run(), "")
    except _Missing as error:
        return Check(group, name, "missing", required, str(error), error.fix or fix)
    except ModuleNotFoundError as error:
        return Check(group, name, "missing", required, f"{error.name} is not installed", fix)
    except Exception as error:  # a broken part may fail in any way, and the others must still be seen
        return Check(group, name, "failed", required, _first_line(error), fix)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


# ---- what is installed -------------------------------------------------------------------------------------


def _requirements() -> dict[str, tuple[str, str]]:
    """What the installed hushquery asks for: package -> (requirement as pip takes it, its extra or "")."""
    from importlib import metadata

    found: dict[str, tuple[str, str]] = {}
    for line in metadata.requires("hushquery") or []:
        requirement, _, marker = line.partition(";")
        extra = _EXTRA.search(marker)
        name = re.split(r"[\s\[<>=!~(]", requirement.strip(), maxsplit=1)[0]
        found[name.lower()] = (requirement.strip(), extra.group(1) if extra else "")
    return found


def _install(extra: str) -> str:
    """The command that installs an extra ("" is the core), however hushquery itself was installed."""
    wanted = (requirement for requirement, of in _requirements().values() if of == extra)
    return "pip install " + " ".join(f"'{requirement}'" for requirement in wanted)


def _packages() -> Iterator[Check]:
    for name, (requirement, extra) in _requirements().items():
        if extra == "dev":
            continue
        fix = _install(extra) if extra else f"pip install '{requirement}'"
        group = f"extra {extra}" if extra else "core"
        yield _check(group, name, partial(_installed, name, requirement), required=not extra, fix=fix)


def _installed(name: str, requirement: str) -> str:
    from importlib import metadata

    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        what = "not installed"
        raise _Missing(what) from None
    from packaging.requirements import Requirement  # comes with ibis-framework[duckdb]

    wanted = Requirement(requirement).specifier
    if not wanted.contains(version, prereleases=True):
        what = f"{version} is installed, {wanted} is needed"
        raise RuntimeError(what)
    return version


def _python() -> str:
    if sys.version_info < (3, 11):  # noqa: UP036  (someone may have forced an install on an older one)
        what = f"Python {platform.python_version()} is too old"
        raise RuntimeError(what)
    return platform.python_version()


# ---- what works --------------------------------------------------------------------------------------------


def _random() -> str:
    if hasattr(os, "getrandom"):
        os.getrandom(32, os.GRND_NONBLOCK)  # raises where the generator is not seeded yet: a draw would hang
    from hushquery.noise.sampler import SystemBits

    first, second = SystemBits().words(4), SystemBits().words(4)
    if (first == second).any():
        what = "two draws of the generator are equal"
        raise RuntimeError(what)
    return "answers"


def _duckdb() -> str:
    import ibis

    connection = ibis.duckdb.connect()
    try:
        if connection.sql("select 1 as one").to_pyarrow().to_pylist() != [{"one": 1}]:
            what = "select 1 gave something else"
            raise RuntimeError(what)
        return f"runs queries (DuckDB {connection.version})"
    finally:
        connection.disconnect()


def _spark() -> str:
    pyspark = importlib.import_module("pyspark")
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        what = f"pyspark {pyspark.__version__}, but no java in {'JAVA_HOME' if home else 'PATH'}"
        raise _Missing(what, _JAVA)
    told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr  # noqa: S603
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version.group(1)) < _OLDEST_JAVA:
        what = f"pyspark {pyspark.__version__}, but {told.partition(chr(10))[0]}"
        raise _Missing(what, _JAVA)
    return f"pyspark {pyspark.__version__} on Java {version.group(1)}"


def _psycopg() -> str:
    psycopg = importlib.import_module("psycopg")
    return f"driver psycopg {psycopg.__version__}"


def _sqlite() -> str:
    import sqlite3
    from contextlib import closing

    with (
        TemporaryDirectory(prefix="hushquery-doctor-") as folder,
        closing(sqlite3.connect(Path(folder, "try.db"))) as database,
    ):
        mode = database.execute("pragma journal_mode = wal").fetchone()[0]
        database.execute("pragma synchronous = full")
        database.execute("create table try (n integer)")
        database.execute("insert into try values (1)")
        database.commit()
        database.execute("select n from try").fetchone()
    return f"writes (SQLite {sqlite3.sqlite_version}, journal {mode})"


def _chart() -> str:
    import altair
    import vl_convert

    spec = altair.Chart().mark_point().to_dict()
    if "<svg" not in vl_convert.vegalite_to_svg(spec):
        what = "the picture is not an SVG"
        raise RuntimeError(what)
    return "draws SVG"


# ---- a store named by the user -----------------------------------------------------------------------------


def _is_url(store: str) -> bool:
    return "://" in store


def _store_name(store: str) -> str:
    """The store's name without its user, password and options: safe to print."""
    if not _is_url(store):
        return store
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(store)
    except (ArgumentError, ValueError):
        return "the URL given"
    # A password with an unescaped "@" spills into what looks like the host: then nothing of it is shown.
    if "@" in (url.host or "") + (url.database or ""):
        return "the URL given"
    port = f":{url.port}" if url.port else ""
    return f"{url.get_backend_name()}://{url.host or ''}{port}/{url.database or ''}"


def _store_fix(store: str) -> str:
    if _is_url(store) and not store.startswith("sqlite"):
        return "check that the server runs, and the URL; write @ : / in a password as %40 %3A %2F"
    return "check the path and its permissions"


def _open_store(store: str) -> str:
    """Open the store and ask it something; nothing is created or changed."""
    if not _is_url(store):
        return _open_file(Path(store))
    from sqlalchemy import create_engine, text
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    if _store_name(store) == "the URL given":
        what = "it can't be read as a URL"
        raise RuntimeError(what)
    url = make_url(store)
    if url.get_backend_name() == "sqlite":
        return _open_file(Path(url.database or ":memory:"))
    if url.get_backend_name() not in ("postgresql", "postgres"):
        what = "only SQLite and PostgreSQL hold ledgers"
        raise RuntimeError(what)
    _psycopg()
    engine = create_engine(url.set(drivername="postgresql+psycopg"), connect_args={"connect_timeout": 5})
    try:
        with engine.connect() as connection:
            return f"connects (PostgreSQL {connection.execute(text('show server_version')).scalar_one()})"
    except SQLAlchemyError as error:
        # The driver's own words, less anything secret that it may repeat; `from None` for the same reason.
        told = _first_line(getattr(error, "orig", None) or error)
        raise RuntimeError(_without_secrets(told, url)) from None
    finally:
        engine.dispose()


def _open_file(path: Path) -> str:
    import sqlite3
    from contextlib import closing

    if not path.exists():
        if path.parent.is_dir() and os.access(path.parent, os.W_OK):
            return "not there yet; it can be created"
        what = f"there is no such file, and {path.parent} is not a folder that can be written"
        raise RuntimeError(what)
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        tables = database.execute("select count(*) from sqlite_master where type = 'table'").fetchone()[0]
    return f"opens (SQLite, {tables} table{'' if tables == 1 else 's'})"


def _without_secrets(message: str, url: URL) -> str:
    secrets = [str(url.password or ""), *(str(v) for k, v in url.query.items() if "pass" in k.lower())]
    for secret in filter(None, secrets):
        message = message.replace(secret, "***")
    return message


# ---- how it looks ------------------------------------------------------------------------------------------


def _table(checks: list[Check], broken: list[Check]) -> str:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("part", "", "state", "what was found"):
        table.add_column(column, overflow="fold")
    group = ""
    for check in checks:
        color = "green" if check.state == "ok" else "red" if check.required else "yellow"
        first = check.group if check.group != group else ""
        table.add_row(first, escape(check.name), f"[{color}]{check.state}[/]", escape(check.detail))
        group = check.group

    remedies: dict[str, list[Check]] = {}
    for check in checks:
        if check.state != "ok":
            remedies.setdefault(check.fix, []).append(check)

    console = Console(highlight=False)
    with console.capture() as capture:
        console.print(f"hushquery {__version__}, run by {escape(sys.executable)}", "", soft_wrap=True, sep="\n")
        console.print(table, "")
        for fix, about in remedies.items():
            need = "to repair" if any(check.required for check in about) else "optional"
            console.print(f"{need}: {escape(', '.join(f'{c.group} {c.name}' for c in about))}")
            console.print(f"    {escape(fix)}", soft_wrap=True)  # one line, so that it can be copied
        if broken:
            console.print("[red]parts that hushquery needs do not work: see above[/]")
        else:
            console.print("[green]all that hushquery needs works[/]")
    return capture.get().rstrip()
