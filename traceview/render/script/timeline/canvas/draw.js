/** Drawing the lanes: rows wide enough as boxes with a label, the others as their busy share. */

import { duration, moment } from "../format.js";
import { AXIS, HEADING, scrolled } from "../layout.js";
import { drawSelected } from "./arrows.js";
import { elided, paintCounter, paintTrack, writeLabels, writeMost } from "./rows.js";

/** @typedef {import("./raster.js").Raster} Raster */
/** @typedef {import("../model.js").Track} Track */

/**
 * @typedef {object} Scene
 * @property {import("../model.js").Model} model
 * @property {import("../view.js").View} view
 * @property {import("./colors.js").Colors} colors
 * @property {import("../layout.js").Band[]} bands
 * @property {import("../layout.js").Line[]} lines
 * @property {number} width
 * @property {number} height of the canvas
 * @property {number} top how far the lanes are scrolled
 * @property {number} pinned height of the lanes that are not
 * @property {import("../notes.js").Note[]} noted
 * @property {number} ratio device pixels per CSS pixel
 * @property {boolean} narrow
 * @property {{track: Track, row: number} | null} selected
 * @property {import("./arrows.js").Pair[]} links of the selected row
 * @property {{from: number, to: number} | null} range
 * @property {Uint8Array | null} hits by name; null without a search
 */

const FONT = "11px system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', sans-serif";

/** @param {CanvasRenderingContext2D} pen @param {Scene} scene @param {Raster} raster */
export function draw(pen, scene, raster) {
  const { view, ratio, top, height } = scene;
  const { pinned } = scene;
  const lines = scene.lines.filter(({ band, y, height: tall }) => band.pinned || (y - top < height && y + tall > top + pinned));
  // Those that scroll lie below the pinned ones.
  const layers = [lines.filter((line) => !line.band.pinned), lines.filter((line) => line.band.pinned)];
  const ticks = ticksOf(view, Number(scene.model.origin));
  const [left, above] = [Math.round(view.left * ratio), Math.round(AXIS * ratio)];
  raster.resize(Math.round(view.right * ratio) - left, Math.round(height * ratio) - above);
  const labels = layers.map((each, layer) => paint(raster, scene, each, ticks.times, layer ? pinned : height));
  pen.setTransform(1, 0, 0, 1, 0, 0);
  raster.show(pen, left, above);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = FONT;
  pen.textBaseline = "middle";
  for (const [layer, first] of [pinned, 0].entries()) {
    pen.save();
    pen.beginPath();
    pen.rect(view.left, AXIS + first, view.right - view.left, layer ? pinned : height);
    pen.clip();
    writeLabels(pen, scene, labels[layer]);
    for (const { counter, band, y } of layers[layer]) {
      if (counter) writeMost(pen, scene, counter, AXIS + y - scrolled(band, top));
    }
    pen.restore();
  }
  pen.save();
  pen.beginPath();
  pen.rect(view.left, AXIS, view.right - view.left, height - AXIS);
  pen.clip();
  drawRange(pen, scene);
  drawNotes(pen, scene);
  drawSelected(pen, scene);
  pen.restore();
  drawTitles(pen, scene);
  drawAxis(pen, scene, ticks);
}

/**
 * @param {Raster} raster
 * @param {Scene} scene
 * @param {import("../layout.js").Line[]} lines
 * @param {number[]} ticks
 * @param {number} height
 * @returns {import("./rows.js").Label[]} what is still to be written on them
 */
