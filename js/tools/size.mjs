// Fails when what every page loads outgrows what it should carry.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const MOST = 14_500;
for (const file of ["hushquery-client.js", "more.js", "reading.js"]) {
  const bytes = readFileSync(new URL(`../dist/${file}`, import.meta.url));
  console.log(`${file}: ${bytes.length} bytes, ${gzipSync(bytes, { level: 9 }).length} gzipped`);
  if (file.startsWith("hushquery") && bytes.length > MOST) {
    console.error(`that is more than ${MOST}`);
    process.exitCode = 1;
  }
}
