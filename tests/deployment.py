"""The deployment example, started for real: PostgreSQL, two workers, nginx; only documented values are replaced."""

from __future__ import annotations

import os
import pwd
import random
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import postgres

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "deployment"
UNIT = "hushquery-collector@.service"
NAME = "collect.example.org"
ORIGIN = "https://app.example.org"
# After this long a server hangs: on a busy machine its start may take a minute.
SECONDS = 600
# How often a server is asked before it is taken for dead, however long a busy machine takes for it.
LOOKS = 12_000


def documented() -> list[tuple[str, str]]:
    """The values that the example's README says may be changed, with the file that each is in."""
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    table = text.partition("## What is yours to change")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", table, flags=re.MULTILINE)


def unit_values(text: str) -> list[tuple[str, str]]:
    """The settings of a systemd unit, in their order; a key may come several times."""
    lines = [line for line in text.splitlines() if line and line[0] not in "#;["]
    return [(key, value) for key, _, value in (line.partition("=") for line in lines)]


def environment(text: str) -> dict[str, str]:
    """What an EnvironmentFile sets."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            key, _, value = line.partition("=")
            (found[key],) = shlex.split(value)
    return found


def expanded(command: str, instance: str, values: dict[str, str]) -> list[str]:
    """The arguments of an ExecStart line, as systemd makes them: ${X} is one word, $X as many as it has."""
    words: list[str] = []
    for word in command.replace("%i", instance).split():
        if split := re.fullmatch(r"\$(\w+)", word):
            words += values[split[1]].split()
        else:
            words.append(re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], word))
    return words


def nginx() -> str:
    """Find nginx, on PATH or where Debian keeps it."""
    found = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if not found:
        message = "this test needs a real nginx: install it with `apt-get install nginx-light` (make test does)"
        raise RuntimeError(message)
    return found


def free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port(*, admin: bool) -> int:
    """A port that nobody has; for a worker of four digits, with the port of its admin listener free too."""
    while True:
        port = random.randint(2000, 9999)
        if free(port) and (not admin or free(10_000 + port)):
            return port


def certificate(folder: Path) -> None:
    """Write a certificate for the name and for 127.0.0.1 that signs itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    names = x509.SubjectAlternativeName([x509.DNSName(NAME), x509.IPAddress(ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    (folder / "fullchain.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "privkey.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))


class Deployed:
    """The example at work in a folder."""

    def __init__(self, folder: Path, server: str) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.password = secrets.token_hex(24)
        self.workers = [free_port(admin=True) for _ in range(2)]
        self.port = free_port(admin=False)
        self.address = f"https://127.0.0.1:{self.port}"
        database = f"127.0.0.1:{urlsplit(server).port}"
        self.values = {
            NAME: NAME,
            "443 ssl": f"127.0.0.1:{self.port} ssl",
            "127.0.0.1:8001": f"127.0.0.1:{self.workers[0]}",
            "127.0.0.1:8002": f"127.0.0.1:{self.workers[1]}",
            "user www-data": f"user {pwd.getpwuid(os.getuid()).pw_name}",
            "/opt/hushquery/bin/hushquery": f"{Path(sys.executable).parent}/hushquery",
            "127.0.0.1:5432": database,
            "50GB": "1GB",
            **{
                path: str(folder / Path(path).name)
                for path in (
                    "/etc/hushquery/tls/fullchain.pem",
                    "/etc/hushquery/tls/privkey.pem",
                    "/run/nginx.pid",
                    "/var/log/nginx/error.log",
                    "/etc/hushquery/collector.env",
                    "/etc/hushquery/operator-key",
                    "/etc/hushquery/pgpass",
                )
            },
            **{f"/etc/hushquery/tasks/{name}": self._task(name) for name in ("searches.toml", "setting.toml")},
            "/var/lib/hushquery": str(folder / "state"),
            "/var/lib/hushquery/keys": str(folder / "state" / "keys"),
        }
        certificate(folder)
        (folder / "state").mkdir()
        (folder / "pgpass").write_text(f"{database}:*:hushquery:{self.password}\n")
        (folder / "pgpass").chmod(0o600)
        (folder / "operator-key").write_text(subprocess.check_output(["openssl", "rand", "-base64", "32"], text=True))
        self.make_databases(server)
        settings = environment(self.write("collector.env").read_text())
        # What systemd adds: the folder of credentials, here that of the file itself.
        self.environment = {**os.environ, **settings, "CREDENTIALS_DIRECTORY": str(folder)}

    def _task(self, name: str) -> str:
        """Copy a task of the examples, with an origin whose pages may take part; its id stays."""
        text = (ROOT / "examples" / "tasks" / name).read_text(encoding="utf-8")
        assert "origins" not in text
        path = self.folder / name
        path.write_text(text.replace("[collect]\n", f'[collect]\norigins = ["{ORIGIN}"]\n'), encoding="utf-8")
        return str(path)

    def write(self, name: str) -> Path:
        """Write a file of the example with this machine's values in the places that its README lists."""
        text = (EXAMPLE / name).read_text(encoding="utf-8")
        for value in (value for value, file in documented() if file == name):
            assert value in text, f"{value} is not in {name}"
            text = text.replace(value, self.values[value])
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def make_databases(self, server: str) -> None:
        """Run the example's script as the superuser."""
        command = [postgres.find("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", server]
        known = {**os.environ, "HUSHQUERY_PASSWORD": self.password}
        with (EXAMPLE / "postgresql.sql").open("rb") as script:
            subprocess.run(command, stdin=script, env=known, check=True)

    def hushquery(self, *arguments: str) -> str:
        """Run a command as the operator does, with the settings of the environment file."""
        command = [sys.executable, "-m", "hushquery", *arguments]
        return subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True).stdout

    # ---- what runs ---------------------------------------------------------------------------------------------

    def start(self, name: str, command: list[str], folder: Path) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, cwd=folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def start_worker(self, port: int) -> None:
        """Run the unit's own command for an instance, until it is ready."""
        unit = dict(unit_values(self.write(UNIT).read_text()))
        command = expanded(unit["ExecStart"], str(port), self.environment)
        self.start(f"worker-{port}", command, Path(unit["WorkingDirectory"]))
        self.wait(f"worker-{port}", f"http://127.0.0.1:1{port}/readyz")
        self.wait(f"worker-{port}", f"http://127.0.0.1:{port}/v1/tasks")

    def start_nginx(self) -> None:
        config = self.write("nginx.conf")
        # Folders that nginx makes at its start, used or not: not those of this machine.
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        more = "".join(f"    {kind}_temp_path {self.folder / kind};\n" for kind in kinds)
        config.write_text(config.read_text().replace("http {\n", f"http {{\n{more}", 1))
        told = subprocess.run(
            [nginx(), "-t", "-q", "-e", "stderr", "-c", str(config)], capture_output=True, text=True, check=False
        )
        assert (told.returncode, told.stderr) == (0, ""), told.stderr
        self.start("nginx", [nginx(), "-e", "stderr", "-c", str(config), "-g", "daemon off;"], self.folder)
        for _ in range(LOOKS):
            if not free(self.port):
                return
            self.check("nginx")
        raise AssertionError("nginx does not listen")

    def wait(self, name: str, address: str) -> None:
        for _ in range(LOOKS):
            try:
                with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 -- ours
                    assert answer.status == 200
                    return
            except OSError:
                self.check(name)
        raise AssertionError(f"{name} does not answer")

    def check(self, name: str) -> None:
        log = (self.folder / f"{name}.log").read_text()
        assert self.processes[name].poll() is None, log
        time.sleep(0.05)

    def kill(self, name: str) -> None:
        """Kill a process as a crash would."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """Ask all to stop; each does so without an error."""
        for name, process in self.processes.items():
            process.terminate()
            assert process.wait(SECONDS) == 0, f"{name}: {(self.folder / f'{name}.log').read_text()}"
