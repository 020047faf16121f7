// The call stacks of a run: the flame graph of the shown part, and the moments as parts to show.

import { content } from "#page/content.js";
import { button, element, emptyNote, table } from "#page/elements.js";
import { FlameGraph } from "#page/flame_graph.js";
import { asCount, asPercent, escapeControls, isKnown, truncate } from "#page/formats.js";
import { section } from "#page/run_tables.js";
import { max } from "#page/statistics.js";

const MAX_FUNCTION_LENGTH = 120;

const FUNCTION_COLUMNS = [
  {
    name: "Function",
    className: "target",
    show: ([name, file, line]) =>
      element(
        "span",
        {},
        truncate(name, MAX_FUNCTION_LENGTH),
        element("code", { textContent: truncate(isKnown(line) ? `${file}:${line}` : file, MAX_FUNCTION_LENGTH) }),
      ),
  },
  { name: "Itself", className: "number", show: ([, , , self]) => asPercent(self) },
  { name: "With what it called", className: "number", show: ([, , , , all]) => asPercent(all) },
];

const NO_ACTIVITY =
  "This page has no processes over time and no call stacks for this run: they did not fit, or the source has none.";

/** Adds how to get what the page lacks, unless it is a page for one run already. */
export const withRoom = (text) =>
  content.onlyOne ? text : `${text} A page for one run has room: task-profiler report --run ID`;

/** A sentence in place of what the record has and the page has not. */
export const activityNote = (run) => (run.hasActivity && !run.activity ? [emptyNote(withRoom(NO_ACTIVITY))] : []);

/** Returns the flame graph of the part of the run that its charts show; nothing if the page has no stacks of it. */
export function flameGraph(run, chart) {
  const steps = run.activity?.stacks;
  if (!steps) return undefined;
  const flame = new FlameGraph(steps, max([run.ms ?? 0, ...steps.map(([start, length]) => start + length)]));
  if (chart) {
    chart.onShow = (range) => flame.show({ range: range ?? null });
  }
  flame.controls.prepend(button("Whole run", () => (chart ? chart.show(chart.full) : flame.show({ range: null }))));
  return flame;
}

/** Returns the section about the call stacks, or nothing if the run has none. */
export function stacksPart(run, flame) {
  if (!flame) {
    if (!run.functions) return [];
    const few = `Only ${asCount(run.samples, "sample")}: the shares are a matter of chance.`;
    const isFew = isKnown(run.samples) && run.samples < content.scale.minSamples;
    const note = isFew ? [element("p", { className: "note", textContent: few })] : [];
    return [
      section("Functions in the call stacks", ...note, table(FUNCTION_COLUMNS, run.functions, { label: "Functions" })),
    ];
  }
  const source = run.stackSource ? ` Read by ${escapeControls(run.stackSource)}.` : "";
  const textContent =
    "A frame is as wide as its share of the stacks in the part of the run that the charts show. " +
    `Hatched: the share of threads that waited.${source}`;
  return [section("Call stacks", element("p", { className: "note", textContent }), ...flame.elements)];
}
