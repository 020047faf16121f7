import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { content, joinRuns, nameOf, parseContent, unpackSeries } from "#page/content.js";

test("data is JSON, compressed by gzip, as base64", async () => {
  const data = { family: "näch</script>tlich", values: [1, null, 0.25] };
  assert.deepEqual(await parseContent(gzipSync(JSON.stringify(data)).toString("base64")), data);
});

test("a run has its fields, its details and its row", () => {
  const data = { runs: [{ id: "a" }, { id: "b" }], details: [{ labels: ["x=1"] }, null] };
  assert.deepEqual(joinRuns(data), [
    { id: "a", labels: ["x=1"], row: 0 },
    { id: "b", row: 1 },
  ]);
});

test("equal steps are unpacked, and the last one ends with the run", () => {
  assert.deepEqual(unpackSeries({ steps: [3, 1000, 2500], mb: [1, 2, null] }), {
    ms: [1000, 2000, 2500],
    mb: [1, 2, null],
  });
});

test("other steps have their times", () => {
  assert.deepEqual(unpackSeries({ ms: [1000, 5000], vcpu: [0.5, 1] }), { ms: [1000, 5000], vcpu: [0.5, 1] });
});

test("a run has the name of its container if its task has several", () => {
  content.runs = [
    { id: "a", container: "x" },
    { id: "a", container: "y" },
    { id: "b", container: "x" },
  ];
  assert.deepEqual(content.runs.map(nameOf), ["a/x", "a/y", "b"]);
  content.runs = [{ id: "a", container: "x" }];
  assert.equal(nameOf(content.runs[0]), "a");
});
