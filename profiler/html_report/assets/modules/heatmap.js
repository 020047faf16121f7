// A heatmap: a row for each family, a column for each interval, the mean of the runs that started in it.

import { bucketAxis, chartLayout, escapeHtml, familyAxis, largestFamilies } from "#page/charts.js";
import { asPercent, isKnown } from "#page/formats.js";
import { isKilled } from "#page/outcomes.js";
import { grouped, mean } from "#page/statistics.js";
import { colour } from "#page/theme.js";
import { bucketText } from "#page/time_buckets.js";

const COLOUR_BAR = {
  thickness: 9,
  outlinewidth: 0,
  tickvals: [0, 25, 50, 75, 100],
  ticktext: ["0 %", "25 %", "50 %", "75 %", "100 %"],
  len: 1,
  xpad: 4,
};

/**
 * Makes a heatmap.
 *
 * `percentOf(run)` returns the value of a run, `colours` names the colours from 0 to 100 %, `what` is the measurement.
 */
export function heatmapFigure(runs, buckets, { percentOf, colours, what }) {
  const measured = runs.filter((run) => isKnown(percentOf(run)) && isKnown(run.began));
  if (!measured.length) return { nothing: `No run in this selection has a measured ${what} percentage.` };
  const { families, left } = largestFamilies(measured);
  const rows = families.map(([family, familyRuns]) => ({ family, cells: grouped(familyRuns, buckets.indexOf) }));
  const meanOf = (cell) => mean(cell.map(percentOf));
  const trace = {
    // Edges of the cells, not centres: with centres, Plotly draws a single column 1 ms wide.
    type: "heatmap",
    x: [...buckets.starts, buckets.starts.at(-1) + buckets.width],
    y: [...families.map((_, row) => row - 0.5), families.length - 0.5],
    z: rows.map(({ cells }) => buckets.starts.map((_, at) => (cells.has(at) ? meanOf(cells.get(at)) : null))),
    text: rows.map(({ family, cells }) =>
      buckets.starts.map((start, at) =>
        cells.has(at)
          ? cellText(family, bucketText(start, buckets.width), cells.get(at), meanOf(cells.get(at)), what)
          : "",
      ),
    ),
    hoverinfo: "text",
    hoverongaps: false,
    zmin: 0,
    zmax: 100,
    zauto: false,
    xgap: 1.5,
    ygap: 1.5,
    colorscale: colours.map((name, step) => [step / (colours.length - 1), colour(name)]),
    colorbar: COLOUR_BAR,
  };
  return {
    label:
      `Heatmap of the mean ${what} use of ${families.length} families over time.` +
      " The table of runs has the numbers.",
    traces: [trace],
    layout: chartLayout(Math.max(150, 60 + 26 * families.length), {
      annotations: left ? [noteBelow(`${left} families with fewer runs are not drawn: select a family above.`)] : [],
      margin: { l: 8, r: 8, t: 6, b: left ? 52 : 34 },
      xaxis: bucketAxis(buckets),
      yaxis: familyAxis(families.map(([name]) => name)),
    }),
  };
}

function cellText(family, time, runs, percent, what) {
  const killed = runs.filter(isKilled).length;
  const lines = [`<b>${escapeHtml(family)}</b>`, time, `${asPercent(percent)} ${what}, runs: ${runs.length}`];
  if (killed) lines.push(`out of memory: ${killed}`);
  return lines.join("<br>");
}

function noteBelow(text) {
  return {
    text,
    showarrow: false,
    xref: "paper",
    yref: "paper",
    x: 0,
    y: 0,
    yanchor: "top",
    yshift: -24,
    font: { size: 11, color: colour("faint") },
  };
}
