import assert from "node:assert/strict";
import { test } from "node:test";
import { layerTones, outlineOf, stackColumns } from "../../profiler/report_page/assets/modules/process_layers.js";
import { runFigure } from "../../profiler/report_page/assets/modules/run_figure.js";
import { processesAt, readingsAt } from "../../profiler/report_page/assets/modules/run_rows.js";
import {
  countMatches,
  growTree,
  layOut,
  nodeAt,
  pathOf,
  stepsIn,
} from "../../profiler/report_page/assets/modules/stack_tree.js";
import { partsOf } from "../../profiler/report_page/assets/modules/time_lane.js";
import { runAt } from "./browser.mjs";

const LOAD = "<module> (job.py);load (etl.py);recv (socket.py) [waiting]";
const PARSE = "<module> (job.py);parse (etl.py)";
const STEPS = [
  [0, 60e3, { [PARSE]: 80, [LOAD]: 12 }],
  [60e3, 60e3, { [LOAD]: 54, [PARSE]: 4 }],
  [120e3, 60e3, { [PARSE]: 50 }],
];
const child = (node, ...names) => nodeAt(node, names);

test("a range takes the steps that overlap it", () => {
  assert.deepEqual(stepsIn(STEPS, undefined), STEPS);
  assert.deepEqual(stepsIn(STEPS, [60e3, 120e3]), [STEPS[1]]);
  assert.deepEqual(stepsIn(STEPS, [59e3, 61e3]), [STEPS[0], STEPS[1]]);
  assert.deepEqual(stepsIn(STEPS, [180e3, 200e3]), []);
  assert.deepEqual(stepsIn([[5, 0, {}]], [5, 6]), [[5, 0, {}]]);
});

test("the tree counts samples below their callers, and those that waited", () => {
  const root = growTree(STEPS);
  assert.deepEqual([root.count, root.waiting], [200, 66]);
  const load = child(root, "<module> (job.py)", "load (etl.py)");
  assert.deepEqual([load.count, load.waiting, load.depth], [66, 66, 2]);
  assert.deepEqual([...load.children.keys()], ["recv (socket.py)"]);
  assert.equal(growTree(STEPS, { onlyRunning: true }).count, 134);
  assert.equal(growTree([]).count, 0);
});

test("names of functions are names only", () => {
  const root = growTree([[0, 1, JSON.parse('{"__proto__;constructor":3,"":1}')]]);
  assert.equal(root.count, 4);
  assert.deepEqual(pathOf(child(root, "__proto__", "constructor")), ["__proto__", "constructor"]);
  assert.equal(child(root, "").count, 1);
});

test("frames that are too narrow, or too many, are counted", () => {
  const stacks = Object.fromEntries(Array.from({ length: 3000 }, (_, number) => [`f${number}`, 1]));
  assert.deepEqual(layOut(growTree([[0, 1, stacks]]), 1500).frames.length, 1);
  assert.equal(layOut(growTree([[0, 1, stacks]]), 1500).hidden, 3000);
  const few = Object.fromEntries(Array.from({ length: 200 }, (_, number) => [`f${number}`, 1]));
  const { frames, hidden } = layOut(growTree([[0, 1, few]]), 50);
  assert.deepEqual([frames.length, hidden], [50, 151]);
});

test("every drawn frame is inside its drawn caller, whatever the stacks are", () => {
  let seed = 1;
  const random = (below) => {
    seed = (seed * 48271) % 2147483647;
    return seed % below;
  };
  for (let round = 0; round < 50; round += 1) {
    const stacks = {};
    for (let number = 0; number < 60; number += 1) {
      const names = Array.from({ length: 1 + random(12) }, () => `f${random(4)}`);
      stacks[names.join(";") + (random(2) ? " [waiting]" : "")] = 1 + random(20);
    }
    const { frames } = layOut(growTree([[0, 1, stacks]]), 1 + random(80));
    const placed = new Map(frames.map((frame) => [frame.node, frame]));
    for (const { node, left, width } of frames) {
      const caller = node.parent && placed.get(node.parent);
      assert.ok(!node.parent || caller);
      if (caller) {
        assert.ok(left >= caller.left - 1e-6);
        assert.ok(left + width <= caller.left + caller.width + 1e-6);
      }
    }
  }
});

test("stacks deeper than 200 functions are cut", () => {
  const deep = Array.from({ length: 50000 }, () => "f").join(";");
  const { frames } = layOut(growTree([[0, 1, { [deep]: 1 }]]), 1500);
  assert.equal(frames.length, 201);
});

test("a zoom stays at the nearest caller that the range has", () => {
  const root = growTree([STEPS[2]]);
  assert.equal(nodeAt(root, ["<module> (job.py)", "load (etl.py)", "recv (socket.py)"]).name, "<module> (job.py)");
});

