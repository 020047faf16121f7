// The table of families with failed runs.

import { breakable, byId, emphasizedCount, emptyNote, NO_MATCH, table } from "#page/elements.js";
import { asTime, UNKNOWN } from "#page/formats.js";
import { isFailed, isKilled } from "#page/outcomes.js";
import { runLink } from "#page/run_dialog.js";
import { familyOf } from "#page/run_values.js";
import { grouped, known } from "#page/statistics.js";

export function drawFailures(runs) {
  const failed = runs.filter(isFailed);
  const place = byId("failures");
  if (!failed.length)
    return place.replaceChildren(emptyNote(runs.length ? "No run in this selection has failed." : NO_MATCH));
  const all = grouped(runs, familyOf);
  const families = [...grouped(failed, familyOf)]
    .map(([family, failedRuns]) => ({
      family,
      failed: failedRuns.length,
      runs: all.get(family).length,
      killed: failedRuns.filter(isKilled).length,
      codes: [...new Set(known(failedRuns, (run) => run.exit))],
      last: failedRuns.reduce((a, b) => ((b.began ?? 0) > (a.began ?? 0) ? b : a)),
    }))
    .sort((a, b) => b.killed - a.killed || b.failed - a.failed);
  return place.replaceChildren(
    table(
      [
        { name: "Family", className: "family", show: (row) => breakable(row.family) },
        { name: "Failed", className: "number", show: (row) => `${row.failed} of ${row.runs}` },
        { name: "Out of memory", className: "number", show: (row) => emphasizedCount(row.killed) },
        {
          name: "Exit codes",
          className: "wide",
          show: (row) => row.codes.slice(0, 8).join(", ") + (row.codes.length > 8 ? ", …" : "") || UNKNOWN,
        },
        { name: "Last failure", className: "time", show: (row) => runLink(row.last, asTime(row.last.began)) },
      ],
      families,
      { label: "Failures by family" },
    ),
  );
}
