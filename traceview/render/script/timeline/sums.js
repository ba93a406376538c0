/** Sums over a window of time: busy and idle time of each GPU, and operations by class. */

import { busyOf, firstAfter } from "./model.js";

/** @typedef {{calls: number, ns: number}} Total */

/**
 * @typedef {object} DeviceSums
 * @property {string} title
 * @property {number} span time between the first and the last work of the GPU inside the window
 * @property {number} idle
 * @property {number} busy
 * @property {Map<number, Total>} causes idle time by class of the gap
 * @property {Map<number, Total>} classes time of operations by their class, summed over streams
 * @property {Map<number, Total>} names the same by name, of the rows that are shown singly
 */

/** @typedef {{devices: DeviceSums[], exact: boolean}} Sums */

/**
 * @param {import("./model.js").Model} model
 * @param {number} from
 * @param {number} to
 * @returns {Sums}
 */
export function sumsOf(model, from, to) {
  const devices = /** @type {Map<number, DeviceSums & {first: number, last: number}>} */ (new Map());
  let exact = true;
  for (const track of model.tracks) {
    if (track.content !== "operations" && track.content !== "gaps") continue;
    if (track.lane.kind === "migrations" || !track.start.length) continue;
    const sums = deviceOf(devices, track.lane);
    if (track.content === "operations") {
      sums.first = Math.min(sums.first, track.start[0]);
      sums.last = Math.max(sums.last, track.end[track.end.length - 1]);
      exact = addRows(model, track, from, to, sums.classes, sums.names) && exact;
    } else {
      exact = addRows(model, track, from, to, sums.causes, null) && exact;
    }
  }
  for (const sums of devices.values()) {
    sums.span = Math.max(Math.min(to, sums.last) - Math.max(from, sums.first), 0);
    for (const cause of sums.causes.values()) sums.idle += cause.ns;
    sums.busy = sums.span - sums.idle;
  }
  return { devices: [...devices.values()], exact };
}

/**
 * @param {Map<number, DeviceSums & {first: number, last: number}>} devices
 * @param {import("./model.js").Lane} lane
 */
function deviceOf(devices, lane) {
  const known = devices.get(lane.device);
  if (known) return known;
  const made = {
    title: lane.group,
    span: 0,
    idle: 0,
    busy: 0,
    causes: new Map(),
    classes: new Map(),
    names: new Map(),
    first: Infinity,
    last: -Infinity,
  };
  devices.set(lane.device, made);
  return made;
}

/**
 * Add the part of each row that lies in the window. False where a sum of many is cut.
 * @param {import("./model.js").Model} model
 * @param {import("./model.js").Track} track
 * @param {number} from
 * @param {number} to
 * @param {Map<number, Total>} classes
 * @param {Map<number, Total> | null} names
 */
function addRows(model, track, from, to, classes, names) {
  const { start, end, name, count, byClass } = track;
  let exact = true;
  for (let row = firstAfter(track, from); row < start.length && start[row] < to; row++) {
    const inside = Math.min(end[row], to) - Math.max(start[row], from);
    if (!count || count[row] === 1) {
      const begins = start[row] >= from ? 1 : 0;
      add(classes, model.names.classes[name[row]], begins, inside);
      if (names) add(names, name[row], begins, inside);
      continue;
    }
    const share = inside / (end[row] - start[row]);
    if (share < 1) exact = false;
    const busy = busyOf(track, row);
    for (const [kind, times] of byClass) {
      if (times[row]) add(classes, kind, (count[row] * share * times[row]) / busy, times[row] * share);
    }
  }
  return exact;
}

/** @param {Map<number, Total>} totals @param {number} key @param {number} calls @param {number} ns */
function add(totals, key, calls, ns) {
  const total = totals.get(key);
  if (total) {
    total.calls += calls;
    total.ns += ns;
  } else totals.set(key, { calls, ns });
}

/** The keys with most time first. @param {Map<number, Total>} totals @returns {[number, Total][]} */
export function ranked(totals) {
  return [...totals].filter(([, total]) => total.ns > 0).sort(([, a], [, b]) => b.ns - a.ns);
}
