// The morning screen as data: a row for each family, a column for each night, a cell where runs started.

import { familiesInOrder } from "#page/charts.js";
import { asMemory, escapeControls, isKnown } from "#page/formats.js";
import { isFailed, isKilled } from "#page/outcomes.js";
import { familyOf, shareOf, usdByTask } from "#page/run_values.js";
import { grouped, known, max, median, min, total, usualRuns } from "#page/statistics.js";
import { bucketText, local } from "#page/time_buckets.js";
import { DAY, HOUR } from "#page/time_units.js";

const MIN_NIGHTS_RANGE = 3 * DAY;
const MAX_COLUMNS = 180;
const MIN_RUNS_OF_CHANGE = 4;
const MIN_POINT_DISTANCE = 2;
const OTHER_SIGNS = { success: "✓", running: "▸", stopped: "■", unknown: "?" };

const percentOf = (run) => shareOf(run.peak, run.size);

/**
 * Returns the grid; undefined if no run has a start time.
 *
 * A night is one calendar day of the reader, from midnight to midnight. Below three days, a column is one hour; the
 * hour that occurs twice at the end of summer time is one column. Of more than `maxRows` families, those with kills
 * come first, then those with failures, then those with the most runs.
 */
export function morningGrid(runs, { maxRows = Number.POSITIVE_INFINITY } = {}) {
  const started = runs.filter((run) => isKnown(run.began));
  if (!started.length) return undefined;
  const times = started.map((run) => local(run.began));
  const width = max(times) - min(times) < MIN_NIGHTS_RANGE ? HOUR : DAY;
  const starts = times.map((time) => Math.floor(time / width) * width);
  const last = max(starts);
  const first = Math.max(min(starts), last - (MAX_COLUMNS - 1) * width);
  const drawn = started.filter((_, at) => starts[at] >= first);
  const columns = Array.from({ length: (last - first) / width + 1 }, (_, at) => {
    const text = bucketText(first + at * width, width);
    return width === DAY
      ? { group: text.slice(0, 7), name: text.slice(8), text }
      : { group: text.slice(0, 10), name: text.slice(11, 13), text };
  });
  const indexOf = (run) => Math.floor((local(run.began) - first) / width);
  const runsOf = grouped(drawn, familyOf);
  const all = familiesInOrder(runs)
    .filter(([family]) => runsOf.has(family))
    .map(([family]) => familyRow(family, runsOf.get(family), indexOf));
  const chosen = new Set([...all].sort((a, b) => badness(b) - badness(a)).slice(0, maxRows));
  return {
    unit: width === DAY ? "night" : "hour",
    columns,
    rows: all.filter((row) => chosen.has(row)),
    families: all.length,
    isPriced: all.some((row) => isKnown(row.usd)),
    tooOld: started.length - drawn.length,
    withoutStart: runs.length - started.length,
  };
}

const badness = (row) => (row.killed ? 2 : row.failed ? 1 : 0);

function familyRow(family, runs, indexOf) {
  const cells = new Map([...grouped(runs, indexOf)].map(([at, cellRuns]) => [at, cellOf(cellRuns)]));
  const usd = usdByTask(runs);
  return {
    family,
    cells,
    killed: runs.some(isKilled),
    failed: runs.some(isFailed),
    duration: durationTrend(runs, indexOf),
    usd: usd.length ? total(usd) : undefined,
  };
}

// The killed run, else the failed one, else any: of several the one with the highest peak, then the newest.
function openedRun(runs) {
  const candidates = [runs.filter(isKilled), runs.filter(isFailed), runs].find(({ length }) => length);
  const isHigher = (a, b) =>
    (percentOf(a) ?? -1) - (percentOf(b) ?? -1) || (a.peak ?? -1) - (b.peak ?? -1) || a.began - b.began;
  return candidates.reduce((highest, run) => (isHigher(run, highest) > 0 ? run : highest));
}

function cellOf(runs) {
  const killed = runs.filter(isKilled).length;
  const opens = openedRun(runs);
  return {
    runs: runs.length,
    percent: max(known(runs, percentOf)),
    peak: max(known(runs, (run) => run.peak)),
    killed,
    failed: runs.filter(isFailed).length - killed,
    outcome: opens.outcome,
    opens,
  };
}

/** Returns what a cell shows: marks of kills and failures, else the percentage, else a sign of the outcome. */
export function cellSign({ killed, failed, percent, outcome }) {
  const mark = (sign, count) => (count ? `${sign}${count > 1 ? count : ""}` : "");
  return mark("✕", killed) + mark("!", failed) || (isKnown(percent) ? percent.toFixed(0) : OTHER_SIGNS[outcome]);
}

/** Returns the accessible name of a cell. */
export function cellName(family, time, cell) {
  const { runs, killed, failed, percent, peak, outcome } = cell;
  const highest = isKnown(percent) ? `${percent.toFixed(0)} %` : isKnown(peak) ? asMemory(peak) : "not measured";
  const several = [killed && `${killed} killed`, failed && `${failed} failed`, `${runs} runs`].filter(Boolean);
  const one = killed ? "killed" : failed ? "failed" : outcome;
  return [escapeControls(family), time, `memory peak ${highest}`, ...(runs > 1 ? several : [one])].join(", ");
}

/**
 * Returns the median duration of a family, the ratio of the newer half of its runs to the older half, and the median
 * of each column. Runs that failed or go on are left out where others have succeeded.
 */
function durationTrend(runs, indexOf) {
  const ended = runs.filter((run) => isKnown(run.ms) && run.outcome !== "running");
  const judged = usualRuns(ended).sort((a, b) => a.began - b.began);
  const medianOf = (some) => median(some.map((run) => run.ms));
  const half = Math.floor(judged.length / 2);
  const older = medianOf(judged.slice(0, half));
  return {
    median: medianOf(judged),
    ratio: judged.length >= MIN_RUNS_OF_CHANGE && older > 0 ? medianOf(judged.slice(-half)) / older : undefined,
    points: [...grouped(judged, indexOf)].map(([at, some]) => [at, medianOf(some)]),
  };
}

/** Returns the change of the duration: "+12 %", "-3 %", "×1000". */
export function ratioText(ratio) {
  if (!isKnown(ratio)) return "";
  if (ratio >= 10) return `×${ratio.toFixed(0)}`;
  const percent = Math.round(100 * (ratio - 1));
  return percent ? `${percent > 0 ? "+" : ""}${percent} %` : "±0 %";
}

// One point, the median, for so many columns: more points than the line has room for hide its course.
const thinned = (points, columns) =>
  [...grouped(points, ([at]) => Math.floor(at / columns))].map(([group, some]) => [
    columns === 1 ? some[0][0] : Math.min((group + 0.5) * columns - 0.5, some.at(-1)[0]),
    median(some.map(([, ms]) => ms)),
  ]);

/** Returns the points of a line of this size. A value far from the median is drawn at the edge. */
export function sparkline({ median, points: all }, columns, { width, height }) {
  const points = thinned(all, Math.ceil((MIN_POINT_DISTANCE * columns) / width));
  const within = ([, ms]) => Math.min(Math.max(ms, median / 3), median * 3);
  const values = points.map(within);
  const [low, high] = [min(values), max(values)];
  const range = Math.max(high - low, median * 0.2, 1);
  const middle = (low + high) / 2;
  const round = (value) => Math.round(10 * value) / 10;
  return points.map(([at], place) => [
    round(((at + 0.5) / columns) * width),
    round(height * (0.5 - (0.9 * (values[place] - middle)) / range)),
  ]);
}
