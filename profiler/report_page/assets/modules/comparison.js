// Another run of the family to compare with: the choice, and a table of the changes.

import { content, hasSeries } from "#page/content.js";
import { element, table } from "#page/elements.js";
import {
  asBytes,
  asChangeFrom,
  asDuration,
  asMemory,
  asPeak,
  asTime,
  asVcpuCount,
  escapeControls,
  isKnown,
  UNKNOWN,
} from "#page/formats.js";
import { asCost, asCpuTime, familyOf } from "#page/run_values.js";
import { known, median } from "#page/statistics.js";

const earlierRuns = (run) =>
  content.runs.filter((other) => other !== run && familyOf(other) === familyOf(run) && other.began < run.began);

const newest = (runs) => runs.reduce((a, b) => (!a || b.began > a.began ? b : a), undefined);

// A success in the same cluster is preferred.
export function lastSuccess(run) {
  const successes = earlierRuns(run).filter((other) => other.outcome === "success");
  return newest(successes.filter((other) => other.cluster === run.cluster)) ?? newest(successes);
}

const MAX_COMPARED = 50;

export function comparisonChoice(run, other, onChange) {
  const success = lastSuccess(run);
  const others = content.runs
    .filter((one) => one !== run && familyOf(one) === familyOf(run) && hasSeries(one))
    .slice(0, MAX_COMPARED);
  if (!others.length) return [];
  const select = element(
    "select",
    { onchange: () => onChange(select.value ? content.runs[Number(select.value)] : null) },
    element("option", { value: "", textContent: "no other run" }),
    ...others.map((one) =>
      element("option", {
        value: String(one.row),
        textContent: `${asTime(one.began)}, ${one === success ? "last success" : one.outcome}`,
        selected: one === other,
      }),
    ),
  );
  return [
    element(
      "label",
      { className: "compare" },
      element("i", { className: "pale-line", attributes: { "aria-hidden": "true" } }),
      "Compare with ",
      select,
    ),
  ];
}

const CHANGES = [
  ["Duration", (run) => run.ms, asDuration],
  ["Cost", (run) => run.usd, asCost],
  ["CPU time", (run) => run.cpuSeconds, asCpuTime],
  ["Average vCPU", (run) => run.vcpuAvg, asVcpuCount],
  ["Peak memory", (run) => run.peak, (mb, run) => asPeak(mb, run?.peakBy)],
  ["Memory size", (run) => run.size, asMemory],
  ["vCPU size", (run) => run.vcpuSize, asVcpuCount],
  ["Read", (run) => run.read, asBytes],
  ["Written", (run) => run.written, asBytes],
];

/** A note if both runs had different processors. */
export function processorNote(run, other) {
  if (!run.processor || !other.processor || run.processor === other.processor) return [];
  const text = `This run ran on ${run.processor}, the other on ${other.processor}.`;
  return [element("p", { className: "note", textContent: escapeControls(text) })];
}

/** Returns a sentence if one memory peak is the kernel's and the other was sampled; else undefined. */
export function peakText(run, other) {
  const sampled = [run, other].filter((one) => one.peakBy === "sampled");
  if (sampled.length !== 1 || ![run, other].some((one) => one.peakBy === "kernel")) return undefined;
  const which = sampled[0] === run ? "this run" : "the other run";
  return `The peak memory of ${which} was sampled and may have been higher. The other peak is the kernel's.`;
}

export function peakNote(run, other) {
  const textContent = peakText(run, other);
  return textContent ? [element("p", { className: "note", textContent })] : [];
}

const MIN_RUNS = 5;
const LAST_RUNS = 50;

/**
 * Returns the runs that show what is usual for a run: the newest 50 successes before it, and for its memory peak those
 * that were measured in the same way. `show` has the same rule (`cli/terminal/show_comparison.py`).
 */
export function runsBefore(run, { isPeak = false } = {}) {
  const successes = earlierRuns(run).filter((one) => one.outcome === "success");
  return successes
    .sort((a, b) => b.began - a.began)
    .slice(0, LAST_RUNS)
    .filter((one) => !isPeak || !peakText(run, one));
}

/**
 * Whether a value is usual for earlier runs: within the median ± two median absolute deviations, at least ± 5 %.
 *
 * Undefined with fewer than five known values. `show` has the same rule (`sizing/trend.py`).
 */
export function isUsual(value, earlier, pick) {
  const values = known(earlier, pick);
  if (values.length < MIN_RUNS) return undefined;
  const middle = median(values);
  const deviation = median(values.map((one) => Math.abs(one - middle)));
  return Math.abs(value - middle) <= Math.max(2 * deviation, 0.05 * Math.abs(middle));
}

/** The change of a value; "usual" within the usual range. A page of one run does not know the family's other runs. */
export function changeText(row, earlier) {
  const isNoise = content.onlyOne ? false : isUsual(row.value, earlier, row.pick);
  if (isNoise === undefined) return "fewer than five runs";
  return isNoise ? "usual" : asChangeFrom(row.value, row.otherValue, row.show);
}

export function comparisonTable(run, other) {
  const rows = CHANGES.map(([name, pick, show]) => {
    const isPartial = show === asCpuTime && (run.cpuPartial || other.cpuPartial);
    const earlier = runsBefore(run, { isPeak: name === "Peak memory" });
    return { name, pick, show, value: pick(run), otherValue: pick(other), isPartial, earlier };
  }).filter(({ value, otherValue }) => isKnown(value) && isKnown(otherValue));
  return table(
    [
      { name: "", show: (row) => row.name },
      { name: "This run", className: "number", show: (row) => row.show(row.value, run) },
      { name: "Other run", className: "number", show: (row) => row.show(row.otherValue, other) },
      { name: "Change", className: "number", show: (row) => (row.isPartial ? UNKNOWN : changeText(row, row.earlier)) },
    ],
    rows,
    { label: "Comparison of two runs" },
  );
}
