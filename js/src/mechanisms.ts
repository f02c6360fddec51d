/** Which mechanism a configuration names. */
import type { Task, Unlisted } from "./configuration.js";
import type { Listed } from "./domain.js";
import { wants } from "./errors.js";
import { krr } from "./krr.js";
import { olh } from "./olh.js";
import type { Channel, Description, Oracle } from "./oracle.js";
import { oue } from "./oue.js";
import { subset } from "./subset.js";

/** A mechanism over a list of cells, or one that takes values as they are. */
export type Made = (Oracle & { readonly value_?: never }) | (Channel & { readonly randomize_?: never });

// By name and the keys of the description: one with other keys is another mechanism.
const MECHANISMS: Readonly<Record<string, (integers: Description) => Oracle>> = {
  "krr,k,lie": krr,
  "oue,k,lie": oue,
  "subset,k,omega,truth": subset,
  "olh,g,k,lie,prime": olh,
};

/** Make the mechanism of a description. */
export async function made({ name, ...integers }: Description, task: Task, domain: Listed | Unlisted): Promise<Made> {
  const key = [name, ...Object.keys(integers).sort()].join();
  const make = MECHANISMS[key] ?? (await import("./more.js")).MORE[key];
  wants(make, "mechanism");
  return make(integers, task, domain);
}
