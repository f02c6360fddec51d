// Put the extension together in dist/: its own files, and the hushquery client as one module.
//   node examples/extension/build.mjs [--out FOLDER]
import { cpSync, existsSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const here = fileURLToPath(new URL(".", import.meta.url));
const js = resolve(here, "../../js");
const { values } = parseArgs({ options: { out: { type: "string", default: join(here, "dist") } } });
if (!existsSync(join(js, "dist/hushquery-client.js"))) {
  console.error("The client is not built yet. Run: cd js && npm ci && npm run build");
  process.exit(1);
}
const { build } = createRequire(join(js, "package.json"))("esbuild");
rmSync(values.out, { recursive: true, force: true });
cpSync(join(here, "src"), values.out, { recursive: true });
// A service worker can't load modules later, as the client does with mechanisms that few tasks use: all in one file.
await build({
  stdin: { contents: 'export * from "./hushquery-client.js"; export { openReport } from "./reading.js";', resolveDir: join(js, "dist") },
  outfile: join(values.out, "lib/hushquery-client.js"),
  bundle: true,
  format: "esm",
  target: "es2022",
});
console.log(`load this folder as an unpacked extension: ${values.out}`);
