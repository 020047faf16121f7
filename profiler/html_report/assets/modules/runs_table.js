// The table of runs. It sorts, and shows more rows as it is scrolled.

import { content } from "#page/content.js";
import { saveCsv } from "#page/csv.js";
import { appendRows, byId, emptyNote, outcomeCell, table } from "#page/elements.js";
import {
  asDuration,
  asMemory,
  asPercent,
  asTime,
  asUsd,
  asVcpuCount,
  escapeControls,
  isKnown,
  truncate,
  UNKNOWN,
} from "#page/formats.js";
import { runButton } from "#page/run_dialog.js";
import { familyOf, shareOf } from "#page/run_values.js";
import { searchRuns, selectedRuns, selection, writeAddress } from "#page/selection.js";

const ROWS_AT_ONCE = 100;

const RUN_COLUMNS = [
  {
    key: "began",
    name: "Started",
    className: "time",
    pick: (run) => run.began,
    show: (run) => runButton(run, asTime(run.began)),
  },
  { key: "family", name: "Family", className: "family", pick: familyOf, show: (run) => escapeControls(familyOf(run)) },
  {
    key: "account",
    name: "Account",
    className: "wide",
    pick: (run) => run.account,
    show: (run) => run.account ?? UNKNOWN,
  },
  { key: "region", name: "Region", className: "wide", pick: (run) => run.region, show: (run) => run.region ?? UNKNOWN },
  { key: "outcome", name: "Outcome", pick: (run) => run.outcome, show: outcomeCell },
  {
    key: "exit",
    name: "Exit code",
    className: "number wide",
    pick: (run) => run.exit,
    show: (run) => (isKnown(run.exit) ? String(run.exit) : UNKNOWN),
  },
  { key: "ms", name: "Duration", className: "number", pick: (run) => run.ms, show: (run) => asDuration(run.ms) },
  {
    key: "cpu",
    name: "Average CPU",
    className: "number wide",
    pick: (run) => run.cpu,
    show: (run) => asPercent(run.cpu),
  },
  {
    key: "vcpuMax",
    name: "Peak vCPU",
    className: "number wide",
    pick: (run) => run.vcpuMax,
    show: (run) => asVcpuCount(run.vcpuMax),
  },
  { key: "peak", name: "Peak memory", className: "number", pick: (run) => run.peak, show: (run) => asMemory(run.peak) },
  {
    key: "used",
    name: "of size",
    className: "number wide",
    pick: (run) => shareOf(run.peak, run.size),
    show: (run) => asPercent(shareOf(run.peak, run.size)),
  },
  { key: "usd", name: "Cost", className: "number wide", pick: (run) => run.usd, show: (run) => asUsd(run.usd) },
  { key: "id", name: "Task id", className: "wide", pick: (run) => run.id, show: (run) => truncate(run.id, 12) },
];

/** Sorts by the column with this key. Unknown values come last. */
export function sortRuns(runs, { sort, descending }) {
  const { pick } = RUN_COLUMNS.find(({ key }) => key === sort) ?? RUN_COLUMNS[0];
  const sign = descending ? -1 : 1;
  return [...runs].sort((a, b) => {
    const [x, y] = [pick(a), pick(b)];
    if (!isKnown(x) || !isKnown(y)) return Number(isKnown(y)) - Number(isKnown(x));
    if (x === y) return 0;
    return x < y ? -sign : sign;
  });
}

// The runs of the table in its order, of which the first `shownRows` have a row.
let listed = [];
let shownRows = ROWS_AT_ONCE;

const several = (name) => content.runs.some((run) => run[name] !== content.runs[0][name]);

const isShown = {
  usd: () => content.runs.some((run) => isKnown(run.usd)),
  account: () => several("account"),
  region: () => several("region"),
};

const runColumns = () => RUN_COLUMNS.filter((column) => isShown[column.key]?.() ?? true);

export function drawRuns(runs) {
  listed = sortRuns(searchRuns(runs, selection.search), selection);
  shownRows = ROWS_AT_ONCE;
  const place = byId("runs");
  const sorted = { key: selection.sort, descending: selection.descending };
  place.replaceChildren(
    listed.length
      ? table(runColumns(), listed.slice(0, shownRows), { sort: sortBy, sorted, label: "Runs" })
      : emptyNote("No run matches."),
  );
  place.dataset.count = listed.length;
  byId("csv").disabled = !listed.length;
  updateMoreButton();
}

function sortBy({ key, className }) {
  const largestFirst = className?.includes("number") || key === "began";
  selection.descending = selection.sort === key ? !selection.descending : largestFirst;
  selection.sort = key;
  writeAddress();
  drawRuns(selectedRuns());
  byId("runs").querySelector("th[aria-sort] button").focus();
}

function updateMoreButton() {
  const left = listed.length - shownRows;
  byId("more").hidden = left <= 0;
  byId("more").textContent = `Show ${Math.min(left, ROWS_AT_ONCE)} more of ${left}`;
}

function showMore() {
  appendRows(byId("runs").querySelector("tbody"), runColumns(), listed.slice(shownRows, shownRows + ROWS_AT_ONCE));
  shownRows += ROWS_AT_ONCE;
  updateMoreButton();
}

/** Connects the buttons. More rows appear when their button is scrolled into view. */
export function startRuns() {
  const more = byId("more");
  more.onclick = showMore;
  byId("csv").onclick = () => saveCsv(listed);
  new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting) && !more.hidden) showMore();
  }).observe(more);
}
