/** Tables: sort, filter, choose columns, sum up rows, copy as CSV; names whole on a click. */

import { copyButton } from "./clipboard.js";
import { all, button, element } from "./elements.js";
import { exampleConditions, rowFilter } from "./row_filter.js";
import { TableModel } from "./table_model.js";
import { count, duration, size } from "./timeline/format.js";

const LEAST_ROWS = 6;

/** @typedef {import("./table_model.js").Row} Row */

/** One table with its tools. */
class LiveTable {
  /**
   * @param {HTMLElement} place
   * @param {HTMLTableElement} table
   * @param {() => void} changed
   */
  constructor(place, table, changed) {
    this.place = place;
    this.model = new TableModel(table);
    this.changed = changed;
    /** @type {{name: string, descending: boolean} | null} */
    this.order = null;
    /** @type {Row[] | null} */
    this.ordered = null;
    const examples = ["words", ...exampleConditions(this.model)].join(", ");
    this.input = element("input", { type: "search", placeholder: `Filter: ${examples}` });
    this.input.setAttribute("aria-label", `Filter the rows of ${this.title}`);
    this.said = element("output", { "aria-live": "polite" });
    this.addTools(table);
    this.addSorting();
    this.addColumnChoice();
  }

  get title() {
    return this.place.querySelector("h3")?.firstChild?.textContent?.trim() ?? "the table";
  }

  /** @param {HTMLTableElement} table */
  addTools(table) {
    if (table.rows.length > LEAST_ROWS) {
      const tools = element("div", { class: "tools" }, this.input, this.said);
      this.input.addEventListener("input", () => this.apply(true));
      table.tBodies[0]?.addEventListener("click", (event) => this.select(event));
      (table.closest(".scroll") ?? table).before(tools);
    }
    const columns = this.place.querySelector(".columns");
    const foot = element("div", { class: "foot" });
    if (columns) columns.before(foot);
    else this.place.append(foot);
    foot.append(copyButton("Copy as CSV", () => this.model.csv(this.chosen(), (n) => this.isShown(n))));
    if (columns) foot.append(columns);
  }

  addSorting() {
    for (const [index, heading] of this.model.headings.entries()) {
      const column = this.model.columns[index];
      if (!column) continue;
      const label = button(column.label, () => this.sortBy(column.name), "");
      heading.replaceChildren(label);
    }
  }

  /** The list of columns and their meanings becomes a choice of them. */
  addColumnChoice() {
    const listed = all(this.place, ".columns dt");
    for (const [index, term] of listed.entries()) {
      const box = element("input", { type: "checkbox" });
      box.checked = this.isShown(index);
      box.addEventListener("change", () => this.show(index, box.checked));
      const label = element("label", {}, box, " ");
      label.append(...term.childNodes);
      term.append(label);
    }
    const off = this.model.headings.filter((heading) => heading.classList.contains("off")).length;
    const summary = this.place.querySelector(".columns > summary");
    if (summary && off) summary.textContent = `Columns (${off} not shown)`;
  }

  /** @param {number} index */
  isShown(index) {
    return !this.model.headings[index]?.classList.contains("off");
  }

  /** @param {number} index @param {boolean} shown */
  show(index, shown) {
    this.model.headings[index]?.classList.toggle("off", !shown);
    for (const row of this.model.rows) row.element.cells[index]?.classList.toggle("off", !shown);
  }

  /**
   * Numbers first from the greatest, texts from A; then the other way; then as they were.
   * @param {string} name
   */
  sortBy(name) {
    const first = !this.model.columns[this.model.indexOf(name)]?.isText;
    if (this.order?.name !== name) this.order = { name, descending: first };
    else if (this.order.descending === first) this.order = { name, descending: !first };
    else this.order = null;
    this.apply(true);
  }

  /** Put the rows in order and hide those that the filter leaves out. @param {boolean} byUser */
  apply(byUser) {
    const { model, order } = this;
    const index = order ? model.indexOf(order.name) : -1;
    const rows = order && index >= 0 ? model.sorted(index, order.descending) : model.rows;
    this.ordered = rows;
    const keeps = rowFilter(this.input.value, model);
    for (const row of rows) row.element.hidden = !keeps(row);
    model.table.tBodies[0]?.append(...rows.map((row) => row.element));
    for (const [place, heading] of model.headings.entries()) {
      if (place === index) heading.setAttribute("aria-sort", order?.descending ? "descending" : "ascending");
      else heading.removeAttribute("aria-sort");
    }
    this.sayRows();
    if (byUser) this.changed();
  }

