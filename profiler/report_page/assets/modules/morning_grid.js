// The morning screen as data: a row for each family, a column for each night, a cell where runs started.

import { familiesInOrder, hasNight, worstFamilies } from "#page/charts.js";
import { content } from "#page/content.js";
import { asCount, asMemory, asPercent, asWhole, escapeControls, isKnown } from "#page/formats.js";
import { byOutcome, isFailed, isKilled } from "#page/outcomes.js";
import { costText, familyOf, mixedMemoryNote, shareOf } from "#page/run_values.js";
import { grouped, known, max, mean, median, min, quantile, usualRuns } from "#page/statistics.js";
import { DAY, HOUR, local, periodsOf, startText } from "#page/time_units.js";

const MIN_NIGHTS_RANGE = 3 * DAY;
const MAX_COLUMNS = 180;
const MIN_POINT_DISTANCE = 2;
const OTHER_SIGNS = { success: "✓", running: "▸", stopped: "■", unknown: "?" };

const AVERAGE = "The mean of the averages of the runs";

/** What a cell can show: `percentOf(run)` is the value of a run, `ofCell` that of several. The first is the default. */
export const STATISTICS = {
  peak: {
    what: "memory peak",
    tone: "memory",
    note: "The highest memory peak in % of the limit",
    percentOf: (run) => shareOf(run.peak, run.size),
    ofCell: max,
  },
  average: { what: "average memory", tone: "memory", note: AVERAGE, percentOf: (run) => run.memory, ofCell: mean },
  cpu: { what: "average CPU", tone: "cpu", note: AVERAGE, percentOf: (run) => run.cpu, ofCell: mean },
  cpuPeak: {
    what: "CPU peak",
    tone: "cpu",
    note: "The highest vCPU peak in % of the size",
    percentOf: (run) => shareOf(run.vcpuMax, run.vcpuSize),
    ofCell: max,
  },
};

/**
 * Returns the grid; undefined if no run has a start time.
 *
 * A column is one of the `periods`. Below three days, it is one hour; the hour that occurs twice at the end of summer
 * time is one column. Of more than `maxRows` families, those with kills come first, then those with failures, those with
 * a peak near the memory limit, and those with the most runs.
 */
export function morningGrid(
  runs,
  { maxRows = Number.POSITIVE_INFINITY, statistic = STATISTICS.peak, periods = periodsOf(runs) } = {},
) {
  const started = runs.filter(hasNight);
  if (!started.length) return undefined;
  const times = started.map((run) => local(run.began));
  const width = max(times) - min(times) < MIN_NIGHTS_RANGE ? HOUR : DAY;
  const starts = times.map(width === DAY ? periods.startOf : (time) => Math.floor(time / HOUR) * HOUR);
  const last = max(starts);
  const first = Math.max(min(starts), last - (MAX_COLUMNS - 1) * width);
  const drawn = started.filter((_, at) => starts[at] >= first);
  const columns = Array.from({ length: (last - first) / width + 1 }, (_, at) => {
    const text = startText(first + at * width, width);
    return width === DAY
      ? { group: text.slice(0, 7), name: text.slice(8), text }
      : { group: text.slice(0, 10), name: text.slice(11, 13), text };
  });
  const indexOf = (run) => Math.floor((local(run.began) - first) / width);
  const runsOf = grouped(drawn, familyOf);
  const families = familiesInOrder(runs)
    .filter(([family]) => runsOf.has(family))
    .map(([family]) => [family, runsOf.get(family)]);
  const changeOf = changesIn(runs);
  const rows = worstFamilies(families, maxRows).map(([family, some]) =>
    familyRow(family, some, indexOf, statistic, changeOf(family)),
  );
  return {
    unit: width === DAY ? periods.unit : "hour",
    columns,
    rows,
    families: families.length,
    isPriced: rows.some((row) => isKnown(row.cost)),
    counts: nightCounts(grouped(drawn, indexOf), columns),
    cost: costText(drawn),
    tooOld: started.length - drawn.length,
    withoutStart: runs.length - started.length,
    memoryNote: mixedMemoryNote(drawn),
  };
}

function familyRow(family, runs, indexOf, statistic, change) {
  const cells = new Map([...grouped(runs, indexOf)].map(([at, cellRuns]) => [at, cellOf(cellRuns, statistic)]));
  return {
    family,
    cells,
    duration: durationTrend(runs, indexOf, change),
    cost: costText(runs),
  };
}

// The runs of each night by outcome, and the share of the highest number.
function nightCounts(byNight, columns) {
  const most = max([...byNight.values()].map(({ length }) => length));
  return columns.map((_, at) => {
    const runs = byNight.get(at) ?? [];
    return {
      count: runs.length,
      share: runs.length / most,
      outcomes: byOutcome(runs).map(([name, some]) => [name, some.length]),
    };
  });
}

// The killed run, else the failed one, else any: of several the one with the highest value, then the newest.
function openedRun(runs, { percentOf }) {
  const candidates = [runs.filter(isKilled), runs.filter(isFailed), runs].find(({ length }) => length);
  const isHigher = (a, b) =>
    (percentOf(a) ?? -1) - (percentOf(b) ?? -1) || (a.peak ?? -1) - (b.peak ?? -1) || a.began - b.began;
  return candidates.reduce((highest, run) => (isHigher(run, highest) > 0 ? run : highest));
}

