"""The runner of pages finds what a reader would run, runs it, and tells what went otherwise than shown."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from documents import Block, Command, agree, asked_of_make, blocks, commands, not_made, run_markdown, without_reason

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
print("one", 0.123, "three")
```

```output
one ... three
```

```{toctree}
not a command either
```

- in a list

  ```python
  import os

  if os.listdir():
      print(sorted(os.listdir()))
  ```
  ```output
  ['made', 'numbers']
  ```

<!-- not run: it needs a second machine -->

```bash
exit 7
```
"""


def test_blocks_are_found() -> None:
    found = blocks(SAMPLE)
    assert [block.kind for block in found] == ["console", "bash", "python", "python", "bash"]
    assert [block.not_run for block in found] == [None, None, None, None, "it needs a second machine"]
    assert [block.output for block in found] == ["", "", "one ... three", "['made', 'numbers']", ""]
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
        ("```python\nprint(1)\n```\n\n```output\n2\n```", "line 2: the block printed\n1"),
        ("```bash\necho one\n```\n```output\ntwo\n```", "line 2: the block printed\none"),
        ("```{note}\nfalse\n```\n```bash\nfalse\n```", "line 5: the block exited with 1"),
        ("<!-- not run: far above -->\ntext\n```bash\nfalse\n```", "line 4: the block exited with 1"),
    ],
)
def test_what_goes_wrong_is_told(text: str, told: str, tmp_path: Path) -> None:
    [wrong] = run_markdown(text, tmp_path)
    assert wrong.startswith(told)


@pytest.mark.parametrize(
    ("want", "got", "same"),
    [
        ("a b", "a  b\n", True),
        ("a b", "a b c", False),
        ("a ... c", "a b\nb c", True),
        ("a ... c", "a c", True),
        ("a ... c", "a c d", False),
        ("a ... c ...", "a c d", True),
        ("a ... c ... b", "a b c", False),
        ("... c", "a b c", True),
        ("a... c", "b a c", False),
        ("ab...ba", "aba", False),
        ("...", "", True),
    ],
)
def test_outputs_agree_or_do_not(want: str, got: str, same: bool) -> None:
    assert agree(want, got) is same


def test_a_block_left_open_is_told() -> None:
    with pytest.raises(AssertionError, match="not closed"):
        blocks("```bash\ntrue\n")


@pytest.mark.parametrize("above", ["```console\n$ true\n```\n", "```bash\ntrue\n```\ntext\n", ""])
def test_an_output_of_nothing_is_told(above: str) -> None:
    with pytest.raises(AssertionError, match="not right below"):
        blocks(f"{above}```output\none\n```\n")


def test_what_make_does_not_make_is_told() -> None:
    assert not_made("```bash\nmake test no-such-thing\n```\n") == {"no-such-thing"}


def test_a_block_left_out_without_a_reason_is_told() -> None:
    text = "<!-- not run: needs a cluster -->\n```bash\nfalse\n```\n<!-- not run: -->\n```bash\nfalse\n```\n"
    assert without_reason(text) == [7]
