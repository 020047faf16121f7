// The time series of one run as a figure: charts one above the other with one time axis. A point is the measurement
// of the step that ends there. Each measured quantity has a chart.

import { chartLayout, isNarrow } from "#page/charts.js";
import {
  asDuration,
  asMemory,
  asPercent,
  asRate,
  asVcpu,
  asVcpuCount,
  asWholeDuration,
  isKnown,
} from "#page/formats.js";
import { isFailed, isKilled } from "#page/outcomes.js";
import { layerTones, outlineOf, stackColumns } from "#page/process_layers.js";
import { known, max, total } from "#page/statistics.js";
import { colour, isOnPaper } from "#page/theme.js";
import { DAY, HOUR, MINUTE } from "#page/time_units.js";

const hasVcpuSize = (run) => isKnown(run.vcpuSize) && run.vcpuSize > 0;

const ROWS = [
  {
    id: "cpu",
    title: "CPU, in vCPU",
    limit: (run) => (hasVcpuSize(run) ? run.vcpuSize : undefined),
    show: asVcpu,
    axis: (top) => plainAxis(top),
    lines: [{ column: "vcpu", name: "", tone: "cpu" }],
  },
  {
    id: "memory",
    title: "Memory",
    limit: (run) => run.size,
    show: asMemory,
    axis: (top) => memoryAxis(top),
    lines: [{ column: "mb", name: "", tone: "memory" }],
  },
  {
    id: "io",
    title: "Read and written, in MB/s",
    show: asRate,
    axis: (top) => plainAxis(top),
    lines: [
      { column: "read", name: "read", tone: "cpu", gapMs: Infinity },
      { column: "written", name: "written", tone: "memory", gapMs: Infinity },
    ],
  },
  {
    id: "gpu",
    title: "GPU utilization, mean of the GPUs",
    show: asPercent,
    axis: () => percentAxis(),
    lines: [{ column: "gpu", name: "GPU", tone: "device", gapMs: 3000 }],
  },
  {
    id: "gpu-memory",
    title: "GPU memory, all GPUs",
    limit: (run) => total(known(run.gpus ?? [], (gpu) => gpu.size)) || undefined,
    show: asMemory,
    axis: (top) => memoryAxis(top),
    lines: [{ column: "gpuMb", name: "GPU memory", tone: "device", gapMs: 3000 }],
  },
  {
    id: "neuron",
    title: "NeuronCore utilization, mean of the cores",
    show: asPercent,
    axis: () => percentAxis(),
    lines: [{ column: "neuron", name: "NeuronCores", tone: "device" }],
  },
  {
    id: "wait",
    title: "Threads waiting for a CPU",
    seriesOf: (run) => run?.activity,
    show: (count) => `${asVcpuCount(count)} waiting for a CPU`,
    axis: (top) => plainAxis(top),
    lines: [{ column: "wait", name: "", tone: "failure" }],
  },
  {
    id: "processes-cpu",
    title: "CPU by process, in vCPU",
    limit: (run) => (hasVcpuSize(run) ? run.vcpuSize : undefined),
    show: asVcpu,
    axis: (top) => plainAxis(top),
    lines: [],
    layer: 1,
  },
  {
    id: "processes-memory",
    title: "Memory by process",
    limit: (run) => run.size,
    show: asMemory,
    axis: (top) => memoryAxis(top),
    lines: [],
    layer: 2,
  },
];

const ROW_HEIGHT = 120;
const ROW_GAP = 46;
const PAPER_HEIGHT = 850; // all charts of a run fit on one page
const CHART_TOP = 44;
const CHART_BOTTOM = 34;

// The limit is drawn if the highest value reaches this share of it; otherwise the chart would be a flat line.
const NEAR_LIMIT = 0.5;

const TIME_STEPS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10e3, 15e3, 30e3],
  ...[1, 2, 5, 10, 20, 30].map((minutes) => minutes * MINUTE),
  ...[1, 2, 6, 12].map((hours) => hours * HOUR),
];

const MEMORY_STEPS_MB = [1, 2, 5, 10, 20, 50, 100, 200, 512, 1024, 2048, 5120, 10240, 20480, 51200, 102400];
const hasValues = (column) => column?.some(isKnown) ?? false;
const seriesOf = (run, row) => (row.seriesOf ? row.seriesOf(run) : run?.series);
const layersOf = (run, row) => (row.layer && run.activity?.processes?.map((process) => process[row.layer])) || [];
const rowsOf = (run) =>
  ROWS.filter(
    (row) =>
      row.lines.some(({ column }) => hasValues(seriesOf(run, row)?.[column])) || layersOf(run, row).some(hasValues),
  );
