// Reports per CPU second of the client, for benchmarks/bench_clients.py: reads what to run as JSON, writes the rates.
//
// `single` is a mechanism alone; `client` a whole client, one report each, from memory to kept report; `day` a client
// that reports all records of a day at once. IndexedDB is the one of the tests, in memory.
import "fake-indexeddb/auto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";

const home = fileURLToPath(new URL("..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "hushquery-bench-"));
await build({
  absWorkingDir: home,
  stdin: {
    contents: 'export { ORACLES } from "./src/mechanisms.ts"; export * from "./src/index.ts"; export { systemBits } from "./src/bits.ts";',
    resolveDir: home,
    loader: "ts",
  },
  outfile: join(folder, "client.mjs"),
  bundle: true,
  format: "esm",
  platform: "neutral",
  target: "es2022",
});
const { ORACLES, configure, Client, systemBits } = await import(pathToFileURL(join(folder, "client.mjs")));
rmSync(folder, { recursive: true });

/** Run some work and give reports per CPU second, best of the rounds. */
async function rate(reports, rounds, work) {
  let best = Infinity;
  for (let round = 0; round <= rounds; round++) {
    const before = process.cpuUsage();
    await work(round);
    const { user, system } = process.cpuUsage(before);
    // The first round is for the compiler.
    if (round) best = Math.min(best, (user + system) / 1e6);
  }
  return reports / best;
}

const { oracles, singles, people, rounds } = JSON.parse(readFileSync(0, "utf8"));
const found = [];
for (const { name, one, day, values } of oracles) {
  const mechanism = ORACLES[one.configuration.oracle.name](one.configuration.oracle);
  const k = mechanism.k_;
  const single = await rate(singles, rounds, () => {
    for (let i = 0; i < singles; i++) mechanism.randomize_(i % k, systemBits);
  });
  const configuration = await configure(one, one.id);
  const client = await rate(people, rounds, async (round) => {
    for (let i = 0; i < people; i++) {
      await new Client(configuration, { state: name, clientId: `${round} ${i}` }).report(values[i % values.length]);
    }
  });
  const daily = await configure(day, day.id);
  const slots = day.task.client.records_per_user;
  const days = Math.ceil(people / 10);
  const records = Array.from({ length: slots }, (_, i) => values[i % values.length]);
  const whole = await rate(days * slots, rounds, async (round) => {
    for (let i = 0; i < days; i++) {
      await new Client(daily, { state: `${name} day`, clientId: `${round} ${i}` }).reports(records);
    }
  });
  found.push({ oracle: name, single, client, day: whole });
}
console.log(JSON.stringify(found));
