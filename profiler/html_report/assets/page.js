// The page: filters, tables, and the details of one run.

function element(tag, properties = {}, ...children) {
  const { className, textContent, style, dataset, ...others } = properties;
  const created = document.createElement(tag);
  if (className) created.className = className;
  if (isKnown(textContent)) created.textContent = textContent;
  for (const [name, value] of Object.entries(style ?? {})) created.style.setProperty(name, value);
  Object.assign(created.dataset, dataset);
  for (const [name, value] of Object.entries(others)) created[name] = value;
  created.append(...children);
  return created;
}

const byId = (id) => document.getElementById(id);
const content = JSON.parse(byId("task-data").textContent);
const shared = new Set(content.shared);
const textAt = (index) => (Array.isArray(index) ? index.map(textAt) : content.texts[index]);
content.runs = content.runs.map((values, row) => {
  const run = { series: content.courses[row] };
  values.forEach((value, column) => {
    const field = content.fields[column];
    if (isKnown(value)) run[field] = shared.has(field) ? textAt(value) : value;
  });
  return run;
});
const state = { family: "", outcome: "", search: "", sort: "began", descending: true, rows: 100 };
const ROWS_AT_ONCE = 100;

const outcomeCell = (run) => element("span", { className: "outcome", textContent: run.outcome, style: { "--dot": `var(--${COLOUR_OF[run.outcome] ?? run.outcome})` } });
const shareOf = (part, whole) => (isKnown(part) && whole > 0 ? (100 * part) / whole : undefined);
const isFailed = (run) => run.outcome === "failure" || run.outcome === "out of memory";
const isKilled = (run) => run.outcome === "out of memory";
const searchText = (run) => (run.text ??= [run.family, run.id, run.outcome, run.container, run.cluster, run.exit, ...(run.labels ?? [])].filter(isKnown).join("\n").toLowerCase());

function filtered() {
  return content.runs.filter((run) => (!state.family || familyOf(run) === state.family.slice(1)) && (!state.outcome || run.outcome === state.outcome));
}

// --- tables ----------------------------------------------------------------------------------

function bar(percent) {
  const kind = percent >= 90 ? "bar hot" : percent >= 75 ? "bar warm" : "bar";
  return element("span", { className: kind }, element("i", { style: { width: `${Math.min(percent, 100)}%` } }));
}

function cell(column, row) {
  const value = column.show(row);
  return element("td", { className: column.className ?? "" }, value);
}

function table(columns, rows, { opens, sort } = {}) {
  const head = element("tr");
  for (const column of columns) {
    const th = element("th", { className: column.className ?? "", scope: "col" });
    if (sort) {
      th.append(element("button", { type: "button", textContent: column.name, onclick: () => sort(column) }));
      if (column.key === state.sort) th.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
    } else th.textContent = column.name;
    head.append(th);
  }
  const body = element("tbody");
  appendRows(body, columns, rows, opens);
  return element("table", {}, element("thead", {}, head), body);
}

function appendRows(body, columns, rows, opens) {
  for (const row of rows) {
    const tableRow = element("tr", {}, ...columns.map((column) => cell(column, row)));
    if (opens) {
      tableRow.className = "opens";
      tableRow.tabIndex = 0;
      tableRow.onclick = () => openRun(opens(row));
      tableRow.onkeydown = (event) => { if (event.key === "Enter") openRun(opens(row)); };
    }
    body.append(tableRow);
  }
}

const RUN_COLUMNS = [
  { key: "began", name: "Started", className: "time", of: (run) => run.began, show: (run) => asTime(run.began) },
  { key: "family", name: "Family", of: familyOf, show: (run) => escapeControls(familyOf(run)) },
  { key: "outcome", name: "Outcome", of: (run) => run.outcome, show: outcomeCell },
  { key: "exit", name: "Exit", className: "number wide", of: (run) => run.exit, show: (run) => (isKnown(run.exit) ? String(run.exit) : UNKNOWN) },
  { key: "ms", name: "Duration", className: "number", of: (run) => run.ms, show: (run) => asDuration(run.ms) },
  { key: "cpu", name: "Avg CPU", className: "number wide", of: (run) => run.cpu, show: (run) => asPercent(run.cpu) },
  { key: "memory", name: "Avg memory", className: "number wide", of: (run) => run.memory, show: (run) => asPercent(run.memory) },
  { key: "peak", name: "Peak", className: "number", of: (run) => run.peak, show: (run) => asMemory(run.peak) },
  { key: "used", name: "of size", className: "number wide", of: (run) => shareOf(run.peak, run.size), show: (run) => asPercent(shareOf(run.peak, run.size)) },
  { key: "id", name: "Task id", className: "wide", of: (run) => run.id, show: (run) => truncate(run.id, 12) },
];

