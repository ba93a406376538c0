/**
 * The filter of a table: words that a row must contain, and conditions such as `total>5ms`,
 * `share>=1`, `cause=launch-late`, `-range:step`.
 */

/** @typedef {import("./table_model.js").TableModel} TableModel */
/** @typedef {import("./table_model.js").Row} Row */

/** @type {Record<string, number>} */
const UNITS = {
  ns: 1, us: 1e3, "\u00b5s": 1e3, ms: 1e6, s: 1e9, b: 1, kb: 1e3, mb: 1e6, gb: 1e9, tb: 1e12,
};
const PLAIN_WORD = /^[a-z][\w.-]{0,15}$/i;
const TERM = /(-?)([\w\u00b5]*)(>=|<=|>|<|=|:)("[^"]*"|\S+)|(-?)("[^"]*"|\S+)/g;

/**
 * @param {string} text
 * @param {TableModel} model
 * @returns {(row: Row) => boolean}
 */
export function rowFilter(text, model) {
  const tests = [...text.matchAll(TERM)].map((match) => {
    const [whole, not = "", column = "", operator = "", value = "", notWord = "", word = ""] = match;
    const index = operator ? columnOf(column, model) : -1;
    if (index < 0) return contains(bare(word || whole.slice(not.length)), not + notWord !== "");
    const test = condition(model.columns[index]?.isText ?? true, operator, bare(value));
    /** @param {Row} row */
    return (row) => test(row.values[index] ?? null) !== (not !== "");
  });
  return (row) => tests.every((test) => test(row));
}

/**
 * Conditions on columns of this table, to show how they are written: one on a number and one on a
 * text, the latter with the value in the first row if that is a single word.
 * @param {TableModel} model
 * @returns {string[]}
 */
export function exampleConditions(model) {
  const first = model.firstValues;
  const shown = model.columns.map((column, index) => ({
    ...column, value: first[index] ?? "", isOff: model.headings[index]?.classList.contains("off"),
  })).filter((column) => column.name && !column.isOff);
  const numbers = shown.filter((column) => !column.isText);
  const number = numbers.find((column) => column.name.endsWith("_ns")) ?? numbers[0];
  const texts = shown.filter((column) => column.isText);
  const text = texts.find((column) => PLAIN_WORD.test(column.value)) ?? texts[0];
  const least = { _ns: "5ms", _bytes: "1MB" };
  const unit = Object.entries(least).find(([ending]) => number?.name.endsWith(ending));
  return [
    ...(number ? [`${number.name.slice(0, -(unit?.[0].length ?? 0) || undefined)}>${unit?.[1] ?? 1}`] : []),
    ...(text ? [PLAIN_WORD.test(text.value) ? `${text.name}=${text.value}` : `${text.name}:word`] : []),
  ];
}

/**
 * @param {string} word
 * @param {boolean} not
 * @returns {(row: Row) => boolean}
 */
function contains(word, not) {
  const wanted = word.toLowerCase();
  return (row) => row.values.some((value) => value?.toLowerCase().includes(wanted)) !== not;
}

/**
 * The column whose name, with or without its unit, or whose heading begins with a name.
 * @param {string} name
 * @param {TableModel} model
 */
function columnOf(name, model) {
  const wanted = name.toLowerCase();
  if (!wanted) return -1;
  const exact = model.columns.findIndex((each) => each.name === wanted);
  if (exact >= 0) return exact;
  return model.columns.findIndex((each) => each.name.startsWith(wanted));
}

/**
 * @param {boolean} isText
 * @param {string} operator
 * @param {string} wanted
 * @returns {(value: string | null) => boolean}
 */
function condition(isText, operator, wanted) {
  const text = wanted.toLowerCase();
  if (operator === ":") return (value) => value?.toLowerCase().includes(text) ?? false;
  if (isText) return (value) => operator === "=" && value?.toLowerCase() === text;
  const number = numberOf(text);
  return (value) => {
    if (value === null) return false;
    const actual = Number(value);
    if (operator === ">") return actual > number;
    if (operator === "<") return actual < number;
    if (operator === ">=") return actual >= number;
    return operator === "<=" ? actual <= number : actual === number;
  };
}

/** A number with or without a unit, in the column's own: nanoseconds, bytes. @param {string} text */
function numberOf(text) {
  const [, digits = "", unit = ""] = /^(-?[\d.,]+(?:e-?\d+)?)\s*(\D*)$/.exec(text) ?? [];
  return digits ? Number(digits.replaceAll(",", "")) * (UNITS[unit] ?? 1) : NaN;
}

/** @param {string} text */
const bare = (text) => text.replace(/^"(.*)"$/, "$1");
