/** The elements around the lanes: tools, minimap, canvas, panels, and the help. */

import { button, element, named } from "../elements.js";

const KEYS = [
  ["drag", "move in time"],
  ["Ctrl + wheel, pinch", "zoom"],
  ["w s, + \u2212", "zoom in and out"],
  ["a d", "move left and right"],
  ["0", "the whole recording"],
  ["Shift + drag, drag on the ruler", "sum up a range"],
  ["click, arrow keys", "select a row, and its neighbours"],
  ["double click, Enter, f", "zoom to what is selected"],
  ["g", "go to the launch call, or to what a call launched"],
  ["n p", "the next and the previous hit, or place like the one that a finding shows"],
  ["/", "search; Enter and Shift + Enter go through the hits"],
  ["m", "a note at the selected time"],
  ["drag a title, [ ]", "move a lane up or down"],
  ["t, h", "pin a lane to the top, make it taller: the lane below the pointer, or of the selected row"],
  ["Esc", "nothing selected"],
];
const GUIDE = [
  "Time runs to the right; each lane is a CPU thread or a GPU stream, and where rows are too short to draw, the height shows the share of time that was busy.",
  "Click a kernel to see the arrow from its launch call: a long arrow means that the CPU ran ahead, which is healthy; an arrow straight down means that the GPU waited for the launch.",
  "The idle lane says why each GPU had nothing to do, and a red call is a wait after which the GPU ran dry.",
  "Drag to move, zoom with Ctrl and the wheel or with w and s, and drag on the ruler to sum up a range, with a flame graph and times by name.",
  "The address holds what is shown, so a copied link opens the same place.",
];

/**
 * @typedef {object} Frame
 * @property {HTMLCanvasElement} canvas
 * @property {HTMLElement} scroll around the canvas
 * @property {HTMLElement} spacer as high as all lanes
 * @property {HTMLCanvasElement} map
 * @property {HTMLElement} mapBox
 * @property {HTMLElement} mapWindow
 * @property {HTMLInputElement} search
 * @property {HTMLElement} hits
 * @property {HTMLElement} list of hits
 * @property {HTMLElement} notes
 * @property {HTMLElement} panel
 * @property {HTMLElement} sums
 * @property {HTMLElement} tip
 * @property {HTMLElement} said what screen readers announce
 * @property {HTMLElement} help
 */

/**
 * @typedef {object} Acts
 * @property {(factor: number) => void} zoom
 * @property {() => void} whole
 * @property {(step: 1 | -1) => void} hit
 * @property {() => void} note
 */

/**
 * Put the elements in place of what the page shows without scripts.
 * @param {HTMLElement} within
 * @param {Acts} acts
 * @param {string[]} notes
 * @param {string} name of the timeline, where the page has several
 * @returns {Frame}
 */
export function frameOf(within, acts, notes, name) {
  const guideId = `tl-guide${name && "-"}${name}`;
  const search = element("input", { type: "search", placeholder: "Search by name", "aria-label": "Search rows by name" });
  const hits = element("span", { class: "tl-hits", role: "status" });
  const help = helpOf();
  const tools = element(
    "div",
    { class: "tl-tools", role: "toolbar", "aria-label": "Timeline tools" },
    search,
    named(button("\u2039", () => acts.hit(-1)), "Previous hit"),
    named(button("\u203a", () => acts.hit(1)), "Next hit"),
    hits,
    element("span", { class: "tl-space" }),
    named(button("\u2212", () => acts.zoom(1.6)), "Zoom out"),
    named(button("+", () => acts.zoom(1 / 1.6)), "Zoom in"),
    button("Fit", acts.whole),
    ...(name ? [] : [button("Note", acts.note)]),
    named(button("?", () => toggle(help)), "Help and keys"),
  );
  const map = element("canvas", { "aria-hidden": "true" });
  const mapWindow = element("div", { class: "tl-window" });
  const mapBox = element("div", { class: "tl-map" }, map, mapWindow);
  const canvas = element("canvas", {
    tabindex: "0",
    role: "application",
    "aria-label": `Timeline of the recording${name && ", "}${name}. Arrow keys select rows; the sums below say in numbers what is in view.`,
    "aria-describedby": guideId,
  });
  const spacer = element("div", { class: "tl-spacer" });
  const scroll = element("div", { class: "tl-scroll" }, canvas, spacer);
  const tip = element("div", { class: "tl-tip", hidden: "" });
  const [panel, sums, list] = [element("div"), element("div"), element("div")];
  const said = element("div", { class: "tl-said", role: "status" });
  const noted = element("div", { class: "tl-notes" });
  const guide = element("ol", { id: guideId }, ...GUIDE.map((each) => element("li", {}, each)));
  within.replaceChildren(
    tools,
    help,
    noted,
    mapBox,
    scroll,
    ...notes.map((each) => element("p", { class: "note" }, each)),
    element("div", { class: "tl-beside" }, list, panel),
    // Under one of two timelines the sums would push the other one out of sight.
    name ? element("details", { class: "tl-more" }, element("summary", {}, `Sums of what is in view, ${name}`), sums) : sums,
    element("details", { class: "tl-guide" }, element("summary", {}, "How to read the timeline"), guide),
    said,
    tip,
  );
  return { canvas, scroll, spacer, map, mapBox, mapWindow, search, hits, list, notes: noted, panel, sums, tip, said, help };
}

/** @param {HTMLElement} help */
export function toggle(help) {
  help.hidden = !help.hidden;
}

function helpOf() {
  const list = element("dl");
  for (const [keys, meaning] of KEYS) list.append(element("dt", {}, keys), element("dd", {}, meaning));
  return element("div", { class: "tl-help", hidden: "" }, list);
}
