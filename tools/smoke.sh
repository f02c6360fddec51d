#!/usr/bin/env bash
# Does what is shipped work? Builds the source archive, the wheel from that archive, and for each Python that is on this
# machine installs the wheel with the pins into a new environment, and uses it there, outside the source tree.
# On 3.11 as a new user would, without any extra: a log, a release, the README's program, and types for a program that
# uses it. On 3.12 and 3.13 with the extras: every module and every check of `doctor`. PYTHONS="3.11" tries fewer.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What is on PATH or PYTHONPATH here must not help, and the ledger of whoever runs this must not be spent from.
unset PYTHONPATH HUSHQUERY_LEDGER
export XDG_DATA_HOME=$work/data
.venv/bin/python -m hatchling build -t sdist -d "$work/sdist" >/dev/null 2>&1
sources=("$work"/sdist/*.tar.gz)
(cd "$work" && "$here/.venv/bin/python" -m pip --disable-pip-version-check wheel -qq --no-deps --no-build-isolation -w "$work/wheel" "${sources[0]}")
wheels=("$work"/wheel/*.whl)
wheel=${wheels[0]}
constraints=$PWD/constraints.txt
echo "built $(basename "${sources[0]}"), and from it $(basename "$wheel")"

import_all='
import importlib, pkgutil, pathlib, sys
import hushquery
assert pathlib.Path(hushquery.__file__).is_relative_to(sys.prefix), hushquery.__file__
names = [m.name for m in pkgutil.walk_packages(hushquery.__path__, "hushquery.") if m.name.rpartition(".")[2] != "__main__"]
for name in names:
    importlib.import_module(name)
print(f"imported {len(names)} modules")
'

schemas='
import json, importlib.resources, pathlib, sys
import hushquery
assert pathlib.Path(hushquery.__file__).is_relative_to(sys.prefix), hushquery.__file__
found = sorted(f.name for f in (importlib.resources.files("hushquery") / "schemas").iterdir())
assert "manifest.schema.json" in found, found
for name in found:
    json.loads((importlib.resources.files("hushquery") / "schemas" / name).read_text("utf-8"))
print(f"{len(found)} schemas")
'

# A program of somebody who uses the package and wants its types: the last two lines are mistakes that must be found.
cat >"$work/program.py" <<'PYTHON'
from __future__ import annotations

import hushquery as hq


def publish(path: str, epsilon: float) -> hq.Release:
    plan = hq.plan_release(hq.read_log(path), epsilon=epsilon, delta=1e-6, queries_per_user=20, population="readers")
    release: hq.Release = plan.run("ledger.db")
    first: hq.Guarantee = release.guarantees[0]
    print(first.in_words(), hq.SearchIndex(release).search("perfume").queries[:1])
    return release


def report(task: hq.Task, value: str) -> bytes | None:
    made = hq.Client(task, "client.db").report(value)
    return made.to_bytes() if made is not None else None


print(hq.Budget(1, 1e-6), hq.Unit("user", hq.Relation.ADD_REMOVE), hq.compose, hq.estimate, hq.blend)
PYTHON
sed '$d' "$work/program.py" >"$work/mistaken.py"
printf 'publish(7, epsilon="much")\nhq.nonsense()\n' >>"$work/mistaken.py"

# The README's program for a curator: the first Python block that plans a release.
readme=$(.venv/bin/python - README.md <<'PYTHON'
import re, sys

blocks = re.findall(r"^```python\n(.*?)^```$", open(sys.argv[1], encoding="utf-8").read(), re.M | re.S)
print(next(block for block in blocks if "hq.plan_release(" in block))
PYTHON
)

install() { # $1 environment, the rest for pip
  local venv=$1
  shift
  "$venv/bin/python" -m pip --disable-pip-version-check install -qq --no-input --no-compile -c "$constraints" "$@"
}

typed() { # $1 environment
  local told
  told=$(cd "$work" && "$here/.venv/bin/mypy" --strict --no-incremental --python-executable "$1/bin/python" program.py mistaken.py) || true
  if grep -v '^mistaken\.py:\|^Found 3 errors' <<<"$told"; then
    echo "mypy finds mistakes where there are none, or none at all" >&2
    return 1
  fi
  grep -q 'has incompatible type "int"' <<<"$told" && grep -q 'no attribute "nonsense"' <<<"$told" &&
    echo "types: a program that uses hushquery is checked, and its mistakes are found"
}

# One chain of && on purpose: bash ignores `set -e` inside a condition.
as_a_new_user() { # $1 environment, $2 an empty folder
  mkdir "$2" && cd "$2" &&
    hush=$1/bin/hushquery &&
    "$hush" doctor >"$work/doctor" &&
    "$hush" demo --users 300 --out demo >/dev/null &&
    { ! "$hush" experiment local 2>told; } &&
    grep -q 'pip install ./experiments' told &&
    "$1/bin/python" -c "$schemas" &&
    "$hush" synth --profile aol --users 20000 --seed 1 --out log.tsv &&
    "$hush" release log.tsv --epsilon "ln(10)" --delta 1e-6 --queries-per-user 20 --clicks-per-user 5 --population readers --out published &&
    "$hush" verify published >verified &&
    head -n 1 verified &&
    "$hush" search published perfum --limit 1 >searched &&
    grep -q 'https://' searched &&
    "$1/bin/python" -c "$readme" >program &&
    typed "$1"
}

with_extras() { # $1 environment
  "$1/bin/hushquery" --help >/dev/null &&
    install "$1" "${wheel}[plot,serve]" &&
    "$1/bin/hushquery" doctor >"$work/doctor" &&
    tail -n 1 "$work/doctor" &&
    "$1/bin/python" -c "$import_all"
}

failed=0
for version in ${PYTHONS:-3.11 3.12 3.13}; do
  if ! python=$(tools/find_python.sh "$version"); then
    echo "== Python $version: not on this machine"
    continue
  fi
  echo "== Python $version: $python"
  venv=$work/venv-$version
  check=with_extras
  [ "$version" != 3.11 ] || check=as_a_new_user
  if cd "$work" &&
    "$python" -m venv "$venv" &&
    install "$venv" "$wheel" &&
    "$venv/bin/hushquery" --version &&
    "$check" "$venv" "$work/use-$version"; then
    echo "== Python $version: ok"
  else
    [ ! -e "$work/doctor" ] || cat "$work/doctor"
    echo "== Python $version: FAILED" >&2
    failed=1
  fi
  cd "$here"
  rm -rf "$venv" "$work/doctor" "$work/use-$version"
done
exit "$failed"
