/** Drawing the lanes: rows wide enough as boxes with a label, the others as their busy share. */

import { duration, level, moment } from "./format.js";
import { HEADING, lineOf } from "./layout.js";
import { firstAfter } from "./model.js";
import { walk } from "./tree.js";

/** @typedef {import("./model.js").Track} Track */
/** @typedef {import("./layout.js").Line} Line */

/**
 * @typedef {object} Scene
 * @property {import("./model.js").Model} model
 * @property {import("./view.js").View} view
 * @property {import("./colors.js").Colors} colors
 * @property {import("./layout.js").Band[]} bands
 * @property {Line[]} lines
 * @property {number} width
 * @property {number} height of the canvas
 * @property {number} top how far the lanes are scrolled
 * @property {number} ratio device pixels per CSS pixel
 * @property {boolean} narrow
 * @property {{track: Track, row: number} | null} selected
 * @property {{from: number, to: number} | null} range
 * @property {Uint8Array | null} hits by name; null without a search
 */

export const AXIS = 24;
const FONT = "11px system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', sans-serif";
const LEAST_LABEL = 26;
const MOST_ARROWS = 60;

/** @param {CanvasRenderingContext2D} pen @param {Scene} scene */
export function draw(pen, scene) {
  const { view, colors, width, height, ratio } = scene;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = colors.paper;
  pen.fillRect(0, 0, width, height);
  pen.font = FONT;
  pen.textBaseline = "middle";
  const ticks = ticksOf(view);
  drawGrid(pen, scene, ticks);
  pen.save();
  pen.beginPath();
  pen.rect(view.left, AXIS, view.right - view.left, height - AXIS);
  pen.clip();
  for (const line of scene.lines) {
    const y = AXIS + line.y - scene.top;
    if (y > height || y + line.height < AXIS) continue;
    for (const track of line.tracks) drawTrack(pen, scene, track, y, line.height);
    if (line.counter) drawCounter(pen, scene, line.counter, y, line.height);
  }
  drawRange(pen, scene);
  drawSelected(pen, scene);
  pen.restore();
  drawTitles(pen, scene);
  drawAxis(pen, scene, ticks);
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Scene} scene
 * @param {Track} track
 * @param {number} y
 * @param {number} height
 */
function drawTrack(pen, scene, track, y, height) {
  const { view, model, colors, hits, ratio } = scene;
  const classes = model.names.classes;
  const pixel = view.nsPerPixel / ratio;
  const labels = /** @type {[number, number, number][]} */ ([]);
  const column = { x: -1, busy: 0, longest: -1, length: 0 };
  const box = { x: 0, end: -1, height: 0, name: -1, kind: -1 };

  const flushBox = () => {
    if (box.end < box.x || box.name < 0) return;
    const kind = classes[box.name];
    const faint = hits && !hits[box.name];
    pen.globalAlpha = faint ? 0.22 : 1;
    pen.fillStyle = colors.fill[kind];
    pen.fillRect(box.x, y + height - box.height, box.end - box.x, box.height);
    box.name = -1;
  };
  const flushColumn = () => {
    if (column.longest < 0) return;
    const share = Math.min(column.busy / pixel, 1);
    const full = Math.max(Math.round(share * height * 2) / 2, 0.5);
    const name = track.name[column.longest];
    const x = view.left + column.x / ratio;
    const alike = box.name >= 0 && box.kind === classes[name] && box.height === full;
    if (alike && box.end >= x - 0.01 && (!hits || hits[name] === hits[box.name])) {
      box.end = x + 1 / ratio;
    } else {
      flushBox();
      Object.assign(box, { x, end: x + 1 / ratio, height: full, name, kind: classes[name] });
    }
    column.longest = -1;
  };
  walk(track, firstAfter(track, view.from), view.to, pixel, (start, end, busy, longest) => {
    if (end - start <= pixel) {
      const x = Math.floor(((start + end) / 2 - view.from) / pixel);
      if (x !== column.x) {
        flushColumn();
        Object.assign(column, { x, busy: 0, length: 0 });
      }
      column.busy += busy;
      if (busy >= column.length) {
        column.length = busy;
        column.longest = longest;
      }
      return;
    }
    flushColumn();
    flushBox();
    const left = Math.max(view.x(start), view.left - 2);
    const right = Math.min(view.x(end), view.right + 2);
    const name = track.name[longest];
    const tall = Math.max((busy / (end - start)) * height, 1);
    pen.globalAlpha = hits && !hits[name] ? 0.22 : 1;
    pen.fillStyle = colors.fill[classes[name]];
    // A hairline of paper keeps neighbours apart.
    const gap = right - left > 3 ? 0.5 : 0;
    pen.fillRect(left, y + height - tall, right - left - gap, tall);
    if (right - left >= LEAST_LABEL && height >= 12) labels.push([left, right, longest]);
  });
  flushColumn();
  flushBox();
  for (const [left, right, row] of labels) {
    const name = track.name[row];
    pen.globalAlpha = hits && !hits[name] ? 0.4 : 1;
    pen.fillStyle = colors.label[classes[name]];
    const text = elided(pen, labelOf(scene, track, row), right - left - 8);
    if (text) pen.fillText(text, left + 4, y + height / 2 + 0.5);
  }
  pen.globalAlpha = 1;
}

