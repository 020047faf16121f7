import assert from "node:assert/strict";
import { test } from "node:test";
import {
  filterRuns,
  formatAddress,
  NO_FILTERS,
  parseAddress,
  searchRuns,
} from "../../profiler/report_page/assets/modules/selection.js";
import { runAt } from "./browser.mjs";

const RUNS = [
  runAt(0, { id: "a", region: "eu-west-1", tags: ["team=data"] }),
  runAt(18, { id: "b", family: "report", outcome: "failure", exit: 137 }),
  runAt(30, { id: "c", began: undefined, labels: ["Owner=Ann"] }),
];
const ids = (runs) => runs.map((run) => run.id).join("");
const filtered = (filters) => ids(filterRuns(RUNS, { ...NO_FILTERS, ...filters }));

test("without filters, all runs are selected", () => {
  assert.equal(filtered({}), "abc");
});

test("a search finds runs with all words, in any field and case", () => {
  assert.equal(ids(searchRuns(RUNS, "  ")), "abc");
  assert.equal(ids(searchRuns(RUNS, "OWNER=ann")), "c");
  assert.equal(ids(searchRuns(RUNS, "137 rep")), "b");
  assert.equal(ids(searchRuns(RUNS, "137 etl")), "");
});

test("unknown names and values of an address are ignored", () => {
  assert.equal(formatAddress(parseAddress("colour=red&statistic=median")), "");
});
