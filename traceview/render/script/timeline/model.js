/** The timeline in memory: tracks of rows as typed arrays, on a clock that starts at 0. */

import { inflated, numbers, signed, texts } from "./packing.js";
import { treeOf } from "./tree.js";

/**
 * Rows in order of time that do not overlap. A row of a track with sums stands for `count` rows
 * that were busy for `busy` ns; on the other tracks each row is one event.
 * @typedef {object} Track
 * @property {string} content
 * @property {Lane} lane
 * @property {number} offset number of its first row among the rows of all tracks
 * @property {Float64Array} start
 * @property {Float64Array} end
 * @property {ArrayLike<number>} name
 * @property {ArrayLike<number> | null} count
 * @property {ArrayLike<number> | null} busy
 * @property {Map<number, ArrayLike<number>>} byClass busy time by class; empty without sums
 * @property {Int32Array | null} link row of the call that launched or caused each row, -1 for none
 * @property {ArrayLike<number> | null} bytes
 * @property {import("./tree.js").Tree} tree made when first asked for
 */

/**
 * @typedef {object} Lane
 * @property {string} kind
 * @property {string} title
 * @property {string} group
 * @property {number} device
 * @property {number} process
 * @property {Track[]} tracks
 */

/**
 * @typedef {object} Counter
 * @property {string} title
 * @property {string} unit
 * @property {string} group
 * @property {number} device
 * @property {Float64Array} time
 * @property {Float64Array} value
 * @property {number} most
 */

/**
 * @typedef {object} Names
 * @property {string[]} texts
 * @property {ArrayLike<number>} classes
 * @property {string[]} whole
 * @property {ArrayLike<number>} launch
 * @property {number[][]} launches
 */

/** @typedef {{idle: number, benign: number, site: string}} Wait */

/**
 * @typedef {object} Model
 * @property {bigint} origin time 0 on the clock of the recording
 * @property {number} end
 * @property {[number, number]} window what is shown at first
 * @property {string[]} classes
 * @property {Record<string, string>} causes what each cause of idle time means
 * @property {Names} names
 * @property {Lane[]} lanes
 * @property {Track[]} tracks
 * @property {Counter[]} counters
 * @property {Map<number, Wait>} waits by row
 * @property {number} summed rows of the recording that are shown as sums only
 * @property {number} recorded
 */

/**
 * @param {any} data the document that traceview/render/timeline.py describes
 * @returns {Promise<Model>}
 */
export async function modelOf(data) {
  const columns = data.columns;
  /** @param {string} name */
  const column = async (name) => numbers(columns[name], await inflated(columns[name].data));
  const wanted = ["gap", "duration", "name", "bytes", "link", "count", "pauses", "by_class"];
  const [gap, duration, name, bytes, link, count, pauses, byClass] = await Promise.all(
    wanted.map(column),
  );
  const read = { gap, duration, name, bytes, count, pauses, link: running(signed(link)) };
  const { lanes, tracks } = lanesOf(data, read);
  const named = await namesOf(data.names);
  addClasses(tracks, named.classes, columns.class_of, byClass);
  return {
    origin: BigInt(data.origin),
    end: data.end,
    window: data.window,
    classes: data.classes,
    causes: data.causes,
    names: named,
    lanes,
    tracks,
    counters: await Promise.all(data.counters.map(counterOf)),
    waits: await waitsOf(data.waits),
    summed: sum(tracks, (track) => (track.count ? summedRows(track.count) : 0)),
    recorded: data.recorded_rows,
  };
}

/** @param {any} given @returns {Promise<Names>} */
async function namesOf(given) {
  const [classes, launch] = await Promise.all(
    [given.classes, given.launch].map(async (column) => numbers(column, await inflated(column.data))),
  );
  return {
    texts: await texts(given.texts),
    classes,
    whole: await texts(given.whole),
    launch: Int32Array.from(launch, (each) => each - 1),
    launches: given.launches,
  };
}

/**
 * @param {any} data
 * @param {Record<string, any>} read columns of all tracks, one after the other
 */
function lanesOf(data, read) {
  const tracks = /** @type {Track[]} */ ([]);
  const at = { row: 0, operation: 0, link: 0, sum: 0 };
  const lanes = data.lanes.map((/** @type {any} */ given) => {
    const lane = /** @type {Lane} */ ({ ...given, tracks: [] });
    for (const each of given.tracks) {
      const track = trackOf(lane, each, read, at);
      lane.tracks.push(track);
      tracks.push(track);
    }
    return lane;
  });
  return { lanes, tracks };
}

/**
 * @param {Lane} lane
 * @param {any} given
 * @param {Record<string, any>} read
 * @param {{row: number, operation: number, link: number, sum: number}} at where its columns begin
 * @returns {Track}
 */