/** @param {Scene} scene @param {Track} track @param {number} row */
function labelOf({ model }, track, row) {
  const name = model.names.texts[track.name[row]];
  const count = track.count ? track.count[row] : 1;
  return count > 1 ? `${count} rows, longest ${name}` : name;
}

const widths = /** @type {Map<string, number>} */ (new Map());

/** The text without its middle, where it is too long. Letters are about equally wide.
 * @param {CanvasRenderingContext2D} pen
 * @param {string} text
 * @param {number} room
 */
export function elided(pen, text, room) {
  let width = widths.get(text);
  if (width === undefined) {
    if (widths.size > 20000) widths.clear();
    widths.set(text, (width = pen.measureText(text.slice(0, 400)).width));
  }
  if (width <= room) return text;
  const letters = Math.floor((room / width) * Math.min(text.length, 400)) - 1;
  if (letters < 5) return "";
  const head = Math.ceil(letters * 0.6);
  return `${text.slice(0, head)}\u2026${text.slice(text.length - (letters - head))}`;
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Scene} scene
 * @param {import("./model.js").Counter} counter
 * @param {number} y
 * @param {number} height
 */
function drawCounter(pen, scene, counter, y, height) {
  const { view, colors, ratio } = scene;
  const { time, value, most } = counter;
  const floor = y + height;
  const scale = (height - 4) / most;
  let at = lowerBound(time, view.from) - 1;
  pen.beginPath();
  pen.moveTo(view.left, floor);
  for (let x = view.left; x <= view.right; x += 1 / ratio) {
    const until = view.time(x + 1 / ratio);
    let highest = at >= 0 ? value[at] : 0;
    while (at + 1 < time.length && time[at + 1] < until) {
      at++;
      if (value[at] > highest) highest = value[at];
    }
    pen.lineTo(x, floor - highest * scale);
    pen.lineTo(x, floor - (at >= 0 ? value[at] : 0) * scale);
  }
  pen.lineTo(view.right, floor);
  pen.fillStyle = colors.quiet;
  pen.globalAlpha = 0.35;
  pen.fill();
  pen.globalAlpha = 1;
  const text = `max ${level(most, counter.unit)}`;
  const wide = pen.measureText(text).width;
  pen.fillStyle = colors.paper;
  pen.globalAlpha = 0.8;
  pen.fillRect(view.right - wide - 8, y, wide + 8, 14);
  pen.globalAlpha = 1;
  pen.fillStyle = colors.quiet;
  pen.fillText(text, view.right - wide - 4, y + 7);
}

