// What all charts share: layout, drawing, and axes. A figure is { label, traces, layout }, or { nothing } with a
// sentence when there is nothing to draw. Plotly interprets some HTML in its texts, so every text from a record goes
// through escapeHtml().

import { byId, element, emptyNote } from "#page/elements.js";
import { escapeControls, truncate } from "#page/formats.js";
import { familyOf } from "#page/run_values.js";
import { grouped } from "#page/statistics.js";
import { colour } from "#page/theme.js";
import { bucketText } from "#page/time_buckets.js";
import { DAY, MINUTE } from "#page/time_units.js";

export const MAX_FAMILIES = 30;
const MIN_SHOWN_BUCKETS = 8;
const drawnPlaces = new Set();
export const PLOTLY_CONFIG = { displayModeBar: false, responsive: true, showTips: false };
export const isNarrow = () => window.innerWidth <= 640;
export const escapeHtml = (text, maxLength = 60) =>
  truncate(text, maxLength).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

export function chartLayout(height, changes) {
  const axis = {
    gridcolor: colour("line"),
    linecolor: colour("line"),
    zerolinecolor: colour("line"),
    automargin: true,
  };
  return {
    height,
    margin: { l: 8, r: 10, t: 8, b: 34 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("text"), size: 12, family: "system-ui, sans-serif" },
    hoverlabel: {
      align: "left",
      bgcolor: colour("panel"),
      bordercolor: colour("line"),
      font: { color: colour("text") },
    },
    legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0 },
    dragmode: false,
    ...changes,
    xaxis: { ...axis, fixedrange: true, ...changes.xaxis },
    yaxis: { ...axis, fixedrange: true, ...changes.yaxis },
  };
}

export function drawFigure(place, { nothing, label, traces, layout }) {
  if (nothing) return drawNothing(place, nothing);
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", label);
  if (place.dataset.empty) {
    place.textContent = "";
    delete place.dataset.empty;
  }
  return drawPlot(place, traces, layout);
}

// The library is text until the first chart that needs it: its evaluation takes longer than the morning screen.
function plotly() {
  if (!window.Plotly) byId("plotly").replaceWith(element("script", { textContent: byId("plotly").textContent }));
  return window.Plotly;
}

export function drawPlot(place, traces, layout, config = {}) {
  drawnPlaces.add(place);
  place.style.minHeight = `${layout.height}px`;
  // Plotly keeps the width of the first drawing, which differs on paper.
  if (place.clientWidth) layout.width = place.clientWidth;
  return plotly().react(place, traces, layout, { ...PLOTLY_CONFIG, ...config });
}

export function removePlot(place) {
  if (drawnPlaces.delete(place)) Plotly.purge(place);
}

function drawNothing(place, sentence) {
  removePlot(place);
  for (const name of ["role", "aria-label"]) place.removeAttribute(name);
  place.replaceChildren(emptyNote(sentence));
  place.dataset.empty = "yes";
  place.style.minHeight = "";
}

/** Returns all families as [family, runs] in the order of rows: most runs first. */
export const familiesInOrder = (runs) =>
  [...grouped(runs, familyOf)].sort((a, b) => b[1].length - a[1].length || (a[0] < b[0] ? -1 : 1));

/**
 * Returns the families of a chart's runs as [family, runs], and the number of those that it leaves out.
 *
 * Every chart has the order of the selected runs.
 */
export function largestFamilies(runs, selectedRuns = runs) {
  const ranks = new Map(familiesInOrder(selectedRuns).map(([family], rank) => [family, rank]));
  const rankOf = ([family]) => ranks.get(family) ?? ranks.size;
  const families = familiesInOrder(runs).sort((a, b) => rankOf(a) - rankOf(b));
  return { families: families.slice(0, MAX_FAMILIES), left: Math.max(families.length - MAX_FAMILIES, 0) };
}

const nameFont = () => (isNarrow() ? { size: 10, line: 18, lines: 5 } : { size: 12, line: 26, lines: 3 });

/** Returns the lines of a family's name beside its row. A name is broken after its words. */
export function nameLines(name) {
  const { line, lines } = nameFont();
  const words = escapeControls(name).match(new RegExp(`[^-_./: ]{0,${line - 1}}[^]`, "gu")) ?? [];
  const made = [""];
  for (const word of words) {
    if ([...made.at(-1), ...word].length > line) made.push("");
    made[made.length - 1] += word;
  }
  if (made.length <= lines) return made;
  return [...made.slice(0, lines - 1), truncate(made.slice(lines - 1).join(""), line)];
}

/** Returns the height of the rows of these families, none of which is lower than `least`. */
export function rowsHeight(names, least = 26) {
  const lines = Math.max(1, ...names.map((name) => nameLines(name).length));
  return names.length * Math.max(least, Math.ceil(1.3 * nameFont().size * lines) + 6);
}

// The axis is numeric: Plotly would parse families named "1" or "2026-01-01" as numbers or dates.
export function familyAxis(names) {
  return {
    tickvals: names.map((_, row) => row),
    ticktext: names.map((name) =>
      nameLines(name)
        .map((line) => escapeHtml(line))
        .join("<br>"),
    ),
    tickfont: { size: nameFont().size },
    range: [names.length - 0.5, -0.5],
    showgrid: false,
    zeroline: false,
    ticks: "",
  };
}

// The day is below the first time of each day.
const DATE_TICKS = {
  tickformatstops: [
    { dtickrange: [null, MINUTE - 1], value: "%H:%M:%S\n%Y-%m-%d" },
    { dtickrange: [MINUTE, DAY - 1], value: "%H:%M\n%Y-%m-%d" },
    { dtickrange: [DAY, null], value: "%Y-%m-%d" },
  ],
};

/** An axis over the buckets, with room on both sides of few buckets. */
export function bucketAxis({ starts, width }, mostTicks = 5) {
  const [first, last] = [starts[0], starts.at(-1) + width];
  const padding = Math.max(0, MIN_SHOWN_BUCKETS * width - (last - first)) / 2;
  const nticks = isNarrow() ? 2 : mostTicks;
  const ticks = width < DAY ? { ...DATE_TICKS, nticks } : nightTicks(starts, width, nticks);
  return { type: "date", range: [first - padding, last + padding], showgrid: false, ...ticks };
}

// Days are named below the middle of their bucket.
function nightTicks(starts, width, nticks) {
  const named = starts.filter((_, at) => at % Math.ceil(starts.length / nticks) === 0);
  return {
    tickvals: named.map((start) => start + width / 2),
    ticktext: named.map((start) => bucketText(start, width)),
    tickangle: 0,
  };
}
