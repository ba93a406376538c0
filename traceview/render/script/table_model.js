/** A table of the page as values: raw numbers and whole names, which its cells carry. */

import { all } from "./elements.js";

/** @typedef {{name: string, label: string, isText: boolean, adds: boolean}} ColumnInfo */
/** @typedef {{element: HTMLTableRowElement, values: (string | null)[], place: number}} Row */

export class TableModel {
  /** @param {HTMLTableElement} table */
  constructor(table) {
    this.table = table;
    this.headings = /** @type {HTMLTableCellElement[]} */ (all(table, "th"));
    /** @type {ColumnInfo[]} */
    this.columns = this.headings.map((heading) => ({
      name: heading.dataset.name ?? "",
      label: heading.textContent ?? "",
      isText: heading.classList.contains("text"),
      adds: "adds" in heading.dataset,
    }));
    /** @type {Row[] | null} */
    this.read = null;
  }

  /** The rows in the order of the page; read on first use. */
  get rows() {
    this.read ??= [...this.table.tBodies[0]?.rows ?? []].map((element, place) => ({
      element,
      place,
      values: [...element.cells].map(valueOf),
    }));
    return this.read;
  }

  /** The values of the first row, without reading the others. */
  get firstValues() {
    return [...this.table.tBodies[0]?.rows[0]?.cells ?? []].map(valueOf);
  }

  /** @param {string} name @returns {number} −1 for a name that no column has */
  indexOf(name) {
    return this.columns.findIndex((column) => column.name === name);
  }

  /**
   * Rows in the order of a column, absent values last either way.
   * @param {number} index
   * @param {boolean} descending
   */
  sorted(index, descending) {
    const isText = this.columns[index]?.isText;
    const sign = descending ? -1 : 1;
    /** @param {Row} row */
    const value = (row) => row.values[index] ?? null;
    return [...this.rows].sort((a, b) => {
      const [left, right] = [value(a), value(b)];
      if (left === null || right === null) return Number(left === null) - Number(right === null);
      const order = isText ? left.localeCompare(right, "en") : Number(left) - Number(right);
      return sign * order || a.place - b.place;
    });
  }

  /**
   * The exact sum of each column that adds up, as decimal text.
   * @param {Row[]} rows
   * @returns {[ColumnInfo, string][]}
   */
  sums(rows) {
    return this.columns.flatMap((column, index) => {
      if (!column.adds) return [];
      const values = rows.map((row) => row.values[index] ?? null).filter((value) => value !== null);
      return [/** @type {[ColumnInfo, string]} */ ([column, sumOf(values)])];
    });
  }

  /**
   * Rows as CSV: raw numbers, whole names, an empty field for an absent value.
   * @param {Row[]} rows
   * @param {(index: number) => boolean} isShown
   */
  csv(rows, isShown) {
    const chosen = this.columns.map((_, index) => index).filter(isShown);
    const lines = [chosen.map((index) => this.columns[index]?.name ?? "")];
    for (const row of rows) lines.push(chosen.map((index) => row.values[index] ?? ""));
    return lines.map((line) => line.map(quoted).join(",")).join("\n") + "\n";
  }
}

/**
 * The raw number or the whole text of a cell; null where it is absent.
 * @param {HTMLTableCellElement} cell
 */
function valueOf(cell) {
  if (cell.dataset.v !== undefined) return cell.dataset.v === "" ? null : cell.dataset.v;
  const whole = cell.querySelector(".elided")?.getAttribute("title") ?? cell.textContent ?? "";
  // Without the sign that links to the timeline.
  const text = whole.replace(/\u2922$/, "").trim();
  return text === "\u2013" ? null : text;
}

/** Whole numbers add up exactly, however large. @param {string[]} values */
function sumOf(values) {
  if (values.every((value) => /^-?\d+$/.test(value))) {
    return values.reduce((sum, value) => sum + BigInt(value), 0n).toString();
  }
  return String(values.reduce((sum, value) => sum + Number(value), 0));
}

/**
 * A spreadsheet takes a field that begins with one of these for a formula: it gets an apostrophe.
 * @param {string} field
 */
function quoted(field) {
  const safe = /^[=+@\t]|^-(?![\d.])/.test(field) ? `'${field}` : field;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
