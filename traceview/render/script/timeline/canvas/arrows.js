/** What is drawn over the lanes for a selected row: its frame, and arrows from call to work. */

import { duration } from "../format.js";
import { AXIS, lineOf, scrolled } from "../layout.js";
import { located } from "../model.js";

/** @typedef {import("../model.js").Track} Track */
/** @typedef {import("./draw.js").Scene} Scene */
/** A call, and what it launched or caused. @typedef {[{track: Track, row: number}, {track: Track, row: number}]} Pair */

const MOST_ARROWS = 60;

/** The frame of the selected row, and arrows from its call, or to what it launched or caused.
 * @param {CanvasRenderingContext2D} pen
 * @param {Scene} scene
 */
export function drawSelected(pen, scene) {
  const { selected, links, colors } = scene;
  if (!selected) return;
  frame(pen, scene, selected);
  for (const [from, to] of links) {
    pen.strokeStyle = pen.fillStyle = to.track.content === "gaps" ? colors.high : colors.ink;
    arrow(pen, scene, from, to);
  }
}

/**
 * The pairs of call and row that a selected row is part of.
 * @param {import("../model.js").Model} model
 * @param {{track: Track, row: number}} selected
 * @returns {Pair[]}
 */
export function linksOf(model, selected) {
  const { track, row } = selected;
  if (track.link) {
    const call = located(model, track.link[row]);
    return call ? [[call, selected]] : [];
  }
  if (track.content !== "calls") return [];
  const wanted = track.offset + row;
  const pairs = /** @type {Pair[]} */ ([]);
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
  const y = AXIS + line.y - scrolled(line.band, scene.top);
  if (!line.band.pinned && y < AXIS + scene.pinned) return;
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
  const y = AXIS + above.y - scrolled(above.band, scene.top) + (down ? above.height : 0);
  const targetY = AXIS + below.y - scrolled(below.band, scene.top) + (down ? 0 : below.height);
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
