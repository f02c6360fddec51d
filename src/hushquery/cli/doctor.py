"""``hushquery doctor``: what is installed, which engines and stores work, and what to type when one does not.

Each check really does the thing, small, and returns a detail or raises; one broken part never hides the others.
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
from typing import Annotated

import typer

from hushquery._version import __version__
from hushquery.cli.common import JsonFlag, emit, option
from hushquery.cli.listing import listing
from hushquery.errors import Unavailable

_OLDEST_JAVA = 17  # what Spark 4 runs on
_JAVA = f"install Java {_OLDEST_JAVA} or newer (on Debian: apt-get install openjdk-17-jre-headless)"
_EXTRA = re.compile(r"""extra\s*==\s*['"]([\w-]+)['"]""")


class _Missing(Exception):
    """A part that is not installed, as opposed to one that does not work; ``fix`` where not the check's own helps."""

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


def doctor(
    as_json: JsonFlag = False,
    store: Annotated[
        str | None,
        option(
            "URL",
            "Also open this ledger or store: a path, or postgresql://user@host/database. "
            "Leave the password to PGPASSWORD or a password file; it is never shown.",
        ),
    ] = None,
) -> None:
    """Show what is installed, which engines and stores work, and what to type when one does not.

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
    emit(data, "" if as_json else _table(checks, broken), as_json)
    if broken:
        raise typer.Exit(Unavailable.exit_code)


def _checks(store: str | None) -> Iterator[Check]:
    yield _check("python", "version", _python, required=True, fix="install Python 3.11 or newer")
    yield from _packages()
    yield _check("random", "system", _random, required=True, fix="allow this process to call getrandom()")
    yield _check("engine", "duckdb", _duckdb, required=True, fix=_install(""))
    yield _check("engine", "spark", _spark, fix=_install("spark"))
    yield _check("engine", "postgresql", _psycopg, fix=_install("serve"))
    yield _check("store", "sqlite", _sqlite, required=True, fix="set TMPDIR to a folder that can be written")
    yield _check("store", "postgresql", _psycopg, fix=_install("serve"))
    if store is not None:  # whoever names a store needs it: not reaching it is a failure
        fix = "check the path and its permissions"
        if "://" in store and not store.startswith("sqlite"):
            fix = "check that the server runs, and the URL; write @ : / in a password as %40 %3A %2F"
        yield _check("store", _store_name(store), partial(_open_store, store), required=True, fix=fix)
    yield _check("charts", "svg", _chart, fix=_install("plot"))


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


def _requirements() -> dict[str, tuple[str, str]]:
    """Return what the installed hushquery asks for: package -> (requirement as pip takes it, its extra or "")."""
    from importlib import metadata

    requirements: dict[str, tuple[str, str]] = {}
    for line in metadata.requires("hushquery") or []:
        requirement, _, marker = line.partition(";")
        extra = _EXTRA.search(marker)
        name = re.split(r"[\s\[<>=!~(]", requirement.strip(), maxsplit=1)[0]
        requirements[name.lower()] = (requirement.strip(), extra.group(1) if extra else "")
    return requirements


def _install(extra: str) -> str:
    """Return the command that installs an extra ("" is the core), however hushquery itself was installed."""
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
        raise _Missing("not installed") from None
    from packaging.requirements import Requirement  # comes with ibis-framework[duckdb]

    wanted = Requirement(requirement).specifier
    if not wanted.contains(version, prereleases=True):
        raise RuntimeError(f"{version} is installed, {wanted} is needed")
    return version


def _python() -> str:
    if sys.version_info < (3, 11):  # noqa: UP036  (someone may have forced an install on an older one)
        raise RuntimeError(f"Python {platform.python_version()} is too old")
    return platform.python_version()


def _random() -> str:
    if hasattr(os, "getrandom"):
        os.getrandom(32, os.GRND_NONBLOCK)  # raises where the generator is not seeded yet: a draw would hang
    from hushquery.noise.sampler import SystemBits

    first, second = SystemBits().words(4), SystemBits().words(4)
    if (first == second).any():
        raise RuntimeError("two draws of the generator are equal")
    return "answers"


def _duckdb() -> str:
    import ibis

    connection = ibis.duckdb.connect()
    try:
        if connection.sql("select 1 as one").to_pyarrow().to_pylist() != [{"one": 1}]:
            raise RuntimeError("select 1 gave something else")
        return f"runs queries (DuckDB {connection.version})"
    finally:
        connection.disconnect()


def _spark() -> str:
    pyspark = importlib.import_module("pyspark")
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        raise _Missing(f"pyspark {pyspark.__version__}, but no java in {'JAVA_HOME' if home else 'PATH'}", _JAVA)
    output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr  # noqa: S603
    version = re.search(r'version "(\d+)', output)
    if version is None or int(version.group(1)) < _OLDEST_JAVA:
        raise _Missing(f"pyspark {pyspark.__version__}, but {output.partition(chr(10))[0]}", _JAVA)
    return f"pyspark {pyspark.__version__} on Java {version.group(1)}"


def _psycopg() -> str:
    return f"driver psycopg {importlib.import_module('psycopg').__version__}"


def _sqlite() -> str:
    import sqlite3
    from contextlib import closing

    folder = TemporaryDirectory(prefix="hushquery-doctor-")
    with folder as name, closing(sqlite3.connect(Path(name, "try.db"))) as database:
        mode = database.execute("pragma journal_mode = wal").fetchone()[0]
        for statement in ("pragma synchronous = full", "create table try (n integer)", "insert into try values (1)"):
            database.execute(statement)
        database.commit()
        database.execute("select n from try").fetchone()
    return f"writes (SQLite {sqlite3.sqlite_version}, journal {mode})"


def _chart() -> str:
    import altair
    import vl_convert

    spec = altair.Chart().mark_point().to_dict()
    if "<svg" not in vl_convert.vegalite_to_svg(spec):
        raise RuntimeError("the picture is not an SVG")
    return "draws SVG"


def _store_name(store: str) -> str:
    """Return the store's name without its user, password and options: safe to print."""
    if "://" not in store:
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


