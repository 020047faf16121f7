// Numbers as people read them, and what is worked out from many. What was not measured is undefined and shown as "–".

const UNKNOWN = "–";
const isKnown = (value) => value !== undefined && value !== null;
const pad = (number) => String(number).padStart(2, "0");

function asDuration(ms) {
  if (!isKnown(ms)) return UNKNOWN;
  if (ms < 1000) return `${Math.floor(ms)} ms`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${pad(seconds % 60)}s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h ${pad(Math.floor((seconds % 3600) / 60))}m`;
  return `${Math.floor(seconds / 86400)}d ${pad(Math.floor((seconds % 86400) / 3600))}h`;
}

function asMemory(mb) {
  if (!isKnown(mb)) return UNKNOWN;
  return Math.round(mb) < 1024 ? `${mb.toFixed(0)} MB` : `${(mb / 1024).toFixed(1)} GB`;
}

const asBytes = (bytes) => (isKnown(bytes) ? asMemory(bytes / 1048576) : UNKNOWN);
const asRate = (mbPerSecond) => (isKnown(mbPerSecond) ? `${Number(mbPerSecond.toPrecision(3))} MB/s` : UNKNOWN);
const asPercent = (percent) => (isKnown(percent) ? `${percent.toFixed(percent < 9.95 ? 1 : 0)} %` : UNKNOWN);
const asSaving = (percent) => (isKnown(percent) ? `${percent.toFixed(0)} %` : UNKNOWN);
const asVcpu = (vcpu) => (isKnown(vcpu) ? String(Number(vcpu.toFixed(2))) : UNKNOWN);
const asUsd = (usd) => (isKnown(usd) ? `$${usd.toFixed(usd < 1 ? 4 : 2)}` : UNKNOWN);

function asTime(ms) {
  if (!isKnown(ms)) return UNKNOWN;
  const date = new Date(ms);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${pad(date.getHours())}:${pad(date.getMinutes())}`;
}

// Control characters and those that turn the direction of writing are spelled out.
const shown = (text) =>
  String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
const cut = (text, most) => {
  const characters = [...shown(text)];
  return characters.length > most ? `${characters.slice(0, most - 1).join("")}…` : characters.join("");
};
const familyOf = (run) => run.family ?? UNKNOWN;

const known = (runs, of) => runs.map(of).filter(isKnown);
const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : undefined);
const most = (values) => (values.length ? values.reduce((a, b) => (a > b ? a : b)) : undefined);
const total = (values) => values.reduce((sum, value) => sum + value, 0);

// Between neighbours as numpy does it.
function quantile(values, share) {
  if (!values.length) return undefined;
  const sorted = [...values].sort((a, b) => a - b);
  const place = (sorted.length - 1) * share;
  const low = Math.floor(place);
  return sorted[low] + (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]) * (place - low);
}

function grouped(runs, keyOf) {
  const groups = new Map();
  for (const run of runs) {
    const key = keyOf(run);
    if (groups.has(key)) groups.get(key).push(run);
    else groups.set(key, [run]);
  }
  return groups;
}

// --- time ------------------------------------------------------------------------------------

const MINUTE = 60e3, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const WIDTHS = [MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 28 * DAY];
const MOST_BUCKETS = 48;

// Bucket starts in local time: "days" are the reader's days.
function bucketsOf(runs) {
  // A local time, written as if it were UTC: in autumn an hour comes twice, so the order is not that of UTC.
  const local = (ms) => ms - new Date(ms).getTimezoneOffset() * MINUTE;
  let first = Infinity, last = -Infinity;
  for (const run of runs) {
    if (!isKnown(run.began)) continue;
    first = Math.min(first, local(run.began));
    last = Math.max(last, local(run.began));
  }
  if (first > last) return { width: HOUR, starts: [], of: () => undefined };
  const width = WIDTHS.find((one) => (last - first) / one < MOST_BUCKETS - 1)
    ?? Math.ceil((last - first) / (MOST_BUCKETS - 1) / DAY) * DAY;
  const floor = (ms) => Math.floor(ms / width) * width;
  const starts = [];
  for (let start = floor(first); start <= floor(last); start += width) starts.push(start);
  return { width, starts, of: (run) => (isKnown(run.began) ? Math.round((floor(local(run.began)) - starts[0]) / width) : undefined) };
}

const widthText = (width) => (width < HOUR ? `${width / MINUTE} min` : width < DAY ? `${width / HOUR} h` : width === DAY ? "day" : `${width / DAY} days`);
const bucketText = (start, width) => new Date(start).toISOString().slice(0, width < DAY ? 16 : 10).replace("T", " ");
