import assert from "node:assert/strict";
import { test } from "node:test";
import { content } from "../../profiler/report_page/assets/modules/content.js";
import { asTime } from "../../profiler/report_page/assets/modules/formats.js";
import { morningGrid } from "../../profiler/report_page/assets/modules/morning_grid.js";
import { shownPeriod } from "../../profiler/report_page/assets/modules/night_lanes.js";
import { zoneNote } from "../../profiler/report_page/assets/modules/summary.js";
import { HOUR, runAt, START } from "./browser.mjs";

const NIGHT = {
  start: START - 18 * HOUR,
  end: START + 6 * HOUR,
  begins: "2026-11-19 12:00",
  ends: "2026-11-20 12:00",
  zone: "UTC",
};

function inZone(zone, act) {
  process.env.TZ = zone;
  try {
    act();
  } finally {
    process.env.TZ = "UTC";
  }
}

test("the night of the sentence is named for a reader in another time zone alone", () => {
  assert.equal(zoneNote(NIGHT), "");
  inZone("Europe/Lisbon", () => assert.equal(zoneNote(NIGHT), "", "which has the same time then"));
  const note = " 2026-11-19 12:00 to 2026-11-20 12:00 UTC, the time zone of the computer that made this page.";
  inZone("Europe/Berlin", () => assert.equal(zoneNote(NIGHT), note));
});

// As profiler/record/last_night.py has them in the tests of page_night.py.
for (const [zone, begins, ends, hours] of [
  ["Europe/Berlin", "2026-11-24 12:00", "2026-11-25 12:00", 24],
  ["Europe/Berlin", "2026-10-24 12:00", "2026-10-25 12:00", 25],
  ["Europe/Berlin", "2026-03-28 12:00", "2026-03-29 12:00", 23],
  ["Asia/Tokyo", "2026-11-24 12:00", "2026-11-25 12:00", 24],
]) {
  test(`the night of the sentence is one column of the nights: ${zone}, ${begins}`, () => {
    inZone(zone, () => {
      const start = new Date(begins.replace(" ", "T")).getTime();
      const end = start + hours * HOUR;
      assert.equal(asTime(end), ends);
      const began = [start - 3 * 24 * HOUR, start - 1, start, start + 12 * HOUR, end - 1, end];
      const { columns, counts } = morningGrid(began.map((ms) => runAt(0, { began: ms })));
      const at = columns.findIndex(({ text }) => text === begins.slice(0, 10));
      assert.equal(counts[at].count, 3);
      assert.equal(counts[at - 1].count, 1);
      assert.equal(counts[at + 1].count, 1);
    });
  });
}

test("a start of more than a day after now is not a night", () => {
  content.generatedAt = new Date(START).toISOString();
  const runs = [runAt(0), runAt(23), runAt(12 * 365 * 24)];
  const { columns, withoutStart } = morningGrid(runs);
  assert.deepEqual([columns.length, withoutStart], [24, 1]);
  assert.equal(shownPeriod(runs).width, "all");
  content.generatedAt = undefined;
});
