/** A collector as a function: takes reports, counts each once, and can be told to misbehave. */
import { base64url } from "../src/bytes.js";
import { type ReportJson } from "../src/report.js";
import { reportFromJson, reportToBytes } from "../src/reading.js";

export interface Request {
  readonly address: string;
  readonly method: string;
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
}

export class Collector {
  /** The bytes of each report, by its id. */
  readonly stored = new Map<string, string>();
  readonly requests: Request[] = [];
  /** What to answer instead, in turn: a status (with Retry-After), or nothing at all. */
  readonly instead: (readonly [status: number, after?: string] | "silence" | "nonsense" | "stored, then silence")[] = [];
  /** Report ids that get this status. */
  readonly statuses = new Map<string, number>();

  readonly fetch = async (address: string, init: RequestInit): Promise<Response> => {
    const request = { address, method: init.method ?? "GET", body: init.body as string, headers: init.headers as Record<string, string> };
    this.requests.push(request);
    const next = this.instead.shift();
    if (next === "silence") throw new TypeError("network");
    if (next === "nonsense") return new Response("<html>", { status: 200 });
    if (Array.isArray(next)) return new Response("{}", { status: next[0], headers: next[1] ? { "Retry-After": next[1] } : {} });
    const plain = JSON.parse(request.body) as ReportJson | { reports: ReportJson[] };
    const many = "reports" in plain;
    const results = (many ? plain.reports : [plain]).map((one) => ({ id: one.id, status: this.#take(one) }));
    if (next) throw new TypeError("network");
    return many ? Response.json({ version: 2, results, problems: [] }) : new Response(null, { status: results[0]!.status });
  };

  #take(plain: ReportJson): number {
    const text = base64url(reportToBytes(reportFromJson(plain)));
    const known = this.stored.get(plain.id);
    const status = this.statuses.get(plain.id) ?? (known === undefined ? 201 : known === text ? 200 : 409);
    if (status === 201) this.stored.set(plain.id, text);
    return status;
  }
}
