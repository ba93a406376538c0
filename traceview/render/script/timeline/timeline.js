/** The timeline of the page: its window, its selection, and how both change. */

import { alikeOf, goOn, sayWhich } from "./alike.js";
import { linksOf } from "./canvas/arrows.js";
import { colorsOf } from "./canvas/colors.js";
import { draw, folds } from "./canvas/draw.js";
import { drawMap } from "./canvas/minimap.js";
import { Raster } from "./canvas/raster.js";
import { briefOf, rowPanel, sumsPanel } from "./details.js";
import { count, level as levelText } from "./format.js";
import { frameOf, toggle } from "./frame.js";
import { listen } from "./input.js";
import { AXIS, bandsOf, laidOut, lineOf, moveBand, pinBand } from "./layout.js";
import { fragmentOf, nameIn, placeOf, spanIn } from "./link.js";
import { hitList, markHit, namesPanel } from "./lists.js";
import { filling, firstAfter, located, modelOf } from "./model.js";
import { Notes } from "./notes.js";
import { countOf, longestHits, namesEqual, namesWith, nextHit } from "./search.js";
import { sumsOf } from "./sums.js";
import { View } from "./view.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {{track: import("./model.js").Track, row: number}} Place */

/** @typedef {{text: string, count: number}} Listed places like one, as the page holds them */

/**
 * The settings of one timeline on a page with two of them.
 * @typedef {object} Role
 * @property {string} name
 * @property {number} height of the lanes at most, in percent of the window
 * @property {boolean} addressed whether the address of the page holds what is shown
 */

const NARROW = 640;
/** Rows that enclose work and are summed up when selected. */
const SPANS = new Set(["steps", "phases", "ranges"]);
const MARGIN = 190;
const LEAST_SPAN = 1000;
const NEAR = 3;
const MOST_HITS = 500;
const TALLEST = 4;
const SHOWN = "In view";
/** Milliseconds without a move after which the view rests. */
const REST = 200;

/** @type {Role} */
const ALONE = { name: "", height: 75, addressed: true };

/**
 * Draw the timeline of a document in place of an element's content.
 * @param {HTMLElement} within
 * @param {any} data the document, as parsed
 * @param {Role} [role]
 * @returns {{ready: Promise<Lanes>}}
 */
export function mountTimeline(within, data, role = ALONE) {
  const ready = modelOf(data).then((model) => new Lanes(within, model, role));
  ready.catch((error) => within.prepend(`The timeline cannot be shown: ${error}`));
  return { ready };
}

export class Lanes {
  /**
   * @param {HTMLElement} within
   * @param {Model} model
   * @param {Role} role
   */
  constructor(within, model, role) {
    this.model = model;
    this.role = role;
    /** Called when the window moves here, not when it follows another timeline. */
    this.onMove = () => {};
    this.within = within;
    this.view = new View(model.end);
    this.raster = new Raster();
    this.bands = bandsOf(model);
    this.lines = /** @type {import("./layout.js").Line[]} */ ([]);
    this.selected = /** @type {Place | null} */ (null);
    this.links = /** @type {import("./canvas/arrows.js").Pair[]} */ ([]);
    this.range = /** @type {{from: number, to: number} | null} */ (null);
    this.hits = /** @type {Uint8Array | null} */ (null);
    this.found = 0;
    /** The hits that are listed. */
    this.listed = this.hits;
    this.choice = { open: /** @type {boolean | null} */ (null), onGpu: model.tracks.some((track) => track.content === "operations") };
    this.noted = /** @type {import("./notes.js").Note[]} */ ([]);
    /** What is summed up below, in words. */
    this.said = "";
    this.pinned = 0;
    this.pointerY = -1;
    this.alike = /** @type {import("./alike.js").Alike | null} */ (null);
    this.asked = 0;
    this.later = 0;
    this.narrow = false;
    this.width = 0;
    this.height = 0;
    this.ratio = 1;
    this.frame = frameOf(
      within,
      {
        zoom: (factor) => this.zoom(factor),
        whole: () => this.showWindow(0, model.end),
        hit: (step) => this.goToHit(step),
        note: () => this.ask(),
      },
      notesOf(model),
      role.name,
    );
    this.pen = /** @type {CanvasRenderingContext2D} */ (this.frame.canvas.getContext("2d", { alpha: false }));
    this.colors = colorsOf(within, model.classes);
    const moment = (/** @type {number} */ at) => `${((at + Number(model.origin)) / 1e9).toFixed(6)} s`;
    this.notes = role.addressed ? new Notes(this.frame.notes, moment, {
      go: ({ at }) => this.showWindow(at - this.view.span / 2, at + this.view.span / 2),
      change: (notes) => {
        this.noted = notes;
        this.redraw();
      },
    }) : null;
    this.listen();
    // The map follows with the first call of the observer, and trees for views of many rows behind it.
    this.layOut();
    (role.addressed && this.open(location.hash)) || this.showWindow(...model.window);
    within.classList.add("ready");
    const left = [...model.tracks];
    const prepare = () => void (left.pop()?.tree && setTimeout(prepare));
    setTimeout(prepare, REST);
  }

