// Runs over time as data: a lane for each family, a bar for each run, a mark for each noticed due time.

import { drawnFamilies, hasNight } from "#page/charts.js";
import { asCount, asDuration, asTime, asWhole, escapeControls, isKnown } from "#page/formats.js";
import { endingOf, OUTCOMES } from "#page/outcomes.js";
import { grouped, max, min } from "#page/statistics.js";
import { DAY, HOUR, local, MINUTE, noonBefore, startText } from "#page/time_units.js";

export const WIDTHS = { day: DAY, week: 7 * DAY };
const MAX_RUNS = 6000;
const STEPS = [
  ...[1, 5, 15, 30].map((minutes) => minutes * MINUTE),
  ...[1, 2, 3, 6, 12].map((hours) => hours * HOUR),
  ...[1, 2, 7, 14, 28, 91].map((days) => days * DAY),
];

// By the clock of the axis: the end of summer time moves an end back, but not before the start.
const endOf = ({ began, ms }) => Math.max(local(began + (ms ?? 0)), local(began));

/** Returns the period that the chart shows, in local time; undefined if no run has a start time. */
export function shownPeriod(runs, { width: chosenWidth, from: chosenFrom } = {}) {
  const started = runs.filter(hasNight);
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

export const periodText = ({ from, until }) => `${startText(from, MINUTE)} to ${startText(until, MINUTE)}`;

/**
 * Returns the lanes of what is in this period, and a sentence about the runs that they leave out.
 *
 * `all` are runs and notices: a notice has the fields of a run that has no length, and a text. Places are in percent.
 * `most` is the largest number of lanes.
 */
export function nightLanes(all, shown, most) {
  const active = all.filter((run) => isKnown(run.began) && local(run.began) < shown.until && endOf(run) >= shown.from);
  if (!active.length) return { nothing: "No run in this selection was active in this period.", leftOut: "" };
  const notices = active.filter(({ text }) => text);
  const drawn = active.slice(0, MAX_RUNS);
  const leftOut =
    active.length > drawn.length
      ? ` The oldest ${asWhole(active.length - drawn.length)} of ` +
        `${asCount(active.length - notices.length, "run")} in this period` +
        " are not drawn: choose a shorter period or fewer families."
      : "";
  const { families, left } = drawnFamilies(
    drawn,
    all.filter(({ text }) => !text),
    most,
  );
  const lanes = families.map(([family, runs]) => lane(family, runs, shown));
  const kinds = [
    ...grouped(
      families.flatMap(([, runs]) => runs),
      ({ outcome }) => outcome,
    ),
  ].sort(([a], [b]) => rankOf(a) - rankOf(b));
  const otherFamilies = left ? ` Not drawn: ${asCount(left, "more family", "more families")}.` : "";
  return {
    leftOut: otherFamilies + leftOut,
    families: families.length + left,
    label:
      `Runs from ${periodText(shown)} as bars in ${asCount(lanes.length, "lane")}, one for each family: ` +
      `${kinds.map(([kind, { length }]) => `${asWhole(length)} ${kind}`).join(", ")}.${otherFamilies}${leftOut}`,
    kinds: kinds.map(([kind]) => kind),
    notices,
    lanes,
  };
}

// Kinds of notices come last.
const rankOf = (kind) => (OUTCOMES.includes(kind) ? OUTCOMES.indexOf(kind) : OUTCOMES.length);

function lane(family, runs, { from, until }) {
  const percentOf = (ms) => (100 * (Math.min(Math.max(ms, from), until) - from)) / (until - from);
  // A short run is drawn above a long one that started with it.
  const inOrder = runs
    .map((run) => ({ run, at: local(run.began) }))
    .sort((a, b) => a.at - b.at || (b.run.ms ?? 0) - (a.run.ms ?? 0));
  const bars = inOrder
    .filter(({ run }) => !run.text)
    .map(({ run, at }) => {
      const left = percentOf(at);
      const name = `${escapeControls(family)}, ${asTime(run.began)}, ${asDuration(run.ms)}, ${endingOf(run)}`;
      return { run, at, name, left, width: percentOf(endOf(run)) - left };
    });
  const marks = inOrder
    .filter(({ run }) => run.text)
    .map(({ run, at }) => ({ kind: run.outcome, text: escapeControls(run.text), left: percentOf(at) }));
  return { family, bars, marks };
}

/** Returns at most `most` ticks of the period. The date is below the first time of each day. */
export function timeTicks({ from, until }, most) {
  const range = until - from;
  const step = STEPS.find((one) => range / one <= most) ?? Math.ceil(range / most / DAY) * DAY;
  const first = Math.ceil(from / step) * step;
  let date;
  return Array.from({ length: Math.floor((until - first) / step) + 1 }, (_, number) => {
    const [day, time] = startText(first + number * step, MINUTE).split(" ");
    const lines = step >= DAY ? [day] : day === date ? [time] : [time, day];
    date = day;
    return { left: (100 * (first + number * step - from)) / range, lines };
  });
}
