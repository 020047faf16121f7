// The call stacks of a run: the flame graph of the shown part, and the moments as parts to show.

import { button, element, emptyNote, table } from "#page/elements.js";
import { FlameGraph } from "#page/flame_graph.js";
import { asDuration, asPercent, escapeControls, isKnown, truncate, UNKNOWN } from "#page/formats.js";
import { section } from "#page/run_tables.js";
import { max } from "#page/statistics.js";

const MOMENTS = new Map([
  ["memory", "What ran while the memory rose"],
  ["idle", "What the threads did while nothing was on a CPU"],
  ["saturated", "What ran while all vCPUs were in use"],
]);
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
  "This page has no processes over time and no call stacks for this run: they did not fit, or the source has none. " +
  "A page for one run has room: task-profiler report --run ID";

/** A sentence in place of what the record has and the page has not. */
export const activityNote = (run) => (run.hasActivity && !run.activity ? [emptyNote(NO_ACTIVITY)] : []);

function momentText([kind, start, end, samples, percent, functions]) {
  const what = MOMENTS.get(kind) ?? `Moment: ${truncate(kind, MAX_FUNCTION_LENGTH)}`;
  const names = functions.map((one) => truncate(one.replace(/ \(.*/s, ""), MAX_FUNCTION_LENGTH)).join(" \u2192 ");
  const share = isKnown(percent) ? ` (${asPercent(percent)} of ${samples ?? UNKNOWN} samples)` : "";
  return `${what}, +${asDuration(start)} to +${asDuration(end)}${names ? `: ${names}${share}` : ""}`;
}

function momentList(run, show) {
  if (!run.stackMoments) return [];
  const item = (moment) =>
    element(
      "li",
      {},
      show ? button(momentText(moment), () => show(moment), { className: "link" }) : momentText(moment),
    );
  return [element("ul", { className: "plain" }, ...run.stackMoments.map(item))];
}

/** Returns the section about the call stacks, or nothing if the run has none. */
export function stacksPart(run, chart) {
  const steps = run.activity?.stacks;
  if (!steps) {
    if (!run.functions && !run.stackMoments) return [];
    const functions = run.functions ? [table(FUNCTION_COLUMNS, run.functions, { label: "Functions" })] : [];
    return [section("Functions in the call stacks", ...momentList(run), ...functions)];
  }
  const flame = new FlameGraph(steps, max([run.ms ?? 0, ...steps.map(([start, length]) => start + length)]));
  const show = ([, start, end]) => {
    chart?.show([start, end]);
    flame.show({ range: [start, end] }); // the chart may show more, to have some steps
  };
  if (chart) {
    chart.onShow = (range) => flame.show({ range: range ?? null });
  }
  flame.controls.prepend(button("Whole run", () => (chart ? chart.show(chart.full) : flame.show({ range: null }))));
  const source = run.stackSource ? ` Read by ${escapeControls(run.stackSource)}.` : "";
  return [
    section(
      "Call stacks",
      element("p", {
        className: "note",
        textContent:
          "A frame is as wide as its share of the samples in the part of the run that the charts show. " +
          `Hatched: the share of threads that waited.${source}`,
      }),
      ...momentList(run, show),
      ...flame.elements,
    ),
  ];
}
