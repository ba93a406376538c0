/** Findings: each one leads to its row in a table and to its place in the timeline. */

import { all, button } from "./elements.js";

/** @typedef {import("./timeline/timeline.js").Timeline} Timeline */

/**
 * A table as the rest of the page uses it.
 * @typedef {{reveal: (row: HTMLTableRowElement) => void}} Tables
 */

/**
 * @param {Document} page
 * @param {Tables} tables
 * @param {Timeline | null} timeline null on a page without one
 */
export function mountFindings(page, tables, timeline) {
  for (const card of all(page, ".finding[data-start]")) {
    if (timeline) addTimelineButton(card, timeline);
  }
  for (const link of all(page, "a.to-row")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      lead(page, link.getAttribute("href")?.slice(1) || "", tables);
    });
  }
}

/**
 * Show a row: open what it is folded into, scroll to it and mark it.
 * @param {Document} page
 * @param {string} id
 * @param {Tables} tables
 */
export function lead(page, id, tables) {
  const row = page.getElementById(id);
  if (!(row instanceof HTMLTableRowElement)) return;
  tables.reveal(row);
  for (const marked of all(page, "tr.marked")) marked.classList.remove("marked");
  row.classList.add("marked");
  row.scrollIntoView({ block: "center" });
  row.focus({ preventScroll: true });
}

/**
 * @param {HTMLElement} card
 * @param {Timeline} timeline
 */
function addTimelineButton(card, timeline) {
  const { start, end } = card.dataset;
  const show = () => {
    timeline.show({ start_ns: start ?? "0", end_ns: end ?? "0" });
    document.getElementById("timeline")?.scrollIntoView({ block: "start" });
  };
  card.querySelector(".ways")?.append(button("Show in timeline", show));
}
