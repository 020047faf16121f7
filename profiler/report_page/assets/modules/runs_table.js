// The table of runs. It sorts, and has pages of 100 rows.

import { content } from "#page/content.js";
import { saveCsv } from "#page/csv.js";
import {
  breakable,
  byId,
  element,
  emptyNote,
  NO_MATCH,
  outcomeCell,
  svgElement,
  table,
  withBar,
  withWholeWords,
} from "#page/elements.js";
import { asDuration, asPercent, asVcpuCount, asWhole, isKnown, truncate, UNKNOWN } from "#page/formats.js";
import { coursePath } from "#page/overview_strip.js";
import { runLink } from "#page/run_dialog.js";
import {
  asCpuShare,
  asStart,
  costText,
  familyOf,
  gpuUseOf,
  memoryOf,
  mixedMemoryNote,
  shareOf,
} from "#page/run_values.js";
import { searchRuns, selectedRuns, selection, writeAddress } from "#page/selection.js";

const PAGE_ROWS = 100;

// A course has a digit to the base 36 for each part of the run, or "-" for a gap.
function courseLine(course) {
  if (!course) return [];
  const values = [...course].map((digit) => (digit === "-" ? undefined : Number.parseInt(digit, 36)));
  const ends = values.map((_, part) => part + 1);
  const path = svgElement("path", { d: coursePath(ends, values, [0, values.length]) });
  const box = { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" };
  return [svgElement("svg", box, path)];
}

const RUN_COLUMNS = [
  {
    key: "began",
    name: "Started",
    className: "time",
    pick: (run) => run.began,
    show: (run) => runLink(run, withWholeWords(asStart(run))),
  },
  { key: "family", name: "Family", className: "family", pick: familyOf, show: (run) => breakable(familyOf(run)) },
  {
    key: "account",
    name: "Account",
    className: "widest",
    pick: (run) => run.account,
    show: (run) => run.account ?? UNKNOWN,
  },
  {
    key: "region",
    name: "Region",
    className: "widest region",
    pick: (run) => run.region,
    show: (run) => run.region ?? UNKNOWN,
  },
  { key: "outcome", name: "Outcome", pick: (run) => run.outcome, show: outcomeCell },
  {
    key: "exit",
    name: "Exit code",
    className: "number wide",
    pick: (run) => run.exit,
    show: (run) => (isKnown(run.exit) ? String(run.exit) : UNKNOWN),
  },
  {
    key: "ms",
    name: "Duration",
    className: "number duration",
    pick: (run) => run.ms,
    show: (run) => asDuration(run.ms),
  },
  {
    key: "cpu",
    name: "Average CPU",
    className: "number wide",
    pick: (run) => run.cpu,
    show: asCpuShare,
  },
  {
    key: "vcpuMax",
    name: "Peak vCPU",
    className: "number wide",
    pick: (run) => run.vcpuMax,
    show: (run) => withBar(asVcpuCount(run.vcpuMax), shareOf(run.vcpuMax, run.vcpuSize), "cpu"),
  },
  {
    key: "peak",
    name: "Peak memory",
    className: "number course",
    pick: (run) => run.peak,
    show: (run) =>
      element(
        "span",
        {},
        ...courseLine(run.course),
        withBar(memoryOf(run, "peak"), shareOf(run.peak, run.size), "memory"),
      ),
  },
  {
    key: "used",
    name: "of size",
    className: "number wider",
    pick: (run) => shareOf(run.peak, run.size),
    show: (run) => asPercent(shareOf(run.peak, run.size)),
  },
  {
    key: "gpu",
    name: "GPU",
    className: "number gpus",
    pick: (run) => run.gpu,
    show: gpuUseOf,
  },
  {
    key: "gpuPeak",
    name: "GPU memory",
    className: "number wide",
    pick: (run) => run.gpuPeak,
    show: (run) => withBar(memoryOf(run, "gpuPeak"), shareOf(run.gpuPeak, run.gpuSize), "memory"),
  },
  {
    key: "gpuBetween",
    name: "Idle between",
    className: "number wider",
    pick: (run) => run.gpuBetween,
    show: (run) => asPercent(run.gpuBetween),
  },
  {
    key: "usd",
    name: "Cost",
    className: "number wide",
    pick: (run) => run.usd,
    show: (run) => costText([run]) ?? UNKNOWN,
  },
  { key: "id", name: "Task id", className: "wider size", pick: (run) => run.id, show: (run) => truncate(run.id, 12) },
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

// The runs of the table in its order, and the first one of the page.
let listed = [];
let first = 0;

const several = (name) => content.runs.some((run) => run[name] !== content.runs[0][name]);

const hasGpus = () => content.runs.some((run) => isKnown(run.gpu) || isKnown(run.gpuWord) || isKnown(run.gpuPeak));

const isShown = {
  gpu: hasGpus,
  gpuPeak: hasGpus,
  gpuBetween: hasGpus,
  usd: () => content.runs.some((run) => isKnown(run.usd)),
  account: () => several("account"),
  region: () => several("region"),
};

const runColumns = () => RUN_COLUMNS.filter((column) => isShown[column.key]?.() ?? true);

export function drawRuns(runs) {
  listed = sortRuns(searchRuns(runs, selection.search), selection);
  byId("runs").dataset.count = listed.length;
  byId("csv").disabled = !listed.length;
  showPage(0);
}

function showPage(from) {
  first = from;
  const end = Math.min(first + PAGE_ROWS, listed.length);
  const sorted = { key: selection.sort, descending: selection.descending };
  const note = mixedMemoryNote(listed);
  byId("runs").replaceChildren(
    listed.length
      ? table(runColumns(), listed.slice(first, end), { sort: sortBy, sorted, label: "Runs" })
      : emptyNote(selectedRuns().length ? "No run matches the search." : NO_MATCH),
    ...(note ? [element("p", { className: "note", textContent: note })] : []),
  );
  byId("pages").hidden = listed.length <= PAGE_ROWS;
  byId("page-range").textContent = `${asWhole(first + 1)} to ${asWhole(end)} of ${asWhole(listed.length)}`;
  byId("page-before").disabled = first === 0;
  byId("page-after").disabled = end === listed.length;
}

function sortBy({ key, className }) {
  const largestFirst = className?.includes("number") || key === "began";
  selection.descending = selection.sort === key ? !selection.descending : largestFirst;
  selection.sort = key;
  writeAddress();
  drawRuns(selectedRuns());
  byId("runs").querySelector("th[aria-sort] button").focus();
}

/** Connects the buttons. A page begins with its first row in view. */
export function startRuns() {
  const turn = (rows) => () => {
    showPage(first + rows);
    byId("runs").scrollIntoView({ block: "start" });
  };
  byId("page-before").onclick = turn(-PAGE_ROWS);
  byId("page-after").onclick = turn(PAGE_ROWS);
  byId("csv").onclick = () => saveCsv(listed);
}
