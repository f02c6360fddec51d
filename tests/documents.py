"""Runs the fenced blocks of a Markdown page, as a reader would.

Blocks are run in order in one folder: ``console`` (lines after ``$ `` are commands, what follows is their output,
with ``...`` for any text), ``bash`` (one script) and ``python`` (one program). An ``output`` block right below a
``bash`` or ``python`` block is what that prints. A block under ``<!-- not run: reason -->`` is left out; ``make``
commands are not run either (one of them runs these tests), but must be targets of the Makefile.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("console", "bash", "python")
# What follows the fence may also be a directive, as in ```{toctree}: its body is no block, but has to be passed over.
FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<kind>[^`]*)$")
NOT_RUN = re.compile(r"<!--\s*not run:(?P<reason>.*?)-->\s*$")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    line: int
    kind: str
    text: str
    not_run: str | None = None
    output: str = ""  # of a bash or python block, where the page shows it


@dataclass(frozen=True)
class Command:
    """One command of a console block and the output the page shows for it ("" is: any)."""

    line: int
    text: str
    output: str


def blocks(markdown: str) -> list[Block]:
    """The blocks that a reader would run."""
    found: list[Block] = []
    opening: re.Match[str] | None = None
    body: list[str] = []
    start, reason, right_below = 0, None, False
    for number, line in enumerate(markdown.splitlines(), start=1):
        if opening and line.strip() == opening["fence"]:
            kind, text = opening["kind"].strip(), "\n".join(body)
            if kind in KINDS:
                found.append(Block(start, kind, text, reason))
            elif kind == "output":
                shown = right_below and found and found[-1].kind != "console"
                assert shown, f"line {start}: this output is not right below the bash or python block that prints it"
                found[-1] = replace(found[-1], output=text)
            opening, reason, right_below = None, None, kind in KINDS
        elif opening:
            body.append(line.removeprefix(opening["indent"]))
        elif opening := FENCE.match(line):
            body, start = [], number + 1
        elif mark := NOT_RUN.match(line.strip()):
            reason = mark["reason"].strip()
        elif line.strip():
            reason, right_below = None, False  # a mark counts only right above its block
    assert not opening, f"the block before line {start} is not closed"
    return found


def commands(block: Block) -> list[Command]:
    """The commands of a console block; one goes on after a backslash or on lines that start with ``> ``."""
    found: list[Command] = []
    lines = block.text.splitlines()
    place = 0
    while place < len(lines):
        assert lines[place].startswith("$ ") or found, f"line {block.line + place}: output before any command"
        if lines[place].startswith("$ "):
            start, text = block.line + place, lines[place][2:]
            while place + 1 < len(lines) and (text.endswith("\\") or lines[place + 1].startswith("> ")):
                place += 1
                text += "\n" + lines[place].removeprefix("> ")
            found.append(Command(start, text, ""))
        else:
            last = found[-1]
            found[-1] = Command(last.line, last.text, last.output + lines[place] + "\n")
        place += 1
    return found


def targets(command: str) -> list[str]:
    """What a line asks of make; empty if it is not a make command."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:  # a line of a longer statement
        return []
    return [word for word in words[1:] if not word.startswith("-") and "=" not in word] if words[:1] == ["make"] else []


def agree(want: str, got: str) -> bool:
    """Whether an output is the one shown; ``...`` stands for any text, also for none, and white space is free."""
    first, *others = (piece.strip() for piece in " ".join(want.split()).split("..."))
    left = " ".join(got.split())
    if not others:
        return left == first
    if not left.startswith(first):
        return False
    place = len(first)
    for piece in others[:-1]:
        found = left.find(piece, place)
        if found < 0:
            return False
        place = found + len(piece)
    return left.endswith(others[-1]) and len(left) - len(others[-1]) >= place


def shell(script: str, folder: Path) -> tuple[int, str]:
    """Run a script in a folder with this environment's programs first on PATH."""
    settings = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",  # `ls` and `sort` order names everywhere alike
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }
    # A reader has the ledger of a person by default; here it is in this folder, which is HOME.
    inherited = {name: value for name, value in os.environ.items() if name not in ("HUSHQUERY_LEDGER", "XDG_DATA_HOME")}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=inherited | settings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=600,
    )
    return done.returncode, done.stdout


MARK = "::end of command::"


def run_console(block: Block, folder: Path) -> list[str]:
    """Run a console block in one shell; what went otherwise than shown."""
    runnable = [command for command in commands(block) if not targets(command.text)]
    # After each command its exit code, and then that code again, so that a shown `echo $?` tells the truth.
    script = "".join(f"{c.text}\n__code=$?; printf '\\n{MARK}%d\\n' $__code; (exit $__code)\n" for c in runnable)
    _, printed = shell(script, folder)
    pieces = re.split(rf"\n{MARK}(\d+)\n", printed)
    wrong = []
    for place, command in enumerate(runnable):
        if 2 * place + 1 >= len(pieces):
            wrong.append(f"line {command.line}: `{command.text}` was not reached: {pieces[-1]}")
            break
        got, code = pieces[2 * place], int(pieces[2 * place + 1])
        asked = place + 1 < len(runnable) and runnable[place + 1].text.strip() == "echo $?"
        if code and not asked:
            wrong.append(f"line {command.line}: `{command.text}` exited with {code}:\n{got}")
        elif command.output.strip() and not agree(command.output, got):
            wrong.append(f"line {command.line}: `{command.text}` printed\n{got}\nand not\n{command.output}")
    return wrong


def run_block(block: Block, folder: Path) -> list[str]:
    """Run a block; what went wrong."""
    if block.kind == "console":
        return run_console(block, folder)
    if block.kind == "python":
        # Not a file in the folder, which is the reader's; `python -` looks there for modules, as a prompt does.
        code, printed = shell(f"python - <<'{MARK}'\n{block.text}\n{MARK}", folder)
    else:
        kept = "\n".join(line for line in block.text.splitlines() if not targets(line))
        code, printed = shell("set -euo pipefail\n" + kept, folder)
    if code:
        return [f"line {block.line}: the block exited with {code}:\n{printed}"]
    if block.output.strip() and not agree(block.output, printed):
        return [f"line {block.line}: the block printed\n{printed}\nand not\n{block.output}"]
    return []


def run_markdown(markdown: str, folder: Path) -> list[str]:
    """Run all blocks of a text, in order, in one folder."""
    return [wrong for block in blocks(markdown) if block.not_run is None for wrong in run_block(block, folder)]


def not_made(markdown: str) -> set[str]:
    """The make targets that the blocks of a text name and the Makefile does not have."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return asked_of_make(markdown) - set(re.findall(r"^([a-z][a-z-]*):", makefile, flags=re.MULTILINE))


def without_reason(markdown: str) -> list[int]:
    """The lines of the blocks that are not run, and the page does not say why."""
    return [b.line for b in blocks(markdown) if b.not_run is not None and len(b.not_run.split()) < 2]


def asked_of_make(markdown: str) -> set[str]:
    """The make targets that the blocks of a text name."""
    lines = [line.removeprefix("$ ") for block in blocks(markdown) for line in block.text.splitlines()]
    return {target for line in lines for target in targets(line)}
