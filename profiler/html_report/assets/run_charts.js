// The time series of one run: charts above each other with one time axis and one cursor.
// A point is the measurement of the step that ends there. Each measured quantity has a chart.

const hasVcpuSize = (run) => isKnown(run.vcpuSize) && run.vcpuSize > 0;
const ROWS = [
  { id: "cpu", title: "CPU, in vCPU", limit: (run) => (hasVcpuSize(run) ? run.vcpuSize : undefined), show: asVcpu, axis: (top) => plainAxis(top), lines: [{ column: "vcpu", name: "", tone: "cpu" }] },
  { id: "memory", title: "Memory", limit: (run) => run.size, show: asMemory, axis: (top) => memoryAxis(top), lines: [{ column: "mb", name: "", tone: "memory" }] },
  { id: "io", title: "Read and written, in MB/s", show: asRate, axis: (top) => plainAxis(top), lines: [{ column: "read", name: "read", tone: "cpu", gapMs: Infinity }, { column: "written", name: "written", tone: "memory", gapMs: Infinity }] },
  { id: "gpu", title: "GPU utilization, mean of the GPUs", show: asPercent, axis: () => percentAxis(), lines: [{ column: "gpu", name: "GPU", tone: "device", gapMs: 3000 }] },
  { id: "gpu-memory", title: "GPU memory, all GPUs", limit: (run) => total(known(run.gpus ?? [], (gpu) => gpu.size)) || undefined, show: asMemory, axis: (top) => memoryAxis(top), lines: [{ column: "gpuMb", name: "GPU memory", tone: "device", gapMs: 3000 }] },
  { id: "neuron", title: "NeuronCore utilization, mean of the cores", show: asPercent, axis: () => percentAxis(), lines: [{ column: "neuron", name: "NeuronCores", tone: "device" }] },
];
const ROW_HEIGHT = 120, ROW_GAP = 46, CHART_TOP = 44, CHART_BOTTOM = 34;
// The limit is drawn if the highest value reaches this share of it; otherwise the chart would be a flat line.
const NEAR_LIMIT = 0.5;
const MIN_VISIBLE_STEPS = 3;
const TIME_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10e3, 15e3, 30e3, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 20 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR];
const MEMORY_STEPS_MB = [1, 2, 5, 10, 20, 50, 100, 200, 512, 1024, 2048, 5120, 10240, 20480, 51200, 102400];
const rowsOf = (run) => ROWS.filter(({ lines }) => lines.some(({ column }) => run.series?.[column]));
const lengthOf = (run) => Math.max(run.series.ms.at(-1), run.outcome === "running" ? 0 : (run.ms ?? 0), 1);

const plainAxis = (top) => ({ range: [0, top], nticks: 4, tickformat: "~r" });
const percentAxis = () => ({ range: [0, 105], tickvals: [0, 50, 100], ticktext: ["0 %", "50 %", "100 %"] });
function memoryAxis(top) {
  const step = MEMORY_STEPS_MB.find((candidate) => top / candidate <= 4.5) ?? Math.ceil(top / 4 / 102400) * 102400;
  const tickvals = [];
  for (let mb = 0; mb <= top; mb += step) tickvals.push(mb);
  return { range: [0, top], tickvals, ticktext: tickvals.map(asMemory) };
}

function timeTicks([from, until]) {
  const length = until - from;
  const step = TIME_STEPS.find((candidate) => length / candidate <= (isNarrow() ? 4 : 9)) ?? Math.ceil(length / 6 / DAY) * DAY;
  const tickvals = [];
  for (let ms = Math.max(0, Math.ceil(from / step) * step); ms <= until; ms += step) tickvals.push(ms);
  return { tickvals, ticktext: tickvals.map((ms) => (ms ? asElapsed(ms) : "0")) };
}

// "10s", "5m", "1h 30m": without a rest that is zero.
const asElapsed = (ms) => (ms < MINUTE ? asWholeDuration(ms) : asDuration(ms).replace(/ 00[smh]$/, ""));