test("a sample matches once, however often the text is on its stack", () => {
  const root = growTree(STEPS);
  const matches = (words) => countMatches(root, ({ name }) => name.includes(words));
  assert.deepEqual([matches("etl.py"), matches("recv"), matches("job"), matches("nothing")], [200, 66, 200, 0]);
});

test("layers lie on each other, and a gap has no layer", () => {
  const [[bottom], [middle, top]] = [
    stackColumns([[1, null, 3]]),
    stackColumns([
      [1, null, 3],
      [2, 2, null],
    ]),
  ];
  assert.deepEqual(bottom, [
    [0, null, 0],
    [1, null, 3],
  ]);
  assert.deepEqual(middle, bottom);
  assert.deepEqual(top, [
    [1, 0, null],
    [3, 2, null],
  ]);
  assert.deepEqual(stackColumns([null, [1]])[1], [[0], [1]]);
});

test("a layer has an outline for each stretch without a gap", () => {
  const { x, y } = outlineOf([10, 20, 30], [0, null, 1], [2, null, 4]);
  assert.deepEqual(x, [0, 10, 10, 0, 0, null, 20, 30, 30, 20, 20]);
  assert.deepEqual(y, [2, 2, 0, 0, 2, null, 4, 4, 1, 1, 4]);
});

test("nine commands have nine colours, and the others together are grey", () => {
  const tones = layerTones(["a", "b", "other", "c", "d", "e", "f", "g", "h"]);
  assert.equal(new Set(tones).size, 9);
  assert.equal(tones[2], "layer-other");
});

const ACTIVITY = {
  ms: [1000, 2000, 3000],
  wait: [0, 1, 2],
  processes: [
    ["a", [0.5, null, 0.5], [100, 200, 300]],
    ["other", [0.25, 0.25, 0.5], null],
  ],
};
const RUN = runAt(0, {
  ms: 3000,
  vcpuSize: 1,
  size: 1000,
  series: { ms: [1500, 3000], vcpu: [0.5, 1], mb: [100, 300] },
  activity: ACTIVITY,
});

test("processes have a chart for CPU and one for memory, with the limits and the common time axis", () => {
  const { traces, layout } = runFigure(RUN);
  const layers = traces.filter(({ name }) => name.startsWith("layer"));
  assert.deepEqual(
    layers.map(({ yaxis, fillcolor }) => [yaxis, fillcolor]),
    [
      ["y4", "layer0"],
      ["y4", "layer-other"],
      ["y5", "layer0"],
      ["y5", "layer-other"],
    ],
  );
  assert.deepEqual(layers[0].x, [0, 1000, 1000, 0, 0, null, 2000, 3000, 3000, 2000, 2000]);
  const limits = layout.annotations.filter(({ text }) => text.startsWith("limit"));
  assert.deepEqual(
    limits.map(({ text, yref }) => [text, yref.slice(0, 2)]),
    [
      ["limit 1 vCPU", "y"],
      ["limit 1,000 MB", "y2"],
      ["limit 1 vCPU", "y4"],
      ["limit 1,000 MB", "y5"],
    ],
  );
  assert.equal(layout.xaxis.anchor, "y5");
});

test("a stretch in which the memory rose is shaded in the chart of the memory", () => {
  const moments = [
    ["memory", 1000, 2000, "memory rose"],
    ["idle", 0, 1000, "idle"],
  ];
  const shaded = runFigure({ ...RUN, moments }).layout.shapes.filter(
    ({ name }) => name === "memory" || name === "idle",
  );
  assert.deepEqual(
    shaded.map(({ yref, fillcolor }) => [yref, fillcolor]),
    [
      ["y2 domain", "memory"],
      ["y domain", "pale"],
    ],
  );
});

test("readings of processes come from their own steps", () => {
  assert.deepEqual(
    processesAt(RUN, 1200).map(({ name, texts }) => [name, ...texts]),
    [
      ["a", "not measured", "200 MB"],
      ["other", "0.25 vCPU", "not measured"],
    ],
  );
  assert.deepEqual(
    readingsAt(RUN, undefined, 1200).map(({ name, texts }) => [name, ...texts]),
    [
      ["CPU", "0.5 vCPU"],
      ["memory", "100 MB"],
      ["threads waiting for a CPU", "1"],
    ],
  );
  assert.deepEqual(processesAt(runAt(1), 0), []);
});

test("the time has the parts that are worth a name, and small ones count as other", () => {
  const run = { time: [60, 0, 10, 0.4, null, null, null, null, 29] };
  assert.deepEqual(
    partsOf(run).map(({ kind, percent }) => [kind, percent]),
    [
      ["onCpu", 60],
      ["disk", 10],
      ["other", 29.4],
    ],
  );
  assert.deepEqual(partsOf({}), []);
  const waits = (cpuWaitPartial) => partsOf({ time: [60, 40], cpuWaitPartial }).map(({ share }) => share);
  assert.deepEqual(waits(true), ["60 %", "≥40 %"]);
  assert.deepEqual(waits(), ["60 %", "40 %"]);
});
