// Says whether `npm pack` has put into the package what belongs there and nothing else: its --json on standard input.
import { readFileSync } from "node:fs";

const [{ files, filename, size }] = JSON.parse(readFileSync(0, "utf8"));
const types = /^dist\/types\/[a-z_]+\.d\.ts$/;
const names = files.map((file) => file.path).sort();
const wanted = ["LICENSE", "README.md", "package.json", "dist/hushquery-client.js", "dist/more.js", "dist/reading.js"];
const missing = [...wanted, "dist/types/index.d.ts", "dist/types/reading.d.ts"].filter((name) => !names.includes(name));
const strange = names.filter((name) => !wanted.includes(name) && !types.test(name));
if (missing.length || strange.length) {
  console.error(`${filename} lacks ${missing.join(", ") || "nothing"} and has ${strange.join(", ") || "nothing"} besides`);
  process.exit(1);
}
console.log(`${filename}: ${names.length} files, ${size} bytes`);
