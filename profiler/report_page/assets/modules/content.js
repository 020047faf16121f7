// @ts-check
// The data of the page: JSON, compressed by gzip, as base64. profiler/report_page/page_data.py writes it. The time
// series are a separate text: reading them takes as long as everything else, and only an opened run shows them.

import { grouped } from "#page/statistics.js";

/**
 * The data. It is empty until `loadContent` has ended.
 * @type {{ runs: import("../shown_run").ShownRun[], notices: import("../page_rows").PageNotice[], sizing: any[], numbers: any[], series: any[], scale?: any, changes?: Record<string, number>, lastNight?: import("../page_rows").PageNight }}
 */
export const content = { runs: [], notices: [], sizing: [], numbers: [], series: [] };

// Not from elements.js, which imports the limits of the data.
const textOf = (id) => document.getElementById(id).textContent;

export async function loadContent() {
  const data = await parseContent(textOf("task-data"));
  Object.assign(content, data, { runs: joinRuns(data) });
}

export async function loadSeries() {
  if (!content.series.length) content.series = await parseContent(textOf("task-series"));
}

let activityLines;

/** Reads what the processes of a run did, if the page has it. Each run has a compressed text of its own. */
export async function loadActivity(run) {
  activityLines ??= textOf("task-activity").split("\n");
  const line = activityLines[run.row];
  if (line && !run.activity) run.activity = unpackSeries(await parseContent(line));
}

/** Decompresses and parses the text of a data element. */
async function parseContent(base64) {
  const characters = atob(base64);
  const bytes = new Uint8Array(characters.length);
  // Not Uint8Array.from() with a function: with 5,000 runs, it takes 0.2 s.
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = characters.charCodeAt(at);
  const json = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(json).json();
}

/** Joins the fields and details of each run. Details are null where the page had no room for them. */
const joinRuns = ({ runs, details }) => runs.map((run, row) => Object.assign(run, details[row], { row }));

/** Whether the page has a time series of the run. */
export const hasSeries = (run) => Boolean(content.series[run.row]);

/** Returns the time series of a run. Equal steps are packed as [number, length in ms, end of the last step in ms]. */
export function unpackSeries(packed) {
  const { ms, steps, ...columns } = packed;
  if (ms || !steps) return packed;
  const [count, length, end] = steps;
  return { ms: Array.from({ length: count }, (_, at) => (at === count - 1 ? end : (at + 1) * length)), ...columns };
}

let byTask = { all: undefined, tasks: new Map() };

/** Returns the task id, with the container if the task has several reports: the name in addresses and links. */
export function nameOf(run) {
  if (byTask.all !== content.runs) byTask = { all: content.runs, tasks: grouped(content.runs, ({ id }) => id) };
  const hasSibling = byTask.tasks.get(run.id)?.some((other) => isSibling(other, run));
  return hasSibling ? `${run.id}/${run.container}` : run.id;
}

/** Whether both are reports of one task, for different containers. */
export const isSibling = (other, run) => other !== run && other.id === run.id && other.container !== run.container;
