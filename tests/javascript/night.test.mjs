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

test("more lanes than the first ones are drawn on demand, and what is left out is counted", () => {
  const runs = Array.from({ length: 39 }, (_, at) => runAt(0, { family: `family ${at}` }));
  const shown = { from: START, until: START + HOUR };
  const first = nightLanes(runs, shown);
  assert.deepEqual([first.lanes.length, first.families], [30, 39]);
  assert.equal(first.leftOut, " Not drawn: 9 more families.");
  const all = nightLanes(runs, shown, Infinity);
  assert.deepEqual([all.lanes.length, all.families, all.leftOut], [39, 39, ""]);
});

test("of more families than lanes, the worst ones are drawn, in the order of all charts", () => {
  const runs = Array.from({ length: 33 }, (_, at) => runAt(0, { family: `family ${String(at).padStart(2, "0")}` }));
  runs[30].outcome = "failure";
  runs[32].outcome = "out of memory";
  const missed = { family: "never started", outcome: "missed", began: START, text: "was not started" };
  const { lanes } = nightLanes([...runs, missed], { from: START, until: START + HOUR });
  assert.deepEqual(
    [...lanes.slice(0, 3), lanes.at(-1)].map(({ family }) => family),
    ["family 32", "family 30", "family 00", "never started"],
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

test("a bar ends at the time of the clock, also where summer time begins or ends", () => {
  process.env.TZ = "Europe/Berlin";
  try {
    const barsOf = (began, minutes) => {
      const from = Date.parse(`${began.slice(0, 10)}T00:00Z`);
      const run = runAt(0, { began: Date.parse(began), ms: minutes * 60e3 });
      const [{ bars }] = nightLanes([run], { from, until: from + 24 * HOUR }).lanes;
      return bars.map(({ left, width }) => [left, left + width].map((percent) => (24 * percent) / 100));
    };
    assert.deepEqual(barsOf("2026-03-29T00:30Z", 60), [[1.5, 3.5]], "from 01:30 to 03:30");
    assert.deepEqual(barsOf("2026-10-25T00:15Z", 90), [[2.25, 2.75]], "from 02:15 to 02:45");
    assert.deepEqual(barsOf("2026-10-25T00:45Z", 30), [[2.75, 2.75]], "from 02:45 to 02:15");
  } finally {
    process.env.TZ = "UTC";
  }
});
