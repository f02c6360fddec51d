/** Load the site's data as scripts: a page that was opened as a file may run a script beside it, and fetch nothing. */
import { part } from "./pages.mjs";

const known = new Map();

/** Load a file of data; each writes what it holds under its own name. */
export function loaded(file) {
  if (!known.has(file)) {
    known.set(file, new Promise((done, fail) => {
      const script = part("script");
      script.src = file;
      script.onload = () => { script.remove(); done(globalThis.hushquery[file]); };
      script.onerror = () => { script.remove(); known.delete(file); fail(new Error(file)); };
      document.head.append(script);
    }));
  }
  return known.get(file);
}

/** Name the file that has the history of a query: FNV-1a over its UTF-8 bytes, as publish/site/history.py does. */
export function historyFile(query, shards) {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(query)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return `history-${hash % shards}.js`;
}