function paint(raster, scene, lines, ticks, height) {
  const { view, colors, ratio } = scene;
  const labels = /** @type {import("./rows.js").Label[]} */ ([]);
  const bottom = Math.round(height * ratio);
  raster.fill(0, 0, raster.width, bottom, colors.empty);
  for (const time of ticks) {
    const x = Math.round(((time - view.from) / view.nsPerPixel) * ratio);
    raster.fill(x, 0, x + 1, bottom, colors.grid);
  }
  for (const line of lines) {
    for (const track of line.tracks) paintTrack(raster, scene, track, line, labels);
    if (line.counter) paintCounter(raster, scene, line.counter, line);
  }
  return labels;
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

/** @param {CanvasRenderingContext2D} pen @param {Scene} scene */
function drawNotes(pen, { view, noted, colors, height }) {
  pen.fillStyle = colors.link;
  for (const { at } of noted) pen.fillRect(Math.round(view.x(at)) - 0.5, AXIS, 1, height);
}

/** Titles of the lanes: in the margin, or above each where the screen is narrow.
 * @param {CanvasRenderingContext2D} pen
 * @param {Scene} scene
 */
function drawTitles(pen, scene) {
  const { colors, view, narrow, height } = scene;
  pen.fillStyle = colors.paper;
  if (!narrow) pen.fillRect(0, AXIS, view.left, height);
  // The pinned ones, which are first, over the others.
  for (const band of [...scene.bands].reverse()) {
    const y = AXIS + band.y - scrolled(band, scene.top);
    if (y - HEADING > height || y + band.height < AXIS) continue;
    if (band.pinned) {
      pen.fillStyle = colors.paper;
      pen.fillRect(0, y - HEADING - 2, narrow ? 0 : view.left, band.height + HEADING + 4);
    }
    if (band.heads && (band.pinned || y > AXIS + scene.pinned)) drawHeading(pen, scene, band.group, y);
    const middle = y + (narrow ? 7 : Math.min(band.height / 2, 10));
    pen.fillStyle = colors.quiet;
    if (folds(band)) pen.fillText(band.folded ? "\u25b8" : "\u25be", 2, middle);
    pen.fillText(elided(pen, band.title, (narrow ? scene.width : view.left) - 20), 14, middle);
  }
  pen.fillStyle = colors.rule;
  if (!narrow) pen.fillRect(view.left - 1, AXIS, 1, height);
  if (scene.pinned) pen.fillRect(0, AXIS + scene.pinned - 3, scene.width, 2);
}

/** Whether a lane can be folded. @param {import("../layout.js").Band} band */
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

/**
 * Round moments on the clock of the recording, which is `origin` at time 0.
 * @param {import("../view.js").View} view
 * @param {number} origin
 */
function ticksOf(view, origin) {
  const wanted = (view.span / (view.right - view.left)) * 110;
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = power * ([1, 2, 5, 10].find((each) => each * power >= wanted) ?? 10);
  const times = [];
  const first = Math.ceil((view.from + origin) / step) * step - origin;
  for (let time = first; time <= view.to; time += step) times.push(time);
  return { step, times };
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Scene} scene
 * @param {{step: number, times: number[]}} ticks
 */
function drawAxis(pen, { model, view, colors, width, noted }, ticks) {
  const origin = Number(model.origin);
  pen.fillStyle = colors.raised;
  pen.fillRect(0, 0, width, AXIS);
  pen.fillStyle = colors.quiet;
  if (view.left > 60) pen.fillText(`${duration(view.span)} in view`, 14, AXIS / 2);
  for (const time of ticks.times) {
    const x = view.x(time);
    if (x < view.left) continue;
    pen.fillRect(Math.round(x), AXIS - 5, 1, 5);
    const text = moment(time + origin, ticks.step, Math.max(view.to + origin, 1));
    if (x + 4 + pen.measureText(text).width <= width) pen.fillText(text, x + 4, AXIS / 2);
  }
  for (const note of noted) {
    const x = view.x(note.at);
    if (x < view.left || x > width) continue;
    const text = elided(pen, note.text, 120);
    pen.fillStyle = colors.link;
    pen.fillRect(x - 1, 3, pen.measureText(text).width + 10, AXIS - 6);
    pen.fillStyle = colors.paper;
    pen.fillText(text, x + 4, AXIS / 2);
  }
}
