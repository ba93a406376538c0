/** The heat map of ranks and steps: pointer, keys and touch say what each cell is. */

import { button, element } from "../elements.js";
import { duration } from "../timeline/format.js";
import { colorings, heatOf } from "./heat_model.js";
import { channels, colorsOf, placeOf, showDetails, showTip, sized, swatch, variable, whenResized, words } from "./surface.js";

const AXIS = 20;
const MOST_ROWS = 120;
const [LEAST_HEIGHT, HIGHEST, MAP_HEIGHT] = [4, 22, 480];
const GAP_FROM = 5;
const HINT = "Select a cell to see where its time went. Arrow keys move on.";
const [PINNED_HEIGHT, AFTER_PINNED] = [16, 6];

/** @typedef {{row: number, column: number}} Place */

/**
 * One row of the map: the ranks from `first` to before `end`, by place. Where rows have several
 * ranks, those that are late have pinned rows of their own above them.
 * @typedef {{first: number, end: number, y: number, height: number}} Line
 */

/**
 * @param {HTMLElement} within
 * @param {any} data
 * @param {import("./aligned.js").Aligned | null} timeline
 */
export async function mountHeatMap(within, data, timeline) {
  new HeatMap(within, await heatOf(data), timeline).draw();
  within.classList.add("ready");
}

class HeatMap {
  /**
   * @param {HTMLElement} within
   * @param {import("./heat_model.js").Heat} heat
   * @param {import("./aligned.js").Aligned | null} timeline
   */
  constructor(within, heat, timeline) {
    this.heat = heat;
    this.timeline = timeline;
    this.within = within;
    this.colorings = colorings(heat);
    this.coloring = this.colorings[0];
    this.first = 0;
    this.count = heat.data.ranks.length;
    /** @type {Place | null} */
    this.selected = null;
    this.left = 0;
    this.across = 1;
    /** @type {{key: string, picture: HTMLCanvasElement} | null} */
    this.drawn = null;
    /** @type {Line[]} */
    this.lines = [];
    this.color = colorsOf(within);
    const { ranks, steps } = heat.data;
    const label = `Heat map of ${ranks.length} ranks and ${steps.length} columns of steps. Arrow keys select a cell, Enter shows the ranks of a row, Escape all ranks.`;
    this.choice = element("select", { "aria-label": "Colour of the cells" });
    this.all = button("All ranks", () => this.show(0, ranks.length));
    this.canvas = element("canvas", { tabindex: "0", role: "application", "aria-label": label });
    this.tip = element("div", { class: "rk-tip", hidden: "" });
    this.legend = element("div", { class: "rk-legend" });
    this.details = element("div", { class: "rk-details", role: "status" }, element("p", {}, HINT));
    this.arrange();
    this.listen();
    whenResized(within, () => this.draw());
  }

  arrange() {
    const { mean_of } = this.heat.data;
    for (const { title } of this.colorings) this.choice.append(element("option", {}, title));
    this.within.replaceChildren(
      element("div", { class: "rk-tools" }, element("span", {}, "Colour"), this.choice, this.all),
      element("div", {}, this.canvas),
      this.legend,
      this.details,
      this.tip,
      ...(mean_of > 1 ? [element("p", { class: "note" }, `Each column is the mean of ${mean_of} steps.`)] : []),
    );
  }

