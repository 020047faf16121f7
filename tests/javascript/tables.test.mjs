import assert from "node:assert/strict";
import { test } from "node:test";
import { changeText, lastSuccess, peakText } from "../../profiler/report_page/assets/modules/comparison.js";
import { logStreamLink, taskLink } from "../../profiler/report_page/assets/modules/console_links.js";
import { content } from "../../profiler/report_page/assets/modules/content.js";
import { UNKNOWN } from "../../profiler/report_page/assets/modules/formats.js";
import { endingOf } from "../../profiler/report_page/assets/modules/outcomes.js";
import { byVerdict, sizingRow } from "../../profiler/report_page/assets/modules/right_sizing_table.js";
import { withRoom } from "../../profiler/report_page/assets/modules/run_stacks.js";
import {
  asCpuShare,
  asStart,
  cpuTimeText,
  haveChange,
  isHot,
  memoryOf,
  numberOf,
} from "../../profiler/report_page/assets/modules/run_values.js";
import { sortRuns } from "../../profiler/report_page/assets/modules/runs_table.js";
import {
  adviceText,
  monthlySaving,
  possibleSaving,
  runAdviceText,
} from "../../profiler/report_page/assets/modules/what_if_table.js";
import { runAt } from "./browser.mjs";

test("a list calls what failed of a GPU by its name", () => {
  const failed = { outcome: "failure", ending: "out of GPU memory" };
  assert.deepEqual([endingOf(failed), endingOf({ outcome: "failure" })], ["out of GPU memory", "failure"]);
});

test("memory is hot from the limit of all outputs on", () => {
  assert.deepEqual([isHot(90, "memory"), isHot(89.9, "memory"), isHot(100, "cpu")], [true, false, false]);
});

const ids = (runs) => runs.map((run) => run.id).join("");

test("runs are sorted by a column, unknown values last in both directions", () => {
  const runs = [runAt(0, { id: "a", peak: 5 }), runAt(1, { id: "b" }), runAt(2, { id: "c", peak: 70 })];
  assert.equal(ids(sortRuns(runs, { sort: "peak", descending: true })), "cab");
  assert.equal(ids(sortRuns(runs, { sort: "peak", descending: false })), "acb");
  assert.equal(ids(sortRuns(runs, { sort: "no such column", descending: true })), "cba");
});

test("a change within the family's spread is usual, and five runs must be known", () => {
  content.onlyOne = undefined;
  const row = ["memory peak", "peak", "MB", true];
  const run = runAt(1, { peak: 150, unusual: ["peak"] });
  const other = runAt(0, { peak: 100 });
  assert.equal(changeText(row, run, other), "+50 %");
  assert.equal(changeText(row, { ...run, usual: ["peak"] }, other), "usual");
  assert.equal(changeText(row, { ...run, unusual: undefined }, other), "fewer than five runs");
  content.onlyOne = true;
  assert.equal(changeText(row, { ...run, unusual: undefined }, other), "+50 %");
  content.onlyOne = undefined;
});

test("a number has its unit, and the mark of a lower bound", () => {
  const run = runAt(0, { atLeast: ["peak", "usd", "cpuSeconds"] });
  assert.equal(numberOf({ ...run, peak: 512 }, ["memory peak", "peak", "MB"]), "≥512 MB");
  assert.equal(numberOf({ ...run, usd: 0.12 }, ["cost", "usd", "USD"]), "≥ $0.12");
  assert.equal(numberOf({ ...run, cpuSeconds: 9.5 }, ["CPU time", "cpuSeconds", "s"]), "≥9.5 s");
  assert.equal(numberOf({ ...run, ms: 9500 }, ["duration", "ms", "ms"]), "9.5 s");
  assert.equal(numberOf(run, ["memory peak", "peak", "MB"]), UNKNOWN);
  assert.equal(memoryOf({ ...run, peak: 512 }, "peak"), "≥512 MB");
  assert.equal(memoryOf({ peak: 512 }, "peak"), "512 MB");
});