function trackOf(lane, given, read, at) {
  const rows = given.rows;
  const works = given.content === "operations";
  const links = works || given.content === "gaps";
  /** @param {ArrayLike<number> & {subarray: Function}} column @param {number} first */
  const part = (column, first) => column.subarray(first, first + rows);
  const [gap, duration] = [part(read.gap, at.row), part(read.duration, at.row)];
  const start = new Float64Array(rows);
  const end = new Float64Array(rows);
  for (let row = 0, latest = 0; row < rows; row++) {
    const from = latest + gap[row];
    start[row] = from;
    end[row] = latest = from + duration[row];
  }
  const track = {
    content: given.content,
    lane,
    offset: at.row,
    start,
    end,
    name: part(read.name, at.row),
    count: given.summed ? part(read.count, at.sum) : null,
    busy: given.summed ? end.map((time, row) => time - start[row] - read.pauses[at.sum + row]) : null,
    byClass: new Map(),
    link: links ? part(read.link, at.link) : null,
    bytes: works ? part(read.bytes, at.operation) : null,
  };
  at.row += rows;
  if (works) at.operation += rows;
  if (links) at.link += rows;
  if (given.summed) at.sum += rows;
  let tree = /** @type {import("./tree.js").Tree | undefined} */ (undefined);
  return {
    ...track,
    get tree() {
      return (tree ??= treeOf(track));
    },
  };
}

/**
 * @param {Track[]} tracks
 * @param {ArrayLike<number>} classes by name
 * @param {[number, number][]} pairs track and class of each part of the column; the rows of a track
 *   that is not there are of one class
 * @param {any} column of the rows that stand for several
 */
function addClasses(tracks, classes, pairs, column) {
  for (const track of tracks) if (track.busy) track.byClass.set(classes[track.name[0]], track.busy);
  for (const [number] of pairs) tracks[number].byClass.clear();
  let next = 0;
  for (const [number, kind] of pairs) {
    const { byClass, name, count, busy } = tracks[number];
    if (!count || !busy) continue;
    const times = new Float64Array(name.length);
    for (let row = 0; row < times.length; row++) {
      if (count[row] > 1) times[row] = column[next++];
      else if (classes[name[row]] === kind) times[row] = busy[row];
    }
    byClass.set(kind, times);
  }
}

/** @param {any} given @returns {Promise<Counter>} */
async function counterOf(given) {
  const [time, value] = await Promise.all([given.time, given.value].map(async (column) =>
    running64(signed(numbers(column, await inflated(column.data)))),
  ));
  return { ...given, time, value, most: value.reduce((a, b) => Math.max(a, b), 1) };
}

/** @param {any} given @returns {Promise<Map<number, Wait>>} */
async function waitsOf(given) {
  const sites = await texts(given.sites);
  const [row, idle, benign, site] = await Promise.all(
    [given.row, given.idle, given.benign, given.site].map(async (column) =>
      numbers(column, await inflated(column.data)),
    ),
  );
  const waits = new Map();
  row.forEach((/** @type {number} */ each, /** @type {number} */ at) => {
    waits.set(each, { idle: idle[at], benign: benign[at], site: sites[site[at]] });
  });
  return waits;
}

/** Running sums, less one: rows, and -1 for none. @param {Float64Array} steps */
function running(steps) {
  const sums = new Int32Array(steps.length);
  for (let row = 0, total = -1; row < steps.length; row++) sums[row] = total += steps[row];
  return sums;
}

/** @param {Float64Array} steps */
function running64(steps) {
  for (let row = 1; row < steps.length; row++) steps[row] += steps[row - 1];
  return steps;
}

/** @param {ArrayLike<number>} count */
function summedRows(count) {
  let rows = 0;
  for (let row = 0; row < count.length; row++) if (count[row] > 1) rows += count[row];
  return rows;
}

/**
 * @template Each
 * @param {Each[]} list
 * @param {(each: Each) => number} value
 */
export function sum(list, value) {
  return list.reduce((total, each) => total + value(each), 0);
}

/** The first row of a track that ends after a time. @param {Track} track @param {number} time */
export function firstAfter(track, time) {
  let low = 0;
  let high = track.end.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (track.end[middle] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The row of a track that is open at a time, or -1. @param {Track} track @param {number} time */
export function openAt(track, time) {
  const row = firstAfter(track, time);
  return row < track.start.length && track.start[row] <= time ? row : -1;
}

/**
 * The track of a row numbered among all, and its place there.
 * @param {Model} model
 * @param {number} number
 * @returns {{track: Track, row: number} | null}
 */
export function located(model, number) {
  const { tracks } = model;
  let [low, high] = [0, tracks.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tracks[middle].offset <= number) low = middle + 1;
    else high = middle;
  }
  const track = tracks[low - 1];
  return track && number >= 0 && number - track.offset < track.start.length
    ? { track, row: number - track.offset }
    : null;
}

/**
 * The work or gap that fills a window exactly, such as the kernel that a finding is about.
 * @param {Model} model
 * @param {number} from
 * @param {number} to
 * @returns {{track: Track, row: number} | null}
 */
export function filling(model, from, to) {
  for (const track of model.tracks) {
    if (track.content !== "operations" && track.content !== "gaps") continue;
    const row = openAt(track, from);
    if (row >= 0 && track.start[row] === from && track.end[row] === to) return { track, row };
  }
  return null;
}

/** Time in which a row was busy. @param {Track} track @param {number} row */
export function busyOf(track, row) {
  return track.busy ? track.busy[row] : track.end[row] - track.start[row];
}