/** The first place whose time is not less. @param {Float64Array} times @param {number} time */
export function lowerBound(times, time) {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** @param {CanvasRenderingContext2D} pen @param {Scene} scene */
function drawRange(pen, { view, range, colors, height }) {
  if (!range) return;
  const [left, right] = [view.x(range.from), view.x(range.to)];
  pen.globalAlpha = 0.14;
  pen.fillStyle = colors.link;
  pen.fillRect(left, AXIS, right - left, height);
  pen.globalAlpha = 1;
  pen.fillRect(left - 0.5, AXIS, 1, height);
  pen.fillRect(right - 0.5, AXIS, 1, height);
}

/** The frame of the selected row, and arrows from its call, or to what it launched or caused.
 * @param {CanvasRenderingContext2D} pen
 * @param {Scene} scene
 */
function drawSelected(pen, scene) {
  const { selected, colors } = scene;
  if (!selected) return;
  frame(pen, scene, selected);
  for (const [from, to] of linksOf(scene.model, selected)) {
    pen.strokeStyle = pen.fillStyle = to.track.content === "gaps" ? colors.high : colors.ink;
    arrow(pen, scene, from, to);
  }
}

/**
 * The pairs of call and row that a selected row is part of.
 * @param {import("./model.js").Model} model
 * @param {{track: Track, row: number}} selected
 * @returns {[{track: Track, row: number}, {track: Track, row: number}][]}
 */
export function linksOf(model, selected) {
  const { track, row } = selected;
  if (track.link) {
    const number = track.link[row];
    const call = model.tracks.findLast((each) => each.offset <= number);
    return number < 0 || !call ? [] : [[{ track: call, row: number - call.offset }, selected]];
  }
  if (track.content !== "calls") return [];
  const wanted = track.offset + row;
  const pairs = /** @type {[{track: Track, row: number}, {track: Track, row: number}][]} */ ([]);
  for (const other of model.tracks) {
    if (!other.link) continue;
    let at = other.link.indexOf(wanted);
    for (; at >= 0 && pairs.length < MOST_ARROWS; at = other.link.indexOf(wanted, at + 1)) {
      pairs.push([selected, { track: other, row: at }]);
    }
  }
  return pairs;
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Scene} scene
 * @param {{track: Track, row: number}} place
 */
function frame(pen, scene, { track, row }) {
  const line = lineOf(scene.lines, track);
  if (!line) return;
  const { view, colors } = scene;
  const left = Math.max(view.x(track.start[row]), view.left - 4);
  const right = Math.min(view.x(track.end[row]), view.right + 4);
  const y = AXIS + line.y - scene.top;
  pen.lineWidth = 2;
  pen.strokeStyle = colors.ink;
  pen.strokeRect(left - 1, y - 1, Math.max(right - left + 2, 3), line.height + 2);
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Scene} scene
 * @param {{track: Track, row: number}} from
 * @param {{track: Track, row: number}} to
 */
function arrow(pen, scene, from, to) {
  const [above, below] = [lineOf(scene.lines, from.track), lineOf(scene.lines, to.track)];
  if (!above || !below) return;
  const { view } = scene;
  const down = below.y > above.y;
  const x = view.x(from.track.start[from.row]);
  const targetX = view.x(to.track.start[to.row]);
  const y = AXIS + above.y - scene.top + (down ? above.height : 0);
  const targetY = AXIS + below.y - scene.top + (down ? 0 : below.height);
  const bend = (targetY - y) * 0.5;
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(x, y);
  pen.bezierCurveTo(x, y + bend, targetX, targetY - bend, targetX, targetY - (down ? 6 : -6));
  pen.stroke();
  pen.beginPath();
  pen.moveTo(targetX, targetY);
  pen.lineTo(targetX - 4, targetY - (down ? 8 : -8));
  pen.lineTo(targetX + 4, targetY - (down ? 8 : -8));
  pen.fill();
  pen.beginPath();
  pen.arc(x, y, 2.5, 0, 7);
  pen.fill();
  const late = to.track.start[to.row] - from.track.start[from.row];
  if (late > 0) noteAt(pen, scene, `${duration(late)} after the call`, targetX, targetY + (down ? -14 : 14));
}

/** A few words beside an arrow, on paper so that they can be read.
 * @param {CanvasRenderingContext2D} pen
 * @param {Scene} scene
 * @param {string} text
 * @param {number} x
 * @param {number} y
 */
function noteAt(pen, { view, colors }, text, x, y) {
  if (x < view.left || x > view.right) return;
  const width = pen.measureText(text).width;
  const left = x + width + 16 < view.right ? x + 9 : x - width - 13;
  pen.fillStyle = colors.paper;
  pen.globalAlpha = 0.9;
  pen.fillRect(left - 3, y - 7, width + 6, 14);
  pen.globalAlpha = 1;
  pen.fillStyle = colors.ink;
  pen.fillText(text, left, y);
}

/** Titles of the lanes: in the margin, or above each where the screen is narrow.
 * @param {CanvasRenderingContext2D} pen
 * @param {Scene} scene
 */
function drawTitles(pen, scene) {
  const { colors, view, narrow, height } = scene;
  if (!narrow) {
    pen.fillStyle = colors.paper;
    pen.fillRect(0, AXIS, view.left, height);
  }
  for (const band of scene.bands) {
    const y = AXIS + band.y - scene.top;
    if (y - HEADING > height || y + band.height < AXIS) continue;
    if (band.heads) drawHeading(pen, scene, band.group, y);
    const middle = y + (narrow ? 7 : Math.min(band.height / 2, 10));
    pen.fillStyle = colors.quiet;
    if (folds(band)) pen.fillText(band.folded ? "\u25b8" : "\u25be", 2, middle);
    pen.fillText(elided(pen, band.title, (narrow ? scene.width : view.left) - 20), 14, middle);
  }
  pen.fillStyle = colors.rule;
  if (!narrow) pen.fillRect(view.left - 1, AXIS, 1, height);
}

/** Whether a lane can be folded. @param {import("./layout.js").Band} band */
export const folds = (band) => band.lane !== null && !/steps|phases|idle/.test(band.lane.kind);

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Scene} scene
 * @param {string} text
 * @param {number} y where the lanes of the group begin
 */
