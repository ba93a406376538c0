/** The details of a row, and the sums over a window, as elements. */

import { button, element } from "../elements.js";
import { label, meaning } from "./canvas/colors.js";
import { linksOf } from "./canvas/arrows.js";
import { stackOf } from "./flame.js";
import { count, duration, percent, size } from "./format.js";
import { busyOf, firstAfter, openAt } from "./model.js";
import { cpuTimes, excessOf, medianStep, operator } from "./steps.js";
import { ranked } from "./sums.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./model.js").Track} Track */
/** @typedef {{track: Track, row: number}} Place */

const MOST_MEANWHILE = 3;
const MOST_SETS = 8;
/** In the text of a range of torch's, before the shapes of an operator's arguments. */
const SIZES = ", sizes = [";

/** A row in one line, for its tooltip and for screen readers.
 * @param {Model} model
 * @param {Place} place
 */
export function briefOf(model, { track, row }) {
  const name = model.names.texts[track.name[row]];
  const many = track.count ? track.count[row] : 1;
  const length = duration(track.end[row] - track.start[row]);
  if (many > 1) {
    return `${count(many)} rows in ${length}, busy for ${duration(busyOf(track, row))}, longest ${name}`;
  }
  const kind = label(model.classes[model.names.classes[track.name[row]]]);
  const what = track.content === "gaps" ? `idle: ${name}` : name;
  return [what, ...(what.includes(kind) || track.content === "ranges" ? [] : [kind]), length].join(" \u00b7 ");
}

/**
 * The details of a row, as pairs of label and text.
 * @param {Model} model
 * @param {Place} place
 * @returns {[string, string][]}
 */
export function factsOf(model, place) {
  const { track, row } = place;
  const { names } = model;
  const name = track.name[row];
  const length = track.end[row] - track.start[row];
  /** @type {[string, string][]} */
  const facts = [
    ["Start", `${((track.start[row] + Number(model.origin)) / 1e9).toFixed(9)} s`],
    ["Duration", duration(length)],
    ["Where", [track.lane.group, track.lane.title].filter(Boolean).join(", ")],
  ];
  if (track.count && track.count[row] > 1) {
    facts.push(["Rows", `${count(track.count[row])}, busy for ${duration(busyOf(track, row))}`]);
    return facts;
  }
  const bytes = track.bytes ? track.bytes[row] : 0;
  if (bytes) facts.push(["Size", `${size(bytes)}, ${size((bytes / Math.max(length, 1)) * 1e9)}/s`]);
  const launch = names.launches[names.launch[name]];
  if (launch) facts.push(...launchFacts(launch));
  facts.push(...linkFacts(model, place));
  if (track.content === "operations") facts.push(...instanceFacts(model, place));
  const step = track.content === "steps" ? place : track.content === "ranges" && stepOf(model, place);
  if (step) facts.push(...stepFacts(model, step));
  if (track.content === "gaps") facts.push(["Cause", model.causes[names.texts[name]] ?? ""], ...meanwhile(model, place));
  const wait = model.waits.get(track.offset + row);
  if (wait) {
    if (wait.idle) facts.push(["Then GPU idle", duration(wait.idle)]);
    facts.push(["GPU busy meanwhile", `${duration(wait.benign)} of ${duration(length)}`]);
    if (wait.site) facts.push(["Called at", wait.site]);
  }
  if (names.whole[name] && names.whole[name] !== names.texts[name]) facts.push(["Name", names.whole[name]]);
  return facts;
}

/** The step whose range a row is: a search finds either. @param {Model} model @param {Place} range */
function stepOf({ tracks, names }, { track, row }) {
  const text = names.texts[track.name[row]];
  for (const steps of tracks) {
    if (steps.content !== "steps") continue;
    for (let at = firstAfter(steps, track.start[row]); at < steps.start.length && steps.start[at] < track.end[row]; at++) {
      if (names.texts[steps.name[at]] === text) return { track: steps, row: at };
    }
  }
  return null;
}

