// The morning screen: families and nights, with the highest memory peak, kills and failures of each night.

import { startArrowKeys } from "#page/arrow_keys.js";
import { MAX_FAMILIES } from "#page/charts.js";
import { breakable, button, byId, element, emptyNote, svgElement } from "#page/elements.js";
import { asCount, asDuration, asUsd, escapeControls, isKnown } from "#page/formats.js";
import { cellName, cellSign, morningGrid, ratioText, sparkline } from "#page/morning_grid.js";
import { colourName } from "#page/outcomes.js";
import { runLink } from "#page/run_dialog.js";
import { selectedRuns } from "#page/selection.js";
import { grouped } from "#page/statistics.js";
import { isOnPaper } from "#page/theme.js";

const LINE_SIZE = { width: 64, height: 18 };
// Between these percentages, black text is readable on the colours of both themes.
const [LIGHT_UNTIL, DARK_FROM] = [28, 82];
let showsAll = false;

export function drawMorning(runs) {
  const place = byId("morning");
  const grid = morningGrid(runs, { maxRows: showsAll ? undefined : MAX_FAMILIES });
  byId("morning-title").textContent = `Families by ${grid?.unit ?? "night"}`;
  byId("morning-note").hidden = !grid;
  if (!grid) return place.replaceChildren(emptyNote("No run in this selection has a start time."));
  byId("morning-note").textContent =
    `Highest memory peak of each ${grid.unit} in % of the limit. A cell opens its killed run, else its failed` +
    " run, else the one with the highest peak. Duration: the median, and its change from the older to the newer half" +
    " of the runs." +
    (grid.isPriced ? " Cost: the sum." : "");
  const columnsKey = `${grid.columns[0].text} ${grid.columns.length}`;
  const scrolled = place.dataset.columns === columnsKey ? place.querySelector(".nights")?.scrollLeft : undefined;
  const made = nightsTable(grid);
  const box = element("div", { className: showsAll ? "nights all" : "nights" }, made);
  place.replaceChildren(legend(), box, ...rest(grid));
  place.dataset.columns = columnsKey;
  box.scrollLeft = scrolled ?? box.scrollWidth;
  return undefined;
}

function legend() {
  const item = (className, sign, text) =>
    element("span", {}, element("i", { className, textContent: sign }), ` ${text}`);
  return element(
    "p",
    { className: "note nights-legend" },
    element("span", {}, "0 % ", element("i", { className: "scale" }), " 100 %"),
    item("heat killed high", "✕", "killed: out of memory"),
    item("heat failed", "!", "failed"),
    item("unmeasured success", "✓", "peak or limit not known"),
    element("span", { textContent: "no cell: no run" }),
  );
}

// What the table leaves out.
function rest({ rows, families, tooOld, withoutStart, columns }) {
  const sentences = [
    tooOld && `Not drawn: ${asCount(tooOld, "run")} before ${columns[0].text}. Choose an earlier last day above.`,
    withoutStart && `Not drawn: ${asCount(withoutStart, "run")} without a start time.`,
    rows.length < families &&
      `${rows.length} of ${families} families: those with kills, those with failures, then those with the most runs.`,
  ].filter(Boolean);
  const redraw = () => {
    showsAll = !showsAll;
    drawMorning(selectedRuns());
    byId("morning-all")?.focus();
  };
  const toggles = rows.length < families || (showsAll && families > MAX_FAMILIES);
  const text = rows.length < families ? `Show all ${families} families` : `Show ${MAX_FAMILIES} families`;
  return [
    ...(sentences.length ? [element("p", { className: "note", textContent: sentences.join(" ") })] : []),
    ...(toggles ? [button(text, redraw, { id: "morning-all", className: "quiet" })] : []),
  ];
}

function nightsTable({ columns, rows, isPriced, unit }) {
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

function familyRow({ family, cells, duration, usd }, columns, isPriced) {
  const name = escapeControls(family);
  return element(
    "tr",
    {},
    element("th", { scope: "row", className: "name", title: name }, element("span", {}, breakable(family))),
    ...columns.map(({ text }, at) => nightCell(family, text, cells.get(at), at)),
    trendCell(duration, columns.length),
    ...(isPriced ? [element("td", { className: "number", textContent: asUsd(usd) })] : []),
  );
}

function nightCell(family, time, cell, at) {
  const made = element("td");
  if (!cell) return made;
  const name = cellName(family, time, cell);
  const { percent, killed, failed, outcome, opens } = cell;
  const zone = percent < LIGHT_UNTIL ? "low" : percent > DARK_FROM ? "high" : "";
  const kind = isKnown(percent) ? `heat ${zone}` : "unmeasured";
  const mark = killed ? "killed" : failed ? "failed" : "";
  made.append(
    runLink(opens, cellSign(cell), {
      className: `${kind} ${mark}`,
      title: name,
      tabIndex: -1,
      style: isKnown(percent) ? { "--percent": Math.min(percent, 100) } : { "--dot": `var(--${colourName(outcome)})` },
      attributes: { "aria-label": name },
      dataset: { at },
    }),
  );
  return made;
}

function trendCell(duration, columns) {
  const made = element("td", { className: "trend" });
  if (!isKnown(duration.median)) return made;
  const points = sparkline(duration, columns, LINE_SIZE);
  const svg = svgElement("svg", {
    viewBox: `-3 -3 ${LINE_SIZE.width + 6} ${LINE_SIZE.height + 6}`,
    "aria-hidden": "true",
  });
  const [x, y] = points.at(-1);
  svg.append(
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
      element("small", { textContent: ratioText(duration.ratio) }),
    ),
  );
  return made;
}
