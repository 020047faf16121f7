// The tables of the overview: failures, right-sizing, runs.

const isFailed = (run) => run.outcome === "failure" || run.outcome === "out of memory";
const isKilled = (run) => run.outcome === "out of memory";
const ROWS_AT_ONCE = 100;
const badCount = (count) => element("span", { className: count ? "bad" : "", textContent: count });
// A run opens by a button: the keyboard and a screen reader find it.
const runButton = (run, text) => button(text, () => openRun(run), { className: "link", title: `${familyOf(run)}, ${asTime(run.began)}` });

function drawFailures(runs) {
  const failed = runs.filter(isFailed);
  const place = byId("failures");
  if (!failed.length) return place.replaceChildren(emptyNote(runs.length ? "No run in this selection has failed." : "No run matches the filters."));
  const all = grouped(runs, familyOf);
  const families = [...grouped(failed, familyOf)].map(([family, failedRuns]) => ({
    family, failed: failedRuns.length, runs: all.get(family).length, killed: failedRuns.filter(isKilled).length,
    codes: [...new Set(known(failedRuns, (run) => run.exit))],
    last: failedRuns.reduce((a, b) => ((b.began ?? 0) > (a.began ?? 0) ? b : a)),
  })).sort((a, b) => b.killed - a.killed || b.failed - a.failed);
  return place.replaceChildren(table([
    { name: "Family", className: "family", show: (row) => escapeControls(row.family) },
    { name: "Failed", className: "number", show: (row) => `${row.failed} of ${row.runs}` },
    { name: "Out of memory", className: "number", show: (row) => badCount(row.killed) },
    { name: "Exit codes", className: "wide", show: (row) => row.codes.slice(0, 8).join(", ") + (row.codes.length > 8 ? ", …" : "") || UNKNOWN },
    { name: "Last failure", className: "time", show: (row) => runButton(row.last, asTime(row.last.began)) },
  ], families, { label: "Failures by family" }));
}

// A recommendation is based on the family's last runs, independent of the filters.
// Its button opens a row of its own below, which has room for the table of sizes.
function recommendedSize(advice) {
  if (!advice) return UNKNOWN;
  const toggle = button(unbroken(asTaskSize(advice.size)), () => {
    const row = toggle.closest("tr"), isOpen = toggle.getAttribute("aria-expanded") === "true";
    toggle.setAttribute("aria-expanded", String(!isOpen));
    if (isOpen) row.nextElementSibling.remove();
    else row.after(element("tr", { className: "opened" }, element("td", { colSpan: row.cells.length }, ...adviceDetails(advice))));
  }, { className: advice.changes ? "link size changes" : "link size", attributes: { "aria-expanded": "false" } });
  return toggle;
}

function sizingRow([family, runs]) {
  const [{ size, vcpuSize, taskSize }] = [...runs].sort((a, b) => (b.began ?? 0) - (a.began ?? 0));
  const same = runs.filter((run) => run.size === size && run.vcpuSize === vcpuSize);
  const peak = max(known(same, (run) => run.peak)), vcpu = max(known(same, (run) => run.vcpuP95));
  const advice = adviceOf.get(family);
  return {
    family, runs: same.length, size: taskSize ? { vcpu: taskSize[0], mb: taskSize[1] } : { vcpu: vcpuSize, mb: size }, peak, vcpu,
    memoryShare: shareOf(peak, size), cpuShare: shareOf(vcpu, vcpuSize), killed: same.filter(isKilled).length, advice, saving: advice && monthlySaving(advice),
  };
}

// Most money first; without money, the highest share of the memory.
const byMoney = (a, b) => (b.saving ?? 0) - (a.saving ?? 0) || Number(isKnown(b.advice?.risk)) - Number(isKnown(a.advice?.risk)) || (b.memoryShare ?? -1) - (a.memoryShare ?? -1);

function drawSizing(runs) {
  const sized = runs.filter((run) => run.outcome !== "running" && (isKnown(run.size) || isKnown(run.vcpuSize)));
  const place = byId("sizing");
  const rows = [...grouped(sized, familyOf)].map(sizingRow).sort(byMoney);
  if (!rows.length) return place.replaceChildren(emptyNote("No run in this selection has a known size."));
  const withBar = (value, percent) => (isKnown(value) ? element("span", { textContent: value }, ...(isKnown(percent) ? [bar(percent)] : [])) : UNKNOWN);
  return place.replaceChildren(table([
    { name: "Family", className: "family", show: (row) => escapeControls(row.family) },
    { name: "Runs", className: "number wide", show: (row) => String(row.runs) },
    { name: "Size", className: "wide size", show: (row) => asTaskSize(row.size) },
    { name: "Peak memory", className: "number", show: (row) => withBar(isKnown(row.peak) ? `${asMemory(row.peak)}${isKnown(row.memoryShare) ? ` (${asPercent(row.memoryShare)})` : ""}` : undefined, row.memoryShare) },
    { name: "vCPU, 95th percentile", className: "number wide", show: (row) => withBar(isKnown(row.vcpu) ? `${asVcpuCount(row.vcpu)}${isKnown(row.cpuShare) ? ` (${asPercent(row.cpuShare)})` : ""}` : undefined, row.cpuShare) },
    { name: "Out of memory", className: "number wide", show: (row) => badCount(row.killed) },
    { name: "Right size", className: "advice", show: (row) => recommendedSize(row.advice) },
    { name: "Change", className: "change", show: (row) => adviceText(row.advice) },
  ], rows, { label: "Right-sizing by family" }));
}

