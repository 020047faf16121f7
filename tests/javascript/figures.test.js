import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { nameLines, rowsHeight } from "#page/charts.js";
import { countFigure, countStep } from "#page/count_chart.js";
import { durationFigure } from "#page/duration_chart.js";
import { CPU_HEAT, heatmapFigure, MEMORY_HEAT } from "#page/heatmap.js";
import { nightLanes, shownPeriod } from "#page/night_lanes.js";
import { coursePath } from "#page/overview_strip.js";
import { cardPosition } from "#page/run_card.js";
import { runFigure, wholeRange } from "#page/run_figure.js";
import { readingsAt } from "#page/run_rows.js";
import { asPlotted, bucketsOf } from "#page/time_buckets.js";
import { DAY } from "#page/time_units.js";
import { HOUR, runAt, START } from "./browser.js";

const heatmap = (runs, statistic) => heatmapFigure(runs, bucketsOf(runs), CPU_HEAT, statistic);

test("a cell of the heatmap is the highest peak of its runs, and a mark is a kill", () => {
  const runs = [
    runAt(0, { vcpuMax: 1, vcpuSize: 4 }),
    runAt(0, { vcpuMax: 2, vcpuSize: 2 }),
    runAt(24, { outcome: "out of memory" }),
    runAt(73, { vcpuMax: 1, vcpuSize: 2 }),
  ];
  const [{ z, text }, kills] = heatmap(runs).traces;
  assert.deepEqual(z, [[100, null, null, 50]]);
  assert.equal(text[0][0], "<b>etl</b><br>2026-11-20<br>100 % peak CPU, runs: 2");
  assert.deepEqual([kills.x, kills.y], [[asPlotted(START - 6 * HOUR + 1.5 * DAY)], [0]]);
  assert.match(kills.hovertext[0], /– peak CPU, runs: 1<br>out of memory: 1$/);
  const killed = [runAt(0, { peak: 990, size: 1000, outcome: "out of memory" })];
  const memory = heatmapFigure(killed, bucketsOf(killed), MEMORY_HEAT);
  assert.deepEqual(memory.traces[0].z, [[99]]);
  assert.match(memory.label, /^Heatmap of the peak memory use of 1 family over/);
});

test("from three days on, a night is one cell", () => {
  const nights = [0, 1, 2, 3, 4].map((night) => runAt(24 * night + night, { vcpuMax: 1, vcpuSize: 1 }));
  assert.deepEqual(heatmap(nights).traces[0].z, [[100, 100, 100, 100, 100]]);
});

test("a cell of averages is the mean of its runs, and a cell without a run is empty", () => {
  const runs = [runAt(0, { cpu: 20 }), runAt(0, { cpu: 40, outcome: "out of memory" }), runAt(12, { cpu: 90 })];
  const { traces, layout } = heatmap(runs, "average");
  const [{ z, text, x, y }] = traces;
  assert.equal(z.length, 1);
  assert.equal(z[0][0], 30);
  assert.equal(z[0].at(-1), 90);
  assert.ok(z[0].slice(1, -1).every((value) => value === null));
  assert.equal(text[0][0], "<b>etl</b><br>2026-11-20 06:00<br>30 % average CPU, runs: 2<br>out of memory: 1");
  assert.equal(text[0][1], "");
  assert.deepEqual([x.length, y.length], [z[0].length + 1, 2]);
  assert.deepEqual(layout.yaxis.ticktext, ["etl"]);
});

test("names of families cannot become HTML", () => {
  const runs = [runAt(0, { cpu: 20, family: "<b>&" })];
  const { traces, layout } = heatmap(runs, "average");
  assert.ok(traces[0].text[0][0].startsWith("<b>&lt;b&gt;&amp;</b>"));
  assert.deepEqual(layout.yaxis.ticktext, ["&lt;b&gt;&amp;"]);
});

test("of more than 30 families, those with the most runs are drawn", () => {
  const runs = Array.from({ length: 40 }, (_, number) => runAt(number, { cpu: 1, family: `family-${number % 35}` }));
  const { traces, layout } = heatmap(runs, "average");
  assert.equal(traces[0].z.length, 30);
  assert.match(layout.annotations[0].text, /^Not drawn: 5 families with fewer runs/);
});

