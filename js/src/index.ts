/** hushquery-client: fetch a task, randomise on the device, remember, send. */
export type { Bits } from "./bits.js";
export { type Account, Client, type ClientOptions, type Value } from "./client.js";
export { type Configuration, configure, type Served, type Task, type Unlisted } from "./configuration.js";
export type { Listed } from "./domain.js";
export { type Code, HushqueryError } from "./errors.js";
export { normalQuery, normalUrl, normalValue } from "./normalise.js";
export type { Description } from "./oracle.js";
export { Report, type ReportFields, type ReportJson } from "./report.js";
export { report, type Reported, type ReportOptions } from "./reporting.js";
export { type Delivery, send, type SendOptions } from "./send.js";
export { fetchTask, type Fetch, type FetchOptions } from "./task.js";
