/**
 * The mechanisms that fewer tasks use: two-stage and Hadamard response over lists, and those of numbers and texts.
 *
 * A module of its own, which a page loads when its task names one of them.
 */
import { ONE } from "./chance.js";
import type { Task, Unlisted } from "./configuration.js";
import type { Listed } from "./domain.js";
import { wants } from "./errors.js";
import { ratio } from "./exact.js";
import { hadamard } from "./hadamard.js";
import { canonical } from "./hash.js";
import type { Made } from "./mechanisms.js";
import { dbitflip, onebit } from "./onebit.js";
import type { Description } from "./oracle.js";
import { rappor } from "./rappor.js";
import { twoStage } from "./two_stage.js";

/** By name and the keys of the description. What a task says about its mechanism must be what runs. */
export const MORE: Readonly<Record<string, (integers: Description, task: Task, domain: Listed | Unlisted) => Made>> = {
  "hadamard,k,lie": hadamard,
  "two-stage,k,query_lie,url_lies,urls"(integers, { task: { domain: own } }, domain) {
    // It has the records query by query, so their order may be another than the task's.
    const sorted = (list: readonly unknown[]) => list.map(canonical).sort().join();
    wants(!own || sorted(own) === sorted((domain as Listed).records), "domain");
    return twoStage(integers);
  },
  "onebit,low,most,step,unit"(integers, { task: { highest = 0 }, client: { step = highest } }) {
    wants(integers.step === step, "mechanism");
    return onebit(integers, highest);
  },
  "dbitflip,d,k,keep,most"(integers, { task: { highest = 0 }, client: { buckets, bits } }) {
    wants(integers.k === buckets && integers.d === bits, "mechanism");
    return dbitflip(integers, highest);
  },
  "rappor,flip,h,k,m,p,q,variant"(integers, { client: { rappor: asked } }) {
    wants(asked && (["k", "h", "m"] as const).every((key) => integers[key] === asked[key]), "mechanism");
    // The chances that run are next to those of the task, on the side that loses less.
    const chances = [over(asked.p, ONE, 1n), over(asked.q, ONE, 0n), over(asked.f, ONE / 2n, 1n)];
    const same = [integers.p, integers.q, integers.flip].every((chance, i) => BigInt(chance) === chances[i]);
    wants(same && integers.variant === "native", "mechanism");
    return rappor(integers);
  },
};

/** Give a fraction as an integer over `whole`, rounded down, or up by `above` 1. */
function over(text: string, whole: bigint, above: bigint): bigint {
  const [n, d] = ratio(text);
  return (n * whole + above * (d - 1n)) / d;
}
