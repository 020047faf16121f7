// The time series of one run as a figure: charts one above the other with one time axis.

import { isNarrow } from "#page/charts.js";
import { content } from "#page/content.js";
import { asExactDuration, isKnown } from "#page/formats.js";
import { isFailed, isKilled } from "#page/outcomes.js";
import { layerTones, outlineOf, stackColumns } from "#page/process_layers.js";
import { isMissedPeak, layersOf, pointsOf, rowsOf, rowTitle, seriesOf } from "#page/run_rows.js";
import { isLeast, memoryOf } from "#page/run_values.js";
import { max } from "#page/statistics.js";
import { colour, isOnPaper } from "#page/theme.js";
import { DAY, HOUR, MINUTE } from "#page/time_units.js";

const ROW_HEIGHT = 120;
const ROW_GAP = 46;
const PAPER_HEIGHT = 850; // all charts of a run fit on one page
const CHART_TOP = 44;
const CHART_BOTTOM = 34;

// The height of a text as a share of a chart.
const TEXT_SHARE = 0.14;

const TIME_STEPS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10e3, 15e3, 30e3],
  ...[1, 2, 5, 10, 20, 30].map((minutes) => minutes * MINUTE),
  ...[1, 2, 6, 12].map((hours) => hours * HOUR),
];

export const lengthOf = (run) => Math.max(run.series.ms.at(-1), run.outcome === "running" ? 0 : (run.ms ?? 0), 1);

/** Returns the time axis of a run, which a longer run to compare with does not change. */
export const wholeRange = (run) => [-0.004 * lengthOf(run), 1.004 * lengthOf(run)];

export function timeTicks([from, until]) {
  const length = until - from;
  const step =
    TIME_STEPS.find((candidate) => length / candidate <= (isNarrow() ? 4 : 9)) ?? Math.ceil(length / 6 / DAY) * DAY;
  const tickvals = [];
  for (let ms = Math.max(0, Math.ceil(from / step) * step); ms <= until; ms += step) tickvals.push(ms);
  return { tickvals, ticktext: tickvals.map((ms) => (ms ? asExactDuration(ms) : "0")) };
}

// A value holds from the end of the step before. Plotly begins a line after a gap at the end of its first step.
function stepsOf(ms, values) {
  const x = [];
  const y = [];
  values.forEach((value, step) => {
    if (!step || (isKnown(value) && !isKnown(values[step - 1]))) {
      x.push(step ? ms[step - 1] : 0);
      y.push(value);
    }
    x.push(ms[step]);
    y.push(value);
  });
  return { x, y };
}

function lineOf(series, line, yaxis, { pale } = {}) {
  const { column, tone } = line;
  const stroke = pale ? colour("pale") : colour(tone);
  return {
    type: "scatter",
    mode: "lines",
    name: pale ? `${column} of the other run` : column,
    ...stepsOf(...pointsOf(series, line)),
    yaxis,
    hoverinfo: "skip",
    connectgaps: false,
    line: { color: stroke, width: pale ? 1.4 : 1.8, shape: "vh" },
  };
}

// The area below a line: Plotly's own would go on through the gaps.
function areaOf(series, line, yaxis) {
  const [ms, values] = pointsOf(series, line);
  return {
    type: "scatter",
    mode: "lines",
    name: `below ${line.column}`,
    ...outlineOf(
      ms,
      values.map((value) => (isKnown(value) ? 0 : null)),
      values,
    ),
    yaxis,
    hoverinfo: "skip",
    fill: "toself",
    fillcolor: `${colour(line.tone)}22`,
    line: { width: 0 },
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
    line: { width: 0 }, // a line would hide a thin layer
  }));
  return { traces, highest: max(stacked.flatMap(([, tops]) => tops.filter(isKnown))) ?? 0 };
}

// A row: its lines, its axis, and its limit as a line or in words.
function rowParts(run, other, row, axisName) {
  const limit = row.limit?.(run);
  const peak = row.id === "memory" ? (run.peak ?? 0) : 0;
  const layers = layerParts(run, row, axisName);
  const values = Math.max(highest(run, row), highest(other, row), peak, layers.highest);
  // As in curve_top() of profiler/record/sparkline.py: a limit far above the values would make a flat line, and a chart
  // of little more than nothing would be full of noise.
  const least = content.scale[row.unit] ?? 0.001;
  const isNear = isKnown(limit) && Math.max(values, least) >= content.scale.drawnLimit * limit;
  const top = Math.max(isNear ? limit : 0, values, least) * 1.1;
  const [series, otherSeries] = [seriesOf(run, row), seriesOf(other, row)];
  const lines = row.lines.filter(({ column }) => series?.[column]);
  const traces = layers.traces;
  for (const line of row.lines.filter(({ column }) => otherSeries?.[column])) {
    traces.push(lineOf(otherSeries, line, axisName, { pale: true }));
  }
  if (lines.length === 1) traces.push(areaOf(series, lines[0], axisName));
  traces.push(...lines.map((line) => lineOf(series, line, axisName)));
  const { shapes, annotations } = limitParts(row, limit, isNear, axisName);
  if (row.id === "memory" && hasPeakWithoutTime(run)) {
    const isCounted = !isLeast(run, "peak");
    const name = isCounted ? "kernel peak" : "peak";
    const when = isCounted ? ", between the samples" : ", at an unknown time";
    shapes.push({ ...levelLine(run.peak, axisName, "memory"), name });
    const isBelow = isNear && limit >= run.peak && limit - run.peak < TEXT_SHARE * top;
    annotations.push({
      ...levelText(`${name} ${memoryOf(run, "peak")}${isNarrow() ? "" : when}`, run.peak, axisName),
      ...(isBelow ? { yanchor: "top" } : {}),
      font: { size: 11, color: colour("memory") },
      x: 0,
      xanchor: "left",
      xshift: 8,
    });
  }
  return { traces, shapes, annotations: [titleOf(run, row, lines, axisName), ...annotations], axis: row.axis(top) };
}

