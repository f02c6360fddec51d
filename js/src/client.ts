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
import { macOf, memoKey, samplingNumber } from "./hash.js";
import { change, type ClientEntry } from "./memo.js";
import type { Answers } from "./oracle.js";
import { Report } from "./report.js";

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

// Stands for "no value" where a memo key has a class.
const EXHAUSTED = 2 ** 32 - 1;

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
   * gives the same bytes, whatever it is asked with, in every tab.
   *
   * @param value The query, the value of a setting, the number or the text; null for "nothing to report", which is
   *   reported as the wildcard. Tasks of numbers and texts have none.
   * @param url The clicked URL, for searches.
   * @param slot Which of the task's records this is, from 0.
   * @returns Null if the task is switched off, or its sampling leaves this client out in this period.
   */
  async report(value: string | number | null, url?: string | null, slot = 0): Promise<Report | null> {
    const { task, id, hash, taskId_: taskId, digest_: digest, channel_: channel, sampling_: sampling } = this.configuration;
    if (!task.client.enabled) return null;
    must(Number.isInteger(slot) && slot >= 0 && slot < task.client.records_per_user, "Usage", "slot");
    const checked = channel.value_(value, url);
    const now = Math.floor(this.clock_());
    must(now >= 0 && now < 2 ** 40, "Usage", "clock");
    const period = Math.floor(now / (task.task.period ?? Infinity));
    const key = `${id} ${period} ${slot}`;
    for (;;) {
      // A transaction can't wait for the hashes, so they are made before it, of a secret that it then finds again.
      const secret = await this.#change((entry) => entry.secret);
      const mac = await macOf(secret);
      const answers = await channel.prepare_(checked, mac, taskId, this.#bits);
      const own = await memoKey(mac, taskId, digest, slot, answers.class_);
      const empty = await memoKey(mac, taskId, digest, slot, big(EXHAUSTED, 4));
      const drawn = await samplingNumber(mac, taskId, period);
      const made = await this.#change<Report | null | undefined>((entry) => {
        const known = entry.reports[key];
        if (known) return new Report(known);
        if (hex(entry.secret) !== hex(secret)) return undefined;
        if (drawn >= sampling) return null;
        const kept = this.#answer(entry, own, empty, answers, period);
        const report = new Report({
          id: randomBytes(16),
          task: taskId,
          configuration: digest,
          time: now - (now % task.collect.time_precision),
          payload: channel.payload_?.(kept, this.#bits) ?? kept,
        });
        entry.reports[key] = { ...report, sent: 0 };
        return report;
      });
      must(!made || hex(made.configuration) === hash, "AnotherHeadList");
      // Without an answer another tab made this client forget in between: begin anew.
      if (made !== undefined) return made;
    }
  }

  /** Give all reports of this period: one for each record, padded with "nothing to report". */
  async reports(values: readonly Value[]): Promise<Report[]> {
    const slots = this.configuration.task.client.records_per_user;
    must(Array.isArray(values) && values.length <= slots, "Usage", "values");
    const made: Report[] = [];
    for (let slot = 0; slot < slots; slot++) {
      const value = values[slot] ?? null;
      const [text, url] = (Array.isArray(value) ? value : [value]) as [string | number | null, string?];
      const report = await this.report(text, url, slot);
      if (report) made.push(report);
    }
    return made;
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
    return change(this.state_, this.#id, () => [undefined, undefined]);
  }

  /** Change this client's entry in place; it is made if there is none. */
  #change<T>(work: (entry: ClientEntry) => T): Promise<T> {
    return change<ClientEntry, T>(this.state_, this.#id, (found) => {
      const entry = found ?? { secret: randomBytes(32), spent: "0", cap: "", memo: {}, reports: {} };
      return [entry, work(entry)];
    });
  }

  /** Give the smallest lifetime of this task and those answered before. */
  #cap({ cap }: ClientEntry): string {
    const own = this.configuration.lifetime_;
    return cap && atMost(ratio(cap), own) ? cap : own.join("/");
  }

  /** Give the permanent answer of a value: from the memo, or drawn and paid for, or after the cap an empty one. */
  #answer(entry: ClientEntry, own: string, empty: string, answers: Answers, period: number): Bytes {
    const { id, cost_: cost } = this.configuration;
    const { memo } = entry;
    const cap = this.#cap(entry);
    const total = sum(ratio(entry.spent), cost);
    const paid = atMost(total, ratio(cap));
    const known = memo[own] ?? (paid ? undefined : memo[empty]);
    if (known) return known.payload;
    const payload = paid ? answers.answer_() : answers.empty_();
    memo[paid ? own : empty] = { task: id, period, cost: paid ? cost.join("/") : "0", payload };
    if (paid) {
      entry.spent = total.join("/");
      entry.cap = cap;
    }
    return payload;
  }
}
