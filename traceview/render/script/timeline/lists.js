/** Beside the lanes: the flame graph and the times by name of a window, and the hits of a search. */

import { button, element } from "../elements.js";
import { label, meaning } from "./canvas/colors.js";
import { byName, framesOf, MERGED } from "./flame.js";
import { count, duration, percent } from "./format.js";
import { openAt } from "./model.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./flame.js").Frame} Frame */
/** @typedef {import("./flame.js").Place} Place */
/** @typedef {{from: number, to: number}} Span */
/** What a reader chose; null where nothing was. @typedef {{open: boolean | null, onGpu: boolean}} Choice */
/** A text, an element, or a number with its text. @typedef {string | Node | [number | bigint, string]} Cell */

const MOST_NAMES = 200;
/** Least part of the flame graph to be drawn, and its greatest depth. */
const LEAST_SHARE = 0.003;
const DEEPEST = 24;
const ROW = 22;

/**
 * A table that sorts, filters and copies as all tables of the page do.
 * @param {string} columns such as `name calls+ total_ns`: `+` for one that adds up
 * @param {Cell[][]} rows
 * @param {(row: number) => void} act on a click on the first cell
 * @param {number[]} [numbers] of the rows
 */
function tableOf(columns, rows, act, numbers = []) {
  const heads = columns.split(" ").map((each, at) => {
    const name = each.replace("+", "");
    const text = !Array.isArray(rows[0]?.[at]);
    const head = element("th", { scope: "col", "data-name": name, class: text ? "text" : "" }, name.replace(/_.*/, ""));
    head.toggleAttribute("data-adds", each !== name);
    return head;
  });
  const body = rows.map((cells, row) =>
    element("tr", { "data-number": String(numbers[row]) }, ...cells.map((cell, at) => {
      if (Array.isArray(cell)) return element("td", { "data-v": String(cell[0]) }, cell[1]);
      return element("td", { class: "text" }, at ? cell : button(String(cell), () => act(row), "link"));
    })),
  );
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...body));
  const scroll = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Rows" }, table);
  const place = element("div", { class: "table" }, scroll);
  // The script of the page gives it its tools, once it is in the page.
  queueMicrotask(() => place.dispatchEvent(new Event("table", { bubbles: true })));
  return place;
}

/**
 * The flame graph and the times by name of a window, made when they are opened.
 * @param {Model} model
 * @param {Span} span
 * @param {boolean} chosen whether the window is a selection
 * @param {Choice} choice outlives this panel
 * @param {(frame: Frame) => void} pick
 */
export function namesPanel(model, span, chosen, choice, pick) {
  const content = element("div");
  const summary = element("summary", {}, "Flame graph and times by name");
  const panel = element("details", { class: "tl-names" }, summary, content);
  const show = () => {
    const root = framesOf(model, span.from, span.to, choice.onGpu);
    const sides = [true, false].map((onGpu) => {
      const side = button(onGpu ? "GPU work, by the code that launched it" : "CPU threads", () => {
        choice.onGpu = onGpu;
        show();
      });
      side.setAttribute("aria-pressed", String(onGpu === choice.onGpu));
      return side;
    });
    const inner = element("div");
    const draw = (/** @type {Frame[]} */ ...path) => inner.replaceChildren(flameGraph(path, draw), nameTable(path[path.length - 1], pick));
    content.replaceChildren(element("p", { class: "tl-ways" }, ...sides), inner);
    if (!root) inner.append("Too many rows. Zoom in, or select a shorter time.");
    else if (root.ns) draw(root);
    else inner.append("Nothing here.");
  };
  summary.addEventListener("click", () => void (choice.open = !panel.open));
  panel.addEventListener("toggle", () => panel.open && !content.firstChild && show());
  panel.open = choice.open ?? chosen;
  return panel;
}

/**
 * Frames from the outside down, as wide as their time. A click makes a frame the whole, one on those above goes back.
 * @param {Frame[]} path from the whole to the frame that is shown
 * @param {(...path: Frame[]) => void} go
 */