test("a long name of a family has several lines, broken after its words, and its row has room for them", () => {
  const name = "nightly-export-of-orders-and-invoices-to-the-warehouse-of-eu";
  assert.deepEqual(nameLines(name), ["nightly-export-of-orders-", "and-invoices-to-the-", "warehouse-of-eu"]);
  assert.deepEqual(nameLines("a".repeat(30)), ["a".repeat(26), "aaaa"]);
  assert.deepEqual(nameLines("x".repeat(300)).at(-1), `${"x".repeat(25)}…`);
  assert.deepEqual(nameLines("<b>"), ["<b>"]);
  assert.equal(rowsHeight(["etl", "report"]), 2 * 26);
  assert.ok(rowsHeight(["etl", name]) > 2 * 40);
});

test("a duration far above the 95th percentile is at the edge of its row and flattens no line", () => {
  const runs = Array.from({ length: 30 }, (_, hours) => runAt(hours, { ms: hours === 7 ? 2e7 : 2e4 }));
  const [, line] = durationFigure(runs, bucketsOf(runs)).traces;
  assert.equal(line.marker.symbol[7], "triangle-up");
  assert.deepEqual([...new Set(line.marker.symbol)], ["circle", "triangle-up", null]);
  assert.ok(line.y[7] < line.y[6] && line.y[7] > -0.5, "above its neighbours, in its row");
  assert.ok(line.y[6] < 0.25, "above zero");
  assert.match(line.hovertext[7], /5h 33m/);
});

test("charts without data say so", () => {
  assert.match(heatmap([runAt(0)]).nothing, /measured peak CPU percentage/);
  assert.match(countFigure([], bucketsOf([])).nothing, /start time/);
  assert.match(durationFigure([runAt(0, { ms: undefined })]).nothing, /measured duration/);
});

test("runs are counted by outcome", () => {
  const runs = [runAt(0), runAt(0), runAt(1, { outcome: "failure" }), runAt(1, { began: undefined })];
  const { traces, label } = countFigure(runs, bucketsOf(runs));
  assert.deepEqual(
    traces.map(({ name, y }) => [name, y.reduce((a, b) => a + b)]),
    [
      ["success", 2],
      ["failure", 1],
    ],
  );
  assert.equal(label, "Number of runs over time by outcome: 2 success, 1 failure.");
});

test("counts have whole numbers on their axis", () => {
  assert.deepEqual([0, 1, 6, 7, 12, 13, 45, 5000].map(countStep), [1, 1, 1, 2, 2, 5, 10, 1000]);
  const runs = [runAt(0), runAt(0, { outcome: "failure" }), runAt(1)];
  assert.equal(countFigure(runs, bucketsOf(runs)).layout.yaxis.dtick, 1);
});

test("durations are a line for each family over time, and a band from the median to the 95th percentile", () => {
  const runs = [1, 2, 3].flatMap((hours) => [
    runAt(hours, { ms: 1000 * hours }),
    runAt(hours, { ms: 60e3, family: "longer" }),
  ]);
  const { traces, layout, label } = durationFigure(runs, bucketsOf(runs));
  const [band, line] = traces;
  const heights = line.y.slice(0, 3);
  assert.equal(line.x.length, 8);
  assert.ok(heights[0] > heights[1] && heights[1] > heights[2], "a longer run is higher in its row");
  assert.ok(band.y[0] > band.y[2] && heights[2] < band.y[2], "the longest is above the 95th percentile");
  assert.equal(band.y[0], heights[1]);
  assert.deepEqual(
    layout.annotations.map(({ text }) => text),
    ["2.0 s, p95 2.9 s", "1m 00s, p95 1m 00s"],
  );
  assert.match(line.hovertext[0], /07:00: 1.0 s, runs: 1<br>usual: median 2.0 s, p95 2.9 s$/);
  assert.match(label, /^Duration of 2 families over time/);
});

test("the usual duration is that of the successful runs, else of all", () => {
  const numbersOf = (runs) => durationFigure(runs, bucketsOf(runs)).layout.annotations.map(({ text }) => text);
  const failed = [1, 2].map((hours) => runAt(hours, { ms: 5000, outcome: "failure" }));
  assert.deepEqual(numbersOf([...failed, runAt(3, { ms: 60e3 })]), ["1m 00s, p95 1m 00s"]);
  assert.deepEqual(numbersOf(failed), ["5.0 s, p95 5.0 s"]);
});

