// The duration of each family over time: a row for each family with a line of medians, and the band up to its p95.

import {
  bucketAxis,
  chartLayout,
  escapeHtml,
  familyAxis,
  isNarrow,
  largestFamilies,
  rowsHeight,
} from "#page/charts.js";
import { asDuration, asFamilies, isKnown } from "#page/formats.js";
import { grouped, max, median, quantile, usualRuns } from "#page/statistics.js";
import { colour } from "#page/theme.js";
import { asPlotted, bucketText } from "#page/time_buckets.js";

const ROW_SHARE = 0.84;
const HEADROOM = 1.15;
const MAX_RATIO = 3;
const medianOf = (runs) => median(runs.map((run) => run.ms));

export function durationFigure(runs, buckets) {
  const measured = runs.filter((run) => isKnown(run.ms) && isKnown(run.began) && run.outcome !== "running");
  if (!measured.length) return { nothing: "No run in this selection has a measured duration." };
  const { families, left } = largestFamilies(measured, runs);
  const rows = families.map((family, row) => familyRow(family, row, buckets));
  const otherFamilies = left ? ` Not drawn: ${asFamilies(left)} with fewer runs.` : "";
  return {
    label:
      `Duration of ${asFamilies(rows.length)} over time as lines, with the median and the 95th percentile of each.` +
      `${otherFamilies} The table of runs has the numbers.`,
    traces: [bandTrace(rows, buckets), lineTrace(rows, buckets), zeroTrace(rows, buckets)],
    layout: chartLayout(Math.max(300, 70 + rowsHeight(rows.map(({ family }) => family))), {
      annotations: rows.map(numbersOf),
      margin: { l: 8, r: isNarrow() ? 62 : 156, t: 6, b: 34 },
      showlegend: false,
      hovermode: "closest",
      xaxis: bucketAxis(buckets, 3),
      yaxis: familyAxis(rows.map(({ family }) => family)),
    }),
  };
}

// Each row has an axis of its own that begins at 0: a change of a short family is as visible as that of a long one. A
// median far above the 95th percentile is drawn at the edge: one very long run would flatten the line.
function familyRow([family, runs], row, buckets) {
  const durations = usualRuns(runs).map((run) => run.ms);
  const points = [...grouped(runs, buckets.indexOf)]
    .map(([at, cell]) => ({ at, ms: medianOf(cell), runs: cell.length }))
    .sort((a, b) => a.at - b.at);
  const p95 = quantile(durations, 0.95);
  const top = Math.max(p95, Math.min(max(points.map(({ ms }) => ms)), MAX_RATIO * p95), 1);
  return {
    family,
    row,
    points: points.map((point) => ({ ...point, isAbove: point.ms > top })),
    median: median(durations),
    p95,
    heightOf: (ms) => row + ROW_SHARE * (0.5 - Math.min(ms, top) / (top * HEADROOM)),
  };
}

function bandTrace(rows, { starts, width }) {
  const sides = ({ points }) => [starts[points[0].at], starts[points.at(-1).at] + width].map(asPlotted);
  return {
    type: "scatter",
    mode: "lines",
    name: "median to p95",
    x: rows.flatMap((row) => {
      const [from, until] = sides(row);
      return [from, until, until, from, from, null];
    }),
    y: rows.flatMap(({ median, p95, heightOf }) => {
      const [low, high] = [heightOf(median), heightOf(p95)];
      return [low, low, high, high, low, null];
    }),
    fill: "toself",
    fillcolor: `${colour("memory")}44`,
    line: { width: 1, color: `${colour("memory")}66` },
    hoverinfo: "skip",
  };
}

function zeroTrace(rows, { starts, width }) {
  return {
    type: "scatter",
    mode: "lines",
    name: "0",
    x: rows.flatMap(() => [asPlotted(starts[0]), asPlotted(starts.at(-1) + width), null]),
    y: rows.flatMap(({ heightOf }) => [heightOf(0), heightOf(0), null]),
    line: { color: colour("line"), width: 1 },
    hoverinfo: "skip",
  };
}

function lineTrace(rows, { starts, width }) {
  const each = (pick) => rows.flatMap((row) => [...row.points.map((point) => pick(point, row)), null]);
  return {
    type: "scatter",
    mode: "lines+markers",
    name: "median",
    x: each(({ at }) => asPlotted(starts[at] + width / 2)),
    y: each(({ ms }, { heightOf }) => heightOf(ms)),
    connectgaps: false,
    line: { color: colour("cpu"), width: 1.6 },
    marker: {
      size: each(({ isAbove }) => (isAbove ? 9 : 4)),
      line: { width: 0 },
      symbol: each(({ isAbove }) => (isAbove ? "triangle-up" : "circle")),
    },
    hoverinfo: "text",
    hovertext: each(
      ({ at, ms, runs }, { family, median, p95 }) =>
        `<b>${escapeHtml(family)}</b><br>${bucketText(starts[at], width)}: ${asDuration(ms)}, runs: ${runs}<br>` +
        `usual: median ${asDuration(median)}, p95 ${asDuration(p95)}`,
    ),
  };
}

function numbersOf({ row, median, p95 }) {
  return {
    text: isNarrow() ? asDuration(median) : `${asDuration(median)}, p95 ${asDuration(p95)}`,
    showarrow: false,
    xref: "paper",
    x: 1,
    xanchor: "left",
    xshift: 6,
    y: row,
    font: { size: 11, color: colour("faint") },
  };
}
