import assert from "node:assert/strict";
import { test } from "node:test";
import { countFigure, countStep } from "#page/count_chart.js";
import { durationFigure } from "#page/duration_chart.js";
import { heatmapFigure } from "#page/heatmap.js";
import { nightFigure, shownPeriod } from "#page/night_chart.js";
import { readingsAt, runFigure } from "#page/run_figure.js";
import { bucketsOf } from "#page/time_buckets.js";
import { DAY } from "#page/time_units.js";
import { HOUR, runAt, START } from "./browser.js";

const CPU = { percentOf: (run) => run.cpu, colours: ["cpu0", "cpu1", "cpu2"], what: "CPU" };

test("a cell of the heatmap is the mean of its runs, and a cell without a run is empty", () => {
  const runs = [runAt(0, { cpu: 20 }), runAt(0, { cpu: 40, outcome: "out of memory" }), runAt(12, { cpu: 90 })];
  const { traces, layout } = heatmapFigure(runs, bucketsOf(runs), CPU);
  const [{ z, text, x, y }] = traces;
  assert.equal(z.length, 1);
  assert.equal(z[0][0], 30);
  assert.equal(z[0].at(-1), 90);
  assert.ok(z[0].slice(1, -1).every((value) => value === null));
  assert.equal(text[0][0], "<b>etl</b><br>2026-11-20 06:00<br>30 % CPU, runs: 2<br>out of memory: 1");
  assert.equal(text[0][1], "");
  assert.deepEqual([x.length, y.length], [z[0].length + 1, 2]);
  assert.deepEqual(layout.yaxis.ticktext, ["etl"]);
});

test("names of families cannot become HTML", () => {
  const runs = [runAt(0, { cpu: 20, family: "<b>&" })];
  const { traces, layout } = heatmapFigure(runs, bucketsOf(runs), CPU);
  assert.ok(traces[0].text[0][0].startsWith("<b>&lt;b&gt;&amp;</b>"));
  assert.deepEqual(layout.yaxis.ticktext, ["&lt;b&gt;&amp;"]);
});

test("of more than 30 families, those with the most runs are drawn", () => {
  const runs = Array.from({ length: 40 }, (_, number) => runAt(number, { cpu: 1, family: `family-${number % 35}` }));
  const { traces, layout } = heatmapFigure(runs, bucketsOf(runs), CPU);
  assert.equal(traces[0].z.length, 30);
  assert.match(layout.annotations[0].text, /^5 families with fewer runs are not drawn/);
});

test("charts without data say so", () => {
  assert.match(heatmapFigure([runAt(0)], bucketsOf([runAt(0)]), CPU).nothing, /measured CPU percentage/);
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

test("durations are the median and the 95th percentile of each family", () => {
  const runs = [1, 2, 3].map((hours) => runAt(hours, { ms: 1000 * hours }));
  const [, median, p95] = durationFigure(runs).traces;
  assert.deepEqual(median.x, [2000]);
  assert.deepEqual(p95.x, [2900]);
});

test("a night goes from noon to noon", () => {
  const shown = shownPeriod([runAt(-48), runAt(0)]);
  assert.deepEqual([shown.width, shown.from, shown.until], ["day", START - 18 * HOUR, START + 6 * HOUR]);
  assert.deepEqual([shown.hasEarlier, shown.hasLater], [true, false]);
  const earlier = shownPeriod([runAt(-48), runAt(0)], { width: "day", from: shown.from - 10 * DAY });
  assert.equal(earlier.hasEarlier, false);
  assert.equal(shownPeriod([runAt(0, { began: undefined })]), undefined);
});

test("runs over time have a lane for each family, the earliest at the top, and a bar for each run", () => {
  const runs = [runAt(2, { family: "late" }), runAt(0, { family: "early" }), runAt(1, { family: "late" })];
  const figure = nightFigure(runs, shownPeriod(runs));
  assert.deepEqual(figure.layout.yaxis.ticktext, ["early", "late"]);
  assert.deepEqual(figure.traces[0].y, [1, 0, 1]);
  assert.deepEqual(figure.traces[0].customdata, [2, 0, 1]);
  assert.equal(figure.leftOut, "");
});

test("due times are marks in the lane of their family, which may have no run", () => {
  const notice = (hours, outcome, family) =>
    runAt(hours, {
      outcome,
      family,
      ms: undefined,
      text: `<b> ${family} was due and no task was started, for no reason`,
    });
  const notices = [notice(5, "missed", "none"), notice(1, "missed", "etl"), notice(-1, "late", "etl")];
  const all = [...notices, runAt(0, { family: "etl" })];
  const shown = shownPeriod(all);
  assert.ok(shown.until > START + 5 * HOUR);
  const figure = nightFigure(all, shown);
  assert.deepEqual(figure.layout.yaxis.ticktext, ["etl", "none"]);
  const [bars, missed, late] = figure.traces;
  assert.deepEqual(bars.y, [0]);
  assert.deepEqual([missed.name, missed.type, missed.y, missed.customdata], ["missed", "scatter", [1, 0], undefined]);
  assert.deepEqual(missed.x, [START + 5 * HOUR, START + HOUR]);
  assert.equal(missed.hovertext[0], "&lt;b&gt; none was due and no task was started,<br>for no reason");
  assert.notEqual(late.marker.symbol, missed.marker.symbol);
  assert.deepEqual(figure.notices, notices);
  assert.match(figure.label, /one lane for each of 2 families: 1 success, 2 missed, 1 late\.$/);
  const later = nightFigure(all, { from: START + 2 * HOUR, until: START + 6 * HOUR });
  assert.deepEqual(later.notices, [notices[0]]);
});

const SERIES = { ms: [1000, 2000, 3000], vcpu: [0.5, null, 1], mb: [100, 900, 200] };
const RUN = runAt(0, { ms: 3000, vcpuSize: 1, size: 1000, peak: 900, series: SERIES });

test("each measured quantity has a chart, and all have one time axis", () => {
  const { traces, layout, end } = runFigure(RUN);
  assert.deepEqual(
    traces.map(({ name, yaxis }) => [name, yaxis]),
    [
      ["vcpu", "y"],
      ["mb", "y2"],
    ],
  );
  assert.deepEqual(traces[1].x, [0, 1000, 2000, 3000]);
  assert.equal(end, 3000);
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
  assert.deepEqual(readingsAt(RUN, other, 1500), ["not measured", "900 MB (300 MB)"]);
});

test("bytes that are known only now and then have no gaps", () => {
  const read = [1, null, 3];
  const [trace] = runFigure({ ...RUN, series: { ms: SERIES.ms, read } }).traces;
  assert.deepEqual(trace.y, [1, 1, 3]);
});
