import assert from "node:assert/strict";
import { test } from "node:test";
import { content, nameOf } from "../../profiler/report_page/assets/modules/content.js";

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
