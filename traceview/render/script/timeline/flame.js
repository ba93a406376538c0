/** The time of a window by call path: ranges, Python lines, calls, and the GPU work that they launched. */

import { linksOf } from "./canvas/arrows.js";
import { busyOf, firstAfter, openAt, sum } from "./model.js";
import { lowerBound } from "./search.js";
import { withoutNumbers } from "./steps.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {{track: import("./model.js").Track, row: number}} Place */

/**
 * A call path. On a GPU, `ns` and `calls` are those of the work that was launched in it.
 * @typedef {object} Frame
 * @property {string} text
 * @property {string} kind class of its rows; empty for a thread or a GPU, MERGED for rows that the page has as sums only
 * @property {Set<number>} names of its rows
 * @property {number} calls that begin in the window
 * @property {number} ns
 * @property {number} self time outside the frames below
 * @property {Map<string | null, Frame>} below by text; null for merged rows
 */

/** More rows would hold up the page for more than a tenth of a second. */
const MOST_ROWS = 200_000;
export const MERGED = "merged";
/** From the outside to the inside. */
const NESTING = ["ranges", "python", "calls"];

/** @param {string} text @param {string} [kind] @returns {Frame} */
const frameOf = (text, kind = "") => ({ text, kind, names: new Set(), calls: 0, ns: 0, self: 0, below: new Map() });
/** @param {Place} place */
const isMerged = ({ track, row }) => !!track.count && track.count[row] > 1;

/**
 * The frames of all threads, or of the GPUs. Rows that the page has as sums only are one frame in what is around them.
 * @param {Model} model
 * @param {number} from
 * @param {number} to
 * @param {boolean} onGpu
 * @returns {Frame | null} null for more than MOST_ROWS rows
 */
export function framesOf(model, from, to, onGpu) {
  const root = frameOf(onGpu ? "All GPU work" : "All threads");
  const tracks = model.tracks.filter(({ lane }) => lane.kind === (onGpu ? "stream" : "thread"));
  if (sum(tracks, (track) => lowerBound(track.start, to) - firstAfter(track, from)) > MOST_ROWS) return null;
  for (const track of tracks) {
    const { lane, start, end, count } = track;
    for (let row = firstAfter(track, from); row < start.length && start[row] < to; row++) {
      const merged = isMerged({ track, row });
      const inside = Math.min(end[row], to) - Math.max(start[row], from);
      const ns = merged && inside ? (inside * busyOf(track, row)) / (end[row] - start[row]) : inside;
      const begins = start[row] >= from ? (merged && count ? count[row] : 1) : 0;
      let frame = below(root, onGpu ? lane.group : lane.title);
      for (const place of [...around(model, { track, row }, onGpu), { track, row }]) {
        const outer = frame;
        frame = belowOf(model, frame, place);
        if (!onGpu && place.track !== track) continue;
        if (frame !== outer) frame.ns += ns;
        frame.calls += begins;
      }
    }
  }
  settle(root);
  return root;
}

/** @param {string} text @param {string} [kind] */
const keyOf = (text, kind) => (kind === MERGED ? null : text);

/** @param {Frame} frame @param {string} text @param {string} [kind] */
function below(frame, text, kind) {
  const key = keyOf(text, kind);
  const known = frame.below.get(key);
  if (known) return known;
  const made = frameOf(text, kind);
  frame.below.set(key, made);
  return made;
}

/** Ranges that differ in numbers only, such as steps, are one, and so are merged rows inside one another. @param {Model} model @param {Frame} frame @param {Place} place */
function belowOf({ names, classes }, frame, { track, row }) {
  if (isMerged({ track, row })) return frame.kind === MERGED ? frame : below(frame, "merged rows", MERGED);
  const name = track.name[row];
  const text = track.content === "ranges" ? withoutNumbers(names.texts[name]) : names.texts[name];
  const inner = below(frame, text, classes[names.classes[name]]);
  inner.names.add(name);
  return inner;
}

/** Time of the frames that have no rows of their own, and time outside the frames below. @param {Frame} frame */
function settle(frame) {
  let inside = 0;
  for (const each of frame.below.values()) inside += settle(each);
  frame.ns = Math.max(frame.ns, inside);
  frame.self = frame.ns - inside;
  return frame.ns;
}

/** What a row is in, outermost first. @param {Model} model @param {Place} place @param {boolean} onGpu */
function around(model, place, onGpu) {
  if (!onGpu) return stackAt(place.track.lane, place.track.start[place.row], place.track);
  const [pair] = isMerged(place) ? [] : linksOf(model, place);
  return pair ? stackOf(model, pair[0]) : [];
}

/**
 * The ranges and the Python line that a call is in. A thread without ranges, such as that of a
 * backward pass, is in those of another thread of its process.
 * @param {Model} model
 * @param {Place} call
 * @returns {Place[]}
 */
export function stackOf(model, { track, row }) {
  const time = track.start[row];
  const own = stackAt(track.lane, time).filter((each) => each.track.content !== "calls" && !isMerged(each));
  if (own.some((each) => each.track.content === "ranges")) return own;
  for (const lane of withRanges(model).get(track.lane.process) ?? []) {
    const ranges = stackAt(lane, time).filter((each) => each.track.content === "ranges" && !isMerged(each));
    if (ranges.length) return [...ranges, ...own];
  }
  return own;
}

const ranged = /** @type {WeakMap<Model, Map<number, import("./model.js").Lane[]>>} */ (new WeakMap());

/** The threads with ranges, by process. @param {Model} model */
function withRanges(model) {
  const known = ranged.get(model);
  if (known) return known;
  const made = new Map();
  for (const lane of model.lanes) {
    if (lane.kind !== "thread" || !lane.tracks.some((track) => track.content === "ranges")) continue;
    made.set(lane.process, [...(made.get(lane.process) ?? []), lane]);
  }
  ranged.set(model, made);
  return made;
}

const ordered = /** @type {WeakMap<import("./model.js").Lane, import("./model.js").Track[]>} */ (new WeakMap());

/**
 * The rows of a lane that are open at a time, outermost first.
 * @param {import("./model.js").Lane} lane
 * @param {number} time
 * @param {import("./model.js").Track} [until] the track to stop at
 */
function stackAt(lane, time, until) {
  let tracks = ordered.get(lane);
  if (!tracks) {
    tracks = NESTING.flatMap((content) => lane.tracks.filter((track) => track.content === content));
    ordered.set(lane, tracks);
  }
  const stack = /** @type {Place[]} */ ([]);
  for (const track of tracks) {
    if (track === until) break;
    const row = openAt(track, time);
    if (row >= 0) stack.push({ track, row });
  }
  return stack;
}

/**
 * Frames by name, most time first; a name inside itself counts once.
 * @param {Frame} root
 * @returns {Frame[]}
 */
export function byName(root) {
  const all = frameOf("");
  /** @param {Frame} frame @param {(string | null)[]} open */
  const visit = (frame, open) => {
    const key = keyOf(frame.text, frame.kind);
    if (frame.kind) {
      const sums = below(all, frame.text, frame.kind);
      for (const name of frame.names) sums.names.add(name);
      sums.self += frame.self;
      if (!open.includes(key)) [sums.ns, sums.calls] = [sums.ns + frame.ns, sums.calls + frame.calls];
    }
    for (const each of frame.below.values()) visit(each, [...open, key]);
  };
  visit(root, []);
  return [...all.below.values()].filter((each) => each.ns > 0).sort((a, b) => b.ns - a.ns);
}
