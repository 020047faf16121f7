// @ts-check
// Tables of one run: processes, killed processes, GPUs and NeuronCores.

import { element, table } from "#page/elements.js";
import { asDuration, asMemory, asPercent, escapeControls, isKnown, marked, UNKNOWN, unbroken } from "#page/formats.js";

/** @type {Array<{ name: string, className?: string, show: (process: import("../page_rows").RunDetails["processes"][0]) => unknown }>} */
export const PROCESS_COLUMNS = [
  {
    name: "Process",
    show: ([name, words]) =>
      element(
        "span",
        {},
        escapeControls(name),
        ...(words ? [element("code", { textContent: escapeControls(words) })] : []),
      ),
  },
  { name: "Number", className: "number wide", show: ([, , count]) => (isKnown(count) ? String(count) : UNKNOWN) },
  {
    name: "CPU time",
    className: "number",
    show: ([, , , seconds, , , isLeast]) => marked(asDuration(isKnown(seconds) ? seconds * 1000 : undefined), isLeast),
  },
  {
    name: "Peak memory",
    className: "number",
    show: ([, , count, , mb, held, , isLeast]) => {
      const text = marked(asMemory(mb), isLeast);
      return isKnown(mb) && isKnown(count) && count !== (held || 1) ? `${text} in ${held || 1} of them` : text;
    },
  },
];

const KILL_COLUMNS = [PROCESS_COLUMNS[0], { ...PROCESS_COLUMNS[3], name: "Memory when last seen" }];

/** @type {Array<{ name: string, className?: string, isShown?: (gpu: import("../page_rows").PageGpu) => boolean, show: (gpu: import("../page_rows").PageGpu) => unknown }>} */
const GPU_COLUMNS = [
  { name: "GPU", show: (gpu) => `${escapeControls(gpu.name)}${gpu.whose ? `, ${gpu.whose}` : ""}` },
  { name: "Average", className: "number", show: (gpu) => unbroken(gpu.percent ?? UNKNOWN) },
  { name: "Peak", className: "number wide", show: (gpu) => gpu.top ?? UNKNOWN },
  { name: "SM active", className: "number wide", isShown: (gpu) => isKnown(gpu.sm), show: (gpu) => gpu.sm ?? UNKNOWN },
  { name: "Idle", className: "number", show: (gpu) => unbroken(gpu.idle ?? UNKNOWN) },
  { name: "Peak memory", className: "number wraps", show: (gpu) => unbroken(gpu.memory ?? UNKNOWN) },
  {
    name: "Power",
    className: "number wide",
    isShown: (gpu) => isKnown(gpu.watts),
    show: (gpu) => (isKnown(gpu.watts) ? `${Math.round(gpu.watts)} W` : UNKNOWN),
  },
  {
    name: "Peak temperature",
    className: "number wide",
    isShown: (gpu) => isKnown(gpu.celsius),
    show: (gpu) => (isKnown(gpu.celsius) ? `${Math.round(gpu.celsius)} °C` : UNKNOWN),
  },
  {
    name: "Errors (Xid)",
    isShown: (gpu) => Boolean(gpu.xids),
    show: (gpu) => (gpu.xids ? gpu.xids.join(", ") : "none"),
  },
];

export function section(title, ...children) {
  return element("section", { className: "part" }, element("h3", { textContent: title }), ...children);
}

/** @param {import("../shown_run").ShownRun} run */
export function devices(run) {
  const parts = [];
  if (run.gpus) {
    const notes = (run.gpuNotes ?? []).map((text) => element("p", { textContent: unbroken(escapeControls(text)) }));
    const columns = GPU_COLUMNS.filter(({ isShown }) => !isShown || run.gpus.some(isShown));
    parts.push(section("GPUs", ...notes, table(columns, run.gpus, { label: "GPUs" })));
  }
  if (run.neuron) {
    const { cores = [], mb, size, completed, failed } = run.neuron;
    const text = [
      isKnown(mb) && `Device memory: ${asMemory(mb)}${isKnown(size) ? ` of ${asMemory(size)}` : ""}.`,
      isKnown(completed) && `Executions: ${completed}.`,
      failed > 0 && `Failed executions: ${failed}.`,
    ]
      .filter(Boolean)
      .join(" ");
    parts.push(
      section(
        "NeuronCores",
        ...(text ? [element("p", { textContent: text })] : []),
        ...(cores.length
          ? [
              table(
                [
                  { name: "NeuronCore", show: ([index]) => String(index) },
                  { name: "Average", className: "number", show: ([, average]) => asPercent(average) },
                  { name: "Peak", className: "number", show: ([, , top]) => asPercent(top) },
                ],
                cores,
                { label: "NeuronCores" },
              ),
            ]
          : []),
      ),
    );
  }
  return parts;
}

/** @param {import("../shown_run").ShownRun} run */
export function kills(run) {
  if (!run.kills) return [];
  const [sentence, processes] = run.kills;
  return [
    section(
      "Killed processes",
      element("p", { textContent: escapeControls(sentence) }),
      ...(processes.length ? [table(KILL_COLUMNS, processes, { label: "Killed processes" })] : []),
    ),
  ];
}
