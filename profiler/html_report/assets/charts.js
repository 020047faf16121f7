// The charts. Plotly takes some HTML in its texts: whatever comes from a record goes through label().

const label = (text, length = 60) =>
  cut(text, length).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const OUTCOMES = ["success", "failure", "out of memory", "stopped", "running", "unknown"];
const COLOUR_OF = { "out of memory": "oom" };
const outcomeColour = (outcome) => colour(COLOUR_OF[outcome] ?? outcome);
const CONFIG = { displayModeBar: false, responsive: true, showTips: false };
const MOST_ROWS = 30;
const isNarrow = () => window.innerWidth <= 640;
const charts = new Set();

function layout(height, more) {
  const axis = { gridcolor: colour("line"), linecolor: colour("line"), zerolinecolor: colour("line"), automargin: true };
  return {
    height, margin: { l: 8, r: 10, t: 8, b: 34 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("text"), size: 12, family: "system-ui, sans-serif" },
    hoverlabel: { align: "left", bgcolor: colour("panel"), bordercolor: colour("line"), font: { color: colour("text") } },
    legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0 }, dragmode: false, ...more,
    xaxis: { ...axis, fixedrange: true, ...more.xaxis }, yaxis: { ...axis, fixedrange: true, ...more.yaxis },
  };
}

function draw(place, traces, arrangement) {
  if (place.dataset.empty) { place.textContent = ""; delete place.dataset.empty; }
  charts.add(place);
  place.style.minHeight = `${arrangement.height}px`;
  return Plotly.react(place, traces, arrangement, CONFIG);
}

function drawNothing(place, sentence) {
  if (charts.delete(place)) Plotly.purge(place);
  place.replaceChildren(element("p", { className: "empty", textContent: sentence }));
  place.dataset.empty = "yes";
  place.style.minHeight = "";
}

// Rows are numbers, so that families named "1" or "2026-01-01" are not taken for numbers or days.
function rows(names) {
  const length = isNarrow() ? 14 : 26;
  return { tickvals: names.map((_, row) => row), ticktext: names.map((name) => label(name, length)), range: [names.length - 0.5, -0.5], showgrid: false, zeroline: false, ticks: "" };
}

function busiest(runs) {
  const families = [...grouped(runs, familyOf)].sort((a, b) => b[1].length - a[1].length || (a[0] < b[0] ? -1 : 1));
  return { families: families.slice(0, MOST_ROWS), left: Math.max(families.length - MOST_ROWS, 0) };
}

function drawHeat(place, runs, buckets, { of, colours, what }) {
  const measured = runs.filter((run) => isKnown(of(run)) && isKnown(run.began));
  if (!measured.length) return drawNothing(place, `No run here has a measured ${what} percentage.`);
  const { families, left } = busiest(measured);
  const z = [], text = [];
  for (const [family, its] of families) {
    const cells = grouped(its, buckets.of);
    z.push(buckets.starts.map((_, bucket) => (cells.has(bucket) ? mean(cells.get(bucket).map(of)) : null)));
    text.push(buckets.starts.map((start, bucket) => {
      const inside = cells.get(bucket);
      if (!inside) return "";
      const killed = inside.filter((run) => run.outcome === "out of memory").length;
      return `<b>${label(family)}</b><br>${bucketText(start, buckets.width)}<br>${asPercent(mean(inside.map(of)))} ${what}, runs: ${inside.length}`
        + (killed ? `<br>out of memory: ${killed}` : "");
    }));
  }
  const note = left ? [{ text: `${left} families with fewer runs are not drawn: choose one above.`, showarrow: false, xref: "paper", yref: "paper", x: 0, y: 0, yanchor: "top", yshift: -24, font: { size: 11, color: colour("faint") } }] : [];
  const scale = colours.map((name, step) => [step / (colours.length - 1), colour(name)]);
  return draw(place, [{
    // Edges, not middles: Plotly would draw a single column 1 ms wide.
    type: "heatmap", x: [...buckets.starts, buckets.starts.at(-1) + buckets.width], y: [...families.map((_, row) => row - 0.5), families.length - 0.5], z, text,
    hoverinfo: "text", hoverongaps: false, zmin: 0, zmax: 100, zauto: false, xgap: 1.5, ygap: 1.5, colorscale: scale,
    colorbar: { thickness: 9, outlinewidth: 0, ticksuffix: " %", tickvals: [0, 25, 50, 75, 100], len: 1, xpad: 4 },
  }], layout(Math.max(150, 60 + 26 * families.length), {
    annotations: note, margin: { l: 8, r: 8, t: 6, b: left ? 52 : 34 },
    xaxis: { type: "date", range: timeRange(buckets), showgrid: false, nticks: isNarrow() ? 4 : 8 }, yaxis: rows(families.map(([name]) => name)),
  }));
}

