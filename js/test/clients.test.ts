/** The whole way from a value to a payload, for every mechanism: class, memo key, kept answer, report. */
import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { big, hex, utf8 } from "../src/bytes.js";
import { configure } from "../src/configuration.js";
import { coinsOf, macOf, memoKey, sha256 } from "../src/hash.js";
import { shake256 } from "../src/shake.js";
import { type ClientVectors, GivenBits, hashedText, SeededBits, unhex, vectors } from "./helpers.js";

const golden = vectors();

// The device of the two-stage vectors has a task with less of epsilon, so that every branch is taken.
const halved = golden.tasks
  .filter((one) => one.task.served.client.oracle === "two-stage")
  .map(({ task: { served: plain } }) => ({ ...plain, client: { ...plain.client, epsilon: "1/2" } }));
const tasks = [...golden.tasks.map((one) => one.task.served), ...halved];

/** What a collector serves for the task of a device. */
function served(one: ClientVectors): [unknown, string] {
  const task = tasks.find((plain) => createHash("sha256").update(hashedText(plain)).digest("hex") === one.task);
  return [{ task, configuration: JSON.parse(one.configuration) }, one.task];
}

describe.each(golden.clients.map((one) => [(JSON.parse(one.configuration) as { oracle: { name: string } }).oracle.name, one] as const))(
  "%s",
  (name, one) => {
    test("values have this class, this memo key and this answer", async () => {
      const configuration = await configure(...served(one));
      const { channel_: channel, taskId_: taskId, digest_: digest } = configuration;
      const mac = await macOf(unhex(one.secret));
      const coins = await coinsOf(mac, taskId, digest);
      expect(one.values.length).toBeGreaterThan(1);
      for (const { value, class: told, memo_key, words, kept, reports } of one.values) {
        const given = new GivenBits(words.join(""));
        // RAPPOR draws a text that nobody has, for the answer after the cap.
        const bits = name === "rappor" ? new SeededBits(1) : given;
        const answers = await channel.prepare_(channel.value_(value[0], value[1]), mac, coins, taskId, bits);
        const named = typeof told === "string" ? await sha256(unhex(told)) : big(told, 4);
        expect(hex(answers.class_)).toBe(hex(named));
        expect(await memoKey(mac, taskId, digest, 0, answers.class_)).toBe(memo_key);
        const answer = answers.answer_();
        expect(hex(answer)).toBe(kept);
        expect(given.left).toBe(0);
        expect(answer.length).toBe(channel.length_);
        for (const report of reports) {
          const fresh = new GivenBits(report.words.join(""));
          expect(hex(channel.payload_?.(answer, fresh) ?? answer)).toBe(report.payload);
          expect(fresh.left).toBe(0);
        }
      }
    });

    test("the answer that says nothing is one of the mechanism, and looks at no value", async () => {
      const configuration = await configure(...served(one));
      const { channel_: channel, taskId_: taskId, digest_: digest } = configuration;
      const mac = await macOf(unhex(one.secret));
      const coins = await coinsOf(mac, taskId, digest);
      const said = new Set<string>();
      for (const { value } of one.values) {
        const answers = await channel.prepare_(channel.value_(value[0], value[1]), mac, coins, taskId, new SeededBits(3));
        const empty = answers.empty_();
        expect(empty.length).toBe(channel.length_);
        said.add(hex(empty));
      }
      // The same coins give the same answer, whatever the value is.
      expect(said.size).toBe(1);
    });
  },
);

test("there is a device for each kind of mechanism", () => {
  const names = golden.clients.map((one) => (JSON.parse(one.configuration) as { oracle: { name: string } }).oracle.name);
  expect(names.sort()).toEqual(["dbitflip", "krr", "onebit", "rappor", "two-stage"]);
});

test("SHAKE-256 is that of the standard", () => {
  for (const length of [0, 1, 135, 136, 137, 271, 272, 1000])
    for (const outcome of [1, 8, 136, 137, 512]) {
      const message = utf8("x".repeat(length));
      expect(hex(shake256(message, outcome))).toBe(createHash("shake256", { outputLength: outcome }).update(message).digest("hex"));
    }
});
