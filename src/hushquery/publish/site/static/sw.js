// Keeps this site for when there is no network. With a network every file comes fresh; without one, from the cache.
const VERSION = "VERSION";
const FILES = ["FILES"];
const scope = new URL(registration.scope);
// Caches belong to the whole origin, and another site may live under another path of it.
const OURS = `hushquery-site ${scope.pathname} `;
const PATIENCE = 4000;

addEventListener("install", (event) => {
  const keep = async () => {
    const cache = await caches.open(OURS + VERSION);
    await cache.addAll(FILES.map((file) => new Request(new URL(file, scope), { cache: "no-cache" })));
    await skipWaiting();
  };
  event.waitUntil(keep());
});

addEventListener("activate", (event) => {
  const tidy = async () => {
    const names = await caches.keys();
    await Promise.all(names.filter((name) => name.startsWith(OURS) && name !== OURS + VERSION).map((name) => caches.delete(name)));
    await clients.claim();
  };
  event.waitUntil(tidy());
});

addEventListener("fetch", (event) => {
  const address = new URL(event.request.url);
  if (event.request.method !== "GET" || address.origin !== scope.origin || !address.pathname.startsWith(scope.pathname)) return;
  const file = address.pathname.slice(scope.pathname.length) || "index.html";
  // What was asked for once is kept too, but for downloads: the history of a query works again without a network.
  const later = /^history-\d+\.js$/.test(file);
  if (later || FILES.includes(file)) event.respondWith(freshOrKept(new URL(file, scope), later));
});

async function freshOrKept(address, keep) {
  const fresh = fetch(address, { cache: "no-cache", signal: AbortSignal.timeout(PATIENCE) });
  const answer = await fresh.catch(() => undefined);
  if (answer?.ok && !keep) return answer;
  const cache = await caches.open(OURS + VERSION);
  if (answer?.ok) {
    await cache.put(address, answer.clone());
    return answer;
  }
  return (await cache.match(address)) ?? answer ?? Response.error();
}