// Drops unknown values between known ones at most maxGapMs apart, so that the line has no gap there.
function withoutShortGaps(ms, values, maxGapMs) {
  const kept = [];
  let knownMs = 0, unknown = [];
  values.forEach((value, index) => {
    if (!isKnown(value)) { unknown.push(index); return; }
    if (ms[index] - knownMs > maxGapMs) kept.push(...unknown);
    kept.push(index);
    knownMs = ms[index];
    unknown = [];
  });
  kept.push(...unknown);
  return [kept.map((index) => ms[index]), kept.map((index) => values[index])];
}

function lineOf(series, { column, name, tone, gapMs }, yaxis, { pale, fill }) {
  const [ms, values] = gapMs ? withoutShortGaps(series.ms, series[column], gapMs) : [series.ms, series[column]];
  const stroke = pale ? colour("pale") : colour(tone);
  return {
    type: "scatter", mode: "lines", name: pale ? `${name || column} of the other run` : name || column, x: [0, ...ms], y: [values[0], ...values], yaxis, hoverinfo: "skip", connectgaps: false,
    line: { color: stroke, width: pale ? 1.4 : 1.8, shape: "vh" }, ...(fill && !pale ? { fill: "tozeroy", fillcolor: `${stroke}22` } : {}),
  };
}

function highest(run, row) {
  return max(row.lines.flatMap(({ column }) => (run?.series?.[column] ?? []).filter(isKnown))) ?? 0;
}

// A row: its lines, its axis, and its limit as a line or in words.
function rowParts(run, other, row, number, axisName) {
  const limit = row.limit?.(run);
  const peak = row.id === "memory" ? (run.peak ?? 0) : 0;
  const values = Math.max(highest(run, row), highest(other, row), peak);
  const isNear = isKnown(limit) && values >= NEAR_LIMIT * limit;
  const top = Math.max(isNear ? limit : 0, values, row.id === "memory" ? 1 : 0.001) * 1.1;
  const lines = row.lines.filter(({ column }) => run.series[column]);
  const traces = [];
  if (other) traces.push(...row.lines.filter(({ column }) => other.series?.[column]).map((line) => lineOf(other.series, line, axisName, { pale: true })));
  traces.push(...lines.map((line) => lineOf(run.series, line, axisName, { fill: lines.length === 1 })));
  const shapes = [], annotations = [];
  const legend = lines.length > 1 ? lines.map((line) => `<span style="color:${colour(line.tone)}">\u25ac</span> ${line.name}`).join("  ") : "";
  annotations.push({ text: `<b>${row.title}</b>  ${legend}`, x: 0, xref: "paper", y: 1, yref: `${axisName} domain`, yanchor: "bottom", xanchor: "left", yshift: 5, showarrow: false, font: { size: 12.5, color: colour("text") } });
  if (isNear) {
    shapes.push({ type: "line", x0: 0, x1: 1, xref: "paper", y0: limit, y1: limit, yref: axisName, line: { color: colour("oom"), width: 1.3, dash: "dash" } });
    annotations.push({ text: `limit ${row.show(limit)}`, x: 1, xref: "paper", xanchor: "right", xshift: -8, y: limit, yref: axisName, yanchor: "bottom", showarrow: false, font: { size: 11, color: colour("oom") } });
  } else if (isKnown(limit)) {
    annotations.push({ text: `limit ${row.show(limit)}, above the chart`, x: 1, xref: "paper", xanchor: "right", y: 1, yref: `${axisName} domain`, yanchor: "bottom", yshift: 5, showarrow: false, font: { size: 11, color: colour("faint") } });
  }
  return { traces, shapes, annotations, axis: row.axis(top) };
}

