"""Every command and every program in README.md runs, and prints what the README says.

Fenced blocks are run in order in one empty folder, as a reader would: ``console`` (lines after ``$ `` are
commands, what follows is their output, with ``...`` for any text), ``bash`` (one script) and ``python``.
A block under ``<!-- not run: reason -->`` is left out; ``make`` commands are not run either (they would run
this test), but must be targets of the Makefile.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("console", "bash", "python")
FENCE = re.compile(r"(?P<fence>`{3,}|~{3,})(?P<kind>[\w-]*)\s*$")
NOT_RUN = re.compile(r"<!--\s*not run:(?P<reason>.*?)-->\s*$")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    line: int
    kind: str
    text: str
    not_run: str | None = None


@dataclass(frozen=True)
class Command:
    """One command of a console block and the output the README shows for it ("" is: any)."""

    line: int
    text: str
    output: str


def blocks(markdown: str) -> list[Block]:
    """The blocks that a reader would run."""
    found: list[Block] = []
    fence, kind, start, reason = "", "", 0, None
    body: list[str] = []
    marked: str | None = None
    for number, line in enumerate(markdown.splitlines(), start=1):
        if fence:
            if line.strip() == fence:
                if kind in KINDS:
                    found.append(Block(start, kind, "\n".join(body), reason))
                fence = ""
            else:
                body.append(line)
        elif opening := FENCE.match(line):
            fence, kind = opening["fence"], opening["kind"]
            body, start, reason, marked = [], number + 1, marked, None
        elif mark := NOT_RUN.match(line.strip()):
            marked = mark["reason"].strip()
        elif line.strip():
            marked = None  # the mark counts only right above its block
    assert not fence, f"the block before line {start} is not closed"
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
    """Whether an output is the one shown; ``...`` stands for any text, and white space is free."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(want.strip() + "\n", got.strip() + "\n", flags)


def shell(script: str, folder: Path) -> tuple[int, str]:
    """Run a script in a folder with this environment's programs first on PATH."""
    settings = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=os.environ | settings,
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
        (folder / "readme_block.py").write_text(block.text, encoding="utf-8")
        code, printed = shell("python readme_block.py", folder)
    else:
        kept = "\n".join(line for line in block.text.splitlines() if not targets(line))
        code, printed = shell("set -euo pipefail\n" + kept, folder)
    return [f"line {block.line}: the block exited with {code}:\n{printed}"] if code else []


def run_markdown(markdown: str, folder: Path) -> list[str]:
    """Run all blocks of a text, in order, in one folder."""
    return [wrong for block in blocks(markdown) if block.not_run is None for wrong in run_block(block, folder)]


def asked_of_make(markdown: str) -> set[str]:
    """The make targets that the blocks of a text name."""
    lines = [line.removeprefix("$ ") for block in blocks(markdown) for line in block.text.splitlines()]
    return {target for line in lines for target in targets(line)}


# ---- the README --------------------------------------------------------------------------------------------


README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_runs(tmp_path: Path) -> None:
    assert not run_markdown(README, tmp_path)


def test_what_the_readme_makes_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert asked_of_make(README) <= set(re.findall(r"^([a-z][a-z-]*):", makefile, flags=re.MULTILINE))


def test_what_is_not_run_has_a_reason() -> None:
    for block in blocks(README):
        if block.not_run is not None:
            sys.stdout.write(f"README.md:{block.line} is not run: {block.not_run}\n")
            assert len(block.not_run.split()) >= 2, f"README.md:{block.line}: say why it is not run"


# ---- the extractor itself ----------------------------------------------------------------------------------


SAMPLE = """\
```console
$ echo one
one
$ echo "two ... and
> three" | tr a-z A-Z
TWO ...
...EE
$ mkdir made && cd made
$ pwd
.../made
$ false
$ echo $?
1
$ make demo
anything
```

```text
not a command
```

```bash
make test JOBS=0
for n in 1 2; do
  echo $n >> numbers
done
```

```python
from pathlib import Path

assert Path("numbers").read_text() == "1\\n2\\n"
```

<!-- not run: it needs a second machine -->

```bash
exit 7
```
"""


def test_blocks_are_found() -> None:
    found = blocks(SAMPLE)
    assert [block.kind for block in found] == ["console", "bash", "python", "bash"]
    assert [block.not_run for block in found] == [None, None, None, "it needs a second machine"]
    assert found[0].line == 2


def test_commands_and_their_outputs_are_found() -> None:
    first, second, *_ = commands(blocks(SAMPLE)[0])
    assert first == Command(2, "echo one", "one\n")
    assert second.text == 'echo "two ... and\nthree" | tr a-z A-Z'
    assert second.output == "TWO ...\n...EE\n"
    [long] = commands(Block(1, "console", "$ hushquery \\\n    --version\nhushquery 1"))
    assert (long.text, long.output) == ("hushquery \\\n    --version", "hushquery 1\n")


def test_the_sample_runs(tmp_path: Path) -> None:
    assert run_markdown(SAMPLE, tmp_path) == []
    assert asked_of_make(SAMPLE) == {"demo", "test"}


def test_the_programs_are_those_of_this_environment(tmp_path: Path) -> None:
    text = "```console\n$ hushquery --version\nhushquery ...\n$ python -c 'import sys; print(sys.prefix)'\n"
    assert run_markdown(f"{text}{sys.prefix}\n```\n", tmp_path) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("```console\n$ echo one\ntwo\n```", "line 2: `echo one` printed"),
        ("```console\n$ false\n```", "line 2: `false` exited with 1"),
        ("```console\n$ false\n$ echo $?\n0\n```", "line 3: `echo $?` printed"),
        ("```console\n$ exit 3\n$ echo unreached\n```", "line 2: `exit 3` was not reached"),
        ("```bash\nfalse\ntrue\n```", "line 2: the block exited with 1"),
        ("```python\nraise SystemExit(4)\n```", "line 2: the block exited with 4"),
        ("<!-- not run: far above -->\ntext\n```bash\nfalse\n```", "line 4: the block exited with 1"),
    ],
)
def test_what_goes_wrong_is_told(text: str, told: str, tmp_path: Path) -> None:
    [wrong] = run_markdown(text, tmp_path)
    assert wrong.startswith(told)


def test_a_block_left_open_is_told() -> None:
    with pytest.raises(AssertionError, match="not closed"):
        blocks("```bash\ntrue\n")
