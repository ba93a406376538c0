/** Two timelines one above the other: aligned at a step of each, and moved together. */

import { mountTimeline } from "./timeline.js";

/** @typedef {import("./timeline.js").Lanes} Lanes */

const HEIGHT = 40;
const BEFORE_STEP = 0.06;
const AFTER_STEP = 1.12;

/** The timelines of a comparison, if the page has them. @param {Document} page */
export function mountPair(page) {
  const places = /** @type {HTMLElement[]} */ ([...page.querySelectorAll(".timeline[data-anchor]")]);
  const mounted = places.map((place) => {
    const { anchor, length, name } = /** @type {{anchor: string, length: string, name: string}} */ (place.dataset);
    const data = JSON.parse(place.nextElementSibling?.textContent ?? "");
    const { ready } = mountTimeline(place, data, { name, height: HEIGHT, addressed: false });
    return ready.then((lanes) => ({ lanes, anchor: Number(BigInt(anchor) - lanes.model.origin), length: Number(length) }));
  });
  if (mounted.length === 2) Promise.all(mounted).then(join, () => {});
}

/**
 * Keep the windows equal, counted from the anchor of each.
 * @param {{lanes: Lanes, anchor: number, length: number}[]} sides
 */
function join(sides) {
  const first = Math.min(...sides.map(({ anchor }) => -anchor));
  const last = Math.max(...sides.map(({ lanes, anchor }) => lanes.model.end - anchor));
  for (const { lanes, anchor } of sides) {
    lanes.view.first = first + anchor;
    lanes.view.last = last + anchor;
  }
  const [one, other] = sides;
  leads(one, other);
  leads(other, one);
  const length = Math.max(one.length, other.length);
  one.lanes.showWindow(one.anchor - length * BEFORE_STEP, one.anchor + length * AFTER_STEP);
}

/**
 * @param {{lanes: Lanes, anchor: number}} one
 * @param {{lanes: Lanes, anchor: number}} other
 */
function leads(one, other) {
  one.lanes.onMove = () => {
    const { from, to } = one.lanes.view;
    other.lanes.follow(from - one.anchor + other.anchor, to - one.anchor + other.anchor);
  };
}
