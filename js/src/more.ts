/**
 * The mechanisms that fewer tasks use: two-stage response over lists, and those of numbers and texts.
 *
 * A module of its own, which a page loads when its task names one of them.
 */
import { ONE } from "./chance.js";
import type { Task } from "./configuration.js";
import { wants } from "./errors.js";
import { atMost, loss, ratio, type Ratio } from "./exact.js";
import type { Made, Records } from "./mechanisms.js";
import type { Channel } from "./oracle.js";
import { calibrateFlip, calibrateOnebit, dbitflip, onebit } from "./onebit.js";
import { rappor } from "./rappor.js";
import { calibrateTwoStage, grouped, twoStage } from "./two_stage.js";

/** By name. */
export const MORE: Readonly<Record<string, (task: Task, epsilon: Ratio, records: Records) => Made>> = {
  "two-stage"({ client: { oracle, query_share = oracle === "auto" ? "17/20" : "" } }, epsilon, records) {
    const groups = grouped(records);
    const urls = groups.map((one) => one.length);
    const integers = calibrateTwoStage(urls, epsilon, query_share ? ratio(query_share) : undefined);
    return { description_: { name: "two-stage", ...integers }, oracle_: twoStage(integers), records_: groups.flat() };
  },
  onebit({ task: { highest = 0 }, client: { step = highest } }, epsilon) {
    // Else a grid point could lie beyond the bound.
    wants(highest % step === 0, "step");
    const description = { name: "onebit", ...calibrateOnebit(highest, epsilon), step };
    return { description_: description, channel_: onebit(description) as Channel };
  },
  dbitflip({ task: { highest = 0 }, client: { buckets = 0, bits = 0 } }, epsilon) {
    const description = { name: "dbitflip", ...calibrateFlip(buckets, bits, epsilon), most: highest };
    return { description_: description, channel_: dbitflip(description) as Channel };
  },
  rappor({ client: { rappor: asked } }, epsilon) {
    wants(asked, "rappor");
    const { k, h, m } = asked;
    // The chances that run are next to those of the task, on the side that loses less.
    const [p, q, flip] = [over(asked.p, ONE, 1n), over(asked.q, ONE, 0n), over(asked.f, ONE / 2n, 1n)];
    // Two texts differ in at most 2h bits of their filters. These chances are given and not calibrated to epsilon.
    const [n, d] = loss(ONE - flip, flip);
    const cost: Ratio = [n * BigInt(2 * h), d];
    wants(n && atMost(cost, epsilon), "loss");
    const description = { name: "rappor", variant: "native", k, h, m, p: Number(p), q: Number(q), flip: Number(flip) };
    return { description_: description, channel_: rappor(description) as Channel, cost_: cost };
  },
};

/** Give a fraction as an integer over `whole`, rounded down, or up by `above` 1. */
function over(text: string, whole: bigint, above: bigint): bigint {
  const [n, d] = ratio(text);
  return (n * whole + above * (d - 1n)) / d;
}
