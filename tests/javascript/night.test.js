import assert from "node:assert/strict";
import { test } from "node:test";
import { nightLanes, shownPeriod, timeTicks } from "#page/night_lanes.js";
import { DAY } from "#page/time_units.js";
import { HOUR, runAt, START } from "./browser.js";

test("a night goes from noon to noon", () => {
  const shown = shownPeriod([runAt(-48), runAt(0)]);
  assert.deepEqual([shown.width, shown.from, shown.until], ["day", START - 18 * HOUR, START + 6 * HOUR]);
  assert.deepEqual([shown.hasEarlier, shown.hasLater], [true, false]);
  const earlier = shownPeriod([runAt(-48), runAt(0)], { width: "day", from: shown.from - 10 * DAY });
  assert.equal(earlier.hasEarlier, false);
  assert.equal(shownPeriod([runAt(0, { began: undefined })]), undefined);
});

test("there is a lane for each family, most runs first, and a bar for each run in the order of time", () => {
  const runs = [runAt(2, { family: "late" }), runAt(0, { family: "early" }), runAt(1, { family: "late" })];
  const { lanes, leftOut, label } = nightLanes(runs, { from: START, until: START + 4 * HOUR });
  assert.deepEqual(
    lanes.map(({ family, bars }) => [family, bars.map(({ run, left }) => [run.row, left])]),
    [
      ["late", [[1, 25], [2, 50]]], // biome-ignore format: a row for each family
      ["early", [[0, 0]]],
    ],
  );
  assert.equal(lanes[0].bars[0].width.toFixed(3), (100 / 240).toFixed(3), "a minute of four hours");
  assert.equal(lanes[0].bars[0].name, "late, 2026-11-20 07:00, 1m 00s, success");
  assert.equal(leftOut, "");
  assert.match(label, /^Runs from 2026-11-20 06:00 to 2026-11-20 10:00 as bars in 2 lanes, .*: 3 success\.$/);
});

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

test("due times are marks in the lane of their family, which may have no run", () => {
  const notice = (hours, outcome, family) =>
    runAt(hours, { outcome, family, ms: undefined, text: `${family} was due and no task was started` });
  const notices = [notice(5, "missed", "none"), notice(1, "missed", "etl"), notice(-1, "late", "etl")];
  const all = [...notices, runAt(0, { family: "etl" })];
  const shown = shownPeriod(all);
  assert.ok(shown.until > START + 5 * HOUR);
  const night = nightLanes(all, shown);
  assert.deepEqual(
    night.lanes.map(({ family, bars, marks }) => [family, bars.length, marks.map(({ kind }) => kind)]),
    [
      ["etl", 1, ["late", "missed"]],
      ["none", 0, ["missed"]],
    ],
  );
  assert.deepEqual(night.kinds, ["success", "missed", "late"]);
  assert.equal(night.lanes[1].marks[0].text, "none was due and no task was started");
  assert.deepEqual(night.notices, notices);
  assert.match(night.label, /in 2 lanes, one for each family: 1 success, 2 missed, 1 late\.$/);
  const later = nightLanes(all, { from: START + 2 * HOUR, until: START + 6 * HOUR });
  assert.deepEqual(later.notices, [notices[0]]);
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
