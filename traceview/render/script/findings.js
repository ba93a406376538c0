/** Findings: each one leads to its row in a table and to its place in the timeline. */

import { copyButton } from "./clipboard.js";
import { all, button, element, named } from "./elements.js";

/**
 * A table as the rest of the page uses it.
 * @typedef {{reveal: (row: HTMLTableRowElement) => void}} Tables
 */

/**
 * @param {Document} page
 * @param {Tables} tables
 * @param {HTMLElement | null} timeline null on a page without one
 */
export function mountFindings(page, tables, timeline) {
  for (const card of all(page, ".finding[id]")) addWays(card, timeline);
  for (const link of all(page, "a.to-row")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const id = link.getAttribute("href")?.slice(1) ?? "";
      if (lead(page, id, tables)) history.replaceState(null, "", `#${id}`);
    });
  }
  const open = () => openAt(page, decodeURIComponent(location.hash.slice(1)), tables);
  addEventListener("hashchange", open);
  open();
}

/**
 * An address that names a finding opens it, one that names a row shows it.
 * @param {Document} page
 * @param {string} id
 * @param {Tables} tables
 */
function openAt(page, id, tables) {
  const place = id && !id.includes("=") ? page.getElementById(id) : null;
  if (place instanceof HTMLTableRowElement) lead(page, id, tables);
  const evidence = place?.matches(".finding") && place.querySelector("details");
  if (evidence) evidence.open = true;
}

/**
 * Show a row: open what it is folded into, scroll to it and mark it.
 * @param {Document} page
 * @param {string} id
 * @param {Tables} tables
 * @returns {boolean} false where there is no such row
 */
function lead(page, id, tables) {
  const row = page.getElementById(id);
  if (!(row instanceof HTMLTableRowElement)) return false;
  tables.reveal(row);
  for (const marked of all(page, "tr.marked")) marked.classList.remove("marked");
  row.classList.add("marked");
  row.tabIndex = -1;
  row.focus({ preventScroll: true });
  row.scrollIntoView({ block: "center" });
  return true;
}

/**
 * @param {HTMLElement} card
 * @param {HTMLElement | null} timeline
 */
function addWays(card, timeline) {
  const evidence = card.querySelector(".evidence");
  const ways = element("div", { class: "deeds" });
  if (timeline && card.dataset.end) {
    ways.append(named(button("Timeline", () => {
      timeline.dispatchEvent(new CustomEvent("show", { detail: card.dataset }));
      document.getElementById("timeline")?.scrollIntoView({ block: "start" });
    }), "Show in the timeline"));
  }
  evidence?.before(ways);
  if (evidence) ways.append(evidence);
  const action = card.querySelector(".full");
  if (!action) return;
  const copy = named(copyButton("Copy", () => words(action)), "Copy what to do");
  copy.classList.add("longer");
  action.after(" ", copy);
}

/** The text of an element, whole, without that of its buttons. @param {Element} element */
function words(element) {
  const whole = /** @type {Element} */ (element.cloneNode(true));
  for (const each of all(whole, "button, .brief")) each.remove();
  return (whole.textContent ?? "").replace(/\s+/g, " ").trim();
}
