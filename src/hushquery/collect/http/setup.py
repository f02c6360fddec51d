"""The first-run page: answers to five questions become a task file, for whoever has the printed address.

The address has a token, which is exchanged once for a cookie and void then. Requests without the cookie, from other
sites or to other names of this machine are refused; GET changes nothing else. It ends when the file is written.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import re
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from fastapi import FastAPI, Request, Response
from starlette.background import BackgroundTask

from hushquery._version import __version__
from hushquery.collect.forecast import SIZES, cells, forecast_task, notes, refused
from hushquery.collect.http.limits import (
    ADMIN_CONNECTIONS,
    HEADERS,
    STATE,
    Connections,
    KnownHosts,
    media_type,
    problem_response,
    read_body,
    silent_app,
)
from hushquery.collect.http.problems import refuse
from hushquery.core.budget import concerns, exact
from hushquery.core.guarantee import best_posterior
from hushquery.errors import HushqueryError, UsageError
from hushquery.hybrid.plan import account_commands
from hushquery.task import Answers, Task
from hushquery.task.answers import KINDS, write_task
from hushquery.templates import STYLE, asset, render

PATH = "/setup/"  #: Where the page is; its cookie goes nowhere else.
ENTER = f"{PATH}enter"  #: Where the token is exchanged.
_COOKIE = "hushquery-setup"
_FORM = "application/x-www-form-urlencoded"
_MOST_BYTES, _SECONDS, _MOST_FIELDS = 1 << 18, 20.0, 32
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}\.toml")
_SHOWN_EPSILONS = ("0.5", "1", "2", "4")

_STYLE = STYLE + asset("setup/setup.css")
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'"
)
_LIMITS = {
    **HEADERS,
    "Content-Security-Policy": f"{_POLICY}; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Browsers then send an Origin with the page's own form, and no referrer to other sites.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_CLOSED = (
    "This page is for whoever ran `hushquery serve`: copy the address from the terminal into the address bar.\n"
    "It can be opened once. If it was opened elsewhere, stop the command and run it again.\n"
)


class FirstRun:
    """One run of the page: its folder, its token, and the task file once it is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token: str | None = secrets.token_urlsafe(32)
        self.written: Path | None = None
        self._session: str | None = None

    def exchange(self, tokens: list[str]) -> str | None:
        """Return the cookie for the token, once; None for anything else."""
        if self.token is None or len(tokens) != 1 or not _equal(tokens[0], self.token):
            return None
        self.token, self._session = None, secrets.token_urlsafe(32)
        return self._session

    def knows(self, cookie: str) -> bool:
        """Return whether the cookie is the one that the token was exchanged for."""
        return self._session is not None and _equal(cookie, self._session)

    def write(self, text: str, name: str) -> dict[str, str]:
        """Write the task file, and return what is wrong if that can't be done."""
        if self.written is not None:
            return {"": "the task file is written, and the page has ended"}
        file = self.folder / name
        try:
            write_task(file, text)
        except FileExistsError:
            return {"file": "a file of this name is there already"}
        except OSError as error:
            return {"file": f"it can't be written: {error.strerror or type(error).__name__}"}
        self.written = file
        return {}


def _equal(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode("utf-8", "replace"), other.encode())


def make_setup(run: FirstRun, *, done: Callable[[], None], collector: str | None = None) -> FastAPI:
    """Make the application of the first-run page; ``done`` is called when the file is written and that was shown.

    ``collector`` is the address that the collector will have, where it is known.
    """

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
        connections = Connections(most=ADMIN_CONNECTIONS)
        connections.watch_loop()
        yield {STATE: connections}

    app = silent_app(title="hushquery: first run", version=__version__, lifespan=life, openapi_url=None)
    app.add_middleware(KnownHosts, name="localhost", loopback=True)

    @app.exception_handler(HushqueryError)
    async def refuse_request(_: Request, error: HushqueryError) -> Response:
        return _limited(problem_response(error, 1))

    @app.get(ENTER)
    async def enter(request: Request) -> Response:
        cookie = run.exchange(request.query_params.getlist("token")) if _is_own(request) else None
        if cookie is None:
            return _closed()
        answer = _limited(Response(status_code=303, headers={"Location": PATH}))
        answer.headers["Referrer-Policy"] = "no-referrer"
        answer.set_cookie(_COOKIE, cookie, path=PATH, httponly=True, samesite="strict")
        return answer

    @app.get(PATH)
    async def ask(request: Request) -> Response:
        if not _is_own(request) or not run.knows(request.cookies.get(_COOKIE, "")):
            return _closed()
        kind = request.query_params.get("kind", "")
        if kind not in KINDS:
            return _page("start", 200)
        return _page("form", 200, **_shown(_suggested(kind), {}))

    @app.post(PATH)
    async def answer(request: Request) -> Response:
        host = request.headers.get("host", "")
        if request.headers.getlist("origin") != [f"http://{host}"] or not _is_own(request):
            return _closed()
        if not run.knows(request.cookies.get(_COOKIE, "")):
            return _closed()
        form = await _read(request)
        said, name, wanted = _answers(form), form.get("file", "").strip(), form.get("do")
        problems = await asyncio.to_thread(refused, said)
        if not _FILE.fullmatch(name):
            problems["file"] = "use letters, digits, - and _, and the ending .toml"
        elif os.path.lexists(run.folder / name):
            problems["file"] = "a file of this name is there already"
        forecasts = {} if problems else await asyncio.to_thread(_forecast, said, name)
        if forecasts and wanted == "write":
            task: Task = forecasts["task"]
            problems, accounts = run.write(forecasts["toml"], name), account_commands(task)
            if not problems:
                end = BackgroundTask(done)
                return _page("done", 200, end, task=task, file=name, accounts=accounts, collector=collector)
        return _page("form", 422 if problems else 200, **_shown(form, problems) | forecasts)

    return app