/** How a step differs from the median one. @param {Model} model @param {Place} step @returns {[string, string][]} */
function stepFacts(model, step) {
  const median = medianStep(model, step);
  if (median === null) return [];
  if (median === step.row) return [["Median step", "this one: nothing unusual"]];
  const { start, end, name } = step.track;
  const more = end[step.row] - start[step.row] - (end[median] - start[median]);
  const excess = excessOf(model, step, median);
  /** @param {import("./steps.js").Excess[]} each */
  const listed = (each) => each.map(({ text, ns }) => `${text} +${duration(ns)}`).join(", ");
  /** @type {[string, string][]} */
  const facts = [["Median step", `${duration(end[median] - start[median])} (${model.names.texts[name[median]]})`]];
  if (more > 0) facts[0][1] += `; this one takes ${duration(more)} longer`;
  else if (more < 0) facts[0][1] += `; this one takes ${duration(-more)} less`;
  if (!excess.gpu.length && !excess.cpu.length) facts[0][1] += ": nothing unusual";
  if (excess.gpu.length) facts.push(["More on the GPU", listed(excess.gpu)]);
  if (excess.cpu.length) facts.push(["More on the CPU", listed(excess.cpu)]);
  return facts;
}

/** What the CPU did in a gap: the longest lines, calls and ranges. @param {Model} model @param {Place} gap */
function meanwhile(model, { track, row }) {
  const [from, to] = [track.start[row], track.end[row]];
  const most = [...cpuTimes(model, from, to, track.lane.process)].sort(([, a], [, b]) => b - a).slice(0, MOST_MEANWHILE);
  const listed = most.map(([text, ns]) => `${operator(text)} ${duration(ns)}`).join(", ");
  const facts = /** @type {[string, string][]} */ (listed ? [["CPU meanwhile", listed]] : []);
  const outside = outsideCalls(model, from, to, track.lane.process);
  if (outside > 0) facts.push(["Outside CUDA calls", `${duration(outside)} of ${duration(to - from)}`]);
  return facts;
}

/** Time in which no thread of a process is in a CUDA call; 0 where the page has calls as sums only.
 * @param {Model} model
 * @param {number} from
 * @param {number} to
 * @param {number} process
 */
function outsideCalls(model, from, to, process) {
  /** @type {[number, number][]} */
  const inside = [];
  for (const track of model.tracks) {
    const { content, lane, count, start, end } = track;
    if (content !== "calls" || (process >= 0 && lane.process !== process)) continue;
    const first = firstAfter(track, from);
    if (count && first < start.length && start[first] < to) return 0;
    for (let row = first; row < start.length && start[row] < to; row++) inside.push([start[row], end[row]]);
  }
  let [covered, until] = [0, from];
  for (const [start, end] of inside.sort(([a], [b]) => a - b)) {
    covered += Math.max(Math.min(end, to) - Math.max(start, until), 0);
    until = Math.max(until, end);
  }
  return to - from - covered;
}

/** The step that work is part of, the line of Python that launched it, and all work of its name.
 * @param {Model} model
 * @param {Place} place
 * @returns {[string, string][]}
 */
function instanceFacts(model, place) {
  const { names } = model;
  const [pair] = linksOf(model, place);
  const time = pair ? pair[0].track.start[pair[0].row] : place.track.start[place.row];
  /** @type {[string, string][]} */
  const facts = [];
  const lanes = pair ? pair[0].track.lane.tracks : [];
  const at = [...model.tracks.filter((track) => track.content === "steps"), ...lanes.filter((track) => track.content === "python")];
  for (const track of at) {
    const row = track.count ? -1 : openAt(track, time);
    if (row < 0) continue;
    const share = percent(place.track.end[place.row] - place.track.start[place.row], track.end[row] - track.start[row]);
    const text = names.texts[track.name[row]];
    facts.push(track.content === "steps" ? ["Step", `${text}; this is ${share} of its time`] : ["Launched at", text]);
  }
  const wanted = place.track.name[place.row];
  let [calls, sum] = [0, 0];
  for (const { content, count: merged, start, end, name } of model.tracks) {
    if (content !== "operations") continue;
    if (merged) return facts;
    for (let row = 0; row < name.length; row++) {
      if (name[row] !== wanted) continue;
      calls += 1;
      sum += end[row] - start[row];
    }
  }
  return [...facts, ["All of this name", `${count(calls)}, ${duration(sum)} in all`]];
}

