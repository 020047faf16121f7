// Numbers as text, and statistics over many runs. A value that was not measured is undefined and shown as "–".
// Durations, sizes and money are formatted as in profiler/record/units.py; a browser test compares both.

const UNKNOWN = "–";
const isKnown = (value) => value !== undefined && value !== null;
const twoDigits = (number) => String(number).padStart(2, "0");
const roundHalfUp = (value) => Math.floor(value + 0.5);
const asDecimal = (value, digits) => String(roundHalfUp(value * 10 ** digits) / 10 ** digits);

function asDuration(ms) {
  if (!isKnown(ms)) return UNKNOWN;
  if (ms < 1000) return `${Math.floor(ms)} ms`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${twoDigits(seconds % 60)}s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h ${twoDigits(Math.floor((seconds % 3600) / 60))}m`;
  return `${Math.floor(seconds / 86400)}d ${twoDigits(Math.floor((seconds % 86400) / 3600))}h`;
}

function asMemory(mb) {
  if (!isKnown(mb)) return UNKNOWN;
  const roundedMb = roundHalfUp(mb);
  if (roundedMb >= 1024) return `${asDecimal(mb / 1024, 1)} GB`;
  return `${mb < 10 ? asDecimal(mb, 1) : roundedMb} MB`;
}

function asUsd(usd) {
  if (!isKnown(usd)) return UNKNOWN;
  const scaled = (digits) => roundHalfUp(usd * Number(`1e${digits}`));
  let digits = 2;
  while (usd > 0 && scaled(digits) < 10 && digits < 20) digits += 1;
  return `$${(scaled(digits) / Number(`1e${digits}`)).toFixed(digits)}`;
}

const asVcpuCount = (count) => (isKnown(count) ? asDecimal(count, 2) : UNKNOWN);
const asVcpu = (count) => (isKnown(count) ? `${asVcpuCount(count)} vCPU` : UNKNOWN);
const asTaskSize = ({ vcpu, mb }) => [isKnown(vcpu) && asVcpu(vcpu), isKnown(mb) && asMemory(mb)].filter(Boolean).join(", ") || UNKNOWN;
// Without a line break between a number and its unit.
const unbroken = (text) => text.replace(/(\d) /g, "$1\u00a0");
const asBytes = (bytes) => (isKnown(bytes) ? asMemory(bytes / 1048576) : UNKNOWN);
const asRate = (mbPerSecond) => (isKnown(mbPerSecond) ? `${Number(mbPerSecond.toPrecision(3))} MB/s` : UNKNOWN);
const asPercent = (percent) => (isKnown(percent) ? `${percent.toFixed(percent < 9.95 ? 1 : 0)} %` : UNKNOWN);
// "saves 35 %" or "costs 100 % more": a negative saving is a cost.
function asChange(savingPercent) {
  if (!isKnown(savingPercent)) return UNKNOWN;
  const percent = Math.round(Math.abs(savingPercent));
  if (!percent) return "costs the same";
  return savingPercent > 0 ? `saves ${percent} %` : `costs ${percent} % more`;
}
const asFactor = (min, max) => {
  if (!isKnown(max)) return UNKNOWN;
  const [least, most] = [min.toFixed(2), max.toFixed(2)];
  return least === most ? least : `${least} to ${most}`;
};

function asTime(ms) {
  if (!isKnown(ms)) return UNKNOWN;
  const date = new Date(ms);
  return `${date.getFullYear()}-${twoDigits(date.getMonth() + 1)}-${twoDigits(date.getDate())} ${twoDigits(date.getHours())}:${twoDigits(date.getMinutes())}`;
}

// Replaces control characters, and characters that change the direction of writing, by escapes.
const escapeControls = (text) =>
  String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
const truncate = (text, maxLength) => {
  const characters = [...escapeControls(text)];
  return characters.length > maxLength ? `${characters.slice(0, maxLength - 1).join("")}…` : characters.join("");
};
const familyOf = (run) => run.family ?? UNKNOWN;
// A task is paid once, however many of its containers have a report.
function usdByTask(runs) {
  const found = new Map();
  for (const run of runs) if (isKnown(run.usd)) found.set(run.id, Math.max(found.get(run.id) ?? 0, run.usd));
  return [...found.values()];
}
// Of a task with several reports, the address and the buttons also name the container.
const nameOf = (run) => (content.runs.some((other) => other !== run && other.id === run.id && other.container !== run.container) ? `${run.id}/${run.container}` : run.id);

// --- packed time series: the inverse of profiler/html_report/packed_series.py -----------------------------

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const digitOf = new Map([...DIGITS].map((digit, value) => [digit, value]));

function decodeColumn([maximum, text], count) {
  const width = text.length / count, levels = DIGITS.length ** width - 1;
  return Array.from({ length: count }, (_, at) => {
    let level = 0;
    for (let place = at * width; place < (at + 1) * width; place += 1) {
      if (text[place] === "~") return null;
      level = level * DIGITS.length + digitOf.get(text[place]);
    }
    return level === levels ? maximum : Number(((maximum * level) / levels).toPrecision(width + 1));
  });
}

function decodeSeries(packed) {
  if (!packed) return undefined;
  const { ms, steps, ...columns } = packed;
  const [count, length, end] = steps ?? [ms.length];
  const series = { ms: ms ?? Array.from({ length: count }, (_, at) => (at === count - 1 ? end : (at + 1) * length)) };
  for (const [name, column] of Object.entries(columns)) series[name] = decodeColumn(column, count);
  return series;
}

const known = (runs, of) => runs.map(of).filter(isKnown);
const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : undefined);
const max = (values) => (values.length ? values.reduce((a, b) => (a > b ? a : b)) : undefined);
const total = (values) => values.reduce((sum, value) => sum + value, 0);

// Linear interpolation between neighbours, as in numpy.
function quantile(values, share) {
  if (!values.length) return undefined;
  const sorted = [...values].sort((a, b) => a - b);
  const position = (sorted.length - 1) * share;
  const low = Math.floor(position);
  return sorted[low] + (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]) * (position - low);
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
const MAX_BUCKETS = 48;

// The local time written as UTC: at the end of summer time, one hour occurs twice and the order differs from UTC's.
const local = (ms) => ms - new Date(ms).getTimezoneOffset() * MINUTE;

// Time buckets whose limits are in local time, so that days are those of the reader.
function bucketsOf(runs) {
  let first = Infinity, last = -Infinity;
  for (const run of runs) {
    if (!isKnown(run.began)) continue;
    first = Math.min(first, local(run.began));
    last = Math.max(last, local(run.began));
  }
  if (first > last) return { width: HOUR, starts: [], of: () => undefined };
  const width = WIDTHS.find((candidate) => (last - first) / candidate < MAX_BUCKETS - 1)
    ?? Math.ceil((last - first) / (MAX_BUCKETS - 1) / DAY) * DAY;
  const floor = (ms) => Math.floor(ms / width) * width;
  const starts = [];
  for (let start = floor(first); start <= floor(last); start += width) starts.push(start);
  return { width, starts, of: (run) => (isKnown(run.began) ? Math.round((floor(local(run.began)) - starts[0]) / width) : undefined) };
}

// A width or an axis tick, which is a whole number of one unit: "500 ms", "10 s", "15m", "6h", "7d".
function asWholeDuration(ms) {
  if (ms < 1000) return `${ms} ms`;
  if (ms < MINUTE) return `${ms / 1000} s`;
  return ms < HOUR ? `${ms / MINUTE}m` : ms < DAY ? `${ms / HOUR}h` : `${ms / DAY}d`;
}

const bucketText = (start, width) => new Date(start).toISOString().slice(0, width < DAY ? 16 : 10).replace("T", " ");
