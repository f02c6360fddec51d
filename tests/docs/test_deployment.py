"""The deployment example parses, starts and keeps its promises: a report counts once, and nobody's address is kept."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer.main

import postgres
from deployment import EXAMPLE, ORIGIN, ROOT, UNIT, Deployed, documented, environment, expanded, unit_values
from hushquery.cli.app import app
from hushquery.collect.http.ingest import MOST_REPORTS, pack_batch
from hushquery.local.device.client import Client
from hushquery.local.device.send import Sender
from hushquery.local.report import Report
from hushquery.task import Task

TASKS = ROOT / "examples" / "tasks"
CLIENT = "127.0.0.77"  # the clients' address, which no worker and no server has
AGENT = "Zyxwvut-Agent"
SEARCH = "zyxwvut on my arm"

BYTES = {"Content-Type": "application/octet-stream"}

pytestmark = pytest.mark.xdist_group("deployment")


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory, postgres_url: str) -> Iterator[Deployed]:
    made = Deployed(tmp_path_factory.mktemp("deployment"), postgres_url)
    try:
        for port in made.workers:
            made.start_worker(port)
        made.start_nginx()
        yield made
    finally:
        made.stop()
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            for statement in ("DATABASE hushquery_reports", "DATABASE hushquery_ledger", "ROLE hushquery"):
                connection.execute(f"DROP {statement}")


def connected(deployed: Deployed, address: str) -> http.client.HTTPSConnection:
    trust = ssl.create_default_context(cafile=deployed.folder / "fullchain.pem")
    return http.client.HTTPSConnection("127.0.0.1", deployed.port, source_address=(address, 0), context=trust)


def ask(
    deployed: Deployed, method: str, path: str, body: bytes | None = None, address: str = CLIENT, **headers: str
) -> tuple[int, Any, bytes]:
    """Send a request through the proxy, from the clients' address."""
    proxy = connected(deployed, address)
    proxy.request(method, path, body, {"User-Agent": AGENT, **headers})
    answer = proxy.getresponse()
    data = answer.read()
    proxy.close()
    return answer.status, answer.headers, data


def name_of(upload: bytes) -> str:
    return base64.urlsafe_b64encode(upload).rstrip(b"=").decode()


def uploads(deployed: Deployed, task: str) -> dict[str, Any]:
    told = json.loads(
        deployed.hushquery("collect", "status", "--store", deployed.environment["HUSHQUERY_STORE"], "--json")
    )
    (found,) = [one for one in told["tasks"] if one["name"] == task]
    return dict(found)


# ---- what the files say ----------------------------------------------------------------------------------------


def test_every_documented_value_is_there_and_every_path_is_documented() -> None:
    values = documented()
    assert len(values) == len(set(values)) > 10
    for value, file in values:
        assert value in (EXAMPLE / file).read_text(encoding="utf-8"), f"{value} is not in {file}"
    settings = environment((EXAMPLE / "collector.env").read_text())
    paths = [word for value in settings.values() for word in value.split() if word.startswith("/")]
    assert set(paths) <= {value for value, file in values if file == "collector.env"}
    assert {"HUSHQUERY_STORE", "HUSHQUERY_LEDGER", "PGPASSFILE"} <= set(settings)


def test_the_unit_starts_what_the_command_line_knows(tmp_path: Path) -> None:
    text = (EXAMPLE / UNIT).read_text(encoding="utf-8")
    unit = unit_values(text)
    settings = {**environment((EXAMPLE / "collector.env").read_text()), "CREDENTIALS_DIRECTORY": "/run/credentials/x"}
    command = expanded(dict(unit)["ExecStart"], "8001", settings)
    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    known = {option for parameter in serve.params for option in parameter.opts}
    asked = [word for word in command if word.startswith("--")]
    assert command[1] == "serve"
    assert set(asked) <= known
    assert asked.count("--task") == 2
    assert command[command.index("--admin-host") + 1] == "127.0.0.1"
    hardened = dict(unit)
    assert (hardened["NoNewPrivileges"], hardened["ProtectSystem"], hardened["LimitCORE"]) == ("yes", "strict", "0")
    if analyze := shutil.which("systemd-analyze"):
        written = tmp_path / UNIT.replace("@", "@8001")
        written.write_text(text.replace("/opt/hushquery/bin/hushquery", f"{Path(sys.executable).parent}/hushquery"))
        told = subprocess.run(
            [analyze, "verify", "--man=no", str(written)], capture_output=True, text=True, check=False
        )
        assert (told.returncode, told.stderr) == (0, ""), told.stderr


