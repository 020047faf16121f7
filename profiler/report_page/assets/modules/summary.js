// The top of the overview: the sentence about the last night, the totals, and the families with failures.

import { content } from "#page/content.js";
import { breakable, byId, countCell, element, shortTable, withWholeWords } from "#page/elements.js";
import { asDuration, asTime, asWhole, UNKNOWN, upperFirst } from "#page/formats.js";
import { byOutcome, ENDED_AS, isFailed, isKilled, OUTCOMES, outcomeColour } from "#page/outcomes.js";
import { runLink } from "#page/run_dialog.js";
import { costText, cpuTimeText, familyOf } from "#page/run_values.js";
import { grouped, known, median } from "#page/statistics.js";
import { isOnPaper } from "#page/theme.js";
import { possibleSaving } from "#page/what_if_table.js";

const MAX_FAILED = 5; // so that the nights begin on the first screen

/**
 * Returns a note for a reader in another time zone than that of the computer that made the page: the night of the
 * sentence is that computer's.
 */
export function zoneNote({ start, end, begins, ends, zone }) {
  if (asTime(start) === begins && asTime(end) === ends) return "";
  return ` ${begins} to ${ends} ${zone}, the time zone of the computer that made this page.`;
}

// The sentence is text; what is added here are the links.
export function drawLastNight() {
  const { lastNight } = content;
  const place = byId("last-night");
  place.hidden = !lastNight;
  if (!lastNight) return;
  const pieceOf = ({ text, isNumber, run }) => {
    const opened = content.runs[run];
    if (opened) return runLink(opened, breakable(text));
    return isNumber ? element("b", { textContent: text }) : breakable(text);
  };
  const note = zoneNote(lastNight);
  place.replaceChildren(...lastNight.texts.map(pieceOf), ...(note ? [element("small", { textContent: note })] : []));
}

export function drawTiles(runs) {
  const counts = new Map(byOutcome(runs));
  const ended = runs.filter((run) => run.outcome !== "running");
  const families = grouped(runs, familyOf);
  const { saved, cost, asText } = possibleSaving(content.sizing.filter(({ family }) => families.has(family)));
  const isShown = (outcome) => counts.has(outcome) || ["success", "failure", "out of memory"].includes(outcome);
  const tiles = [
    ...OUTCOMES.filter(isShown).map((outcome) => [
      outcome === "out of memory" ? "Out of memory" : upperFirst(ENDED_AS[outcome]),
      asWhole(counts.get(outcome)?.length ?? 0),
      outcome,
    ]),
    ["Median duration", asDuration(median(known(ended, (run) => run.ms)))],
    ["CPU time", cpuTimeText(runs)],
  ];
  if (costText(runs)) tiles.push(["Cost of these runs", costText(runs)]);
  // Both are of a month, and of the families' last runs, as in `recommend`.
  if (saved > 0) tiles.push([`Possible saving a month, of ${asText(cost)}`, asText(saved)]);
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
        {
          name: "Last failure",
          className: "time",
          show: (row) => runLink(row.last, withWholeWords(asTime(row.last.began))),
        },
      ],
      families,
      { label: "Failures by family", most: isOnPaper() ? Infinity : MAX_FAILED },
    ),
  );
}
