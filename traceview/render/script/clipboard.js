/** Copying: buttons beside commands, and whole names where the page shows them shortened. */

import { all, button } from "./elements.js";

const SAID_MS = 1200;

/**
 * Copy a text. A page from file:// has no clipboard API in some browsers: then by a selection.
 * @param {string} text
 */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "unseen";
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

/**
 * A button that copies a text and says so for a moment.
 * @param {string} label
 * @param {() => string} text
 * @returns {HTMLButtonElement}
 */
export function copyButton(label, text) {
  const made = button(label, async () => {
    await copy(text());
    made.textContent = "Copied";
    setTimeout(() => (made.textContent = label), SAID_MS);
  });
  made.setAttribute("aria-live", "polite");
  return made;
}

/** @param {Document} page */
export function mountClipboard(page) {
  for (const command of all(page, "[data-copy]")) {
    command.after(" ", copyButton("Copy", () => command.dataset.copy || command.textContent || ""));
  }
  page.addEventListener("copy", wholeName);
}

/**
 * A selection inside one shortened name copies the whole name.
 * @param {ClipboardEvent} event
 */
function wholeName(event) {
  const selection = document.getSelection();
  const node = selection?.anchorNode;
  const name = (node instanceof Element ? node : node?.parentElement)?.closest(".elided");
  if (!name || !selection || selection.isCollapsed) return;
  if (selection.toString().trim() !== (name.textContent || "").trim()) return;
  event.clipboardData?.setData("text/plain", name.getAttribute("title") || "");
  event.preventDefault();
}