test("rows are in the order of the selected runs in every chart", () => {
  const measured = { vcpuMax: 1, vcpuSize: 1, cpu: 1 };
  const runs = [
    runAt(0, { ...measured, family: "b" }),
    runAt(1, { ...measured, family: "a" }),
    runAt(2, { ...measured, family: "a" }),
    ...[3, 4, 5].map((hours) => runAt(hours, { family: "c" })),
    runAt(6, { ...measured, family: "c", ms: undefined }),
  ];
  const rowsOf = ({ layout }) => layout.yaxis.ticktext;
  assert.deepEqual(rowsOf(heatmap(runs)), ["c", "a", "b"]);
  assert.deepEqual(rowsOf(durationFigure(runs, bucketsOf(runs))), ["c", "a", "b"]);
  const { lanes } = nightLanes(runs, shownPeriod(runs));
  assert.deepEqual(
    lanes.map(({ family }) => family),
    ["c", "a", "b"],
  );
});

test("a cell of 0 % differs from the panel by 16 of 255 in a channel", () => {
  const css = readFileSync("profiler/html_report/assets/page.css", "utf8");
  const values = (name) => [...css.matchAll(new RegExp(`--${name}: #(\\w{6})`, "g"))].map(([, hex]) => hex);
  const channels = (hex) => hex.match(/../g).map((pair) => Number.parseInt(pair, 16));
  for (const name of ["cpu0", "mem0"]) {
    values(name).forEach((hex, theme) => {
      const panel = channels(values("panel")[theme]);
      assert.ok(Math.max(...channels(hex).map((value, at) => Math.abs(value - panel[at]))) >= 16, name);
    });
  }
});

const SERIES = { ms: [1000, 2000, 3000], vcpu: [0.5, null, 1], mb: [100, 900, 200] };
const RUN = runAt(0, { ms: 3000, vcpuSize: 1, size: 1000, peak: 900, series: SERIES });

test("each measured quantity has a chart, and all have one time axis", () => {
  const { traces, layout } = runFigure(RUN);
  assert.deepEqual(
    traces.map(({ name, yaxis }) => [name, yaxis]),
    [
      ["vcpu", "y"],
      ["mb", "y2"],
    ],
  );
  assert.deepEqual(traces[1].x, [0, 1000, 2000, 3000]);
  assert.deepEqual(layout.xaxis.range, [-12, 3012]);
  assert.ok(layout.yaxis.domain[0] > layout.yaxis2.domain[1]);
  assert.equal(layout.xaxis.anchor, "y2");
});

test("a limit near the values is a line, one far above them is words", () => {
  const near = runFigure(RUN).layout.annotations.map(({ text }) => text);
  assert.ok(near.includes("limit 1000 MB"));
  const far = runFigure({ ...RUN, size: 8192 }).layout;
  assert.ok(far.annotations.some(({ text }) => text === "limit 8 GB, above the chart"));
  assert.ok(far.yaxis2.range[1] < 1100);
});

test("moments and the kill are marked", () => {
  const moments = [
    ["memory-peak", 2000, 2000, "memory peak"],
    ["saturated", 0, 1000, "used all vCPUs"],
  ];
  const { traces, layout } = runFigure({ ...RUN, moments, outcome: "out of memory" });
  assert.ok(traces.some(({ name, x }) => name === "memory peak" && x[0] === 2000));
  assert.ok(layout.shapes.some(({ name, x1 }) => name === "saturated" && x1 === 1000));
  assert.ok(layout.shapes.some(({ name, x0 }) => name === "oom" && x0 === 3000));
  assert.ok(layout.annotations.some(({ text }) => text === "killed: out of memory"));
});

test("the other run is pale and in the readings", () => {
  const other = { ...RUN, series: { ms: [2000], mb: [300] }, ms: 2000 };
  const names = runFigure(RUN, other).traces.map(({ name }) => name);
  assert.ok(names.includes("mb of the other run"));
  assert.deepEqual(readingsAt(RUN, other, 1500), [
    { name: "CPU", tone: "cpu", texts: ["not measured", "not measured"] },
    { name: "memory", tone: "memory", texts: ["900 MB", "300 MB"] },
  ]);
});

