/** The excess of a step over the median step of its loop. */

import { label } from "./canvas/colors.js";
import { firstAfter } from "./model.js";
import { sumsOf } from "./sums.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./model.js").Track} Track */
/** @typedef {{track: Track, row: number}} Place */
/** @typedef {{text: string, ns: number}} Excess */

const LEAST_STEPS = 2;
/** Least part of a step's extra time to be listed. */
const LEAST_SHARE = 0.1;
/** Least extra time of a step, as a part of the median step, for it to differ from the others. */
const LEAST_LONGER = 0.05;
const MOST_LISTED = 3;

/**
 * The step of median length (of two, the shorter one) among the steady steps of the same loop: names
 * that differ in numbers only.
 * @param {Model} model
 * @param {Place} place
 * @returns {number | null} its row, null where too few steps are alike
 */
export function medianStep({ names, classes }, { track, row }) {
  if (track.count) return null;
  const loop = withoutNumbers(names.texts[track.name[row]]);
  const alike = Array.from(track.name, (_, each) => each).filter(
    (each) => withoutNumbers(names.texts[track.name[each]]) === loop && classes[names.classes[track.name[each]]] !== "step-warm-up",
  );
  /** @param {number} each */
  const length = (each) => track.end[each] - track.start[each];
  const middle = alike.sort((a, b) => length(a) - length(b))[(alike.length - 1) >> 1];
  return alike.length < LEAST_STEPS ? null : middle;
}

/**
 * @param {Model} model
 * @param {Place} place a step
 * @param {number} median row of the step to compare with
 * @returns {{gpu: Excess[], cpu: Excess[]}} most first; empty where it is hardly longer
 */
export function excessOf(model, { track, row }, median) {
  const { start, end } = track;
  const usual = end[median] - start[median];
  const longer = end[row] - start[row] - usual;
  if (longer < usual * LEAST_LONGER) return { gpu: [], cpu: [] };
  const least = longer * LEAST_SHARE;
  const own = withoutNumbers(model.names.texts[track.name[row]]);
  /** @param {(model: Model, from: number, to: number, process: number) => Map<string, number>} times */
  const more = (times) => {
    const before = times(model, start[median], end[median], track.lane.process);
    return [...times(model, start[row], end[row], track.lane.process)]
      .map(([text, ns]) => ({ text, ns: ns - (before.get(text) ?? 0) }))
      .filter(({ text, ns }) => ns >= least && text !== own)
      .sort((a, b) => b.ns - a.ns)
      .slice(0, MOST_LISTED);
  };
  return { gpu: more(gpuTimes), cpu: more(cpuTimes) };
}

/** Idle time by cause and work by class. @param {Model} model @param {number} from @param {number} to */
function gpuTimes(model, from, to) {
  const times = /** @type {Map<string, number>} */ (new Map());
  for (const { causes, classes } of sumsOf(model, from, to).devices) {
    for (const [kind, { ns }] of causes) add(times, `idle, ${label(model.classes[kind])}`, ns);
    for (const [kind, { ns }] of classes) add(times, label(model.classes[kind]), ns);
  }
  return times;
}

/** Lines of Python, CUDA calls and ranges inside the step, of the threads of a process.
 * @param {Model} model
 * @param {number} from
 * @param {number} to
 * @param {number} process
 */
export function cpuTimes(model, from, to, process) {
  const times = /** @type {Map<string, number>} */ (new Map());
  for (const track of model.tracks) {
    const { content, lane, count, start, end, name } = track;
    if (lane.kind !== "thread" || count || (process >= 0 && lane.process !== process)) continue;
    for (let row = firstAfter(track, from); row < start.length && start[row] < to; row++) {
      const text = model.names.texts[name[row]];
      add(times, content === "ranges" ? withoutNumbers(text) : text, Math.min(end[row], to) - Math.max(start[row], from));
    }
  }
  return times;
}

/** @param {Map<string, number>} times @param {string} text @param {number} ns */
function add(times, text, ns) {
  times.set(text, (times.get(text) ?? 0) + ns);
}

const known = /** @type {Map<string, string>} */ (new Map());

/** A range of torch's without what it notes behind its name. @param {string} text */
export const operator = (text) => text.split(/, (?:seq|op_id|sizes) = /)[0];

/** @param {string} text */
export function withoutNumbers(text) {
  let plain = known.get(text);
  if (plain === undefined) known.set(text, (plain = operator(text).replace(/\d+/g, "#")));
  return plain;
}
