/** Sums over a window of time: busy and idle time of each GPU, and operations by class. */

import { busyOf, firstAfter } from "./model.js";
import { lowerBound } from "./search.js";

/** @typedef {{calls: number, ns: number}} Total */

/** Most begins and ends to sort for the time of streams together: some 50 ms. */
const MOST_STEPS = 100_000;

/**
 * @typedef {object} DeviceSums
 * @property {string} title
 * @property {number} span time between the first and the last work of the GPU inside the window
 * @property {number} idle
 * @property {number} busy
 * @property {Map<number, Total>} causes idle time by class of the gap
 * @property {Map<number, Total>} classes time of operations by their class, summed over streams
 * @property {Map<string, Total>} streams the same by stream
 * @property {Map<string, Total>} together the same by the streams that have work at once; empty where that is not known
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
      exact = addRows(model, track, from, to, sums.classes) && exact;
      addStream(sums, track, from, to);
    } else {
      exact = addRows(model, track, from, to, sums.causes) && exact;
    }
  }
  for (const sums of devices.values()) {
    sums.span = Math.max(Math.min(to, sums.last) - Math.max(from, sums.first), 0);
    for (const cause of sums.causes.values()) sums.idle += cause.ns;
    sums.busy = sums.span - sums.idle;
    if (sums.steps && sums.streams.size > 1) timeTogether(sums.steps, [...sums.streams.keys()], sums.together);
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
  const [first, last] = [firstAfter(track, from), lowerBound(start, to)];
  if (sums.steps && sums.steps.length + 2 * (last - first) > MOST_STEPS) sums.steps = null;
  for (let row = first; row < last; row++) {
    const [begin, finish] = [Math.max(start[row], from), Math.min(end[row], to)];
    total.calls += start[row] >= from ? (count ? count[row] : 1) : 0;
    total.ns += finish - begin;
    if (count && count[row] > 1) sums.steps = null;
    sums.steps?.push([begin, 1, lane.title], [finish, -1, lane.title]);
  }
  if (total.ns) sums.streams.set(lane.title, total);
}

/**
 * Time by the streams that have work at once.
 * @param {[number, number, string][]} steps
 * @param {string[]} all
 * @param {Map<string, Total>} together
 */
function timeTogether(steps, all, together) {
  all.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const numbers = new Map(all.map((stream, number) => [stream, number]));
  const open = all.map(() => 0);
  const busy = /** @type {number[]} */ ([]);
  let [streams, since] = ["", 0];
  for (const [at, change, stream] of steps.sort(([a, up], [b, other]) => a - b || up - other)) {
    if (busy.length && at > since) {
      streams ||= (busy.length > 1 ? "" : "Only ") + busy.sort((a, b) => a - b).map((each) => all[each]).join(" and ");
      add(together, streams, 1, at - since);
    }
    since = at;
    const number = numbers.get(stream);
    if (number === undefined) continue;
    const before = open[number];
    open[number] += change;
    if (before && open[number]) continue;
    if (before) busy.splice(busy.indexOf(number), 1);
    else busy.push(number);
    streams = "";
  }
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
    streams: new Map(),
    together: new Map(),
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
 */
function addRows(model, track, from, to, classes) {
  const { start, end, name, count, byClass } = track;
  let exact = true;
  for (let row = firstAfter(track, from); row < start.length && start[row] < to; row++) {
    const inside = Math.min(end[row], to) - Math.max(start[row], from);
    if (!count || count[row] === 1) {
      add(classes, model.names.classes[name[row]], Number(start[row] >= from), inside);
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

/** @template K @param {Map<K, Total>} totals @param {K} key @param {number} calls @param {number} ns */
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
