import assert from "node:assert/strict";
import { test } from "node:test";
import { hasSizesChart, sizesFigure, sizeText } from "../../profiler/report_page/assets/modules/sizes_chart.js";
import "./browser.mjs";

const size = (vcpu, memoryMB, min, max, usdPerRun, more) => ({
  vcpu,
  memoryMB,
  durationFactor: { min, max },
  usdPerRun,
  savingPercent: 0,
  acceptable: true,
  holdsMemory: true,
  ...more,
});
const SIZES = [
  size(1, 4096, 1.6, 2, 0.12, { acceptable: false, savingPercent: 25 }),
  size(2, 4096, 1, 1.1, 0.14, { savingPercent: 12 }),
  size(4, 8192, 1, 1, 0.16),
  size(8, 16384, 0.9, 1, 0.32, { savingPercent: -100 }),
];
const ADVICE = { current: { vcpu: 4, memoryMB: 8192 }, recommended: { vcpu: 2, memoryMB: 4096 }, sizes: SIZES };
const named = (figure, name) => figure.traces.find((trace) => trace.name === name);

test("time and money are lines over the sizes, and the range of the time is a band", () => {
  const figure = sizesFigure(ADVICE);
  assert.deepEqual(named(figure, "duration").y, [2, 1.1, 1, 1]);
  assert.deepEqual(named(figure, "money").y, [0.12, 0.14, 0.16, 0.32]);
  assert.equal(named(figure, "money").yaxis, "y2");
  const band = named(figure, "range of the duration");
  assert.deepEqual(band.x, [0, 1, 2, 3, 3, 2, 1, 0]);
  assert.deepEqual(band.y, [2, 1.1, 1, 1, 0.9, 1, 1, 1.6]);
});

test("a size that could not be recommended is a hollow point", () => {
  const { color } = named(sizesFigure(ADVICE), "duration").marker;
  assert.deepEqual(color, ["panel", "duration", "duration", "duration"]);
});

const marks = ({ layout }) => layout.shapes.map(({ name, x0 }) => [name, x0]);

test("the current and the recommended size are marked, and are one mark where they are one size", () => {
  assert.deepEqual(marks(sizesFigure(ADVICE)), [
    ["recommended", 1],
    ["current", 2],
  ]);
  const kept = sizesFigure({ ...ADVICE, recommended: ADVICE.current });
  assert.deepEqual(marks(kept), [["current, recommended", 2]]);
});

test("the labels of two marks are in lines of their own", () => {
  const [, ...labels] = sizesFigure(ADVICE).layout.annotations;
  assert.equal(new Set(labels.map(({ yshift }) => yshift)).size, 2);
});

test("an axis never repeats a label, and shows few", () => {
  const far = { ...ADVICE, sizes: [size(0.25, 512, 9, 16, 0.0004), ...SIZES, size(32, 61440, 0.2, 1, 5)] };
  for (const advice of [ADVICE, far]) {
    const { yaxis, yaxis2 } = sizesFigure(advice).layout;
    for (const { ticktext } of [yaxis, yaxis2]) {
      assert.equal(new Set(ticktext).size, ticktext.length);
      assert.ok(ticktext.length >= 2 && ticktext.length <= 5, String(ticktext));
    }
  }
});

test("a quantity that is known of fewer than two sizes is not drawn, and without both there is no picture", () => {
  const without = (fields) => ({ ...ADVICE, sizes: SIZES.map((option) => ({ ...option, ...fields })) });
  const unpriced = sizesFigure(without({ usdPerRun: null }));
  assert.equal(named(unpriced, "money"), undefined);
  assert.equal(unpriced.layout.yaxis2, undefined);
  const unknown = { durationFactor: null };
  assert.equal(named(sizesFigure(without(unknown)), "duration"), undefined);
  assert.equal(hasSizesChart(without({ ...unknown, usdPerRun: null })), false);
  assert.equal(hasSizesChart({ ...ADVICE, sizes: SIZES.slice(0, 1) }), false);
  assert.equal(hasSizesChart({ ...ADVICE, sizes: [] }), false);
});

test("an unknown duration between known ones is left out, not zero", () => {
  const advice = {
    ...ADVICE,
    sizes: SIZES.map((option, at) => (at === 1 ? { ...option, durationFactor: null } : option)),
  };
  assert.deepEqual(named(sizesFigure(advice), "duration").x, [0, 2, 3]);
});

test("a size in words says time, money and why it is not recommended", () => {
  assert.equal(
    sizeText(ADVICE, SIZES[0]),
    "1 vCPU, 4 GB: 1.6 to 2 times as long, $0.12 per run, saves 25 %, too slow.",
  );
  assert.equal(
    sizeText(ADVICE, SIZES[1]),
    "2 vCPU, 4 GB: 1 to 1.1 times as long, $0.14 per run, saves 12 %, recommended.",
  );
  assert.equal(sizeText(ADVICE, SIZES[2]), "4 vCPU, 8 GB: as long as now, $0.16 per run, current size.");
  const unknown = { ...SIZES[3], durationFactor: null, usdPerRun: null, savingPercent: null, holdsMemory: false };
  assert.equal(sizeText(ADVICE, { ...unknown, acceptable: false }), "8 vCPU, 16 GB: too little memory.");
});

test("on a narrow screen many sizes have short names", () => {
  const sizes = [...SIZES, size(16, 32768, 0.9, 1, 0.64), size(32, 61440, 0.9, 1, 1.3)];
  assert.equal(sizesFigure({ ...ADVICE, sizes }).layout.xaxis.ticktext[0], "1 vCPU<br>4 GB");
  window.innerWidth = 390;
  try {
    assert.deepEqual(sizesFigure({ ...ADVICE, sizes }).layout.xaxis.ticktext, ["1", "2", "4", "8", "16", "32"]);
  } finally {
    window.innerWidth = 1280;
  }
});