function drawHeading(pen, { colors, width, view }, text, y) {
  pen.fillStyle = colors.rule;
  pen.fillRect(0, y - HEADING - 2, width, 1);
  pen.fillStyle = colors.ink;
  pen.font = `600 ${FONT}`;
  pen.fillText(text.slice(0, 120), view.left ? 2 : 0, y - HEADING / 2);
  pen.font = FONT;
}

/** @param {import("./view.js").View} view */
function ticksOf(view) {
  const wanted = (view.span / (view.right - view.left)) * 110;
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = power * ([1, 2, 5, 10].find((each) => each * power >= wanted) ?? 10);
  const times = [];
  for (let time = Math.ceil(view.from / step) * step; time <= view.to; time += step) times.push(time);
  return { step, times };
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Scene} scene
 * @param {{step: number, times: number[]}} ticks
 */
function drawGrid(pen, { view, colors, height }, ticks) {
  pen.fillStyle = colors.rule;
  pen.globalAlpha = 0.6;
  for (const time of ticks.times) {
    const x = Math.round(view.x(time));
    if (x >= view.left) pen.fillRect(x, AXIS, 1, height);
  }
  pen.globalAlpha = 1;
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Scene} scene
 * @param {{step: number, times: number[]}} ticks
 */
function drawAxis(pen, { view, colors, width }, ticks) {
  pen.fillStyle = colors.raised;
  pen.fillRect(0, 0, width, AXIS);
  pen.fillStyle = colors.quiet;
  if (view.left > 60) pen.fillText(`${duration(view.span)} shown`, 14, AXIS / 2);
  for (const time of ticks.times) {
    const x = view.x(time);
    if (x < view.left) continue;
    pen.fillRect(Math.round(x), AXIS - 5, 1, 5);
    pen.fillText(moment(time, ticks.step, Math.max(view.to, 1)), x + 4, AXIS / 2);
  }
}