def _is_own(request: Request) -> bool:
    """Return whether no other site led here; browsers say so, and a page of another port of this machine is another."""
    return set(request.headers.getlist("sec-fetch-site")) <= {"none", "same-origin"}


def _limited(response: Response) -> Response:
    response.headers.update(_LIMITS)
    return response


def _closed() -> Response:
    return _limited(Response(_CLOSED, 403, media_type="text/plain"))


def _page(name: str, status: int, background: BackgroundTask | None = None, **values: Any) -> Response:
    text = render(f"setup/{name}.html", policy=_POLICY, style=_STYLE, path=PATH, **values)
    return _limited(Response(text, status, media_type="text/html", background=background))


async def _read(request: Request) -> dict[str, str]:
    """Read the form; what no browser sends is refused."""
    if media_type(request) != _FORM:
        raise refuse("media-type")
    body = await read_body(request, _MOST_BYTES, _SECONDS)
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise refuse("malformed", "it is not a form") from None
    form = dict(pairs)
    if len(form) < len(pairs) or form.get("kind") not in KINDS or form.get("do") not in ("show", "write"):
        raise refuse("malformed", "it is not this page's form")
    return form


def _answers(form: Mapping[str, str]) -> Answers:
    """Return the answers of a form: those that its kind of task asks for."""
    kind, opts_in = form["kind"], form["kind"] == "searches" and form.get("optin") != "no"
    asked = ["name", "population", "period", "epsilon", "lifetime"]
    asked += ["highest"] if kind == "number" else ["optin_epsilon", "optin_delta"] if opts_in else []
    given: dict[str, Any] = {name: form.get(name, "").strip() for name in asked}
    if kind == "setting" or (kind == "searches" and not opts_in):
        lines = (line.strip() for line in re.split(r"[\r\n]+", form.get("values", "")))
        given["values"] = tuple(line for line in lines if line)
    return Answers(kind, **given)


def _suggested(kind: str) -> dict[str, str]:
    """Return what the form begins with: what such a task usually has, but for what only its operator knows."""
    usual = Answers(kind).usual
    form = {name: value or "" for name, value in vars(usual).items() if name != "values"}
    return form | {"name": "", "population": "", "highest": "", "values": "", "optin": "yes", "file": "task.toml"}


def _shown(form: Mapping[str, str], problems: Mapping[str, str]) -> dict[str, Any]:
    meanings = [(epsilon, _guessed(exact(epsilon))) for epsilon in _SHOWN_EPSILONS]
    said = {name: form.get(name, "") for name in (*vars(Answers()), "optin", "file")}
    return {"form": said, "problems": problems, "meanings": meanings, "forecasts": None}


def _forecast(said: Answers, file: str) -> dict[str, Any]:
    """Return what the page shows of answers that make a task."""
    text = said.to_toml()
    task = Task.loads(text)
    epsilon, life = Fraction(task.client.epsilon), Fraction(task.client.lifetime_epsilon)
    doubts = concerns(epsilon, Fraction(0))
    if task.optin is not None:
        doubts += concerns(Fraction(task.optin.epsilon), Fraction(task.optin.delta))
    return {
        "forecasts": [(clients, cells(task, forecast_task(task, clients))) for clients in SIZES],
        "notes": notes(task),
        "guessed": _guessed(epsilon),
        "answers": life // epsilon,
        "doubts": list(dict.fromkeys(doubts)),
        "task": task,
        "toml": text,
        "command": said.command(file),
    }


def _guessed(epsilon: Fraction) -> str:
    """Print how often a guess between two answers is right at most, once the report is seen; rounded up."""
    return f"{-(-best_posterior(0.5, float(epsilon)) * 1000 // 1) / 10:g}%"


def check_first_run(folder: Path, store: str) -> None:
    """Refuse the first-run page where there is something already, which somebody meant to serve."""
    tasks = sorted(file.name for file in folder.glob("*.toml"))
    there = store.startswith("postgres") or (folder / store.removeprefix("sqlite:///")).exists()
    if tasks or there:
        raise UsageError(
            "serve needs a task file",
            why=f"the folder has {tasks[0]}" if tasks else "there is a store already",
            fix=f"Run `hushquery serve --task {tasks[0] if tasks else 'FILE'}`; in an empty folder a page asks for one",
        )
