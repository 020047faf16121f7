// The page: reads the data, draws the overview or one run, and draws again when the selection or the theme changes.

import { content, loadActivity, loadContent, loadSeries } from "#page/content.js";
import { byId, element } from "#page/elements.js";
import { showFilters, startFilters } from "#page/filter_controls.js";
import { asCount, asFamilies, asTime, asWhole, UNKNOWN } from "#page/formats.js";
import { drawMorning, startMorning } from "#page/morning_screen.js";
import { drawNight, startNight } from "#page/night_chart.js";
import { drawSizing } from "#page/right_sizing_table.js";
import { showRunOfAddress, showTroubles, startRunDialog } from "#page/run_dialog.js";
import { drawRunPage, redrawRunPage } from "#page/run_page.js";
import { familyOf } from "#page/run_values.js";
import { drawRuns, startRuns } from "#page/runs_table.js";
import { formatAddress, readAddress, selectedRuns, selection } from "#page/selection.js";
import { known, max, min, quantile } from "#page/statistics.js";
import { drawFailures, drawLastNight, drawTiles } from "#page/summary.js";
import { isOnPaper, startThemes } from "#page/theme.js";
import { MINUTE } from "#page/time_units.js";

const MAX_LISTED = 20;
let latestDraw = 0;
const yieldToBrowser = () => new Promise((done) => setTimeout(done, 0));
// After the next frame is painted; a hidden tab has none.
const nextFrame = () =>
  new Promise((done) => (document.hidden ? done() : requestAnimationFrame(() => setTimeout(done, 0))));

// Tests and benchmarks wait for these marks and read them: milliseconds since the page was opened.
const { dataset } = document.documentElement;
const markTime = (name) => {
  dataset[name] ??= Math.round(performance.now());
};

// Charts over time say nothing about few runs, or runs of seconds: the list is enough. Missed runs are never hidden.
const isShort = () => content.runs.length <= MAX_LISTED && !content.notices.length;
const isOfSeconds = () =>
  quantile(
    known(content.runs, (run) => run.ms),
    0.9,
  ) < MINUTE && !content.notices.length;
const isList = () => isShort() || isOfSeconds();

async function drawAll() {
  latestDraw += 1;
  const drawId = latestDraw;
  delete dataset.ready;
  const runs = selectedRuns();
  showTroubles();
  const isFiltered = runs.length !== content.runs.length;
  byId("filters").hidden = isShort() && byId("clear").hidden;
  byId("filtered").textContent = isFiltered ? `${asWhole(runs.length)} of ${asCount(content.runs.length, "run")}` : "";
  const overview = [
    async () => {
      drawTiles(runs);
      drawFailures(runs);
      drawMorning(runs);
      if (isOnPaper()) return;
      await nextFrame();
      markTime("firstHeatmap");
    },
    () => drawNight(byId("night"), runs),
    () => drawSizing(runs),
  ];
  const parts = [...(isList() ? [] : overview), () => drawRuns(runs)];
  for (const part of parts) {
    await part();
    if (!isOnPaper()) await yieldToBrowser();
    if (drawId !== latestDraw) return; // a later selection draws everything again
  }
  markTime("ready");
}

function redraw() {
  if (!content.onlyOne) drawAll();
  redrawRunPage();
}

function onFargateText() {
  if (!content.onFargate) return "";
  return (
    ` Runs outside Fargate count as if they had run on Fargate in ${content.onFargate}: the machine counts as the` +
    " current size unless the task has one, and whole seconds are billed, at least 60."
  );
}

function leftOutText() {
  const { runs, details } = content.leftOut;
  return (
    (runs ? ` The page has no room for ${asCount(runs, "older run")}.` : "") +
    (details ? ` The page has no room for labels, processes and GPUs of ${asCount(details, "run")}.` : "")
  );
}

async function startOneRun() {
  byId("about").textContent = `One run.${onFargateText()}`;
  byId("one").hidden = false;
  const panel = element("section", { className: "panel" });
  byId("one").append(panel);
  await loadSeries();
  await loadActivity(content.runs[0]);
  drawRunPage(panel, content.runs[0]);
  markTime("ready");
}

function startOverview() {
  const times = known(content.runs, (run) => run.began);
  const [first, last] = [asTime(min(times)), asTime(max(times))];
  const period = times.length ? `, ${first}${first === last ? "" : ` to ${last}`}` : "";
  const families = new Set(content.runs.map(familyOf)).size;
  byId("about").textContent =
    `${asCount(content.runs.length, "run")} of ${asFamilies(families)}${period}.${onFargateText()}${leftOutText()}`;
  readAddress();
  startFilters(drawAll, () => drawRuns(selectedRuns()));
  startMorning();
  startNight(() => drawNight(byId("night"), selectedRuns()));
  startRunDialog();
  startRuns();
  window.addEventListener("popstate", () => {
    const view = () => formatAddress({ ...selection, run: "" });
    const before = view();
    readAddress();
    showFilters();
    if (view() !== before) drawAll();
    showRunOfAddress();
  });
  drawLastNight();
  for (const part of document.querySelectorAll("[data-overview]")) part.hidden = isList();
  byId("all").hidden = false;
  showFilters();
  drawAll();
  showRunOfAddress();
}

await loadContent();
startThemes(redraw);
byId("footer").textContent =
  `Task Profiler ${content.version}, generated ${asTime(Date.parse(content.generatedAt))}.` +
  ` Times are in this browser's time zone. ${UNKNOWN} means not measured.`;
if (content.onlyOne) startOneRun();
else startOverview();