function titleOf(run, row, lines, axisName) {
  const mark = ({ tone, name }) => `<span style="color:${colour(tone)}">\u25ac</span> ${name}`;
  return {
    text: `<b>${rowTitle(run, row)}</b>  ${lines.length > 1 ? lines.map(mark).join("  ") : ""}`,
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
const limitTone = ({ id }) => (id.includes("memory") ? "hot-text" : "faint");

// A mark of the kernel shows also a peak that no sample has seen. A peak far above all samples has no time.
const hasPeakWithoutTime = (run) => isMissedPeak(run) && !isKnown(run.peakAt);

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

// The ground keeps the text readable on lines.
const levelText = (text, value, axisName) => ({
  text,
  bgcolor: `${colour("panel")}b0`,
  borderpad: 0,
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
      xshift: -8,
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

// The memory peak: a moment of its own, or one that no sample has seen and whose time is known.
function peakTime(run) {
  const moment = run.moments?.find(([kind]) => kind === "memory-peak");
  if (hasPeakWithoutTime(run)) return undefined;
  return moment?.[1] ?? (isMissedPeak(run) ? run.peakAt : undefined);
}

// Moments in the charts: all vCPUs in use, idle, memory that rises, and the memory peak.
function momentParts(run, axisOf) {
  const traces = [];
  const at = peakTime(run);
  if (isKnown(at) && isKnown(run.peak) && axisOf.memory) {
    traces.push({
      type: "scatter",
      mode: "markers",
      name: "memory peak",
      x: [at],
      y: [run.peak],
      yaxis: axisOf.memory,
      hoverinfo: "skip",
      marker: { size: 8, color: colour("memory"), line: { color: colour("panel"), width: 1.5 } },
    });
  }
  const shapes = [];
  for (const [kind, start, end] of run.moments ?? []) {
    const yaxis = axisOf[kind === "memory" ? "memory" : "cpu"];
    if (kind === "memory-peak" || !yaxis) continue;
    shapes.push({
      type: "rect",
      name: kind,
      x0: start,
      x1: end,
      xref: "x",
      y0: 0,
      y1: 1,
      yref: `${yaxis} domain`,
      layer: "below",
      line: { width: 0 },
      fillcolor: colour(MOMENT_TONES[kind] ?? "pale"),
      opacity: 0.14,
    });
  }
  return { shapes, traces };
}

function endText(run) {
  if (run.outcome === "running") return "last checkpoint";
  return run.outcome === "success" ? "end" : (run.why ?? run.outcome);
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
  const endTone = isKilled(run) ? "oom-text" : isBad ? "failure-text" : "faint";
  return {
    shapes: [vertical(0, "line", 1), vertical(end, isKilled(run) ? "oom" : isBad ? "failure" : "line", isBad ? 2 : 1)],
    annotations: [label("start", 0, "left", "faint"), label(endText(run), end, "right", endTone)],
  };
}

/** Makes the figure of a run, or of a range of it; `other` is the run to compare with, if any. */
export function runFigure(run, other, range = wholeRange(run)) {
  const rows = rowsOf(run);
  const rowHeight = isOnPaper() ? Math.min(ROW_HEIGHT, PAPER_HEIGHT / rows.length - ROW_GAP) : ROW_HEIGHT;
  const height = CHART_TOP + CHART_BOTTOM + rows.length * rowHeight + (rows.length - 1) * ROW_GAP;
  const inner = height - CHART_TOP - CHART_BOTTOM;
  const end = lengthOf(run);
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
  const layout = {
    height,
    margin: { l: 8, r: 14, t: CHART_TOP, b: CHART_BOTTOM },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("text"), size: 12, family: "system-ui, sans-serif" },
    showlegend: false,
    hovermode: false,
    dragmode: isNarrow() ? false : "zoom",
    shapes,
    annotations,
    xaxis: {
      range: [...range],
      ...timeTicks(range),
      tickangle: 0,
      fixedrange: isNarrow(),
      anchor: `y${rows.length > 1 ? rows.length : ""}`,
      automargin: true,
      zeroline: false,
      showgrid: true,
      gridcolor: colour("line"),
      linecolor: colour("line"),
    },
  };
  return { traces, layout: { ...layout, ...axes } };
}
