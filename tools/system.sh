#!/usr/bin/env bash
# Makes sure the programs that the tests start themselves are there: a PostgreSQL server.
set -euo pipefail

found() {
  local bin
  command -v initdb >/dev/null && return 0
  for bin in /usr/lib/postgresql/*/bin/initdb; do
    [ -x "$bin" ] && return 0
  done
  return 1
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  else
    sudo "$@"
  fi
}

found && exit 0

if ! command -v apt-get >/dev/null || { [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; }; then
  echo "The ledger's tests run on a real PostgreSQL server, and no initdb was found" >&2
  echo "(on PATH or in /usr/lib/postgresql/*/bin). It can't be installed from here: that needs apt-get, and root or sudo." >&2
  echo "Install PostgreSQL 13 or newer, put its bin folder on PATH, and run 'make test' again." >&2
  exit 1
fi

echo "installing PostgreSQL (server binaries, for the tests)"
# The tests start servers of their own on free ports; without this Debian would also start one for the whole machine.
as_root mkdir -p /etc/postgresql-common/createcluster.d
echo "create_main_cluster = false" | as_root tee /etc/postgresql-common/createcluster.d/no-main-cluster.conf >/dev/null
as_root apt-get update -qq
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql

found || {
  echo "PostgreSQL was installed, but its initdb is neither on PATH nor in /usr/lib/postgresql/*/bin." >&2
  exit 1
}