function cellOf(runs, statistic) {
  const { what, tone, percentOf, ofCell } = statistic;
  const killed = runs.filter(isKilled).length;
  const opens = openedRun(runs, statistic);
  const percent = ofCell(known(runs, percentOf));
  const peak = statistic === STATISTICS.peak ? max(known(runs, (run) => run.peak)) : undefined;
  return {
    runs: runs.length,
    percent,
    value: `${what} ${isKnown(percent) ? asPercent(percent) : isKnown(peak) ? asMemory(peak) : "not measured"}`,
    tone,
    killed,
    failed: runs.filter(isFailed).length - killed,
    outcome: opens.outcome,
    opens,
  };
}

// A cell has no room for the digits of less than 1 %, which its name has.
const inCell = (percent) => {
  if (percent > 0 && percent < 1) return "<1";
  const text = asPercent(percent).replace(" %", "");
  return text.includes(".") ? ">99" : text; // a cell of a phone has room for three characters
};

/** Returns the lines of a cell: the percentage, and below it marks of kills and failures; without both a sign. */
export function cellLines({ killed, failed, percent, outcome }) {
  const mark = (sign, count) => (count ? `${sign}${count > 1 ? count : ""}` : "");
  const marks = mark("✕", killed) + mark("!", failed);
  const value = isKnown(percent) ? inCell(percent) : marks ? "" : OTHER_SIGNS[outcome];
  return [value, marks].filter(Boolean);
}

/** Returns the accessible name of a cell. */
export function cellName(family, time, { runs, killed, failed, value, outcome }) {
  const several = [killed && `${killed} killed`, failed && `${failed} failed`, `${runs} runs`].filter(Boolean);
  const one = killed ? "killed" : failed ? "failed" : outcome;
  return [escapeControls(family), time, value, ...(runs > 1 ? several : [one])].join(", ");
}

/** Returns the accessible name of a night's number of runs. */
export const countName = (time, { count, outcomes }) =>
  [time, asCount(count, "run"), ...outcomes.map(([name, number]) => `${asWhole(number)} ${name}`)].join(", ");

// Returns the change of a family's duration. It is of all runs of the page, by the rule of
// profiler/runs/comparison/change_interval.py: a selection of a family's runs has none.
function changesIn(runs) {
  const { changes = {} } = content;
  const all = grouped(content.runs, familyOf);
  const selected = grouped(runs, familyOf);
  return (family) => (selected.get(family)?.length === all.get(family)?.length ? changes[family] : undefined);
}

/**
 * Returns the median and the 95th percentile of a family's durations, their change in percent, and the median of each
 * column. Runs that failed or go on are left out where others have succeeded.
 */
function durationTrend(runs, indexOf, change) {
  const ended = runs.filter((run) => isKnown(run.ms) && run.outcome !== "running");
  const judged = usualRuns(ended).sort((a, b) => a.began - b.began);
  const medianOf = (some) => median(some.map((run) => run.ms));
  return {
    median: medianOf(judged),
    p95: quantile(
      judged.map((run) => run.ms),
      0.95,
    ),
    change,
    points: [...grouped(judged, indexOf)].map(([at, some]) => [at, medianOf(some)]),
  };
}

/** Returns the change of the duration: "+12 %", "-30 %", "×1000"; nothing where chance may be all of it. */
export function changeText(percent) {
  if (!isKnown(percent)) return "";
  if (percent >= 900) return `×${asWhole((percent / 100 + 1).toFixed(0))}`;
  return `${percent > 0 ? "+" : ""}${asPercent(percent)}`;
}

// One point, the median, for so many columns: more points than the line has room for hide its course.
const thinned = (points, columns) =>
  [...grouped(points, ([at]) => Math.floor(at / columns))].map(([group, some]) => [
    columns === 1 ? some[0][0] : Math.min((group + 0.5) * columns - 0.5, some.at(-1)[0]),
    median(some.map(([, ms]) => ms)),
  ]);

/**
 * Returns the points of a line of this size, and the heights of the median and the 95th percentile. A value far from
 * the median is drawn at the edge.
 */
export function sparkline({ median, p95, points: all }, columns, { width, height }) {
  const points = thinned(all, Math.ceil((MIN_POINT_DISTANCE * columns) / width));
  const within = (ms) => Math.min(Math.max(ms, median / 3), median * 3);
  const values = points.map(([, ms]) => within(ms));
  const [low, high] = [min(values), max(values)];
  const range = Math.max(high - low, median * 0.2, 1);
  const middle = (low + high) / 2;
  const round = (value) => Math.round(10 * value) / 10;
  const heightOf = (ms) => round(height * (0.5 - (0.9 * (within(ms) - middle)) / range));
  return {
    points: points.map(([at, ms]) => [round(((at + 0.5) / columns) * width), heightOf(ms)]),
    band: [median, p95].map((ms) => Math.min(Math.max(heightOf(ms), 0), height)),
  };
}