  listen() {
    this.choice.addEventListener("change", () => {
      this.coloring = this.colorings[this.choice.selectedIndex];
      this.draw();
    });
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    this.canvas.addEventListener("click", (event) => this.select(this.at(placeOf(this.canvas, event))));
    this.canvas.addEventListener("dblclick", (event) => this.open(this.at(placeOf(this.canvas, event))));
    this.canvas.addEventListener("keydown", (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.altKey && this.key(event.key)) event.preventDefault();
    });
  }

  /** @param {number} first @param {number} count */
  show(first, count) {
    [this.first, this.count, this.selected] = [first, count, null];
    this.details.replaceChildren(element("p", {}, HINT));
    this.draw();
  }

  /** Ranks share a row where rows would be too low. @returns {Line[]} */
  arrangedLines() {
    const { ranks, late } = this.heat.data;
    const group = Math.ceil(this.count / MOST_ROWS);
    const rows = Math.ceil(this.count / group);
    const height = Math.min(Math.max(Math.floor(MAP_HEIGHT / rows), LEAST_HEIGHT), HIGHEST);
    const pinned = group > 1 ? late.map((rank) => ranks.indexOf(rank)) : [];
    const lines = pinned.map((at, row) => ({ first: at, end: at + 1, y: row * PINNED_HEIGHT, height: PINNED_HEIGHT }));
    const top = pinned.length ? pinned.length * PINNED_HEIGHT + AFTER_PINNED : 0;
    const last = this.first + this.count;
    for (let row = 0; row < rows; row++) {
      const first = this.first + row * group;
      lines.push({ first, end: Math.min(first + group, last), y: top + row * height, height });
    }
    return lines;
  }

  /** The cell that a row shows: of several ranks the one with the most. @param {Place} place */
  cellAt({ row, column }) {
    const { first, end } = this.lines[row];
    let best = first * this.heat.columns + column;
    for (let rank = first + 1; rank < end; rank++) {
      const cell = rank * this.heat.columns + column;
      if (this.coloring.weight(cell) > this.coloring.weight(best)) best = cell;
    }
    return best;
  }

  draw() {
    const { ranks, steps } = this.heat.data;
    this.lines = this.arrangedLines();
    const bottom = this.lines[this.lines.length - 1];
    const { pen, width } = sized(this.canvas, bottom.y + bottom.height + AXIS);
    this.left = Math.ceil(pen.measureText(String(Math.max(...ranks))).width) + 12;
    this.across = (width - this.left) / steps.length;
    this.color = colorsOf(this.within);
    const picture = this.currentPicture();
    pen.imageSmoothingEnabled = false;
    for (const [row, { y, height }] of this.lines.entries()) {
      const gap = height >= GAP_FROM ? 1 : 0;
      pen.drawImage(picture, 0, row, steps.length, 1, this.left, y, width - this.left, height - gap);
    }
    this.drawGaps(pen, bottom.y + bottom.height);
    this.drawLabels(pen, width);
    this.drawSelected(pen);
    this.drawLegend();
    this.all.hidden = this.count === ranks.length;
  }

  /** Only the selected cell is drawn anew where the colours and rows are the same. */
  currentPicture() {
    const key = [this.coloring.title, this.first, this.count, this.color("paper")].join();
    if (this.drawn?.key !== key) this.drawn = { key, picture: this.picture() };
    return this.drawn.picture;
  }

  /** One pixel per cell. */
  picture() {
    const { columns } = this.heat;
    const canvas = element("canvas", { width: String(columns), height: String(this.lines.length) });
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    const image = pen.createImageData(columns, this.lines.length);
    const shades = this.shades();
    for (let at = 0; at < columns * this.lines.length; at++) {
      const cell = this.cellAt({ row: Math.floor(at / columns), column: at % columns });
      if (!this.heat.duration[cell]) continue;
      const { name, strength } = this.coloring.color(cell);
      const [from, to] = [shades.empty, shades.full(name)];
      for (let each = 0; each < 3; each++) image.data[4 * at + each] = from[each] + (to[each] - from[each]) * strength;
      image.data[4 * at + 3] = 255;
    }
    pen.putImageData(image, 0, 0);
    return canvas;
  }

  shades() {
    const { color } = this;
    const known = /** @type {Map<string, number[]>} */ (new Map());
    const full = (/** @type {string} */ name) => {
      if (!known.has(name)) known.set(name, channels(color(name)));
      return known.get(name) ?? [];
    };
    return { empty: channels(color("raised")), full };
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} height */
  drawGaps(pen, height) {
    if (this.across < GAP_FROM) return;
    pen.fillStyle = this.color("paper");
    for (let at = 1; at < this.heat.columns; at++) pen.fillRect(this.left + at * this.across - 0.5, 0, 1, height);
  }

  /** Numbers of ranks and steps, as many as there is room for. @param {CanvasRenderingContext2D} pen @param {number} width */
  drawLabels(pen, width) {
    const { ranks, late, steps } = this.heat.data;
    const [high, quiet] = [this.color("high"), this.color("quiet")];
    pen.textAlign = "right";
    let free = -Infinity;
    for (const { first, end, y, height } of this.lines) {
      const middle = Math.max(y + height / 2, 6);
      if (middle < free) continue;
      pen.fillStyle = end - first === 1 && late.includes(ranks[first]) ? high : quiet;
      pen.fillText(String(ranks[first]), this.left - 6, middle);
      free = middle + 13;
    }
    pen.fillStyle = quiet;
    pen.textAlign = "left";
    const bottom = this.lines[this.lines.length - 1];
    free = 0;
    for (const [at, name] of steps.entries()) {
      const x = this.left + at * this.across;
      const wide = pen.measureText(name).width;
      if (x < free || x + wide > width) continue;
      pen.fillText(name, x, bottom.y + bottom.height + AXIS / 2 + 2);
      free = x + wide + 14;
    }
  }

  /** @param {CanvasRenderingContext2D} pen */
  drawSelected(pen) {
    if (!this.selected) return;
    const { y, height } = this.lines[this.selected.row];
    pen.strokeStyle = this.color("ink");
    pen.lineWidth = 2;
    pen.strokeRect(this.left + this.selected.column * this.across, y, Math.max(this.across, 3), height);
  }

  drawLegend() {
    const { color } = this;
    const { meanings, range } = this.coloring;
    const entries = meanings.map(({ name, text }) => element("span", {}, swatch(color(name)), text));
    const ramp = element("i", { class: "ramp" });
    ramp.style.background = `linear-gradient(to right, ${color("raised")}, ${color(meanings[0]?.name ?? "rule")})`;
    const [from, to] = range ? [duration(range[0]), duration(range[1])] : ["small share of the step", "large"];
    this.legend.replaceChildren(...entries, element("span", {}, from, ramp, to));
  }

  /** @param {{x: number, y: number}} place @returns {Place | null} */
  at({ x, y }) {
    const column = Math.floor((x - this.left) / this.across);
    const row = this.lines.findIndex((line) => line.y <= y && y < line.y + line.height);
    return row >= 0 && x >= this.left && column < this.heat.columns ? { row, column } : null;
  }

  /** @param {PointerEvent} event */
  point(event) {
    const place = this.at(placeOf(this.canvas, event));
    if (!place) {
      this.tip.hidden = true;
      return;
    }
    const times = this.timesOf(this.cellAt(place)).map(({ name, ns }) => `${name} ${duration(ns)}`);
    showTip(this.tip, this.within, placeOf(this.within, event), [this.titleOf(place), ...times]);
  }

  /** @param {Place} place */
  titleOf(place) {
    const { ranks, hosts, host, steps, loop } = this.heat.data;
    const cell = this.cellAt(place);
    const at = Math.floor(cell / this.heat.columns);
    const { first, end } = this.lines[place.row];
    const on = hosts.length > 1 ? ` on ${hosts[host[at]]}` : "";
    const most = end - first > 1 ? `, the most of ranks ${ranks[first]} to ${ranks[end - 1]}` : "";
    const time = this.heat.duration[cell] ? duration(this.heat.duration[cell]) : "not recorded";
    const warm = this.heat.data.warm_up[place.column] ? " (warm-up)" : "";
    return `Rank ${ranks[at]}${on}, ${loop || "step"} ${steps[place.column]}${warm}: ${time}${most}`;
  }

  /** The parts of a cell, how long others waited for it, and what its CPU needs. @param {number} cell */
  timesOf(cell) {
    const { color } = this;
    const parts = this.heat.data.parts.map((part, at) => ({ name: words(part), ns: this.heat.times[at][cell], color: color(variable(part)) }));
    const late = { name: "others waited for it", ns: this.heat.lateness[cell], color: color("c-rank-late") };
    const cpu = { name: "the CPU needs for the step", ns: this.heat.cpu[cell], color: color("c-cpu") };
    return [...parts, late, cpu].filter(({ ns }) => ns > 0);
  }

  /** @param {Place | null} place */
  select(place) {
    this.selected = place;
    this.draw();
    if (!place) return;
    showDetails(this.details, this.titleOf(place), this.timesOf(this.cellAt(place)));
    const { first, end } = this.lines[place.row];
    const { loop, steps } = this.heat.data;
    const way = this.heat.data.mean_of === 1 && this.timeline?.wayTo(place.column, `${loop || "step"} ${steps[place.column]}`);
    if (way) this.details.append(button("Show the step in the timeline", way));
    if (end - first > 1) this.details.append(button(`Show these ${end - first} ranks`, () => this.open(place)));
  }

  /** Show the ranks of a row. @param {Place | null} place */
  open(place) {
    if (!place) return;
    const { first, end } = this.lines[place.row];
    if (end - first > 1) this.show(first, end - first);
  }

  /** Whether the key means something here. @param {string} key */
  key(key) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const move = /** @type {Record<string, number[]>} */ (moves)[key];
    if (key === "Enter") this.open(this.selected);
    else if (key === "Escape") this.show(0, this.heat.data.ranks.length);
    else if (move) this.move(move[0], move[1]);
    else return false;
    return true;
  }

  /** @param {number} down @param {number} right */
  move(down, right) {
    const { row, column } = this.selected ?? { row: -down, column: -right };
    this.select({
      row: Math.min(Math.max(row + down, 0), this.lines.length - 1),
      column: Math.min(Math.max(column + right, 0), this.heat.columns - 1),
    });
  }
}
