import assert from "node:assert/strict";
import { test } from "node:test";
import { content } from "#page/content.js";
import { morningGrid } from "#page/morning_grid.js";
import { shownPeriod } from "#page/night_lanes.js";
import { lastNight } from "#page/summary.js";
import { runAt, START } from "./browser.js";

const DAY = 24 * 3600e3;
const textsOf = ({ night, parts }) => [
  night,
  ...parts.map(({ text, families }) => `${text} (${families.map(([name, { length }]) => `${name} ${length}`).join()})`),
];

test("the sentence counts the newest day, what needs a reader first", () => {
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
    { outcome: "missed", family: "old", began: START - DAY },
  ];
  const expected = [
    "1 missed (late 1)",
    "1 killed for memory (etl 1)",
    "2 failed (geo 2)",
    "1 running ()",
    "1 succeeded ()",
  ];
  for (const later of [0, DAY]) {
    assert.deepEqual(textsOf(lastNight(runs, notices, START + later)), ["Last night", ...expected]);
  }
  for (const later of [2 * DAY, -DAY]) {
    assert.deepEqual(textsOf(lastNight(runs, notices, START + later)), ["Night of 2026-11-20", ...expected]);
  }
  assert.equal(lastNight([runAt(0, { began: undefined })], notices, START), undefined);
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

test("a night is a calendar day of the reader", () => {
  const runs = [runAt(0), runAt(0, { began: START - DAY / 4 - 1 })];
  const isInOneNight = () => lastNight(runs, [], START).parts[0].text === "2 succeeded";
  assert.equal(isInOneNight(), false);
  process.env.TZ = "America/Los_Angeles";
  try {
    assert.equal(isInOneNight(), true);
  } finally {
    process.env.TZ = "UTC";
  }
});
