// The example extension in a real Chromium, against a real collector: what it keeps, what leaves, and what stops it.
//   npm run build && node --test test/extension/        (PYTHON=/path/to/python with hushquery)
// SCREENSHOTS=folder also takes pictures; PERIOD=2m makes them look like life, and the test slow.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { root, startCollector, startOtherSite, startProxy, startSearchPage } from "./house.mjs";

// Behind Debian's wrapper, which adds arguments of its own.
const binary = [process.env.CHROMIUM, "/usr/lib/chromium/chromium", "/usr/bin/chromium"].find((path) => path && existsSync(path));
const PERIOD = process.env.PERIOD ?? "8s";
const [SECONDS, PRECISION] = PERIOD.endsWith("m") ? [60 * parseInt(PERIOD), "1m"] : [parseInt(PERIOD), "1s"];
// A paused upload is tried again after half a minute; a period has to end first.
const PATIENCE = 1000 * (2 * SECONDS + 90);

const folder = mkdtempSync(join(tmpdir(), "hushquery-extension-"));
const unpacked = join(folder, "unpacked");
// What the extension's worker and pages asked for, their own files included.
const own = [];
let [site, proxy, collector, browser, home] = [];

async function startBrowser() {
  browser = await chromium.launchPersistentContext(join(folder, "profile"), {
    executablePath: binary,
    headless: true,
    viewport: { width: 400, height: 720 },
    args: [
      ...["--headless=new", "--no-sandbox", "--disable-quic"],
      ...[`--disable-extensions-except=${unpacked}`, `--load-extension=${unpacked}`],
      ...[`--proxy-server=${proxy.address}`, "--proxy-bypass-list=<-loopback>"],
    ],
  });
  const page = (request) => {
    try {
      return request.frame().url();
    } catch {
      return ""; // a window that is just being opened
    }
  };
  browser.on("request", (request) => {
    if (request.serviceWorker() || page(request).startsWith("chrome-extension:")) own.push(`${request.method()} ${request.url()}`);
  });
  const worker = browser.serviceWorkers()[0] ?? (await browser.waitForEvent("serviceworker"));
  home = worker.url().replace(/worker\.js$/, "");
}

/** Open a page of the extension. */
async function open(name) {
  const page = await browser.newPage();
  page.on("pageerror", (error) => assert.fail(error));
  page.setDefaultTimeout(PATIENCE);
  await page.goto(home + name);
  return page;
}

/** Search, and click the first result if asked to. */
async function search(query, click = false) {
  const page = await browser.newPage();
  await page.goto(site.address);
  await page.getByRole("searchbox").fill(query);
  await page.getByRole("button", { name: "Search" }).click();
  await page.waitForURL(/\?q=/);
  if (click) await page.getByRole("listitem").first().getByRole("link").click({ noWaitAfter: true });
  // The page closes when the message about it has arrived: the worker answers in order.
  await page.waitForTimeout(200);
  await page.close();
}

async function picture(page, name) {
  if (!process.env.SCREENSHOTS) return;
  mkdirSync(process.env.SCREENSHOTS, { recursive: true });
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await page.screenshot({ path: join(process.env.SCREENSHOTS, `extension-${name}-${colorScheme}.png`), fullPage: true });
  }
}

const toCollector = () => proxy.seen.filter(({ url }) => url.startsWith(collector.address));
const uploads = () => toCollector().filter(({ method }) => method === "PUT" || method === "POST");
const periodOf = ({ body }) => Math.floor(JSON.parse(body).time / SECONDS);
const now = () => Date.now() / 1000;
const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
const untilPeriodBegins = () => sleep(SECONDS - (now() % SECONDS));

async function until(what, holds) {
  for (const end = Date.now() + PATIENCE; !(await holds()); await sleep(0.1)) assert.ok(Date.now() < end, what);
}

const SEARCHED = ["weather leeds", "Leeds  Tickets", "zebra crossings in pudsey"];

before(async () => {
  execFileSync(process.execPath, [join(root, "examples/extension/build.mjs"), "--out", unpacked]);
  collector = await startCollector(folder, PERIOD, PRECISION);
  [site, proxy] = [await startSearchPage(), await startProxy()];
  await startBrowser();
});

after(async () => {
  await browser?.close();
  await collector?.close();
  for (const one of [site, proxy]) one?.close();
  rmSync(folder, { recursive: true, force: true });
});

