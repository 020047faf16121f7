// @ts-check
// The selected runs as a CSV file.

import { element } from "#page/elements.js";
import { isKnown } from "#page/formats.js";

const iso = (ms) => (isKnown(ms) ? new Date(ms).toISOString() : undefined);

/** @type {Array<[string, (run: import("../shown_run").ShownRun) => string | number | boolean | undefined]>} */
const CSV_COLUMNS = [
  ["taskId", (run) => run.id],
  ["container", (run) => run.container],
  ["family", (run) => run.name ?? run.family],
  ["revision", (run) => run.revision],
  ["accountId", (run) => run.account],
  ["region", (run) => run.region],
  ["cluster", (run) => run.cluster],
  ["outcome", (run) => run.outcome],
  ["why", (run) => run.why],
  ["exitCode", (run) => run.exit],
  ["startedAt", (run) => (run.startUnknown ? undefined : iso(run.began))],
  ["durationMs", (run) => run.ms],
  ["billedDurationMs", (run) => run.billed],
  ["vcpuSize", (run) => (run.vcpuAsked ? undefined : run.vcpuSize)],
  ["vcpuShare", (run) => (run.vcpuAsked ? run.vcpuSize : undefined)],
  ["vcpuUsedAvg", (run) => run.vcpuAvg],
  ["vcpuUsedP95", (run) => run.vcpuP95],
  ["vcpuUsedMax", (run) => run.vcpuMax],
  ["cpuSeconds", (run) => run.cpuSeconds],
  ["memorySizeMB", (run) => run.size],
  ["maxMemoryUsedMB", (run) => run.peak],
  ["memoryPeakSource", (run) => run.peakBy],
  ["memoryCountsMappedFiles", (run) => run.countsFiles],
  ["costUsd", (run) => run.usd],
  ["blockReadBytes", (run) => run.read],
  ["blockWriteBytes", (run) => run.written],
  ["networkRxBytes", (run) => run.received],
  ["networkTxBytes", (run) => run.sent],
  ["gpuUtilizationPercent", (run) => run.gpu],
  ["maxGpuMemoryUsedMB", (run) => run.gpuPeak],
  ["gpuIdlePercent", (run) => run.gpuIdle],
  ["gpuIdleBetweenPercent", (run) => run.gpuBetween],
  ["tags", (run) => run.tags?.join(" ")],
  ["labels", (run) => run.labels?.join(" ")],
  ["job", (run) => run.job],
];

// A spreadsheet would run a text that begins like a formula.
const csvText = (value) => {
  if (!isKnown(value)) return "";
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

/** @param {import("../shown_run").ShownRun[]} runs */
const csvOf = (runs) =>
  [CSV_COLUMNS.map(([name]) => name), ...runs.map((run) => CSV_COLUMNS.map(([, pick]) => csvText(pick(run))))]
    .map((row) => `${row.join(",")}\r\n`)
    .join("");

/** @param {import("../shown_run").ShownRun[]} runs */
export function saveCsv(runs) {
  const href = URL.createObjectURL(new Blob(["\ufeff", csvOf(runs)], { type: "text/csv;charset=utf-8" }));
  element("a", { href, download: "task-runs.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60e3);
}
