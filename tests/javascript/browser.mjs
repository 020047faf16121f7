// What the figures need of a browser: a width, and colours, which are their own names here.

import { content } from "../../profiler/report_page/assets/modules/content.js";

content.scale = { drawnLimit: 0.3, nearLimit: 0.9, vcpu: 0.1, mb: 1 };
globalThis.window = { innerWidth: 1280 };
globalThis.document = { documentElement: {} };
globalThis.getComputedStyle = () => ({ getPropertyValue: (name) => name.slice(2) });
process.env.TZ = "UTC";

export const HOUR = 3600e3;
export const START = Date.UTC(2026, 10, 20, 6);

/** Returns a run that began some hours after START. */
export const runAt = (hours, fields = {}) => ({
  id: `task-${hours}`,
  family: "etl",
  outcome: "success",
  began: START + hours * HOUR,
  ms: 60e3,
  row: hours,
  ...fields,
});
