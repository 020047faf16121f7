// Values derived from runs.

import { isKnown, UNKNOWN } from "#page/formats.js";

export const familyOf = (run) => run.family ?? UNKNOWN;

// A task is paid once, however many of its containers have a report.
export function usdByTask(runs) {
  const usdOf = new Map();
  for (const run of runs) if (isKnown(run.usd)) usdOf.set(run.id, Math.max(usdOf.get(run.id) ?? 0, run.usd));
  return [...usdOf.values()];
}

/** Returns the part in percent of the whole. */
export const shareOf = (part, whole) => (isKnown(part) && whole > 0 ? (100 * part) / whole : undefined);
