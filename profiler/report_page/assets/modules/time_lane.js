// Where the time of a run went: one bar with a part for each kind, and what the run waited for.

import { isNarrow } from "#page/charts.js";
import { element, table } from "#page/elements.js";
import { asPercent, isKnown, marked, truncate, unbroken } from "#page/formats.js";
import { section } from "#page/run_tables.js";
import { total } from "#page/statistics.js";

// In the order of profiler/report_page/page_activity.py.
const PARTS = [
  ["onCpu", "on CPU"],
  ["waitingForCpu", "waiting for CPU"],
  ["disk", "disk"],
  ["network", "network"],
  ["sleep", "sleep"],
  ["lock", "lock"],
  ["pipe", "pipe"],
  ["child", "child"],
  ["other", "other"],
];
const NAME_OF = new Map(PARTS);
const MIN_PART_PERCENT = 1;
const MAX_TARGET_LENGTH = 160;
const MAX_KIND_LENGTH = 20;

const TARGET_COLUMNS = [
  { name: "Waited for", className: "target", show: ([kind]) => truncate(NAME_OF.get(kind) ?? kind, MAX_KIND_LENGTH) },
  {
    name: "Target",
    className: "target",
    show: ([kind, target]) =>
      kind === "other" && target === "other" ? "all other targets" : truncate(target, MAX_TARGET_LENGTH),
  },
  { name: "Share of the time", className: "number", show: ([, , percent]) => asPercent(percent) },
];

/** Returns the parts that are worth a name: { kind, name, percent, share }. Small ones count as other, as in a terminal. */
export function partsOf(run) {
  const parts = PARTS.map(([kind, name], at) => ({ kind, name, percent: run.time?.[at] ?? 0 }));
  const other = parts.pop();
  const isLarge = ({ percent }) => percent >= MIN_PART_PERCENT;
  const rest = total(parts.filter((part) => !isLarge(part)).map(({ percent }) => percent));
  const isLeast = (kind) => kind === "waitingForCpu" && run.cpuWaitPartial;
  return [...parts, { ...other, percent: other.percent + rest }]
    .filter(isLarge)
    .map((part) => ({ ...part, share: marked(asPercent(part.percent), isLeast(part.kind)) }));
}

function notesOf(run) {
  const hasKinds = isKnown(run.time[3]);
  return [
    !hasKinds && "The monitor had no permission to see what kind of waiting the time in \u201cother\u201d was.",
    run.cpuWait,
    isKnown(run.covered) && `Samples cover ${asPercent(run.covered)} of the run.`,
  ].filter(Boolean);
}

/** Returns the section about the time, or nothing if it is not known. */
export function timeLane(run) {
  const parts = partsOf(run);
  if (!parts.length) return [];
  const tone = (kind) => ({ "--part": `var(--time-${kind})` });
  // The list below the bar is its text.
  const bar = element(
    "div",
    { className: "time-bar", attributes: { "aria-hidden": "true" } },
    ...parts.map(({ kind, name, percent, share }) =>
      element(
        "span",
        {
          title: `${name} ${share}`,
          style: { "flex-grow": String(percent), ...tone(kind) },
        },
        ...(percent >= (isNarrow() ? 17 : 8) ? [element("i", { textContent: share })] : []),
      ),
    ),
  );
  const list = element(
    "ul",
    { className: "legend" },
    ...parts.map(({ kind, name, share }) =>
      element("li", { style: tone(kind) }, `${name} `, element("b", { textContent: share })),
    ),
  );
  return [
    section(
      "Time",
      bar,
      list,
      ...(run.targets ? [table(TARGET_COLUMNS, run.targets, { label: "What the run waited for" })] : []),
      ...notesOf(run).map((text) => element("p", { className: "note", textContent: unbroken(text) })),
    ),
  ];
}
