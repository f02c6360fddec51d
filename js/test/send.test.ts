/** Sending: the same bytes as often as needed, never too soon, and nothing lost. */
import { beforeEach, expect, test } from "vitest";
import { base64url, hex } from "../src/bytes.js";
import { Client } from "../src/client.js";
import { reportToBytes } from "../src/reading.js";
import { send } from "../src/send.js";
import { Collector } from "./collector.js";
import { configured, vectors } from "./helpers.js";

const [wild, , unary] = vectors().tasks;
const DAY = 86_400;
const SERVER = "https://collect.example.org";

let now = 0;
let state = "";
let number = 0;
let collector = new Collector();
beforeEach(() => {
  now = 20_000 * DAY;
  state = `send ${number++}`;
  collector = new Collector();
});

async function clientWith(reports: number, task: object = {}): Promise<Client> {
  const configuration = await configured(wild!, {}, { period: DAY, ...task });
  const client = new Client(configuration, { state, clock: () => now });
  for (let i = 0; i < reports; i++, now += DAY) await client.report(i % 2 ? "dark" : "light");
  return client;
}

const sendNow = (client: Client, single = false) => send(client, SERVER, { fetch: collector.fetch, single });
const outcomes = async (client: Client) => (await sendNow(client)).map((one) => one.outcome);

test("one report is put at its own address", async () => {
  const client = await clientWith(1);
  const [report] = await client.outbox();
  expect(await sendNow(client)).toMatchObject([{ outcome: "stored", status: 201 }]);
  const [request] = collector.requests;
  expect(request).toMatchObject({
    method: "PUT",
    address: `${SERVER}/v1/tasks/${client.configuration.id}/reports/${base64url(report!.id)}`,
    headers: { "Content-Type": "application/json" },
  });
  expect(JSON.parse(request!.body)).toEqual(report!.toJSON());
  expect(await client.outbox()).toEqual([]);
  expect(await sendNow(client)).toEqual([]);
  expect(collector.requests).toHaveLength(1);
});

test("several go in one request, with a status each; one bad report spoils nothing", async () => {
  const client = await clientWith(4);
  const [first, second, third] = await client.outbox();
  collector.statuses.set(base64url(first!.id), 422).set(base64url(second!.id), 503).set(base64url(third!.id), 200);
  expect(await outcomes(client)).toEqual(["refused", "later", "stored", "stored"]);
  expect(collector.requests.map((one) => one.method)).toEqual(["POST"]);
  expect((await client.outbox()).map((one) => hex(one.id))).toEqual([hex(second!.id)]);
});

test("one by one if asked to, and no more than fits into a body", async () => {
  const client = await clientWith(3);
  await sendNow(client, true);
  expect(collector.requests.map((one) => one.method)).toEqual(["PUT", "PUT", "PUT"]);
  const configuration = await configured(wild!, {}, { period: DAY });
  const { channel_: channel, task } = configuration;
  // Reports of 12,000 bytes. What the collector says of its bodies changes nothing: it would know a device by it.
  const long = { ...channel, payload_: () => new Uint8Array(12_000) };
  for (const max_body of [1000, 65_536, 2 ** 30]) {
    const wordy = { ...configuration, channel_: long, task: { ...task, collect: { ...task.collect, max_body } } };
    const client = new Client(wordy, { state, clientId: `${max_body}`, clock: () => now });
    for (let i = 0; i < 10; i++, now += DAY) await client.report("dark");
    collector.requests.length = 0;
    expect(await sendNow(client)).toHaveLength(10);
    expect(collector.requests.map((one) => [one.method, one.body.length <= 65_536])).toEqual(Array.from({ length: 3 }, () => ["POST", true]));
  }
});