test("of n searches each is kept with the same chance", async () => {
  const page = await open("popup.html");
  const kept = await page.evaluate(async () => {
    const { chosen } = await import("./choice.js");
    // All 1 * 2 * 3 * 4 ways in which the draws can fall, which are equally likely.
    const counts = [0, 0, 0, 0];
    for (let way = 0; way < 24; way++) {
      let rest = way;
      const draw = (limit) => {
        const drawn = rest % limit;
        rest = Math.floor(rest / limit);
        return drawn;
      };
      let one = { period: 6, count: 9, id: "of the period before" };
      for (let i = 0; i < 4; i++) one = chosen(one, 7, { id: i }, draw);
      counts[one.id] += 1;
    }
    return counts;
  });
  assert.deepEqual(kept, [6, 6, 6, 6]);
  const drawn = await page.evaluate(async () => {
    const { below } = await import("./choice.js");
    return Array.from({ length: 3000 }, () => below(3)).reduce((counts, one) => counts.with(one, counts[one] + 1), [0, 0, 0]);
  });
  // Six standard deviations: one run in a hundred million fails by chance.
  for (const count of drawn) assert.ok(Math.abs(count - 1000) < 155, String(drawn));
  await page.close();
});

test("what a report means is said of the same entries that the client means", async () => {
  const page = await open("popup.html");
  const golden = JSON.parse(readFileSync(join(root, "vectors/report_v1.json"), "utf8")).tasks;
  const searches = golden.filter((one) => JSON.parse(one.configuration.canonical).domain.kind === "searches");
  assert.ok(searches.length >= 4);
  for (const { task, configuration } of searches) {
    const served = { task: JSON.parse(task.canonical), configuration: JSON.parse(configuration.canonical) };
    served.task.client.enabled = true;
    const meanings = await page.evaluate(
      async ({ served, id }) => {
        const { Client, configure } = await import("./lib/hushquery-client.js");
        const { described } = await import("./words.js");
        const configuration = await configure(served, id);
        const record = { query: " NEWS", url: "" };
        const made = [];
        for (let i = 0; i < 60; i++) {
          const client = new Client(configuration, { state: "words", clientId: String(i) });
          made.push(described(configuration, await client.report(record.query, record.url), record, true));
        }
        indexedDB.deleteDatabase("words");
        return made;
      },
      { served, id: task.id },
    );
    const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
    for (const { counts, names, truthful, how, bound } of meanings) {
      assert.deepEqual(counts, ["news", ""]);
      assert.match(bound, /at most 54\.6 times as likely .*ε = 4/);
      if (truthful === null) assert.match(how, /^It puts all 4 entries into 56 groups .* 50%/);
      else assert.equal(truthful, names.some((name) => same(name, counts)));
    }
    // At epsilon 4 the truth has a chance of 0.8 at least; were the entries mixed up it would be below 0.1.
    if (meanings[0].truthful !== null) assert.ok(meanings.filter((one) => one.truthful).length > 20);
  }
  await page.close();
});

test("as installed it is off, and nothing is watched", async () => {
  await search("before anything was set up");
  const popup = await open("popup.html");
  assert.match(await popup.getByRole("status").textContent(), /Not set up/);
  assert.ok(await popup.getByRole("switch").isDisabled());
  assert.deepEqual(toCollector(), []);
  assert.doesNotMatch(await popup.evaluate(async () => JSON.stringify(await chrome.storage.local.get())), /anything/);
  await popup.close();
});

test("the settings take a task only as its id promises it", async () => {
  const page = await open("options.html");
  const save = page.getByRole("button", { name: "Check the task and save" });
  const said = page.getByRole("status");
  await page.getByLabel("Collector").fill(collector.address);
  await page.getByLabel("Task id").fill("12ab");
  await page.getByLabel("Site").fill(`${site.address}/*`);
  await save.click();
  await page.getByText("64 hexadecimal digits.").waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.id), "task");
  await page.getByLabel("Task id").fill(collector.task.replace(/^./, (digit) => (digit === "0" ? "1" : "0")));
  await save.click();
  await page.getByText("has no such task").waitFor();
  await page.getByLabel("Task id").fill(collector.task);
  // A collector that asks for more than the task of this id does.
  proxy.forge = (text) => text.replace('"epsilon":"2"', '"epsilon":"3"');
  await save.click();
  await page.getByText("is not the task of this id").waitFor();
  proxy.forge = null;
  assert.equal(await page.evaluate(async () => (await chrome.storage.local.get()).state?.settings ?? null), null);
  await save.click();
  await page.getByText("Saved. It is off").waitFor();
  assert.match(await page.locator("#facts").textContent(), /ε = 2: a report is at most 7.4 times/);
  assert.equal(await said.getAttribute("class"), "");
  await page.setViewportSize({ width: 720, height: 800 });
  await picture(page, "options");
  await page.close();
  assert.deepEqual(uploads(), []);
});