const RUN_COLUMNS = [
  { key: "began", name: "Started", className: "time", of: (run) => run.began, show: (run) => runButton(run, asTime(run.began)) },
  { key: "family", name: "Family", className: "family", of: familyOf, show: (run) => escapeControls(familyOf(run)) },
  { key: "account", name: "Account", className: "wide", of: (run) => run.account, show: (run) => run.account ?? UNKNOWN },
  { key: "region", name: "Region", className: "wide", of: (run) => run.region, show: (run) => run.region ?? UNKNOWN },
  { key: "outcome", name: "Outcome", of: (run) => run.outcome, show: outcomeCell },
  { key: "exit", name: "Exit code", className: "number wide", of: (run) => run.exit, show: (run) => (isKnown(run.exit) ? String(run.exit) : UNKNOWN) },
  { key: "ms", name: "Duration", className: "number", of: (run) => run.ms, show: (run) => asDuration(run.ms) },
  { key: "cpu", name: "Average CPU", className: "number wide", of: (run) => run.cpu, show: (run) => asPercent(run.cpu) },
  { key: "vcpuMax", name: "Peak vCPU", className: "number wide", of: (run) => run.vcpuMax, show: (run) => asVcpuCount(run.vcpuMax) },
  { key: "peak", name: "Peak memory", className: "number", of: (run) => run.peak, show: (run) => asMemory(run.peak) },
  { key: "used", name: "of size", className: "number wide", of: (run) => shareOf(run.peak, run.size), show: (run) => asPercent(shareOf(run.peak, run.size)) },
  { key: "usd", name: "Cost", className: "number wide", of: (run) => run.usd, show: (run) => asUsd(run.usd) },
  { key: "id", name: "Task id", className: "wide", of: (run) => run.id, show: (run) => truncate(run.id, 12) },
];

function sortedRuns(runs) {
  const column = RUN_COLUMNS.find((candidate) => candidate.key === state.sort) ?? RUN_COLUMNS[0];
  const sortOrder = state.descending ? -1 : 1;
  return [...runs].sort((a, b) => {
    const x = column.of(a), y = column.of(b);
    if (!isKnown(x) || !isKnown(y)) return isKnown(x) ? -1 : isKnown(y) ? 1 : 0; // unknown values come last
    return x < y ? -sortOrder : x > y ? sortOrder : 0;
  });
}

let listed = [], shownRows = ROWS_AT_ONCE;
const several = (name) => content.runs.some((run) => run[name] !== content.runs[0][name]);
const isShown = { usd: () => content.runs.some((run) => isKnown(run.usd)), account: () => several("account"), region: () => several("region") };
const runColumns = () => RUN_COLUMNS.filter((column) => isShown[column.key]?.() ?? true);
function drawRuns(runs) {
  listed = sortedRuns(searched(runs));
  shownRows = ROWS_AT_ONCE;
  const sort = (column) => {
    state.descending = state.sort === column.key ? !state.descending : column.className?.includes("number") || column.key === "began";
    state.sort = column.key;
    writeAddress();
    drawRuns(filtered());
    byId("runs").querySelector("th[aria-sort] button").focus();
  };
  const place = byId("runs");
  const sorted = { key: state.sort, descending: state.descending };
  place.replaceChildren(listed.length ? table(runColumns(), listed.slice(0, shownRows), { sort, sorted, label: "Runs" }) : emptyNote("No run matches."));
  place.dataset.count = listed.length;
  byId("csv").disabled = !listed.length;
  updateMoreButton();
}

function updateMoreButton() {
  const left = listed.length - shownRows;
  byId("more").hidden = left <= 0;
  byId("more").textContent = `Show ${Math.min(left, ROWS_AT_ONCE)} more of ${left}`;
}

function showMore() {
  appendRows(byId("runs").querySelector("tbody"), runColumns(), listed.slice(shownRows, shownRows + ROWS_AT_ONCE));
  shownRows += ROWS_AT_ONCE;
  updateMoreButton();
}
