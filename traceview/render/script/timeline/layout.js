/** Where each lane lies: groups of lanes from top to bottom, and which of them are folded. */

/** @typedef {import("./model.js").Track} Track */
/** @typedef {import("./model.js").Lane} Lane */
/** @typedef {import("./model.js").Counter} Counter */

/**
 * A line of the canvas: a heading, tracks drawn over each other, or a counter.
 * @typedef {object} Line
 * @property {Band} band
 * @property {Track[]} tracks
 * @property {Counter | null} counter
 * @property {number} y
 * @property {number} height
 */

/**
 * A lane, or the counters of a device, under one title.
 * @typedef {object} Band
 * @property {string} title
 * @property {string} group
 * @property {boolean} heads whether the name of its group stands above it
 * @property {Lane | null} lane
 * @property {Counter[]} counters
 * @property {boolean} folded
 * @property {boolean} pinned whether it stays in sight above the lanes that scroll
 * @property {number} scale of its height
 * @property {number} y
 * @property {number} height
 */

const UNPLACED = { folded: false, pinned: false, scale: 1, heads: false, y: 0, height: 0 };
const HEIGHTS = { operations: 20, gaps: 14, ranges: 16, calls: 16, python: 16, steps: 18, phases: 14 };
const FOLDED = 9;
const COUNTER = 34;
const GAP = 5;
export const HEADING = 15;
/** Height of the ruler above the lanes. */
export const AXIS = 24;
const OPEN_THREADS = 3;
const OPEN_STREAMS = 12;

/**
 * The bands of a model: the run, the thread that launches most, each GPU, and the other threads.
 * @param {import("./model.js").Model} model
 * @returns {Band[]}
 */
export function bandsOf(model) {
  const of = (/** @type {string[]} */ ...kinds) =>
    model.lanes.filter((lane) => kinds.includes(lane.kind)).map(bandOf);
  const threads = of("thread");
  const gpu = of("idle", "stream", "migrations");
  const devices = [...new Set(gpu.map((band) => band.lane?.device ?? -1))].sort((a, b) => a - b);
  const bands = [...of("steps", "phases"), ...threads.slice(0, OPEN_THREADS)];
  for (const device of devices) {
    const counters = model.counters.filter((each) => each.device === device);
    bands.push(...gpu.filter((band) => band.lane?.device === device));
    bands.push(...counters.map(counterBand));
  }
  const others = threads.slice(OPEN_THREADS);
  bands.push(...others.map((band) => ({ ...band, group: "Other CPU threads", folded: true })));
  const busiest = rows(threads[0]);
  threads.filter((band) => rows(band) < busiest / 50).forEach(fold);
  const streams = gpu.filter((band) => band.lane?.kind === "stream");
  const fullest = Math.max(...streams.map(rows));
  streams.filter((band, at) => at >= OPEN_STREAMS || rows(band) < fullest / 100).forEach(fold);
  return bands;
}

/** @param {Band} band */
const fold = (band) => void (band.folded = true);

/** @param {Band | undefined} band */
const rows = (band) =>
  band?.lane?.tracks.reduce((most, track) => Math.max(most, track.start.length), 0) ?? 0;

/** @param {Lane} lane @returns {Band} */
function bandOf(lane) {
  const group = lane.kind === "thread" ? "CPU threads" : lane.group;
  return { title: lane.title, group, lane, counters: [], ...UNPLACED };
}

/** @param {Counter} counter @returns {Band} */
function counterBand(counter) {
  const { title, group } = counter;
  return { title, group, lane: null, counters: [counter], ...UNPLACED };
}

/**
 * Give bands and lines their places.
 * @param {Band[]} bands
 * @param {boolean} narrow whether titles stand above their lanes
 * @returns {{lines: Line[], height: number, pinned: number}} `pinned` is the height of the pinned lanes
 */
export function laidOut(bands, narrow) {
  const lines = /** @type {Line[]} */ ([]);
  let y = 0;
  let [group, pinned] = ["", 0];
  for (const band of bands) {
    band.heads = band.group !== group && band.group !== "";
    group = band.group;
    if (band.heads) y += HEADING + GAP;
    band.y = y;
    if (narrow) y += HEADING;
    for (const { tracks, counter, height } of linesOf(band)) {
      lines.push({ band, tracks, counter, y, height: height * band.scale });
      y += height * band.scale + 1;
    }
    band.height = y - band.y;
    y += GAP;
    if (band.pinned) pinned = y;
  }
  return { lines, height: y, pinned };
}

/**
 * @param {Band} band
 * @returns {{tracks: Track[], counter: Counter | null, height: number}[]}
 */
function linesOf(band) {
  if (band.folded) {
    const tracks = band.lane?.tracks ?? [];
    const calls = tracks.filter((track) => track.content === "calls");
    return [{ tracks: calls.length ? calls.slice(0, 1) : tracks, counter: null, height: FOLDED }];
  }
  if (!band.lane) {
    return band.counters.map((counter) => ({ tracks: [], counter, height: COUNTER }));
  }
  return band.lane.tracks.map((track) => {
    const height = /** @type {Record<string, number>} */ (HEIGHTS)[track.content] ?? FOLDED;
    return { tracks: [track], counter: null, height };
  });
}

/** How far a lane is scrolled: a pinned one is not. @param {Band} band @param {number} top */
export const scrolled = (band, top) => (band.pinned ? 0 : top);

/**
 * Put a band before or after another one; pinned ones stay together at the top.
 * @param {Band[]} bands
 * @param {Band} band
 * @param {number} to its new place
 */
export function moveBand(bands, band, to) {
  const other = bands[to];
  if (!other || other.pinned !== band.pinned) return;
  bands.splice(bands.indexOf(band), 1);
  bands.splice(to, 0, band);
}

/** Pin a band below those that are pinned, or let it go above the others. @param {Band[]} bands @param {Band} band */
export function pinBand(bands, band) {
  bands.splice(bands.indexOf(band), 1);
  bands.splice(bands.filter((each) => each.pinned).length, 0, band);
  band.pinned = !band.pinned;
}

/** The line that shows a track. @param {Line[]} lines @param {Track} track */
export function lineOf(lines, track) {
  return (
    lines.find((line) => line.tracks.includes(track)) ??
    lines.find((line) => line.band.lane === track.lane) ??
    null
  );
}
