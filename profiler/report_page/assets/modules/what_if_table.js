// The recommended size of a family, and the duration and cost at every other size.

import { content } from "#page/content.js";
import { element, table } from "#page/elements.js";
import { asChange, asFactor, asTaskSize, asUsd, escapeControls, isKnown, UNKNOWN, unbroken } from "#page/formats.js";
import { isKilled } from "#page/outcomes.js";
import { familyOf, usdByTask } from "#page/run_values.js";
import { total } from "#page/statistics.js";

/** Returns the advice for a family; undefined without. */
export const adviceOf = (family) => content.sizing.find((advice) => advice.family === family);
const isSize = (size, option) => size?.vcpu === option.vcpu && size?.mb === option.mb;
export const isAtMost = (size, other) => (size.vcpu ?? 0) <= (other.vcpu ?? 0) && (size.mb ?? 0) <= (other.mb ?? 0);
export const monthlySaving = (advice) => (advice.changes ? advice.savingUsd : undefined);

const wasKilled = (run) => isKilled(run) || run.kills?.[0] > 0;
const isAtSize = ({ taskSize }, size) => !taskSize || (taskSize[0] === size?.vcpu && taskSize[1] === size?.mb);

/** Whether this run ended well at a size that is right for its family. */
export const hasFitted = (run, advice) =>
  advice.fits && run.outcome === "success" && !wasKilled(run) && isAtSize(run, advice.current);

/** What the runs would cost less at the recommended size. Runs at another size than the current one do not count. */
export function possibleSaving(runs, advice) {
  if (!advice.changes || !(advice.saving > 0)) return undefined;
  return total(usdByTask(runs.filter((run) => isAtSize(run, advice.current)))) * (advice.saving / 100);
}

const asMonth = (usd) => `${asUsd(Math.abs(usd))} a month`;

/** Returns what the advice means for these runs of the family: "saves 35 %, $4.10 a month". */
export function adviceText(advice, runs) {
  if (!advice) return UNKNOWN;
  if (advice.fits) {
    if (runs.some((run) => wasKilled(run) && isAtSize(run, advice.current))) return "ran out of memory";
    return runs.some((run) => hasFitted(run, advice)) ? "fits" : "no run has succeeded at this size";
  }
  if (advice.changes && isKnown(advice.saving)) {
    const usd = monthlySaving(advice);
    return `${asChange(advice.saving)}${isKnown(usd) ? `, ${asMonth(usd)}` : ""}`;
  }
  if (!advice.current) return advice.risk ?? UNKNOWN;
  if (advice.risk || !advice.changes) return "more is needed";
  if (isAtMost(advice.size, advice.current)) return "less is enough";
  return isAtMost(advice.current, advice.size) ? "more is safer" : "cost not known";
}

/** Returns what the advice means for one run: "Ran out of memory with 4 GB; 5 GB recommended." */
export function runAdviceText(run, advice) {
  const { size } = advice;
  if (wasKilled(run)) {
    const [vcpu, mb] = run.taskSize ?? [undefined, run.size];
    const asSize = !isKnown(vcpu) || vcpu === size.vcpu ? (one) => asTaskSize({ mb: one.mb }) : asTaskSize;
    return `Ran out of memory with ${asSize({ vcpu, mb })}; ${asSize(size)} recommended.`;
  }
  if (advice.onlyFailures && !advice.changes)
    return "No run of the family has succeeded, so no smaller size is recommended.";
  if (advice.fits)
    return `${asTaskSize(advice.current)} ${hasFitted(run, advice) ? "fits." : "is right for the family."}`;
  const change = adviceText(advice, []);
  return `${asTaskSize(size)} recommended${change === UNKNOWN ? "" : `: ${change}`}.`;
}

function whatIfTable(advice) {
  const mark = (option) =>
    [
      isSize(advice.current, option) && "current",
      isSize(advice.size, option) && "recommended",
      !option.acceptable &&
        (!option.holdsMemory ? "too little memory" : isKnown(option.max) ? "too slow" : "duration not known"),
    ]
      .filter(Boolean)
      .join(", ");
  const hasMoney = advice.options.some((option) => isKnown(option.usd));
  return table(
    [
      {
        name: "Size",
        className: "size",
        show: (option) =>
          element("span", {
            className: isSize(advice.size, option) ? "chosen" : "",
            textContent: unbroken(asTaskSize(option)),
          }),
      },
      { name: "Times as long", className: "number", show: (option) => asFactor(option.min, option.max) },
      ...(hasMoney
        ? [
            { name: "Per run", className: "number", show: (option) => asUsd(option.usd) },
            {
              name: "Per month",
              className: "number wide",
              show: (option) =>
                isKnown(option.usd) && isKnown(advice.runsPerMonth) ? asUsd(option.usd * advice.runsPerMonth) : UNKNOWN,
            },
            {
              name: "Saving",
              className: "wide",
              show: (option) => (isSize(advice.current, option) ? "" : asChange(option.saving)),
            },
          ]
        : []),
      { name: "", show: mark },
    ],
    advice.options,
    { label: `Duration and cost at each size: ${familyOf(advice)}` },
  );
}

export function adviceDetails(advice) {
  return [
    ...(advice.options ? [whatIfTable(advice)] : []),
    element(
      "ul",
      { className: "reasons" },
      ...advice.reasons.map((reason) => element("li", { textContent: escapeControls(reason) })),
    ),
    ...(advice.resize
      ? [element("code", { textContent: `task-profiler taskdef resize ${escapeControls(advice.resize)}` })]
      : []),
  ];
}
