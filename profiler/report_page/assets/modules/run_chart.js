// The time series of one run with zoom and one cursor, by mouse, touch and keyboard.

import { drawPlot, isNarrow } from "#page/charts.js";
import { button, element } from "#page/elements.js";
import { asClock, asMoment, escapeControls, isKnown } from "#page/formats.js";
import { OverviewStrip } from "#page/overview_strip.js";
import { RunCard } from "#page/run_card.js";
import { lengthOf, runFigure, timeTicks, wholeRange } from "#page/run_figure.js";
import { processesAt, readingsAt } from "#page/run_rows.js";

const MIN_VISIBLE_STEPS = 3;
const PAGE_STEPS = 10;
const asSentence = ({ name, texts }) => `${escapeControls(name)} ${texts.join(", ")}`;
const asReading = ({ name, texts: [text, other] }) => `${name} ${text}${other ? ` (${other})` : ""}`;

// The commands in the colours of their layers.
function legendOf(run) {
  const processes = processesAt(run, 0);
  if (!processes.length) return [];
  return [
    element(
      "ul",
      { className: "legend", attributes: { "aria-label": "Processes" } },
      ...processes.map(({ name, tone }) =>
        element("li", {
          textContent: escapeControls(name),
          title: escapeControls(name),
          style: { "--part": `var(--${tone})` },
        }),
      ),
    ),
  ];
}

const shortestStep = (ms) => ms.reduce((shortest, end, at) => Math.min(shortest, end - (ms[at - 1] ?? 0)), Infinity);

