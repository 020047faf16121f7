// The charts of a run: a row for each measured quantity, and its values at a time. A point is the measurement of the
// step that ends there.

import { asMemory, asPercent, asRate, asVcpu, asVcpuCount, isKnown } from "#page/formats.js";
import { layerTones } from "#page/process_layers.js";
import { known, max, total } from "#page/statistics.js";

const MEMORY_STEPS_MB = [1, 2, 5, 10, 20, 50, 100, 200, 512, 1024, 2048, 5120, 10240, 20480, 51200, 102400];
const plainAxis = (top) => ({ range: [0, top], nticks: 4, tickformat: "~r" });
const percentAxis = () => ({ range: [0, 105], tickvals: [0, 50, 100], ticktext: ["0 %", "50 %", "100 %"] });

function memoryAxis(top) {
  const step = MEMORY_STEPS_MB.find((candidate) => top / candidate <= 4.5) ?? Math.ceil(top / 4 / 102400) * 102400;
  const tickvals = [];
  for (let mb = 0; mb <= top; mb += step) tickvals.push(mb);
  return { range: [0, top], tickvals, ticktext: tickvals.map(asMemory) };
}

// Samples have seen a peak that is at most this much above the highest of them.
const MISSED_SHARE = 1.01;
const sampledPeak = (series) => max(known(series?.mb ?? [], (mb) => mb));

/** Whether a mark of the kernel shows a peak that no sample has seen. */
export const isMissedPeak = (run) => run.peak > MISSED_SHARE * (sampledPeak(run.series) ?? Infinity);

/** Returns the series with the run's peak in the highest step, where both have seen the same peak: it is one number. */
export function seriesWithPeak(run, series) {
  const sampled = sampledPeak(series);
  const isSame = sampled > 0 && run.peak <= MISSED_SHARE * sampled && sampled <= MISSED_SHARE * run.peak;
  return isSame ? { ...series, mb: series.mb.map((mb) => (mb === sampled ? run.peak : mb)) } : series;
}

const hasVcpuSize = (run) => isKnown(run.vcpuSize) && run.vcpuSize > 0;

// What other programs on a GPU use cannot be told apart over time.
const ofAll = (run) => (run.gpus?.some((gpu) => gpu.whose) ? ", all programs" : "");

/** The title of a row of the chart. */
export const rowTitle = (run, row) => (typeof row.title === "function" ? row.title(run) : row.title);

const ROWS = [
  {
    id: "cpu",
    unit: "vcpu",
    title: "CPU, in vCPU",
    limit: (run) => (hasVcpuSize(run) ? run.vcpuSize : undefined),
    show: asVcpu,
    axis: (top) => plainAxis(top),
    lines: [{ column: "vcpu", name: "CPU", tone: "cpu" }],
  },
  {
    id: "memory",
    unit: "mb",
    title: "Memory",
    limit: (run) => run.size,
    show: asMemory,
    axis: (top) => memoryAxis(top),
    lines: [{ column: "mb", name: "memory", tone: "memory" }],
  },
  {
    id: "io",
    least: 0.01, // below that, the chart would be a line at 0
    title: "I/O, in MB/s",
    show: asRate,
    axis: (top) => plainAxis(top),
    lines: [
      { column: "read", name: "read", tone: "cpu", gapMs: Infinity },
      { column: "written", name: "written", tone: "memory", gapMs: Infinity },
    ],
  },
  {
    id: "gpu",
    title: (run) => `Mean GPU utilization${ofAll(run)}`,
    show: asPercent,
    axis: () => percentAxis(),
    lines: [{ column: "gpu", name: "GPUs", tone: "device", gapMs: 3000 }],
  },
  {
    id: "gpu-memory",
    unit: "mb",
    title: (run) => `GPU memory, all GPUs${ofAll(run)}`,
    limit: (run) => total(known(run.gpus ?? [], (gpu) => gpu.size)) || undefined,
    show: asMemory,
    axis: (top) => memoryAxis(top),
    lines: [{ column: "gpuMb", name: "GPU memory", tone: "device", gapMs: 3000 }],
  },
  {
    id: "neuron",
    title: "Mean NeuronCore utilization",
    show: asPercent,
    axis: () => percentAxis(),
    lines: [{ column: "neuron", name: "NeuronCores", tone: "device" }],
  },
  {
    id: "wait",
    unit: "vcpu",
    title: "Threads waiting for a CPU",
    seriesOf: (run) => run?.activity,
    show: asVcpuCount,
    axis: (top) => plainAxis(top),
    lines: [{ column: "wait", name: "threads waiting for a CPU", tone: "time-waitingForCpu" }],
  },
  {
    id: "processes-cpu",
    unit: "vcpu",
    title: "vCPU by process",
    limit: (run) => (hasVcpuSize(run) ? run.vcpuSize : undefined),
    show: asVcpu,
    axis: (top) => plainAxis(top),
    lines: [],
    layer: 1,
  },
  {
    id: "processes-memory",
    unit: "mb",
    title: "Memory by process",
    limit: (run) => run.size,
    show: asMemory,
    axis: (top) => memoryAxis(top),
    lines: [],
    layer: 2,
  },
];

