// The top of the overview: the sentence about the last night, the totals, and the families with failures.

import { hasNight } from "#page/charts.js";
import { content } from "#page/content.js";
import { breakable, byId, countCell, element, shortTable } from "#page/elements.js";
import { asCount, asDuration, asTime, asUsd, escapeControls, isKnown, UNKNOWN, upperFirst } from "#page/formats.js";
import { byOutcome, ENDED_AS, isFailed, isKilled, OUTCOMES, outcomeColour } from "#page/outcomes.js";
import { runLink } from "#page/run_dialog.js";
import { asCpuTime, costText, familyOf } from "#page/run_values.js";
import { grouped, known, max, median, total } from "#page/statistics.js";
import { isOnPaper } from "#page/theme.js";
import { DAY, local, periodsOf, startText } from "#page/time_units.js";
import { possibleSaving } from "#page/what_if_table.js";

// In the order of the sentence: what needs a reader first.
const SENTENCE_ORDER = ["out of memory", "failure", "stopped", "unknown", "running", "success"];
const MAX_NAMED = 4;
const MAX_FAILED = 10;

/**
 * Returns the last night as { night, parts }; undefined if no run has a start time. A page of local runs has today.
 *
 * If nothing ran then, it is the newest night with runs, and `night` says so. A part is { text, families }: "1 failed",
 * and the newest of these runs of each family. A due time that was missed, and whose task did not come late, is
 * a part without runs.
 */
export function lastNight(runs, notices, nowMs) {
  const { unit, startOf, lastOf } = periodsOf(runs);
  const missedTimes = notices.filter(({ outcome, cameLate }) => outcome === "missed" && !cameLate);
  const starts = [...runs, ...missedTimes].filter(hasNight).map(({ began }) => startOf(local(began)));
  const last = lastOf(local(nowMs));
  const start = starts.includes(last) ? last : max(starts);
  if (!isKnown(start)) return undefined;
  const ofNight = ({ began }) => isKnown(began) && startOf(local(began)) === start;
  const outcomes = new Map(byOutcome(runs.filter(ofNight)));
  const parts = SENTENCE_ORDER.filter((outcome) => outcomes.has(outcome)).map((outcome) => {
    const some = outcomes.get(outcome);
    const families = outcome === "success" || outcome === "running" ? [] : [...grouped(some, familyOf)];
    return { text: `${some.length} ${ENDED_AS[outcome]}`, families };
  });
  const missed = missedTimes.filter(ofNight);
  if (missed.length) parts.unshift({ text: `${missed.length} missed`, families: [...grouped(missed, familyOf)] });
  const [name, of] = unit === "day" ? ["Today", ""] : ["Last night", "Night of "];
  const other = `Nothing ran ${name.toLowerCase()}. ${of}${startText(start, DAY)}`;
  return { night: start === last ? name : other, parts };
}

export function drawLastNight(runs, notices) {
  const found = lastNight(runs, notices, Date.now());
  const place = byId("last-night");
  place.hidden = !found;
  if (!found) return;
  const name = ([family, some]) => {
    const newest = some.reduce((a, b) => (b.began > a.began ? b : a));
    const text = escapeControls(family) + (some.length > 1 ? ` ×${some.length}` : "");
    return newest.text ? text : runLink(newest, text);
  };
  const named = ({ families }) => {
    const left = families.length - MAX_NAMED;
    const names = families.slice(0, MAX_NAMED).flatMap((family, at) => [at ? ", " : "", name(family)]);
    return names.length
      ? [" (", ...names, left > 0 ? ` and ${asCount(left, "more family", "more families")})` : ")"]
      : [];
  };
  place.replaceChildren(
    `${found.night}: `,
    ...found.parts.flatMap((part, at) => [at ? ", " : "", element("b", { textContent: part.text }), ...named(part)]),
  );
}

export function drawTiles(runs) {
  const counts = new Map(byOutcome(runs));
  const ended = runs.filter((run) => run.outcome !== "running");
  const cpuSeconds = known(runs, (run) => run.cpuSeconds);
  const families = grouped(runs, familyOf);
  const savings = known(content.sizing, (advice) => possibleSaving(families.get(advice.family) ?? [], advice));
  const isShown = (outcome) => counts.has(outcome) || ["success", "failure", "out of memory"].includes(outcome);
  const tiles = [
    ...OUTCOMES.filter(isShown).map((outcome) => [
      outcome === "out of memory" ? "Out of memory" : upperFirst(ENDED_AS[outcome]),
      counts.get(outcome)?.length ?? 0,
      outcome,
    ]),
    ["Median duration", asDuration(median(known(ended, (run) => run.ms)))],
    [
      "CPU time",
      cpuSeconds.length
        ? asCpuTime(
            total(cpuSeconds),
            runs.find((run) => run.cpuPartial),
          )
        : UNKNOWN,
    ],
  ];
  if (costText(runs)) tiles.push(["Cost of these runs", costText(runs)]);
  if (total(savings)) tiles.push(["Possible saving on them", asUsd(total(savings))]);
  byId("tiles").replaceChildren(
    ...tiles.map(([name, value, outcome]) =>
      element(
        "div",
        { className: "tile" },
        element("b", { textContent: value }),
        element("span", {
          textContent: name,
          className: outcome ? "outcome" : "",
          style: outcome ? { "--dot": outcomeColour(outcome) } : {},
        }),
      ),
    ),
  );
}

// The families with the newest failures come first. Each names its newest failure, which is a link.
export function drawFailures(runs) {
  const failed = runs.filter(isFailed);
  byId("failed").hidden = !failed.length;
  const all = grouped(runs, familyOf);
  const families = [...grouped(failed, familyOf)]
    .map(([family, failedRuns]) => ({
      family,
      runs: all.get(family).length,
      killed: failedRuns.filter(isKilled).length,
      failed: failedRuns.filter((run) => !isKilled(run)).length,
      codes: [...new Set(known(failedRuns, (run) => run.exit))],
      last: failedRuns.reduce((a, b) => ((b.began ?? 0) > (a.began ?? 0) ? b : a)),
    }))
    .sort((a, b) => (b.last.began ?? 0) - (a.last.began ?? 0));
  byId("failures").replaceChildren(
    ...shortTable(
      [
        { name: "Family", className: "family", show: (row) => breakable(row.family) },
        { name: "Out of memory", className: "number", show: (row) => countCell(row.killed, "oom") },
        { name: "Failed", className: "number", show: (row) => countCell(row.failed, "failure") },
        { name: "Runs", className: "number", show: (row) => String(row.runs) },
        {
          name: "Exit codes",
          className: "wide",
          show: (row) => row.codes.slice(0, 8).join(", ") + (row.codes.length > 8 ? ", …" : "") || UNKNOWN,
        },
        { name: "Last failure", className: "time", show: (row) => runLink(row.last, asTime(row.last.began)) },
      ],
      families,
      { label: "Failures by family", most: isOnPaper() ? Infinity : MAX_FAILED },
    ),
  );
}