test("the memory peak of a GPU is sampled, and has a change", () => {
  const run = runAt(1, { gpuPeak: 2820, gpu: 35.4, gpuBetween: 0.03, atLeast: ["gpuPeak"] });
  assert.equal(numberOf(run, ["GPU memory peak", "gpuPeak", "MB"]), "≥2.8 GB");
  assert.equal(numberOf(run, ["GPU average", "gpu", "%"]), "35 %");
  assert.equal(haveChange("gpuPeak", run, runAt(0, { gpuPeak: 900, atLeast: ["gpuPeak"] })), true);
});

test("runs are sorted by the use of their GPUs, those that share one last", () => {
  const runs = [
    runAt(0, { id: "a", gpu: 5 }),
    runAt(1, { id: "b", gpuWord: "shared" }),
    runAt(2, { id: "c", gpu: 70 }),
  ];
  assert.equal(ids(sortRuns(runs, { sort: "gpu", descending: true })), "cab");
});

test("bytes that were not counted to the end are a lower bound, which has no change", () => {
  const run = runAt(0, { read: 2097152, atLeast: ["read"] });
  assert.equal(numberOf(run, ["read", "read", "bytes"]), "≥2 MB");
  assert.equal(haveChange("read", run, runAt(0)), false);
  assert.equal(haveChange("read", runAt(0), runAt(0)), true);
});

test("the least that Spot costs has no change from a price", () => {
  const onSpot = runAt(0, { atLeast: ["usd"] });
  assert.equal(haveChange("usd", onSpot, runAt(0)), false);
  assert.equal(haveChange("usd", onSpot, onSpot), true);
});

test("CPU time that was not measured to the end is a lower bound", () => {
  const partial = runAt(0, { cpuSeconds: 5.5, atLeast: ["cpuSeconds"] });
  const whole = runAt(0, { cpuSeconds: 4 });
  assert.equal(cpuTimeText([whole, partial]), "≥9.5 s");
  assert.equal(cpuTimeText([whole]), "4.0 s");
  assert.equal(cpuTimeText([runAt(0)]), UNKNOWN);
});

test("a run without a known start does not show the time of its record as its start", () => {
  assert.equal(asStart(runAt(0)), "2026-11-20 06:00");
  assert.equal(asStart(runAt(0, { startUnknown: true })), "seen 2026-11-20 06:00");
  assert.equal(asStart(runAt(0, { startUnknown: true, began: undefined })), "–");
});

test("a page for one run does not advise to make one", () => {
  assert.match(withRoom("None."), /^None\. A page for one run has room: /);
  content.onlyOne = true;
  assert.equal(withRoom("None."), "None.");
  content.onlyOne = undefined;
});

test("peaks that were found differently have a note", () => {
  const [exact, sampled] = [runAt(0, { peakBy: "kernel" }), runAt(1, { peakBy: "sampled" })];
  assert.match(peakText(sampled, exact), /^The peak memory of this run was sampled/);
  assert.match(peakText(exact, sampled), /^The peak memory of the other run was sampled/);
  assert.equal(peakText(exact, exact), undefined);
  assert.equal(peakText(sampled, runAt(2)), undefined);
});

test("memory that may include mapped files has no change beside memory without them", () => {
  const older = runAt(0, { peak: 900, memoryAvg: 500, countsFiles: true });
  const newer = runAt(1, { peak: 150, memoryAvg: 90 });
  assert.match(peakText(newer, older), /^The memory of the other run may include pages of mapped files/);
  assert.match(peakText(older, newer), /^The memory of this run may include pages of mapped files/);
  assert.equal(peakText(older, older), undefined);
  for (const field of ["peak", "memoryAvg"]) {
    assert.equal(haveChange(field, newer, older), false);
    assert.equal(haveChange(field, newer, newer), true);
  }
  assert.equal(haveChange("ms", newer, older), true);
});