function sortedRuns(runs) {
  const column = RUN_COLUMNS.find((candidate) => candidate.key === state.sort);
  const sortOrder = state.descending ? -1 : 1;
  return [...runs].sort((a, b) => {
    const x = column.of(a), y = column.of(b);
    if (!isKnown(x) || !isKnown(y)) return isKnown(x) ? -1 : isKnown(y) ? 1 : 0; // unknown values come last
    return x < y ? -sortOrder : x > y ? sortOrder : 0;
  });
}

let listed = [];
function drawRuns(runs) {
  const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
  listed = sortedRuns(words.length ? runs.filter((run) => words.every((word) => searchText(run).includes(word))) : runs);
  state.rows = ROWS_AT_ONCE;
  const sort = (column) => {
    state.descending = state.sort === column.key ? !state.descending : column.className?.includes("number") || column.key === "began";
    state.sort = column.key;
    drawRuns(filtered());
  };
  const place = byId("runs");
  if (listed.length) place.replaceChildren(table(RUN_COLUMNS, listed.slice(0, state.rows), { opens: (run) => run, sort }));
  else place.replaceChildren(element("p", { className: "empty", textContent: "No run matches." }));
  place.dataset.count = listed.length;
  updateMoreButton();
}

function updateMoreButton() {
  const left = listed.length - state.rows;
  byId("more").hidden = left <= 0;
  byId("more").textContent = `Show ${Math.min(left, ROWS_AT_ONCE)} more of ${left}`;
}

function showMore() {
  appendRows(byId("runs").querySelector("tbody"), RUN_COLUMNS, listed.slice(state.rows, state.rows + ROWS_AT_ONCE), (run) => run);
  state.rows += ROWS_AT_ONCE;
  updateMoreButton();
}

function drawFailures(runs) {
  const failed = runs.filter(isFailed);
  const place = byId("failures");
  if (!failed.length) return place.replaceChildren(element("p", { className: "empty", textContent: "No run in this selection has failed." }));
  const all = grouped(runs, familyOf);
  const families = [...grouped(failed, familyOf)].map(([family, failedRuns]) => ({
    family, failed: failedRuns.length, runs: all.get(family).length, killed: failedRuns.filter(isKilled).length,
    codes: [...new Set(known(failedRuns, (run) => run.exit))],
    last: failedRuns.reduce((a, b) => ((b.began ?? 0) > (a.began ?? 0) ? b : a)),
  })).sort((a, b) => b.killed - a.killed || b.failed - a.failed);
  return place.replaceChildren(table([
    { name: "Family", show: (row) => escapeControls(row.family) },
    { name: "Failed", className: "number", show: (row) => `${row.failed} of ${row.runs}` },
    { name: "Out of memory", className: "number", show: (row) => element("span", { className: row.killed ? "bad" : "", textContent: row.killed }) },
    { name: "Exit codes", className: "wide", show: (row) => row.codes.slice(0, 8).join(", ") + (row.codes.length > 8 ? ", …" : "") || UNKNOWN },
    { name: "Last", className: "time", show: (row) => asTime(row.last.began) },
  ], families, { opens: (row) => row.last }));
}

// A recommendation is based on the family's last runs, independent of the filters.
const adviceOf = new Map(content.sizing.map((advice) => [advice.family, advice]));
function recommendedSize(advice) {
  if (!advice) return UNKNOWN;
  const reasons = advice.reasons.map((reason) => element("li", { textContent: escapeControls(reason) }));
  const summary = element("summary", { className: advice.changes ? "changes" : "", textContent: asTaskSize(advice.size) });
  return element("details", {}, summary, element("ul", {}, ...reasons));
}