function timeRange(buckets) {
  const first = buckets.starts[0], last = buckets.starts.at(-1) + buckets.width;
  const short = Math.max(0, 8 * buckets.width - (last - first)) / 2;
  return [first - short, last + short];
}

function drawCount(place, runs, buckets) {
  if (!buckets.starts.length) return drawNothing(place, "No run here has a time.");
  const traces = OUTCOMES.map((outcome) => {
    const counts = buckets.starts.map(() => 0);
    for (const run of runs) if (run.outcome === outcome && isKnown(run.began)) counts[buckets.of(run)] += 1;
    return {
      type: "bar", name: outcome, x: buckets.starts.map((start) => start + buckets.width / 2), y: counts, width: buckets.width * 0.86,
      marker: { color: outcomeColour(outcome) }, hoverinfo: "text",
      hovertext: buckets.starts.map((start, bucket) => `${bucketText(start, buckets.width)}<br>${outcome}: ${counts[bucket]}`),
    };
  }).filter((trace) => trace.y.some((count) => count));
  return draw(place, traces, layout(300, {
    barmode: "stack", showlegend: true, margin: { l: 8, r: 10, t: 30, b: 34 },
    xaxis: { type: "date", range: timeRange(buckets), showgrid: false, nticks: isNarrow() ? 4 : 8 }, yaxis: { rangemode: "tozero", tickformat: ",d", nticks: 6 },
  }));
}

const DURATION_TICKS = [1, 10, 100, 1000, 10e3, MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY];
const shortDuration = (ms) => (ms < 1000 ? `${ms} ms` : ms < MINUTE ? `${ms / 1000} s` : ms < HOUR ? `${ms / MINUTE} min` : ms < DAY ? `${ms / HOUR} h` : `${ms / DAY} d`);

function drawDuration(place, runs) {
  const measured = runs.filter((run) => isKnown(run.ms) && run.outcome !== "running");
  if (!measured.length) return drawNothing(place, "No run here has a measured duration.");
  const { families } = busiest(measured);
  const middle = families.map(([, its]) => quantile(its.map((run) => run.ms), 0.5));
  const high = families.map(([, its]) => quantile(its.map((run) => run.ms), 0.95));
  const y = families.map((_, row) => row);
  const hovertext = families.map(([family, its], row) => `<b>${label(family)}</b><br>median ${asDuration(middle[row])}, p95 ${asDuration(high[row])}<br>runs: ${its.length}`);
  const log = (ms) => Math.log10(Math.max(ms, 1));
  const low = Math.min(...middle.map(log)) - 0.15, top = Math.max(...high.map(log)) + 0.15;
  const x = [], lineY = [];
  y.forEach((row) => { x.push(Math.max(middle[row], 1), Math.max(high[row], 1), null); lineY.push(row, row, null); });
  const points = (name, values, symbol, fill) => ({ type: "scatter", mode: "markers", name, x: values.map((ms) => Math.max(ms, 1)), y, hoverinfo: "text", hovertext, marker: { size: 10, symbol, color: fill } });
  return draw(place, [
    { type: "scatter", mode: "lines", x, y: lineY, line: { color: colour("line"), width: 4 }, hoverinfo: "skip", showlegend: false },
    points("median", middle, "circle", colour("accent")), points("p95", high, "diamond", colour("failure")),
  ], layout(Math.max(300, 70 + 26 * families.length), {
    margin: { l: 8, r: 10, t: 30, b: 34 }, showlegend: true,
    xaxis: { type: "log", range: [low, top], tickvals: DURATION_TICKS, ticktext: DURATION_TICKS.map(shortDuration), zeroline: false, tickangle: 0 },
    yaxis: rows(families.map(([name]) => name)),
  }));
}

// One run: what it used in the step that ends at each point. A chart for each kind of number that was measured.
const COURSES = [
  { id: "cpu", title: (run) => (hasVcpuSize(run) ? "CPU, in % of the vCPU size" : "CPU"), columns: ["vcpu"], draw: drawCpu },
  { id: "memory", title: () => "Memory", columns: ["mb"], draw: drawMemory },
  { id: "io", title: () => "I/O: read and written", columns: ["read", "written"], draw: drawIo },
  { id: "gpu", title: () => "GPU", columns: ["gpu", "gpuMb"], draw: drawGpu },
];
const hasVcpuSize = (run) => isKnown(run.vcpuSize) && run.vcpuSize > 0;
const coursesOf = (run) => COURSES.filter(({ columns }) => columns.some((name) => run.course?.[name]));
const TIME_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10e3, 15e3, 30e3, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 20 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR];
const COURSE_MARGIN = { l: 8, r: 14, t: 26, b: 30 };
// GPUs are read once a second, beside the samples: a reading holds until the next, but not over a failure.
const GPU_HOLDS_MS = 3000;

