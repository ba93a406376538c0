/** The places of a finding: the example that is shown, and all others like it. */

import { count as counted } from "./format.js";
import { lowerBound } from "./search.js";

/**
 * @typedef {object} Alike
 * @property {Float64Array} start ascending, in ns from the origin of the timeline
 * @property {Float64Array} end
 * @property {number} count how many there are; of very many, some are listed
 * @property {number} at the one that is shown
 */

/**
 * @param {string} text starts and ends in order, each as the difference to the one before it
 * @param {number} count
 * @param {bigint} origin
 * @param {number} from the start of the one that is shown
 * @returns {Alike}
 */
export function alikeOf(text, count, origin, from) {
  const [first, ...rest] = text.split(" ");
  let time = Number(BigInt(first) - origin);
  const times = [time, ...rest.map((each) => (time += Number(each)))];
  const start = Float64Array.from(times.filter((_, at) => at % 2 === 0));
  const end = Float64Array.from(times.filter((_, at) => at % 2 === 1));
  // A part of one may be what is shown.
  const after = lowerBound(start, from + 1);
  return { start, end, count, at: Math.max(after - 1, 0) };
}

/** Go on to the one before or after; behind the last comes the first. @param {Alike} alike @param {1 | -1} step */
export function goOn(alike, step) {
  const { length } = alike.start;
  alike.at = (alike.at + step + length) % length;
  return { from: alike.start[alike.at], to: alike.end[alike.at] };
}

/** @param {Alike} alike */
export function sayWhich({ start, count, at }) {
  return start.length === count
    ? `${counted(at + 1)} of ${counted(count)} like it`
    : `1 of ${counted(count)} like it, ${counted(start.length)} marked`;
}