const hasValues = (column, least = 0) => column?.some((value) => isKnown(value) && value >= least) ?? false;
export const seriesOf = (run, row) => (row.seriesOf ? row.seriesOf(run) : run?.series);
export const layersOf = (run, row) =>
  (row.layer && run.activity?.processes?.map((process) => process[row.layer])) || [];
export const rowsOf = (run) =>
  ROWS.filter(
    (row) =>
      row.lines.some(({ column }) => hasValues(seriesOf(run, row)?.[column], row.least)) ||
      layersOf(run, row).some((column) => hasValues(column)),
  );

/** Returns [times, values] of a line as it is drawn. */
export const pointsOf = (series, { column, gapMs }) =>
  gapMs ? withoutShortGaps(series.ms, series[column], gapMs) : [series.ms, series[column]];

// Drops unknown values between known ones at most maxGapMs apart, so that the line has no gap there.
function withoutShortGaps(ms, values, maxGapMs) {
  const kept = [];
  let knownMs = 0;
  let unknown = [];
  values.forEach((value, index) => {
    if (!isKnown(value)) {
      unknown.push(index);
      return;
    }
    if (ms[index] - knownMs > maxGapMs) kept.push(...unknown);
    kept.push(index);
    knownMs = ms[index];
    unknown = [];
  });
  kept.push(...unknown);
  return [kept.map((index) => ms[index]), kept.map((index) => values[index])];
}

const stepAt = (ms, time) => ms.findIndex((end) => end >= time);

function valueAt(series, line, time) {
  if (!series?.[line.column]) return undefined;
  const [ms, values] = pointsOf(series, line);
  return values[stepAt(ms, time)];
}

const textOf = (value, row) => (isKnown(value) ? row.show(value) : "not measured");

const hasEnded = ({ series, outcome, ms }, time) => outcome !== "running" && time > Math.max(series.ms.at(-1), ms ?? 0);

/** Returns what all lines show at a time: { name, tone, texts }, with the other run's value if there is another run. */
export function readingsAt(run, other, time) {
  return rowsOf(run).flatMap((row) => {
    const [series, otherSeries] = [seriesOf(run, row), seriesOf(other, row)];
    const lines = row.lines.filter(({ column }) => hasValues(series?.[column]));
    return lines.map((line) => {
      const otherText = () => (hasEnded(other, time) ? "ended" : textOf(valueAt(otherSeries, line, time), row));
      const otherTexts = other ? [otherText()] : [];
      return { name: line.name, tone: line.tone, texts: [textOf(valueAt(series, line, time), row), ...otherTexts] };
    });
  });
}

/** Returns what the processes used at a time: { name, tone, texts }. */
export function processesAt(run, time) {
  const processes = run.activity?.processes ?? [];
  const tones = layerTones(processes.map(([command]) => command));
  const rows = rowsOf(run).filter(({ layer }) => layer);
  return processes.map((process, at) => ({
    name: process[0],
    tone: tones[at],
    texts: rows.map((row) => textOf(process[row.layer]?.[stepAt(run.activity.ms, time)], row)),
  }));
}