function timeAxis(run) {
  const end = Math.max(run.course.ms.at(-1), run.outcome === "running" ? 0 : (run.ms ?? 0), 1);
  const step = TIME_STEPS.find((one) => end / one <= (isNarrow() ? 4 : 9)) ?? Math.ceil(end / 6 / DAY) * DAY;
  const tickvals = [];
  for (let at = 0; at <= end; at += step) tickvals.push(at);
  return { range: [0, end], tickvals, ticktext: tickvals.map((at) => (at ? asDuration(at) : "0")), tickangle: 0 };
}

function line(ms, values, name, fill, text, more = {}) {
  const x = [0, ...ms], y = [values[0], ...values];
  return {
    type: "scatter", mode: "lines", name, x, y, line: { color: fill, width: 1.8, shape: "vh" }, fill: "tozeroy", fillcolor: `${fill}26`,
    hoverinfo: "text", hovertext: x.map((at, point) => `${asDuration(at)}<br>${text(y[point])}`), connectgaps: false, ...more,
  };
}

const upTo = (values, least, room) => [0, Math.max(least, ...values.filter(isKnown)) * room];

function drawCpu(place, run) {
  const inPercent = hasVcpuSize(run);
  const cpu = run.course.vcpu.map((vcpu) => (isKnown(vcpu) && inPercent ? (100 * vcpu) / run.vcpuSize : vcpu));
  return draw(place, [line(run.course.ms, cpu, "CPU", colour("accent"), inPercent ? asPercent : (vcpu) => `${asVcpu(vcpu)} vCPU`)], layout(210, {
    margin: COURSE_MARGIN, xaxis: timeAxis(run), showlegend: false,
    yaxis: { range: upTo(cpu, inPercent ? 105 : 1, 1.03), ticksuffix: inPercent ? " %" : " vCPU", nticks: 6 },
  }));
}

function drawMemory(place, run) {
  const memory = run.course.mb, xaxis = timeAxis(run);
  const traces = [line(run.course.ms, memory, "memory", colour("failure"), asMemory)];
  if (isKnown(run.size)) {
    traces.push({ type: "scatter", mode: "lines", name: `limit ${asMemory(run.size)}`, x: xaxis.range, y: [run.size, run.size], hoverinfo: "name", line: { color: colour("oom"), width: 2, dash: "dash" } });
  }
  return draw(place, traces, layout(230, {
    margin: COURSE_MARGIN, xaxis, showlegend: true, yaxis: { range: upTo([...memory, run.size], 1, 1.08), ticksuffix: " MB", nticks: 6 },
  }));
}

function drawIo(place, run) {
  const { ms, read, written } = run.course;
  const traces = [];
  // A rate is that since the bytes were last known.
  if (read) traces.push(line(...held(ms, read, Infinity), "read", colour("accent"), (rate) => `read ${asRate(rate)}`));
  if (written) traces.push(line(...held(ms, written, Infinity), "written", colour("failure"), (rate) => `written ${asRate(rate)}`));
  return draw(place, traces, layout(210, {
    margin: COURSE_MARGIN, xaxis: timeAxis(run), showlegend: true,
    yaxis: { range: upTo([...(read ?? []), ...(written ?? [])], 0.001, 1.08), ticksuffix: " MB/s", nticks: 6 },
  }));
}

// What is known of a step reaches back to the last that was known, if that is no longer ago than it may be.
function held(ms, values, longestMs) {
  const kept = [];
  let known = 0, waiting = [];
  values.forEach((value, place) => {
    if (!isKnown(value)) { waiting.push(place); return; }
    if (ms[place] - known > longestMs) kept.push(...waiting);
    kept.push(place);
    known = ms[place];
    waiting = [];
  });
  kept.push(...waiting);
  return [kept.map((place) => ms[place]), kept.map((place) => values[place])];
}

function drawGpu(place, run) {
  const { ms, gpu, gpuMb } = run.course;
  const traces = [];
  if (gpu) traces.push(line(...held(ms, gpu, GPU_HOLDS_MS), "utilization, mean of the GPUs", colour("accent"), asPercent));
  if (gpuMb) traces.push(line(...held(ms, gpuMb, GPU_HOLDS_MS), "memory of all GPUs", colour("failure"), asMemory, { yaxis: gpu ? "y2" : "y", fill: "none" }));
  const percents = { range: upTo(gpu ?? [], 105, 1.03), ticksuffix: " %", nticks: 6 };
  const memory = { range: upTo([...(gpuMb ?? []), total(known(run.gpus ?? [], (one) => one.size))], 1, 1.08), ticksuffix: " MB", nticks: 6 };
  return draw(place, traces, layout(230, {
    margin: COURSE_MARGIN, xaxis: timeAxis(run), showlegend: true, yaxis: gpu ? percents : memory,
    ...(gpu && gpuMb ? { yaxis2: { ...memory, tickmode: "auto", overlaying: "y", side: "right", showgrid: false, fixedrange: true, automargin: true } } : {}),
  }));
}
