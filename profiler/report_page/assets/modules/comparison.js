// Another run of the family to compare with: the choice, and a table of the changes.

import { content, hasSeries } from "#page/content.js";
import { element, table } from "#page/elements.js";
import { asChangeFrom, asTime, escapeControls, isKnown, UNKNOWN, unbroken, upperFirst } from "#page/formats.js";
import { endingOf } from "#page/outcomes.js";
import { asNumber, familyOf, haveChange, haveSameMemory, numberOf } from "#page/run_values.js";

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
        textContent: `${asTime(one.began)}, ${one === success ? "last success" : endingOf(one)}`,
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

/** A note if both runs had different processors. */
export function processorNote(run, other) {
  if (!run.processor || !other.processor || run.processor === other.processor) return [];
  const text = `This run ran on ${run.processor}, the other on ${other.processor}.`;
  return [element("p", { className: "note", textContent: unbroken(escapeControls(text)) })];
}

/** Returns a sentence if the memory peaks of two runs were measured in different ways; else undefined. */
export function peakText(run, other) {
  if (!haveSameMemory(run, other)) {
    const which = run.countsFiles ? "this run" : "the other run";
    return (
      `The memory of ${which} may include pages of mapped files, as older versions, Container Insights and very ` +
      "short runs count them: its change is not known."
    );
  }
  const sampled = [run, other].filter((one) => one.peakBy === "sampled");
  if (sampled.length !== 1 || ![run, other].some((one) => one.peakBy === "kernel")) return undefined;
  const which = sampled[0] === run ? "this run" : "the other run";
  return `The peak memory of ${which} was sampled and may have been higher. The other peak is the kernel's.`;
}

export function peakNote(run, other) {
  const textContent = peakText(run, other);
  return textContent ? [element("p", { className: "note", textContent: unbroken(textContent) })] : [];
}

/**
 * Returns the change of a number; "usual" within the family's spread, which `profiler/record/unusual.py` judges. A page
 * of one run does not know the family's other runs.
 */
export function changeText([, field, unit], run, other) {
  if (run.usual?.includes(field)) return "usual";
  if (!content.onlyOne && !run.unusual?.includes(field)) return "fewer than five runs";
  return asChangeFrom(run[field], other[field], (value) => asNumber(value, unit));
}

export function comparisonTable(run, other) {
  const isKnownOfBoth = ([, field]) => isKnown(run[field]) && isKnown(other[field]);
  const rows = content.numbers.filter((row) => row[3] && isKnownOfBoth(row));
  const changeOf = (row) => (haveChange(row[1], run, other) ? changeText(row, run, other) : UNKNOWN);
  return table(
    [
      { name: "", show: ([name]) => upperFirst(name) },
      { name: "This run", className: "number", show: (row) => numberOf(run, row) },
      { name: "Other run", className: "number", show: (row) => numberOf(other, row) },
      { name: "Change", className: "number", show: changeOf },
    ],
    rows,
    { label: "Comparison of two runs" },
  );
}
