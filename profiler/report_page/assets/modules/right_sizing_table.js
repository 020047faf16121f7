// The table of families with their measured use and recommended size.

import { MAX_FAMILIES } from "#page/charts.js";
import { content } from "#page/content.js";
import {
  breakable,
  button,
  byId,
  countCell,
  element,
  emptyNote,
  NO_MATCH,
  shortTable,
  withBar,
} from "#page/elements.js";
import { asMemory, asPercent, asTaskSize, asVcpuCount, isKnown, marked, UNKNOWN, unbroken } from "#page/formats.js";
import { isKilled } from "#page/outcomes.js";
import { familyOf, isLeast, ofOneMeaning, shareOf } from "#page/run_values.js";
import { grouped, known, max } from "#page/statistics.js";
import { isOnPaper } from "#page/theme.js";
import { adviceDetails, adviceOf, adviceText, isEnoughWithLess, monthlySaving } from "#page/what_if_table.js";

// A recommendation is based on the family's last runs, independent of the filters.
// Its button opens a row below, which has room for the table of sizes.
function recommendedSize(advice) {
  if (!advice) return UNKNOWN;
  const toggle = button(
    unbroken(asTaskSize(advice.recommended)),
    () => {
      const row = toggle.closest("tr");
      const isOpen = toggle.getAttribute("aria-expanded") === "true";
      toggle.setAttribute("aria-expanded", String(!isOpen));
      if (isOpen) row.nextElementSibling.remove();
      else
        row.after(
          element(
            "tr",
            { className: "opened" },
            element("td", { colSpan: row.cells.length }, ...adviceDetails(advice)),
          ),
        );
    },
    { className: advice.changes ? "link size changes" : "link size", attributes: { "aria-expanded": "false" } },
  );
  return toggle;
}

/** Returns the row of a family. A peak of several runs is exact if each one is. */
export function sizingRow([family, runs], everyRun) {
  const [{ size, vcpuSize, taskSize }] = [...runs].sort((a, b) => (b.began ?? 0) - (a.began ?? 0));
  const same = runs.filter((run) => run.size === size && run.vcpuSize === vcpuSize);
  const measured = ofOneMeaning(same);
  const peak = max(known(measured, (run) => run.peak));
  const vcpu = max(known(same, (run) => run.vcpuP95));
  const advice = adviceOf(family);
  return {
    family,
    runs: same.length,
    size: taskSize ? { vcpu: taskSize[0], memoryMB: taskSize[1] } : { vcpu: vcpuSize, memoryMB: size },
    peak,
    isPeakLeast: measured.some((run) => isLeast(run, "peak")),
    vcpu,
    memoryShare: shareOf(peak, size),
    cpuShare: shareOf(vcpu, vcpuSize),
    killed: same.filter(isKilled).length,
    advice,
    saving: advice && monthlySaving(advice),
    change: adviceText(advice, everyRun.get(family)),
  };
}

// Without a price, the saving is not known.
const isUnpricedSaving = (advice) =>
  Boolean(advice?.changes && advice.current && !isKnown(advice.savingPercent)) && isEnoughWithLess(advice);

const savingPercent = ({ advice }) => (advice?.changes && advice.savingPercent > 0 ? advice.savingPercent : 0);

const isTooSmall = (advice) => advice?.verdict === "too small" || isKnown(advice?.risk);

/** Sorts what is too small first; then by saving: in money, in percent, unknown; then by the share of the memory. */
export const byVerdict = (a, b) =>
  Number(isTooSmall(b.advice)) - Number(isTooSmall(a.advice)) ||
  Math.max(b.saving ?? 0, 0) - Math.max(a.saving ?? 0, 0) ||
  savingPercent(b) - savingPercent(a) ||
  Number(isUnpricedSaving(b.advice)) - Number(isUnpricedSaving(a.advice)) ||
  (b.memoryShare ?? -1) - (a.memoryShare ?? -1);

const withShare = (text, percent) =>
  isKnown(percent) ? `${unbroken(text)} (${unbroken(asPercent(percent))})` : unbroken(text);

export function drawSizing(runs) {
  const sized = runs.filter((run) => run.outcome !== "running" && (isKnown(run.size) || isKnown(run.vcpuSize)));
  const place = byId("sizing");
  const everyRun = grouped(content.runs, familyOf); // the advice is independent of the filters
  const rows = [...grouped(sized, familyOf)].map((family) => sizingRow(family, everyRun)).sort(byVerdict);
  if (!rows.length)
    return place.replaceChildren(emptyNote(runs.length ? "No run in this selection has a known size." : NO_MATCH));
  return place.replaceChildren(
    ...shortTable(
      [
        { name: "Family", className: "family", show: (row) => breakable(row.family) },
        { name: "Runs at this size", className: "number wide", show: (row) => String(row.runs) },
        { name: "Size", className: "wide size", show: (row) => unbroken(asTaskSize(row.size)) },
        {
          name: "Peak memory",
          className: "number",
          show: (row) =>
            withBar(withShare(marked(asMemory(row.peak), row.isPeakLeast), row.memoryShare), row.memoryShare, "memory"),
        },
        {
          name: "vCPU, 95th percentile",
          className: "number wide",
          show: (row) => withBar(withShare(asVcpuCount(row.vcpu), row.cpuShare), row.cpuShare, "cpu"),
        },
        { name: "Out of memory", className: "number wide", show: (row) => countCell(row.killed, "oom") },
        { name: "Recommended size", className: "advice", show: (row) => recommendedSize(row.advice) },
        { name: "Saving", className: "change", show: (row) => unbroken(row.change) },
      ],
      rows,
      { label: "Right-sizing by family", most: isOnPaper() ? Infinity : MAX_FAMILIES },
    ),
  );
}
