// The time series of one run with zoom and one cursor, by mouse, touch and keyboard.

import { drawPlot, isNarrow, removePlot } from "#page/charts.js";
import { button, element } from "#page/elements.js";
import { asClock, asMoment, escapeControls, isKnown } from "#page/formats.js";
import { lengthOf, processesAt, readingsAt, runFigure, timeTicks } from "#page/run_figure.js";

const MIN_VISIBLE_STEPS = 3;
const asSentence = ({ command, texts }) => `${escapeControls(command)} ${texts.join(", ")}`;

// The commands in the colours of their layers.
function legendOf(run) {
  const processes = processesAt(run, 0);
  if (!processes.length) return [];
  return [
    element(
      "ul",
      { className: "legend", attributes: { "aria-label": "Processes" } },
      ...processes.map(({ command, tone }) =>
        element("li", {
          textContent: escapeControls(command),
          title: escapeControls(command),
          style: { "--part": `var(--${tone})` },
        }),
      ),
    ),
  ];
}

export class RunChart {
  constructor(run, other) {
    this.run = run;
    this.other = other;
    this.stepMs = run.series.ms[0];
    this.onShow = () => {};
    this.card = element("div", { className: "card", hidden: true, attributes: { "aria-hidden": "true" } });
    this.readout = element("p", { className: "readout" });
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
        },
      },
      this.plot,
      this.line,
      this.card,
    );
    const zoom = (text, name, act) => button(text, act, { attributes: { "aria-label": name, title: name } });
    this.controls = element(
      "div",
      { className: "controls" },
      zoom("Whole run", "Show the whole run", () => this.show(this.full)),
      zoom("+", "Zoom in", () => this.zoom(0.5)),
      zoom("−", "Zoom out", () => this.zoom(2)),
      zoom("←", "Earlier", () => this.pan(-0.5)),
      zoom("→", "Later", () => this.pan(0.5)),
    );
    this.elements = [
      element("div", { className: "plot-head" }, this.controls, this.readout),
      this.place,
      ...legendOf(run),
    ];
  }
  draw() {
    const figure = runFigure(this.run, this.other);
    this.full = figure.full;
    this.range = [...figure.full];
    this.place.setAttribute("aria-valuemax", String(Math.round(figure.end)));
    const drawn = drawPlot(this.plot, figure.traces, figure.layout, { doubleClick: false });
    this.plot.on("plotly_relayout", (changes) => this.onRelayout(changes));
    this.plot.on("plotly_doubleclick", () => this.show(this.full));
    this.place.onpointermove = (event) => this.moveTo(event);
    this.place.onpointerdown = (event) => this.moveTo(event);
    this.place.onpointerleave = () => this.setCursor(undefined);
    this.place.onkeydown = (event) => this.onKey(event);
    this.setCursor(undefined);
    return drawn;
  }
  onRelayout(changes) {
    const from = changes["xaxis.range[0]"];
    const until = changes["xaxis.range[1]"];
    if (isKnown(from) && isKnown(until)) this.show([from, until]);
  }
  show([from, until]) {
    const shortest = MIN_VISIBLE_STEPS * Math.max(this.stepMs, 1);
    const length = Math.min(Math.max(until - from, shortest), this.full[1] - this.full[0]);
    const start = Math.min(Math.max((from + until - length) / 2, this.full[0]), this.full[1] - length);
    this.range = [start, start + length];
    this.setCursor(this.cursorMs);
    this.onShow(length < this.full[1] - this.full[0] ? this.range : undefined);
    const { tickvals, ticktext } = timeTicks(this.range);
    return Plotly.relayout(this.plot, {
      "xaxis.range": [...this.range],
      "xaxis.tickvals": tickvals,
      "xaxis.ticktext": ticktext,
    }).then(() => this.setCursor(this.cursorMs));
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
    const step = this.stepMs;
    const at = this.cursorMs ?? 0;
    const jumps = {
      ArrowLeft: at - step,
      ArrowRight: at + step,
      PageUp: at - 10 * step,
      PageDown: at + 10 * step,
      Home: 0,
      End: lengthOf(this.run),
    };
    const acts = {
      "+": () => this.zoom(0.5),
      "=": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      0: () => this.show(this.full),
    };
    if (event.key in acts) acts[event.key]();
    else if (event.key in jumps) {
      this.setCursor(Math.min(Math.max(jumps[event.key], 0), lengthOf(this.run)));
      if (this.cursorMs < this.range[0] || this.cursorMs > this.range[1]) {
        const half = (this.range[1] - this.range[0]) / 2;
        this.show([this.cursorMs - half, this.cursorMs + half]);
      }
    } else return;
    event.preventDefault();
  }
  setCursor(ms) {
    this.cursorMs = isKnown(ms) ? Math.min(Math.max(ms, 0), this.full[1]) : undefined;
    const axis = this.plot._fullLayout?.xaxis;
    const isInside = isKnown(this.cursorMs) && axis && this.cursorMs >= this.range[0] && this.cursorMs <= this.range[1];
    this.line.hidden = !isInside;
    if (isInside) this.line.style.left = `${axis._offset + axis.d2p(this.cursorMs)}px`;
    const hint = isNarrow()
      ? "Touch a chart to read its values."
      : "Point at a chart to read its values; drag to zoom, double-click for the whole run.";
    const text = isKnown(this.cursorMs)
      ? `${this.momentText()}: ${readingsAt(this.run, this.other, this.cursorMs).join(", ")}`
      : "";
    this.readout.textContent = text || hint;
    const processes = isKnown(this.cursorMs) ? processesAt(this.run, this.cursorMs) : [];
    this.showCard(isInside ? processes : []);
    this.place.setAttribute("aria-valuenow", String(Math.round(this.cursorMs ?? 0)));
    this.place.setAttribute(
      "aria-valuetext",
      [text, ...processes.map(asSentence)].filter(Boolean).join("; ") || "no time selected",
    );
  }
  momentText() {
    return `+${asMoment(this.cursorMs, this.stepMs)}`;
  }
  // What the processes used at the cursor, on the side of it that has more room.
  showCard(processes) {
    this.card.hidden = !processes.length;
    if (!processes.length) return;
    const clock = isKnown(this.run.began) ? ` (${asClock(this.run.began + this.cursorMs, this.stepMs)})` : "";
    this.card.replaceChildren(
      element("b", { textContent: `${this.momentText()}${clock}` }),
      element(
        "div",
        {},
        ...processes.map(({ command, tone, texts }) =>
          element(
            "p",
            { style: { "--part": `var(--${tone})` } },
            element("span", { textContent: escapeControls(command) }),
            ...texts.map((textContent) => element("span", { textContent })),
          ),
        ),
      ),
    );
    const { offsetLeft } = this.line;
    const free = this.place.clientWidth - this.card.offsetWidth;
    const left = offsetLeft < this.place.clientWidth / 2 ? offsetLeft + 12 : offsetLeft - 12 - this.card.offsetWidth;
    this.card.style.left = `${Math.max(Math.min(left, free), 0)}px`;
    const lowest = Math.max(this.place.clientHeight - this.card.offsetHeight - 8, 0);
    this.card.style.top = `${Math.min(Math.max((this.pointerTop ?? 0) - 20, 8), lowest)}px`;
  }
  remove() {
    removePlot(this.plot);
  }
}
