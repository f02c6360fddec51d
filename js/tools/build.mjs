// One ES module, minified, and its types.
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const home = fileURLToPath(new URL("..", import.meta.url));
rmSync(new URL("../dist", import.meta.url), { recursive: true, force: true });
const shared = {
  absWorkingDir: home,
  outdir: "dist",
  bundle: true,
  minify: true,
  format: "esm",
  platform: "browser",
  target: "es2022",
  legalComments: "none",
  // Names that end in an underscore are nobody's business outside.
  mangleProps: /[a-z]_$/,
  mangleCache: {},
};
// Three modules that share no file: what two of them need is in both, so that a page pays only for what it uses.
const { mangleCache } = await build({ ...shared, entryPoints: { "hushquery-client": "src/index.ts" }, external: ["./more.js"] });
await build({ ...shared, entryPoints: { more: "src/more.ts", reading: "src/reading.ts" }, mangleCache });
const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");
execFileSync(process.execPath, [tsc, "-p", "tsconfig.build.json"], { cwd: home, stdio: "inherit" });
