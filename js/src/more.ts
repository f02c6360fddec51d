/**
 * The mechanisms that fewer tasks use: two-stage and Hadamard response over lists, and those of numbers and texts.
 *
 * A module of its own, which a page loads when its task names one of them.
 */
import type { Task } from "./configuration.js";
import { wants } from "./errors.js";
import { hadamard } from "./hadamard.js";
import type { Made } from "./mechanisms.js";
import { dbitflip, onebit } from "./onebit.js";
import type { Description } from "./oracle.js";
import { rappor } from "./rappor.js";
import { twoStage } from "./two_stage.js";

/** By name and the keys of the description. What a task says about its mechanism must be what runs. */
export const MORE: Readonly<Record<string, (integers: Description, task: Task) => Made>> = {
  "hadamard,k,lie": hadamard,
  "two-stage,k,query_lie,url_lies,urls": twoStage,
  "onebit,low,most,step,unit"(integers, { task: { highest = 0 }, client: { step = highest } }) {
    wants(integers.step === step, "mechanism");
    return onebit(integers, highest);
  },
  "dbitflip,d,k,keep,most"(integers, { task: { highest = 0 }, client: { buckets, bits } }) {
    wants(integers.k === buckets && integers.d === bits, "mechanism");
    return dbitflip(integers, highest);
  },
  "rappor,flip,h,k,m,p,q,variant"(integers, { client: { rappor: sizes } }) {
    const same = (["k", "h", "m"] as const).every((key) => integers[key] === sizes?.[key]);
    wants(same && integers.variant === "native", "mechanism");
    return rappor(integers);
  },
};
