/** Colours of the classes, from the CSS variables that all figures of the page share. */

import { partsOf, pixelOf } from "./raster.js";

/**
 * @typedef {object} Colors
 * @property {string[]} fill by class
 * @property {string[]} label readable on the fill, by class
 * @property {Uint32Array} solid pixels by class
 * @property {Uint32Array} faint the same of what a search did not find
 * @property {number} level pixel of a counter
 * @property {number} empty pixel where nothing is
 * @property {number} grid
 * @property {string} paper
 * @property {string} raised
 * @property {string} ink
 * @property {string} quiet
 * @property {string} rule
 * @property {string} link
 * @property {string} high
 */

/**
 * @param {Element} element
 * @param {string[]} classes
 * @returns {Colors}
 */
export function colorsOf(element, classes) {
  const style = getComputedStyle(element);
  /** @param {string} name */
  const variable = (name) => style.getPropertyValue(`--${name}`).trim() || "#888";
  const fill = classes.map((name) => variable(`c-${meaning(name)}`));
  const ink = fill.map((color) => (brightness(color) > 0.55 ? "#11151a" : "#ffffff"));
  const [paper, quiet, rule] = ["paper", "quiet", "rule"].map(variable);
  return {
    fill,
    label: ink,
    solid: Uint32Array.from(fill, (color) => pixelOf(color)),
    faint: Uint32Array.from(fill, (color) => pixelOf(color, paper, 0.22)),
    level: pixelOf(quiet, paper, 0.35),
    empty: pixelOf(paper),
    grid: pixelOf(rule, paper, 0.6),
    paper,
    quiet,
    rule,
    raised: variable("raised"),
    ink: variable("ink"),
    link: variable("link"),
    high: variable("high"),
  };
}

/** What the colour of a class means: all copies have one, and causes have theirs everywhere. */
/** @param {string} name */
export function meaning(name) {
  if (name.startsWith("copy-")) return "copy";
  if (name === "step-warm-up") return "warm-up";
  return name.replace(/^(kernel|idle|phase)-/, "");
}

/** A class in words; causes and classes of kernels as everywhere else. @param {string} name */
export function label(name) {
  const words = {
    "copy-h2d": "copy to the GPU",
    "copy-d2h": "copy to the CPU",
    "copy-d2d": "copy on the GPU",
    "copy-p2p": "copy between GPUs",
    "copy-other": "other copy",
    "copy-migration": "page migration",
    graph: "CUDA graph",
    call: "CUDA call",
    "call-launch": "launch call",
    "call-sync": "synchronization, GPU stayed busy",
    "call-harmful": "wait that left the GPU idle",
    "call-copy": "copy call",
    "call-allocate": "allocation call",
    "call-load": "code loading",
    "call-graph": "graph preparation",
    "step-warm-up": "warm-up step",
    "step-outlier": "slow step",
    "python-cpu": "Python, running",
  };
  const known = /** @type {Record<string, string>} */ (words)[name];
  if (known) return known;
  if (/^(kernel|idle|phase)-/.test(name)) return name.slice(name.indexOf("-") + 1);
  return name.replace(/^python-/, "Python, ").replaceAll("-", " ");
}

/** From 0 to 1. @param {string} color such as #2f6db3 */
function brightness(color) {
  const [red, green, blue] = partsOf(color);
  return (0.299 * red + 0.587 * green + 0.114 * blue) / 255;
}
