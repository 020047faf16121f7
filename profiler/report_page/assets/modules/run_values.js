// @ts-check
// Values derived from runs.

import { content } from "#page/content.js";
import {
  approximate,
  asBytes,
  asCount,
  asDuration,
  asMemory,
  asPercent,
  asTime,
  asUsd,
  asVcpuCount,
  isKnown,
  marked,
  UNKNOWN,
} from "#page/formats.js";
import { known, total } from "#page/statistics.js";

/** @param {import("../shown_run").ShownRun} run */
export const familyOf = (run) => run.family ?? UNKNOWN;

/**
 * Returns the start; "seen …", the time of the record, of a run that never started or whose start is unknown.
 * @param {import("../shown_run").ShownRun} run
 */
export const asStart = (run) => `${run.startUnknown && isKnown(run.began) ? "seen " : ""}${asTime(run.began)}`;

/**
 * Returns the costs of the tasks. A task is paid once, however many of its containers have a report.
 * @param {import("../shown_run").ShownRun[]} runs
 */
export function usdByTask(runs) {
  const usdOf = new Map();
  for (const run of runs) if (isKnown(run.usd)) usdOf.set(run.id, Math.max(usdOf.get(run.id) ?? 0, run.usd));
  return [...usdOf.values()];
}

/** Returns the part in percent of the whole. */
export const shareOf = (part, whole) => (isKnown(part) && whole > 0 ? (100 * part) / whole : undefined);

/**
 * Returns the average CPU in percent of the size, or against it where nothing limits it: a job on EC2 can use more.
 * @param {import("../shown_run").ShownRun} run
 */
export const asCpuShare = (run) =>
  Number(run.cpu) > 100.5 && isKnown(run.vcpuSize)
    ? `${asVcpuCount(run.vcpuAvg)} of ${asVcpuCount(run.vcpuSize)} vCPU`
    : asPercent(run.cpu);

/** Whether so much of the memory is in use that it is worth a colour. A full CPU is in use, a full memory is a kill. */
export const isHot = (percent, tone) => tone === "memory" && percent >= 100 * content.scale.nearLimit;

/**
 * Whether a number of a run may have been larger, which profiler/record/fact_list.py decides.
 * @param {{ atLeast?: string[] }} run
 * @param {string} field
 */
export const isLeast = (run, field) => run.atLeast?.includes(field) ?? false;

/**
 * Whether a number of a run is an estimate, which has no change.
 * @param {{ estimated?: string[] }} run
 * @param {string} field
 */
const isEstimate = (run, field) => run.estimated?.includes(field) ?? false;

/** Returns the mean use of the GPUs of a run with its mark, or the word in place of it. */
export const gpuUseOf = (run) => run.gpuWord ?? approximate(asPercent(run.gpu), isEstimate(run, "gpu"));

/** Returns a sum of the runs' numbers with its mark: it may have been larger if one of them may. */
const asSum = (numbers, field, runs, asText) =>
  marked(
    asText(total(numbers)),
    runs.some((run) => isLeast(run, field)),
  );

const FORMATS = {
  ms: asDuration,
  s: (seconds) => asDuration(1000 * seconds),
  MB: asMemory,
  bytes: asBytes,
  "%": asPercent,
  vCPU: asVcpuCount,
  USD: asUsd,
  count: String,
};

/** Returns a number in its unit. The numbers and their units are those of profiler/record/fact_list.py. */
export const asNumber = (value, unit) => FORMATS[unit](value);

const MEMORY = ["peak", "memoryAvg"];
const LEAST_ON_BOTH = ["usd", "gpuPeak"];
const MIN_RUNS = 5;

/** Whether the memory used of two runs means the same: profiler/record/mapped_files.py. */
export const haveSameMemory = (run, other) =>
  !isKnown(run.peak) || !isKnown(other.peak) || Boolean(run.countsFiles) === Boolean(other.countsFiles);

// How many of the runs count mapped files as memory used, unlike others; 0 if all mean the same.
function countOfOtherMeaning(runs) {
  const measured = runs.filter((run) => isKnown(run.peak));
  const older = measured.filter((run) => run.countsFiles).length;
  return older < measured.length ? older : 0;
}

/** A sentence if the memory of some runs may include mapped files, unlike that of others; "" else. */
export function mixedMemoryNote(runs) {
  const older = countOfOtherMeaning(runs);
  if (!older) return "";
  return (
    `The memory of ${asCount(older, "run")} may include pages of mapped files, as older versions, Container ` +
    "Insights and very short runs count them."
  );
}

/** The runs whose memory counts: those that say mapped files apart, if there are five; until then all. */
export function ofOneMeaning(runs) {
  const apart = runs.filter((run) => isKnown(run.peak) && !run.countsFiles);
  return apart.length < MIN_RUNS ? runs : apart;
}

/**
 * Whether a number of two runs has a change: a lower bound has none, but the least that Spot costs has one on Spot, and
 * so has a sampled peak of the GPU's memory.
 */
export function haveChange(field, run, other) {
  if (isEstimate(run, field) || isEstimate(other, field)) return false;
  if (MEMORY.includes(field)) return haveSameMemory(run, other);
  if (LEAST_ON_BOTH.includes(field)) return isLeast(run, field) === isLeast(other, field);
  return !(isLeast(run, field) || isLeast(other, field));
}

/** Returns a number of a run in its unit, with the mark of a lower bound or of an estimate; at least 0 is unknown. */
export const numberOf = (run, [, field, unit]) => {
  if (isLeast(run, field) && !run[field]) return UNKNOWN;
  const text = asNumber(run[field], unit);
  return isEstimate(run, field) ? approximate(text, true) : marked(text, isLeast(run, field));
};

/** Returns the memory of a run, `peak` or `gpuPeak`, with the mark of a lower bound. */
export const memoryOf = (run, field) => numberOf(run, ["", field, "MB"]);

/** @param {import("../shown_run").ShownRun[]} runs */
export function cpuTimeText(runs) {
  const seconds = known(runs, (run) => run.cpuSeconds);
  return seconds.length ? asSum(seconds, "cpuSeconds", runs, FORMATS.s) : UNKNOWN;
}

/**
 * Returns what the runs cost; undefined without a known cost.
 * @param {import("../shown_run").ShownRun[]} runs
 */
export function costText(runs) {
  const usd = usdByTask(runs);
  return usd.length ? asSum(usd, "usd", runs, asUsd) : undefined;
}
