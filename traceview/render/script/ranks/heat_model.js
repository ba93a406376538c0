/** The cells of the heat map, and the ways to colour them. */

import { inflated, numbers } from "../timeline/packing.js";
import { variable, words } from "./surface.js";

/**
 * @typedef {object} HeatData the document of traceview/render/ranks/html.py
 * @property {number[]} ranks
 * @property {number[]} late
 * @property {string[]} hosts
 * @property {number[]} host
 * @property {string[]} steps
 * @property {string} loop what the steps are called, empty for steps
 * @property {number} mean_of
 * @property {boolean[]} warm_up
 * @property {string[]} parts
 * @property {object | null} cpu
 */

/** @typedef {{rows: number, planes: number, data: string}} Packed */

/**
 * Times by cell: rank by rank, step by step.
 * @typedef {object} Heat
 * @property {HeatData} data
 * @property {number} columns
 * @property {Float64Array} duration 0 where a rank lacks the step
 * @property {Float64Array} lateness
 * @property {Float64Array} cpu what the CPU needs for the step, 0 where that is not known
 * @property {Float64Array[]} times by part
 */

/** @param {any} data @returns {Promise<Heat>} */
export async function heatOf(data) {
  const [duration, lateness, ...times] = await Promise.all([data.duration, data.lateness, ...data.times].map(decoded));
  const cpu = data.cpu ? await decoded(data.cpu) : new Float64Array(duration.length);
  return { data, columns: data.steps.length, duration, lateness, cpu, times };
}

/** Times of three digits: 5574 is 574 × 10^5 ns. @param {Packed} packed */
async function decoded(packed) {
  const codes = numbers(packed, await inflated(packed.data));
  return Float64Array.from(codes, (/** @type {number} */ code) => (code % 1000) * 10 ** Math.floor(code / 1000));
}

/**
 * A way to colour the cells.
 * @typedef {object} Coloring
 * @property {string} title
 * @property {(cell: number) => {name: string, strength: number}} color a CSS variable, and 0 to 1
 * @property {(cell: number) => number} weight the cell of several ranks with the most is shown
 * @property {{name: string, text: string}[]} meanings of the colours
 * @property {[number, number] | null} range of the times from pale to full; null for shares
 */

/** @param {Heat} heat @returns {Coloring[]} */
export function colorings(heat) {
  const steady = [...heat.duration.keys()].filter((cell) => heat.duration[cell] && !heat.data.warm_up[cell % heat.columns]);
  const cells = steady.length ? steady : [...heat.duration.keys()];
  const parts = heat.data.parts.map((part, at) => quantity(words(part), variable(part), heat.times[at], cells, part === "compute"));
  const waits = whoWaits(heat, cells);
  return [
    ...(waits ? [waits] : []),
    largestLoss(heat, cells),
    quantity("time of the step", "c-gemm", heat.duration, cells, true),
    ...parts,
    ...(heat.data.cpu ? [quantity("what the CPU needs for the step", "c-cpu", heat.cpu, cells, true)] : []),
  ];
}

/** @param {Heat} heat @param {number[]} cells @returns {Coloring | null} */
function whoWaits(heat, cells) {
  const wait = heat.times[heat.data.parts.indexOf("wait")];
  const most = cells.reduce((so, cell) => Math.max(so, wait[cell], heat.lateness[cell]), 0);
  if (!most) return null;
  const isLate = (/** @type {number} */ cell) => heat.lateness[cell] > wait[cell] / 2;
  return {
    title: "who waits for whom",
    color: (cell) => {
      const [name, ns] = isLate(cell) ? ["c-rank-late", heat.lateness[cell]] : ["c-rank-wait", wait[cell]];
      return { name, strength: Math.min(ns / most, 1) };
    },
    weight: (cell) => (isLate(cell) ? 2 * heat.lateness[cell] : wait[cell]),
    meanings: [
      { name: "c-rank-late", text: "late: others wait for it" },
      { name: "c-rank-wait", text: "waits for others" },
    ],
    range: [0, most],
  };
}

/** @param {Heat} heat @param {number[]} cells @returns {Coloring} */
function largestLoss(heat, cells) {
  const lost = heat.data.parts.map((_, at) => at).filter((at) => heat.data.parts[at] !== "compute");
  const largest = (/** @type {number} */ cell) =>
    lost.reduce((best, at) => (heat.times[at][cell] > heat.times[best][cell] ? at : best), lost[0]);
  const share = (/** @type {number} */ cell) => heat.times[largest(cell)][cell] / (heat.duration[cell] || 1);
  const most = Math.max(quantile(cells.map(share), 0.98), 0.01);
  const shown = new Set(cells.map(largest));
  return {
    title: "largest part besides compute",
    color: (cell) => ({ name: variable(heat.data.parts[largest(cell)]), strength: Math.min(share(cell) / most, 1) }),
    weight: share,
    meanings: lost.filter((at) => shown.has(at)).map((at) => ({ name: variable(heat.data.parts[at]), text: words(heat.data.parts[at]) })),
    range: null,
  };
}

/**
 * @param {string} title
 * @param {string} name of the colour
 * @param {Float64Array} times
 * @param {number[]} cells
 * @param {boolean} differences whether the scale begins at the least time instead of at 0
 * @returns {Coloring}
 */
function quantity(title, name, times, cells, differences) {
  const values = cells.map((cell) => times[cell]);
  const [low, high] = [differences ? quantile(values, 0.02) : 0, quantile(values, 0.98)];
  return {
    title,
    color: (cell) => ({ name, strength: Math.min(Math.max((times[cell] - low) / (high - low || 1), 0), 1) }),
    weight: (cell) => times[cell],
    meanings: [{ name, text: title }],
    range: [low, high],
  };
}

/** @param {number[]} values @param {number} fraction */
function quantile(values, fraction) {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.min(Math.floor(fraction * sorted.length), sorted.length - 1)] ?? 0;
}
