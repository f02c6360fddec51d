#!/usr/bin/env bash
# Makes the development environment .venv: the versions of constraints.txt, hushquery and its experiments editable.
# The Makefile runs this only when what it reads has changed; to start over, `make clean`.
set -euo pipefail
cd "$(dirname "$0")/.."

extras=accounting,plot,serve,spark,docs,dev

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  else
    sudo "$@"
  fi
}

make_venv() {
  # Debian ships Python without ensurepip; a venv made there fails half way, so ask first.
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    local minor
    minor=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if ! command -v apt-get >/dev/null || { [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; }; then
      echo "$python can't make virtual environments: its modules venv and ensurepip are missing." >&2
      echo "Install them (on Debian: 'apt-get install python$minor-venv') and run 'make setup' again." >&2
      exit 1
    fi
    echo "installing python$minor-venv, which $python needs to make virtual environments"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "python$minor-venv"
  fi
  "$python" -m venv --clear .venv
}

# An environment whose Python is gone (the system was upgraded, the folder was moved) is made anew.
if ! .venv/bin/python -c 'import pip' 2>/dev/null || [ "$(.venv/bin/python -c 'import sys; print(sys.prefix)')" != "$PWD/.venv" ]; then
  python=$(tools/find_python.sh)
  echo "making .venv with $("$python" --version)"
  make_venv
fi

pip=(.venv/bin/python -m pip --disable-pip-version-check --no-input)
# What builds hushquery is pinned like everything else, so the build runs in this environment, not in one of its own.
# PySpark comes as source and is built by setuptools.
"${pip[@]}" install -qq -c constraints.txt hatchling editables setuptools
"${pip[@]}" install -qq -c constraints.txt --no-build-isolation -e ".[$extras]" -e experiments
.venv/bin/hushquery --version
