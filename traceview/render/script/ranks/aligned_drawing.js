/** Drawing the ranks of the aligned timeline: two bars each, and the times of the axis. */

import { duration } from "../timeline/format.js";
import { FONT, variable } from "./surface.js";

const [ABOVE, BELOW, GAP, TITLE, AXIS] = [15, 9, 9, 14, 20];

/**
 * @typedef {object} Scene
 * @property {import("./aligned_model.js").Rank[]} ranks
 * @property {import("../timeline/view.js").View} view
 * @property {(name: string) => string} color
 * @property {string[]} causes
 * @property {number} width
 * @property {boolean} narrow titles stand above the bars
 * @property {import("./aligned_model.js").Chosen | null} selected
 */

/** @param {boolean} narrow */
const rowHeight = (narrow) => ABOVE + BELOW + GAP + (narrow ? TITLE : 0);

/** @param {number} ranks @param {boolean} narrow */
export const rowsHeight = (ranks, narrow) => AXIS + ranks * rowHeight(narrow) + 4;

/** The rank at a height, and whether it is the bar of its collectives. @param {number} y @param {boolean} narrow */
export function rowAt(y, narrow) {
  const rank = Math.floor((y - AXIS) / rowHeight(narrow));
  return { rank, lower: y - topOf(rank, narrow) >= ABOVE };
}

/** Room for all titles. @param {CanvasRenderingContext2D} pen @param {import("./aligned_model.js").Rank[]} ranks */
export function titlesWidth(pen, ranks) {
  pen.font = `600 ${FONT}`;
  const widest = Math.max(...ranks.map(({ rank, why }) => pen.measureText(`rank ${rank}  ${why}`).width));
  pen.font = FONT;
  return Math.ceil(widest) + 12;
}

/** Where the bars of a rank begin. @param {number} rank @param {boolean} narrow */
const topOf = (rank, narrow) => AXIS + rank * rowHeight(narrow) + (narrow ? TITLE : 0);

/** @param {CanvasRenderingContext2D} pen @param {Scene} scene */
export function drawRanks(pen, scene) {
  const { view, width, ranks } = scene;
  pen.clearRect(0, 0, width, rowsHeight(ranks.length, scene.narrow));
  drawAxis(pen, scene);
  pen.save();
  pen.beginPath();
  pen.rect(view.left, 0, view.right - view.left, rowsHeight(ranks.length, scene.narrow));
  pen.clip();
  for (const rank of ranks.keys()) drawRank(pen, scene, rank);
  drawSelected(pen, scene);
  pen.restore();
  for (const rank of ranks.keys()) drawTitle(pen, scene, rank);
}

/** @param {CanvasRenderingContext2D} pen @param {Scene} scene @param {number} at */
function drawRank(pen, scene, at) {
  const { view, color, causes } = scene;
  const rank = scene.ranks[at];
  const top = topOf(at, scene.narrow);
  const [compute, moves, wait] = ["compute", "communication", "wait"].map((part) => color(variable(part)));
  const bar = (/** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ y, /** @type {number} */ height, /** @type {string} */ fill) => {
    const [left, right] = [view.x(from), view.x(to)];
    if (right < view.left || left > view.right || to <= from) return;
    pen.fillStyle = fill;
    pen.fillRect(left, y, Math.max(right - left, 0.5), height);
  };
  pen.fillStyle = color("raised");
  pen.fillRect(view.left, top, view.right - view.left, ABOVE + BELOW);
  for (const { start, duration: length, work, idle } of rank.between) {
    const scale = length / Math.max(work + idle.reduce((sum, [, ns]) => sum + ns, 0), length, 1);
    let from = start;
    for (const [fill, ns] of [...idle.map(([cause, ns]) => [color(variable(causes[cause])), ns]), [compute, work]]) {
      bar(from, from + Number(ns) * scale, top, ABOVE, String(fill));
      from += Number(ns) * scale;
    }
  }
  for (const call of rank.calls) {
    const waited = Math.min(Math.max(call.wait, 0), call.duration);
    bar(call.start, call.start + call.hidden, top, ABOVE, compute);
    bar(call.start, call.start + waited, top + ABOVE, BELOW, wait);
    bar(call.start + waited, call.start + call.duration, top + ABOVE, BELOW, moves);
  }
  pen.fillStyle = color("ink");
  for (const time of rank.steps) pen.fillRect(Math.round(view.x(time)), top - 3, 1, ABOVE + BELOW + 6);
}

/** The selected block, and the same collective on the other ranks. @param {CanvasRenderingContext2D} pen @param {Scene} scene */
function drawSelected(pen, { ranks, view, color, narrow, selected }) {
  if (!selected) return;
  pen.strokeStyle = color("ink");
  pen.lineWidth = 1.5;
  const outline = (/** @type {number} */ at, /** @type {{start: number, duration: number}} */ block, /** @type {boolean} */ lower) => {
    const [left, right] = [view.x(block.start), view.x(block.start + block.duration)];
    pen.strokeRect(left, topOf(at, narrow) + (lower ? ABOVE : 0), Math.max(right - left, 2), lower ? BELOW : ABOVE);
  };
  if (selected.between) outline(selected.rank, selected.between, false);
  if (!selected.call) return;
  outline(selected.rank, selected.call, true);
  const event = selected.call.event;
  if (event < 0) return;
  pen.strokeStyle = color("link");
  pen.beginPath();
  for (const [at, { calls }] of ranks.entries()) {
    const call = calls.find((each) => each.event === event);
    if (!call) continue;
    pen.lineTo(view.x(call.start), topOf(at, narrow) + ABOVE + BELOW / 2);
    if (call !== selected.call) outline(at, call, true);
  }
  pen.stroke();
}

/** @param {CanvasRenderingContext2D} pen @param {Scene} scene @param {number} at */
function drawTitle(pen, { ranks, color, narrow }, at) {
  const { rank, why } = ranks[at];
  const y = narrow ? topOf(at, narrow) - TITLE / 2 : topOf(at, narrow) + (ABOVE + BELOW) / 2;
  pen.font = why ? `600 ${FONT}` : FONT;
  pen.fillStyle = color("ink");
  pen.fillText(`rank ${rank}`, 0, y);
  const across = pen.measureText(`rank ${rank} `).width;
  pen.font = FONT;
  pen.fillStyle = color(why === "late" ? "high" : "quiet");
  pen.fillText(why, across + 3, y);
}

/** Times from the start of the step. @param {CanvasRenderingContext2D} pen @param {Scene} scene */
function drawAxis(pen, { view, color, width, ranks, narrow }) {
  const wanted = (view.span / Math.max(view.right - view.left, 1)) * 100;
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = power * ([1, 2, 5, 10].find((each) => each * power >= wanted) ?? 10);
  pen.textAlign = "left";
  for (let time = Math.ceil(view.from / step) * step; time <= view.to; time += step) {
    const x = view.x(time);
    pen.fillStyle = color("rule");
    pen.fillRect(Math.round(x), AXIS - 6, 1, rowsHeight(ranks.length, narrow) - AXIS + 6);
    const label = time ? `${time < 0 ? "\u2212" : ""}${duration(Math.abs(time))}` : "0";
    pen.fillStyle = color("quiet");
    if (x + pen.measureText(label).width < width) pen.fillText(label, x + 3, AXIS / 2 - 2);
  }
}
