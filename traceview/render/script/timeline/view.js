/** The window of time that is shown, and where times lie on the canvas. */

const LEAST_NS = 50;
const MARGIN = 0.02;

export class View {
  /** @param {number} end of the recording */
  constructor(end) {
    this.end = Math.max(end, LEAST_NS);
    this.from = 0;
    this.to = this.end;
    /** What can be shown; two timelines side by side show what either has. */
    this.first = 0;
    this.last = this.end;
    /** Where the lanes begin and end, in CSS pixels. */
    this.left = 0;
    this.right = 1;
  }

  get span() {
    return this.to - this.from;
  }

  get nsPerPixel() {
    return this.span / Math.max(this.right - this.left, 1);
  }

  /** @param {number} time */
  x(time) {
    return this.left + (time - this.from) / this.nsPerPixel;
  }

  /** @param {number} x */
  time(x) {
    return this.from + (x - this.left) * this.nsPerPixel;
  }

  /** Show a window, as near as the bounds allow. @param {number} from @param {number} to */
  show(from, to) {
    const margin = MARGIN * (this.last - this.first);
    const span = Math.min(Math.max(to - from, LEAST_NS), this.last - this.first + 2 * margin);
    const middle = (from + to) / 2;
    const first = Math.min(Math.max(middle - span / 2, this.first - margin), this.last + margin - span);
    this.from = first;
    this.to = first + span;
  }

  /** @param {number} factor below 1 to zoom in @param {number} at the time that stays in place */
  zoom(factor, at = (this.from + this.to) / 2) {
    const span = Math.min(Math.max(this.span * factor, LEAST_NS), (this.last - this.first) * (1 + 2 * MARGIN));
    const share = (at - this.from) / this.span;
    this.show(at - share * span, at + (1 - share) * span);
  }

  /** @param {number} ns */
  pan(ns) {
    this.show(this.from + ns, this.to + ns);
  }
}
