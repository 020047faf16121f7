import assert from "node:assert/strict";
import { test } from "node:test";
import { morningGrid } from "../../profiler/report_page/assets/modules/morning_grid.js";
import { nightLanes, shownPeriod } from "../../profiler/report_page/assets/modules/night_lanes.js";
import { coursePath } from "../../profiler/report_page/assets/modules/overview_strip.js";
import { cardPosition } from "../../profiler/report_page/assets/modules/run_card.js";
import { runFigure, timeTicks, wholeRange } from "../../profiler/report_page/assets/modules/run_figure.js";
import { readingsAt, seriesWithPeak } from "../../profiler/report_page/assets/modules/run_rows.js";
import { runAt } from "./browser.mjs";

test("rows are in the order of the selected runs in every chart", () => {
  const runs = [
    runAt(0, { family: "b" }),
    ...[1, 2].map((hours) => runAt(hours, { family: "a" })),
    ...[3, 4, 5].map((hours) => runAt(hours, { family: "c" })),
  ];
  const families = ({ family }) => family;
  assert.deepEqual(nightLanes(runs, shownPeriod(runs)).lanes.map(families), ["c", "a", "b"]);
  assert.deepEqual(morningGrid(runs).rows.map(families), ["c", "a", "b"]);
});

test("of families with equally many runs, the worst is first", () => {
  const runs = ["a", "b", "c"].map((family) => runAt(0, { family }));
  runs[1].outcome = "failure";
  runs[2].outcome = "out of memory";
  const families = morningGrid([...runs, runAt(1, { family: "d" }), runAt(2, { family: "d" })]).rows;
  assert.deepEqual(
    families.map(({ family }) => family),
    ["d", "c", "b", "a"],
  );
});

test("a family near its memory limit is drawn before those with more runs, and after those that failed", () => {
  const runs = [0, 1].map((hours) => runAt(hours, { family: "usual", size: 1000, peak: 500 }));
  runs.push(runAt(2, { family: "near", size: 1000, peak: 970 }), runAt(3, { family: "bad", outcome: "failure" }));
  const drawn = (maxRows) => morningGrid(runs, { maxRows }).rows.map(({ family }) => family);
  assert.deepEqual(drawn(1), ["bad"]);
  assert.deepEqual(drawn(2), ["bad", "near"]);
  assert.deepEqual(drawn(3), ["usual", "bad", "near"]);
});

const SERIES = { ms: [1000, 2000, 3000], vcpu: [0.5, null, 1], mb: [100, 900, 200] };
const RUN = runAt(0, { ms: 3000, vcpuSize: 1, size: 1000, peak: 900, series: SERIES });

test("each measured quantity has a chart, and all have one time axis", () => {
  const { traces, layout } = runFigure(RUN);
  assert.deepEqual(
    traces.map(({ name, yaxis }) => [name, yaxis]),
    [
      ["below vcpu", "y"],
      ["vcpu", "y"],
      ["below mb", "y2"],
      ["mb", "y2"],
    ],
  );
  assert.deepEqual(traces[3].x, [0, 1000, 2000, 3000]);
  assert.deepEqual(layout.xaxis.range, [-12, 3012]);
  assert.ok(layout.yaxis.domain[0] > layout.yaxis2.domain[1]);
  assert.equal(layout.xaxis.anchor, "y2");
});

test("a hole is not drawn, and the step after it is", () => {
  const [, vcpu] = runFigure(RUN).traces;
  assert.deepEqual(vcpu.x, [0, 1000, 2000, 2000, 3000]);
  assert.deepEqual(vcpu.y, [0.5, 0.5, null, 1, 1]);
});

test("the scale does not blow up noise", () => {
  const idle = { ...RUN, vcpuSize: 2, series: { ms: [1000], vcpu: [0.01], mb: [0.2] }, peak: 0.2 };
  const { yaxis, yaxis2 } = runFigure(idle).layout;
  assert.deepEqual([yaxis.range[1], yaxis2.range[1]], [0.1 * 1.1, 1.1]);
});