test("a family's peak is of one meaning of memory once five runs have it", () => {
  const runs = (count, more) => Array.from({ length: count }, (_, day) => runAt(day, more));
  const peak = (...all) => sizingRow(["etl", all.flat()], new Map()).peak;
  const older = runs(9, { peak: 900, countsFiles: true });
  assert.equal(peak(older), 900);
  assert.equal(peak(older, runs(4, { peak: 150 })), 900);
  assert.equal(peak(older, runs(5, { peak: 150 })), 150);
});

test("the peak of a family is a lower bound if one of its runs was sampled", () => {
  const exact = runAt(0, { peak: 900 });
  const isLeast = (...runs) => sizingRow(["etl", runs], new Map()).isPeakLeast;
  assert.equal(isLeast(exact, runAt(1)), false);
  assert.equal(isLeast(exact, runAt(1, { peak: 800, atLeast: ["peak"] })), true);
});

test("a run is compared with its family's last success, in the same cluster if there is one", () => {
  const early = runAt(0, { cluster: "jobs" });
  const late = runAt(1, { cluster: "night" });
  const run = runAt(3, { outcome: "failure", cluster: "jobs" });
  content.runs = [run, runAt(4), runAt(2, { outcome: "failure" }), runAt(2, { family: "other" }), late, early];
  assert.equal(lastSuccess(run), early);
  assert.equal(lastSuccess({ ...run, cluster: "day" }), late);
  assert.equal(lastSuccess(early), undefined);
});

test("addresses of the console are those of the partition, and none without a known Region", () => {
  const run = { region: "us-west-2", cluster: "jobs", id: "a b", logGroup: "/ecs/etl", logStream: "ecs/batch/1" };
  assert.equal(
    taskLink(run),
    "https://us-west-2.console.aws.amazon.com/ecs/v2/clusters/jobs/tasks/a%20b/configuration?region=us-west-2",
  );
  assert.match(
    logStreamLink(run),
    /#logsV2:log-groups\/log-group\/\$252Fecs\$252Fetl\/log-events\/ecs\$252Fbatch\$252F1$/,
  );
  assert.ok(taskLink({ ...run, region: "cn-north-1" }).startsWith("https://cn-north-1.console.amazonaws.cn/"));
  assert.equal(taskLink({ ...run, region: "javascript:" }), undefined);
  assert.equal(taskLink({ ...run, region: "us-iso-east-1" }), undefined);
  assert.equal(logStreamLink({ ...run, logStream: undefined }), undefined);
});

const ADVICE = {
  current: { vcpu: 1, memoryMB: 2048 },
  recommended: { vcpu: 0.5, memoryMB: 1024 },
  changes: true,
  savingPercent: 50,
  savingUsdPerMonth: 10,
  runsPerMonth: 100,
  sizes: [
    { vcpu: 1, memoryMB: 2048, usdPerRun: 0.2 },
    { vcpu: 0.5, memoryMB: 1024, usdPerRun: 0.1 },
  ],
};

test("advice says what a change saves, or why there is none", () => {
  assert.equal(monthlySaving(ADVICE), 10);
  assert.equal(adviceText(ADVICE), "saves 50 %, $10.00 a month");
  assert.equal(adviceText({ ...ADVICE, mark: "≈ " }), "saves 50 %, ≈\u00a0$10.00 a month");
  assert.equal(adviceText({ ...ADVICE, changes: false }), "more is needed");
  assert.equal(adviceText({ changes: false, risk: "1 run ran out of memory" }), "1 run ran out of memory");
  assert.equal(adviceText({ changes: false }), "–");
  assert.equal(adviceText(undefined), "–");
});

