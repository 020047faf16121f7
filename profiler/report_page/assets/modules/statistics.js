// Statistics over many runs.

import { isKnown } from "#page/formats.js";

/** Applies `pick` to each run and leaves out unknown values. */
export const known = (runs, pick) => runs.map(pick).filter(isKnown);

export const mean = (values) =>
  values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : undefined;

// Not Math.max(...values): thousands of arguments overflow the stack.
export const max = (values) => (values.length ? values.reduce((a, b) => Math.max(a, b)) : undefined);
export const min = (values) => (values.length ? values.reduce((a, b) => Math.min(a, b)) : undefined);
export const total = (values) => values.reduce((sum, value) => sum + value, 0);

// Linear interpolation between neighbours, as in numpy.
export function quantile(values, share) {
  if (!values.length) return undefined;
  const sorted = [...values].sort((a, b) => a - b);
  const position = (sorted.length - 1) * share;
  const low = Math.floor(position);
  return sorted[low] + (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]) * (position - low);
}

/** Returns the runs whose durations are usual for a family: those that succeeded, else all. */
export function usualRuns(runs) {
  const succeeded = runs.filter((run) => run.outcome === "success");
  return succeeded.length ? succeeded : runs;
}

export const median = (values) => quantile(values, 0.5);

export function grouped(runs, keyOf) {
  const groups = new Map();
  for (const run of runs) {
    const key = keyOf(run);
    if (groups.has(key)) groups.get(key).push(run);
    else groups.set(key, [run]);
  }
  return groups;
}