  listen() {
    const { canvas, scroll, search, mapBox } = this.frame;
    listen(canvas, {
      point: (x, y) => this.point(x, y),
      leave: () => {
        this.frame.tip.hidden = true;
        this.pointerY = -1;
      },
      click: (x, y) => this.click(x, y),
      enter: (x, y) => this.select(this.placeAt(x, y)) || this.zoomToSelected(),
      pan: (pixels) => this.pan(pixels * this.view.nsPerPixel),
      zoom: (factor, x) => this.zoom(factor, this.view.time(x)),
      range: (from, to) => this.setRange(this.view.time(Math.min(from, to)), this.view.time(Math.max(from, to))),
      key: (key) => this.key(key),
      hold: (held, ms) => this.hold(held, ms),
      onRuler: (y) => y < AXIS,
      carry: (x, y) => this.carry(x, y),
    });
    scroll.addEventListener("scroll", () => this.redraw());
    search.addEventListener("input", () => this.search(search.value));
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.goToHit(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") canvas.focus();
    });
    const follow = (/** @type {PointerEvent} */ event) => {
      const box = mapBox.getBoundingClientRect();
      const time = ((event.clientX - box.left) / box.width) * this.model.end;
      this.showWindow(time - this.view.span / 2, time + this.view.span / 2);
    };
    mapBox.addEventListener("pointerdown", (event) => {
      mapBox.setPointerCapture(event.pointerId);
      follow(event);
    });
    mapBox.addEventListener("pointermove", (event) => void (event.buttons && follow(event)));
    new ResizeObserver(() => this.resize()).observe(this.within);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.colors = colorsOf(this.within, this.model.classes);
      this.resize();
    });
    if (!this.role.addressed) return;
    addEventListener("hashchange", () => this.open(location.hash));
    // Letters move what the pointer is over; a click on the lanes first is not needed.
    document.body.addEventListener("keydown", (event) => {
      const anywhere = event.key === "/" || event.key === "?";
      if (event.target !== document.body || event.key.length > 1 || !(anywhere || this.pointerY >= 0)) return;
      if (anywhere) event.preventDefault();
      canvas.focus({ preventScroll: !anywhere });
      canvas.dispatchEvent(new KeyboardEvent("keydown", event));
    });
  }

  resize() {
    this.layOut();
    drawMap(this.frame.map, this.model, this.colors, this.width, this.ratio, this.alike?.start);
  }

  layOut() {
    const { canvas, scroll, spacer } = this.frame;
    this.width = scroll.clientWidth;
    this.narrow = this.width < NARROW;
    this.ratio = devicePixelRatio || 1;
    const { lines, height, pinned } = laidOut(this.bands, this.narrow);
    this.lines = lines;
    this.pinned = pinned;
    scroll.style.height = `min(${height + AXIS + 2}px, ${this.role.height}vh)`;
    this.height = scroll.clientHeight;
    spacer.style.height = `${Math.max(height + AXIS - this.height, 0)}px`;
    canvas.width = Math.round(this.width * this.ratio);
    canvas.height = Math.round(this.height * this.ratio);
    canvas.style.width = `${this.width}px`;
    canvas.style.height = `${this.height}px`;
    this.view.left = this.narrow ? 0 : MARGIN;
    this.view.right = this.width;
    this.redraw();
  }

  redraw() {
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => {
      this.asked = 0;
      draw(this.pen, { ...this, top: this.frame.scroll.scrollTop }, this.raster);
      this.placeMapWindow();
    });
  }

  /** Show the window on the map. Moving it by a transform alone lays out and paints nothing. */
  placeMapWindow() {
    const { style } = this.frame.mapWindow;
    const scale = this.width / this.model.end;
    const width = `${(this.view.span * scale).toFixed(1)}px`;
    if (style.width !== width) style.width = width;
    style.transform = `translateX(${(this.view.from * scale).toFixed(1)}px)`;
  }

  /** After a change of the window: draw now, and sum up and note the address once it rests. */
  moved() {
    this.changed();
    this.onMove();
  }

  changed() {
    this.redraw();
    clearTimeout(this.later);
    this.later = setTimeout(() => this.rested(), REST);
  }

  /** Show a window as another timeline does. @param {number} from @param {number} to */
  follow(from, to) {
    this.view.show(from, to);
    this.changed();
  }

  rested() {
    this.listHits();
    const { title, from, to } = this.summed();
    const said = `${title} ${from} ${to}`;
    if (said !== this.said) {
      this.said = said;
      this.frame.sums.replaceChildren(
        sumsPanel(this.model, sumsOf(this.model, from, to), title, to - from),
        namesPanel(this.model, { from, to }, title !== SHOWN, this.choice, ({ names, text }) => this.pick(names, text)),
      );
    }
    if (!this.role.addressed) return;
    const select = this.selected ? this.selected.track.offset + this.selected.row : null;
    const fragment = fragmentOf({ from: this.view.from, to: this.view.to, select });
    // A fragment that is not a place in the timeline is kept until something is chosen.
    if (placeOf(location.hash) || this.touched) history.replaceState(null, "", fragment);
  }

  /** The time that is summed up: a range, else the selected step or range of code, else what is shown. */
  summed() {
    const { selected, range, view } = this;
    if (!range && selected && SPANS.has(selected.track.content)) {
      const { track, row } = selected;
      return { title: `In ${this.model.names.texts[track.name[row]]}`, from: track.start[row], to: track.end[row] };
    }
    const { from, to } = range ?? view;
    return { title: range ? "Selected range" : SHOWN, from: Math.round(from), to: Math.round(to) };
  }

  listHits() {
    if (this.hits === this.listed) return;
    this.listed = this.hits;
    const places = this.hits ? longestHits(this.model, this.hits, this.found, MOST_HITS) : [];
    this.frame.list.replaceChildren(
      ...(places.length ? [hitList(this.model, places, this.found, (place) => this.goTo(place))] : []),
    );
  }

  /** Make all rows of some names the hits. @param {Set<number>} names @param {string} text */
  pick(names, text) {
    this.frame.search.value = text;
    this.search(text, Uint8Array.from(this.model.names.texts, (_, name) => Number(names.has(name))));
    this.changed();
  }

  /** Ask for a note at the selected row or range, else at the middle. */
  ask() {
    const { selected, range, view } = this;
    this.notes?.ask(selected ? selected.track.start[selected.row] : (range?.from ?? (view.from + view.to) / 2));
  }

  get touched() {
    return this.selected !== null || this.range !== null;
  }

  /** @param {number} factor @param {number} [at] */
  zoom(factor, at) {
    this.view.zoom(factor, at);
    this.moved();
  }

  /** @param {number} ns */
  pan(ns) {
    this.view.pan(ns);
    this.moved();
  }

  /** @param {number} from @param {number} to */
  showWindow(from, to) {
    this.view.show(from, to);
    this.moved();
  }

  /** Times on the clock of the recording. @param {bigint} start @param {bigint} end @param {Listed} [listed] */
  showRecorded(start, end, listed) {
    const [from, to] = [Number(start - this.model.origin), Number(end - this.model.origin)];
    if (listed || this.alike) this.mark(listed ? alikeOf(listed.text, listed.count, this.model.origin, from) : null);
    const margin = Math.max((to - from) * 0.15, LEAST_SPAN);
    this.range = to > from ? { from, to } : null;
    this.showWindow(from - margin, to + margin);
    this.select(filling(this.model, from, to));
  }

  /** @param {string} fragment @returns {boolean} whether the fragment is a place of the timeline */
  open(fragment) {
    const [place, span, name] = [placeOf(fragment), spanIn(fragment), nameIn(fragment)];
    if (!place && !span && !name) return false;
    if (place) {
      this.showWindow(place.from, place.to);
      if (place.select !== null) this.select(located(this.model, place.select));
    } else if (span) {
      this.showRecorded(span[0], span[1]);
    } else {
      this.showWindow(...this.model.window);
      this.frame.search.value = name;
      this.search(name);
      this.goToHit(1);
    }
    requestAnimationFrame(() => this.within.closest("section")?.scrollIntoView({ block: "start" }));
    return true;
  }

  /** @param {number} from @param {number} to */
  setRange(from, to) {
    this.range = to > from ? { from: Math.round(from), to: Math.round(to) } : null;
    this.moved();
  }

  /**
   * The row at a place of the canvas: the one below the pointer, else the longest near it.
   * @param {number} x
   * @param {number} y
   * @returns {Place | null}
   */
  placeAt(x, y) {
    const line = this.lineAt(y);
    if (!line || y < AXIS || x < this.view.left) return null;
    const [from, to] = [this.view.time(x - NEAR), this.view.time(x + NEAR)];
    const time = this.view.time(x);
    let best = /** @type {Place | null} */ (null);
    let longest = -1;
    for (const track of line.tracks) {
      for (let row = firstAfter(track, from); row < track.start.length && track.start[row] < to; row++) {
        const over = track.start[row] <= time && track.end[row] > time;
        const length = track.end[row] - track.start[row] + (over && track.end[row] - track.start[row] > this.view.nsPerPixel ? this.view.span : 0);
        if (length > longest) [best, longest] = [{ track, row }, length];
      }
    }
    return best;
  }

  /** @param {number} y */
  lineAt(y) {
    const at = this.placeOnLanes(y);
    return this.lines.find((line) => at >= line.y && at <= line.y + line.height) ?? null;
  }

  /** @param {number} y */
  bandAt(y) {
    const at = this.placeOnLanes(y);
    return this.bands.find((each) => at >= each.y && at < each.y + each.height) ?? null;
  }

  /** Pinned lanes do not scroll. @param {number} y */
  placeOnLanes(y) {
    return y - AXIS + (y - AXIS < this.pinned ? 0 : this.frame.scroll.scrollTop);
  }

  /** A title that is dragged takes its lane along. @param {number} x @param {number} y */
  carry(x, y) {
    const band = x < this.view.left && y > AXIS ? this.bandAt(y) : null;
    if (!band) return null;
    return (/** @type {number} */ now) => {
      const over = this.bandAt(now);
      if (!over || over === band) return;
      const at = this.placeOnLanes(now) - over.y;
      // Only where it stays below the pointer.
      if (over.y < band.y ? at < band.height : at > over.height - band.height) {
        this.arrange(() => moveBand(this.bands, band, this.bands.indexOf(over)), band);
      }
    };
  }

  /**
   * Change how a lane lies: the one below the pointer, else that of the selected row.
   * @param {(band: import("./layout.js").Band, at: number) => void} act
   * @param {import("./layout.js").Band | null} [band]
   */
  arrange(act, band = this.bandAt(this.pointerY) ?? (this.selected && lineOf(this.lines, this.selected.track)?.band) ?? null) {
    if (band) act(band, this.bands.indexOf(band));
    this.resize();
  }

  /** @param {number} x @param {number} y */
  point(x, y) {
    const { tip, canvas } = this.frame;
    this.pointerY = y;
    const place = this.placeAt(x, y);
    const counter = x >= this.view.left && y >= AXIS ? (this.lineAt(y)?.counter ?? null) : null;
    canvas.style.cursor = y < AXIS ? "col-resize" : place ? "pointer" : x < this.view.left ? "default" : "grab";
    const title = x < this.view.left && y >= AXIS ? this.bandAt(y)?.title : "";
    tip.hidden = !place && !counter && !title;
    if (title) tip.textContent = `${title} \u00b7 drag to move, t to pin, h for height`;
    else if (place) tip.textContent = briefOf(this.model, place);
    else if (counter) tip.textContent = valueAt(counter, this.view.time(x));
    if (tip.hidden) return;
    const room = this.within.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(Math.min(x + 14, room), 0)}px`;
    tip.style.top = `${this.frame.scroll.offsetTop + y + 18}px`;
  }

  /** @param {number} x @param {number} y */
  click(x, y) {
    this.frame.canvas.focus({ preventScroll: true });
    const band = this.bandAt(y);
    const title = this.narrow ? band && this.placeOnLanes(y) < band.y + 15 : x < this.view.left;
    if (band && title && y > AXIS && folds(band)) {
      band.folded = !band.folded;
      return this.resize();
    }
    this.range = null;
    this.select(this.placeAt(x, y));
  }

  /** @param {Place | null} place @returns {boolean} whether nothing is selected now */
  select(place) {
    this.selected = place;
    markHit(this.frame.list, place ? place.track.offset + place.row : -1);
    this.links = place ? linksOf(this.model, place) : [];
    const { panel, said } = this.frame;
    panel.replaceChildren();
    if (place) {
      panel.append(
        rowPanel(this.model, place, {
          zoom: () => this.zoomToSelected(),
          follow: (to) => this.goTo(to),
          list: () => this.pick(new Set([place.track.name[place.row]]), this.model.names.texts[place.track.name[place.row]]),
          close: () => this.select(null),
        }),
      );
      said.textContent = briefOf(this.model, place);
    }
    this.moved();
    return !place;
  }

  /** Select a row and bring it into view, with what it is linked to where that is near. @param {Place} place */
  goTo(place) {
    const { start, end } = place.track;
    const [from, to] = [start[place.row], end[place.row]];
    if (from < this.view.from || to > this.view.to) {
      const half = Math.max(this.view.span / 2, (to - from) * 2);
      this.view.show((from + to) / 2 - half, (from + to) / 2 + half);
    }
    const [pair] = linksOf(this.model, place);
    const called = pair ? pair[0].track.start[pair[0].row] : from;
    if (called < this.view.from && to - called < this.view.span * 0.9) {
      this.view.pan(called - this.view.from - this.view.span * 0.05);
    }
    this.select(place);
    const line = lineOf(this.lines, place.track);
    const { scroll } = this.frame;
    if (!line) return;
    const above = line.y < scroll.scrollTop + this.pinned;
    const hidden = above || line.y + line.height + AXIS > scroll.scrollTop + this.height;
    if (hidden && !line.band.pinned) scroll.scrollTop = line.y - this.height / 2;
  }

  zoomToSelected() {
    if (this.range && !this.selected) return this.showWindow(this.range.from, this.range.to);
    if (!this.selected) return;
    const { track, row } = this.selected;
    const length = Math.max(track.end[row] - track.start[row], 20);
    this.showWindow(track.start[row] - length, track.end[row] + length);
  }

  /** Mark places like the one shown on the map; the buttons for hits go through them. @param {import("./alike.js").Alike | null} alike */
  mark(alike) {
    this.alike = alike;
    this.frame.search.value = "";
    this.search("");
    this.resize();
  }

  /** @param {1 | -1} step */
  goToAlike(step) {
    if (!this.alike) return;
    const { from, to } = goOn(this.alike, step);
    const half = Math.max(this.view.span / 2, (to - from) * 0.65);
    this.range = to > from ? { from, to } : null;
    this.showWindow((from + to) / 2 - half, (from + to) / 2 + half);
    this.select(filling(this.model, from, to));
    this.search("");
  }

  /** @param {string} text @param {Uint8Array | null} hits the names to find */
  search(text, hits = text ? namesWith(this.model, text) : null) {
    const found = hits ? countOf(this.model, hits) : 0;
    this.found = found;
    // Without a hit, nothing is dimmed.
    this.hits = found ? hits : null;
    const alike = this.alike ? sayWhich(this.alike) : "";
    this.frame.hits.textContent = hits ? `${count(found)} hit${found === 1 ? "" : "s"}` : alike;
    this.changed();
  }

  /** @param {1 | -1} step */
  goToHit(step) {
    if (!this.hits) return this.frame.search.value ? undefined : this.goToAlike(step);
    const { selected } = this;
    const from = selected
      ? { time: selected.track.start[selected.row], number: selected.track.offset + selected.row }
      : { time: this.view.from, number: -Infinity };
    // A search for "step_7" shows step_7 before step_70.
    const found = selected && this.hits[selected.track.name[selected.row]];
    const wanted = (!found && namesEqual(this.model, this.frame.search.value)) || this.hits;
    const place = nextHit(this.model, wanted, from, step);
    if (place) this.goTo(place);
  }

  /** @param {string} key */
  key(key) {
    const acts = /** @type {Record<string, () => void>} */ ({
      "+": () => this.zoom(0.6),
      "=": () => this.zoom(0.6),
      "-": () => this.zoom(1 / 0.6),
      0: () => this.showWindow(0, this.model.end),
      "?": () => toggle(this.frame.help),
      "/": () => this.frame.search.focus(),
      f: () => this.zoomToSelected(),
      Enter: () => this.zoomToSelected(),
      g: () => this.goAlong(),
      n: () => this.goToHit(1),
      p: () => this.goToHit(-1),
      m: () => this.ask(),
      t: () => this.arrange((band) => pinBand(this.bands, band)),
      h: () => this.arrange((band) => void (band.scale = (band.scale % TALLEST) + 1)),
      "[": () => this.arrange((band, at) => moveBand(this.bands, band, at - 1)),
      "]": () => this.arrange((band, at) => moveBand(this.bands, band, at + 1)),
      Escape: () => {
        if (this.alike) this.mark(null);
        this.range = null;
        this.select(null);
      },
      ArrowLeft: () => this.step(-1),
      ArrowRight: () => this.step(1),
      ArrowUp: () => this.jump(-1),
      ArrowDown: () => this.jump(1),
    });
    if (!acts[key]) return false;
    acts[key]();
    return true;
  }

  goAlong() {
    const pair = this.selected && linksOf(this.model, this.selected)[0];
    if (pair) this.goTo(this.selected?.track.content === "calls" ? pair[1] : pair[0]);
  }

  /** Select the row before or after on the same track. @param {1 | -1} step */
  step(step) {
    if (!this.selected) return this.jump(1);
    const { track, row } = this.selected;
    if (row + step >= 0 && row + step < track.start.length) this.goTo({ track, row: row + step });
  }

  /** Select the row at the same time on the next line that has one. @param {1 | -1} step */
  jump(step) {
    const time = this.selected
      ? Math.max(this.selected.track.start[this.selected.row], this.view.from)
      : (this.view.from + this.view.to) / 2;
    const now = this.selected ? lineOf(this.lines, this.selected.track) : null;
    for (let at = (now ? this.lines.indexOf(now) : -1) + step; this.lines[at]; at += step) {
      const track = this.lines[at].tracks[0];
      if (!track?.start.length) continue;
      const row = Math.min(firstAfter(track, time), track.start.length - 1);
      return this.goTo({ track, row });
    }
  }

  /** @param {Set<string>} held @param {number} ms */
  hold(held, ms) {
    const [zoom, pan] = [Math.exp(ms * 0.004), this.view.span * ms * 0.0012];
    if (held.has("w")) this.view.zoom(1 / zoom);
    if (held.has("s")) this.view.zoom(zoom);
    if (held.has("a")) this.view.pan(-pan);
    if (held.has("d")) this.view.pan(pan);
    this.moved();
  }
}

/** @param {import("./model.js").Counter} counter @param {number} time */
function valueAt(counter, time) {
  let [low, high] = [0, counter.time.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (counter.time[middle] <= time) low = middle + 1;
    else high = middle;
  }
  const value = low ? counter.value[low - 1] : 0;
  return `${counter.title}: ${levelText(value, counter.unit)}`;
}

/** @param {Model} model */
function notesOf(model) {
  if (!model.summed) return [];
  return [
    `To keep this page small, ${count(model.summed)} of ${count(model.recorded)} events are ` +
      `merged outside the busiest windows.`,
  ];
}
