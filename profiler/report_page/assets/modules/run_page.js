// One run: verdict, charts with moments, numbers, processes, devices, sizes.

import { comparisonChoice, comparisonTable, lastSuccess, peakNote, processorNote } from "#page/comparison.js";
import { logStreamLink, taskLink } from "#page/console_links.js";
import { content, hasSeries, isSibling, unpackSeries } from "#page/content.js";
import { breakable, button, element, emptyNote, link, outcomeCell, table } from "#page/elements.js";
import {
  asPercent,
  asTaskSize,
  asTime,
  escapeControls,
  isKnown,
  UNKNOWN,
  unbroken,
  upperFirst,
} from "#page/formats.js";
import { RunChart } from "#page/run_chart.js";
import { lengthOf } from "#page/run_figure.js";
import { seriesWithPeak } from "#page/run_rows.js";
import { activityNote, flameGraph, stacksPart, withRoom } from "#page/run_stacks.js";
import { devices, kills, PROCESS_COLUMNS, section } from "#page/run_tables.js";
import { asCpuShare, asStart, familyOf, isLeast, numberOf, shareOf } from "#page/run_values.js";
import { hasSizesChart, SizesChart } from "#page/sizes_chart.js";
import { timeLane } from "#page/time_lane.js";
import { adviceDetails, adviceOf, runAdviceText } from "#page/what_if_table.js";

// What is said of a number beside its value.
const NOTES = {
  usd: (run) => isLeast(run, "usd") && " (Spot)",
  vcpuAvg: (run) => isKnown(run.cpu) && ` (${asCpuShare(run)})`,
  saturated: () => " of the time",
  memoryAvg: (run) => isKnown(run.memory) && ` (${asPercent(run.memory)})`,
  peak: peakNotes,
};

function numbersOf(run) {
  const known = content.numbers.filter(([, field]) => isKnown(run[field]));
  return known.map((row) => [upperFirst(row[0]), `${numberOf(run, row)}${NOTES[row[1]]?.(run) || ""}`]);
}

function facts(run) {
  const pairs = [
    ["Started", isKnown(run.began) && !run.startUnknown && asTime(run.began)],
    ["Task size", run.taskSize && asTaskSize({ vcpu: run.taskSize[0], memoryMB: run.taskSize[1] })],
    ["Processor", run.processor],
    ...numbersOf(run),
    ["Mapped files", run.files],
    ["Huge pages", run.hugePages],
    ["Exit code", isKnown(run.exit) && String(run.exit)],
    ["Account", run.account],
    ["Region", run.region],
    ["Cluster", run.cluster],
    ["Job", run.job],
    ["Launch type", run.launch],
    ["Command", run.command],
    ["Image", run.image],
    ["Log group", run.logGroup],
    ["Log stream", run.logStream],
    ["Task id", run.id],
  ].filter(([, value]) => isKnown(value) && value !== false && value !== "" && value !== UNKNOWN);
  return element(
    "dl",
    { className: "facts" },
    ...pairs.map(([name, value]) =>
      element("div", {}, element("dt", { textContent: name }), element("dd", {}, breakable(value))),
    ),
  );
}

function peakNotes(run) {
  const share = shareOf(run.peak, run.size);
  const notes = [isKnown(share) && asPercent(share), run.peakBy].filter(Boolean).join(", ");
  return notes && ` (${notes})`;
}

function listSection(title, texts) {
  return texts
    ? [
        section(
          title,
          element(
            "ul",
            { className: "plain" },
            ...texts.map((text) => element("li", { textContent: unbroken(escapeControls(text)) })),
          ),
        ),
      ]
    : [];
}

function verdictOf(run) {
  if (!run.verdict) return element("p", { className: "verdict" }, outcomeCell(run));
  const [tone, text, evidence] = run.verdict;
  return element(
    "p",
    { className: `verdict ${tone}` },
    element("strong", {}, breakable(unbroken(text))),
    ...(evidence ? [element("span", {}, breakable(unbroken(` ${evidence}`)))] : []),
  );
}

function momentsOf(run, chart, flame) {
  if (!run.moments) return [];
  const item = ([, start, end, text]) => {
    const words = unbroken(upperFirst(escapeControls(text)));
    if (!chart && !flame) return element("li", { textContent: words });
    const zoom = () => {
      if (chart) {
        const margin = Math.max((end - start) * 0.5, lengthOf(run) * 0.05);
        chart.show([start - margin, end + margin]).then(() => chart.mark(end > start ? start + 1 : start));
      }
      if (end > start) flame?.show({ range: [start, end] });
    };
    return element("li", {}, button(words, zoom, { className: "link" }));
  };
  return [section("Moments", element("ul", { className: "plain" }, ...run.moments.map(item)))];
}