def test_no_limit_of_the_proxy_is_stricter_than_that_of_a_task() -> None:
    """After 413 a client drops its report for good."""
    text = (EXAMPLE / "nginx.conf").read_text(encoding="utf-8")
    assert text.count("128k;") == 2  # a body is never put into a file
    largest = max(Task.load(path).collect.max_body for path in TASKS.glob("*.toml"))
    assert largest <= 128 * 1024


def test_settings_that_commands_read_are_those_that_the_file_says() -> None:
    """What is not read from the environment has to be given as an option."""
    text = (EXAMPLE / "collector.env").read_text(encoding="utf-8")
    told = " ".join(line.removeprefix("# ") for line in text.splitlines() if line.startswith("#"))
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    read = {
        (group, parameter.envvar)
        for group in ("budget", "collect")
        for command in commands[group].commands.values()
        for parameter in (
            *command.params,
            *(one for sub in getattr(command, "commands", {}).values() for one in sub.params),
        )
        if parameter.envvar in environment(text)
    }
    assert read == {("budget", "HUSHQUERY_LEDGER")}
    assert "`hushquery budget` HUSHQUERY_LEDGER" in told
    options = re.findall(r'(--[a-z-]+) (?:"\$(\w+)"|/\S+)', told)
    assert {name for _, name in options if name} == {"HUSHQUERY_STORE", "HUSHQUERY_LEDGER", "HUSHQUERY_KEYS"}
    advance = {option for parameter in commands["collect"].commands["advance"].params for option in parameter.opts}
    assert {option for option, _ in options} <= advance


def test_secrets_that_are_there_are_kept(tmp_path: Path) -> None:
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    commands = "".join(re.findall(r"^ +test -s .*\n +\(umask .*\n", text, flags=re.MULTILINE))
    for name in ("operator-key", "pgpass"):
        assert text.count(f"> /etc/hushquery/{name})") == commands.count(f"> /etc/hushquery/{name})") == 1
    found = []
    for _ in range(2):
        subprocess.run(["bash", "-ec", commands.replace("/etc/hushquery", str(tmp_path))], check=True)
        found.append({path.name: path.read_text() for path in tmp_path.iterdir()})
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    assert found[0] == found[1]
    assert set(found[0]) == {"operator-key", "pgpass"}


# ---- at work -----------------------------------------------------------------------------------------------------


def test_a_report_is_counted_once(deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(deployed.folder / "fullchain.pem"))
    client = Client(Task.load(TASKS / "setting.toml"), tmp_path / "client.db")
    report = client.report("dark")
    assert report is not None
    with Sender(deployed.address) as sender:
        sender._connection.source_address = (CLIENT, 0)
        (delivery,) = sender.send(client)
    assert (delivery.outcome, delivery.status) == ("stored", 201)
    path = f"/v1/tasks/{client.task.id}/reports/{name_of(report.id)}"
    again = [
        ask(deployed, "PUT", path, report.to_bytes(), **{"Content-Type": "application/octet-stream"}) for _ in "1234"
    ]
    assert {status for status, _, _ in again} == {200}  # whichever worker it was
    store, passfile = deployed.environment["HUSHQUERY_STORE"], deployed.environment["PGPASSFILE"]
    with psycopg.connect(store, passfile=passfile) as reports:
        tables = reports.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'hushquery_collect_reports_%'")
        counts = [reports.execute(f'SELECT count(*) FROM "{name}"').fetchone() for (name,) in tables.fetchall()]  # noqa: S608
        assert counts == [(1,)]


def test_opt_in_records_need_their_token(deployed: Deployed) -> None:
    store = ("--store", deployed.environment["HUSHQUERY_STORE"])
    token = deployed.hushquery("collect", "tokens", "new", "--task", "searches", *store).strip()
    task = uploads(deployed, "searches")["id"]
    body = json.dumps({"records": [[SEARCH, "https://health.example"]]}).encode()
    path = f"/v1/tasks/{task}/records/{name_of(os.urandom(16))}"
    kind = {"Content-Type": "application/json"}
    assert ask(deployed, "PUT", path, body, **kind)[0] == 401
    assert ask(deployed, "PUT", path, body, Authorization=f"Bearer {token}", **kind)[0] == 201
    assert ask(deployed, "PUT", path, body, Authorization=f"Bearer {token}", **kind)[0] == 200
    (key,) = (deployed.folder / "state" / "keys").iterdir()
    assert key.read_bytes().startswith(b"HQW1")  # wrapped by the operator key, which the unit passed on


