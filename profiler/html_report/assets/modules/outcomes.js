// How runs end: the outcomes in the order of legends and lists, and their colours.

export const OUTCOMES = ["success", "failure", "out of memory", "stopped", "running", "unknown"];
export const isKilled = (run) => run.outcome === "out of memory";
export const isFailed = (run) => run.outcome === "failure" || isKilled(run);

/** Returns the name of the outcome's colour among the custom properties of page.css. */
export const colourName = (outcome) => (outcome === "out of memory" ? "oom" : outcome);
