/** The aligned timeline: chosen ranks one above the other on one clock, around one step. */

import { button, element } from "../elements.js";
import { duration, size } from "../timeline/format.js";
import { listen } from "../timeline/input.js";
import { text } from "../timeline/packing.js";
import { View } from "../timeline/view.js";
import { blockAt, neighbour, ranksOf, sameEvent } from "./aligned_model.js";
import { drawRanks, rowAt, rowsHeight, titlesWidth } from "./aligned_drawing.js";
import { colorsOf, showDetails, showTip, sized, swatch, variable, whenResized, words } from "./surface.js";

/** @typedef {import("./aligned_model.js").Rank} Rank */
/** @typedef {import("./aligned_model.js").Chosen} Chosen */

const NARROW = 600;
const MARGIN = 0.04;
const LABEL = "Timeline of the ranks on one clock. Arrow keys select collectives, plus and minus zoom, 0 shows all.";
const READING = "Above, what each GPU did; below, its collectives. Between two collectives the bars show how much was compute and how much was idle, not when.";

/**
 * @typedef {object} Window a time to begin with, and how far one can move from it
 * @property {string} title
 * @property {number} from
 * @property {number} to
 * @property {number} first
 * @property {number} last
 */

/** @param {HTMLElement} within @param {any} data @returns {Promise<Aligned>} */
export async function mountAligned(within, data) {
  const aligned = new Aligned(within, data, ranksOf(JSON.parse(await text(data.ranks))));
  aligned.open(data.windows[0]);
  within.classList.add("ready");
  return aligned;
}

export class Aligned {
  /**
   * @param {HTMLElement} within
   * @param {{kinds: string[], causes: string[], groups: string[], clocks: string, windows: Window[], steps: number[][]}} data
   * @param {Rank[]} ranks
   */
  constructor(within, data, ranks) {
    this.within = within;
    this.data = data;
    this.ranks = ranks;
    this.view = new View(1);
    /** @type {Chosen | null} */
    this.selected = null;
    this.asked = data.windows[0];
    this.choice = element("select", { "aria-label": "What is shown" });
    this.other = element("option");
    this.canvas = element("canvas", { tabindex: "0", role: "application", "aria-label": LABEL });
    this.tip = element("div", { class: "rk-tip", hidden: "" });
    this.legend = element("div", { class: "rk-legend" });
    this.details = element("div", { class: "rk-details", role: "status" }, element("p", {}, "Select a collective to see it on all ranks."));
    this.arrange();
    this.listen();
    whenResized(within, () => this.draw());
  }

  arrange() {
    for (const { title } of this.data.windows) this.choice.append(element("option", {}, title));
    const tools = element(
      "div",
      { class: "rk-tools" },
      this.choice,
      named(button("\u2212", () => this.zoom(1.6)), "Zoom out"),
      named(button("+", () => this.zoom(1 / 1.6)), "Zoom in"),
      button("All that is here", () => this.whole()),
    );
    const note = element("p", { class: "note" }, `${this.data.clocks} ${READING}`);
    this.within.replaceChildren(tools, element("div", {}, this.canvas), this.legend, this.details, note, this.tip);
  }

  listen() {
    this.choice.addEventListener("change", () => this.open(this.data.windows[this.choice.selectedIndex] ?? this.asked));
    listen(this.canvas, {
      point: (x, y) => this.point(x, y),
      leave: () => (this.tip.hidden = true),
      click: (x, y) => this.select(blockAt(this.ranks, rowAt(y, this.narrow), this.view.time(x))),
      enter: (x, y) => this.enter(blockAt(this.ranks, rowAt(y, this.narrow), this.view.time(x))),
      pan: (pixels) => this.moved(() => this.view.pan(pixels * this.view.nsPerPixel)),
      zoom: (factor, x) => this.zoom(factor, this.view.time(x)),
      range: () => {},
      key: (key) => this.key(key),
      hold: (held, ms) => this.hold(held, ms),
      onRuler: () => false,
    });
  }

  /** @param {Window} window */
  open({ from, to, first, last }) {
    [this.view.end, this.view.first, this.view.last] = [last - first, first, last];
    const margin = MARGIN * (to - from);
    this.moved(() => this.view.show(from - margin, to + margin));
  }

  /**
   * The function that shows a step of the heat map, by its column; null if it is not shown here.
   * @param {number} column
   * @param {string} name
   */
  wayTo(column, name) {
    const step = this.data.steps.find(([of]) => of === column);
    if (!step) return null;
    const [, from, to] = step;
    const around = this.data.windows.find(({ first, last }) => first <= from && to <= last);
    return () => {
      this.asked = { first: from, last: to, ...around, title: name, from, to };
      this.other.textContent = name;
      this.choice.append(this.other);
      this.choice.selectedIndex = this.data.windows.length;
      this.open(this.asked);
      document.getElementById("aligned")?.scrollIntoView({ block: "start" });
    };
  }

  /** @param {() => void} move */
  moved(move) {
    move();
    this.draw();
  }

  whole() {
    this.moved(() => this.view.show(this.view.first, this.view.last));
  }

  /** @param {number} factor @param {number} [at] */
  zoom(factor, at) {
    this.moved(() => this.view.zoom(factor, at));
  }

  get narrow() {
    return this.within.clientWidth < NARROW;
  }

