// @ts-check
// Values derived from runs.

import { content } from "#page/content.js";
import {
  asBytes,
  asDuration,
  asMemory,
  asPeak,
  asPercent,
  asTime,
  asUsd,
  asVcpuCount,
  isKnown,
  UNKNOWN,
} from "#page/formats.js";
import { total } from "#page/statistics.js";

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
 * Returns a cost: "≥ $0.12" on Spot, where only the least is known.
 * @param {number} usd
 * @param {{ spot?: boolean }} [run]
 */
export const asCost = (usd, run) => (run?.spot ? `≥ ${asUsd(usd)}` : asUsd(usd));

/**
 * Returns the CPU time: "≥9.5 s" if the end of a run was not measured.
 * @param {number} seconds
 * @param {{ cpuPartial?: boolean }} [run]
 */
export const asCpuTime = (seconds, run) => `${run?.cpuPartial ? "≥" : ""}${asDuration(1000 * seconds)}`;

/**
 * Returns bytes: "≥2 MB" if those of the end of a run were not counted.
 * @param {number} bytes
 * @param {{ bytesPartial?: boolean }} [run]
 */
const asTraffic = (bytes, run) => `${run?.bytesPartial ? "≥" : ""}${asBytes(bytes)}`;

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

const TRAFFIC = ["read", "written", "received", "sent"];
// The numbers that may have been larger.
const BOUNDED = {
  cpuSeconds: asCpuTime,
  peak: (mb, run) => asPeak(mb, run.peakBy),
  gpuPeak: (mb) => asPeak(mb), // it is sampled
  usd: asCost,
  ...Object.fromEntries(TRAFFIC.map((field) => [field, asTraffic])),
};

const MEMORY = ["peak", "memoryAvg"];
const MIN_RUNS = 5;

/** Whether the memory used of two runs means the same: profiler/record/mapped_files.py. */
export const haveSameMemory = (run, other) =>
  !isKnown(run.peak) || !isKnown(other.peak) || Boolean(run.countsFiles) === Boolean(other.countsFiles);

/** How many of the runs count mapped files as memory used, unlike others; 0 if all mean the same. */
export function countOfOtherMeaning(runs) {
  const measured = runs.filter((run) => isKnown(run.peak));
  const older = measured.filter((run) => run.countsFiles).length;
  return older < measured.length ? older : 0;
}

/** The runs whose memory counts: those that say mapped files apart, if there are five; until then all. */
export function ofOneMeaning(runs) {
  const apart = runs.filter((run) => isKnown(run.peak) && !run.countsFiles);
  return apart.length < MIN_RUNS ? runs : apart;
}

/** Whether a number of two runs has a change: a lower bound has none, but the least that Spot costs has one on Spot. */
export function haveChange(field, run, other) {
  if (field === "cpuSeconds") return !(run.cpuPartial || other.cpuPartial);
  if (TRAFFIC.includes(field)) return !(run.bytesPartial || other.bytesPartial);
  if (MEMORY.includes(field)) return haveSameMemory(run, other);
  return field !== "usd" || Boolean(run.spot) === Boolean(other.spot);
}

/** Returns a number of a run in its unit, with the mark of a lower bound. */
export const numberOf = (run, [, field, unit]) =>
  BOUNDED[field] ? BOUNDED[field](run[field], run) : asNumber(run[field], unit);

/**
 * Returns what the runs cost; undefined without a known cost.
 * @param {import("../shown_run").ShownRun[]} runs
 */
export function costText(runs) {
  const usd = usdByTask(runs);
  return usd.length ? asCost(total(usd), { spot: runs.some(({ spot }) => spot) }) : undefined;
}