// Moments in the chart: all vCPUs in use, idle, and the memory peak.
function momentParts(run, axisOf) {
  const shapes = [], traces = [];
  for (const [kind, start, end] of run.moments ?? []) {
    if (kind === "memory-peak") {
      if (axisOf.memory && isKnown(run.peak)) traces.push({ type: "scatter", mode: "markers", name: "memory peak", x: [start], y: [run.peak], yaxis: axisOf.memory, hoverinfo: "skip", marker: { size: 8, color: colour("memory"), line: { color: colour("panel"), width: 1.5 } } });
    } else if (axisOf.cpu) {
      shapes.push({ type: "rect", name: kind, x0: start, x1: end, xref: "x", y0: 0, y1: 1, yref: `${axisOf.cpu} domain`, layer: "below", line: { width: 0 }, fillcolor: colour(kind === "saturated" ? "failure" : "unknown"), opacity: 0.14 });
    }
  }
  return { shapes, traces };
}

function endText(run) {
  if (run.outcome === "running") return "last checkpoint";
  if (run.outcome === "out of memory") return "killed: out of memory";
  if (run.outcome === "failure") return isKnown(run.exit) ? `failed: exit code ${run.exit}` : "failed";
  return run.outcome === "stopped" ? "stopped" : "end";
}

function markers(run, end) {
  const isBad = isFailed(run);
  const vertical = (ms, tone, width) => ({ type: "line", name: tone, x0: ms, x1: ms, xref: "x", y0: 0, y1: 1, yref: "paper", line: { color: colour(tone), width } });
  const label = (text, ms, xanchor, tone) => ({ text, x: ms, xref: "x", xanchor, y: 1, yref: "paper", yanchor: "bottom", yshift: 24, showarrow: false, font: { size: 11, color: colour(tone) } });
  const endTone = isKilled(run) ? "oom" : isBad ? "failure-text" : "faint";
  return {
    shapes: [vertical(0, "line", 1), vertical(end, isKilled(run) ? "oom" : isBad ? "failure" : "line", isBad ? 2 : 1)],
    annotations: [label("start", 0, "left", "faint"), label(endText(run), end, "right", endTone)],
  };
}

function figureOf(run, other) {
  const rows = rowsOf(run);
  const height = CHART_TOP + CHART_BOTTOM + rows.length * ROW_HEIGHT + (rows.length - 1) * ROW_GAP;
  const inner = height - CHART_TOP - CHART_BOTTOM;
  const end = lengthOf(run);
  const full = [-0.004 * end, Math.max(end, other ? lengthOf(other) : 0) * 1.004];
  const traces = [], shapes = [], annotations = [], axes = {}, axisOf = {};
  rows.forEach((row, number) => {
    const name = number ? `y${number + 1}` : "y";
    axisOf[row.id] = name;
    const parts = rowParts(run, other, row, number, name);
    const top = inner - number * (ROW_HEIGHT + ROW_GAP);
    axes[`yaxis${number ? number + 1 : ""}`] = { ...parts.axis, domain: [Math.max(0, (top - ROW_HEIGHT) / inner), top / inner], fixedrange: true, automargin: true, gridcolor: colour("line"), zeroline: false, linecolor: colour("line") };
    traces.push(...parts.traces); shapes.push(...parts.shapes); annotations.push(...parts.annotations);
  });
  for (const parts of [momentParts(run, axisOf), markers(run, end)]) {
    traces.push(...(parts.traces ?? [])); shapes.push(...parts.shapes); annotations.push(...(parts.annotations ?? []));
  }
  const changed = layout(height, {
    margin: { l: 8, r: 14, t: CHART_TOP, b: CHART_BOTTOM }, showlegend: false, hovermode: false, dragmode: isNarrow() ? false : "zoom", shapes, annotations,
    xaxis: { range: [...full], ...timeTicks(full), tickangle: 0, fixedrange: isNarrow(), anchor: `y${rows.length > 1 ? rows.length : ""}`, zeroline: false, showgrid: true },
  });
  return { traces, layout: { ...changed, ...axes }, full, end };
}