test("a report whose acknowledgement was lost goes again with the same bytes and counts once", async () => {
  for (const reports of [1, 3]) {
    const client = await clientWith(reports);
    const waiting = (await client.outbox()).map((one) => base64url(reportToBytes(one)));
    collector.instead.push("stored, then silence", "nonsense");
    expect(new Set(await outcomes(client))).toEqual(new Set(["later"]));
    now += 301;
    // An answer that can't be read acknowledges nothing, unless its status does.
    const second = await outcomes(client);
    if (reports > 1) expect(new Set(second)).toEqual(new Set(["later"]));
    now += 901;
    const again = await sendNow(client);
    if (reports > 1) expect(again.map((one) => one.status)).toEqual([200, 200, 200]);
    expect(await client.outbox()).toEqual([]);
    const bodies = collector.requests.map((one) => one.body);
    expect(new Set(bodies).size).toBe(1);
    expect([...collector.stored.values()].sort()).toEqual(waiting.sort());
    await client.forget();
    collector = new Collector();
  }
});

test("a collector that takes nothing is left alone for 5 minutes, then for 15", async () => {
  const client = await clientWith(2);
  collector.instead.push("silence", "silence", [503], [404]);
  for (const pause of [300, 900, 900, 900]) {
    expect(await outcomes(client)).toEqual(["later", "later"]);
    now += pause - 1;
    expect(await sendNow(client)).toEqual([]);
    now += 1;
  }
  expect(collector.requests).toHaveLength(4);
  expect(await outcomes(client)).toEqual(["stored", "stored"]);
  now += DAY;
  await client.report("dark");
  collector.instead.push("silence");
  await sendNow(client);
  now += 300;
  expect(await outcomes(client)).toEqual(["stored"]);
});

test.each(["1", "120", "7200", "99999999", "soon", new Date(Date.now() + 7_200_000).toUTCString()])(
  "when to come back is not the collector's to say: Retry-After %s",
  async (after) => {
    const client = await clientWith(1);
    collector.instead.push([429, after]);
    expect(await sendNow(client)).toMatchObject([{ outcome: "later", status: 429 }]);
    now += 299;
    expect(await sendNow(client)).toEqual([]);
    now += 1;
    expect(await outcomes(client)).toEqual(["stored"]);
  },
);

test.each([400, 409, 410, 413, 422])("status %i is for good", async (status) => {
  const client = await clientWith(1);
  collector.instead.push([status]);
  expect(await outcomes(client)).toEqual(["refused"]);
  expect(await client.outbox()).toEqual([]);
  expect(collector.stored.size).toBe(0);
});

test.each([401, 403, 404, 425, 429, 500, 503])("status %i keeps the report", async (status) => {
  const client = await clientWith(1);
  collector.instead.push([status]);
  expect(await outcomes(client)).toEqual(["later"]);
  expect(await client.outbox()).toHaveLength(1);
});

test("after the first failure the others are not tried", async () => {
  const client = await clientWith(3);
  collector.instead.push([503]);
  expect(await sendNow(client, true)).toMatchObject([{ outcome: "later", status: 503 }]);
  expect(collector.requests).toHaveLength(1);
  expect(await client.outbox()).toHaveLength(3);
});

test("a batch that is refused as a whole goes one by one", async () => {
  const client = await clientWith(3);
  collector.instead.push([413]);
  expect(await outcomes(client)).toEqual(["stored", "stored", "stored"]);
  expect(collector.requests.map((one) => one.method)).toEqual(["POST", "PUT", "PUT", "PUT"]);
});

test("a collector gets only the reports of its task", async () => {
  const client = await clientWith(1);
  const other = new Client(await configured(unary!, {}, { period: DAY }), { state, clock: () => now });
  await other.report("dark");
  expect(await client.outbox()).toHaveLength(2);
  expect(await outcomes(other)).toEqual(["stored"]);
  expect(collector.requests[0]!.address).toContain(other.configuration.id);
  expect(await client.outbox()).toHaveLength(1);
});

test("a task that is switched off sends nothing", async () => {
  const { configuration } = await clientWith(1);
  const off = { ...configuration, task: { ...configuration.task, client: { ...configuration.task.client, enabled: false } } };
  expect(await sendNow(new Client(off, { state, clock: () => now }))).toEqual([]);
  expect(collector.requests).toEqual([]);
});