  /** @param {MouseEvent} event */
  select(event) {
    const target = /** @type {Element} */ (event.target);
    if (target.closest("a, button, .elided") || document.getSelection()?.toString()) return;
    target.closest("tr")?.classList.toggle("selected");
    this.sayRows();
  }

  /** The rows that sums and copies are of: those selected, else those that the filter keeps. */
  chosen() {
    const shown = (this.ordered ?? this.model.rows).filter((row) => !row.element.hidden);
    const selected = shown.filter((row) => row.element.classList.contains("selected"));
    return selected.length ? selected : shown;
  }

  sayRows() {
    const rows = this.chosen();
    const selected = rows[0]?.element.classList.contains("selected") ?? false;
    const all_ = this.model.rows.length;
    if (!selected && rows.length === all_) return void (this.said.textContent = "");
    const sums = this.model.sums(rows).map(([column, sum]) => `${column.label.replace(" %", "")} ${quantity(column.name, Number(sum))}`);
    const part = `${count(rows.length)} of ${count(all_)} rows${selected ? " selected" : ""}`;
    this.said.textContent = [part, ...sums].join(" \u00b7 ");
  }

  /** Show a row even where the filter leaves it out. @param {HTMLTableRowElement} row */
  reveal(row) {
    if (!row.hidden) return;
    this.input.value = "";
    this.apply(false);
  }

  /** The state as it stands in an address. */
  state() {
    const find = this.input.value.trim();
    if (!this.order && !find) return "";
    const place = new URLSearchParams({ table: this.place.id });
    if (this.order) place.set("sort", (this.order.descending ? "-" : "") + this.order.name);
    if (find) place.set("find", find);
    return `#${place}`;
  }

  /** @param {URLSearchParams} place */
  restore(place) {
    const sort = place.get("sort") ?? "";
    const name = sort.replace(/^-/, "");
    this.order = this.model.indexOf(name) < 0 ? null : { name, descending: sort.startsWith("-") };
    this.input.value = place.get("find") ?? "";
    this.apply(false);
    this.place.scrollIntoView();
  }
}

/**
 * @param {Document} page
 * @returns {import("./findings.js").Tables}
 */
export function mountTables(page) {
  /** @type {Map<string, LiveTable>} */
  const live = new Map();
  for (const place of all(page, ".table")) {
    const table = place.querySelector("table");
    if (table && place.id) live.set(place.id, new LiveTable(place, table, () => remember(place.id)));
  }
  /** @param {string} id */
  const remember = (id) => history.replaceState(null, "", live.get(id)?.state() || `#${id}`);
  page.addEventListener("click", toggleWhole);
  // The timeline makes tables of its own.
  page.addEventListener("table", ({ target }) => {
    const table = target instanceof HTMLElement && target.querySelector("table");
    if (table) new LiveTable(target, table, () => {});
  });
  const open = () => {
    const place = new URLSearchParams(location.hash.slice(1));
    const table = live.get(place.get("table") ?? "");
    if (!table) return;
    unfold(table.place.querySelector("table") ?? table.place);
    table.restore(place);
  };
  addEventListener("hashchange", open);
  open();
  return {
    reveal(row) {
      unfold(row);
      live.get(row.closest(".table")?.id ?? "")?.reveal(row);
    },
  };
}

/** Open everything that an element is folded into. @param {Element} inner */
function unfold(inner) {
  for (let fold = inner.closest("details"); fold; fold = fold.parentElement?.closest("details") ?? null) {
    fold.open = true;
  }
}

/** A click on a shortened name shows it whole, another one shortens it. @param {MouseEvent} event */
function toggleWhole(event) {
  const name = /** @type {Element} */ (event.target).closest?.(".elided");
  if (!(name instanceof HTMLElement) || document.getSelection()?.toString()) return;
  const shown = name.textContent ?? "";
  name.textContent = name.dataset.other ?? name.title;
  name.dataset.other = shown;
  name.classList.toggle("whole");
}

/** A sum in the unit that its column's name ends in. @param {string} name @param {number} value */
function quantity(name, value) {
  if (/(^|_)ns$/.test(name)) return duration(value);
  if (/(^|_)pct$/.test(name)) return `${value.toFixed(1)} %`;
  return /(^|_)bytes$/.test(name) ? size(value) : count(value);
}
