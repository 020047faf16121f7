import assert from "node:assert/strict";
import { test } from "node:test";
import { nightLanes, timeTicks } from "../../profiler/report_page/assets/modules/night_lanes.js";
import { DAY } from "../../profiler/report_page/assets/modules/time_units.js";
import { HOUR, runAt, START } from "./browser.mjs";

test("of runs with one start, the shortest is the last, which is drawn on top", () => {
  const runs = [runAt(0, { ms: 1e3, row: 1 }), runAt(0, { ms: HOUR, row: 2 }), runAt(0, { ms: undefined, row: 3 })];
  const [{ bars }] = nightLanes(runs, { from: START, until: START + 4 * HOUR }).lanes;
  assert.deepEqual(
    bars.map(({ run }) => run.row),
    [2, 1, 3],
  );
});

test("a bar ends at the edges of the period", () => {
  const runs = [runAt(-1, { ms: 9 * HOUR }), runAt(-2, { ms: HOUR / 2 })];
  const [{ bars }] = nightLanes(runs, { from: START, until: START + 4 * HOUR }).lanes;
  assert.deepEqual(
    bars.map(({ left, width }) => [left, width]),
    [[0, 100]],
  );
});

test("the date is below the first time of each day, and there is room for every tick", () => {
  const shown = { from: START, until: START + DAY };
  const lines = timeTicks(shown, 4).map((tick) => tick.lines);
  assert.deepEqual(lines, [["06:00", "2026-11-20"], ["12:00"], ["18:00"], ["00:00", "2026-11-21"], ["06:00"]]);
  assert.deepEqual(timeTicks({ from: START, until: START + 3 * DAY }, 3)[0].lines, ["2026-11-21"]);
  for (const range of [HOUR / 10, HOUR, DAY, 90 * DAY, 3000 * DAY]) {
    for (const most of [3, 6, 12]) {
      const ticks = timeTicks({ from: START + 1, until: START + range }, most);
      assert.ok(ticks.length <= most + 1 && ticks.every(({ left }) => left >= 0 && left <= 100));
    }
  }
});
