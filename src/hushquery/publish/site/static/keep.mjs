/** The worker that keeps the site. */

/** Keep the site for later visits without a network; says whether that worked. */
export async function keepForLater() {
  try {
    await navigator.serviceWorker.register("./sw.js");
    await navigator.serviceWorker.ready;
    return true;
  } catch {
    // Private windows and plain http have no workers; everything else works without.
    return false;
  }
}
