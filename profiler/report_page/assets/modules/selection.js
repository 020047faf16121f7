// The selection of runs. It is kept in the address (#…), so that a view can be sent.

import { content } from "#page/content.js";
import { escapeControls, isKnown } from "#page/formats.js";
import { STATISTICS } from "#page/morning_grid.js";
import { familyOf } from "#page/run_values.js";

export const NO_FILTERS = {
  family: "",
  account: "",
  region: "",
  cluster: "",
  outcome: "",
  tag: "",
  from: "",
  to: "",
  search: "",
};

const DEFAULT_SORT = "-began";
const DEFAULT_STATISTIC = "peak";

/** What the reader selected: filters, statistic of the heatmap, order of the table, and the opened run. */
export const selection = { ...NO_FILTERS, statistic: DEFAULT_STATISTIC, sort: "began", descending: true, run: "" };
export const CHOICES = ["family", "account", "region", "cluster", "outcome", "tag"];

export const PLACES = ["account", "region", "cluster"]; // chosen only where there are several

const DATE = /^\d{4}-\d{2}-\d{2}$/;
const searchTexts = new WeakMap();

function searchText(run) {
  if (!searchTexts.has(run)) searchTexts.set(run, searchedFields(run).filter(isKnown).join("\n").toLowerCase());
  return searchTexts.get(run);
}

function searchedFields(run) {
  return [
    run.family,
    run.id,
    run.outcome,
    run.ending,
    run.container,
    run.account,
    run.region,
    run.cluster,
    run.exit,
    run.job,
    ...(run.labels ?? []),
    ...(run.tags ?? []),
  ];
}

// Midnight in the reader's time zone; days later if asked for. Undefined for an invalid date.
function midnight(date, days = 0) {
  const [year, month, day] = date.split("-").map(Number);
  const isDate = DATE.test(date) && new Date(year, month - 1, day).getMonth() === month - 1;
  return isDate ? new Date(year, month - 1, day + days).getTime() : undefined;
}

/** Returns sentences about what the page cannot show: invalid dates, and a run that it does not have. */
export function troubles(selected, findRun) {
  const dates = [selected.from, selected.to].filter((text) => text && !isKnown(midnight(text)));
  const isGone = selected.run && !findRun(selected.run);
  return [
    ...dates.map((text) => `“${escapeControls(text)}” is not a date and is ignored: write YYYY-MM-DD.`),
    ...(isGone
      ? [`This page has no run “${escapeControls(selected.run)}”: make a page of it with task-profiler report --run.`]
      : []),
  ];
}

/** Returns the runs that the filters select. */
export function filterRuns(runs, selection) {
  const from = midnight(selection.from);
  const until = midnight(selection.to, 1);
  return runs.filter(
    (run) =>
      (!selection.family || familyOf(run) === selection.family) &&
      PLACES.every((name) => !selection[name] || run[name] === selection[name]) &&
      (!selection.outcome || run.outcome === selection.outcome) &&
      (!selection.tag || run.tags?.includes(selection.tag)) &&
      (!isKnown(from) || run.began >= from) &&
      (!isKnown(until) || run.began < until),
  );
}

/** Returns the runs that contain each word. */
export function searchRuns(runs, search) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return words.length ? runs.filter((run) => words.every((word) => searchText(run).includes(word))) : runs;
}

export const selectedRuns = () => filterRuns(content.runs, selection);

/** Parses the part of an address after #. Unknown names are ignored. */
export function parseAddress(text) {
  const given = new URLSearchParams(text);
  const parsed = Object.fromEntries(Object.keys(NO_FILTERS).map((name) => [name, given.get(name) ?? ""]));
  const sort = given.get("sort") ?? DEFAULT_SORT;
  return {
    ...parsed,
    statistic: Object.keys(STATISTICS).find((name) => name === given.get("statistic")) ?? DEFAULT_STATISTIC,
    sort: sort.replace(/^-/, ""),
    descending: sort.startsWith("-"),
    run: given.get("run") ?? "",
  };
}

/** Returns the address of a selection: the inverse of `parseAddress`. */
export function formatAddress(selected) {
  const given = new URLSearchParams();
  for (const name of Object.keys(NO_FILTERS)) if (selected[name]) given.set(name, selected[name]);
  if (selected.statistic !== DEFAULT_STATISTIC) given.set("statistic", selected.statistic);
  const sort = `${selected.descending ? "-" : ""}${selected.sort}`;
  if (sort !== DEFAULT_SORT) given.set("sort", sort);
  if (selected.run) given.set("run", selected.run);
  return String(given);
}

export function readAddress() {
  Object.assign(selection, parseAddress(location.hash.slice(1)));
}

export function writeAddress({ isNewPage = false } = {}) {
  const address = `#${formatAddress(selection)}`;
  if (address === (location.hash || "#")) return;
  history[isNewPage ? "pushState" : "replaceState"](null, "", address);
}