function drawSizing(runs) {
  const sized = runs.filter((run) => run.outcome !== "running" && (isKnown(run.size) || isKnown(run.vcpuSize)));
  const place = byId("sizing");
  const rows = [...grouped(sized, (run) => JSON.stringify([familyOf(run), run.size, run.vcpuSize])).values()].map((sizeRuns) => {
    const [{ size, vcpuSize }] = sizeRuns;
    const peak = max(known(sizeRuns, (run) => run.peak)), vcpu = max(known(sizeRuns, (run) => run.vcpuP95));
    return {
      family: familyOf(sizeRuns[0]), runs: sizeRuns.length, size, vcpuSize, peak, vcpu, memoryShare: shareOf(peak, size),
      cpuShare: shareOf(vcpu, vcpuSize), killed: sizeRuns.filter(isKilled).length,
    };
  }).sort((a, b) => (b.memoryShare ?? -1) - (a.memoryShare ?? -1));
  if (!rows.length) return place.replaceChildren(element("p", { className: "empty", textContent: "No run in this selection has a known size." }));
  const withBar = (percent) => (isKnown(percent) ? element("span", { textContent: asPercent(percent) }, bar(percent)) : UNKNOWN);
  return place.replaceChildren(table([
    { name: "Family", show: (row) => escapeControls(row.family) },
    { name: "Runs", className: "number wide", show: (row) => String(row.runs) },
    { name: "Memory size", className: "number wide", show: (row) => asMemory(row.size) },
    { name: "Peak memory", className: "number", show: (row) => asMemory(row.peak) },
    { name: "of size", className: "number", show: (row) => withBar(row.memoryShare) },
    { name: "vCPU size", className: "number wide", show: (row) => asVcpuCount(row.vcpuSize) },
    { name: "vCPU used, p95", className: "number wide", show: (row) => asVcpuCount(row.vcpu) },
    { name: "vCPU of size", className: "number", show: (row) => withBar(row.cpuShare) },
    { name: "Out of memory", className: "number wide", show: (row) => element("span", { className: row.killed ? "bad" : "", textContent: row.killed }) },
    { name: "Right size", className: "advice", show: (row) => recommendedSize(adviceOf.get(row.family)) },
    { name: "Saving", className: "number wide", show: (row) => asSaving(adviceOf.get(row.family)?.saving) },
  ], rows));
}

// --- one run ---------------------------------------------------------------------------------

function facts(run) {
  const pairs = [
    ["Started", asTime(run.began)], ["Duration", asDuration(run.ms)], ["Exit code", run.exit], ["Task id", escapeControls(run.id)], ["Container", escapeControls(run.container)],
    ["Cluster", run.cluster && escapeControls(run.cluster)], ["Launch type", run.launch && escapeControls(run.launch)],
    ["vCPU size", isKnown(run.vcpuSize) && asVcpuCount(run.vcpuSize)], ["Average CPU", isKnown(run.cpu) && asPercent(run.cpu)],
    ["CPU time", isKnown(run.cpuSeconds) && asDuration(run.cpuSeconds * 1000)], ["vCPU used, maximum", isKnown(run.vcpuMax) && asVcpuCount(run.vcpuMax)],
    ["Memory size", isKnown(run.size) && asMemory(run.size)], ["Peak memory", isKnown(run.peak) && `${asMemory(run.peak)} (${asPercent(shareOf(run.peak, run.size))}${run.peakBy ? `, ${run.peakBy}` : ""})`],
    ["Read", isKnown(run.read) && asBytes(run.read)], ["Written", isKnown(run.written) && asBytes(run.written)],
    ["Received", isKnown(run.received) && asBytes(run.received)], ["Sent", isKnown(run.sent) && asBytes(run.sent)], ["Cost", isKnown(run.usd) && asUsd(run.usd)],
    ...(run.gpus ?? []).map((gpu) => [`GPU ${escapeControls(gpu.name)}`, `${asPercent(gpu.percent)}, ${asMemory(gpu.mb)} of ${asMemory(gpu.size)}`]),
    ["Labels", run.labels && escapeControls(run.labels.join(", "))], ["Warnings", run.warnings && escapeControls(run.warnings.join(" "))],
  ].filter(([, value]) => isKnown(value) && value !== false && value !== "" && value !== UNKNOWN);
  const advice = adviceOf.get(run.family);
  if (advice) pairs.push([content.onlyOne ? "Right size" : "Right size of the family", recommendedSize(advice)]);
  return element("dl", { className: "facts" }, ...pairs.map(([name, value]) => element("div", {}, element("dt", { textContent: name }), element("dd", {}, value))));
}

let detailed;
function drawDetail(place, run) {
  detailed = { place, run };
  const seriesCharts = chartsOf(run).map((chart) => ({ ...chart, place: element("div", { className: "chart", id: `course-${chart.id}` }) }));
  const body = [element("h2", { textContent: escapeControls(familyOf(run)) }), outcomeCell(run), facts(run)];
  for (const chart of seriesCharts) body.push(element("h2", { textContent: chart.title(run) }), chart.place);
  if (!seriesCharts.length) body.push(element("p", { className: "empty", textContent: "This page has no time series of this run: the run has none, or the page would be too long. For one run: task-profiler report --run ID" }));
  place.replaceChildren(...body);
  for (const chart of seriesCharts) chart.draw(chart.place, run);
}

