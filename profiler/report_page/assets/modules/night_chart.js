// Runs over time: bars that are links to their runs, and the controls of the period.

import { startArrowKeys } from "#page/arrow_keys.js";
import { isNarrow, MAX_FAMILIES } from "#page/charts.js";
import { content } from "#page/content.js";
import { breakable, button, byId, element, emptyNote, NO_MATCH, table } from "#page/elements.js";
import { asCount, asTime, escapeControls } from "#page/formats.js";
import { nightLanes, periodText, shownPeriod, timeTicks, WIDTHS } from "#page/night_lanes.js";
import { isFailed, OUTCOMES, outcomeColour } from "#page/outcomes.js";
import { runLink } from "#page/run_dialog.js";
import { familyOf } from "#page/run_values.js";
import { filterRuns, selectedRuns, selection } from "#page/selection.js";
import { isOnPaper } from "#page/theme.js";

const MAX_ROWS = 20;
const SIGNS = { missed: "✕", late: "▸", overlapped: "◇" };
const signOf = (kind) => SIGNS[kind] ?? "□";
const COLUMNS = [
  { name: "Due", className: "time", show: (notice) => asTime(notice.began) },
  { name: "Family", className: "family", show: (notice) => breakable(familyOf(notice)) },
  { name: "What happened", show: (notice) => escapeControls(notice.text) },
];
// What the reader chose; undefined until then.
const chosen = { width: undefined, from: undefined, showsAll: false };

const withNotices = (runs) => [...filterRuns(content.notices, selection), ...runs];

export function drawNight(place, runs) {
  const all = withNotices(runs);
  const shown = shownPeriod(all, chosen);
  drawControls(shown);
  const nothing = runs.length ? "No run in this selection has a start time." : NO_MATCH;
  const most = chosen.showsAll ? Number.POSITIVE_INFINITY : MAX_FAMILIES;
  const lanes = shown ? nightLanes(all, shown, most) : { nothing, leftOut: "" };
  byId("night-left-out").replaceChildren(
    lanes.leftOut,
    ...familiesButton(lanes.families, () => drawNight(place, runs)),
  );
  drawNotices(lanes.notices ?? []);
  place.replaceChildren(lanes.nothing ? emptyNote(lanes.nothing) : lanesElement(lanes, shown));
}

// Draws the lanes of all families, or of the first ones again.
function familiesButton(families, redraw) {
  if (!(families > MAX_FAMILIES)) return [];
  const toggle = () => {
    chosen.showsAll = !chosen.showsAll;
    redraw();
    byId("night-all")?.focus();
  };
  const text = `Show ${chosen.showsAll ? MAX_FAMILIES : `all ${families}`} families`;
  return [" ", button(text, toggle, { id: "night-all", className: "quiet" })];
}

function lanesElement({ label, kinds, lanes }, shown) {
  const made = element(
    "div",
    { className: "lanes", attributes: { role: "group", "aria-label": label } },
    element("ul", { className: "legend" }, ...kinds.map(kindItem)),
    element("div", { className: "rows" }, axis(shown), ...lanes.map(laneRow)),
  );
  startArrowKeys(made, ".lane");
  return made;
}

const kindItem = (kind) =>
  OUTCOMES.includes(kind)
    ? element("li", { textContent: kind, style: { "--part": outcomeColour(kind) } })
    : element("li", { className: "mark", textContent: `${signOf(kind)} ${kind}` });

function laneRow({ family, bars, marks }) {
  const name = element("span", { className: "name", title: escapeControls(family) }, breakable(family));
  return element("div", { className: "lane" }, name, element("div", {}, ...bars.map(barLink), ...marks.map(dueMark)));
}

const barLink = ({ run, at, name, left, width }) =>
  runLink(run, "", {
    title: name,
    tabIndex: -1,
    className: isFailed(run) ? "failed" : "",
    style: { "--left": left, "--width": width, "--part": outcomeColour(run.outcome) },
    attributes: { "aria-label": name },
    dataset: { at },
  });

const dueMark = ({ kind, text, left }) =>
  element("i", {
    className: "mark",
    textContent: signOf(kind),
    title: text,
    style: { "--left": left },
    attributes: { role: "img", "aria-label": text },
  });

function axis(shown) {
  const most = Math.min(12, Math.floor((window.innerWidth - 330) / 60)); // next to the names of the lanes
  const ticks = timeTicks(shown, isOnPaper() ? 6 : isNarrow() ? 3 : most);
  return element(
    "div",
    { className: "axis", attributes: { "aria-hidden": "true" } },
    ...ticks.map(({ left, lines }) =>
      element("i", { style: { "--left": left } }, element("span", { textContent: lines.join("\n") })),
    ),
  );
}

// The marks as text.
function drawNotices(notices) {
  const rows = notices.slice(0, MAX_ROWS);
  byId("notices").replaceChildren(
    rows.length ? table(COLUMNS, rows, { label: "Schedules" }) : "",
    notices.length > MAX_ROWS ? `Not listed: ${asCount(notices.length - MAX_ROWS, "earlier notice")}.` : "",
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
