// Most formats are compared with Python's in tests/browser/test_page_formats.py.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  asBytes,
  asChange,
  asClock,
  asDuration,
  asExactDuration,
  asFactor,
  asMemory,
  asMoment,
  asPercent,
  asRate,
  asTaskSize,
  asTime,
  asUsd,
  escapeControls,
  marked,
  truncate,
  truncateMiddle,
  UNKNOWN,
  unbroken,
  upperFirst,
} from "../../profiler/report_page/assets/modules/formats.js";
import { DAY, HOUR, MINUTE } from "../../profiler/report_page/assets/modules/time_units.js";

test("a value that was not measured is a dash", () => {
  for (const format of [asBytes, asChange, asDuration, asMemory, asPercent, asRate, asTime, asUsd]) {
    assert.equal(format(undefined), UNKNOWN);
    assert.equal(format(null), UNKNOWN);
  }
  assert.equal(asFactor(1, undefined), UNKNOWN);
  assert.equal(asTaskSize({}), UNKNOWN);
});

test("a peak that the kernel did not count may have been higher", () => {
  assert.equal(marked(asMemory(10.46), false), "10 MB");
  assert.equal(marked(asMemory(10.46), true), "≥10 MB");
  assert.equal(marked(asUsd(0.12), true), "≥ $0.12");
  assert.equal(marked(asMemory(undefined), true), UNKNOWN);
});

test("a negative saving is a cost", () => {
  assert.equal(asChange(35.2), "saves 35 %");
  assert.equal(asChange(-100), "costs 100 % more");
  assert.equal(asChange(-0.4), "costs 0.4 % more", "as in the terminal");
  assert.equal(asChange(0), "costs the same");
});

test("a factor is one number if both limits look the same", () => {
  assert.equal(asFactor(1.001, 1.002), "1");
  assert.equal(asFactor(1, 1.5), "1 to 1.5");
});

test("a long name loses its middle", () => {
  assert.equal(truncateMiddle("SEQ.SORT.INDEX", 14), "SEQ.SORT.INDEX");
  assert.equal(truncateMiddle("SEQ.ALIGN.SORT.SAMTOOLS_INDEX", 15), "SEQ.…OOLS_INDEX");
});

test("whole durations have one unit", () => {
  const durations = [500, 10e3, 15 * MINUTE, 6 * HOUR, 7 * DAY];
  assert.deepEqual(durations.map(asExactDuration), ["500 ms", "10 s", "15m", "6h", "7d"]);
});

test("control characters and changes of direction become escapes", () => {
  assert.equal(escapeControls("a\u0000b\u202ec"), "a\\u{0}b\\u{202e}c");
});

test("a long text is cut between characters, not between halves of one", () => {
  assert.equal(truncate("😀😀😀", 2), "😀…");
  assert.equal(truncate("😀😀", 2), "😀😀");
});

test("a number and its unit stay on one line", () => {
  assert.equal(unbroken("0.25 vCPU, 512 MB"), "0.25\u00a0vCPU, 512\u00a0MB");
  assert.equal(unbroken("saves 4 %, $1,542.16 a month"), "saves 4\u00a0%, $1,542.16 a\u00a0month");
  assert.equal(unbroken("from +3m 10s to +1h 09m"), "from +3m\u00a010s to +1h\u00a009m");
});

test("times in a run are as exact as its steps", () => {
  assert.deepEqual(
    [430, 1250, 59_999, 61_000].map((ms) => asMoment(ms, 20)),
    ["430 ms", "1.25 s", "1m 00s", "1m 01s"],
  );
  assert.deepEqual([asMoment(1250, 1000), asMoment(1250, 100), asMoment(1253, 5)], ["1.3 s", "1.3 s", "1.253 s"]);
  const at = new Date(2026, 10, 20, 6, 0, 2, 250).getTime();
  assert.deepEqual([asClock(at, 1000), asClock(at, 20)], ["2026-11-20 06:00:02", "2026-11-20 06:00:02.250"]);
});

test("a text begins with a capital letter, except for a vCPU", () => {
  assert.deepEqual(["memory peak", "vCPU size", ""].map(upperFirst), ["Memory peak", "vCPU size", ""]);
});
