import assert from "node:assert/strict";
import { test } from "node:test";
import { content } from "../../profiler/report_page/assets/modules/content.js";
import { morningGrid } from "../../profiler/report_page/assets/modules/morning_grid.js";
import { shownPeriod } from "../../profiler/report_page/assets/modules/night_lanes.js";
import { lastNight } from "../../profiler/report_page/assets/modules/summary.js";
import { HOUR, runAt, START } from "./browser.mjs";

const DAY = 24 * HOUR;
const textsOf = ({ night, parts }) => [
  night,
  ...parts.map(({ text, families }) => `${text} (${families.map(([name, { length }]) => `${name} ${length}`).join()})`),
];

test("the sentence counts the last night, what needs a reader first", () => {
  const runs = [
    runAt(0, { outcome: "failure", family: "geo" }),
    runAt(1, { outcome: "failure", family: "geo" }),
    runAt(2, { outcome: "out of memory" }),
    runAt(3),
    runAt(4, { outcome: "running" }),
    runAt(-24, { outcome: "stopped" }),
    runAt(9, { began: undefined }),
  ];
  const notices = [
    { outcome: "missed", family: "late", began: START },
    { outcome: "overlapped", family: "late", began: START },
    { outcome: "missed", cameLate: true, family: "slow to start", began: START },
    { outcome: "late", family: "slow to start", began: START },
    { outcome: "missed", family: "old", began: START - DAY },
  ];
  const expected = [
    "1 missed (late 1)",
    "1 killed for memory (etl 1)",
    "2 failed (geo 2)",
    "1 running ()",
    "1 succeeded ()",
  ];
  for (const later of [-6 * HOUR, 0, 17 * HOUR]) {
    assert.deepEqual(textsOf(lastNight(runs, notices, START + later)), ["Last night", ...expected]);
  }
  const night = "Nothing ran last night. Night of 2026-11-19";
  assert.deepEqual(textsOf(lastNight(runs, notices, START + 18 * HOUR)), [night, ...expected]);
  assert.deepEqual(textsOf(lastNight(runs, notices, START - DAY)), [
    "Last night",
    "1 missed (old 1)",
    "1 stopped (etl 1)",
  ]);
  const missed = lastNight(runs, [{ outcome: "missed", family: "a", began: START + DAY }], START + DAY);
  assert.deepEqual(textsOf(missed), ["Last night", "1 missed (a 1)"], "which is not nothing");
  assert.equal(lastNight([runAt(0, { began: undefined })], [], START), undefined);
});

test("a start of more than a day after now is not a night", () => {
  content.generatedAt = new Date(START).toISOString();
  const runs = [runAt(0), runAt(23), runAt(12 * 365 * 24)];
  assert.equal(lastNight([runs[0], runs[2]], [], START).night, "Last night");
  const { columns, withoutStart } = morningGrid(runs);
  assert.deepEqual([columns.length, withoutStart], [24, 1]);
  assert.equal(shownPeriod(runs).width, "all");
  content.generatedAt = undefined;
});

test("a night lasts from noon to noon of the reader, and a machine of one's own has days", () => {
  const [evening, night] = [runAt(-7.5, { outcome: "failure" }), runAt(-5.9)];
  assert.deepEqual(textsOf(lastNight([evening, night], [], START)), [
    "Last night",
    "1 failed (etl 1)",
    "1 succeeded ()",
  ]);
  const locals = [evening, night].map((run) => ({ ...run, launch: "LOCAL" }));
  assert.deepEqual(textsOf(lastNight(locals, [], START)), ["Today", "1 succeeded ()"]);
  assert.equal(lastNight(locals, [], START + DAY).night, "Nothing ran today. 2026-11-20");
  process.env.TZ = "Asia/Tokyo"; // 07:30 and 09:06
  try {
    assert.deepEqual(textsOf(lastNight(locals, [], START)), ["Today", "1 failed (etl 1)", "1 succeeded ()"]);
  } finally {
    process.env.TZ = "UTC";
  }
});