test("one report per period, and the popup shows its bytes", async () => {
  const popup = await open("popup.html");
  await untilPeriodBegins();
  const searchedIn = Math.floor(now() / SECONDS);
  await popup.getByRole("switch").check();
  await popup.getByText("Watches searches on").waitFor();
  await search(SEARCHED[0], true);
  await popup.getByText("weather leeds → https://weather.example/leeds").waitFor();
  await search(SEARCHED[1]);
  await search(SEARCHED[2]);

  await popup.locator(".tag.stored").first().waitFor();
  assert.equal(await collector.counted("accepted"), 1);
  const [first] = uploads();
  assert.equal(first.status, 201);
  assert.ok(periodOf(first) > searchedIn, "it is made when the period is over");
  assert.equal(await popup.locator("#latest-entry pre").textContent(), first.body);
  assert.equal(JSON.parse(first.body).id, first.url.split("/").at(-1));
  const record = await popup.locator("#latest-entry dd").first().textContent();
  assert.ok(SEARCHED.some((query) => record.startsWith(query)), record);

  // Another search in the period that has its report: it is kept for the next one.
  const made = periodOf(first);
  await search("news");
  await popup.locator("#latest-entry summary").click();
  await popup.setViewportSize({ width: 400, height: 600 });
  await picture(popup, "popup");
  await popup.locator("#latest dd", { hasText: /^news → no click/ }).first().waitFor({ state: "attached" });
  await until("the collector has it", async () => (await collector.counted("accepted")) >= 2);
  assert.equal(new Set(uploads().filter((one) => periodOf(one) === made).map((one) => one.body)).size, 1);
  assert.match(await popup.locator("#account-note").textContent(), /^ε [246] of 8 /);
  await popup.close();
});

/** All that the extension keeps. */
const kept = (page) => page.evaluate(async () => JSON.stringify(await chrome.storage.local.get()));

test("a search that another site leads to is not its user's", async () => {
  const other = await startOtherSite(`${site.address}/?q=planted+words`);
  const popup = await open("popup.html");
  assert.ok(await popup.getByRole("switch").isChecked());
  const page = await browser.newPage();
  const landed = () => page.waitForURL(/\?q=planted/);
  try {
    for (const way of other.ways.filter((one) => one !== "/opener")) {
      await page.goto(other.address + way).catch(() => {}); // some have gone on before they are there
      if (/link|noreferrer/.test(way)) await page.getByRole("link").click();
      if (way === "/frame") await page.frameLocator("iframe").getByRole("searchbox").waitFor();
      else await landed();
      await page.waitForTimeout(200);
      assert.doesNotMatch(await kept(popup), /planted/, way);
    }
    // From the address bar or a bookmark: nobody can tell whose idea it was.
    await page.goto(`${site.address}/?q=planted+bookmark`);
    // The words that came with the address, sent once more with a click or by the page's script, were not typed either.
    await page.goto(`${other.address}/link`);
    await page.getByRole("link").click();
    await landed();
    await page.getByRole("button", { name: "Search" }).click();
    await page.waitForLoadState();
    await page.evaluate(() => document.forms[0].requestSubmit());
    await page.waitForLoadState();
    await page.waitForTimeout(200);
    assert.doesNotMatch(await kept(popup), /planted/);
    // Who holds the window can send it elsewhere right after its user has searched.
    await page.goto(`${other.address}/opener`);
    const [opened] = await Promise.all([page.waitForEvent("popup"), page.getByRole("button").click()]);
    await opened.getByRole("searchbox").fill("typed in a window of theirs");
    await page.evaluate((target) => setTimeout(() => (globalThis.w.location = target), 300), `${site.address}/?q=planted+late`);
    await opened.evaluate(() => document.forms[0].addEventListener("submit", (event) => event.preventDefault()));
    await opened.getByRole("searchbox").press("Enter");
    await opened.waitForURL(/planted/);
    await opened.waitForTimeout(200);
    await opened.close();
    assert.doesNotMatch(await kept(popup), /planted|window of theirs/);
    // On the page that they led to its user types something: that is a search.
    await untilPeriodBegins();
    await page.goto(`${other.address}/link`);
    await page.getByRole("link").click();
    await landed();
    await page.getByRole("searchbox").fill("my very own words");
    await page.getByRole("searchbox").press("Enter");
    await page.waitForURL(/very/);
    await until("it is kept", async () => /my very own words/.test(await kept(popup)));
  } finally {
    await page.close();
    await popup.close();
    other.close();
  }
});

