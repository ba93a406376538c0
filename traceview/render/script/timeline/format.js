/** Numbers as text, as traceview/base/units.py writes them. */

/** @type {[number, string][]} */
const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "\u00b5s"], [1, "ns"]];
/** @type {[number, string][]} */
const SIZES = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];

/** A length of time. @param {number} ns */
export const duration = (ns) => scaled(ns, TIMES);

/** @param {number} bytes */
export const size = (bytes) => scaled(bytes, SIZES);

/** @param {number} number */
export const count = (number) => Math.round(number).toLocaleString("en");

/** @param {number} part @param {number} whole */
export const percent = (part, whole) => {
  const share = whole ? (100 * part) / whole : 0;
  return share && share < 0.05 ? "<0.1 %" : `${share.toFixed(1)} %`;
};

/** @param {number} value @param {string} unit operations, bytes or pct */
export const level = (value, unit) =>
  unit === "bytes" ? size(value) : unit === "pct" ? `${Math.round(value)} %` : count(value);

/** @param {number} value @param {[number, string][]} scale */
function scaled(value, scale) {
  const last = scale[scale.length - 1];
  const [factor, unit] = scale.find(([each]) => Math.abs(value) >= each * 0.9995) ?? last;
  return `${factor === 1 ? Math.round(value) : threeDigits(value / factor)} ${unit}`;
}

/** @param {number} value */
function threeDigits(value) {
  if (!value) return "0";
  const before = Math.floor(Math.log10(Math.abs(Number(value.toPrecision(3))))) + 1;
  return value.toLocaleString("en", {
    minimumFractionDigits: Math.max(3 - before, 0),
    maximumFractionDigits: Math.max(3 - before, 0),
  });
}

/**
 * A moment on an axis that reaches to `largest`, with as many digits as ticks of `step` need.
 * @param {number} ns
 * @param {number} step
 * @param {number} largest
 */
export function moment(ns, step, largest) {
  const last = TIMES[TIMES.length - 1];
  const [factor, unit] = TIMES.find(([each]) => Math.abs(largest) >= each) ?? last;
  const digits = Math.max(0, Math.ceil(Math.log10(factor / step) - 1e-9));
  return `${(ns / factor).toFixed(digits)} ${unit}`;
}
