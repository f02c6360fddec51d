/**
 * The client: randomises a value once, remembers the answer, and hands out a report that may leave the device.
 *
 * One report loses at most the task's epsilon (its share of it, where a client reports several records) under
 * replace-one. An answer is drawn once per value and repeated whenever the value comes back; a new value costs epsilon
 * again, up to the device's lifetime budget. After that the client answers with a report that says nothing.
 */
import { type Bits, randomBytes, systemBits } from "./bits.js";
import { big, type Bytes, hex } from "./bytes.js";
import type { Configuration } from "./configuration.js";
import { must } from "./errors.js";
import { atMost, ratio, roundUp, sum } from "./exact.js";
import { coinsOf, macOf, memoKey, samplingNumber } from "./hash.js";
import { change, type ClientEntry } from "./memo.js";
import type { Answers } from "./oracle.js";
import { periodAt, Report } from "./report.js";

/**
 * What a client has lost in all its tasks, and may lose; numbers are rounded up.
 *
 * The total bounds the loss under replace-one *given the change times*: between two histories of values that change at
 * the same times. That a value changed, and when, is not protected.
 */
export interface Account {
  readonly spent: number;
  readonly lifetime: number;
  readonly claim: "given the change times";
  readonly entries: readonly { readonly task: string; readonly period: number; readonly epsilon: number }[];
}

export interface ClientOptions {
  /** The database in IndexedDB; the lifetime budget is that of one client in one database. */
  readonly state?: string;
  /** Which client of the database this is. It never leaves the device. */
  readonly clientId?: string;
  /** Where coins come from; anything but the browser's generator makes reports that are not private. */
  readonly bits?: Bits;
  /** Gives the time in seconds since 1970. */
  readonly clock?: () => number;
}

/** A value to report: a text, a [query, URL] pair, a number, or null for "nothing to report". */
export type Value = string | number | readonly [query: string, url: string] | null;

/** What to report in a slot: a query or value, and the clicked URL. */
type Asked = readonly [slot: number, ...record: unknown[]];

// Stands for "no value" where a memo key has a class.
const enum Class {
  EXHAUSTED = 2 ** 32 - 1,
}

/** One client of a task. */
export class Client {
  /** @internal */
  readonly state_: string;
  /** @internal */
  readonly clock_: () => number;
  readonly #id: string;
  readonly #bits: Bits;

  constructor(
    readonly configuration: Configuration,
    { state = "hushquery", clientId = "default", bits = systemBits, clock = () => Date.now() / 1000 }: ClientOptions = {},
  ) {
    this.state_ = state;
    this.clock_ = clock;
    this.#id = `client ${clientId}`;
    this.#bits = bits;
  }

  /**
   * Give the report of this period: the only thing that leaves the device.
   *
   * The first call of a period decides. It is on the disk before it is handed out, and every later call of the period
   * gives the same bytes, whatever it is asked with, also with a value that the task refuses, in every tab.
   *
   * @param value The query, the value of a setting, the number or the text; null for "nothing to report", which is
   *   reported as the wildcard. Tasks of numbers and texts have none.
   * @param url The clicked URL, for searches.
   * @param slot Which of the task's records this is, from 0.
   * @returns Null if the task is switched off, or its sampling leaves this client out in this period.
   */
  async report(value: string | number | null, url?: string | null, slot = 0): Promise<Report | null> {
    must(Number.isInteger(slot) && slot >= 0 && slot < this.#slots, "Usage", "slot");
    return (await this.#reports([[slot, value, url]]))[0] ?? null;
  }

  /**
   * Give all reports of this period: one for each record, padded with "nothing to report". All of them are made, or
   * none: if one value is refused, nothing is spent on the others.
   */
  async reports(values: readonly Value[]): Promise<Report[]> {
    const slots = this.#slots;
    must(Array.isArray(values) && values.length <= slots, "Usage", "value");
    const asked = Array.from({ length: slots }, (_, slot): Asked => [slot, ...[values[slot] ?? null].flat()]);
    return (await this.#reports(asked)).flatMap((report) => report ?? []);
  }

  /** Give the reports of some slots in this period, all from one transaction; none if the task is switched off. */
  async #reports(asked: readonly Asked[]): Promise<(Report | null)[]> {
    const { task, id, hash, taskId_: taskId, digest_: digest, channel_: channel, sampling_: sampling } = this.configuration;
    if (!task.client.enabled) return [];
    const now = Math.floor(this.clock_());
    must(now >= 0 && now < 2 ** 40, "Usage", "clock");
    const period = periodAt(now, task.task.period);
    const keyOf = (slot: number): string => `${id} ${period} ${slot}`;
    for (;;) {
      // A transaction can't wait for the hashes, so they are made before it, of a secret that it then finds again.
      // Where there is a report the value is not looked at: a refusal would tell the value that came second.
      const [secret, checked] = await this.#change((entry) => [
        entry.secret,
        asked.map(([slot, value, url]) => (entry.reports[keyOf(slot)] ? undefined : channel.value_(value, url))),
      ] as const);
      const mac = await macOf(secret);
      const coins = await coinsOf(mac, taskId, digest);
      const drawn = await samplingNumber(mac, taskId, period);
      const prepared: [Answers, own: string, empty: string][] = [];
      for (const [i, value] of checked.entries()) {
        if (value === undefined) continue;
        const answers = await channel.prepare_(value, mac, coins, taskId, this.#bits);
        const named = (name: Bytes) => memoKey(mac, taskId, digest, asked[i]![0], name);
        prepared[i] = [answers, await named(answers.class_), await named(big(Class.EXHAUSTED, 4))];
      }
      const made = await this.#change((entry) => {
        if (hex(entry.secret) !== hex(secret)) return undefined;
        return asked.map(([slot], i) => {
          const known = entry.reports[keyOf(slot)];
          if (known) {
            must(hex(known.configuration) === hash, "AnotherHeadList");
            return new Report(known);
          }
          if (drawn >= sampling) return null;
          const kept = this.#answer(entry, period, ...prepared[i]!);
          const report = new Report({
            id: randomBytes(16),
            task: taskId,
            configuration: digest,
            time: now - (now % task.collect.time_precision),
            payload: channel.payload_?.(kept, this.#bits) ?? kept,
          });
          entry.reports[keyOf(slot)] = { ...report, sent: 0 };
          return report;
        });
      });
      // Without an answer another tab made this client forget in between: begin anew.
      if (made) return made;
    }
  }

