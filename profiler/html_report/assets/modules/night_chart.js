// Runs over time: a lane for each family, a bar for each run, a mark for each noticed due time.

import {
  chartLayout,
  DATE_TICKS,
  drawFigure,
  escapeHtml,
  familyAxis,
  isNarrow,
  largestFamilies,
} from "#page/charts.js";
import { content } from "#page/content.js";
import { byId, table } from "#page/elements.js";
import { asDuration, asTime, escapeControls, isKnown } from "#page/formats.js";
import { colourName, OUTCOMES } from "#page/outcomes.js";
import { familyOf } from "#page/run_values.js";
import { filterRuns, selectedRuns, selection } from "#page/selection.js";
import { grouped, max, min } from "#page/statistics.js";
import { colour } from "#page/theme.js";
import { local } from "#page/time_buckets.js";
import { DAY, MINUTE } from "#page/time_units.js";

const WIDTHS = { day: DAY, week: 7 * DAY };
const MIN_BAR_SHARE = 0.003;
const MAX_RUNS = 6000;
const MAX_ROWS = 20;
const SYMBOLS = { missed: "x", late: "triangle-right", overlapped: "diamond-open" };
const COLUMNS = [
  { name: "Due", className: "time", show: (notice) => asTime(notice.began) },
  { name: "Family", className: "family", show: (notice) => escapeControls(familyOf(notice)) },
  { name: "What happened", show: (notice) => escapeControls(notice.text) },
];
// What the reader chose; undefined until then.
const chosen = { width: undefined, from: undefined };

// A day begins at noon, so that a night is in one piece.
const noonBefore = (localMs) => Math.floor((localMs - DAY / 2) / DAY) * DAY + DAY / 2;
// A notice has the fields of a run that has no length, and a text.
const withNotices = (runs) => [...filterRuns(content.notices, selection), ...runs];
const endOf = (run) => local(run.began) + (run.ms ?? 0);

/** Returns the period that the chart shows, in local time; undefined if no run has a start time. */
export function shownPeriod(runs, { width: chosenWidth, from: chosenFrom } = {}) {
  const started = runs.filter((run) => isKnown(run.began));
  if (!started.length) return undefined;
  const starts = started.map((run) => local(run.began));
  const [first, last] = [min(starts), max(starts)];
  const width = chosenWidth ?? (last - first > 1.5 * DAY ? "day" : "all");
  if (width === "all") {
    const end = max(started.map(endOf));
    const padding = Math.max((end - first) * 0.02, MINUTE);
    return { width, from: first - padding, until: end + padding };
  }
  const length = WIDTHS[width];
  const latest = noonBefore(last) + DAY - length;
  const from = Math.min(Math.max(chosenFrom ?? latest, noonBefore(first)), latest);
  return { width, from, until: from + length, hasEarlier: from > first, hasLater: from + length <= last };
}

/** Returns the figure of what is in this period, and a sentence about the runs that it leaves out. */
export function nightFigure(runs, shown) {
  const active = runs.filter((run) => isKnown(run.began) && local(run.began) < shown.until && endOf(run) >= shown.from);
  if (!active.length) return { nothing: "No run in this selection was active in this period.", leftOut: "" };
  const notices = active.filter(({ text }) => text);
  const drawn = active.slice(0, MAX_RUNS);
  const leftOut =
    active.length > drawn.length
      ? ` The oldest ${active.length - drawn.length} of ${active.length - notices.length} runs in this period` +
        " are not drawn: choose a shorter period or fewer families."
      : "";
  const { families, left } = largestFamilies(
    drawn,
    runs.filter(({ text }) => !text),
  );
  const lanes = families.map(([family]) => family);
  const rowOf = new Map(lanes.map((family, row) => [family, row]));
  const minLength = (shown.until - shown.from) * MIN_BAR_SHARE;
  const traces = [
    ...OUTCOMES.map((outcome) => outcomeTrace(drawn, outcome, rowOf, minLength)),
    ...[...grouped(notices, ({ outcome }) => outcome)].map(([kind, marks]) => markTrace(marks, kind, rowOf)),
  ].filter(({ y }) => y.length);
  const counts = traces.map(({ y, name }) => `${y.length} ${name}`).join(", ");
  const otherFamilies = left ? ` ${left} more families are not drawn.` : "";
  return {
    leftOut,
    label:
      `Runs from ${periodText(shown)} as bars, one lane for each of ${lanes.length} families: ${counts}.` +
      otherFamilies +
      leftOut,
    notices,
    traces,
    // On a narrow page, each entry of the legend has a row.
    layout: chartLayout(Math.max(150, 78 + 24 * lanes.length) + (isNarrow() ? 19 * traces.length : 0), {
      barmode: "overlay",
      showlegend: true,
      margin: { l: 8, r: 14, t: 30, b: 34 },
      hovermode: "closest",
      xaxis: { type: "date", range: [shown.from, shown.until], ...DATE_TICKS, nticks: isNarrow() ? 4 : 12 },
      yaxis: { ...familyAxis(lanes), showgrid: false },
    }),
  };
}