/** @param {number[]} launch @returns {[string, string][]} */
function launchFacts([gx, gy, gz, bx, by, bz, registers, fixed, dynamic]) {
  /** @param {...number} sizes */
  const times = (...sizes) => sizes.map(count).join("\u00d7");
  return [
    ["Grid", `${times(gx, gy, gz)} blocks of ${times(bx, by, bz)} threads`],
    ["Per thread, block", `${registers} registers, ${size(fixed + dynamic)} shared memory`],
  ];
}

/** @param {Model} model @param {Place} place @returns {[string, string][]} */
function linkFacts(model, place) {
  const pairs = linksOf(model, place);
  if (!pairs.length) return [];
  const [call, other] = pairs[0];
  const made = call.track.end[call.row];
  if (place.track.content === "calls") {
    const what = model.names.texts[other.track.name[other.row]];
    const more = pairs.length > 1 ? ` and ${pairs.length - 1} more` : "";
    const verb = other.track.content === "gaps" ? "Left the GPU idle" : "Launched";
    return [[verb, other.track.content === "gaps" ? duration(other.track.end[other.row] - other.track.start[other.row]) : `${what}${more}`]];
  }
  const name = model.names.texts[call.track.name[call.row]];
  const path = pathAt(model, call);
  if (place.track.content === "gaps") {
    const site = model.waits.get(call.track.offset + call.row)?.site;
    const at = site ? /** @type {[string, string][]} */ ([["Called at", site]]) : [];
    return [["Caused by", [name, path].filter(Boolean).join(" in ")], ...at];
  }
  const wait = place.track.start[place.row] - made;
  /** @type {[string, string][]} */
  const facts = [["Launched by", `${name}, ${call.track.lane.title}`]];
  if (path) facts.push(["In", path]);
  const shapes = shapesAt(model, call);
  if (shapes) facts.push(["Shapes", shapes]);
  facts.push(["Queue wait", wait > 0 ? duration(wait) : "none: it started before the call returned"]);
  return facts;
}

/** The texts of the ranges that a call is in, outermost first. @param {Model} model @param {Place} call */
function rangesAt(model, call) {
  const ranges = stackOf(model, call).filter(({ track }) => track.content === "ranges");
  return ranges.map(({ track, row }) => model.names.texts[track.name[row]]);
}

/** @param {Model} model @param {Place} call */
const pathAt = (model, call) => rangesAt(model, call).map(operator).join(" / ");

/** The shapes of the arguments of the innermost operator that has them. @param {Model} model @param {Place} call */
function shapesAt(model, call) {
  const text = rangesAt(model, call).findLast((text) => text.includes(SIZES)) ?? "";
  const shapes = [...text.slice(text.indexOf(SIZES)).matchAll(/\[(\d[\d, ]*)\]/g)];
  return shapes.length ? `${operator(text)} of ${shapes.map(([, sides]) => sides.replaceAll(", ", "\u00d7")).join(", ")}` : "";
}


/**
 * @param {Model} model
 * @param {Place} place
 * @param {{zoom: () => void, follow: (to: Place) => void, list: () => void, close: () => void}} acts
 */