  /** Give the reports of all tasks of this client that were made and not yet marked as sent, oldest first. */
  outbox(): Promise<Report[]> {
    return this.#change((entry) => {
      const waiting = Object.values(entry.reports).filter((one) => !one.sent);
      waiting.sort((a, b) => a.time - b.time || (hex(a.id) < hex(b.id) ? -1 : 1));
      return waiting.map((one) => new Report(one));
    });
  }

  /** Note that the collector has acknowledged a report, or refused it for good; it stays, to answer the same again. */
  sent(id: Uint8Array, refused = false): Promise<void> {
    return this.#change((entry) => {
      const report = Object.values(entry.reports).find((one) => hex(one.id) === hex(id));
      must(report, "Usage", "id");
      report.sent = refused ? 2 : 1;
    });
  }

  /** Give what this client has lost in all its tasks; the claim says what the number bounds. */
  account(): Promise<Account> {
    return this.#change((entry) => {
      const entries = Object.values(entry.memo)
        .map(({ task, period, cost }) => ({ task, period, epsilon: roundUp(ratio(cost)) }))
        .filter((one) => one.epsilon);
      const [spent, lifetime] = [entry.spent, this.#cap(entry)].map((text) => roundUp(ratio(text))) as [number, number];
      return { spent, lifetime, claim: "given the change times", entries };
    });
  }

  /** Delete this client: its secret, answers, outbox and account. Nothing that was told is taken back. */
  forget(): Promise<void> {
    return change(this.state_, this.#id, () => []);
  }

  /** Change this client's entry in place; it is made if there is none. */
  #change<T>(work: (entry: ClientEntry) => T): Promise<T> {
    return change<ClientEntry, T>(this.state_, this.#id, (found) => {
      const entry = found ?? { secret: randomBytes(32), spent: "0", cap: "", memo: {}, reports: {} };
      return [entry, work(entry)];
    });
  }

  get #slots(): number {
    return this.configuration.task.client.records_per_user;
  }

  /** Give the smallest lifetime of this task and those answered before. */
  #cap({ cap }: ClientEntry): string {
    const own = this.configuration.lifetime_;
    return cap && atMost(ratio(cap), own) ? cap : own.join("/");
  }

  /** Give the permanent answer of a value: from the memo, or drawn and paid for, or after the cap an empty one. */
  #answer(entry: ClientEntry, period: number, answers: Answers, own: string, empty: string): Bytes {
    const { id, cost_: cost } = this.configuration;
    const { memo } = entry;
    // Kept also where the answer costs nothing: the task has now been answered.
    const cap = (entry.cap = this.#cap(entry));
    const total = sum(ratio(entry.spent), cost);
    const paid = atMost(total, ratio(cap));
    const known = memo[own] ?? (paid ? undefined : memo[empty]);
    if (known) return known.payload;
    const payload = paid ? answers.answer_() : answers.empty_();
    memo[paid ? own : empty] = { task: id, period, cost: paid ? cost.join("/") : "0", payload };
    if (paid) entry.spent = total.join("/");
    return payload;
  }
}
