/** Rows of the lanes: boxes with a label where wide enough, else their busy share per pixel. */

import { AXIS, scrolled } from "../layout.js";
import { firstAfter } from "../model.js";
import { lowerBound } from "../search.js";
import { walk } from "../tree.js";
import { level } from "../format.js";
import { fitted } from "./names.js";

/** @typedef {import("../model.js").Track} Track */
/** @typedef {import("./draw.js").Scene} Scene */
/** @typedef {import("./raster.js").Raster} Raster */

/** A text on the canvas, in CSS pixels. @typedef {{track: Track, row: number, left: number, right: number, y: number}} Label */

const LEAST_LABEL = 26;
const LEAST_LABEL_HEIGHT = 12;

/**
 * Paint a track, and add the labels that fit to a list.
 * @param {Raster} raster
 * @param {Scene} scene
 * @param {Track} track
 * @param {import("../layout.js").Line} line
 * @param {Label[]} labels
 */
export function paintTrack(raster, scene, track, line, labels) {
  const { view, model, colors, hits, ratio } = scene;
  const classes = model.names.classes;
  const names = track.name;
  const { top, bottom } = edgesOf(scene, line);
  const tall = bottom - top;
  const from = view.from;
  const pixel = view.nsPerPixel / ratio;
  /** @param {number} name */
  const colorOf = (name) => (hits && !hits[name] ? colors.faint : colors.solid)[classes[name]];
  // One pixel wide: all that lies there, in the colour of the longest.
  let column = -1;
  let columnBusy = 0;
  let columnLongest = -1;
  let columnLength = -1;
  const paintColumn = () => {
    const filled = Math.max(Math.round(Math.min(columnBusy / pixel, 1) * tall), 1);
    raster.fill(column, bottom - filled, column + 1, bottom, colorOf(names[columnLongest]));
  };
  walk(track, firstAfter(track, from), view.to, pixel, (start, end, busy, longest) => {
    if (end - start <= pixel) {
      const x = Math.floor(((start + end) / 2 - from) / pixel);
      if (x !== column) {
        if (column >= 0) paintColumn();
        column = x;
        columnBusy = 0;
        columnLength = -1;
      }
      columnBusy += busy;
      if (busy > columnLength) {
        columnLength = busy;
        columnLongest = longest;
      }
      return;
    }
    const left = Math.round((start - from) / pixel);
    const right = Math.max(Math.round((end - from) / pixel), left + 1);
    const filled = Math.max(Math.round((busy / (end - start)) * tall), 1);
    // A hairline of paper keeps neighbours apart.
    const gap = right - left > 3 ? 1 : 0;
    raster.fill(left, bottom - filled, right - gap, bottom, colorOf(names[longest]));
    if (right - left < LEAST_LABEL * ratio || line.height < LEAST_LABEL_HEIGHT) return;
    const [first, last] = [Math.max(view.x(start), view.left - 2), Math.min(view.x(end), view.right + 2)];
    if (last - first >= LEAST_LABEL) labels.push({ track, row: longest, left: first, right: last, y: AXIS + line.y - scrolled(line.band, scene.top) + line.height / 2 });
  });
  if (column >= 0) paintColumn();
}

/** Upper and lower edge of a line, in pixels of the raster. @param {Scene} scene @param {import("../layout.js").Line} line */
function edgesOf({ top, ratio }, line) {
  const upper = Math.round((line.y - scrolled(line.band, top)) * ratio);
  return { top: upper, bottom: upper + Math.round(line.height * ratio) };
}

/**
 * @param {Raster} raster
 * @param {Scene} scene
 * @param {import("../model.js").Counter} counter
 * @param {import("../layout.js").Line} line
 */
export function paintCounter(raster, scene, counter, line) {
  const { view, colors, ratio } = scene;
  const { time, value, most } = counter;
  const { top, bottom } = edgesOf(scene, line);
  const scale = (bottom - top - 4 * ratio) / most;
  const pixel = view.nsPerPixel / ratio;
  let at = lowerBound(time, view.from) - 1;
  for (let x = 0; x < raster.width; x++) {
    const until = view.from + (x + 1) * pixel;
    let highest = at >= 0 ? value[at] : 0;
    while (at + 1 < time.length && time[at + 1] < until) {
      at++;
      if (value[at] > highest) highest = value[at];
    }
    if (highest) raster.fill(x, bottom - Math.max(Math.round(highest * scale), 1), x + 1, bottom, colors.level);
  }
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Scene} scene
 * @param {Label[]} labels
 */
export function writeLabels(pen, scene, labels) {
  const { model, colors, hits } = scene;
  for (const { track, row, left, right, y } of labels) {
    const name = track.name[row];
    const room = right - left - 8;
    const text = fitted(labelOf(scene, track, row), (part) => widthOf(pen, part) <= room);
    if (!text) continue;
    pen.globalAlpha = hits && !hits[name] ? 0.4 : 1;
    pen.fillStyle = colors.label[model.names.classes[name]];
    pen.fillText(text, left + 4, y + 0.5);
  }
  pen.globalAlpha = 1;
}

/** @param {Scene} scene @param {Track} track @param {number} row */
function labelOf({ model }, track, row) {
  const name = model.names.texts[track.name[row]];
  const count = track.count ? track.count[row] : 1;
  return count > 1 ? `${count} rows, longest ${name}` : name;
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Scene} scene
 * @param {import("../model.js").Counter} counter
 * @param {number} y
 */
export function writeMost(pen, { view, colors }, counter, y) {
  const text = `max ${level(counter.most, counter.unit)}`;
  const wide = pen.measureText(text).width;
  pen.fillStyle = colors.paper;
  pen.globalAlpha = 0.8;
  pen.fillRect(view.right - wide - 8, y, wide + 8, 14);
  pen.globalAlpha = 1;
  pen.fillStyle = colors.quiet;
  pen.fillText(text, view.right - wide - 4, y + 7);
}

const widths = /** @type {Map<string, number>} */ (new Map());

/** @param {CanvasRenderingContext2D} pen @param {string} text */
function widthOf(pen, text) {
  const known = widths.get(text);
  if (known !== undefined) return known;
  if (widths.size > 20000) widths.clear();
  const { width } = pen.measureText(text);
  widths.set(text, width);
  return width;
}

/** The text without its middle, where it is too long.
 * @param {CanvasRenderingContext2D} pen
 * @param {string} text
 * @param {number} room
 */
export function elided(pen, text, room) {
  const begun = text.slice(0, 400);
  const width = widthOf(pen, begun);
  if (width <= room) return begun;
  for (let letters = Math.floor((room / width) * begun.length); letters >= 5; letters--) {
    const kept = Math.floor(letters * 0.4);
    const short = `${text.slice(0, letters - kept)}\u2026${text.slice(text.length - kept)}`;
    if (widthOf(pen, short) <= room) return short;
  }
  return "";
}
