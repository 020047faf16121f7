// The course of a whole run above its charts, with a window for the part that they show: to drag, to resize, and to
// open anew.

import { element, svgElement } from "#page/elements.js";
import { isKnown } from "#page/formats.js";
import { known, max } from "#page/statistics.js";

const CLICK_PX = 4;
// The first two that a run has are drawn, the first one as an area.
const COLUMNS = ["vcpu", "mb", "gpu", "neuron", "read", "written"];
const KEY_SHARES = { ArrowLeft: -0.01, ArrowRight: 0.01, PageUp: -0.1, PageDown: 0.1, Home: -1, End: 1 };

/** Returns the path of a column in a square of 100: steps, with a gap where nothing was measured. */
export function coursePath(ms, values, [from, until], { isArea = false } = {}) {
  const highest = max(known(values, (value) => value)) || 1;
  const across = (time) => +((100 * (time - from)) / (until - from)).toFixed(2);
  const upwards = (value) => +(96 - (92 * value) / highest).toFixed(2);
  let path = "";
  let isOpen = false;
  const close = (time) => {
    if (isOpen && isArea) path += `V100H${across(time)}`;
    isOpen = false;
  };
  let openedAt = 0;
  values.forEach((value, at) => {
    const start = at ? ms[at - 1] : 0;
    if (!isKnown(value)) {
      close(openedAt);
      return;
    }
    if (!isOpen) openedAt = start;
    path += isOpen ? `V${upwards(value)}` : `M${across(start)} ${upwards(value)}`;
    path += `H${across(ms[at])}`;
    isOpen = true;
  });
  close(openedAt);
  return path;
}

export class OverviewStrip {
  /**
   * `end` is the length of the run, `nameOf(ms)` a time as text. `onChange(range, isFinal)` is called while the window
   * is dragged, and at the end.
   */
  constructor(series, { full, end, shortest, nameOf, onChange }) {
    Object.assign(this, { full, end, shortest, nameOf, onChange, range: full });
    const svg = svgElement("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" });
    for (const column of COLUMNS.filter((name) => series[name]?.some(isKnown)).slice(0, 2)) {
      const isArea = !svg.childElementCount;
      const d = coursePath(series.ms, series[column], full, { isArea });
      svg.append(svgElement("path", { d, class: isArea ? `area ${column}` : column }));
    }
    this.window = element("div", { className: "window" });
    this.handles = ["Start", "End"].map((name, at) =>
      element("div", {
        className: "handle",
        tabIndex: 0,
        onkeydown: (event) => this.onKey(event, at),
        attributes: { role: "slider", "aria-label": `${name} of the shown part`, "aria-valuemin": "0" },
      }),
    );
    this.element = element(
      "div",
      {
        className: "strip",
        ondblclick: () => this.change(this.full, true),
        onkeydown: (event) => this.onEscape(event),
        onpointerdown: (event) => this.onDown(event),
        onpointermove: (event) => this.onMove(event),
        onpointerup: (event) => this.onUp(event),
        onpointercancel: (event) => this.onUp(event),
        title: "The whole run. Drag to show a part, double-click to show all.",
        attributes: { role: "group", "aria-label": "The whole run, and the part that the charts show" },
      },
      svg,
      this.window,
      ...this.handles,
    );
    this.set(full);
  }
  get isWhole() {
    return this.range[0] <= this.full[0] && this.range[1] >= this.full[1];
  }
  /** Draws the window of a range. */
  set(range) {
    this.range = [...range];
    const length = this.full[1] - this.full[0];
    const shares = range.map((ms) => `${(100 * (ms - this.full[0])) / length}%`);
    this.element.style.setProperty("--from", shares[0]);
    this.element.style.setProperty("--until", shares[1]);
    this.element.classList.toggle("whole", this.isWhole);
    this.handles.forEach((handle, at) => {
      const ms = Math.min(Math.max(range[at], 0), this.end);
      handle.setAttribute("aria-valuemax", String(Math.round(this.end)));
      handle.setAttribute("aria-valuenow", String(Math.round(ms)));
      handle.setAttribute("aria-valuetext", this.nameOf(ms));
    });
  }
  change(range, isFinal) {
    this.set(range);
    cancelAnimationFrame(this.frame);
    if (isFinal) this.onChange(range, true);
    else this.frame = requestAnimationFrame(() => this.onChange(range, false));
  }
  /** Moves a side of the window, which keeps its shortest length. */
  withSide(side, ms, [from, until] = this.range) {
    return side === 0
      ? [Math.min(Math.max(ms, this.full[0]), until - this.shortest), until]
      : [from, Math.max(Math.min(ms, this.full[1]), from + this.shortest)];
  }
  timeAt(event) {
    const { left, width } = this.element.getBoundingClientRect();
    const share = Math.min(Math.max((event.clientX - left) / width, 0), 1);
    return this.full[0] + share * (this.full[1] - this.full[0]);
  }
  onDown(event) {
    if (event.button !== 0) return;
    const ms = this.timeAt(event);
    const isInside = !this.isWhole && ms > this.range[0] && ms < this.range[1];
    const side = this.handles.indexOf(event.target);
    this.drag = { side, isInside, ms, x: event.clientX, range: this.range, isMoved: false };
    this.element.setPointerCapture(event.pointerId);
  }
  onMove(event) {
    if (!this.drag) return;
    this.drag.isMoved ||= Math.abs(event.clientX - this.drag.x) >= CLICK_PX;
    if (this.drag.isMoved) this.change(this.draggedTo(this.timeAt(event)), false);
  }
  draggedTo(ms) {
    const { side, isInside, ms: start, range } = this.drag;
    if (side >= 0) return this.withSide(side, ms, range);
    if (isInside) {
      const by = Math.min(Math.max(ms - start, this.full[0] - range[0]), this.full[1] - range[1]);
      return range.map((one) => one + by);
    }
    return ms < start ? this.withSide(0, ms, [ms, start]) : this.withSide(1, ms, [start, ms]);
  }
  onUp(event) {
    const { drag } = this;
    this.drag = undefined;
    if (!drag) return;
    this.element.releasePointerCapture(event.pointerId);
    if (drag.isMoved) this.change(this.range, true);
  }
  onEscape(event) {
    if (event.key !== "Escape" || this.isWhole) return; // then it closes the dialog
    this.change(this.full, true);
    event.preventDefault();
  }
  onKey(event, side) {
    const share = KEY_SHARES[event.key];
    if (!share) return;
    this.change(this.withSide(side, this.range[side] + share * (this.full[1] - this.full[0])), true);
    event.preventDefault();
  }
}
