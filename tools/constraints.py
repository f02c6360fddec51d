"""Write constraints.txt anew: the newest versions that serve every Python we support.

``make constraints`` runs this. For each Python found, pip resolves (without installing) all that hushquery,
its extras and its build need. The oldest Python goes first and its answer binds the others, so that one pin
serves all; where a newer Python needs another version after all, both are written, with environment markers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "constraints.txt"
PYTHONS = ("3.11", "3.12", "3.13")
WANTED = (".[accounting,plot,serve,spark,docs,dev]", "hatchling", "editables", "setuptools")

HEADER = """\
# Exact versions for development and CI: the core, the extras plot, serve, spark, docs and dev, and the build.
# Renew with `make constraints`. Names and versions only: where they come from is the installer's own setting.
"""


def find(version: str) -> str | None:
    """Give the path of this Python, or None."""
    command = [str(ROOT / "tools/find_python.sh"), version]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def resolve(python: str, constraints: Path | None) -> dict[str, str] | None:
    """Ask pip which versions it would install; None if it finds no answer under these constraints."""
    with tempfile.TemporaryDirectory() as folder:
        venv, report = Path(folder, "venv"), Path(folder, "report.json")
        subprocess.run([python, "-m", "venv", str(venv)], check=True)
        command = [str(venv / "bin/pip"), "install", "-qq", "--disable-pip-version-check", "--dry-run"]
        command += ["--ignore-installed", "--report", str(report), *WANTED]
        if constraints:
            command += ["-c", str(constraints)]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            return None
        items = (item["metadata"] for item in json.loads(report.read_text())["install"])
        found = {item["name"].lower().replace("_", "-"): item["version"] for item in items}
        found.pop("hushquery")
        return found


def render(answers: dict[str, dict[str, str]]) -> str:
    """Write the pins; a marker only where the Pythons differ."""
    lines = []
    for name in sorted({name for answer in answers.values() for name in answer}):
        versions = {python: answer[name] for python, answer in answers.items() if name in answer}
        if len(set(versions.values())) == 1:
            lines.append(f"{name}=={next(iter(versions.values()))}")
        else:
            lines += [f'{name}=={pin} ; python_version == "{python}"' for python, pin in versions.items()]
    return HEADER + "\n".join(lines) + "\n"


def main() -> int:
    """Resolve for each Python and write the file."""
    answers: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder, "first.txt")
        for version in PYTHONS:
            python = find(version)
            if python is None:
                print(f"Python {version}: not on this machine; its pins are not checked")
                continue
            answer = resolve(python, first if answers else None)
            if answer is None and answers:
                print(f"Python {version}: the pins of the older Python do not serve it; resolving on its own")
                answer = resolve(python, None)
            if answer is None:
                print(f"Python {version}: pip found no answer; the file is left as it was", file=sys.stderr)
                return 1
            print(f"Python {version}: {len(answer)} packages")
            if not answers:
                first.write_text(render({version: answer}))
            answers[version] = answer
    if not answers:
        print("no supported Python was found; constraints.txt is left as it was", file=sys.stderr)
        return 1
    TARGET.write_text(render(answers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
