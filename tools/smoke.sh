#!/usr/bin/env bash
# Does the built wheel work on the other supported Pythons? Builds it once, then for each Python that is on this machine
# installs it with the pins into a new environment outside the source tree, runs it, and imports every module.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

.venv/bin/python -m pip --disable-pip-version-check wheel -qq --no-deps --no-build-isolation -w "$work/wheel" .
wheels=("$work"/wheel/*.whl)
wheel=${wheels[0]}
constraints=$PWD/constraints.txt
echo "built $(basename "$wheel")"

import_all='
import importlib, pkgutil, pathlib, sys
import hushquery
assert pathlib.Path(hushquery.__file__).is_relative_to(sys.prefix), hushquery.__file__
names = [m.name for m in pkgutil.walk_packages(hushquery.__path__, "hushquery.") if m.name.rpartition(".")[2] != "__main__"]
for name in names:
    importlib.import_module(name)
assert (pathlib.Path(hushquery.__file__).parent / "py.typed").exists(), "the wheel has lost py.typed"
print(f"imported {len(names)} modules")
'

failed=0
for version in 3.12 3.13; do
  if ! python=$(tools/find_python.sh "$version"); then
    echo "== Python $version: not on this machine"
    continue
  fi
  echo "== Python $version: $python"
  venv=$work/venv-$version
  # One chain of && on purpose: bash ignores `set -e` inside a condition. First the core alone, then with the extras.
  if cd "$work" &&
    "$python" -m venv "$venv" &&
    "$venv/bin/python" -m pip --disable-pip-version-check install -qq --no-input -c "$constraints" "$wheel" &&
    "$venv/bin/hushquery" --version &&
    "$venv/bin/hushquery" --help >/dev/null &&
    "$venv/bin/hushquery" doctor >"$work/doctor" &&
    "$venv/bin/python" -m pip --disable-pip-version-check install -qq --no-input -c "$constraints" "${wheel}[plot,serve]" &&
    "$venv/bin/hushquery" doctor &&
    "$venv/bin/python" -c "$import_all"; then
    echo "== Python $version: ok"
  else
    [ ! -e "$work/doctor" ] || cat "$work/doctor"
    echo "== Python $version: FAILED" >&2
    failed=1
  fi
  cd "$here"
  rm -rf "$venv" "$work/doctor"
done
exit "$failed"
