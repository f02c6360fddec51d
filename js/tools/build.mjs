// One ES module, minified, and its types.
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const home = fileURLToPath(new URL("..", import.meta.url));
rmSync(new URL("../dist", import.meta.url), { recursive: true, force: true });
await build({
  absWorkingDir: home,
  entryPoints: { "hushquery-client": "src/index.ts" },
  outdir: "dist",
  bundle: true,
  minify: true,
  format: "esm",
  platform: "browser",
  target: "es2022",
  sourcemap: false,
  legalComments: "none",
  // Names that end in an underscore are nobody's business outside.
  mangleProps: /[a-z]_$/,
});
const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");
execFileSync(process.execPath, [tsc, "-p", "tsconfig.build.json"], { cwd: home, stdio: "inherit" });
