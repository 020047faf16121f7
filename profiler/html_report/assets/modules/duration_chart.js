// The duration of each family: median and 95th percentile on a logarithmic axis.

import { chartLayout, escapeHtml, familyAxis, largestFamilies } from "#page/charts.js";
import { asDuration, asWholeDuration, isKnown } from "#page/formats.js";
import { quantile } from "#page/statistics.js";
import { colour } from "#page/theme.js";
import { DAY, HOUR, MINUTE } from "#page/time_units.js";

const TICKS = [1, 10, 100, 1000, 10e3, MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY];
const onAxis = (ms) => Math.max(ms, 1); // a logarithmic axis has no 0

export function durationFigure(runs) {
  const measured = runs.filter((run) => isKnown(run.ms) && run.outcome !== "running");
  if (!measured.length) return { nothing: "No run in this selection has a measured duration." };
  const families = largestFamilies(measured).families.map(([family, familyRuns], row) => {
    const durations = familyRuns.map((run) => run.ms);
    return { family, row, runs: durations.length, median: quantile(durations, 0.5), p95: quantile(durations, 0.95) };
  });
  const log = (ms) => Math.log10(onAxis(ms));
  const low = Math.min(...families.map(({ median }) => log(median))) - 0.15;
  const high = Math.max(...families.map(({ p95 }) => log(p95))) + 0.15;
  return {
    label:
      `Median and 95th percentile of the duration of ${families.length} families.` +
      " The table of runs has the numbers.",
    traces: [
      spanTrace(families),
      pointTrace(families, "median", { symbol: "circle", color: colour("cpu") }),
      pointTrace(families, "p95", { symbol: "diamond", color: colour("memory") }),
    ],
    layout: chartLayout(Math.max(300, 70 + 26 * families.length), {
      margin: { l: 8, r: 10, t: 30, b: 34 },
      showlegend: true,
      xaxis: {
        type: "log",
        range: [low, high],
        tickvals: TICKS,
        ticktext: TICKS.map(asWholeDuration),
        zeroline: false,
        tickangle: 0,
      },
      yaxis: familyAxis(families.map(({ family }) => family)),
    }),
  };
}

// A line from the median to the 95th percentile of each family.
function spanTrace(families) {
  return {
    type: "scatter",
    mode: "lines",
    x: families.flatMap(({ median, p95 }) => [onAxis(median), onAxis(p95), null]),
    y: families.flatMap(({ row }) => [row, row, null]),
    line: { color: colour("line"), width: 4 },
    hoverinfo: "skip",
    showlegend: false,
  };
}

function pointTrace(families, name, marker) {
  return {
    type: "scatter",
    mode: "markers",
    name,
    x: families.map((one) => onAxis(one[name])),
    y: families.map(({ row }) => row),
    hoverinfo: "text",
    hovertext: families.map(
      ({ family, median, p95, runs }) =>
        `<b>${escapeHtml(family)}</b><br>median ${asDuration(median)}, p95 ${asDuration(p95)}<br>runs: ${runs}`,
    ),
    marker: { size: 10, ...marker },
  };
}
