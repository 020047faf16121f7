// Another run of the family to compare with: the choice, and a table of the changes.

import { content, hasSeries } from "#page/content.js";
import { element, table } from "#page/elements.js";
import {
  asBytes,
  asDuration,
  asMemory,
  asTime,
  asUsd,
  asVcpuCount,
  escapeControls,
  isKnown,
  UNKNOWN,
} from "#page/formats.js";
import { familyOf } from "#page/run_values.js";

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
  ["Cost", (run) => run.usd, asUsd],
  ["CPU time", (run) => (isKnown(run.cpuSeconds) ? run.cpuSeconds * 1000 : undefined), asDuration],
  ["Average vCPU", (run) => run.vcpuAvg, asVcpuCount],
  ["Peak memory", (run) => run.peak, asMemory],
  ["Memory size", (run) => run.size, asMemory],
  ["vCPU size", (run) => run.vcpuSize, asVcpuCount],
  ["Read", (run) => run.read, asBytes],
  ["Written", (run) => run.written, asBytes],
];

/** Returns the change from the other value in percent: "+10 %", "−3 %" or "=". */
export function changeText(value, otherValue) {
  if (!(otherValue > 0)) return UNKNOWN;
  const percent = Math.round(Math.abs((100 * (value - otherValue)) / otherValue));
  if (!percent) return "=";
  return `${value >= otherValue ? "+" : "−"}${percent} %`;
}

/** A note if both runs had different processors. */
export function processorNote(run, other) {
  if (!run.processor || !other.processor || run.processor === other.processor) return [];
  const text = `This run ran on ${run.processor}, the other on ${other.processor}.`;
  return [element("p", { className: "note", textContent: escapeControls(text) })];
}

export function comparisonTable(run, other) {
  const rows = CHANGES.map(([name, pick, show]) => ({ name, value: pick(run), otherValue: pick(other), show })).filter(
    ({ value, otherValue }) => isKnown(value) && isKnown(otherValue),
  );
  return table(
    [
      { name: "", show: (row) => row.name },
      { name: "This run", className: "number", show: (row) => row.show(row.value) },
      { name: "Other run", className: "number", show: (row) => row.show(row.otherValue) },
      { name: "Change", className: "number", show: (row) => changeText(row.value, row.otherValue) },
    ],
    rows,
    { label: "Comparison of two runs" },
  );
}
