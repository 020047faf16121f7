import assert from "node:assert/strict";
import { test } from "node:test";
import { filterRuns, formatAddress, NO_FILTERS, parseAddress, searchRuns } from "#page/selection.js";
import { runAt } from "./browser.js";

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

test("each filter selects by its field", () => {
  assert.equal(filtered({ family: "report" }), "b");
  assert.equal(filtered({ outcome: "success" }), "ac");
  assert.equal(filtered({ region: "eu-west-1" }), "a");
  assert.equal(filtered({ tag: "team=data" }), "a");
  assert.equal(filtered({ tag: "team=data", family: "report" }), "");
});

test("days are whole and local, and a run without a start is on none", () => {
  assert.equal(filtered({ from: "2026-11-20", to: "2026-11-20" }), "a");
  assert.equal(filtered({ from: "2026-11-21" }), "b");
  assert.equal(filtered({ from: "not a date" }), "abc");
});

test("a search finds runs with all words, in any field and case", () => {
  assert.equal(ids(searchRuns(RUNS, "  ")), "abc");
  assert.equal(ids(searchRuns(RUNS, "OWNER=ann")), "c");
  assert.equal(ids(searchRuns(RUNS, "137 rep")), "b");
  assert.equal(ids(searchRuns(RUNS, "137 etl")), "");
});

test("an address keeps the selection", () => {
  const selection = {
    ...NO_FILTERS,
    family: "a&b=c",
    from: "2026-11-20",
    statistic: "average",
    sort: "ms",
    descending: false,
    run: "x/y",
  };
  assert.deepEqual(parseAddress(formatAddress(selection)), selection);
});

test("the default selection needs no address", () => {
  assert.equal(formatAddress(parseAddress("")), "");
});

test("unknown names and values of an address are ignored", () => {
  assert.equal(formatAddress(parseAddress("colour=red&statistic=median")), "");
});
