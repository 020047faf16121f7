import assert from "node:assert/strict";
import { test } from "node:test";
import { grouped, max, mean, min, quantile, total } from "../../profiler/report_page/assets/modules/statistics.js";

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
