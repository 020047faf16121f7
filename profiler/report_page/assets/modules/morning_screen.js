// The morning screen: families and nights, a heatmap of memory or CPU, kills and failures.

import { startArrowKeys } from "#page/arrow_keys.js";
import { MAX_FAMILIES } from "#page/charts.js";
import { content } from "#page/content.js";
import { breakable, button, byId, element, emptyNote, NO_MATCH, svgElement } from "#page/elements.js";
import {
  asCount,
  asDuration,
  asFamilies,
  asWhole,
  escapeControls,
  isKnown,
  UNKNOWN,
  unbroken,
  upperFirst,
} from "#page/formats.js";
import { cellLines, cellName, changeText, countName, morningGrid, STATISTICS, sparkline } from "#page/morning_grid.js";
import { outcomeColour } from "#page/outcomes.js";
import { runLink } from "#page/run_dialog.js";
import { isHot } from "#page/run_values.js";
import { selectedRuns, selection, writeAddress } from "#page/selection.js";
import { grouped } from "#page/statistics.js";
import { isOnPaper } from "#page/theme.js";
import { periodsOf } from "#page/time_units.js";

const LINE_SIZE = { width: 64, height: 18 };
let showsAll = false;

export function drawMorning(runs) {
  const place = byId("morning");
  const statistic = STATISTICS[selection.statistic];
  const periods = periodsOf(content.runs);
  const grid = morningGrid(runs, { maxRows: showsAll ? undefined : MAX_FAMILIES, statistic, periods });
  byId("morning-title").textContent = `Families by ${grid?.unit ?? "night"}`;
  for (const id of ["morning-note", "morning-choice"]) byId(id).hidden = !grid;
  if (!grid)
    return place.replaceChildren(emptyNote(runs.length ? "No run in this selection has a start time." : NO_MATCH));
  drawChoice();
  const hasChange = grid.rows.some(({ duration }) => isKnown(duration.change));
  byId("morning-note").textContent =
    `${statistic.note}. A cell opens its killed run, else its failed run, else the highest one. Duration: the median` +
    " of the successful runs, else of all (band: up to the 95th percentile)" +
    (hasChange ? ", and its change from the older to the newer half of the last 50 nights, if it is no chance." : ".") +
    (grid.isPriced ? " Cost: the sum." : "");
  const columnsKey = `${grid.columns[0].text} ${grid.columns.length}`;
  const scrolled = place.dataset.columns === columnsKey ? place.querySelector(".nights")?.scrollLeft : undefined;
  const made = nightsTable(grid);
  const box = element("div", { className: showsAll ? "nights all" : "nights" }, made);
  place.replaceChildren(legend(statistic), box, ...rest(grid));
  place.dataset.columns = columnsKey;
  showWholeColumns(box);
  box.scrollLeft = scrolled ?? box.scrollWidth;
  return undefined;
}

/** Keeps the columns whole when the window changes its width. */
export function startMorning() {
  window.addEventListener("resize", () => {
    for (const box of byId("morning").querySelectorAll(".nights")) showWholeColumns(box);
  });
}

// Where not all columns have room, the names take what the leftmost one would have of it.
function showWholeColumns(box) {
  box.style.removeProperty("--name");
  const [first, second] = box.querySelectorAll(".night");
  const hidden = box.scrollWidth - box.clientWidth;
  if (hidden <= 0 || !second || isOnPaper()) return;
  const step = second.getBoundingClientRect().left - first.getBoundingClientRect().left;
  const name = box.querySelector(".name").getBoundingClientRect().width;
  box.style.setProperty("--name", `${name + ((step - (hidden % step)) % step)}px`);
}

function drawChoice() {
  const choose = (name) => () => {
    selection.statistic = name;
    writeAddress();
    drawMorning(selectedRuns());
    byId("morning-choice").querySelector("[aria-pressed=true]").focus();
  };
  byId("morning-choice").replaceChildren(
    ...Object.entries(STATISTICS).map(([name, { what }]) =>
      button(upperFirst(what), choose(name), { attributes: { "aria-pressed": String(name === selection.statistic) } }),
    ),
  );
}

function legend({ tone }) {
  const item = (className, sign, text) =>
    element("span", {}, element("i", { className, textContent: sign }), ` ${text}`);
  return element(
    "p",
    { className: "note nights-legend" },
    element("span", {}, "0 % ", element("i", { className: `scale ${tone}` }), " 100 %"),
    item("killed", "✕", "killed for memory"),
    item(`heat ${tone} failed`, "!", "failed"),
    item("unmeasured success", "✓", "not measured, or no limit"),
    element("span", { textContent: "no cell: no run" }),
  );
}

// What the table leaves out.
function rest({ rows, families, tooOld, withoutStart, memoryNote, columns }) {
  const sentences = [
    tooOld && `Not drawn: ${asCount(tooOld, "run")} before ${columns[0].text}. Choose an earlier day in “To”.`,
    withoutStart && `Not drawn: ${asCount(withoutStart, "run")} whose start is unknown or in the future.`,
    memoryNote,
    rows.length < families &&
      `${asWhole(rows.length)} of ${asFamilies(families)}: those with kills, failures or a peak near the memory limit, then those with the most runs.`,
  ].filter(Boolean);
  const redraw = () => {
    showsAll = !showsAll;
    drawMorning(selectedRuns());
    byId("morning-all")?.focus();
  };
  const toggles = rows.length < families || (showsAll && families > MAX_FAMILIES);
  const text = rows.length < families ? `Show all ${families} families` : `Show ${MAX_FAMILIES} families`;
  return [
    ...(sentences.length ? [element("p", { className: "note", textContent: unbroken(sentences.join(" ")) })] : []),
    ...(toggles ? [button(text, redraw, { id: "morning-all", className: "quiet" })] : []),
  ];
}

