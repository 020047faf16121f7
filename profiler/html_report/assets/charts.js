// The charts. Plotly interprets some HTML in its texts, so every text from a record goes through escapeHtml().

const escapeHtml = (text, maxLength = 60) =>
  truncate(text, maxLength).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const OUTCOMES = ["success", "failure", "out of memory", "stopped", "running", "unknown"];
const COLOUR_OF = { "out of memory": "oom" };
const outcomeColour = (outcome) => colour(COLOUR_OF[outcome] ?? outcome);
const CONFIG = { displayModeBar: false, responsive: true, showTips: false };
const MAX_ROWS = 30;
const isNarrow = () => window.innerWidth <= 640;
const MIN_SHOWN_BUCKETS = 8;
const charts = new Set();

function layout(height, changes) {
  const axis = { gridcolor: colour("line"), linecolor: colour("line"), zerolinecolor: colour("line"), automargin: true };
  return {
    height, margin: { l: 8, r: 10, t: 8, b: 34 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("text"), size: 12, family: "system-ui, sans-serif" },
    hoverlabel: { align: "left", bgcolor: colour("panel"), bordercolor: colour("line"), font: { color: colour("text") } },
    legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0 }, dragmode: false, ...changes,
    xaxis: { ...axis, fixedrange: true, ...changes.xaxis }, yaxis: { ...axis, fixedrange: true, ...changes.yaxis },
  };
}

function draw(place, label, traces, plotLayout, config = CONFIG) {
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", label);
  if (place.dataset.empty) { place.textContent = ""; delete place.dataset.empty; }
  charts.add(place);
  place.style.minHeight = `${plotLayout.height}px`;
  return Plotly.react(place, traces, plotLayout, config);
}

function drawNothing(place, sentence) {
  if (charts.delete(place)) Plotly.purge(place);
  for (const name of ["role", "aria-label"]) place.removeAttribute(name);
  place.replaceChildren(element("p", { className: "empty", textContent: sentence }));
  place.dataset.empty = "yes";
  place.style.minHeight = "";
}

// The axis is numeric: Plotly would parse families named "1" or "2026-01-01" as numbers or dates.
function familyAxis(names) {
  const maxLength = isNarrow() ? 14 : 26;
  return { tickvals: names.map((_, row) => row), ticktext: names.map((name) => escapeHtml(name, maxLength)), range: [names.length - 0.5, -0.5], showgrid: false, zeroline: false, ticks: "" };
}

function largestFamilies(runs) {
  const families = [...grouped(runs, familyOf)].sort((a, b) => b[1].length - a[1].length || (a[0] < b[0] ? -1 : 1));
  return { families: families.slice(0, MAX_ROWS), left: Math.max(families.length - MAX_ROWS, 0) };
}

function drawHeat(place, runs, buckets, { of, colours, what }) {
  const measured = runs.filter((run) => isKnown(of(run)) && isKnown(run.began));
  if (!measured.length) return drawNothing(place, `No run in this selection has a measured ${what} percentage.`);
  const { families, left } = largestFamilies(measured);
  const z = [], text = [];
  for (const [family, familyRuns] of families) {
    const cells = grouped(familyRuns, buckets.of);
    z.push(buckets.starts.map((_, bucket) => (cells.has(bucket) ? mean(cells.get(bucket).map(of)) : null)));
    text.push(buckets.starts.map((start, bucket) => {
      const inside = cells.get(bucket);
      if (!inside) return "";
      const killed = inside.filter((run) => run.outcome === "out of memory").length;
      return `<b>${escapeHtml(family)}</b><br>${bucketText(start, buckets.width)}<br>${asPercent(mean(inside.map(of)))} ${what}, runs: ${inside.length}`
        + (killed ? `<br>out of memory: ${killed}` : "");
    }));
  }
  const note = left ? [{ text: `${left} families with fewer runs are not drawn: select a family above.`, showarrow: false, xref: "paper", yref: "paper", x: 0, y: 0, yanchor: "top", yshift: -24, font: { size: 11, color: colour("faint") } }] : [];
  const scale = colours.map((name, step) => [step / (colours.length - 1), colour(name)]);
  return draw(place, `Heatmap of the mean ${what} use of ${families.length} families over time. The table of runs has the numbers.`, [{
    // Edges of the cells, not centres: with centres, Plotly draws a single column 1 ms wide.
    type: "heatmap", x: [...buckets.starts, buckets.starts.at(-1) + buckets.width], y: [...families.map((_, row) => row - 0.5), families.length - 0.5], z, text,
    hoverinfo: "text", hoverongaps: false, zmin: 0, zmax: 100, zauto: false, xgap: 1.5, ygap: 1.5, colorscale: scale,
    colorbar: { thickness: 9, outlinewidth: 0, tickvals: [0, 25, 50, 75, 100], ticktext: ["0 %", "25 %", "50 %", "75 %", "100 %"], len: 1, xpad: 4 },
  }], layout(Math.max(150, 60 + 26 * families.length), {
    annotations: note, margin: { l: 8, r: 8, t: 6, b: left ? 52 : 34 },
    xaxis: { type: "date", range: timeRange(buckets), showgrid: false, nticks: isNarrow() ? 4 : 8 }, yaxis: familyAxis(families.map(([name]) => name)),
  }));
}

