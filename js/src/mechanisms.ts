/** Which mechanism a task has: the one that it names, or the best for its list, with the integers that follow from it. */
import { CALIBRATED, cells } from "./calibrate.js";
import type { Task } from "./configuration.js";
import { wants } from "./errors.js";
import { atMost, type Ratio } from "./exact.js";
import { hadamard } from "./hadamard.js";
import { krr } from "./krr.js";
import { olh } from "./olh.js";
import type { Channel, Description, Oracle } from "./oracle.js";
import { oue } from "./oue.js";
import { subset } from "./subset.js";

/** The records of a list. */
export type Records = readonly (readonly string[])[];

/** A mechanism over a list, or one that takes values as they are. */
export interface Made {
  /** Its name and its integers. */
  readonly description_: Description;
  readonly oracle_?: Oracle;
  readonly channel_?: Channel;
  /** The list in the order of its cells, where that is another than the task's. */
  readonly records_?: Records;
  /** What a new answer costs, where that is not epsilon. */
  readonly cost_?: Ratio;
}

/** The mechanisms over lists, the simplest first. */
export const ORACLES: Readonly<Record<string, (integers: Description) => Oracle>> = { krr, hadamard, olh, oue, subset };

/** Make the mechanism of a task for so many cells. */
export async function mechanismOf(task: Task, k: number, epsilon: Ratio, records: Records): Promise<Made> {
  const { kind } = task.task;
  let name = task.client.oracle;
  if (name === "auto") {
    if (kind === "number") name = "onebit";
    else if (kind === "text") name = "rappor";
    else if (task.head?.mode === "paper") name = "two-stage";
    else return chosen(k, epsilon);
  }
  if (Object.hasOwn(ORACLES, name)) return calibrated(name, k, epsilon);
  const { MORE } = await import("./more.js");
  wants(Object.hasOwn(MORE, name), "mechanism");
  return MORE[name]!(task, epsilon, records);
}

/** Calibrate a mechanism over a list. */
export function calibrated(name: string, k: number, epsilon: Ratio): Made & { readonly oracle_: Oracle } {
  const description = { name, ...CALIBRATED[name]!(cells(k), epsilon) };
  return { description_: description, oracle_: ORACLES[name]!(description) };
}

/** Choose the smallest variance for a rare cell; of equals, to a billionth, the shortest report, then the simplest. */
export function chosen(k: number, epsilon: Ratio): Made {
  const able = Object.keys(ORACLES).flatMap((name) => {
    try {
      return [calibrated(name, k, epsilon)];
    } catch {
      // Too coarse for this one; another may do.
      return [];
    }
  });
  wants(able.length, "epsilon");
  const variances = able.map(({ oracle_: { chances_: [p, q, whole] = [1n, 0n, 0n] } }): Ratio => [q * (whole - q), (p - q) ** 2n]);
  const [n, d] = variances.reduce((a, b) => (atMost(a, b) ? a : b));
  const equal = able.filter((_, i) => atMost(variances[i]!, [n * (10n ** 9n + 1n), d * 10n ** 9n]));
  return equal.reduce((a, b) => (b.oracle_.length_ < a.oracle_.length_ ? b : a));
}