function nightsTable(grid) {
  const { columns, rows, isPriced, unit } = grid;
  const groups = [...grouped(columns, ({ group }) => group)];
  const charactersOfColumn = Math.min(3.8, isOnPaper() ? 65 / columns.length : 3.8);
  const head = (textContent, properties = {}) => element("th", { textContent, ...properties });
  const table = element(
    "table",
    {
      className: columns.length > 31 ? "many" : "",
      style: { "--columns": columns.length },
      attributes: { "aria-labelledby": "morning-title", "aria-describedby": "morning-note" },
    },
    element(
      "thead",
      {},
      element(
        "tr",
        {},
        head("Family", { scope: "col", rowSpan: 2, className: "name" }),
        ...groups.map(([group, { length }]) => groupHead(group, length, groups.length > 1, charactersOfColumn)),
        head("Duration", { scope: "col", rowSpan: 2, className: "trend" }),
        ...(isPriced ? [head("Cost", { scope: "col", rowSpan: 2, className: "number" })] : []),
      ),
      element("tr", {}, ...columns.map(({ name }) => head(name, { scope: "col", className: "night" }))),
      countsRow(grid),
    ),
    element("tbody", {}, ...rows.map((row) => familyRow(row, columns, isPriced))),
  );
  table.dataset.unit = unit;
  startArrowKeys(table, "tbody tr");
  return table;
}

// The month of the nights, or the day of the hours. Above few columns, there is room for its end alone.
function groupHead(group, columns, isOneOfMany, charactersOfColumn) {
  const hasRoom = ({ length }) => length <= charactersOfColumn * columns;
  const text = isOneOfMany ? [group, group.slice(5), group.slice(8)].find(hasRoom) : group;
  return element(
    "th",
    { scope: "colgroup", colSpan: columns, className: isOneOfMany ? "group narrow" : "group", abbr: group },
    element("span", { textContent: text }),
  );
}

// The number of runs of each night, and a bar of their outcomes.
function countsRow({ columns, counts, isPriced, cost }) {
  const cell = (night, at) => {
    const name = countName(columns[at].text, night);
    let from = 0;
    const parts = night.outcomes.map(([outcome, count]) => {
      const part = `${outcomeColour(outcome)} ${from}% ${from + (100 * count) / night.count}%`;
      from += (100 * count) / night.count;
      return part;
    });
    const bar = { height: `${100 * night.share}%`, background: `linear-gradient(to top, ${parts.join(", ")})` };
    const made = element("td", { className: "count", title: name, attributes: { "aria-label": name } });
    if (night.count) made.append(element("i", {}, element("i", { style: bar })), String(night.count));
    return made;
  };
  return element(
    "tr",
    {},
    element("th", { scope: "row", className: "name", textContent: "All runs" }),
    ...counts.map(cell),
    element("td"),
    ...(isPriced ? [element("td", { className: "number", textContent: cost })] : []),
  );
}

function familyRow({ family, cells, duration, cost }, columns, isPriced) {
  const name = escapeControls(family);
  return element(
    "tr",
    {},
    element("th", { scope: "row", className: "name", title: name }, element("span", {}, breakable(family))),
    ...columns.map(({ text }, at) => nightCell(family, text, cells.get(at), at)),
    trendCell(duration, columns.length),
    ...(isPriced ? [element("td", { className: "number", textContent: cost ?? UNKNOWN })] : []),
  );
}

function nightCell(family, time, cell, at) {
  const made = element("td");
  if (!cell) return made;
  const name = cellName(family, time, cell);
  const { percent, tone, killed, failed, outcome, opens } = cell;
  const lines = cellLines(cell);
  const kind = killed ? "killed" : isKnown(percent) ? `heat ${isHot(percent, tone) ? "hot" : tone}` : "unmeasured";
  made.append(
    runLink(opens, lines.join("\n"), {
      className: `${kind} ${failed && !killed ? "failed" : ""} ${lines.length > 1 ? "two" : ""}`,
      title: name,
      tabIndex: -1,
      style: { "--percent": Math.min(percent ?? 0, 100), "--dot": outcomeColour(outcome) },
      attributes: { "aria-label": name },
      dataset: { at },
    }),
  );
  return made;
}

function trendCell(duration, columns) {
  const made = element("td", { className: "trend" });
  if (!isKnown(duration.median)) return made;
  made.title = `median ${asDuration(duration.median)}, 95th percentile ${asDuration(duration.p95)}`;
  const { points, band } = sparkline(duration, columns, LINE_SIZE);
  const svg = svgElement("svg", {
    viewBox: `-3 -3 ${LINE_SIZE.width + 6} ${LINE_SIZE.height + 6}`,
    "aria-hidden": "true",
  });
  const [x, y] = points.at(-1);
  svg.append(
    svgElement("rect", { width: LINE_SIZE.width, y: band[1], height: Math.max(band[0] - band[1], 0.5) }),
    svgElement("polyline", { points: points.map((point) => point.join()).join(" ") }),
    svgElement("circle", { cx: x, cy: y, r: 2 }),
  );
  made.append(
    element(
      "div",
      {},
      svg,
      element("span", { textContent: asDuration(duration.median) }),
      " ",
      element("small", { textContent: changeText(duration.change) }),
    ),
  );
  return made;
}