// The recommended size is what a reader acts on: it follows the verdict, and its reasons the numbers.
// Of a run with GPUs or NeuronCores, what they did comes first: they are what the machine costs. The run's own advice has
// the limits that the program hit without seeing them.
function sizeLead(run) {
  const advice = adviceOf(run.family);
  const ofRun = (run.runAdvice ?? []).map(escapeControls);
  const deviceUse = run.deviceUse && `${run.deviceUse}.`;
  const texts = [deviceUse, advice && runAdviceText(run, advice), ...ofRun].filter(Boolean);
  return texts.map((text) => element("p", { className: "lead", textContent: unbroken(text) }));
}

function sizePart(run, sizesChart) {
  const advice = adviceOf(run.family);
  const picture = sizesChart ? [sizesChart.element] : [];
  return advice ? [section("Recommended size of the family", ...picture, ...adviceDetails(advice))] : [];
}

// Each container of a task may have a report.
function siblingsOf(run, linkTo) {
  const others = content.onlyOne ? [] : content.runs.filter((other) => isSibling(other, run));
  if (!others.length) return [];
  return [
    element(
      "p",
      { className: "note" },
      element("span", { textContent: `Container ${escapeControls(run.container)}. Other reports of this task: ` }),
      ...others.map((other) => linkTo(other, escapeControls(other.container))),
    ),
  ];
}

const NO_SERIES = "This page has no time series for this run: none was recorded, or it did not fit.";

let drawn;

/**
 * Draws a run.
 *
 * `other` is the run to compare with, null for none. `linkTo(run, text)` makes a link to another run of the page.
 */
export function drawRunPage(place, run, { other = lastSuccess(run), linkTo } = {}) {
  const range = drawn?.run === run ? drawn.chart?.zoomed : undefined; // only the colours or the other run change
  clearRunPage();
  for (const one of [run, other])
    if (one && hasSeries(one)) one.series ??= seriesWithPeak(one, unpackSeries(content.series[one.row]));
  const drawnOther = run.series && other?.series ? other : undefined;
  const chart = run.series ? new RunChart(run, drawnOther, range) : undefined;
  const flame = flameGraph(run, chart);
  const advice = adviceOf(run.family);
  const sizesChart = advice && hasSizesChart(advice) ? new SizesChart(advice) : undefined;
  drawn = { place, run, other: other ?? null, linkTo, chart, sizesChart };
  const choice = comparisonChoice(run, other, (chosen) => {
    drawRunPage(place, run, { other: chosen, linkTo });
    place.querySelector(".compare select")?.focus({ preventScroll: true });
  });
  place.replaceChildren(
    headOf(run),
    ...siblingsOf(run, linkTo),
    verdictOf(run),
    ...sizeLead(run),
    ...timeLane(run),
    ...(chart
      ? [element("div", { className: "plot-block" }, ...choice, ...chart.elements)]
      : [emptyNote(run.unmeasured ?? withRoom(NO_SERIES))]),
    ...activityNote(run),
    // Next to the flame graph, which shows a moment on a click.
    ...(flame ? momentsOf(run, chart, flame) : []),
    ...stacksPart(run, flame),
    element(
      "div",
      { className: "parts" },
      ...(flame ? [] : momentsOf(run, chart)),
      ...(drawnOther
        ? [
            section(
              `Compared with ${asTime(other.began)}`,
              comparisonTable(run, other),
              ...processorNote(run, other),
              ...peakNote(run, other),
              ...(linkTo ? [linkTo(other, "Open the other run")] : []),
            ),
          ]
        : []),
      ...listSection("Notices", run.notices),
      ...listSection("Warnings", run.warnings),
    ),
    ...devices(run),
    section("Numbers", facts(run)),
    ...kills(run),
    ...(run.processes ? [section("Processes", table(PROCESS_COLUMNS, run.processes, { label: "Processes" }))] : []),
    ...sizePart(run, sizesChart),
    element("div", { className: "parts" }, ...listSection("Labels", run.labels), ...listSection("Tags", run.tags)),
  );
  chart?.draw();
  sizesChart?.draw();
}

function headOf(run) {
  const links = [
    [logStreamLink(run), "Log stream"],
    [taskLink(run), "ECS task"],
  ].filter(([href]) => href);
  return element(
    "div",
    { className: "run-head" },
    element(
      "h2",
      { id: "run-title", tabIndex: -1 },
      breakable(run.revision ? `${familyOf(run)}:${run.revision}` : familyOf(run)),
    ),
    element(
      "p",
      { className: "note" },
      outcomeCell(run),
      element("span", { textContent: asStart(run) }),
      ...links.map(([href, text]) => link(href, text)),
    ),
  );
}

export function clearRunPage() {
  drawn?.chart?.remove();
  drawn?.sizesChart?.remove();
  drawn?.place.replaceChildren();
  drawn = undefined;
}

/** Draws the shown run again, in the colours of another theme. */
export function redrawRunPage() {
  if (drawn) drawRunPage(drawn.place, drawn.run, drawn);
}