test("a reservation that is larger than needed has the word of the other outputs", () => {
  const advice = {
    current: { vcpu: 4, memoryMB: 16384 },
    recommended: { vcpu: 0.5, memoryMB: 896 },
    changes: true,
    fits: false,
  };
  assert.equal(adviceText(advice, []), "less is enough");
  const half = { ...advice, current: { memoryMB: 73_728 }, recommended: { vcpu: 1, memoryMB: 4915 } };
  assert.equal(adviceText({ ...half, verdict: "less is enough" }, []), "less is enough");
  const run = runAt(0, { outcome: "success", taskSize: [4, 16384] });
  assert.equal(runAdviceText(run, advice), "0.5 vCPU, 896 MB recommended: less is enough.");
});

test("a margin that no run has needed has the word of the other outputs, and no price", () => {
  const advice = { ...ADVICE, savingPercent: -8, savingUsdPerMonth: -0.74, fits: false, word: "more is safer" };
  assert.equal(adviceText(advice, []), "more is safer");
});

test("more memory is called safer only where recommend says it, so not without a success", () => {
  const more = { current: { vcpu: 2, memoryMB: 2048 }, recommended: { vcpu: 2, memoryMB: 2176 }, changes: true };
  assert.equal(adviceText({ ...more, fits: false, verdict: "not known" }, []), "cost not known");
});

test("a size fits where a run has succeeded and none was killed for memory", () => {
  const advice = { ...ADVICE, changes: false, fits: true };
  const fitting = runAt(0, { taskSize: [1, 2048] });
  const killed = { ...fitting, outcome: "out of memory" };
  assert.equal(adviceText(advice, [fitting, { ...killed, taskSize: [1, 1024] }]), "fits");
  assert.equal(adviceText(advice, [fitting, killed]), "ran out of memory");
  assert.equal(
    adviceText(advice, [{ ...fitting, kills: ["The kernel killed 1 process for lack of memory.", []] }]),
    "ran out of memory",
  );
  assert.equal(adviceText(advice, [{ ...fitting, outcome: "failure" }]), "no run has succeeded at this size");
});

test("a killed run names the memory that was too little and the one that is recommended", () => {
  const killed = runAt(0, { outcome: "out of memory", taskSize: [1, 4096] });
  const recommended = { vcpu: 1, memoryMB: 5120 };
  assert.equal(
    runAdviceText({ ...killed, size: 1024 }, { ...ADVICE, recommended: { vcpu: 1, memoryMB: 2048 } }),
    "Ran out of memory with its container's own limit of 1 GB.",
  );
  assert.equal(runAdviceText(killed, { ...ADVICE, recommended }), "Ran out of memory with 4 GB; 5 GB recommended.");
  assert.equal(
    runAdviceText(killed, { ...ADVICE, recommended: { vcpu: 2, memoryMB: 5120 } }),
    "Ran out of memory with 1 vCPU, 4 GB; 2 vCPU, 5 GB recommended.",
  );
  assert.equal(
    runAdviceText({ ...killed, taskSize: undefined, size: 4096 }, { ...ADVICE, recommended }),
    "Ran out of memory with 4 GB; 5 GB recommended.",
  );
  const largest = { ...killed, taskSize: [32, 249856] };
  assert.equal(
    runAdviceText(largest, { ...ADVICE, recommended: {} }),
    "Ran out of memory with 32 vCPU, 244 GB; no size has enough.",
  );
  const success = runAt(0, { outcome: "success", taskSize: [1, 2048] });
  assert.equal(runAdviceText(success, { recommended: {}, risk: "a run was killed" }), "No size has enough memory.");
  assert.equal(
    runAdviceText({ ...success, beside: " beside 1 GPU" }, { recommended: { vcpu: 1, memoryMB: 832 } }),
    "1 vCPU, 832 MB recommended beside 1 GPU.",
  );
  assert.equal(runAdviceText(success, ADVICE), "0.5 vCPU, 1 GB recommended: saves 50 %, $10.00 a month.");
  assert.equal(
    runAdviceText(success, {
      ...ADVICE,
      risk: "a run needed 1.9 GB of 2 GB",
      savingPercent: -20,
      savingUsdPerMonth: -4,
    }),
    "0.5 vCPU, 1 GB recommended, because a run needed 1.9 GB of 2 GB: costs 20 % more, $4.00 a month.",
  );
  assert.equal(runAdviceText(success, { recommended: { vcpu: 1, memoryMB: 832 } }), "1 vCPU, 832 MB recommended.");
  assert.equal(runAdviceText(success, { ...ADVICE, changes: false, fits: true }), "1 vCPU, 2 GB fits.");
  assert.equal(
    runAdviceText({ ...success, outcome: "failure" }, { ...ADVICE, fits: true }),
    "1 vCPU, 2 GB is right for the family.",
  );
});

