import assert from "node:assert/strict";
import { test } from "node:test";
import { content } from "../../profiler/report_page/assets/modules/content.js";
import {
  cellLines,
  cellName,
  changeText,
  morningGrid,
  sparkline,
} from "../../profiler/report_page/assets/modules/morning_grid.js";
import { runAt } from "./browser.mjs";

const DAY_HOURS = 24;
const nightOf = (nights, fields = {}) => runAt(DAY_HOURS * nights + 18, { size: 1000, peak: 500, ...fields });
const namesOf = ({ rows, columns }) =>
  rows.flatMap(({ family, cells }) => [...cells].map(([at, cell]) => cellName(family, columns[at].text, cell)));

test("a row is a family, a column is a night, and a night without runs has no cell", () => {
  const grid = morningGrid([nightOf(0), nightOf(4), nightOf(4, { peak: 875 }), nightOf(3, { family: "mail" })]);
  assert.equal(grid.unit, "night");
  assert.deepEqual(
    grid.columns.map(({ text }) => text),
    ["2026-11-20", "2026-11-21", "2026-11-22", "2026-11-23", "2026-11-24"],
  );
  assert.deepEqual(namesOf(grid), [
    "etl, 2026-11-20, memory peak 50 %, success",
    "etl, 2026-11-24, memory peak 88 %, 2 runs",
    "mail, 2026-11-23, memory peak 50 %, success",
  ]);
});

test("runs that count mapped files as memory used are said beside others", () => {
  const note = (...all) => morningGrid(all).memoryNote;
  const older = { countsFiles: true };
  assert.equal(note(nightOf(0), nightOf(1)), "");
  assert.equal(note(nightOf(0, older), nightOf(1, older)), "");
  const mixed = note(nightOf(0, older), nightOf(1, older), nightOf(2));
  assert.match(mixed, /^The memory of 2 runs may include pages of mapped files, /);
  assert.equal(note(nightOf(0, older), nightOf(1, { peak: undefined })), "");
});

test("below three days, a column is an hour", () => {
  const hours = morningGrid([runAt(0), runAt(71.9)]);
  assert.deepEqual([hours.unit, hours.columns.length, hours.columns[0].text], ["hour", 72, "2026-11-20 06:00"]);
  assert.equal(morningGrid([runAt(0), runAt(72)]).unit, "night");
  assert.equal(morningGrid([runAt(0)]).columns.length, 1);
  assert.equal(morningGrid([runAt(0), runAt(72)].map((run) => ({ ...run, launch: "LOCAL" }))).unit, "day");
});

test("a night lasts from noon to noon of the reader, also where summer time begins or ends", () => {
  const at = (time) => runAt(0, { began: Date.parse(time) });
  process.env.TZ = "Europe/Berlin";
  try {
    const spring = ["2026-03-27T23:30Z", "2026-03-28T23:30Z", "2026-03-29T09:30Z", "2026-03-30T22:30Z"].map(at);
    const { columns, rows } = morningGrid(spring);
    assert.deepEqual(
      columns.map(({ text }) => text),
      ["2026-03-27", "2026-03-28", "2026-03-29", "2026-03-30"],
    );
    assert.deepEqual(
      [...rows[0].cells].map(([column, { runs }]) => [column, runs]),
      [
        [0, 1],
        [1, 2],
        [3, 1],
      ],
    );
    const autumn = morningGrid(["2026-10-25T00:30Z", "2026-10-25T01:30Z", "2026-10-25T02:30Z"].map(at));
    assert.deepEqual(namesOf(autumn), [
      "etl, 2026-10-25 02:00, memory peak not measured, 2 runs",
      "etl, 2026-10-25 03:00, memory peak not measured, success",
    ]);
  } finally {
    process.env.TZ = "UTC";
  }
});

test("a cell without a percentage shows the outcome", () => {
  const unknown = { runs: 1, killed: 0, failed: 0, outcome: "stopped" };
  assert.deepEqual(cellLines(unknown), ["■"]);
  assert.deepEqual(cellLines({ ...unknown, outcome: "failure", failed: 1 }), ["!"]);
  assert.deepEqual(cellLines({ ...unknown, percent: 0 }), ["0"]);
  assert.deepEqual(cellLines({ ...unknown, percent: 0.03 }), ["<1"]);
  const [{ cells }] = morningGrid([runAt(0, { family: "a\nb", peak: 812, outcome: "stopped" })]).rows;
  assert.equal(cellName("a\nb", "now", cells.get(0)), "a\\u{a}b, now, memory peak 812 MB, stopped");
});

test("runs of long ago and runs without a start time are counted, not drawn", () => {
  const grid = morningGrid([nightOf(0), nightOf(1000), nightOf(1001), runAt(0, { began: undefined })]);
  assert.deepEqual([grid.columns.length, grid.tooOld, grid.withoutStart], [180, 1, 1]);
  assert.equal(grid.columns.at(-1).text, "2029-08-17");
  assert.equal(morningGrid([runAt(0, { began: undefined })]), undefined);
});

test("the change of the duration is that of all runs of the family, and a selection of them has none", () => {
  const durations = [100, 100, 100, 125, 125, 125].map((ms, at) => nightOf(at, { ms }));
  const killed = nightOf(6, { ms: 1, outcome: "out of memory" });
  const runs = [killed, ...durations];
  const { runs: before } = content;
  Object.assign(content, { runs: [...runs, runAt(0, { family: "other" })], changes: { etl: 25 } });
  const [{ duration }] = morningGrid(runs).rows;
  assert.deepEqual([duration.median, duration.change, duration.points.length], [112.5, 25, 6]);
  assert.equal(morningGrid(runs.slice(1)).rows[0].duration.change, undefined);
  Object.assign(content, { changes: {} });
  assert.equal(morningGrid(runs).rows[0].duration.change, undefined);
  Object.assign(content, { runs: before, changes: undefined });
  assert.deepEqual([25, -10, 99_900, undefined].map(changeText), ["+25 %", "-10 %", "×1,000", ""]);
});

test("a run 1,000 times longer than the others does not flatten the line", () => {
  const points = [10, 12, 11, 12_000].map((ms, at) => [at, ms]);
  const { points: line, band } = sparkline({ median: 11.5, p95: 10_000, points }, 4, { width: 40, height: 20 });
  assert.deepEqual(
    line.map(([x]) => x),
    [5, 15, 25, 35],
  );
  assert.ok(line.every(([, y]) => y >= 0 && y <= 20));
  assert.ok(line[0][1] - line[1][1] > 1);
  assert.ok(band[0] > band[1] && band[1] >= 0, "from the median up to the 95th percentile");
});

test("the cost of a row is that of its tasks, and is not known without prices", () => {
  const runs = [nightOf(0, { usd: 0.5 }), nightOf(3, { usd: 0.25 }), nightOf(3, { family: "gpu" })];
  const { rows, isPriced } = morningGrid(runs);
  assert.deepEqual(
    rows.map(({ cost }) => cost),
    ["$0.75", undefined],
  );
  assert.equal(isPriced, true);
  assert.equal(morningGrid([...runs, nightOf(3, { id: "s", usd: 1, atLeast: ["usd"] })]).cost, "≥ $1.75");
});

test("a line has no more points than it has room for", () => {
  const points = Array.from({ length: 180 }, (_, at) => [at, at]);
  const { points: line } = sparkline({ median: 90, p95: 170, points }, 180, { width: 60, height: 20 });
  assert.equal(line.length, 30);
  assert.deepEqual([line[0][0], line.at(-1)[0]], [1, 59]);
});