test("what is typed is shown as text", async () => {
  const markup = '<img src=x onerror="globalThis.harm = 1"><b id=harm>';
  const popup = await open("popup.html");
  await untilPeriodBegins();
  await search(markup);
  await popup.getByText(markup).first().waitFor();
  assert.equal(await popup.evaluate(() => globalThis.harm), undefined);
  assert.equal(await popup.locator("img[src=x], #harm").count(), 0);
  await popup.close();
});

test("off means off, over a restart too", async () => {
  let popup = await open("popup.html");
  await popup.getByRole("switch").uncheck();
  await popup.getByText("Off: nothing is watched").waitFor();
  await until("no page is watched", () => popup.evaluate(async () => !(await chrome.scripting.getRegisteredContentScripts()).length));
  const history = await popup.locator("#latest").textContent();
  // What was under way when the switch was moved may end.
  await sleep(0.5);
  const before = toCollector().length;
  await search("after it was switched off");
  await browser.close();
  await startBrowser();
  popup = await open("popup.html");
  await popup.getByText("Off: nothing is watched").waitFor();
  assert.equal(await popup.locator("#latest").textContent(), history, "what was sent is still shown");
  assert.ok(!(await popup.getByRole("switch").isChecked()));
  await search("after a restart");
  // Long enough for a report to be due.
  await untilPeriodBegins();
  await sleep(SECONDS / 4 + 1);
  assert.equal(toCollector().length, before);
  assert.doesNotMatch(await popup.evaluate(async () => JSON.stringify(await chrome.storage.local.get())), /switched off|restart/);

  const known = uploads().length;
  await popup.getByRole("switch").check();
  await popup.getByText("Watches searches on").waitFor();
  await browser.close();
  await startBrowser();
  await search("bread");
  popup = await open("popup.html");
  assert.ok(await popup.getByRole("switch").isChecked(), "on survives a restart, too");
  await until("a report comes again", () => uploads().length > known);
  await popup.close();
});

test("each period has at most one report, and no request but those to the search page has a search in it", async () => {
  const sent = [...new Set(uploads().map((one) => one.body))];
  assert.ok(sent.length >= 3);
  assert.equal(new Set(sent.map((body) => periodOf({ body }))).size, sent.length);
  const abroad = own.filter((request) => !request.startsWith(`GET ${home}`));
  assert.ok(abroad.some((request) => request.startsWith("PUT ")));
  // The first of them asked for a task that is not there, as a test above did.
  const [astray] = abroad.splice(0, 1);
  assert.match(astray.replace(collector.address, "there"), /^GET there\/v1\/tasks\/[0-9a-f]{64}$/);
  for (const request of abroad) assert.ok(request.replace(/^(GET|PUT) /, "").startsWith(`${collector.address}/v1/tasks/${collector.task}`), request);
  // Everything that the browser sent, its own requests too.
  const phrases = ["weather leeds", "leeds tickets", "zebra", "pudsey", "before anything", "switched off", "a restart"];
  for (const { url, headers, body } of proxy.seen.filter((one) => !one.url.startsWith(site.address))) {
    // Written plainly, percent-encoded, or in base64, which reports are made of.
    const decoded = [...body.matchAll(/"([\w-]+)"/g)].map(([, text]) => Buffer.from(text, "base64url").toString("latin1"));
    const all = [decodeURIComponent(url), headers, body, ...decoded].join("\n").toLowerCase().replace(/[+\s]+/g, " ");
    const toldApart = url.startsWith(collector.address) ? [...phrases, "leeds", "tickets", "news", "bread", "restart"] : phrases;
    for (const word of toldApart) assert.ok(!all.includes(word), "a search left the device");
    if (url.startsWith(collector.address)) assert.doesNotMatch(headers, /^(cookie|referer|authorization)$/im);
  }
});

test("forgetting leaves nothing", async () => {
  const popup = await open("popup.html");
  await popup.getByRole("button", { name: "Forget everything" }).click();
  await popup.getByRole("button", { name: "Keep" }).click();
  assert.ok(await popup.locator("#latest").isVisible());
  await popup.getByRole("button", { name: "Forget everything" }).click();
  await popup.getByRole("button", { name: "Forget", exact: true }).click();
  await popup.getByText("Not set up yet").waitFor();
  assert.ok(await popup.locator("#latest").isHidden());
  await until("the client is gone", () => popup.evaluate(async () => (await indexedDB.databases()).length === 0));
  assert.doesNotMatch(await popup.evaluate(async () => JSON.stringify(await chrome.storage.local.get())), /leeds|bread|news|zebra|http/i);
  await popup.close();
});