test("bytes that are known only now and then have no gaps", () => {
  const read = [1, null, 3];
  const [trace] = runFigure({ ...RUN, series: { ms: SERIES.ms, read } }).traces;
  assert.deepEqual(trace.y, [1, 1, 3]);
  const [reading] = readingsAt({ ...RUN, series: { ms: SERIES.ms, read } }, undefined, 1500);
  assert.deepEqual(reading.texts, ["3 MB/s"], "what is drawn there");
});

test("a longer run to compare with leaves the time axis alone", () => {
  const other = { ...RUN, series: { ms: [9000], mb: [300] }, ms: 9000 };
  const rangeOf = (...figure) => runFigure(...figure).layout.xaxis.range;
  assert.deepEqual(rangeOf(RUN, other), rangeOf(RUN));
  assert.deepEqual(rangeOf(RUN, other, [1000, 2000]), [1000, 2000]);
  assert.deepEqual(wholeRange(RUN), rangeOf(RUN));
});

test("the card is beside the cursor, or above or below the chart that is pointed at", () => {
  const place = { width: 350, height: 900 };
  const view = { top: 300, bottom: 900 };
  const at = { width: 150, height: 200, line: 100, pointerTop: 400, place, view, isBeside: true };
  assert.deepEqual(cardPosition(at), { left: 112, top: 384 });
  assert.deepEqual(cardPosition({ ...at, line: 300 }), { left: 138, top: 384 });
  assert.equal(cardPosition({ ...at, pointerTop: 890 }).top, 692, "whole, where the reader sees it");
  assert.equal(cardPosition({ ...at, pointerTop: undefined }).top, 308);
  const narrow = { ...at, isBeside: false, chart: { top: 340, bottom: 500 } };
  assert.deepEqual(cardPosition(narrow), { left: 25, top: 500 });
  assert.deepEqual(cardPosition({ ...narrow, view: { top: 0, bottom: 600 } }), { left: 25, top: 140 });
  const byKeyboard = { ...narrow, pointerTop: undefined };
  assert.equal(cardPosition(byKeyboard).top, 500);
  assert.equal(cardPosition({ ...byKeyboard, view: { top: -300, bottom: 600 } }).top, -200, "above all charts");
  const wide = cardPosition({ ...narrow, isBeside: true, width: 300, line: 175 });
  assert.equal(wide.top, 500, "no room beside the cursor");
});

test("the course of a run has steps and gaps", () => {
  assert.equal(coursePath([10, 20, 30], [1, null, 2], [0, 100]), "M0 50H10M20 4H30");
  assert.equal(coursePath([10, 20], [2, 1], [0, 20], { isArea: true }), "M0 4H50V50H100V100H0");
});

test("a quantity without a value has no chart", () => {
  const { traces } = runFigure({ ...RUN, series: { ...SERIES, gpu: [null, null, null] } });
  assert.ok(!traces.some(({ name }) => name === "gpu"));
});

test("a peak of the kernel that no sample has seen is a line", () => {
  const namesOf = (run) => runFigure(run).layout.shapes.map(({ name }) => name);
  const missed = { ...RUN, peak: 950, peakBy: "kernel" };
  assert.ok(namesOf(missed).includes("kernel peak"));
  assert.ok(
    runFigure(missed).layout.annotations.some(({ text }) => text === "kernel peak 950 MB, between the samples"),
  );
  for (const run of [{ ...missed, peak: 905 }, { ...missed, peakBy: "sampled" }, { ...missed, peakAt: 1500 }, RUN]) {
    assert.ok(!namesOf(run).includes("kernel peak"));
  }
  const moments = [["memory-peak", 2000, 2000, "memory peak"]];
  const marksOf = (run) => runFigure({ ...run, moments }).traces.filter(({ name }) => name === "memory peak");
  assert.deepEqual(marksOf(missed), [], "its time is unknown");
  assert.deepEqual([marksOf(RUN)[0].x, marksOf({ ...missed, peak: 905 })[0].x], [[2000], [2000]]);
});

test("a full CPU is not red, a full memory is", () => {
  const { shapes } = runFigure({ ...RUN, peak: 990 }).layout;
  const limits = shapes.filter(({ line }) => line.dash === "dash").map(({ line }) => line.color);
  assert.deepEqual(limits, ["faint", "oom"]);
});