def test_answers_pass_through(deployed: Deployed) -> None:
    task = Task.load(TASKS / "searches.toml")
    early = Report(os.urandom(16), task.digest, bytes(32), task.truncate(time.time()), b"x")
    path = f"/v1/tasks/{task.id}/reports"
    status, headers, data = ask(deployed, "PUT", f"{path}/{name_of(early.id)}", early.to_bytes(), **BYTES)
    assert (status, headers["Retry-After"]) == (425, "30")
    assert json.loads(data)["type"] == "urn:hushquery:problem:too-early"
    assert headers["Strict-Transport-Security"]
    assert ask(deployed, "POST", path, bytes(200_000), **BYTES)[0] == 413
    status, headers, data = ask(deployed, "GET", "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")


def test_the_databases_are_made_once_and_no_log_has_their_password(deployed: Deployed, postgres_url: str) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        deployed.make_databases(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        row = connection.execute("SHOW data_directory").fetchone()
        kept = connection.execute("SELECT unnest(rolconfig) FROM pg_roles WHERE rolname = 'hushquery'").fetchall()
    assert row is not None
    log = (Path(row[0]).parent / "log").read_text(encoding="utf-8")
    assert 'role "hushquery" already exists' in log
    assert deployed.password not in log
    assert {("log_min_error_statement=panic",), ("log_error_verbosity=terse",)} <= set(kept)


def test_pages_of_the_origins_of_a_task_may_take_part(deployed: Deployed) -> None:
    path = f"/v1/tasks/{Task.load(TASKS / 'setting.toml').id}"
    wants = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "content-type"}
    for origin, allowed in ((ORIGIN, ORIGIN), ("https://other.example.org", None)):
        status, headers, _ = ask(deployed, "OPTIONS", f"{path}/reports/{'A' * 22}", Origin=origin, **wants)
        assert (status, headers["Access-Control-Allow-Origin"]) == (204, allowed)
        status, headers, _ = ask(deployed, "GET", path, Origin=origin)
        assert (status, headers["Access-Control-Allow-Origin"]) == (200, allowed)
    assert ask(deployed, "GET", path, **{"If-None-Match": headers["ETag"]})[0] == 304
    assert ask(deployed, "PUT", f"{path}/reports/{'A' * 22}", b"x", **BYTES, **{"Content-Encoding": "gzip"})[0] == 415


def test_the_workers_see_only_the_headers_that_they_read() -> None:
    """So that a header that names a client, whichever it is, ends at the proxy."""
    text = (EXAMPLE / "nginx.conf").read_text(encoding="utf-8")
    assert "proxy_pass_request_headers off;" in text
    passed = {name.lower() for name in re.findall(r"proxy_set_header (\S+) \$", text)} - {"host"}
    read = set()
    for name in ("app.py", "limits.py"):
        source = (ROOT / "src" / "hushquery" / "collect" / "http" / name).read_text(encoding="utf-8")
        read |= set(re.findall(r'headers\.get\("([a-z-]+)"', source) + re.findall(r'"([a-z-]+)" in headers', source))
    assert passed == read - {"content-length", "transfer-encoding"}  # nginx sets these two itself


def test_one_address_can_not_hold_all_connections(deployed: Deployed) -> None:
    address = "127.0.0.78"
    path = f"/v1/tasks/{Task.load(TASKS / 'setting.toml').id}/reports/{'A' * 22}"
    held = [connected(deployed, address) for _ in range(50)]
    try:
        for one in held:  # a body that never comes
            one.putrequest("PUT", path)
            one.putheader("Content-Length", "100")
            one.endheaders()
        for _ in range(1000):  # until nginx has read what was sent
            time.sleep(0.1)  # slower than the limit on requests
            status, headers, data = ask(deployed, "GET", "/v1/tasks", address=address, Origin=ORIGIN)
            if status != 200:
                break
        assert (status, headers["Retry-After"], headers["Content-Type"]) == (429, "30", "application/problem+json")
        assert json.loads(data)["type"] == "urn:hushquery:problem:busy"
        assert (headers["Strict-Transport-Security"], headers["Access-Control-Allow-Origin"]) == (
            "max-age=31536000",
            "*",
        )
        assert ask(deployed, "GET", "/v1/tasks")[0] == 200
    finally:
        for one in held:
            one.close()


