/**
 * The other end of the wire: read reports in each of their forms and check them, as a collector does.
 *
 * A page that only reports does not need this, so it is a module of its own.
 */
import { base64url, big, type Bytes, fromBig, hex, join } from "./bytes.js";
import type { Configuration } from "./configuration.js";
import { must } from "./errors.js";
import { PRIME } from "./olh.js";
import { bytesFor, type Description } from "./oracle.js";
import { MOST_PAYLOAD, periodAt, Report, type ReportFields, VERSION } from "./report.js";

/** What a mechanism says: a cell or bit, several numbers, a bit vector, (seed, bucket), or (cohort, response). */
export type Answer = number | readonly number[] | Bytes | readonly [bigint, number] | readonly [number, bigint];

const KEYS = "configuration,id,payload,task,time,version";

const HEADER = 91;

/** Give the compact form of a report. */
export function reportToBytes({ id, task, configuration, time, payload }: ReportFields): Bytes {
  return join([VERSION], id, task, configuration, big(time, 8), big(payload.length, 2), payload);
}

/** Read the compact form; refuses everything that `reportToBytes` does not write. */
export function reportFromBytes(bytes: Uint8Array): Report {
  must(bytes.length, "ReportMalformed");
  must(bytes[0] === VERSION, "ReportVersionUnknown");
  const part = (from: number, to?: number): Bytes => new Uint8Array(bytes.subarray(from, to));
  const payload = part(HEADER);
  must(bytes.length >= HEADER && payload.length === Number(fromBig(part(89, HEADER))), "ReportMalformed");
  const time = Number(fromBig(part(81, 89)));
  return checked({ id: part(1, 17), task: part(17, 49), configuration: part(49, 81), time, payload });
}

function checked(fields: ReportFields): Report {
  const { id, task, configuration, time, payload } = fields;
  must(id.length === 16 && task.length === 32 && configuration.length === 32, "ReportMalformed");
  must(payload.length <= MOST_PAYLOAD && Number.isSafeInteger(time) && time >= 0, "ReportMalformed");
  return new Report(fields);
}

/** Read base64url without padding; a text that is not how its bytes are written is refused. */
function decoded(text: unknown): Bytes {
  must(typeof text === "string" && !/[^\w-]/.test(text) && text.length % 4 !== 1, "ReportMalformed");
  const bytes = Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (one) => one.charCodeAt(0));
  must(base64url(bytes) === text, "ReportMalformed");
  return bytes;
}

/** Read the compact form as one word of base64url, as it stands in files with a report on each line. */
export function reportFromText(text: string): Report {
  return reportFromBytes(decoded(text));
}

/** Read the JSON form, as text or as plain data; refuses unknown and repeated keys, and padding. */
export function reportFromJson(data: unknown): Report {
  const fields = typeof data === "string" ? parsed(data) : data;
  must(typeof fields === "object" && fields !== null && !Array.isArray(fields), "ReportMalformed");
  const { version, id, task, configuration, time, payload } = fields as Record<string, unknown>;
  must(version === undefined || version === VERSION, "ReportVersionUnknown");
  must(Object.keys(fields).sort().join() === KEYS && typeof time === "number", "ReportMalformed");
  return checked({
    id: decoded(id),
    task: decoded(task),
    configuration: decoded(configuration),
    time,
    payload: decoded(payload),
  });
}

function parsed(text: string): unknown {
  must(text.length <= 2 * MOST_PAYLOAD, "ReportMalformed");
  let fields: unknown;
  try {
    fields = JSON.parse(text);
  } catch {
    must(false, "ReportMalformed", "it is not JSON");
  }
  // JSON.parse keeps the last of repeated keys and takes 1.0 for 1. A report has six keys and nothing nested, so
  // outside of its texts there are six colons, and no point or exponent.
  const outside = text.replace(/"(?:[^"\\]|\\.)*"/g, "");
  const { version = 1 } = (fields ?? {}) as { version?: unknown };
  must(version !== 1 || /^[^:.eE]*(:[^:.eE]*){6}$/.test(outside), "ReportMalformed");
  return fields;
}

/**
 * Check that a report belongs to a configuration, and give what the mechanism said.
 *
 * @param period The number of the period in which it must have been made; by default any.
 */
export function openReport(report: Report, configuration: Configuration, period?: number): Answer {
  must(hex(report.task) === configuration.id, "ReportOfAnotherTask");
  must(hex(report.configuration) === configuration.hash, "ReportOfAnotherConfiguration");
  must(report.time % configuration.task.collect.time_precision === 0, "ReportTimeInvalid");
  must(period === undefined || periodAt(report.time, configuration.task.task.period) === period, "ReportOfAnotherPeriod");
  return unpack(configuration.description, report.payload);
}

/** Read a payload; refuses everything that the mechanism does not write. */
export function unpack(description: Description, payload: Bytes): Answer {
  const { name, k = 2, omega, g, d, m } = description;
  const width = bytesFor(k);
  const one = (from: number, to: number): bigint => fromBig(payload.slice(from, to).reverse());
  const small = (length: number, limit: number): number => {
    fits(payload.length === length);
    const value = Number(one(0, length));
    fits(value < limit);
    return value;
  };
  switch (name) {
    case "krr":
    case "two-stage":
      return small(width, k);
    case "hadamard": {
      const rows = 2 ** (k - 1).toString(2).length;
      const value = small(bytesFor(2 * rows), 2 * rows);
      return [value >> 1, value & 1];
    }
    case "oue":
      setBits(k, payload);
      return payload;
    case "subset": {
      const asBits = Math.ceil(k / 8) < omega * width;
      fits(asBits || payload.length === omega * width);
      const set = asBits
        ? setBits(k, payload)
        : Array.from({ length: omega }, (_, i) => Number(one(i * width, (i + 1) * width)));
      fits(set.length === omega && set.every((cell, i) => cell < k && (!i || cell > set[i - 1]!)));
      return set;
    }
    case "olh": {
      fits(payload.length === 8 + bytesFor(g));
      const [seed, bucket] = [one(0, 8), Number(one(8, payload.length))];
      fits(seed < PRIME * PRIME && bucket < g);
      return [seed, bucket];
    }
    case "onebit":
      return small(1, 2);
    case "dbitflip": {
      const cut = d * width;
      const sampled: number[] = Array.from({ length: d }, (_, i) => Number(one(i * width, (i + 1) * width)));
      const set = setBits(d, payload.slice(cut));
      fits(sampled.every((bucket, i) => bucket < k && (!i || bucket > sampled[i - 1]!)));
      return [...sampled, ...sampled.map((_, i) => Number(set.includes(i)))];
    }
    case "rappor": {
      const cut = bytesFor(m);
      setBits(k, payload.slice(cut));
      const cohort = Number(one(0, cut));
      fits(cohort < m);
      return [cohort, one(cut, payload.length)];
    }
    default:
      return fits(false) as never;
  }
}

/** Give the cells whose bits are set; spare bits must be 0. */
function setBits(k: number, payload: Bytes): number[] {
  fits(payload.length === Math.ceil(k / 8));
  const set = Array.from({ length: 8 * payload.length }, (_, i) => i).filter((i) => (payload[i >> 3]! >> (i & 7)) & 1);
  fits(set.every((cell) => cell < k));
  return set;
}

function fits(holds: boolean): asserts holds {
  must(holds, "ReportOutOfDomain");
}
