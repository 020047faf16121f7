// What charts share: the order of families, the runs of nights, and the chart library.

import { content } from "#page/content.js";
import { byId, element } from "#page/elements.js";
import { isKnown } from "#page/formats.js";
import { isFailed, isKilled } from "#page/outcomes.js";
import { familyOf, isHot, shareOf } from "#page/run_values.js";
import { grouped } from "#page/statistics.js";
import { DAY } from "#page/time_units.js";

export const MAX_FAMILIES = 30;
const PLOTLY_CONFIG = { displayModeBar: false, responsive: true, showTips: false, doubleClick: false };
export const isNarrow = () => window.innerWidth <= 640;

/** Whether a run or a notice belongs to a night: a start of more than a day after now was written by a wrong clock. */
export const hasNight = ({ began }) => isKnown(began) && !(began > Date.parse(content.generatedAt) + DAY);

// The library is text until a run is opened: its evaluation takes longer than the whole overview.
function plotly() {
  if (!window.Plotly) byId("plotly").replaceWith(element("script", { textContent: byId("plotly").textContent }));
  return window.Plotly;
}

export function drawPlot(place, traces, layout) {
  place.style.minHeight = `${layout.height}px`;
  // Plotly keeps the width of the first drawing, which differs on paper.
  if (place.clientWidth) layout.width = place.clientWidth;
  return plotly().react(place, traces, layout, PLOTLY_CONFIG);
}

// What a reader must see: a kill above a failure, that above a due time that was missed, and that above a peak near
// the memory limit.
function badness(runs) {
  if (runs.some(isKilled)) return 4;
  if (runs.some(isFailed)) return 3;
  if (runs.some(({ outcome }) => outcome === "missed")) return 2;
  return runs.some(({ peak, size }) => isHot(shareOf(peak, size), "memory")) ? 1 : 0;
}

const withBadness = (families) => new Map(families.map(([family, runs]) => [family, badness(runs)]));

/** Returns all families as [family, runs] in the order of rows: most runs first, of equally many the worst. */
export function familiesInOrder(runs) {
  const families = [...grouped(runs, familyOf)];
  const badnessOf = withBadness(families);
  return families.sort(
    ([a, runsOfA], [b, runsOfB]) =>
      runsOfB.length - runsOfA.length || badnessOf.get(b) - badnessOf.get(a) || (a < b ? -1 : 1),
  );
}

/** Chooses the worst `most` families, then the first ones. They stay in their order. */
export function worstFamilies(families, most) {
  const badnessOf = withBadness(families);
  const worstFirst = [...families].sort(([a], [b]) => badnessOf.get(b) - badnessOf.get(a));
  const chosen = new Set(worstFirst.slice(0, most));
  return families.filter((family) => chosen.has(family));
}

/**
 * Returns the families of a chart's runs as [family, runs], and the number of those that it leaves out.
 *
 * Every chart has the order of the selected runs.
 */
export function drawnFamilies(runs, selectedRuns = runs, most = MAX_FAMILIES) {
  const ranks = new Map(familiesInOrder(selectedRuns).map(([family], rank) => [family, rank]));
  const rankOf = ([family]) => ranks.get(family) ?? ranks.size;
  const families = familiesInOrder(runs).sort((a, b) => rankOf(a) - rankOf(b));
  return { families: worstFamilies(families, most), left: Math.max(families.length - most, 0) };
}
