// The totals at the top of the overview.

import { content } from "#page/content.js";
import { byId, element } from "#page/elements.js";
import { asDuration, asPercent, asUsd, UNKNOWN } from "#page/formats.js";
import { isFailed, isKilled } from "#page/outcomes.js";
import { familyOf, shareOf, usdByTask } from "#page/run_values.js";
import { grouped, known, median, total } from "#page/statistics.js";
import { possibleSaving } from "#page/what_if_table.js";

export function drawTiles(runs) {
  const failed = runs.filter(isFailed).length;
  const killed = runs.filter(isKilled).length;
  const ended = runs.filter((run) => run.outcome !== "running");
  const succeeded = runs.filter((run) => run.outcome === "success").length;
  const durations = known(ended, (run) => run.ms);
  const usd = usdByTask(runs);
  const cpuSeconds = known(runs, (run) => run.cpuSeconds);
  const families = grouped(runs, familyOf);
  const savings = known(content.sizing, (advice) => possibleSaving(families.get(advice.family) ?? [], advice));
  const tiles = [
    ["Runs", runs.length],
    ["Succeeded", asPercent(shareOf(succeeded, ended.length))],
    ["Failed", failed, failed],
    ["Out of memory", killed, killed],
    ["Median duration", asDuration(median(durations))],
    ["CPU time", cpuSeconds.length ? asDuration(1000 * total(cpuSeconds)) : UNKNOWN],
  ];
  if (usd.length) tiles.push(["Cost of these runs", asUsd(total(usd))]);
  if (total(savings)) tiles.push(["Possible saving on them", asUsd(total(savings))]);
  byId("tiles").replaceChildren(
    ...tiles.map(([name, value, bad]) =>
      element(
        "div",
        { className: "tile" },
        element("b", { className: bad ? "bad" : "", textContent: value }),
        element("span", { textContent: name }),
      ),
    ),
  );
}