export const lengthOf = (run) => Math.max(run.series.ms.at(-1), run.outcome === "running" ? 0 : (run.ms ?? 0), 1);
const plainAxis = (top) => ({ range: [0, top], nticks: 4, tickformat: "~r" });
const percentAxis = () => ({ range: [0, 105], tickvals: [0, 50, 100], ticktext: ["0 %", "50 %", "100 %"] });

function memoryAxis(top) {
  const step = MEMORY_STEPS_MB.find((candidate) => top / candidate <= 4.5) ?? Math.ceil(top / 4 / 102400) * 102400;
  const tickvals = [];
  for (let mb = 0; mb <= top; mb += step) tickvals.push(mb);
  return { range: [0, top], tickvals, ticktext: tickvals.map(asMemory) };
}

export function timeTicks([from, until]) {
  const length = until - from;
  const step =
    TIME_STEPS.find((candidate) => length / candidate <= (isNarrow() ? 4 : 9)) ?? Math.ceil(length / 6 / DAY) * DAY;
  const tickvals = [];
  for (let ms = Math.max(0, Math.ceil(from / step) * step); ms <= until; ms += step) tickvals.push(ms);
  return { tickvals, ticktext: tickvals.map((ms) => (ms ? asElapsed(ms) : "0")) };
}

// "10 s", "5m", "1h 30m": a last part that is zero is left out.
const asElapsed = (ms) => (ms < MINUTE ? asWholeDuration(ms) : asDuration(ms).replace(/ 00[smh]$/, ""));

