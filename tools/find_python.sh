#!/usr/bin/env bash
# Prints the path of a Python that really runs.
#
#   tools/find_python.sh 3.12     that minor version, or exit 1
#   tools/find_python.sh          any from 3.11 on, 3.11 preferred (what CI runs), or a clear message and exit 1
#
# A name on PATH is not enough: pyenv puts a `python3.12` there that fails unless that version is switched on.
set -euo pipefail

# Prints the real path of command $1 if it runs and its version is at least $2 and, where $3 is given, below $3.
probe() {
  "$1" - "$2" "${3:-}" 2>/dev/null <<'PY'
import sys
low, high = (tuple(map(int, v.split("."))) if v else None for v in sys.argv[1:3])
if sys.version_info < low or (high and sys.version_info >= high):
    sys.exit(1)
print(sys.executable)
PY
}

minor() { # $1 like 3.12
  local next="${1%.*}.$((${1#*.} + 1))" candidate
  for candidate in "python$1" "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/"$1".*/bin/python; do
    probe "$candidate" "$1" "$next" && return 0
  done
  return 1
}

if [ $# -eq 1 ]; then
  minor "$1"
  exit
fi

minor 3.11 || probe python3 3.11 || minor 3.12 || minor 3.13 || {
  echo "hushquery needs Python 3.11 or newer, and none was found (on PATH or in pyenv)." >&2
  echo "Install one, for example 'apt-get install python3.11 python3.11-venv', and run the command again." >&2
  exit 1
}
