/** Sums over a window of time: busy and idle time of each GPU, and operations by class. */

import { busyOf, firstAfter } from "./model.js";

/** @typedef {{calls: number, ns: number}} Total */

/** Most begins and ends to sort for the time of streams together: some 50 ms. */
const MOST_STEPS = 400_000;

/**
 * @typedef {object} DeviceSums
 * @property {string} title
 * @property {number} span time between the first and the last work of the GPU inside the window
 * @property {number} idle
 * @property {number} busy
 * @property {Map<number, Total>} causes idle time by class of the gap
 * @property {Map<number, Total>} classes time of operations by their class, summed over streams
 * @property {Map<number, Total>} names the same by name, of the rows that are shown singly
 * @property {Map<string, Total>} streams the same by stream
 * @property {number | null} together time with work on two streams or more; null where it is not known
 */

/** @typedef {{devices: DeviceSums[], exact: boolean}} Sums */

/**
 * @param {import("./model.js").Model} model
 * @param {number} from
 * @param {number} to
 * @returns {Sums}
 */
export function sumsOf(model, from, to) {
  const devices = /** @type {Map<number, Open>} */ (new Map());
  let exact = true;
  for (const track of model.tracks) {
    if (track.content !== "operations" && track.content !== "gaps") continue;
    if (track.lane.kind === "migrations" || !track.start.length) continue;
    const sums = deviceOf(devices, track.lane);
    if (track.content === "operations") {
      sums.first = Math.min(sums.first, track.start[0]);
      sums.last = Math.max(sums.last, track.end[track.end.length - 1]);
      exact = addRows(model, track, from, to, sums.classes, sums.names) && exact;
      addStream(sums, track, from, to);
    } else {
      exact = addRows(model, track, from, to, sums.causes, null) && exact;
    }
  }
  for (const sums of devices.values()) {
    sums.span = Math.max(Math.min(to, sums.last) - Math.max(from, sums.first), 0);
    for (const cause of sums.causes.values()) sums.idle += cause.ns;
    sums.busy = sums.span - sums.idle;
    sums.together = sums.steps && timeTogether(sums.steps);
  }
  return { devices: [...devices.values()], exact };
}

/**
 * Sums while they grow: `steps` are the time, the change and the stream where work begins and ends.
 * @typedef {DeviceSums & {first: number, last: number, steps: [number, number, string][] | null}} Open
 */

/**
 * Add the work of a stream. Of rows that the page has as sums only, what is at once is not known.
 * @param {Open} sums
 * @param {import("./model.js").Track} track
 * @param {number} from
 * @param {number} to
 */
function addStream(sums, track, from, to) {
  const { lane, start, end, count } = track;
  const total = sums.streams.get(lane.title) ?? { calls: 0, ns: 0 };
  for (let row = firstAfter(track, from); row < start.length && start[row] < to; row++) {
    const [begin, finish] = [Math.max(start[row], from), Math.min(end[row], to)];
    total.calls += start[row] >= from ? (count ? count[row] : 1) : 0;
    total.ns += finish - begin;
    if ((count && count[row] > 1) || (sums.steps && sums.steps.length > MOST_STEPS)) sums.steps = null;
    sums.steps?.push([begin, 1, lane.title], [finish, -1, lane.title]);
  }
  if (total.ns) sums.streams.set(lane.title, total);
}

/** Time in which at least two streams have work. @param {[number, number, string][]} steps */
function timeTogether(steps) {
  const open = /** @type {Map<string, number>} */ (new Map());
  let [busy, time, since] = [0, 0, 0];
  for (const [at, change, stream] of steps.sort(([a, up], [b, other]) => a - b || up - other)) {
    if (busy >= 2) time += at - since;
    const before = open.get(stream) ?? 0;
    open.set(stream, before + change);
    busy += Number(before + change > 0) - Number(before > 0);
    since = at;
  }
  return time;
}

/**
 * @param {Map<number, Open>} devices
 * @param {import("./model.js").Lane} lane
 */
function deviceOf(devices, lane) {
  const known = devices.get(lane.device);
  if (known) return known;
  /** @type {Open} */
  const made = {
    title: lane.group,
    span: 0,
    idle: 0,
    busy: 0,
    causes: new Map(),
    classes: new Map(),
    names: new Map(),
    streams: new Map(),
    together: null,
    first: Infinity,
    last: -Infinity,
    steps: [],
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

/** The keys with most time first. @template K @param {Map<K, Total>} totals @returns {[K, Total][]} */
export function ranked(totals) {
  return [...totals].filter(([, total]) => total.ns > 0).sort(([, a], [, b]) => b.ns - a.ns);
}
