// The built client in a real Chromium: what it remembers over reloads, tabs and restarts, and what it sends.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { startSite, taskOf } from "./site.mjs";

// Behind Debian's wrapper, which adds arguments of its own.
const binary = [process.env.CHROMIUM, "/usr/lib/chromium/chromium", "/usr/bin/chromium"].find((path) => path && existsSync(path));
const profile = mkdtempSync(join(tmpdir(), "hushquery-browser-"));
let site;
let browser;

async function startBrowser() {
  return chromium.launchPersistentContext(profile, { executablePath: binary, headless: true, args: ["--headless=new", "--no-sandbox", "--disable-quic"] });
}

/** Open a tab with `fetchTask`, `Client`, `send` and a client in its `window`. */
async function tab(name, clientId) {
  const page = await browser.newPage();
  page.on("pageerror", (error) => assert.fail(error));
  await page.goto(site.address);
  await set(page, name, clientId);
  return page;
}

async function set(page, name, clientId) {
  await page.evaluate(
    async ({ id, clientId }) => {
      window.hq = await import("/hushquery-client.js");
      window.client = new hq.Client(await hq.fetchTask(location.origin, id), { clientId });
      window.text = (report) => report && JSON.stringify(report);
    },
    { id: taskOf(name).id, clientId },
  );
}

before(async () => {
  site = await startSite();
  browser = await startBrowser();
});

after(async () => {
  await browser?.close();
  site?.close();
  rmSync(profile, { recursive: true, force: true });
});

const OTHERS = { number: [37, 99], searches: ["news", "something else"], setting: ["dark", "sepia"], text: ["one", "another"] };
const EVERYWHERE = ["krr", "oue", "subset", "olh", "hadamard"];
for (const name of [...EVERYWHERE, "two-stage", "onebit", "dbitflip", "rappor"]) {
  test(`${name}: the memo survives a reload, and the answer does not change`, async () => {
    site.modules.length = 0;
    const page = await tab(name, `reload ${name}`);
    const [value, other] = OTHERS[taskOf(name).served.task.task.kind];
    const first = await page.evaluate(async (value) => text(await client.report(value)), value);
    assert.equal(Buffer.from(JSON.parse(first).configuration, "base64url").toString("hex"), taskOf(name).hash);
    await page.evaluate(
      async ({ report, served, id }) => {
        const reading = await import("/reading.js");
        reading.openReport(reading.reportFromJson(report), await hq.configure(served, id));
      },
      { report: first, ...taskOf(name) },
    );
    assert.equal(site.modules.includes("/more.js"), !EVERYWHERE.includes(name), "only some tasks load more");
    await page.reload();
    await set(page, name, `reload ${name}`);
    assert.equal(await page.evaluate(async (value) => text(await client.report(value)), other), first);
    assert.equal(await page.evaluate(async () => (await client.account()).entries.length), 1);
    await page.close();
  });
}

test("the task is fetched anew each time, and nothing that the collector chose goes back to it", async () => {
  site.asked.length = 0;
  await (await tab("krr", "anew")).close();
  await (await tab("krr", "anew")).close();
  const shown = site.asked.map(({ "if-none-match": tag, "if-modified-since": since, cookie, referer }) => [tag, since, cookie, referer]);
  assert.deepEqual(shown, Array(2).fill(Array(4).fill(undefined)));
});

test("two tabs at once give one report", async () => {
  const tabs = await Promise.all([tab("oue", "tabs"), tab("oue", "tabs")]);
  const made = await Promise.all(
    tabs.map((page, i) =>
      page.evaluate(async (value) => Promise.all(Array.from({ length: 10 }, async () => text(await client.report(value)))), ["dark", "light"][i]),
    ),
  );
  assert.equal(new Set(made.flat()).size, 1);
  assert.equal(await tabs[0].evaluate(async () => (await client.account()).entries.length), 1);
  assert.equal(await tabs[1].evaluate(async () => (await client.outbox()).length), 1);
  for (const page of tabs) await page.close();
});

