/** Which mechanism a configuration names. */
import { wants } from "./errors.js";
import { hadamard } from "./hadamard.js";
import { krr } from "./krr.js";
import { olh } from "./olh.js";
import type { Description, Oracle } from "./oracle.js";
import { oue } from "./oue.js";
import { subset } from "./subset.js";
import { twoStage } from "./two_stage.js";

// By name and the keys of the description: one with other keys is another mechanism.
const MECHANISMS: Readonly<Record<string, (description: Description) => Oracle>> = {
  "krr,k,lie": krr,
  "oue,k,lie": oue,
  "hadamard,k,lie": hadamard,
  "subset,k,omega,truth": subset,
  "olh,g,k,lie,prime": olh,
  "two-stage,k,query_lie,url_lies,urls": twoStage,
};

/** Make the mechanism of a description. */
export function oracleOf({ name, ...integers }: Description): Oracle {
  const key = [name, ...Object.keys(integers).sort()].join();
  wants(Object.hasOwn(MECHANISMS, key), "mechanism");
  return MECHANISMS[key]!(integers);
}
