// The recommended size of a family, and the duration and cost at every other size.

import { content } from "#page/content.js";
import { element, table } from "#page/elements.js";
import {
  asChange,
  asFactor,
  asMemory,
  asTaskSize,
  asUsd,
  asUsdAMonth,
  escapeControls,
  isKnown,
  UNKNOWN,
  unbroken,
} from "#page/formats.js";
import { isKilled } from "#page/outcomes.js";
import { familyOf } from "#page/run_values.js";
import { known, total } from "#page/statistics.js";

/** Returns the advice for a family; undefined without. */
export const adviceOf = (family) => content.sizing.find((advice) => advice.family === family);
export const isSize = (size, option) => size?.vcpu === option.vcpu && size?.memoryMB === option.memoryMB;
export const isAtMost = (size, other) =>
  (size.vcpu ?? 0) <= (other.vcpu ?? 0) && (size.memoryMB ?? 0) <= (other.memoryMB ?? 0);
// A size of which a part is not known is no larger than another one by the word of `recommend` alone.
export const isEnoughWithLess = ({ verdict, recommended, current }) =>
  verdict === "less is enough" || isAtMost(recommended, current);
export const monthlySaving = (advice) => (advice.changes ? advice.savingUsdPerMonth : undefined);

const wasKilled = (run) => isKilled(run) || Boolean(run.kills);
const isAtSize = ({ taskSize }, size) => !taskSize || (taskSize[0] === size?.vcpu && taskSize[1] === size?.memoryMB);

/** Whether this run ended well at a size that is right for its family. */
export const hasFitted = (run, advice) =>
  advice.fits && run.outcome === "success" && !wasKilled(run) && isAtSize(run, advice.current);

// Only these change a size for money or safety: another size is a mere margin.
const isChange = ({ changes, verdict }) => changes && (verdict === "saves" || verdict === "too small");

/** What the recommended sizes of the families save in a month, and what their runs cost in it, as `recommend` sums it up. */
export function possibleSaving(advices) {
  const sum = (amounts) => (amounts.length ? total(amounts) : undefined);
  const mark = advices.find((advice) => advice.mark)?.mark;
  return {
    saved: sum(known(advices.filter(isChange), (advice) => advice.savingUsdPerMonth)),
    cost: sum(known(advices, (advice) => advice.usdPerMonth)),
    asText: (usd) => asMarked(usd, { mark }),
  };
}

// No line ends between the mark and its amount.
const asMarked = (usd, { mark = "" }) => asUsdAMonth(usd, mark.replace(" ", "\u00a0"));
const asMonth = (usd, advice) => `${asMarked(Math.abs(usd), advice)} a month`;

/** Returns what the advice means for these runs of the family: "saves 35 %, $4.10 a month". */
export function adviceText(advice, runs) {
  if (!advice) return UNKNOWN;
  if (advice.fits) {
    if (runs.some((run) => wasKilled(run) && isAtSize(run, advice.current))) return "ran out of memory";
    return runs.some((run) => hasFitted(run, advice)) ? "fits" : "no run has succeeded at this size";
  }
  if (advice.word) return advice.word;
  if (advice.changes && isKnown(advice.savingPercent)) {
    const usd = monthlySaving(advice);
    return `${asChange(advice.savingPercent)}${isKnown(usd) ? `, ${asMonth(usd, advice)}` : ""}`;
  }
  if (!advice.current) return advice.risk ?? UNKNOWN;
  if (advice.risk || !advice.changes) return "more is needed";
  return isEnoughWithLess(advice) ? "less is enough" : "cost not known";
}

/** Returns what the advice means for one run: "Ran out of memory with 4 GB; 5 GB recommended." */
export function runAdviceText(run, advice) {
  const { recommended } = advice;
  const beside = run.beside ?? ""; // the accelerators that a size of vCPU and memory leaves out
  if (wasKilled(run)) {
    const [vcpu, memoryMB] = run.taskSize ?? [undefined, run.size];
    if (run.size < memoryMB) return `Ran out of memory with its container's own limit of ${asMemory(run.size)}.`;
    const asSize =
      !isKnown(vcpu) || vcpu === recommended.vcpu ? (one) => asTaskSize({ memoryMB: one.memoryMB }) : asTaskSize;
    const advised = isKnown(recommended.memoryMB)
      ? `${asSize(recommended)} recommended${beside}`
      : "no size has enough";
    return `Ran out of memory with ${asSize({ vcpu, memoryMB })}; ${advised}.`;
  }
  if (advice.onlyFailures && !advice.changes)
    return "No run of the family has succeeded, so no smaller size is recommended.";
  if (advice.fits)
    return `${asTaskSize(advice.current)} ${hasFitted(run, advice) ? "fits." : "is right for the family."}`;
  if (!isKnown(recommended.vcpu) && !isKnown(recommended.memoryMB) && advice.risk) return "No size has enough memory.";
  const change = adviceText(advice, []);
  const why = advice.changes && advice.risk ? `, because ${advice.risk}` : "";
  return `${asTaskSize(recommended)} recommended${beside}${why}${change === UNKNOWN ? "" : `: ${change}`}.`;
}

/** Returns why a size is not recommended, "" if it could be. */
export function whyNot({ acceptable, holdsMemory, durationFactor }) {
  if (acceptable) return "";
  if (!holdsMemory) return "too little memory";
  return durationFactor ? "too slow" : "duration not known";
}

function whatIfTable(advice) {
  const mark = (option) =>
    [isSize(advice.current, option) && "current", isSize(advice.recommended, option) && "recommended", whyNot(option)]
      .filter(Boolean)
      .join(", ");
  const asMoney = (usd) => (isKnown(usd) ? `${advice.spot ? advice.mark : ""}${asUsd(usd)}` : UNKNOWN);
  const hasMoney = advice.sizes.some((option) => isKnown(option.usdPerRun));
  return table(
    [
      {
        name: "Size",
        className: "size",
        show: (option) =>
          element("span", {
            className: isSize(advice.recommended, option) ? "chosen" : "",
            textContent: unbroken(asTaskSize(option)),
          }),
      },
      {
        name: "Times as long",
        className: "number",
        show: (option) => asFactor(option.durationFactor?.min, option.durationFactor?.max),
      },
      ...(hasMoney
        ? [
            { name: "Per run", className: "number", show: (option) => asMoney(option.usdPerRun) },
            {
              name: "Per month",
              className: "number wide",
              show: (option) =>
                isKnown(option.usdPerRun) && isKnown(advice.runsPerMonth)
                  ? asMarked(option.usdPerRun * advice.runsPerMonth, advice)
                  : UNKNOWN,
            },
            {
              name: "Saving",
              className: "wide",
              show: (option) => (isSize(advice.current, option) ? "" : asChange(option.savingPercent)),
            },
          ]
        : []),
      { name: "", show: mark },
    ],
    advice.sizes,
    { label: `Duration and cost at each size: ${familyOf(advice)}` },
  );
}

export function adviceDetails(advice) {
  return [
    ...(advice.sizes.length ? [whatIfTable(advice)] : []),
    element(
      "ul",
      { className: "reasons" },
      ...advice.reasons.map((reason) => element("li", { textContent: unbroken(escapeControls(reason)) })),
    ),
    ...(advice.resize ? [element("code", { textContent: escapeControls(advice.resize) })] : []),
  ];
}
