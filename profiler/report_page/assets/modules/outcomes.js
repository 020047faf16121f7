// How runs end: the outcomes in the order of legends and lists, and their colours.

export const OUTCOMES = ["success", "failure", "out of memory", "stopped", "running", "unknown"];
/** What sentences and totals call the outcomes. */
export const ENDED_AS = {
  success: "succeeded",
  failure: "failed",
  "out of memory": "killed for memory",
  stopped: "stopped",
  running: "running",
  unknown: "unknown",
};
export const isKilled = (run) => run.outcome === "out of memory";
export const isFailed = (run) => run.outcome === "failure" || isKilled(run);

/** Returns the outcome's colour, one of the custom properties of page.css. */
export const outcomeColour = (outcome) => `var(--${outcome === "out of memory" ? "oom" : outcome})`;

/** What a list calls the end of a run: its outcome, or what failed of a GPU. */
export const endingOf = (run) => run.ending ?? run.outcome;

/** Counts runs by outcome: [outcome, runs], in the order of legends. */
export const byOutcome = (runs) =>
  OUTCOMES.map((outcome) => [outcome, runs.filter((run) => run.outcome === outcome)]).filter(
    ([, { length }]) => length,
  );
