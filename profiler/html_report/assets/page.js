// The page: tiles, what is drawn when, themes, and the dialog of one run.

function openRun(run, { isNewPage = true } = {}) {
  state.run = nameOf(run);
  writeAddress({ isNewPage });
  const dialog = byId("detail");
  if (!dialog.open) dialog.showModal();
  drawDetail(byId("detail-body"), run);
  dialog.scrollTop = 0;
  byId("run-title").focus();
}

function onClosed() {
  clearDetail();
  if (!state.run) return;
  state.run = "";
  writeAddress();
}

// The address names a run, or none any more: after "back", or when a view was sent.
function showRunOfAddress() {
  const run = state.run && content.runs.find((one) => one.id === state.run || `${one.id}/${one.container}` === state.run);
  if (run) openRun(run, { isNewPage: false });
  else if (byId("detail").open) byId("detail").close();
}

function drawTiles(runs) {
  const failed = runs.filter(isFailed).length, killed = runs.filter(isKilled).length;
  const ended = runs.filter((run) => run.outcome !== "running").length;
  const usd = usdByTask(runs), cpuSeconds = known(runs, (run) => run.cpuSeconds);
  const families = new Set(runs.map(familyOf));
  const savings = known(content.sizing.filter((advice) => families.has(advice.family)), monthlySaving).filter((saving) => saving > 0);
  const tiles = [
    ["Runs", runs.length], ["Succeeded", asPercent(shareOf(runs.filter((run) => run.outcome === "success").length, ended))],
    ["Failed", failed, failed], ["Out of memory", killed, killed], ["Median duration", asDuration(quantile(known(runs.filter((run) => run.outcome !== "running"), (run) => run.ms), 0.5))],
    ["CPU time", cpuSeconds.length ? asDuration(1000 * total(cpuSeconds)) : UNKNOWN],
  ];
  if (usd.length) tiles.push(["Cost", asUsd(total(usd))]);
  if (savings.length) tiles.push(["Possible saving a month", asUsd(total(savings))]);
  byId("tiles").replaceChildren(...tiles.map(([name, value, bad]) => element("div", { className: "tile" }, element("b", { className: bad ? "bad" : "", textContent: value }), element("span", { textContent: name }))));
}

let latestDraw = 0;
const yieldToBrowser = () => new Promise((done) => { setTimeout(done, 0); });
const mark = (name) => { document.documentElement.dataset[name] = Math.round(performance.now()); };

async function drawAll() {
  const drawId = (latestDraw += 1);
  delete document.documentElement.dataset.ready;
  const runs = filtered();
  const buckets = bucketsOf(runs);
  drawTiles(runs);
  byId("filtered").textContent = runs.length === content.runs.length ? "" : `${runs.length} of ${content.runs.length} runs`;
  byId("count-note").textContent = `By outcome, in intervals of ${asWholeDuration(buckets.width)}`;
  const parts = [
    async () => { await drawHeat(byId("heat-cpu"), runs, buckets, { of: (run) => run.cpu, colours: ["cpu0", "cpu1", "cpu2"], what: "CPU" }); if (!document.documentElement.dataset.firstHeatmap) mark("firstHeatmap"); },
    () => drawHeat(byId("heat-memory"), runs, buckets, { of: (run) => run.memory, colours: ["mem0", "mem1", "mem2"], what: "memory" }),
    () => drawCount(byId("count"), runs, buckets), () => drawDuration(byId("duration"), runs),
    () => drawNight(byId("night"), runs, openRun), () => drawFailures(runs), () => drawSizing(runs), () => drawRuns(runs),
  ];
  for (const part of parts) {
    await part();
    await yieldToBrowser();
    if (drawId !== latestDraw) return; // a later filter draws everything again
  }
  mark("ready");
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}

function redraw() {
  if (!content.onlyOne) drawAll();
  if (detailed) drawDetail(detailed.place, detailed.run, detailed.other);
}

function startThemes() {
  const darkQuery = matchMedia("(prefers-color-scheme: dark)");
  setTheme(darkQuery.matches ? "dark" : "light");
  darkQuery.addEventListener("change", () => { setTheme(darkQuery.matches ? "dark" : "light"); redraw(); });
  byId("theme").onclick = () => { setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); redraw(); };
  let themeBeforePrint;
  window.addEventListener("beforeprint", () => { themeBeforePrint = document.documentElement.dataset.theme; if (themeBeforePrint === "dark") { setTheme("light"); redraw(); } });
  window.addEventListener("afterprint", () => { if (themeBeforePrint === "dark") { setTheme("dark"); redraw(); } });
}

const onFargateText = () => (content.onFargate ? ` Runs outside Fargate count as if they had run on Fargate in ${content.onFargate}, on a task of the machine's size.` : "");
function leftOutText() {
  const { runs, details } = content.leftOut;
  return (runs ? ` ${runs} older runs are left out: the page would be too long.` : "")
    + (details ? ` ${details} runs are without labels, processes and GPUs: the page would be too long.` : "");
}

function startOneRun() {
  byId("about").textContent = `One run.${onFargateText()}`;
  byId("one").hidden = false;
  const panel = element("section", { className: "panel" });
  byId("one").append(panel);
  drawDetail(panel, content.runs[0]);
  mark("ready");
}

function start() {
  startThemes();
  byId("footer").textContent = `Task Profiler ${content.version}, generated ${asTime(Date.parse(content.generatedAt))}. Times are in this browser's time zone. ${UNKNOWN} means not measured.`;
  if (content.onlyOne) { startOneRun(); return; }
  const times = known(content.runs, (run) => run.began);
  const families = new Set(content.runs.map(familyOf)).size;
  byId("about").textContent = `${content.runs.length} runs of ${families} families` + (times.length ? `, ${asTime(times.reduce((a, b) => Math.min(a, b)))} to ${asTime(max(times))}.` : ".") + onFargateText() + leftOutText();
  readAddress();
  startFilters(drawAll, () => drawRuns(filtered()));
  startNight(() => drawNight(byId("night"), filtered(), openRun));
  byId("more").onclick = showMore;
  byId("csv").onclick = () => saveCsv(listed);
  byId("close").onclick = () => byId("detail").close();
  byId("detail").onclose = onClosed;
  byId("detail").onclick = (event) => { if (event.target === byId("detail")) byId("detail").close(); };
  window.addEventListener("popstate", () => { const before = addressOf(); readAddress(); showFilters(); if (addressOf() !== before) drawAll(); showRunOfAddress(); });
  byId("all").hidden = false;
  showFilters();
  new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting) && !byId("more").hidden) showMore(); }).observe(byId("more"));
  drawAll();
  showRunOfAddress();
}

start();