// What was measured at a time: [text of the row, …], with the other run's value where there is one.
function readingsAt(run, other, ms) {
  const stepAt = (series) => series.ms.findIndex((end) => end >= ms);
  const texts = [];
  for (const row of rowsOf(run)) {
    for (const { column, name } of row.lines.filter((line) => run.series[line.column])) {
      const value = run.series[column][stepAt(run.series)];
      const otherValue = other?.series?.[column]?.[stepAt(other.series)];
      texts.push(`${name ? `${name} ` : ""}${isKnown(value) ? row.show(value) : "not measured"}${isKnown(otherValue) ? ` (${row.show(otherValue)})` : ""}`);
    }
  }
  return texts;
}

class RunChart {
  constructor(run, other) {
    this.run = run;
    this.other = other;
    this.readout = element("p", { className: "readout" });
    this.plot = element("div", { className: "chart", id: "run-plot" });
    this.line = element("div", { className: "cursor", hidden: true });
    this.place = element("div", { className: "run-plot", tabIndex: 0, attributes: { role: "slider", "aria-label": "Time in the run. Arrow keys move the cursor, plus and minus zoom, 0 shows the whole run.", "aria-valuemin": "0" } }, this.plot, this.line);
    const zoom = (text, name, act) => button(text, act, { attributes: { "aria-label": name, title: name } });
    this.controls = element("div", { className: "controls" },
      zoom("Whole run", "Show the whole run", () => this.show(this.full)), zoom("+", "Zoom in", () => this.zoom(0.5)), zoom("−", "Zoom out", () => this.zoom(2)),
      zoom("←", "Earlier", () => this.pan(-0.5)), zoom("→", "Later", () => this.pan(0.5)));
    this.elements = [element("div", { className: "plot-head" }, this.controls, this.readout), this.place];
  }

  draw() {
    const figure = figureOf(this.run, this.other);
    this.full = figure.full;
    this.range = [...figure.full];
    this.place.setAttribute("aria-valuemax", String(Math.round(figure.end)));
    charts.add(this.plot);
    this.plot.style.minHeight = `${figure.layout.height}px`;
    const drawn = Plotly.react(this.plot, figure.traces, figure.layout, { ...CONFIG, doubleClick: false });
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
    const from = changes["xaxis.range[0]"], until = changes["xaxis.range[1]"];
    if (isKnown(from) && isKnown(until)) this.show([from, until]);
  }

  show([from, until]) {
    const shortest = MIN_VISIBLE_STEPS * Math.max(this.run.series.ms[0], 1);
    const length = Math.min(Math.max(until - from, shortest), this.full[1] - this.full[0]);
    const start = Math.min(Math.max((from + until - length) / 2, this.full[0]), this.full[1] - length);
    this.range = [start, start + length];
    this.setCursor(this.cursorMs);
    const { tickvals, ticktext } = timeTicks(this.range);
    return Plotly.relayout(this.plot, { "xaxis.range": [...this.range], "xaxis.tickvals": tickvals, "xaxis.ticktext": ticktext }).then(() => this.setCursor(this.cursorMs));
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
    const left = event.clientX - this.plot.getBoundingClientRect().left - axis._offset;
    this.setCursor(left >= 0 && left <= axis._length ? axis.p2d(left) : undefined);
  }

  onKey(event) {
    const step = this.run.series.ms[0];
    const at = this.cursorMs ?? 0;
    const jumps = { ArrowLeft: at - step, ArrowRight: at + step, PageUp: at - 10 * step, PageDown: at + 10 * step, Home: 0, End: lengthOf(this.run) };
    const acts = { "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.show(this.full) };
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
    const hint = isNarrow() ? "Touch a chart to read its values." : "Point at a chart to read its values; drag to zoom, double-click for the whole run.";
    const text = isKnown(this.cursorMs) ? `+${asDuration(this.cursorMs)}: ${readingsAt(this.run, this.other, this.cursorMs).join(", ")}` : "";
    this.readout.textContent = text || hint;
    this.place.setAttribute("aria-valuenow", String(Math.round(this.cursorMs ?? 0)));
    this.place.setAttribute("aria-valuetext", text || "no time selected");
  }

  remove() {
    if (charts.delete(this.plot)) Plotly.purge(this.plot);
  }
}