  draw() {
    const { ranks } = this;
    const { pen, width } = sized(this.canvas, rowsHeight(ranks.length, this.narrow));
    const color = colorsOf(this.within);
    this.view.left = this.narrow ? 0 : titlesWidth(pen, ranks);
    this.view.right = width;
    drawRanks(pen, { ranks, view: this.view, color, causes: this.data.causes, width, narrow: this.narrow, selected: this.selected });
    this.drawLegend(color);
  }

  /** @param {(name: string) => string} color */
  drawLegend(color) {
    const { from, to } = this.view;
    const shown = this.ranks.flatMap(({ between }) => between.filter(({ start, duration }) => start < to && start + duration > from));
    const causes = new Set(shown.flatMap(({ idle }) => idle.map(([cause]) => cause)));
    const parts = ["compute", "communication", "wait", ...[...causes].sort((a, b) => a - b).map((cause) => this.data.causes[cause])];
    const named = { communication: "collective", wait: "of it waiting for others" };
    const entries = parts.map((part) =>
      element("span", {}, swatch(color(variable(part))), /** @type {Record<string, string>} */ (named)[part] ?? words(part)),
    );
    this.legend.replaceChildren(...entries);
  }

  /** @param {number} x @param {number} y */
  point(x, y) {
    const chosen = x < this.view.left ? null : blockAt(this.ranks, rowAt(y, this.narrow), this.view.time(x));
    if (!chosen) {
      this.tip.hidden = true;
      return;
    }
    const times = this.timesOf(chosen).map(({ name, ns }) => `${name} ${duration(ns)}`);
    const top = this.canvas.offsetTop;
    showTip(this.tip, this.within, { x, y: y + top }, [this.titleOf(chosen), ...times, ...this.more(chosen)]);
  }

  /** @param {Chosen} chosen */
  titleOf({ rank, call, between }) {
    const of = this.ranks[rank].rank;
    if (!call) return `Rank ${of}: ${duration(between?.duration ?? 0)} between two collectives`;
    const group = this.data.groups[call.group];
    const bytes = call.bytes >= 0 ? ` of ${size(call.bytes)}` : "";
    return `Rank ${of}: ${this.data.kinds[call.kind]}${bytes}${group ? ` in ${group}` : ""}, ${duration(call.duration)}`;
  }

  /** @param {Chosen} chosen */
  timesOf({ call, between }) {
    const color = colorsOf(this.within);
    const part = (/** @type {string} */ name, /** @type {number} */ ns, label = words(name)) => ({ name: label, ns, color: color(variable(name)) });
    const wait = Math.max(call?.wait ?? 0, 0);
    const times = call
      ? [part("wait", wait), part("communication", call.duration - wait, "transfer"), part("compute", call.hidden, "under compute")]
      : [part("compute", between?.work ?? 0), ...(between?.idle ?? []).map(([cause, ns]) => part(this.data.causes[cause], ns))];
    return times.filter(({ ns }) => ns > 0);
  }

  /** @param {Chosen} chosen */
  more({ rank, call, between }) {
    const shown = this.ranks[rank];
    if (call) {
      if (call.wait < 0) return ["How long it waited is not known."];
      return call.last === shown.rank ? ["It arrived last."] : call.last >= 0 ? [`Rank ${call.last} arrived last.`] : [];
    }
    const place = between && between.place >= 0 ? shown.places[between.place] : "";
    return place ? [`Idle mostly in ${place}.`] : [];
  }

  /** @param {Chosen | null} chosen */
  select(chosen) {
    this.selected = chosen;
    this.draw();
    if (chosen) showDetails(this.details, this.titleOf(chosen), this.timesOf(chosen), this.more(chosen));
  }

  /** @param {Chosen | null} chosen */
  enter(chosen) {
    const block = chosen?.call ?? chosen?.between;
    if (block) this.moved(() => this.view.show(block.start - block.duration, block.start + 2 * block.duration));
  }

  /** Whether the key means something here. @param {string} key */
  key(key) {
    const { ranks } = this;
    if (key === "+" || key === "=") this.zoom(1 / 1.6);
    else if (key === "-") this.zoom(1.6);
    else if (key === "0") this.whole();
    else if (key === "Enter") this.enter(this.selected);
    else if (key === "Escape") this.select(null);
    else if (key === "ArrowLeft" || key === "ArrowRight") this.reach(neighbour(ranks, this.selected, key === "ArrowRight" ? 1 : -1));
    else if (key === "ArrowUp" || key === "ArrowDown") this.reach(sameEvent(ranks, this.selected, key === "ArrowDown" ? 1 : -1));
    else return false;
    return true;
  }

  /** Select a block and bring it into view. @param {Chosen | null} chosen */
  reach(chosen) {
    const block = chosen?.call;
    if (!block) return;
    const middle = block.start + block.duration / 2;
    if (middle < this.view.from || middle > this.view.to) this.view.pan(middle - (this.view.from + this.view.to) / 2);
    this.select(chosen);
  }

  /** @param {Set<string>} held @param {number} ms */
  hold(held, ms) {
    const by = (held.has("d") ? 1 : 0) - (held.has("a") ? 1 : 0);
    const zoom = (held.has("s") ? 1 : 0) - (held.has("w") ? 1 : 0);
    this.moved(() => {
      if (by) this.view.pan((by * this.view.span * ms) / 900);
      if (zoom) this.view.zoom(1.003 ** (zoom * ms));
    });
  }
}

/** @param {HTMLElement} made @param {string} name */
function named(made, name) {
  made.setAttribute("aria-label", name);
  made.title = name;
  return made;
}
