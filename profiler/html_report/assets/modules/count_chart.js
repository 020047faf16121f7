// The number of runs over time, by outcome.

import { bucketAxis, chartLayout } from "#page/charts.js";
import { isKnown } from "#page/formats.js";
import { colourName, OUTCOMES } from "#page/outcomes.js";
import { max, total } from "#page/statistics.js";
import { colour } from "#page/theme.js";
import { asPlotted, bucketText } from "#page/time_buckets.js";

const MAX_TICKS = 6;

/** Returns the distance of at most 6 ticks up to a count: 1, 2, 5, 10, 20, 50, … */
export function countStep(highest) {
  const power = 10 ** Math.floor(Math.log10(Math.max(highest / MAX_TICKS, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => highest / step <= MAX_TICKS);
}

export function countFigure(runs, buckets) {
  if (!buckets.starts.length) return { nothing: "No run in this selection has a start time." };
  const traces = OUTCOMES.map((outcome) => outcomeTrace(runs, buckets, outcome)).filter(({ y }) => y.some(Boolean));
  const highest = max(buckets.starts.map((_, at) => total(traces.map(({ y }) => y[at])))) ?? 0;
  return {
    label: `Number of runs over time by outcome: ${traces.map(({ y, name }) => `${total(y)} ${name}`).join(", ")}.`,
    traces,
    layout: chartLayout(300, {
      barmode: "stack",
      showlegend: true,
      margin: { l: 8, r: 10, t: 30, b: 34 },
      xaxis: bucketAxis(buckets),
      yaxis: { rangemode: "tozero", tickformat: ",d", tick0: 0, dtick: countStep(highest) },
    }),
  };
}

function outcomeTrace(runs, { starts, width, indexOf }, outcome) {
  const counts = starts.map(() => 0);
  for (const run of runs) if (run.outcome === outcome && isKnown(run.began)) counts[indexOf(run)] += 1;
  return {
    type: "bar",
    name: outcome,
    x: starts.map((start) => asPlotted(start + width / 2)),
    y: counts,
    width: width * 0.86,
    marker: { color: colour(colourName(outcome)) },
    hoverinfo: "text",
    hovertext: starts.map((start, at) => `${bucketText(start, width)}<br>${outcome}: ${counts[at]}`),
  };
}