function openRun(run) {
  byId("detail").showModal();
  drawDetail(byId("detail-body"), run);
  byId("detail").scrollTop = 0;
}

function clearDetail() {
  for (const { id } of SERIES_CHARTS) {
    const place = byId(`course-${id}`);
    if (place && charts.delete(place)) Plotly.purge(place);
  }
  byId("detail-body").replaceChildren();
  detailed = undefined;
}

// --- everything ------------------------------------------------------------------------------

function drawTiles(runs) {
  const failed = runs.filter(isFailed).length, killed = runs.filter(isKilled).length;
  const ended = runs.filter((run) => run.outcome !== "running").length;
  const usd = known(runs, (run) => run.usd), cpuSeconds = known(runs, (run) => run.cpuSeconds);
  const tiles = [
    ["Runs", runs.length], ["Succeeded", asPercent(shareOf(runs.filter((run) => run.outcome === "success").length, ended))],
    ["Failed", failed, failed], ["Out of memory", killed, killed], ["Median duration", asDuration(quantile(known(runs.filter((run) => run.outcome !== "running"), (run) => run.ms), 0.5))],
    ["CPU time", cpuSeconds.length ? asDuration(1000 * total(cpuSeconds)) : UNKNOWN],
  ];
  if (usd.length) tiles.push(["Cost", asUsd(total(usd))]);
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
    () => drawFailures(runs), () => drawSizing(runs), () => drawRuns(runs),
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
  if (detailed) drawDetail(detailed.place, detailed.run);
}

function options(select, first, names, prefix = "") {
  select.replaceChildren(element("option", { value: "", textContent: first }), ...names.map((name) => element("option", { value: prefix + name, textContent: truncate(name, 60) })));
}

function leftOutText() {
  const { runs, details } = content.leftOut;
  return (runs ? `. ${runs} older runs are left out: the page would be too long` : "")
    + (details ? `. ${details} runs are without labels, warnings and GPUs: the page would be too long` : "");
}

function start() {
  const darkQuery = matchMedia("(prefers-color-scheme: dark)");
  setTheme(darkQuery.matches ? "dark" : "light");
  darkQuery.addEventListener("change", () => { setTheme(darkQuery.matches ? "dark" : "light"); redraw(); });
  byId("theme").onclick = () => { setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); redraw(); };
  let themeBeforePrint;
  window.addEventListener("beforeprint", () => { themeBeforePrint = document.documentElement.dataset.theme; if (themeBeforePrint === "dark") { setTheme("light"); redraw(); } });
  window.addEventListener("afterprint", () => { if (themeBeforePrint === "dark") { setTheme("dark"); redraw(); } });
  byId("footer").textContent = `Task Profiler ${content.version}, generated ${asTime(Date.parse(content.generatedAt))}. Times are in this browser's time zone. ${UNKNOWN} means not measured.`;
  if (content.onlyOne) {
    byId("about").textContent = "One run";
    byId("one").hidden = false;
    const panel = element("section", { className: "panel" });
    byId("one").append(panel);
    drawDetail(panel, content.runs[0]);
    mark("ready");
    return;
  }
  const times = known(content.runs, (run) => run.began);
  const families = [...new Set(content.runs.map(familyOf))].sort((a, b) => a.localeCompare(b));
  byId("about").textContent = `${content.runs.length} runs of ${families.length} families` + (times.length ? `, ${asTime(times.reduce((a, b) => Math.min(a, b)))} to ${asTime(max(times))}` : "") + leftOutText();
  options(byId("family"), "All families", families, "=");
  options(byId("outcome"), "All outcomes", OUTCOMES.filter((outcome) => content.runs.some((run) => run.outcome === outcome)));
  byId("family").onchange = (event) => { state.family = event.target.value; drawAll(); };
  byId("outcome").onchange = (event) => { state.outcome = event.target.value; drawAll(); };
  byId("filters").onsubmit = (event) => event.preventDefault();
  let searchTimer;
  byId("search").oninput = (event) => { state.search = event.target.value; clearTimeout(searchTimer); searchTimer = setTimeout(() => drawRuns(filtered()), 120); };
  byId("more").onclick = showMore;
  byId("close").onclick = () => byId("detail").close();
  byId("detail").onclose = clearDetail;
  byId("detail").onclick = (event) => { if (event.target === byId("detail")) byId("detail").close(); };
  byId("all").hidden = false;
  new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting) && !byId("more").hidden) showMore(); }).observe(byId("more"));
  drawAll();
}

start();