test("the outbox survives a closed tab and a closed browser, and sends the same bytes", async () => {
  let page = await tab("krr", "outbox");
  site.down = true;
  site.bodies.length = 0;
  const made = await page.evaluate(async () => text(await client.report("light")));
  const tried = await page.evaluate(async () => (await hq.send(client, location.origin)).map((one) => one.outcome));
  assert.deepEqual(tried, ["later"]);
  assert.deepEqual(await page.evaluate(async () => hq.send(client, location.origin)), [], "it pauses");
  await browser.close();
  browser = await startBrowser();
  site.down = false;
  page = await tab("krr", "outbox");
  const sent = await page.evaluate(async () => {
    // Ten minutes later.
    const later = new hq.Client(client.configuration, { clientId: "outbox", clock: () => Date.now() / 1000 + 600 });
    return (await hq.send(later, location.origin)).map((one) => one.outcome);
  });
  assert.deepEqual(sent, ["stored"]);
  assert.deepEqual(new Set(site.bodies), new Set([made]));
  assert.ok(site.bodies.length >= 2);
  assert.deepEqual([...site.stored.values()].filter((text) => text === made).length, 1);
  assert.equal(await page.evaluate(async () => (await client.outbox()).length), 0);
  await page.close();
});

test("a report follows nobody to another address", async () => {
  const page = await tab("krr", "redirect");
  const gone = [];
  page.on("request", (request) => gone.push(new URL(request.url()).pathname));
  // As a collector would answer that sends reports on to somebody else.
  await page.route("**/reports/*", (route) => route.fulfill({ status: 307, headers: { Location: "/elsewhere" } }));
  await page.evaluate(async () => client.report("light"));
  assert.deepEqual(await page.evaluate(async () => (await hq.send(client, location.origin)).map((one) => one.outcome)), ["later"]);
  assert.ok(gone.length > 0 && !gone.includes("/elsewhere"));
  await page.close();
});

test("an error of the part that is loaded later is one of the same class", async () => {
  const page = await tab("onebit", "class");
  const [same, code] = await page.evaluate(async () => {
    const error = await client.report(101).catch((error) => error);
    return [error instanceof hq.HushqueryError && error instanceof Error && !(new TypeError() instanceof hq.HushqueryError), error.code];
  });
  assert.deepEqual([same, code], [true, "UnknownValue"]);
  await page.close();
});

test("forgetting makes a new client", async () => {
  const page = await tab("krr", "forget");
  const [first, second] = await page.evaluate(async () => {
    const before = text(await client.report("dark"));
    await client.forget();
    return [before, text(await client.report("dark"))];
  });
  assert.notEqual(first, second);
  await page.close();
});

test("texts take the form that they take in Python", async () => {
  const page = await tab("krr", "texts");
  const { texts } = JSON.parse(readFileSync(new URL("../fixtures/texts.json", import.meta.url), "utf8"));
  // A lone half of a letter does not survive the way into the page.
  const whole = texts.filter(([text]) => text.isWellFormed());
  const forms = await page.evaluate((all) => all.map(([text]) => [text, hq.normalQuery(text), hq.normalUrl(text), hq.normalValue(text)]), whole);
  assert.ok(whole.length > 500);
  assert.deepEqual(forms, whole);
  await page.close();
});

test("nothing that was reported is in the browser's storage", async () => {
  const page = await tab("subset", "storage");
  await page.evaluate(() => client.report("v7"));
  const kept = await page.evaluate(
    () =>
      new Promise((resolve) => {
        indexedDB.open("hushquery").onsuccess = ({ target }) => {
          const found = target.result.transaction("state").objectStore("state").get("client storage");
          found.onsuccess = () => resolve(JSON.stringify(found.result));
        };
      }),
  );
  assert.ok(kept.length > 100);
  assert.doesNotMatch(kept, /"v7"/);
  await page.close();
});
