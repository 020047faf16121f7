import assert from "node:assert/strict";
import { test } from "node:test";
import { usdByTask } from "#page/run_values.js";
import { grouped, max, mean, min, quantile, total } from "#page/statistics.js";
import { bucketsOf, bucketText } from "#page/time_buckets.js";
import { DAY } from "#page/time_units.js";
import { HOUR, runAt, START } from "./browser.js";

test("statistics of nothing are unknown", () => {
  for (const statistic of [mean, max, min, (values) => quantile(values, 0.5)]) assert.equal(statistic([]), undefined);
  assert.equal(total([]), 0);
});

test("a quantile lies between its neighbours", () => {
  assert.equal(quantile([4, 1, 3, 2], 0.5), 2.5);
  assert.equal(quantile([1, 2], 1), 2);
});

test("groups keep the order of the runs", () => {
  assert.deepEqual(
    [...grouped([3, 1, 2, 5], (number) => number % 2)],
    [
      [1, [3, 1, 5]],
      [0, [2]],
    ],
  );
});

test("a task with two reports is paid once", () => {
  const runs = [{ id: "a", usd: 0.5 }, { id: "a", usd: 0.25 }, { id: "b", usd: 1 }, { id: "c" }];
  assert.deepEqual(usdByTask(runs), [0.5, 1]);
});

test("buckets hold all runs, and are at most 120", () => {
  for (const hours of [0, 1, 30, 700, 30_000]) {
    const runs = [runAt(0), runAt(hours), { began: undefined }];
    const buckets = bucketsOf(runs);
    assert.ok(buckets.starts.length <= 120);
    assert.equal(buckets.indexOf(runs[0]), 0);
    assert.equal(buckets.indexOf(runs[1]), buckets.starts.length - 1);
    assert.equal(buckets.indexOf(runs[2]), undefined);
  }
});

test("a bucket is a night from three days on, and an hour below", () => {
  const widths = [71, 73, 24 * 100, 24 * 130].map((hours) => bucketsOf([runAt(0), runAt(hours)]).width);
  assert.deepEqual(widths, [HOUR, DAY, DAY, 7 * DAY]);
});

test("runs without a start have no buckets", () => {
  assert.deepEqual(bucketsOf([{}]).starts, []);
});

test("a bucket is named by its day, or by its time if it is shorter", () => {
  assert.equal(bucketText(START, DAY), "2026-11-20");
  assert.equal(bucketText(START, HOUR), "2026-11-20 06:00");
});
