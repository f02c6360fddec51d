/** Report format v1: what leaves a device, byte by byte (docs/report-format.md). */
import { base64url, type Bytes } from "./bytes.js";

/** The version of the format. */
export const VERSION = 1;

/** The longest payload. */
export const MOST_PAYLOAD = 65535;

/** Give the number of the period that a time is in: 0 for a task without periods. */
export function periodAt(time: number, period: number | null): number {
  return Math.floor(time / (period ?? Infinity));
}

/** What a report holds. */
export interface ReportFields {
  /** 16 random bytes, which say nothing about the client. */
  readonly id: Bytes;
  /** The task id. */
  readonly task: Bytes;
  /** The configuration hash. */
  readonly configuration: Bytes;
  /** Seconds since 1970, truncated. */
  readonly time: number;
  /** The mechanism's answer. */
  readonly payload: Bytes;
}

/** The JSON form: bytes as base64url without padding. */
export interface ReportJson {
  readonly version: number;
  readonly id: string;
  readonly task: string;
  readonly configuration: string;
  readonly time: number;
  readonly payload: string;
}

/** One report, as it leaves the device. */
export class Report implements ReportFields {
  declare readonly id: Bytes;
  declare readonly task: Bytes;
  declare readonly configuration: Bytes;
  declare readonly time: number;
  declare readonly payload: Bytes;

  constructor(fields: ReportFields) {
    Object.assign(this, fields);
  }

  /** Give the JSON form as plain data. */
  toJSON(): ReportJson {
    return {
      version: VERSION,
      id: base64url(this.id),
      task: base64url(this.task),
      configuration: base64url(this.configuration),
      time: this.time,
      payload: base64url(this.payload),
    };
  }
}
