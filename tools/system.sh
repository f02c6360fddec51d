#!/usr/bin/env bash
# Makes sure the programs that the tests start themselves are there: a PostgreSQL server, a Chromium, Java, and nginx.
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

found_nginx() {
  command -v nginx >/dev/null || [ -x /usr/sbin/nginx ]
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
found_nginx || missing+=(nginx-light)
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null || { [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; }; then
  echo "The tests run on a real PostgreSQL server, in a real Chromium, on Spark and behind nginx." >&2
  echo "Missing here: ${missing[*]} (initdb on PATH or in /usr/lib/postgresql/*/bin; chromium on PATH; java 17 in" >&2
  echo "JAVA_HOME or on PATH; nginx on PATH or in /usr/sbin)." >&2
  echo "They can't be installed from here: that needs apt-get, and root or sudo." >&2
  echo "Install them (PostgreSQL 13 or newer) and run 'make test' again." >&2
  exit 1
fi

echo "installing for the tests: ${missing[*]}"
# The tests start servers of their own on free ports; without these Debian would also start some for the whole machine.
as_root mkdir -p /etc/postgresql-common/createcluster.d
echo "create_main_cluster = false" | as_root tee /etc/postgresql-common/createcluster.d/no-main-cluster.conf >/dev/null
if [[ " ${missing[*]} " == *" nginx-light "* && ! -e /usr/sbin/policy-rc.d ]]; then
  printf '#!/bin/sh\nexit 101\n' | as_root tee /usr/sbin/policy-rc.d >/dev/null
  as_root chmod 755 /usr/sbin/policy-rc.d
  trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
fi
as_root apt-get update -qq
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
if [[ " ${missing[*]} " == *" nginx-light "* ]] && command -v systemctl >/dev/null; then
  as_root systemctl disable --quiet nginx 2>/dev/null || true # nor at the next start of the machine
fi

found_postgresql && found_chromium && found_java && found_nginx || {
  echo "Installed, but not found: initdb (on PATH or in /usr/lib/postgresql/*/bin), chromium, java or nginx." >&2
  exit 1
}