test("a limit near the values is a line, one far above them is words", () => {
  const near = runFigure(RUN).layout.annotations.map(({ text }) => text);
  assert.ok(near.includes("limit 1,000 MB"));
  const far = runFigure({ ...RUN, size: 8192 }).layout;
  assert.ok(far.annotations.some(({ text }) => text === "limit 8 GB, above the chart"));
  assert.ok(far.yaxis2.range[1] < 1100);
});

test("the curve reaches the run's peak, unless the kernel has counted one that no sample has seen", () => {
  const curve = (fields) => seriesWithPeak({ ...RUN, ...fields }, SERIES).mb;
  assert.deepEqual(curve({ peak: 905, peakBy: "kernel" }), [100, 905, 200]);
  assert.deepEqual(curve({ peak: 897, peakBy: "sampled" }), [100, 897, 200], "the samples are rounded");
  assert.deepEqual(curve({ peak: 950, peakBy: "kernel" }), SERIES.mb);
  assert.deepEqual(curve({ peak: undefined }), SERIES.mb);
});

test("the other run is pale and in the readings", () => {
  const other = { ...RUN, series: { ms: [2000], mb: [300] }, ms: 2000 };
  const names = runFigure(RUN, other).traces.map(({ name }) => name);
  assert.ok(names.includes("mb of the other run"));
  assert.deepEqual(readingsAt(RUN, other, 1500), [
    { name: "CPU", tone: "cpu", texts: ["not measured", "not measured"] },
    { name: "memory", tone: "memory", texts: ["900 MB", "300 MB"] },
  ]);
  const otherTexts = (fields) => readingsAt(RUN, { ...other, ...fields }, 2500).map(({ texts }) => texts[1]);
  assert.deepEqual(otherTexts({}), ["ended", "ended"]);
  assert.deepEqual(otherTexts({ outcome: "running" }), ["not measured", "not measured"]);
  assert.deepEqual(otherTexts({ ms: 2600 }), ["not measured", "not measured"]);
});

test("each tick of a zoomed run has its own time", () => {
  const hour = 3600e3;
  assert.deepEqual(timeTicks([hour, hour + 40e3]).ticktext.slice(0, 4), [
    "1h",
    "1h 00m 05s",
    "1h 00m 10s",
    "1h 00m 15s",
  ]);
  assert.deepEqual(timeTicks([65.2e3, 66.4e3]).ticktext.slice(0, 3), ["1m 05.2s", "1m 05.4s", "1m 05.6s"]);
  assert.deepEqual(timeTicks([51 * hour, 54 * hour]).ticktext.slice(0, 2), ["2d 03h", "2d 03h 20m"]);
  assert.deepEqual(timeTicks([0, 9 * 60e3]).ticktext.slice(0, 2), ["0", "1m"]);
});

test("nothing is drawn where nothing was measured", () => {
  const ms = [1000, 2000, 3000, 4000];
  const { traces } = runFigure({ ...RUN, ms: 4000, series: { ms, vcpu: [2, null, null, 1] } });
  const of = (wanted) => traces.find(({ name }) => name === wanted);
  assert.equal(of("vcpu").fill, undefined, "Plotly's area goes on through a gap");
  assert.deepEqual(of("below vcpu").x, [0, 1000, 1000, 0, 0, null, 3000, 4000, 4000, 3000, 3000]);
  assert.deepEqual(of("below vcpu").y, [2, 2, 0, 0, 2, null, 1, 1, 0, 0, 1]);
});

test("bytes that are known only now and then have no gaps", () => {
  const read = [1, null, 3];
  const { traces } = runFigure({ ...RUN, series: { ms: SERIES.ms, read } });
  assert.deepEqual(traces.find(({ name }) => name === "read").y, [1, 1, 3]);
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
  const sampled = { ...missed, atLeast: ["peak"] };
  assert.ok(namesOf(sampled).includes("peak"));
  for (const run of [{ ...missed, peak: 905 }, sampled, { ...missed, peakAt: 1500 }, RUN]) {
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
  assert.deepEqual(limits, ["faint", "hot-text"]);
});
