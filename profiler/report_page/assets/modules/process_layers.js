// The processes of a run as layers, one above the other: each command's use in the steps of the time series.

import { isKnown } from "#page/formats.js";

export const OTHER = "other";
const COLOURS = 8;

/** Returns the name of each command's colour. The commands that are together as "other" are grey. */
export function layerTones(commands) {
  let next = 0;
  return commands.map((command) => {
    if (command === OTHER) return "layer-other";
    next += 1;
    return `layer${(next - 1) % COLOURS}`;
  });
}

/** Stacks columns: [bottoms, tops] of each, null in a step in which the column has no value. */
export function stackColumns(columns) {
  const reached = [];
  return columns.map((column) => {
    const bottoms = [];
    const tops = [];
    for (let step = 0; step < (column?.length ?? 0); step += 1) {
      const value = column[step];
      const bottom = reached[step] ?? 0;
      bottoms.push(isKnown(value) ? bottom : null);
      tops.push(isKnown(value) ? bottom + value : null);
      reached[step] = bottom + (value ?? 0);
    }
    return [bottoms, tops];
  });
}

/** Returns the outline of a layer as { x, y }: a closed polygon for each stretch of steps without a gap. */
export function outlineOf(ms, bottoms, tops) {
  const x = [];
  const y = [];
  const close = (first, end) => {
    if (x.length) {
      x.push(null);
      y.push(null);
    }
    const start = first ? ms[first - 1] : 0;
    for (let step = first; step < end; step += 1) {
      x.push(step ? ms[step - 1] : 0, ms[step]);
      y.push(tops[step], tops[step]);
    }
    for (let step = end - 1; step >= first; step -= 1) {
      x.push(ms[step], step ? ms[step - 1] : 0);
      y.push(bottoms[step], bottoms[step]);
    }
    x.push(start);
    y.push(tops[first]);
  };
  let first;
  for (let step = 0; step <= tops.length; step += 1) {
    if (isKnown(tops[step])) first ??= step;
    else if (first !== undefined) {
      close(first, step);
      first = undefined;
    }
  }
  return { x, y };
}
