// Runs on the configured site only, while the extension is on. It tells the worker what was typed into a form and
// submitted, that a page was loaded, and which result was clicked; the worker reads the query from the page's address.
// Nothing is sent to anyone else.
(() => {
  const { runtime } = globalThis.browser ?? chrome;
  const tell = (message) => {
    try {
      Promise.resolve(runtime.sendMessage(message)).catch(() => {});
    } catch {
      // The extension was removed while this page was open.
    }
  };
  // Any site can lead here with a query of its choice in the address, which then stands in the form too. So only what
  // its user has typed on the page counts: pages can't make trusted events.
  const typed = new Set();
  const isText = (field) => field instanceof HTMLTextAreaElement || (field instanceof HTMLInputElement && /^(text|search)$/.test(field.type));
  addEventListener("input", ({ isTrusted, target }) => isTrusted && isText(target) && typed.add(target), true);
  addEventListener("submit", ({ target }) => {
    const words = [...typed].filter((field) => field.form === target).map((field) => field.value);
    if (words.length) tell({ typed: words });
  }, true);

  // A reload, or the way back from a result, is not another search.
  if (performance.getEntriesByType("navigation")[0]?.type !== "navigate") return;
  const search = Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  tell({ search });
  const clicked = ({ isTrusted, target }) => {
    const link = isTrusted && target instanceof Element && target.closest("a[href]");
    // Links within the site are its menus, not its results.
    if (link && /^https?:$/.test(link.protocol) && link.host !== location.host) tell({ search, clicked: link.href });
  };
  addEventListener("click", clicked, true);
  addEventListener("auxclick", clicked, true);
})();