function flameGraph(path, go) {
  const graph = element("div", { class: "tl-flame" });
  const whole = path[path.length - 1].ns;
  let deepest = 0;
  /** @param {Frame[]} at @param {number} left @param {number} depth @param {number} share */
  const add = (at, left, depth, share) => {
    const frame = at[at.length - 1];
    const box = button(frame.text, () => go(...at), "");
    const facts = [duration(frame.ns), percent(frame.ns, path[0].ns), `${duration(frame.self)} itself`, `${count(frame.calls)} calls`];
    box.title = `${frame.text}: ${facts.slice(0, frame.calls ? 4 : 3).join(", ")}`;
    // The table says the same to those who go from button to button.
    if (depth >= path.length) box.tabIndex = -1;
    box.style.cssText = `left:${left * 100}%;width:${share * 100}%;top:${depth * ROW}px`;
    if (frame.kind && frame.kind !== MERGED) box.style.setProperty("--fill", `var(--c-${meaning(frame.kind)})`);
    graph.append(box);
    deepest = Math.max(deepest, depth);
    if (depth < path.length - 1 || depth > DEEPEST) return;
    for (const each of [...frame.below.values()].sort((a, b) => b.ns - a.ns)) {
      if (each.ns / whole < LEAST_SHARE) break;
      add([...at, each], left, depth + 1, each.ns / whole);
      left += each.ns / whole;
    }
  };
  path.forEach((_, depth) => add(path.slice(0, depth + 1), 0, depth, 1));
  graph.style.height = `${(deepest + 1) * ROW}px`;
  return graph;
}

/** @param {Frame} root @param {(frame: Frame) => void} pick */
function nameTable(root, pick) {
  const all = byName(root);
  const merged = all.find(({ kind }) => kind === MERGED);
  const frames = all.filter((each) => each !== merged).slice(0, MOST_NAMES);
  const rows = frames.map(({ text, kind, calls, ns, self }) => /** @type {Cell[]} */ ([
    text,
    label(kind),
    [calls, count(calls)],
    [ns, duration(ns)],
    [self, duration(self)],
    [(100 * ns) / root.ns, percent(ns, root.ns)],
  ]));
  const table = tableOf("name kind calls total_ns self_ns+ share_pct", rows, (row) => pick(frames[row]));
  if (merged) table.prepend(element("p", {}, `Without ${count(merged.calls)} merged rows (${duration(merged.ns)}).`));
  return table;
}

/** Mark the selected hit in the list, and bring it into view there. @param {HTMLElement} list @param {number} number */
export function markHit(list, number) {
  for (const row of list.querySelectorAll(".marked")) row.classList.remove("marked");
  const row = /** @type {HTMLElement | null} */ (list.querySelector(`[data-number="${number}"]`));
  const scroll = row?.closest(".scroll");
  row?.classList.add("marked");
  if (row && scroll) scroll.scrollTop = row.offsetTop - scroll.clientHeight / 2;
}

/**
 * The hits of a search, each with its step.
 * @param {Model} model
 * @param {Place[]} places
 * @param {number} all how many hits there are
 * @param {(place: Place) => void} go
 */
export function hitList(model, places, all, go) {
  const texts = model.names.texts;
  const steps = model.tracks.filter((track) => track.content === "steps" && !track.count);
  const groups = new Set(places.map(({ track }) => track.lane.group));
  const rows = places.map(({ track, row }) => {
    const start = track.start[row];
    const step = steps.find((each) => openAt(each, start) >= 0);
    const time = (start + Number(model.origin)) / 1e9;
    return /** @type {Cell[]} */ ([
      texts[track.name[row]],
      [track.end[row] - start, duration(track.end[row] - start)],
      [model.origin + BigInt(start), `${time.toFixed(6)} s`],
      step ? texts[step.name[openAt(step, start)]] : "",
      [groups.size > 1 ? track.lane.group : "", track.lane.title].filter(Boolean).join(", "),
    ]);
  });
  const title = all > places.length ? `The ${count(places.length)} longest of ${count(all)} hits` : `All ${count(all)} hits`;
  const panel = element("details", { class: "tl-list" }, element("summary", {}, title));
  const numbers = places.map(({ track, row }) => track.offset + row);
  panel.append(tableOf("name duration_ns+ start_ns step lane", rows, (row) => go(places[row]), numbers));
  panel.open = all > 1;
  return panel;
}
