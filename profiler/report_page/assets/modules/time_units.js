// Times in the reader's time zone, and the units of time in milliseconds.

export const MINUTE = 60e3;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

// The local time written as UTC: at the end of summer time, one hour occurs twice and the order differs from UTC's.
export const local = (ms) => ms - new Date(ms).getTimezoneOffset() * MINUTE;

/** Returns the noon, in local time, before a local time: a night lasts from noon to noon, so it is in one piece. */
export const noonBefore = (localMs) => Math.floor((localMs - DAY / 2) / DAY) * DAY + DAY / 2;
const midnightBefore = (localMs) => Math.floor(localMs / DAY) * DAY;

const NIGHTS = { unit: "night", startOf: noonBefore };
const DAYS = { unit: "day", startOf: midnightBefore };

/** Returns the periods in which the runs are counted: nights, or the days of a developer's machine. */
export const periodsOf = (runs) => (runs.every(({ launch }) => launch === "LOCAL") ? DAYS : NIGHTS);

/** Returns a local time as text: a day's date, or a date and a time for what is shorter. */
export const startText = (localMs, length) =>
  new Date(localMs)
    .toISOString()
    .slice(0, length < DAY ? 16 : 10)
    .replace("T", " ");