def reports_of_one_address() -> tuple[float, int]:
    """What the limits let one address send: reports a second in the long run, and reports at once."""
    text = (EXAMPLE / "nginx.conf").read_text(encoding="utf-8")
    rates = {
        zone: int(n) / (60 if unit == "m" else 1)
        for zone, n, unit in re.findall(r"zone=(\w+):10m rate=(\d+)r/(\w);", text)
    }
    bursts = {zone: int(burst) for zone, burst in re.findall(r"limit_req zone=(\w+) burst=(\d+) nodelay;", text)}
    least = len(pack_batch([Report(bytes(16), bytes(32), bytes(32), 0, b"").to_bytes()]))
    held = {"each": 1, "tens": 999 // least, "hundreds": 9999 // least, "thousands": MOST_REPORTS}
    assert rates.keys() == bursts.keys() == held.keys()
    return sum(rates[zone] * held[zone] for zone in held), sum((1 + bursts[zone]) * held[zone] for zone in held)


def test_limits_count_reports_and_the_page_says_how_many() -> None:
    rate, at_once = reports_of_one_address()
    page = " ".join((ROOT / "docs" / "limits.md").read_text(encoding="utf-8").split())
    assert f"{rate:.0f} reports a second" in page
    assert f"{rate * 86400 / 1e6:.1f} million a day" in page
    assert f"{at_once:,} at once" in page


def test_the_longer_a_batch_the_fewer_of_them(deployed: Deployed) -> None:
    path = f"/v1/tasks/{Task.load(TASKS / 'setting.toml').id}/reports"
    for place, (length, most) in enumerate(((5000, 11), (50_000, 4))):
        address = f"127.0.0.{80 + place}"
        # Each is a refused batch of one frame, which is all that a limit on requests would see.
        body = (length - 4).to_bytes(4, "big") + bytes(length - 4)
        statuses = [ask(deployed, "POST", path, body, address=address, **BYTES)[0] for _ in range(most + 30)]
        assert statuses[:most] == [200] * most
        assert 429 in statuses[most:]
        report = os.urandom(16)
        answer = ask(deployed, "PUT", f"{path}/{name_of(report)}", body[:95], address=address, **BYTES)
        assert answer[0] == 400  # not 429: single reports have their own share


def test_the_admin_listeners_are_not_reachable(deployed: Deployed) -> None:
    for path in ("/metrics", "/healthz", "/readyz"):
        status, headers, data = ask(deployed, "GET", path)
        assert (status, headers["Content-Type"]) == (404, "application/problem+json")
        assert b"hushquery_uploads" not in data


def test_workers_may_be_lost(deployed: Deployed) -> None:
    first, second = deployed.workers
    deployed.kill(f"worker-{first}")
    assert {ask(deployed, "GET", "/v1/tasks")[0] for _ in range(6)} == {200}
    deployed.kill(f"worker-{second}")
    status, headers, data = ask(deployed, "GET", "/v1/tasks")
    assert (status, headers["Retry-After"], headers["Content-Type"]) == (503, "30", "application/problem+json")
    assert json.loads(data)["type"] == "urn:hushquery:problem:unavailable"
    assert "nothing was taken" not in data.decode()  # a worker that died may have taken it before
    assert (headers["Strict-Transport-Security"], headers["Access-Control-Allow-Origin"]) == ("max-age=31536000", "*")
    back_up_and_restore(deployed)
    for port in deployed.workers:
        deployed.start_worker(port)
    assert uploads(deployed, "theme")["epochs"][-1]["phase"] == "reports_open"


def back_up_and_restore(deployed: Deployed) -> None:
    """Do what the page for operators says, while no worker runs."""
    page = (ROOT / "docs" / "howto" / "operate-the-collector.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\$ (pg_(?:dump|restore) .*)$", page, flags=re.MULTILINE)
    assert len(commands) == 2
    path = os.pathsep.join([str(Path(postgres.find("pg_dump")).parent), os.environ["PATH"]])
    for command in commands:
        subprocess.run(
            ["bash", "-ec", command], env={**deployed.environment, "PATH": path}, cwd=deployed.folder, check=True
        )


def test_nothing_names_a_client(deployed: Deployed) -> None:
    """After all that was done above, and after what nginx likes to complain about."""
    ask(deployed, "GET", "/" + "x" * 9000)
    ask(deployed, "PUT", "/v1/tasks", b"x")
    found = [path for path in deployed.folder.rglob("*") if path.is_file()]
    assert {"error.log", "nginx.log", f"worker-{deployed.workers[0]}.log"} <= {path.name for path in found}
    for path in found:
        data = path.read_bytes()
        for word in (CLIENT, AGENT, SEARCH, "health.example"):
            assert word.encode() not in data, f"{word} is in {path.name}"
