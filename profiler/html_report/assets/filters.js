// The selection of runs. It is kept in the address (#…), so that a view can be sent.

const NO_FILTERS = { family: "", account: "", region: "", cluster: "", outcome: "", tag: "", from: "", to: "", search: "" };
const state = { ...NO_FILTERS, sort: "began", descending: true, run: "" };
const CHOICES = ["family", "account", "region", "cluster", "outcome", "tag"];
const PLACES = ["account", "region", "cluster"]; // chosen only where there are several
const DATE = /^\d{4}-\d{2}-\d{2}$/;
const searchText = (run) => (run.text ??= [run.family, run.id, run.outcome, run.container, run.account, run.region, run.cluster, run.exit, ...(run.labels ?? []), ...(run.tags ?? [])].filter(isKnown).join("\n").toLowerCase());

// Midnight in the reader's time zone; days later if asked for.
function midnight(date, days = 0) {
  if (!DATE.test(date)) return undefined;
  const [year, month, day] = date.split("-").map(Number);
  return new Date(year, month - 1, day + days).getTime();
}

function filtered() {
  const from = midnight(state.from), until = midnight(state.to, 1);
  return content.runs.filter((run) => (!state.family || familyOf(run) === state.family) && PLACES.every((name) => !state[name] || run[name] === state[name])
    && (!state.outcome || run.outcome === state.outcome) && (!state.tag || run.tags?.includes(state.tag))
    && (!isKnown(from) || run.began >= from) && (!isKnown(until) || run.began < until));
}

function searched(runs) {
  const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
  return words.length ? runs.filter((run) => words.every((word) => searchText(run).includes(word))) : runs;
}

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(NO_FILTERS)) state[name] = given.get(name) ?? "";
  for (const name of ["from", "to"]) if (!DATE.test(state[name])) state[name] = "";
  const sort = given.get("sort") ?? "-began";
  state.descending = sort.startsWith("-");
  state.sort = sort.replace(/^-/, "");
  state.run = given.get("run") ?? "";
}

function addressOf() {
  const given = new URLSearchParams();
  for (const name of Object.keys(NO_FILTERS)) if (state[name]) given.set(name, state[name]);
  const sort = `${state.descending ? "-" : ""}${state.sort}`;
  if (sort !== "-began") given.set("sort", sort);
  if (state.run) given.set("run", state.run);
  return String(given);
}

function writeAddress({ isNewPage = false } = {}) {
  const address = `#${addressOf()}`;
  if (address === (location.hash || "#")) return;
  history[isNewPage ? "pushState" : "replaceState"](null, "", address);
}

function showFilters() {
  for (const name of [...CHOICES, "from", "to", "search"]) {
    const field = byId(name);
    // A value of the address that no run has stays visible, so that an empty page explains itself.
    if (field.tagName === "SELECT" && state[name] && ![...field.options].some((option) => option.value === state[name])) {
      field.append(element("option", { value: state[name], textContent: truncate(state[name], 60) }));
      field.closest("label").hidden = false;
    }
    field.value = state[name];
  }
  byId("clear").hidden = Object.keys(NO_FILTERS).every((name) => !state[name]);
}

const MAX_TAGS = 300;
function fillChoices() {
  const valuesOf = {
    family: content.runs.map(familyOf), ...Object.fromEntries(PLACES.map((name) => [name, known(content.runs, (run) => run[name])])), outcome: content.runs.map((run) => run.outcome), tag: content.runs.flatMap((run) => run.tags ?? []),
  };
  const names = { family: "All families", account: "All accounts", region: "All Regions", cluster: "All clusters", outcome: "All outcomes", tag: "All tags" };
  for (const name of CHOICES) {
    const values = [...new Set(valuesOf[name])].sort((a, b) => (name === "outcome" ? OUTCOMES.indexOf(a) - OUTCOMES.indexOf(b) : a.localeCompare(b))).slice(0, MAX_TAGS * (name === "tag" ? 1 : 100));
    byId(name).replaceChildren(element("option", { value: "", textContent: names[name] }), ...values.map((value) => element("option", { value, textContent: truncate(value, 60) })));
    byId(name).closest("label").hidden = values.length < (name === "tag" ? 1 : PLACES.includes(name) ? 2 : 0);
  }
}

function startFilters(onChange, onSearch) {
  fillChoices();
  for (const name of [...CHOICES, "from", "to"]) {
    byId(name).onchange = (event) => { state[name] = event.target.value; writeAddress(); showFilters(); onChange(); };
  }
  let timer;
  byId("search").oninput = (event) => {
    state.search = event.target.value;
    clearTimeout(timer);
    timer = setTimeout(() => { writeAddress(); showFilters(); onSearch(); }, 120);
  };
  byId("clear").onclick = () => { Object.assign(state, NO_FILTERS); writeAddress(); showFilters(); onChange(); byId("family").focus(); };
  byId("filters").onsubmit = (event) => event.preventDefault();
}

// --- CSV -------------------------------------------------------------------------------------

const iso = (ms) => (isKnown(ms) ? new Date(ms).toISOString() : undefined);
const CSV_COLUMNS = [
  ["taskId", (run) => run.id], ["container", (run) => run.container], ["family", (run) => run.name ?? run.family], ["revision", (run) => run.revision], ["accountId", (run) => run.account], ["region", (run) => run.region], ["cluster", (run) => run.cluster], ["outcome", (run) => run.outcome], ["exitCode", (run) => run.exit],
  ["startedAt", (run) => iso(run.began)], ["durationMs", (run) => run.ms], ["billedDurationMs", (run) => run.billed], ["vcpuSize", (run) => run.vcpuSize], ["vcpuUsedAvg", (run) => run.vcpuAvg],
  ["vcpuUsedP95", (run) => run.vcpuP95], ["vcpuUsedMax", (run) => run.vcpuMax], ["cpuSeconds", (run) => run.cpuSeconds], ["memorySizeMB", (run) => run.size], ["maxMemoryUsedMB", (run) => run.peak],
  ["memoryPeakSource", (run) => run.peakBy], ["costUsd", (run) => run.usd], ["blockReadBytes", (run) => run.read], ["blockWriteBytes", (run) => run.written],
  ["networkRxBytes", (run) => run.received], ["networkTxBytes", (run) => run.sent], ["tags", (run) => run.tags?.join(" ")], ["labels", (run) => run.labels?.join(" ")],
];
// A spreadsheet would run a text that begins like a formula.
const csvText = (value) => {
  if (!isKnown(value)) return "";
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
const csvOf = (runs) => [CSV_COLUMNS.map(([name]) => name), ...runs.map((run) => CSV_COLUMNS.map(([, of]) => csvText(of(run))))].map((row) => `${row.join(",")}\r\n`).join("");

function saveCsv(runs) {
  const href = URL.createObjectURL(new Blob(["\ufeff", csvOf(runs)], { type: "text/csv;charset=utf-8" }));
  element("a", { href, download: "task-runs.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60e3);
}
