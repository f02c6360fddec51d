#!/usr/bin/env bash
# Makes sure the programs that the tests start themselves are there: a PostgreSQL server, a Chromium, and Java.
set -euo pipefail

found_postgresql() {
  local bin
  command -v initdb >/dev/null && return 0
  for bin in /usr/lib/postgresql/*/bin/initdb; do
    [ -x "$bin" ] && return 0
  done
  return 1
}

found_chromium() {
  command -v chromium >/dev/null
}

# Spark 4 runs on Java 17 or newer.
found_java() {
  local java version
  java=${JAVA_HOME:+$JAVA_HOME/bin/}java
  version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p') || return 1
  [ -n "$version" ] && [ "$version" -ge 17 ]
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  else
    sudo "$@"
  fi
}

missing=()
found_postgresql || missing+=(postgresql)
found_chromium || missing+=(chromium)
found_java || missing+=(openjdk-17-jre-headless)
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null || { [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; }; then
  echo "The tests run on a real PostgreSQL server, in a real Chromium and on Spark. Missing here: ${missing[*]}" >&2
  echo "(initdb on PATH or in /usr/lib/postgresql/*/bin; chromium on PATH; java 17 in JAVA_HOME or on PATH)." >&2
  echo "They can't be installed from here: that needs apt-get, and root or sudo." >&2
  echo "Install them (PostgreSQL 13 or newer) and run 'make test' again." >&2
  exit 1
fi

echo "installing for the tests: ${missing[*]}"
# The tests start servers of their own on free ports; without this Debian would also start one for the whole machine.
as_root mkdir -p /etc/postgresql-common/createcluster.d
echo "create_main_cluster = false" | as_root tee /etc/postgresql-common/createcluster.d/no-main-cluster.conf >/dev/null
as_root apt-get update -qq
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"

found_postgresql && found_chromium && found_java || {
  echo "Installed, but not found: initdb (on PATH or in /usr/lib/postgresql/*/bin), chromium or java (on PATH)." >&2
  exit 1
}