function outcomeTrace(runs, outcome, rowOf, minLength) {
  const bars = runs.filter((run) => run.outcome === outcome && rowOf.has(familyOf(run)));
  return {
    type: "bar",
    orientation: "h",
    name: outcome,
    base: bars.map((run) => local(run.began)),
    x: bars.map((run) => Math.max(run.ms ?? 0, minLength)),
    y: bars.map((run) => rowOf.get(familyOf(run))),
    width: 0.62,
    marker: { color: colour(colourName(outcome)) },
    opacity: 0.9,
    customdata: bars.map((run) => run.row),
    hoverinfo: "text",
    hovertext: bars.map(
      (run) => `<b>${escapeHtml(familyOf(run))}</b><br>${asTime(run.began)}, ${asDuration(run.ms)}<br>${outcome}`,
    ),
  };
}

function markTrace(notices, kind, rowOf) {
  const marks = notices.filter((notice) => rowOf.has(familyOf(notice)));
  return {
    type: "scatter",
    mode: "markers",
    name: escapeHtml(kind),
    x: marks.map((notice) => local(notice.began)),
    y: marks.map((notice) => rowOf.get(familyOf(notice))),
    marker: { symbol: SYMBOLS[kind] ?? "square-open", size: 11, color: colour("text") },
    hoverinfo: "text",
    hovertext: marks.map((notice) => escapeHtml(notice.text, 300).replace(/(.{40}\S*) /g, "$1<br>")),
  };
}

const periodText = (shown) => {
  const text = (ms) => new Date(ms).toISOString().slice(0, 16).replace("T", " ");
  return `${text(shown.from)} to ${text(shown.until)}`;
};

export function drawNight(place, runs, onOpen) {
  const all = withNotices(runs);
  const shown = shownPeriod(all, chosen);
  drawControls(shown);
  const figure = shown
    ? nightFigure(all, shown)
    : { nothing: "No run in this selection has a start time.", leftOut: "" };
  byId("night-left-out").textContent = figure.leftOut;
  drawNotices(figure.notices ?? []);
  const drawn = drawFigure(place, figure);
  if (!figure.nothing) {
    place.removeAllListeners?.("plotly_click");
    place.on("plotly_click", ({ points }) => {
      const run = content.runs[points[0].customdata];
      if (run) onOpen(run);
    });
  }
  return drawn;
}

// The marks as text.
function drawNotices(notices) {
  const rows = notices.slice(0, MAX_ROWS);
  byId("notices").replaceChildren(
    rows.length ? table(COLUMNS, rows, { label: "Schedules" }) : "",
    notices.length > MAX_ROWS ? `${notices.length - MAX_ROWS} earlier ones are not listed.` : "",
  );
}

function drawControls(shown) {
  const place = byId("night-controls");
  place.hidden = !shown;
  if (!shown) return;
  for (const choice of place.querySelectorAll("[data-width]")) {
    choice.setAttribute("aria-pressed", String(choice.dataset.width === shown.width));
  }
  for (const [id, isPossible] of [
    ["night-earlier", shown.hasEarlier],
    ["night-later", shown.hasLater],
  ]) {
    byId(id).disabled = !isPossible;
    byId(id).hidden = shown.width === "all";
  }
  byId("night-range").textContent = periodText(shown);
}

export function startNight(onChange) {
  for (const choice of byId("night-controls").querySelectorAll("[data-width]")) {
    choice.onclick = () => {
      chosen.width = choice.dataset.width;
      chosen.from = undefined;
      onChange();
    };
  }
  const move = (direction) => () => {
    const { width, from } = shownPeriod(withNotices(selectedRuns()), chosen);
    chosen.width = width;
    chosen.from = from + direction * WIDTHS[width];
    onChange();
  };
  byId("night-earlier").onclick = move(-1);
  byId("night-later").onclick = move(1);
}
