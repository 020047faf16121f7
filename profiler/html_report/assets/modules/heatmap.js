// A heatmap: a row for each family, a column for each interval. A cell is the highest peak, or the mean, of the runs
// that started in it. A mark says that one of them ran out of memory.

import { bucketAxis, chartLayout, escapeHtml, familyAxis, largestFamilies, rowsHeight } from "#page/charts.js";
import { asFamilies, asPercent, isKnown } from "#page/formats.js";
import { isKilled } from "#page/outcomes.js";
import { shareOf } from "#page/run_values.js";
import { selection, writeAddress } from "#page/selection.js";
import { grouped, known, max, mean } from "#page/statistics.js";
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

const PEAK = { adjective: "peak", ofCell: max, note: "Highest peak" };
const AVERAGE = { adjective: "average", ofCell: mean, note: "Mean of the averages" };

/** What a heatmap shows: `percentOf(run)` is the value of a run, `colours` are those from 0 to 100 %. */
export const CPU_HEAT = {
  what: "CPU",
  colours: ["cpu0", "cpu1", "cpu2"],
  peak: { ...PEAK, percentOf: (run) => shareOf(run.vcpuMax, run.vcpuSize) },
  average: { ...AVERAGE, percentOf: (run) => run.cpu },
};

export const MEMORY_HEAT = {
  what: "memory",
  colours: ["mem0", "mem1", "mem2"],
  peak: { ...PEAK, percentOf: (run) => shareOf(run.peak, run.size) },
  average: { ...AVERAGE, percentOf: (run) => run.memory },
};

/** Makes a heatmap of the statistic "peak" or "average". */
export function heatmapFigure(runs, buckets, heat, statistic = "peak") {
  const { adjective, percentOf, ofCell } = heat[statistic];
  const what = `${adjective} ${heat.what}`;
  const measured = runs.filter((run) => isKnown(percentOf(run)) && isKnown(run.began));
  if (!measured.length) return { nothing: `No run in this selection has a measured ${what} percentage.` };
  const started = runs.filter((run) => isKnown(run.began) && (isKnown(percentOf(run)) || isKilled(run)));
  const { families, left } = largestFamilies(started, runs);
  const rows = families.map(([family, familyRuns], row) => ({
    row,
    family,
    cells: buckets.starts.map(() => undefined),
    byBucket: grouped(familyRuns, buckets.indexOf),
  }));
  for (const { family, byBucket, cells } of rows) {
    for (const [at, cell] of byBucket) {
      const percent = ofCell(known(cell, percentOf));
      const text = cellText(family, bucketText(buckets.starts[at], buckets.width), cell, percent, what);
      cells[at] = { percent, text, isKill: cell.some(isKilled) };
    }
  }
  return {
    label: `Heatmap of the ${what} use of ${asFamilies(families.length)} over time. The table of runs has the numbers.`,
    traces: [cellsTrace(rows, buckets, heat.colours), killTrace(rows, buckets)],
    layout: chartLayout(Math.max(150, 60 + rowsHeight(rows.map(({ family }) => family))), {
      annotations: left ? [noteBelow(`Not drawn: ${asFamilies(left)} with fewer runs. Select a family above.`)] : [],
      margin: { l: 8, r: 8, t: 6, b: left ? 52 : 34 },
      showlegend: false,
      xaxis: bucketAxis(buckets),
      yaxis: familyAxis(families.map(([name]) => name)),
    }),
  };
}

const cellsTrace = (rows, { starts, width }, colours) => ({
  // Edges of the cells, not centres: with centres, Plotly draws a single column 1 ms wide.
  type: "heatmap",
  x: [...starts, starts.at(-1) + width],
  y: [...rows.map(({ row }) => row - 0.5), rows.length - 0.5],
  z: rows.map(({ cells }) => cells.map((cell) => cell?.percent ?? null)),
  text: rows.map(({ cells }) => cells.map((cell) => cell?.text ?? "")),
  hoverinfo: "text",
  hoverongaps: false,
  zmin: 0,
  zmax: 100,
  zauto: false,
  xgap: 1.5,
  ygap: 1.5,
  colorscale: colours.map((name, step) => [step / (colours.length - 1), colour(name)]),
  colorbar: COLOUR_BAR,
});

function killTrace(rows, { starts, width }) {
  const kills = rows.flatMap(({ row, cells }) =>
    cells.flatMap((cell, at) => (cell?.isKill ? [{ row, at, cell }] : [])),
  );
  return {
    type: "scatter",
    mode: "markers",
    name: "out of memory",
    x: kills.map(({ at }) => starts[at] + width / 2),
    y: kills.map(({ row }) => row),
    hoverinfo: "text",
    hovertext: kills.map(({ cell }) => cell.text),
    marker: { symbol: "x", size: 9, color: colour("text"), line: { color: colour("panel"), width: 1.5 } },
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

const choicesOf = (place) => place.querySelectorAll("[data-statistic]");

/** Connects the buttons of both heatmaps. */
export function startHeatmaps(place, onChange) {
  for (const choice of choicesOf(place)) {
    choice.onclick = () => {
      selection.statistic = choice.dataset.statistic;
      writeAddress();
      onChange();
    };
  }
}

/** Shows what the cells are. */
export function showStatistic(place) {
  const { statistic } = selection;
  for (const choice of choicesOf(place)) {
    choice.setAttribute("aria-pressed", String(choice.dataset.statistic === statistic));
  }
  for (const note of place.querySelectorAll("[data-size]")) {
    note.textContent =
      `${CPU_HEAT[statistic].note} of the runs that started in each interval,` +
      ` in % of the ${note.dataset.size} size. A cross is an out-of-memory kill.`;
  }
}
