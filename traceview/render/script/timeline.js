/** The script of pages with a timeline. It runs before that of every page, and hears of places to show by events. */

import { mountPair } from "./timeline/pair.js";
import { mountTimeline } from "./timeline/timeline.js";

const lanes = document.getElementById("timeline-lanes");
const data = document.getElementById("timeline-data");
if (lanes && data) {
  const { ready } = mountTimeline(lanes, JSON.parse(data.textContent ?? ""));
  lanes.addEventListener("show", (event) => {
    const { start, end, alike, count } = /** @type {CustomEvent<Record<string, string>>} */ (event).detail;
    const listed = alike ? { text: alike, count: Number(count) } : undefined;
    ready.then((shown) => shown.showRecorded(BigInt(start), BigInt(end), listed));
  });
}
mountPair(document);
