// Intervals of equal length for charts over time.

import { asCount, isKnown } from "#page/formats.js";
import { known, max, min } from "#page/statistics.js";
import { DAY, HOUR, MINUTE } from "#page/time_units.js";

// Each width, and the longest time that it divides. From three days on, a night is one bucket: a family that runs each
// night has no empty buckets between its runs.
const WIDTHS = [
  ...[1, 5, 15, 30].map((minutes) => [minutes * MINUTE, 47 * minutes * MINUTE]),
  [HOUR, 3 * DAY],
  ...[1, 7, 28].map((days) => [days * DAY, 119 * days * DAY]),
];

const MAX_BUCKETS = 120;

// The local time written as UTC: at the end of summer time, one hour occurs twice and the order differs from UTC's.
export const local = (ms) => ms - new Date(ms).getTimezoneOffset() * MINUTE;

/** Divides the time of the runs into buckets with limits in local time, so that days are those of the reader. */
export function bucketsOf(runs) {
  const starts = known(runs, (run) => run.began).map(local);
  if (!starts.length) return { width: HOUR, starts: [], indexOf: () => undefined };
  const [first, last] = [min(starts), max(starts)];
  const width =
    WIDTHS.find(([, longest]) => last - first < longest)?.[0] ??
    Math.ceil((last - first) / (MAX_BUCKETS - 1) / DAY) * DAY;
  const floor = (ms) => Math.floor(ms / width) * width;
  const origin = floor(first);
  return {
    width,
    starts: Array.from({ length: (floor(last) - origin) / width + 1 }, (_, at) => origin + at * width),
    indexOf: (run) => (isKnown(run.began) ? Math.round((floor(local(run.began)) - origin) / width) : undefined),
  };
}

/** Returns the width of the intervals: "1 day", "15 minutes". */
export function intervalText(width) {
  const [unit, ms] = [
    ["day", DAY],
    ["hour", HOUR],
    ["minute", MINUTE],
  ].find(([, length]) => width % length === 0);
  return asCount(width / ms, unit);
}

// Plotly takes a number for UTC and shifts it to the reader's time zone: a local time must be text.
export const asPlotted = (localMs) => new Date(localMs).toISOString().slice(0, 23);

export const bucketText = (start, width) =>
  new Date(start)
    .toISOString()
    .slice(0, width < DAY ? 16 : 10)
    .replace("T", " ");
