// One run: verdict, charts with moments, facts, processes, devices, sizes.

const shareOf = (part, whole) => (isKnown(part) && whole > 0 ? (100 * part) / whole : undefined);
const outcomeCell = (run) => element("span", { className: "outcome", textContent: run.outcome, style: { "--dot": `var(--${COLOUR_OF[run.outcome] ?? run.outcome})` } });
const adviceOf = new Map(content.sizing.map((advice) => [advice.family, advice]));

// Addresses in the AWS console. lambda/forwarder/notices/wording.py has the same; a browser test compares both.
const REGION = /^[a-z]{2,4}(-[a-z]+)+-\d{1,2}$/;
const CONSOLES = [["cn-", "console.amazonaws.cn"], ["us-gov-", "console.amazonaws-us-gov.com"], ["eusc-", "console.amazonaws-eusc.eu"]];
function consoleOf(region) {
  if (!region || !REGION.test(region) || /-iso[a-z]?-/.test(region)) return undefined;
  const [, domain] = CONSOLES.find(([prefix]) => region.startsWith(prefix)) ?? [, "console.aws.amazon.com"];
  return `https://${region}.${domain}`;
}
const encodedOnce = (text) => encodeURIComponent(text).replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
const encodedTwice = (text) => encodedOnce(encodedOnce(text)).replaceAll("%", "$");
function logStreamLink({ region, logGroup, logStream }) {
  const base = consoleOf(region);
  return base && logGroup && logStream ? `${base}/cloudwatch/home?region=${region}#logsV2:log-groups/log-group/${encodedTwice(logGroup)}/log-events/${encodedTwice(logStream)}` : undefined;
}
function taskLink({ region, cluster, id }) {
  const base = consoleOf(region);
  return base && cluster && id ? `${base}/ecs/v2/clusters/${encodedOnce(cluster)}/tasks/${encodedOnce(id)}/configuration?region=${region}` : undefined;
}

const link = (href, textContent) => element("a", { href, textContent, target: "_blank", rel: "noopener noreferrer" });

// --- comparison ------------------------------------------------------------------------------

const earlierRuns = (run) => content.runs.filter((other) => other !== run && familyOf(other) === familyOf(run) && other.began < run.began);
const newest = (runs) => runs.reduce((a, b) => (!a || b.began > a.began ? b : a), undefined);
// A success in the same cluster is preferred.
function lastSuccess(run) {
  const successes = earlierRuns(run).filter((other) => other.outcome === "success");
  return newest(successes.filter((other) => other.cluster === run.cluster)) ?? newest(successes);
}
const MAX_COMPARED = 50;

function comparisonChoice(run, other, onChange) {
  const success = lastSuccess(run);
  const others = content.runs.filter((one) => one !== run && familyOf(one) === familyOf(run) && one.packed).slice(0, MAX_COMPARED);
  if (!others.length) return [];
  const select = element("select", { onchange: () => onChange(select.value ? content.runs[Number(select.value)] : null) }, element("option", { value: "", textContent: "no other run" }),
    ...others.map((one) => element("option", { value: String(one.row), textContent: `${asTime(one.began)}, ${one === success ? "last success" : one.outcome}`, selected: one === other })));
  return [element("label", { className: "compare" }, element("i", { className: "pale-line", attributes: { "aria-hidden": "true" } }), "Compare with ", select)];
}

const CHANGES = [
  ["Duration", (run) => run.ms, asDuration], ["Cost", (run) => run.usd, asUsd], ["CPU time", (run) => (isKnown(run.cpuSeconds) ? run.cpuSeconds * 1000 : undefined), asDuration],
  ["Average vCPU", (run) => run.vcpuAvg, asVcpuCount], ["Peak memory", (run) => run.peak, asMemory], ["Memory size", (run) => run.size, asMemory], ["vCPU size", (run) => run.vcpuSize, asVcpuCount],
  ["Read", (run) => run.read, asBytes], ["Written", (run) => run.written, asBytes],
];
function comparisonTable(run, other) {
  const rows = CHANGES.map(([name, of, show]) => ({ name, now: of(run), then: of(other), show })).filter(({ now, then }) => isKnown(now) && isKnown(then));
  const change = ({ now, then }) => (then > 0 ? `${now >= then ? "+" : "−"}${Math.round(Math.abs((100 * (now - then)) / then))} %`.replace(/^[+−]0 %$/, "=") : UNKNOWN);
  return table([
    { name: "", show: (row) => row.name }, { name: "This run", className: "number", show: (row) => row.show(row.now) },
    { name: "Other run", className: "number", show: (row) => row.show(row.then) }, { name: "Change", className: "number", show: change },
  ], rows, { label: "Comparison of two runs" });
}

