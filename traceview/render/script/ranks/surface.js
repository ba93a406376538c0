/** Parts of both drawings of a job: a canvas in CSS pixels, colours, and a tip at the pointer. */

import { element } from "../elements.js";
import { duration } from "../timeline/format.js";

export const FONT = "11px system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', sans-serif";

/** What parts of a step are called on the page. @param {string} part */
export function words(part) {
  const known = { compute: "compute", communication: "communication", wait: "waiting for others", copies: "copies" };
  return /** @type {Record<string, string>} */ (known)[part] ?? `idle: ${part}`;
}

/** The CSS variable with the colour of a part. @param {string} part */
export const variable = (part) => (part === "wait" ? "c-rank-wait" : part === "copies" ? "c-copy" : `c-${part}`);

/** Values of CSS variables. @param {Element} element @returns {(name: string) => string} */
export function colorsOf(element) {
  const style = getComputedStyle(element);
  return (name) => style.getPropertyValue(`--${name}`).trim() || "#888888";
}

/** Red, green and blue of `#2f6db3`. @param {string} color */
export const channels = (color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16) || 0);

/**
 * A pen in CSS pixels on a canvas as wide as its place.
 * @param {HTMLCanvasElement} canvas
 * @param {number} height
 */
export function sized(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.max(canvas.parentElement?.clientWidth ?? 0, 120);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = FONT;
  pen.textBaseline = "middle";
  return { pen, width };
}

/** Draw again when the window or the colour scheme changes. @param {HTMLElement} place @param {() => void} draw */
export function whenResized(place, draw) {
  let last = 0;
  new ResizeObserver(() => {
    if (place.clientWidth !== last) draw();
    last = place.clientWidth;
  }).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

/**
 * Show a tip beside the pointer, within its place.
 * @param {HTMLElement} tip
 * @param {HTMLElement} around
 * @param {{x: number, y: number}} at
 * @param {string[]} lines the first one in ink
 */
export function showTip(tip, around, at, lines) {
  const [first, ...rest] = lines;
  tip.replaceChildren(first, ...rest.map((line) => element("span", {}, line)));
  tip.hidden = false;
  tip.style.left = `${Math.max(Math.min(at.x + 12, around.clientWidth - tip.offsetWidth), 0)}px`;
  tip.style.top = `${at.y + 16}px`;
}

/** @param {Element} canvas @param {MouseEvent} event */
export function placeOf(canvas, event) {
  const box = canvas.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

/** A small square of a colour. @param {string} color */
export function swatch(color) {
  const made = element("i");
  made.style.background = color;
  return made;
}

/**
 * A heading and times with their colours, as the details of what is selected.
 * @param {HTMLElement} details
 * @param {string} heading
 * @param {{name: string, ns: number, color: string}[]} times
 * @param {string[]} more sentences
 */
export function showDetails(details, heading, times, more = []) {
  const list = element("dl");
  for (const { name, ns, color } of times) {
    list.append(element("div", {}, element("dt", {}, swatch(color), name), element("dd", {}, duration(ns))));
  }
  details.replaceChildren(element("p", {}, heading), list, ...more.map((each) => element("p", {}, each)));
}