def _open_store(store: str) -> str:
    """Open the store and ask it something; nothing is created or changed."""
    if "://" not in store:
        return _open_file(Path(store))
    from sqlalchemy import create_engine, text
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    if _store_name(store) == "the URL given":
        raise RuntimeError("it can't be read as a URL")
    url = make_url(store)
    if url.get_backend_name() == "sqlite":
        return _open_file(Path(url.database or ":memory:"))
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise RuntimeError("only SQLite and PostgreSQL hold ledgers")
    _psycopg()
    engine = create_engine(url.set(drivername="postgresql+psycopg"), connect_args={"connect_timeout": 5})
    try:
        with engine.connect() as connection:
            return f"connects (PostgreSQL {connection.execute(text('show server_version')).scalar_one()})"
    except SQLAlchemyError as error:
        # The driver's own words, less anything secret that it may repeat; `from None` for the same reason.
        message = _first_line(getattr(error, "orig", None) or error)
        secrets = [str(url.password or ""), *(str(v) for k, v in url.query.items() if "pass" in k.lower())]
        for secret in filter(None, secrets):
            message = message.replace(secret, "***")
        raise RuntimeError(message) from None
    finally:
        engine.dispose()


def _open_file(path: Path) -> str:
    import sqlite3
    from contextlib import closing

    if not path.exists():
        if path.parent.is_dir() and os.access(path.parent, os.W_OK):
            return "not there yet; it can be created"
        raise RuntimeError(f"there is no such file, and {path.parent} is not a folder that can be written")
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        tables = database.execute("select count(*) from sqlite_master where type = 'table'").fetchone()[0]
    return f"opens (SQLite, {tables} table{'' if tables == 1 else 's'})"


def _table(checks: list[Check], broken: list[Check]) -> str:
    rows, remedies = [], dict[str, list[Check]]()
    for before, check in zip([None, *checks], checks, strict=False):
        first = "" if before and before.group == check.group else check.group
        rows.append((first, check.name, check.state, check.detail))
        if check.state != "ok":
            remedies.setdefault(check.fix, []).append(check)
    lines = [f"hushquery {__version__}, run by {sys.executable}", ""]
    lines += [listing(("part", "", "state", "what was found"), rows), ""]
    for fix, about in remedies.items():
        need = "to repair" if any(check.required for check in about) else "optional"
        lines.append(f"{need}: {', '.join(f'{check.group} {check.name}' for check in about)}\n    {fix}")
    lines.append("parts that hushquery needs do not work: see above" if broken else "all that hushquery needs works")
    return "\n".join(lines)
