/** Notes at times of the recording. A copy of the page that a reader saves holds them. */

import { button, element } from "../elements.js";

/** In ns from the start of the timeline. @typedef {{at: number, text: string}} Note */

const MOST_LETTERS = 300;
const PLACE = /(<script type="application\/json" id="timeline-notes">)[^<]*/;
const kept = document.getElementById("timeline-notes");
/** The page as it was opened: the scripts, all in the one element that runs now, change what the document holds. */
const source = kept ? document.documentElement.outerHTML : "";

export class Notes {
  /**
   * @param {HTMLElement} within
   * @param {(ns: number) => string} moment a time in words
   * @param {{go: (note: Note) => void, change: (notes: Note[]) => void}} acts
   */
  constructor(within, moment, acts) {
    this.within = within;
    this.moment = moment;
    this.acts = acts;
    /** @type {Note[]} */
    this.all = JSON.parse(kept?.textContent ?? "[]");
    this.saved = JSON.stringify(this.all);
    /** @type {HTMLFormElement[]} */
    this.asked = [];
    addEventListener("beforeunload", (event) => void (JSON.stringify(this.all) !== this.saved && event.preventDefault()));
    this.show();
  }

  /** Ask for the text of a note. What was typed for another time stays. @param {number} at */
  ask(at) {
    if (!source) return;
    const input = element("input", { maxlength: String(MOST_LETTERS), placeholder: `Note at ${this.moment(at)}`, "aria-label": "Text of the note" });
    const form = element("form", {}, input, element("button", { class: "tool" }, "Add note"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.asked = [];
      if (input.value.trim()) this.all.push({ at: Math.round(at), text: input.value.trim() });
      this.all.sort((a, b) => a.at - b.at);
      this.show();
    });
    input.value = this.within.querySelector("input")?.value ?? "";
    this.asked = [form];
    this.show();
    input.focus();
  }

  show() {
    const rows = this.all.map((note) => {
      const remove = button("\u00d7", () => {
        this.all = this.all.filter((each) => each !== note);
        this.show();
      }, "link");
      remove.setAttribute("aria-label", `Remove the note ${note.text}`);
      return element("li", {}, button(this.moment(note.at), () => this.acts.go(note), "link"), ` ${note.text} `, remove);
    });
    const save = button("Save page with notes", () => this.save());
    save.title = "Notes are lost unless the page is saved";
    this.within.replaceChildren(...this.asked, ...(rows.length ? [element("ul", {}, ...rows), save] : []));
    this.acts.change(this.all);
  }

  save() {
    this.saved = JSON.stringify(this.all);
    const notes = this.saved.replaceAll("<", "\\u003c");
    const page = `<!doctype html>\n${source.replace(PLACE, (_, start) => start + notes)}`;
    const link = element("a", { download: decodeURIComponent(location.pathname.split("/").pop() || "report.html") });
    link.href = URL.createObjectURL(new Blob([page], { type: "text/html" }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }
}