// Drops unknown values between known ones at most maxGapMs apart, so that the line has no gap there.
function withoutShortGaps(ms, values, maxGapMs) {
  const kept = [];
  let knownMs = 0;
  let unknown = [];
  values.forEach((value, index) => {
    if (!isKnown(value)) {
      unknown.push(index);
      return;
    }
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
    type: "scatter",
    mode: "lines",
    name: pale ? `${name || column} of the other run` : name || column,
    x: [0, ...ms],
    y: [values[0], ...values],
    yaxis,
    hoverinfo: "skip",
    connectgaps: false,
    line: { color: stroke, width: pale ? 1.4 : 1.8, shape: "vh" },
    ...(fill && !pale ? { fill: "tozeroy", fillcolor: `${stroke}22` } : {}),
  };
}

function highest(run, row) {
  return max(row.lines.flatMap(({ column }) => (seriesOf(run, row)?.[column] ?? []).filter(isKnown))) ?? 0;
}

// The processes as layers, and the highest sum. Plotly's own stacks would draw a gap as zero.
function layerParts(run, row, yaxis) {
  const columns = layersOf(run, row);
  const tones = layerTones((run.activity?.processes ?? []).map(([command]) => command));
  const stacked = stackColumns(columns);
  const traces = stacked.map(([bottoms, tops], at) => ({
    type: "scatter",
    mode: "lines",
    name: `layer ${at}`,
    ...outlineOf(run.activity.ms, bottoms, tops),
    yaxis,
    hoverinfo: "skip",
    fill: "toself",
    fillcolor: colour(tones[at]),
    line: { color: colour("panel"), width: 0.5 },
  }));
  return { traces, highest: max(stacked.flatMap(([, tops]) => tops.filter(isKnown))) ?? 0 };
}

// A row: its lines, its axis, and its limit as a line or in words.
function rowParts(run, other, row, axisName) {
  const limit = row.limit?.(run);
  const peak = row.id === "memory" ? (run.peak ?? 0) : 0;
  const layers = layerParts(run, row, axisName);
  const values = Math.max(highest(run, row), highest(other, row), peak, layers.highest);
  const isNear = isKnown(limit) && values >= NEAR_LIMIT * limit;
  const top = Math.max(isNear ? limit : 0, values, row.id === "memory" ? 1 : 0.001) * 1.1;
  const [series, otherSeries] = [seriesOf(run, row), seriesOf(other, row)];
  const lines = row.lines.filter(({ column }) => series?.[column]);
  const traces = layers.traces;
  for (const line of row.lines.filter(({ column }) => otherSeries?.[column])) {
    traces.push(lineOf(otherSeries, line, axisName, { pale: true }));
  }
  traces.push(...lines.map((line) => lineOf(series, line, axisName, { fill: lines.length === 1 })));
  const { shapes, annotations } = limitParts(row, limit, isNear, axisName);
  if (row.id === "memory" && isMissedPeak(run)) {
    shapes.push({ ...levelLine(run.peak, axisName, "memory"), name: "kernel peak" });
    annotations.push({
      ...levelText(`kernel peak ${asMemory(run.peak)}${isNarrow() ? "" : ", between the samples"}`, run.peak, axisName),
      font: { size: 11, color: colour("memory") },
      x: 0,
      xanchor: "left",
      xshift: 8,
    });
  }
  return { traces, shapes, annotations: [titleOf(row, lines, axisName), ...annotations], axis: row.axis(top) };
}

function titleOf(row, lines, axisName) {
  const mark = ({ tone, name }) => `<span style="color:${colour(tone)}">\u25ac</span> ${name}`;
  return {
    text: `<b>${row.title}</b>  ${lines.length > 1 ? lines.map(mark).join("  ") : ""}`,
    x: 0,
    xref: "paper",
    y: 1,
    yref: `${axisName} domain`,
    yanchor: "bottom",
    xanchor: "left",
    yshift: 5,
    showarrow: false,
    font: { size: 12.5, color: colour("text") },
  };
}

// A full CPU is in use, a full memory is a kill.
const limitTone = ({ id }) => (id.includes("memory") ? "oom" : "faint");

// The kernel counts every peak. Its time is unknown: only that no sample has seen it.
const MISSED_SHARE = 1.01;
const isMissedPeak = (run) =>
  run.peakBy === "kernel" && run.peak > MISSED_SHARE * (max(known(run.series?.mb ?? [], (mb) => mb)) ?? Infinity);

const levelLine = (value, axisName, tone) => ({
  type: "line",
  x0: 0,
  x1: 1,
  xref: "paper",
  y0: value,
  y1: value,
  yref: axisName,
  line: { color: colour(tone), width: 1.3, dash: tone === "memory" ? "dot" : "dash" },
});

const levelText = (text, value, axisName) => ({
  text,
  xref: "paper",
  y: value,
  yref: axisName,
  yanchor: "bottom",
  showarrow: false,
});

// The limit as a line, or in words if it is far above the values.
function limitParts(row, limit, isNear, axisName) {
  const shapes = [];
  const annotations = [];
  if (isNear) {
    const tone = limitTone(row);
    shapes.push(levelLine(limit, axisName, tone));
    annotations.push({
      ...levelText(`limit ${row.show(limit)}`, limit, axisName),
      x: 1,
      xanchor: "right",
      xshift: -8,
      font: { size: 11, color: colour(tone) },
    });
  } else if (isKnown(limit)) {
    annotations.push({
      text: isNarrow() ? `limit ${row.show(limit)} ↑` : `limit ${row.show(limit)}, above the chart`,
      x: 1,
      xref: "paper",
      xanchor: "right",
      y: 1,
      yref: `${axisName} domain`,
      yanchor: "bottom",
      yshift: 5,
      showarrow: false,
      font: { size: 11, color: colour("faint") },
    });
  }
  return { shapes, annotations };
}

const MOMENT_TONES = { saturated: "cpu", memory: "memory" };

// Moments in the charts: all vCPUs in use, idle, memory that rises, and the memory peak.
function momentParts(run, axisOf) {
  const shapes = [];
  const traces = [];
  for (const [kind, start, end] of run.moments ?? []) {
    if (kind === "memory-peak") {
      if (axisOf.memory && isKnown(run.peak))
        traces.push({
          type: "scatter",
          mode: "markers",
          name: "memory peak",
          x: [start],
          y: [run.peak],
          yaxis: axisOf.memory,
          hoverinfo: "skip",
          marker: { size: 8, color: colour("memory"), line: { color: colour("panel"), width: 1.5 } },
        });
    } else if (axisOf[kind === "memory" ? "memory" : "cpu"]) {
      shapes.push({
        type: "rect",
        name: kind,
        x0: start,
        x1: end,
        xref: "x",
        y0: 0,
        y1: 1,
        yref: `${axisOf[kind === "memory" ? "memory" : "cpu"]} domain`,
        layer: "below",
        line: { width: 0 },
        fillcolor: colour(MOMENT_TONES[kind] ?? "unknown"),
        opacity: 0.14,
      });
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
  const vertical = (ms, tone, width) => ({
    type: "line",
    name: tone,
    x0: ms,
    x1: ms,
    xref: "x",
    y0: 0,
    y1: 1,
    yref: "paper",
    line: { color: colour(tone), width },
  });
  const label = (text, ms, xanchor, tone) => ({
    text,
    x: ms,
    xref: "x",
    xanchor,
    y: 1,
    yref: "paper",
    yanchor: "bottom",
    yshift: 24,
    showarrow: false,
    font: { size: 11, color: colour(tone) },
  });
  const endTone = isKilled(run) ? "oom" : isBad ? "failure-text" : "faint";
  return {
    shapes: [vertical(0, "line", 1), vertical(end, isKilled(run) ? "oom" : isBad ? "failure" : "line", isBad ? 2 : 1)],
    annotations: [label("start", 0, "left", "faint"), label(endText(run), end, "right", endTone)],
  };
}

/** Makes the figure of a run; `other` is the run to compare with, if any. */
export function runFigure(run, other) {
  const rows = rowsOf(run);
  const rowHeight = isOnPaper() ? Math.min(ROW_HEIGHT, PAPER_HEIGHT / rows.length - ROW_GAP) : ROW_HEIGHT;
  const height = CHART_TOP + CHART_BOTTOM + rows.length * rowHeight + (rows.length - 1) * ROW_GAP;
  const inner = height - CHART_TOP - CHART_BOTTOM;
  const end = lengthOf(run);
  const full = [-0.004 * end, 1.004 * end]; // of the run alone: a longer run to compare with is cut off
  const traces = [];
  const shapes = [];
  const annotations = [];
  const axes = {};
  const axisOf = {};
  rows.forEach((row, number) => {
    const name = number ? `y${number + 1}` : "y";
    axisOf[row.id] = name;
    const parts = rowParts(run, other, row, name);
    const top = inner - number * (rowHeight + ROW_GAP);
    axes[`yaxis${number ? number + 1 : ""}`] = {
      ...parts.axis,
      domain: [Math.max(0, (top - rowHeight) / inner), top / inner],
      fixedrange: true,
      automargin: true,
      gridcolor: colour("line"),
      zeroline: false,
      linecolor: colour("line"),
    };
    traces.push(...parts.traces);
    shapes.push(...parts.shapes);
    annotations.push(...parts.annotations);
  });
  for (const parts of [momentParts(run, axisOf), markers(run, end)]) {
    traces.push(...(parts.traces ?? []));
    shapes.push(...parts.shapes);
    annotations.push(...(parts.annotations ?? []));
  }
  const layout = chartLayout(height, {
    margin: { l: 8, r: 14, t: CHART_TOP, b: CHART_BOTTOM },
    showlegend: false,
    hovermode: false,
    dragmode: isNarrow() ? false : "zoom",
    shapes,
    annotations,
    xaxis: {
      range: [...full],
      ...timeTicks(full),
      tickangle: 0,
      fixedrange: isNarrow(),
      anchor: `y${rows.length > 1 ? rows.length : ""}`,
      zeroline: false,
      showgrid: true,
    },
  });
  return { traces, layout: { ...layout, ...axes }, full, end };
}

const stepAt = (series, ms) => series.ms.findIndex((end) => end >= ms);

/** Returns what the processes used at a time: { command, tone, texts }. */
export function processesAt(run, ms) {
  const processes = run.activity?.processes ?? [];
  const tones = layerTones(processes.map(([command]) => command));
  const rows = rowsOf(run).filter(({ layer }) => layer);
  const text = (value, row) => (isKnown(value) ? row.show(value) : "not measured");
  return processes.map((process, at) => ({
    command: process[0],
    tone: tones[at],
    texts: rows.map((row) => text(process[row.layer]?.[stepAt(run.activity, ms)], row)),
  }));
}

/** Returns the texts of what was measured at a time, with the other run's value in brackets. */
export function readingsAt(run, other, ms) {
  const texts = [];
  for (const row of rowsOf(run)) {
    const [series, otherSeries] = [seriesOf(run, row), seriesOf(other, row)];
    for (const { column, name } of row.lines.filter((line) => series?.[line.column])) {
      const value = series[column][stepAt(series, ms)];
      const otherValue = otherSeries?.[column]?.[stepAt(otherSeries, ms)];
      const text = isKnown(value) ? row.show(value) : "not measured";
      const otherText = isKnown(otherValue) ? `(${row.show(otherValue)})` : "";
      texts.push([name, text, otherText].filter(Boolean).join(" "));
    }
  }
  return texts;
}