// --- sizes -----------------------------------------------------------------------------------

const isSize = (size, option) => size?.vcpu === option.vcpu && size?.mb === option.mb;
const optionOf = (advice, size) => advice.options?.find((option) => isSize(size, option));
function monthlySaving(advice) {
  const now = optionOf(advice, advice.current)?.usd, then = optionOf(advice, advice.size)?.usd;
  return advice.changes && isKnown(now) && isKnown(then) && isKnown(advice.runsPerMonth) ? (now - then) * advice.runsPerMonth : undefined;
}
const asMonth = (usd) => `${asUsd(Math.abs(usd))} a month`;
// "saves 35 %, $4.10 a month".
function adviceText(advice) {
  if (!advice) return UNKNOWN;
  if (advice.fits) return "fits";
  if (advice.changes && isKnown(advice.saving)) {
    const usd = monthlySaving(advice);
    return `${asChange(advice.saving)}${isKnown(usd) ? `, ${asMonth(usd)}` : ""}`;
  }
  if (!advice.current) return advice.risk ? "ran out of memory" : "current size unknown";
  return advice.risk || !advice.changes ? "more is needed" : UNKNOWN;
}

function whatIfTable(advice) {
  const mark = (option) => [
    isSize(advice.current, option) && "current", isSize(advice.size, option) && "recommended",
    !option.acceptable && (option.holdsMemory ? "too slow" : "too little memory"),
  ].filter(Boolean).join(", ");
  const hasMoney = advice.options.some((option) => isKnown(option.usd));
  return table([
    { name: "Size", className: "size", show: (option) => element("span", { className: isSize(advice.size, option) ? "chosen" : "", textContent: unbroken(asTaskSize(option)) }) },
    { name: "Times as long", className: "number", show: (option) => asFactor(option.min, option.max) },
    ...(hasMoney ? [
      { name: "A run", className: "number", show: (option) => asUsd(option.usd) },
      { name: "A month", className: "number wide", show: (option) => (isKnown(option.usd) && isKnown(advice.runsPerMonth) ? asUsd(option.usd * advice.runsPerMonth) : UNKNOWN) },
      { name: "Cost", className: "wide", show: (option) => (isSize(advice.current, option) ? "" : asChange(option.saving)) },
    ] : []),
    { name: "", show: mark },
  ], advice.options, { label: `What each size would take and cost: ${familyOf(advice)}` });
}

function adviceDetails(advice) {
  return [
    ...(advice.options ? [whatIfTable(advice)] : []),
    element("ul", { className: "reasons" }, ...advice.reasons.map((reason) => element("li", { textContent: escapeControls(reason) }))),
  ];
}

// --- facts -----------------------------------------------------------------------------------

function facts(run) {
  const pairs = [
    ["Started", isKnown(run.began) && asTime(run.began)], ["Duration", asDuration(run.ms)], ["Image pull and start", isKnown(run.init) && asDuration(run.init)],
    ["Task size", run.taskSize && asTaskSize({ vcpu: run.taskSize[0], mb: run.taskSize[1] })], ["Cost", isKnown(run.usd) && asUsd(run.usd)],
    ["vCPU size", isKnown(run.vcpuSize) && asVcpuCount(run.vcpuSize)], ["Average vCPU", isKnown(run.vcpuAvg) && `${asVcpuCount(run.vcpuAvg)} (${asPercent(run.cpu)})`.replace(` (${UNKNOWN})`, "")],
    ["vCPU, 95th percentile", isKnown(run.vcpuP95) && asVcpuCount(run.vcpuP95)], ["Peak vCPU", isKnown(run.vcpuMax) && asVcpuCount(run.vcpuMax)],
    ["All vCPUs in use", isKnown(run.saturated) && `${asPercent(run.saturated)} of the time`], ["CPU time", isKnown(run.cpuSeconds) && asDuration(run.cpuSeconds * 1000)],
    ["Memory size", isKnown(run.size) && asMemory(run.size)], ["Average memory", isKnown(run.memory) && asPercent(run.memory)],
    ["Peak memory", isKnown(run.peak) && `${asMemory(run.peak)} (${[isKnown(shareOf(run.peak, run.size)) && asPercent(shareOf(run.peak, run.size)), run.peakBy].filter(Boolean).join(", ")})`.replace(" ()", "")],
    ["Read", isKnown(run.read) && asBytes(run.read)], ["Written", isKnown(run.written) && asBytes(run.written)],
    ["Received", isKnown(run.received) && asBytes(run.received)], ["Sent", isKnown(run.sent) && asBytes(run.sent)], ["Processes and threads, peak", isKnown(run.pids) && String(run.pids)],
    ["Exit code", isKnown(run.exit) && String(run.exit)], ["Account", run.account], ["Region", run.region], ["Cluster", run.cluster], ["Launch type", run.launch], ["Image", run.image],
    ["Log group", run.logGroup], ["Log stream", run.logStream], ["Task id", run.id],
  ].filter(([, value]) => isKnown(value) && value !== false && value !== "" && value !== UNKNOWN);
  return element("dl", { className: "facts" }, ...pairs.map(([name, value]) => element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: escapeControls(value) }))));
}