function timeRange(buckets) {
  const first = buckets.starts[0], last = buckets.starts.at(-1) + buckets.width;
  const padding = Math.max(0, MIN_SHOWN_BUCKETS * buckets.width - (last - first)) / 2;
  return [first - padding, last + padding];
}

function drawCount(place, runs, buckets) {
  if (!buckets.starts.length) return drawNothing(place, "No run in this selection has a start time.");
  const traces = OUTCOMES.map((outcome) => {
    const counts = buckets.starts.map(() => 0);
    for (const run of runs) if (run.outcome === outcome && isKnown(run.began)) counts[buckets.of(run)] += 1;
    return {
      type: "bar", name: outcome, x: buckets.starts.map((start) => start + buckets.width / 2), y: counts, width: buckets.width * 0.86,
      marker: { color: outcomeColour(outcome) }, hoverinfo: "text",
      hovertext: buckets.starts.map((start, bucket) => `${bucketText(start, buckets.width)}<br>${outcome}: ${counts[bucket]}`),
    };
  }).filter((trace) => trace.y.some((count) => count));
  return draw(place, `Number of runs over time by outcome: ${traces.map((trace) => `${total(trace.y)} ${trace.name}`).join(", ")}.`, traces, layout(300, {
    barmode: "stack", showlegend: true, margin: { l: 8, r: 10, t: 30, b: 34 },
    xaxis: { type: "date", range: timeRange(buckets), showgrid: false, nticks: isNarrow() ? 4 : 8 }, yaxis: { rangemode: "tozero", tickformat: ",d", nticks: 6 },
  }));
}

const DURATION_TICKS = [1, 10, 100, 1000, 10e3, MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY];

function drawDuration(place, runs) {
  const measured = runs.filter((run) => isKnown(run.ms) && run.outcome !== "running");
  if (!measured.length) return drawNothing(place, "No run in this selection has a measured duration.");
  const { families } = largestFamilies(measured);
  const medians = families.map(([, familyRuns]) => quantile(familyRuns.map((run) => run.ms), 0.5));
  const p95s = families.map(([, familyRuns]) => quantile(familyRuns.map((run) => run.ms), 0.95));
  const y = families.map((_, row) => row);
  const hovertext = families.map(([family, familyRuns], row) => `<b>${escapeHtml(family)}</b><br>median ${asDuration(medians[row])}, p95 ${asDuration(p95s[row])}<br>runs: ${familyRuns.length}`);
  const log = (ms) => Math.log10(Math.max(ms, 1));
  const low = Math.min(...medians.map(log)) - 0.15, high = Math.max(...p95s.map(log)) + 0.15;
  const x = [], lineY = [];
  y.forEach((row) => { x.push(Math.max(medians[row], 1), Math.max(p95s[row], 1), null); lineY.push(row, row, null); });
  const points = (name, values, symbol, fill) => ({ type: "scatter", mode: "markers", name, x: values.map((ms) => Math.max(ms, 1)), y, hoverinfo: "text", hovertext, marker: { size: 10, symbol, color: fill } });
  return draw(place, `Median and 95th percentile of the duration of ${families.length} families. The table of runs has the numbers.`, [
    { type: "scatter", mode: "lines", x, y: lineY, line: { color: colour("line"), width: 4 }, hoverinfo: "skip", showlegend: false },
    points("median", medians, "circle", colour("cpu")), points("p95", p95s, "diamond", colour("memory")),
  ], layout(Math.max(300, 70 + 26 * families.length), {
    margin: { l: 8, r: 10, t: 30, b: 34 }, showlegend: true,
    xaxis: { type: "log", range: [low, high], tickvals: DURATION_TICKS, ticktext: DURATION_TICKS.map(asWholeDuration), zeroline: false, tickangle: 0 },
    yaxis: familyAxis(families.map(([name]) => name)),
  }));
}