export function rowPanel(model, place, acts) {
  const { track, row } = place;
  const kind = model.classes[model.names.classes[track.name[row]]];
  const list = element("dl");
  for (const [word, text] of factsOf(model, place)) {
    list.append(element("dt", {}, word), element("dd", {}, text));
  }
  const pairs = linksOf(model, place);
  const [call, other] = pairs[0] ?? [null, null];
  const target = track.content === "calls" ? other : call;
  const ways = element("p", { class: "tl-ways" }, button("Zoom to it", acts.zoom));
  if (target) {
    const to = track.content === "calls" ? (target.track.content === "gaps" ? "Go to the gap" : "Go to the work") : "Go to the call";
    ways.append(button(to, () => acts.follow(target)));
  }
  ways.append(button("List all of this name", acts.list), button("Close", acts.close));
  return element(
    "div",
    { class: "tl-row" },
    element("h4", {}, swatch(kind), track.content === "gaps" ? "GPU idle" : model.names.texts[track.name[row]], element("small", {}, label(kind))),
    list,
    ways,
  );
}

/** @param {string} kind */
function swatch(kind) {
  const made = element("i", { class: "tl-swatch" });
  made.style.background = `var(--c-${meaning(kind)})`;
  return made;
}

/**
 * @param {Model} model
 * @param {import("./sums.js").Sums} sums
 * @param {string} title
 * @param {number} length of the window
 */
export function sumsPanel(model, sums, title, length) {
  const panel = element("div", { class: "tl-sums" }, element("h4", {}, title, element("small", {}, duration(length))));
  if (!sums.exact) panel.append(element("p", {}, "About: the window cuts through merged rows."));
  for (const device of sums.devices) panel.append(devicePanel(model, device, length));
  return panel;
}

/**
 * @param {Model} model
 * @param {import("./sums.js").DeviceSums} device
 * @param {number} length of the window
 */
function devicePanel(model, device, length) {
  const whole = device.span;
  const part = whole < length ? ` of the ${duration(whole)} from first to last work` : "";
  const busy = element(
    "p",
    {},
    element("b", { "data-ns": String(device.busy) }, percent(device.busy, whole)),
    ` busy (${duration(device.busy)}), `,
    element("b", { "data-ns": String(device.idle) }, percent(device.idle, whole)),
    ` idle (${duration(device.idle)})${part}`,
  );
  const tables = element(
    "div",
    { class: "tl-tables" },
    totals("Idle, by cause", device.causes, whole, (kind) => model.classes[kind], (kind) => label(model.classes[kind]), "gaps"),
    totals("GPU work, by class", device.classes, whole, (kind) => model.classes[kind], (kind) => label(model.classes[kind]), "calls"),
  );
  if (device.streams.size > 1) {
    tables.append(
      totals("By stream", device.streams, whole, () => "", (stream) => stream, "calls"),
      totals("Streams at once", device.together, whole, () => "", (streams) => streams, "times", MOST_SETS),
    );
  }
  return element("div", { class: "tl-device", "data-busy": String(device.busy), "data-idle": String(device.idle) },
    element("h5", {}, device.title), busy, tables);
}

/**
 * @template K
 * @param {string} title
 * @param {Map<K, import("./sums.js").Total>} all
 * @param {number} whole
 * @param {(key: K) => string} kindOf the class whose colour marks a row, empty for none
 * @param {(key: K) => string} textOf
 * @param {string} unit
 * @param {number} [most]
 */
function totals(title, all, whole, kindOf, textOf, unit, most = 30) {
  const body = element("tbody");
  for (const [key, total] of ranked(all).slice(0, most)) {
    body.append(
      element(
        "tr",
        { "data-class": kindOf(key), "data-ns": String(total.ns), "data-calls": String(total.calls) },
        element("th", { scope: "row", title: textOf(key) }, kindOf(key) && swatch(kindOf(key)), textOf(key)),
        element("td", {}, duration(total.ns)),
        element("td", {}, percent(total.ns, whole)),
        element("td", {}, `${count(total.calls)} ${count(total.calls) === "1" ? unit.slice(0, -1) : unit}`),
      ),
    );
  }
  return body.children.length ? element("table", {}, element("caption", {}, title), body) : "";
}