const PROCESS_COLUMNS = [
  { name: "Process", show: ([name, words]) => element("span", {}, escapeControls(name), ...(words ? [element("code", { textContent: escapeControls(words) })] : [])) },
  { name: "Number", className: "number wide", show: ([, , count]) => (isKnown(count) ? String(count) : UNKNOWN) },
  { name: "CPU time", className: "number", show: ([, , , seconds]) => asDuration(isKnown(seconds) ? seconds * 1000 : undefined) },
  { name: "Peak memory", className: "number", show: ([, , count, , mb, held]) => (isKnown(mb) && isKnown(count) && count !== (held || 1) ? `${asMemory(mb)} in ${held || 1} of them` : asMemory(mb)) },
];
const KILL_COLUMNS = [PROCESS_COLUMNS[0], { ...PROCESS_COLUMNS[3], name: "Memory when last seen" }];

const GPU_COLUMNS = [
  { name: "GPU", show: (gpu) => escapeControls(gpu.name) },
  { name: "Average", className: "number", show: (gpu) => asPercent(gpu.percent) },
  { name: "Peak", className: "number wide", show: (gpu) => asPercent(gpu.top) },
  { name: "Peak memory", className: "number", show: (gpu) => asMemory(gpu.mb) },
  { name: "Memory size", className: "number wide", show: (gpu) => asMemory(gpu.size) },
  { name: "Power", className: "number wide", show: (gpu) => (isKnown(gpu.watts) ? `${Math.round(gpu.watts)} W` : UNKNOWN) },
  { name: "Peak temperature", className: "number wide", show: (gpu) => (isKnown(gpu.celsius) ? `${gpu.celsius} °C` : UNKNOWN) },
  { name: "Errors (Xid)", className: "wide", show: (gpu) => (gpu.xids ? gpu.xids.join(", ") : "none") },
];

function section(title, ...children) {
  return element("section", { className: "part" }, element("h3", { textContent: title }), ...children);
}

function devices(run) {
  const parts = [];
  if (run.gpus) parts.push(section("GPUs", table(GPU_COLUMNS, run.gpus, { label: "GPUs" })));
  if (run.neuron) {
    const { cores = [], mb, size, completed, failed } = run.neuron;
    const text = [
      isKnown(mb) && `Device memory: ${asMemory(mb)}${isKnown(size) ? ` of ${asMemory(size)}` : ""}.`, isKnown(completed) && `Executions: ${completed}.`, failed > 0 && `Failed executions: ${failed}.`,
    ].filter(Boolean).join(" ");
    parts.push(section("NeuronCores", ...(text ? [element("p", { textContent: text })] : []), ...(cores.length ? [table([
      { name: "NeuronCore", show: ([index]) => String(index) }, { name: "Average", className: "number", show: ([, average]) => asPercent(average) }, { name: "Peak", className: "number", show: ([, , top]) => asPercent(top) },
    ], cores, { label: "NeuronCores" })] : [])));
  }
  return parts;
}