export class RunChart {
  /** `range` is the part to show first, undefined for the whole run. */
  constructor(run, other, range) {
    Object.assign(this, { run, other });
    const end = lengthOf(run);
    this.full = wholeRange(run);
    this.range = [...(range ?? this.full)];
    this.shortest = Math.min(MIN_VISIBLE_STEPS * Math.max(shortestStep(run.series.ms), 1), end);
    this.onShow = () => {};
    this.card = new RunCard();
    this.shown = element("p", { className: "note shown", attributes: { role: "status" } });
    this.plot = element("div", { className: "chart", id: "run-plot" });
    this.line = element("div", { className: "cursor", hidden: true });
    this.place = element(
      "div",
      {
        className: "run-plot",
        tabIndex: 0,
        attributes: {
          role: "slider",
          "aria-label": "Time in the run. Arrow keys move the cursor, plus and minus zoom, 0 shows the whole run.",
          "aria-valuemin": "0",
          "aria-valuemax": String(Math.round(end)),
        },
      },
      this.plot,
      this.line,
      this.card.element,
    );
    this.strip = new OverviewStrip(run.series, {
      full: this.full,
      end,
      shortest: this.shortest,
      nameOf: (ms) => this.momentText(ms),
      onChange: (wanted, isFinal) => this.show(wanted, isFinal),
    });
    const zoom = (text, name, act) => button(text, act, { attributes: { "aria-label": name, title: name } });
    const controls = element(
      "div",
      { className: "controls" },
      zoom("Whole run", "Show the whole run", () => this.show(this.full)),
      zoom("+", "Zoom in", () => this.zoom(0.5)),
      zoom("−", "Zoom out", () => this.zoom(2)),
      zoom("←", "Earlier", () => this.pan(-0.5)),
      zoom("→", "Later", () => this.pan(0.5)),
    );
    this.elements = [
      element("div", { className: "plot-head" }, controls, this.shown),
      this.strip.element,
      this.place,
      ...legendOf(run),
    ];
  }
  /** The shown part; undefined for the whole run. */
  get zoomed() {
    return this.range[1] - this.range[0] < this.full[1] - this.full[0] ? this.range : undefined;
  }
  draw() {
    const { traces, layout } = runFigure(this.run, this.other, this.range);
    const drawn = drawPlot(this.plot, traces, layout);
    this.plot.on("plotly_relayout", (changes) => this.onRelayout(changes));
    this.plot.on("plotly_doubleclick", () => this.show(this.full));
    this.plot.on("plotly_afterplot", () => this.align());
    this.place.onpointermove = (event) => this.moveTo(event);
    this.place.onpointerdown = (event) => this.moveTo(event);
    this.place.onpointerleave = (event) => {
      if (event.pointerType !== "touch") this.setCursor(undefined); // a lifted finger leaves the card
    };
    this.place.onblur = () => this.setCursor(undefined);
    this.place.onkeydown = (event) => this.onKey(event);
    this.align();
    this.showRange();
    this.onShow(this.zoomed);
    return drawn;
  }
  // The strip is as wide as the charts.
  align() {
    const axis = this.plot._fullLayout?.xaxis;
    if (!axis) return;
    this.strip.element.style.marginLeft = `${axis._offset}px`;
    this.strip.element.style.width = `${axis._length}px`;
    this.setCursor(this.cursorMs);
  }
  onRelayout(changes) {
    const from = changes["xaxis.range[0]"];
    const until = changes["xaxis.range[1]"];
    if (isKnown(from) && isKnown(until)) this.show([from, until]);
  }
  /** Shows a part. While it is dragged (not `isFinal`), only the charts follow. */
  show([from, until], isFinal = true) {
    const length = Math.min(Math.max(until - from, this.shortest), this.full[1] - this.full[0]);
    const start = Math.min(Math.max((from + until - length) / 2, this.full[0]), this.full[1] - length);
    this.range = [start, start + length];
    if (isFinal) this.onShow(this.zoomed);
    this.showRange();
    const { tickvals, ticktext } = timeTicks(this.range);
    return Plotly.relayout(this.plot, {
      "xaxis.range": [...this.range],
      "xaxis.tickvals": tickvals,
      "xaxis.ticktext": ticktext,
    });
  }
  showRange() {
    this.strip.set(this.range);
    const [from, until] = this.range.map((ms) => Math.min(Math.max(ms, 0), lengthOf(this.run)));
    const hint = isNarrow()
      ? "Touch a chart to read its values."
      : "Point at a chart to read its values; drag to zoom.";
    this.shown.textContent = this.zoomed ? `Shown: ${this.momentText(from)} to ${this.momentText(until)}` : hint;
  }
  zoom(factor) {
    const centre = this.cursorMs ?? (this.range[0] + this.range[1]) / 2;
    this.show(this.range.map((ms) => centre + (ms - centre) * factor));
  }
  pan(share) {
    const by = share * (this.range[1] - this.range[0]);
    this.show(this.range.map((ms) => ms + by));
  }
  moveTo(event) {
    const axis = this.plot._fullLayout?.xaxis;
    if (!axis) return;
    const box = this.plot.getBoundingClientRect();
    const left = event.clientX - box.left - axis._offset;
    this.pointerTop = event.clientY - box.top;
    this.setCursor(left >= 0 && left <= axis._length ? axis.p2d(left) : undefined);
  }
  onKey(event) {
    if (event.key === "Escape" && !this.zoomed) return; // then it closes the dialog
    const act = {
      "+": () => this.zoom(0.5),
      "=": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      0: () => this.show(this.full),
      Escape: () => this.show(this.full),
    }[event.key];
    const ms = this.timeAfter(event.key);
    if (act) act();
    else if (isKnown(ms)) {
      this.mark(ms);
      if (ms < this.range[0] || ms > this.range[1]) {
        const half = (this.range[1] - this.range[0]) / 2;
        this.show([ms - half, ms + half]);
      }
    } else return;
    event.preventDefault();
  }
  /** Moves the cursor without a pointer. The card is where the reader sees a whole chart, if there is one. */
  mark(ms) {
    this.pointerTop = undefined;
    this.setCursor(ms);
  }
  // Where a key moves the cursor to: the end of another step, or an end of the run.
  timeAfter(key) {
    const ends = [0, ...this.run.series.ms];
    const at = this.cursorMs ?? Math.max(this.range[0], 0);
    const next = ends.filter((end) => end <= at).length;
    const before = ends.filter((end) => end < at).length - 1;
    const stepAt = (index) => Math.min(ends[Math.min(Math.max(index, 0), ends.length - 1)], lengthOf(this.run));
    return {
      ArrowLeft: stepAt(before),
      ArrowRight: stepAt(next),
      PageUp: stepAt(before - PAGE_STEPS + 1),
      PageDown: stepAt(next + PAGE_STEPS - 1),
      Home: 0,
      End: lengthOf(this.run),
    }[key];
  }
  setCursor(ms) {
    this.cursorMs = isKnown(ms) ? Math.min(Math.max(ms, 0), lengthOf(this.run)) : undefined;
    const axis = this.plot._fullLayout?.xaxis;
    const isInside = isKnown(this.cursorMs) && axis && this.cursorMs >= this.range[0] && this.cursorMs <= this.range[1];
    this.line.hidden = !isInside;
    if (isInside) this.line.style.left = `${axis._offset + axis.d2p(this.cursorMs)}px`;
    this.place.setAttribute("aria-valuenow", String(Math.round(this.cursorMs ?? 0)));
    this.place.setAttribute("aria-valuetext", this.showValues(isInside));
  }
  // The card, and the same as a sentence.
  showValues(isInside) {
    this.card.hide();
    if (!isKnown(this.cursorMs)) return "no time selected";
    const readings = readingsAt(this.run, this.other, this.cursorMs);
    const processes = processesAt(this.run, this.cursorMs);
    const title = [this.momentText(this.cursorMs), this.clockText()].filter(Boolean).join(", ");
    const at = this.surroundings();
    if (isInside && at.chart) this.card.show(title, { readings, processes, hasOther: Boolean(this.other) }, at);
    return `${title}: ${[readings.map(asReading).join(", "), ...processes.map(asSentence)].filter(Boolean).join("; ")}`;
  }
  surroundings() {
    const { top } = this.plot.getBoundingClientRect();
    const axes = Object.entries(this.plot._fullLayout).filter(([name]) => name.startsWith("yaxis"));
    const charts = axes.map(([, axis]) => ({ top: axis._offset - 24, bottom: axis._offset + axis._length + 4 }));
    const aimed = isKnown(this.pointerTop)
      ? (charts.find(({ bottom }) => bottom >= this.pointerTop) ?? charts.at(-1))
      : charts.find((chart) => chart.top >= -top && chart.bottom <= window.innerHeight - top);
    return {
      line: this.line.offsetLeft,
      pointerTop: this.pointerTop,
      chart: aimed,
      place: { width: this.place.clientWidth, height: this.place.clientHeight },
      view: { top: -top, bottom: window.innerHeight - top },
    };
  }
  // The length of the step at a time says how exact the time is.
  stepMsAt(ms) {
    const { ms: ends } = this.run.series;
    const at = Math.max(
      ends.findIndex((end) => end >= ms),
      0,
    );
    return ends[at] - (ends[at - 1] ?? 0);
  }
  momentText(ms) {
    return `+${asMoment(ms, this.stepMsAt(ms))}`;
  }
  clockText() {
    const { began, startUnknown } = this.run;
    if (!isKnown(began) || startUnknown) return "";
    const stepMs = this.stepMsAt(this.cursorMs);
    // The time since the start is rounded, too: else the clock would be a second behind it.
    const ms = stepMs >= 1000 ? 1000 * Math.round(this.cursorMs / 1000) : this.cursorMs;
    return asClock(began + ms, stepMs);
  }
  remove() {
    Plotly.purge(this.plot);
  }
}
