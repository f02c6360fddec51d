// Fails when the bundle outgrows what a page should carry.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const MOST = 12_000;
const bundle = readFileSync(new URL("../dist/hushquery-client.js", import.meta.url));
console.log(`${bundle.length} bytes minified, ${gzipSync(bundle, { level: 9 }).length} gzipped; at most ${MOST} minified`);
if (bundle.length > MOST) process.exit(1);
