// The night chart: a lane for each family, a bar for each run. Overlaps and gaps of schedules are visible at a glance.

const NIGHT_WIDTHS = { day: DAY, week: 7 * DAY };
const MIN_BAR_SHARE = 0.003;
const MAX_NIGHT_RUNS = 6000;
const night = { width: undefined, from: undefined };

// A day begins at noon, so that a night is in one piece.
const noonBefore = (localMs) => Math.floor((localMs - DAY / 2) / DAY) * DAY + DAY / 2;

function nightWindow(runs) {
  const starts = known(runs, (run) => run.began).map(local);
  if (!starts.length) return undefined;
  const first = starts.reduce((a, b) => Math.min(a, b)), last = max(starts);
  const width = night.width ?? (last - first > 1.5 * DAY ? "day" : "all");
  if (width === "all") {
    const end = max(runs.filter((run) => isKnown(run.began)).map((run) => local(run.began) + (run.ms ?? 0)));
    const padding = Math.max((end - first) * 0.02, MINUTE);
    return { width, from: first - padding, until: end + padding, first, last };
  }
  const length = NIGHT_WIDTHS[width];
  const latest = noonBefore(last) + DAY - length;
  const from = Math.min(Math.max(night.from ?? latest, noonBefore(first)), latest);
  return { width, from, until: from + length, first, last, hasEarlier: from > first, hasLater: from + length <= last };
}

function nightLanes(runs) {
  const { families, left } = largestFamilies(runs);
  const began = ([, familyRuns]) => familyRuns.reduce((least, run) => Math.min(least, run.began), Infinity);
  return { lanes: families.map((family) => [...family, began(family)]).sort((a, b) => a[2] - b[2]), left };
}

function drawNight(place, runs, onOpen) {
  const shown = nightWindow(runs);
  drawNightControls(shown);
  if (!shown) return drawNothing(place, "No run in this selection has a start time.");
  const all = runs.filter((run) => isKnown(run.began) && local(run.began) < shown.until && local(run.began) + (run.ms ?? 0) >= shown.from);
  const inside = all.slice(0, MAX_NIGHT_RUNS);
  const leftOut = all.length > inside.length ? ` The oldest ${all.length - inside.length} of ${all.length} runs in this time are not drawn: choose a shorter time or fewer families.` : "";
  byId("night-left-out").textContent = leftOut;
  if (!inside.length) return drawNothing(place, "No run of this selection was active in this time.");
  const { lanes, left } = nightLanes(inside);
  const rowOf = new Map(lanes.map(([family], row) => [family, row]));
  const least = (shown.until - shown.from) * MIN_BAR_SHARE;
  const traces = OUTCOMES.map((outcome) => {
    const bars = inside.filter((run) => run.outcome === outcome && rowOf.has(familyOf(run)));
    return {
      type: "bar", orientation: "h", name: outcome, base: bars.map((run) => local(run.began)), x: bars.map((run) => Math.max(run.ms ?? 0, least)),
      y: bars.map((run) => rowOf.get(familyOf(run))), width: 0.62, marker: { color: outcomeColour(outcome) }, opacity: 0.9, customdata: bars.map((run) => run.row), hoverinfo: "text",
      hovertext: bars.map((run) => `<b>${escapeHtml(familyOf(run))}</b><br>${asTime(run.began)}, ${asDuration(run.ms)}<br>${outcome}`),
    };
  }).filter((trace) => trace.y.length);
  const counts = traces.map((trace) => `${trace.y.length} ${trace.name}`).join(", ");
  const drawn = draw(place, `Runs from ${nightText(shown)} as bars, one lane for each of ${lanes.length} families: ${counts}.${left ? ` ${left} more families are not drawn.` : ""}${leftOut}`, traces, layout(Math.max(150, 78 + 24 * lanes.length), {
    barmode: "overlay", showlegend: true, margin: { l: 8, r: 14, t: 30, b: 34 }, hovermode: "closest",
    xaxis: { type: "date", range: [shown.from, shown.until], nticks: isNarrow() ? 4 : 12 },
    yaxis: { ...familyAxis(lanes.map(([family]) => family)), showgrid: false },
  }));
  place.removeAllListeners?.("plotly_click");
  place.on("plotly_click", ({ points }) => onOpen(content.runs[points[0].customdata]));
  return drawn;
}

const nightText = (shown) => {
  const text = (ms) => new Date(ms).toISOString().slice(0, 16).replace("T", " ");
  return `${text(shown.from)} to ${text(shown.until)}`;
};

function drawNightControls(shown) {
  const place = byId("night-controls");
  place.hidden = !shown;
  if (!shown) return;
  for (const choice of place.querySelectorAll("[data-width]")) choice.setAttribute("aria-pressed", String(choice.dataset.width === shown.width));
  for (const [id, has] of [["night-earlier", shown.hasEarlier], ["night-later", shown.hasLater]]) {
    byId(id).disabled = !has;
    byId(id).hidden = shown.width === "all";
  }
  byId("night-range").textContent = nightText(shown);
}

function startNight(redraw) {
  for (const choice of byId("night-controls").querySelectorAll("[data-width]")) {
    choice.onclick = () => { night.width = choice.dataset.width; night.from = undefined; redraw(); };
  }
  const move = (direction) => () => {
    const shown = nightWindow(filtered());
    night.width = shown.width;
    night.from = shown.from + direction * NIGHT_WIDTHS[shown.width];
    redraw();
  };
  byId("night-earlier").onclick = move(-1);
  byId("night-later").onclick = move(1);
}