function kills({ kills: found }) {
  if (!found) return [];
  const [count, processes] = found;
  const text = `The kernel killed ${count === 1 ? "1 process" : `${count} processes`} because the memory was exhausted.`;
  return [section("Killed processes", element("p", { textContent: text }), ...(processes.length ? [table(KILL_COLUMNS, processes, { label: "Killed processes" })] : []))];
}

function listSection(title, texts) {
  return texts ? [section(title, element("ul", { className: "plain" }, ...texts.map((text) => element("li", { textContent: escapeControls(text) }))))] : [];
}

function verdictOf(run) {
  if (!run.verdict) return element("p", { className: "verdict" }, outcomeCell(run));
  const [tone, text, evidence] = run.verdict;
  return element("p", { className: `verdict ${tone}` }, element("strong", { textContent: escapeControls(text) }), ...(evidence ? [element("span", { textContent: ` ${escapeControls(evidence)}` })] : []));
}

const upperFirst = (text) => text.charAt(0).toUpperCase() + text.slice(1);
function momentsOf(run, chart) {
  if (!run.moments) return [];
  const item = ([, start, end, text]) => {
    const margin = Math.max((end - start) * 0.5, lengthOf(run) * 0.05);
    const words = upperFirst(escapeControls(text));
    return element("li", {}, chart ? button(words, () => { chart.show([start - margin, end + margin]); chart.setCursor(start); }, { className: "link" }) : words);
  };
  return [section("Moments", element("ul", { className: "plain" }, ...run.moments.map(item)))];
}

function sizePart(run) {
  const advice = adviceOf.get(run.family);
  if (!advice) return [];
  const text = advice.fits ? `${asTaskSize(advice.current)} fits.` : `${asTaskSize(advice.size)}: ${adviceText(advice)}`;
  return [section(content.onlyOne ? "Right size, from this run alone" : "Right size of the family", element("p", { className: "lead", textContent: text }), ...adviceDetails(advice))];
}

// Each container of a task may have a report.
function siblingsOf(run) {
  const others = content.onlyOne ? [] : content.runs.filter((other) => other !== run && other.id === run.id && other.container !== run.container);
  if (!others.length) return [];
  return [element("p", { className: "note" }, element("span", { textContent: `Container ${escapeControls(run.container)}. Other reports of this task: ` }),
    ...others.map((other) => button(escapeControls(other.container), () => openRun(other), { className: "link" })))];
}

let detailed;
function drawDetail(place, run, other = lastSuccess(run)) {
  clearDetail();
  run.series ??= decodeSeries(run.packed);
  if (other) other.series ??= decodeSeries(other.packed);
  const drawnOther = run.series && other?.series ? other : undefined;
  const chart = run.series ? new RunChart(run, drawnOther) : undefined;
  detailed = { place, run, other: other ?? null, chart };
  const links = [[logStreamLink(run), "Log stream"], [taskLink(run), "ECS task"]].filter(([href]) => href);
  const choice = comparisonChoice(run, other, (chosen) => drawDetail(place, run, chosen));
  place.replaceChildren(
    element("div", { className: "run-head" }, element("h2", { id: "run-title", tabIndex: -1, textContent: escapeControls(run.revision ? `${familyOf(run)}:${run.revision}` : familyOf(run)) }),
      element("p", { className: "note" }, outcomeCell(run), element("span", { textContent: asTime(run.began) }), ...links.map(([href, text]) => link(href, text)))),
    ...siblingsOf(run), verdictOf(run),
    ...(chart ? [element("div", { className: "plot-block" }, ...choice, ...chart.elements)] : [emptyNote("This page has no time series of this run: the run has none, or the page would be too long. For one run: task-profiler report --run ID")]),
    element("div", { className: "parts" }, ...momentsOf(run, chart), ...(drawnOther ? [section(`Compared with ${asTime(other.began)}`, comparisonTable(run, other))] : []), ...listSection("Warnings", run.warnings)),
    section("Numbers", facts(run)), ...kills(run),
    ...(run.processes ? [section("Processes", table(PROCESS_COLUMNS, run.processes, { label: "Processes" }))] : []),
    ...devices(run), ...sizePart(run),
    element("div", { className: "parts" }, ...listSection("Labels", run.labels), ...listSection("Tags", run.tags)),
  );
  chart?.draw();
}

function clearDetail() {
  detailed?.chart?.remove();
  detailed?.place.replaceChildren();
  detailed = undefined;
}
