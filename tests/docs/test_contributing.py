"""CONTRIBUTING.md, followed: its randomizer conforms, passes the audit, is known by name, and is caught when broken."""

from __future__ import annotations

import ast
import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hushquery.auditing.conformance import conformance
from hushquery.core.registry import find
from statistical import bits, mean

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "randomizer"
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Add a randomizer in 60 lines")[2]
HOW_TO = (ROOT / "docs" / "howto" / "add-a-mechanism.md").read_text(encoding="utf-8")
SHOWN = (EXAMPLE / "my_randomizer.py").read_text(encoding="utf-8")


def fenced(text: str, kind: str) -> list[str]:
    """The blocks of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def sessions(text: str) -> list[tuple[str, str]]:
    """Commands and the output that is shown for each."""
    pieces = [piece for block in fenced(text, "console") for piece in block.split("$ ") if piece]
    return [(command, output) for command, _, output in (piece.partition("\n") for piece in pieces)]


def run(command: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command of a page as a reader would."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = os.environ | {"PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"} | more
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=settings, capture_output=True, text=True, check=False
    )


def agree(want: str, got: str) -> bool:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(want.strip() + "\n", got.strip() + "\n", flags)


def test_the_page_shows_the_example():
    assert fenced(PAGE, "python") == [SHOWN]
    assert "```{literalinclude} ../../examples/randomizer/my_randomizer.py" in HOW_TO


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/howto/add-a-mechanism.md"])
def test_files_that_are_named_are_there(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|docs|tools|benchmarks|js)/[\w./-]+)`", text)
    assert len(named) >= 3
    assert [name for name in named if not (ROOT / name).exists() and "NAME" not in name] == []
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


def test_the_example_is_at_most_sixty_lines_of_code():
    tree = ast.parse(SHOWN)
    words: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            words |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    code = [
        number
        for number, line in enumerate(SHOWN.splitlines(), start=1)
        if line.strip() and not line.strip().startswith("#") and number not in words
    ]
    assert 30 < len(code) <= 60


def test_following_the_page(tmp_path):
    """The code of the page in a file: it conforms and is not flagged; with one other integer, both checks say so."""
    (tmp_path / "my_randomizer.py").write_text(fenced(PAGE, "python")[0], encoding="utf-8")
    told = sessions(PAGE)
    assert [" ".join(command.split()[:2]) for command, _ in told] == ["hushquery audit"] * 2 + [
        "sed -i",
        "hushquery audit",
        "hushquery audit",
    ]
    for (command, output), code in zip(told, (0, 0, 0, 1, 1), strict=True):
        done = run(command, tmp_path)
        assert done.returncode == code, (command, done.stdout, done.stderr)
        assert agree(output, done.stdout), (command, done.stdout)
    broken = (tmp_path / "my_randomizer.py").read_text(encoding="utf-8")
    changed = [(a, b) for a, b in zip(re.findall(r"\w+", SHOWN), re.findall(r"\w+", broken), strict=True) if a != b]
    assert changed == [("11", "12")]


@pytest.mark.parametrize(
    ("honest", "broken", "found"),
    [
        ("within_budget(lie, +1, lambda lie: cls(lie).epsilon, epsilon)", "lie // 2", "it does not fit them"),
        ("pure=(self.epsilon,)", "pure=(self.epsilon / 2,)", "the claimed loss covers the exact one"),
        ("pure=(self.epsilon,)", "pure=(self.epsilon * 2,)", "the claim is the exact loss"),
        ("SKIP / ONE}", "SKIP / ONE / 2}", "the law is a law"),
        ("self.truth(dataset)[0] ** 2", "self.truth(dataset)[0] ** 3", "the stated variance"),
        ("bits.words(n)", "np.arange(n, dtype=np.uint64)", "runs follow the law"),
    ],
)
def test_other_mistakes_are_found_by_name(tmp_path, honest, broken, found):
    assert SHOWN.count(honest) == 1
    (tmp_path / "mine.py").write_text(SHOWN.replace(honest, broken), encoding="utf-8")
    told = " | ".join(
        f"{finding.check}: {' '.join(finding.found)}"
        for finding in conformance(f"{tmp_path}/mine.py:YesNoSkip")
        if not finding.holds
    )
    assert found in told


def test_the_estimate_of_many_reports_is_near_the_share():
    client = find(f"{EXAMPLE}/my_randomizer.py:YesNoSkip").calibrate(1, 0)
    reports = np.concatenate([client.run(1, 60_000, bits("yes")), client.run(0, 140_000, bits("no"))])[:, 0]
    share, error = client.estimate(reports)
    gap = client.truth(1)[0]
    mean((1 + reports / gap) / 2, 0.3, client.variance(1)[0] / (2 * gap) ** 2)
    assert share == pytest.approx(float(np.mean((1 + reports / gap) / 2)))
    # Of clients drawn at random a report is 1, 0 or -1 with a mean of (2 * 0.3 - 1) gap.
    spread = client.variance(1)[0] + gap**2 - (0.4 * gap) ** 2
    assert error == pytest.approx(np.sqrt(spread / 200_000) / (2 * gap), rel=0.01)


def test_the_entry_point_makes_it_known_by_name(tmp_path):
    """The example's package, built and installed beside hushquery, is found by the name that its entry point gives."""
    (shown,) = fenced(PAGE, "toml")
    assert shown.strip() in (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8")
    alone = "--quiet --disable-pip-version-check --no-deps --no-index --no-build-isolation"
    command = f"python -m pip install {alone} --target {tmp_path}/site ."
    for name in ("my_randomizer.py", "pyproject.toml"):
        (tmp_path / name).write_bytes((EXAMPLE / name).read_bytes())
    done = run(command, tmp_path)
    assert done.returncode == 0, done.stderr
    path = os.pathsep.join([f"{tmp_path}/site", str(ROOT / "src")])
    done = run("hushquery audit --list", tmp_path, PYTHONPATH=path)
    (line,) = re.findall(r"^yes-no-skip .*", done.stdout, re.MULTILINE)
    assert line.split(maxsplit=3)[1:] == ["randomizer", "replace-one", "randomised response that may say nothing"]
    done = run("hushquery audit yes-no-skip --epsilon 1 --runs 20000 --seed 1", tmp_path, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