test("no smaller size is advised from failures alone", () => {
  const failed = runAt(0, { outcome: "failure", taskSize: [1, 2048] });
  const advice = { ...ADVICE, recommended: ADVICE.current, changes: false, fits: true, onlyFailures: true };
  const sentence = "No run of the family has succeeded, so no smaller size is recommended.";
  assert.equal(runAdviceText(failed, advice), sentence);
  assert.equal(runAdviceText(failed, { recommended: {}, onlyFailures: true }), sentence);
  assert.equal(adviceText(advice, [failed]), "no run has succeeded at this size");
});

test("what is too small comes first, then the largest saving, also where the runs per month are unknown", () => {
  const inPercent = (family, savingPercent, fields) => ({
    family,
    advice: { changes: true, savingPercent },
    ...fields,
  });
  const rows = [
    { family: "fits", advice: { fits: true, savingPercent: 90 }, memoryShare: 80 },
    inPercent("costs more", -20, { memoryShare: 99 }),
    inPercent("72", 72, { memoryShare: 1 }),
    {
      family: "no price",
      advice: { ...ADVICE, savingPercent: undefined, savingUsdPerMonth: undefined },
      memoryShare: 2,
    },
    {
      family: "larger",
      advice: { ...ADVICE, recommended: { vcpu: 1, memoryMB: 4096 }, savingPercent: undefined },
      memoryShare: 98,
    },
    inPercent("9", 9, { memoryShare: 70 }),
    { family: "too small", advice: { risk: "killed" } },
    inPercent("$1", 20, { saving: 1 }),
    inPercent("$5", 10, { saving: 5 }),
  ];
  const order = rows.sort(byVerdict).map(({ family }) => family);
  assert.deepEqual(order, ["too small", "$5", "$1", "72", "9", "no price", "costs more", "larger", "fits"]);
});

test("the possible saving of a month is the sum of recommend, beside what the same runs cost", () => {
  const saves = { ...ADVICE, verdict: "saves", usdPerMonth: 20 };
  const larger = { ...ADVICE, verdict: "too small", savingUsdPerMonth: -4, usdPerMonth: 8, mark: "≈ " };
  const margin = { ...ADVICE, verdict: "fits", savingUsdPerMonth: -1, usdPerMonth: 1 };
  const { saved, cost, asText } = possibleSaving([saves, larger, margin, { verdict: "not known" }]);
  assert.deepEqual([saved, cost, asText(saved)], [6, 29, "≈\u00a0$6.00"]);
  assert.equal(possibleSaving([margin]).saved, undefined);
});

test("more CPU than a job asked for is no part of it", () => {
  assert.equal(asCpuShare({ cpu: 366, vcpuAvg: 14.6, vcpuSize: 4 }), "14.6 of 4 vCPU");
  assert.equal(asCpuShare({ cpu: 100.2, vcpuAvg: 4, vcpuSize: 4 }), "100 %");
  assert.equal(asCpuShare({ cpu: 75, vcpuAvg: 3, vcpuSize: 4 }), "75 %");
  assert.equal(asCpuShare({}), "–");
});
