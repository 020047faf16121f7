// Values as text. A value that was not measured is undefined and shown as "–". Durations, sizes and money are
// formatted as in profiler/record/units.py; a browser test compares both.

import { DAY, HOUR, MINUTE } from "#page/time_units.js";

export const UNKNOWN = "–";
export const isKnown = (value) => value !== undefined && value !== null;
const twoDigits = (number) => String(number).padStart(2, "0");
const roundHalfUp = (value) => Math.floor(value + 0.5);
const scaled = (value, digits) => roundHalfUp(value * Number(`1e${digits}`));

/** Returns a whole number with a comma between thousands: "1,200". */
export const asWhole = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, ",");
const asFixed = (value, digits) => (scaled(value, digits) / Number(`1e${digits}`)).toFixed(digits);
const asDecimal = (value, digits) => {
  const text = asFixed(value, digits);
  const [whole, fraction] = (text.includes(".") ? text.replace(/\.?0+$/, "") : text).split(".");
  return fraction ? `${asWhole(whole)}.${fraction}` : asWhole(whole);
};

// The decimals with which a value that is not 0 has as many significant digits as `least`: 1 or 10.
function firstDigit(value, digits, least = 1) {
  let more = digits;
  while (value > 0 && scaled(value, more + 1) < 10 * least && more < 20) more += 1;
  return more;
}

export function asDuration(ms) {
  if (!isKnown(ms)) return UNKNOWN;
  const count = (unit) => roundHalfUp(ms / unit);
  const [seconds, minutes, hours] = [1000, MINUTE, HOUR].map(count);
  if (count(1) < 1000) return `${count(1)} ms`;
  if (count(100) < 600) return `${(count(100) / 10).toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${twoDigits(seconds % 60)}s`;
  if (minutes < 1440) return `${Math.floor(minutes / 60)}h ${twoDigits(minutes % 60)}m`;
  return `${Math.floor(hours / 24)}d ${twoDigits(hours % 24)}h`;
}

/** Returns a time in a run, as exact as its steps: "1.25 s" where a step is 20 ms. */
export function asMoment(ms, stepMs) {
  if (ms < 1000 || ms >= MINUTE - 50 || stepMs >= 1000) return asDuration(ms);
  return `${asFixed(ms / 1000, stepMs >= 100 ? 1 : stepMs >= 10 ? 2 : 3)} s`;
}

const dayOf = (date) => [date.getFullYear(), date.getMonth() + 1, date.getDate()].map(twoDigits).join("-");

/** Returns the local time, as exact as the steps: "2026-11-20 06:00:02", "2026-11-20 06:00:02.250". */
export function asClock(ms, stepMs) {
  const date = new Date(ms);
  const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map(twoDigits).join(":");
  return `${dayOf(date)} ${stepMs >= 1000 ? time : `${time}.${String(date.getMilliseconds()).padStart(3, "0")}`}`;
}

export function asMemory(mb) {
  if (!isKnown(mb)) return UNKNOWN;
  const roundedMb = roundHalfUp(mb);
  if (roundedMb >= 1024) return `${asDecimal(mb / 1024, 1)} GB`;
  return `${asDecimal(mb, mb < 10 ? 1 : 0)} MB`;
}

/** Returns the text of a number with the mark of one that may have been larger: "≥512 MB", and of money "≥ $0.12". */
export function marked(text, isLeast) {
  if (!isLeast || text === UNKNOWN) return text;
  return text.startsWith("$") ? `≥ ${text}` : `≥${text}`;
}

/** Returns the text of a number with the mark of an estimate: "≈ 16 %". */
export const approximate = (text, isEstimate) => (isEstimate && text !== UNKNOWN ? `≈ ${text}` : text);

export function asUsd(usd) {
  if (!isKnown(usd)) return UNKNOWN;
  const size = Math.abs(usd);
  const [whole, fraction] = asFixed(size, firstDigit(size, 2, 10)).split(".");
  return `${usd < 0 ? "-" : ""}$${asWhole(whole)}.${fraction}`;
}
/** Returns an amount a month with the mark of an estimate; below a cent, which no bill has, "<$0.01" without a mark. */
export const asUsdAMonth = (usd, mark = "") =>
  Math.abs(usd) > 0 && Math.abs(usd) < 0.01 ? `${usd < 0 ? "-" : ""}<$0.01` : `${usd ? mark : ""}${asUsd(usd)}`;
export const asVcpuCount = (count) => (isKnown(count) ? asDecimal(count, firstDigit(count, 2)) : UNKNOWN);
export const asVcpu = (count) => (isKnown(count) ? `${asVcpuCount(count)} vCPU` : UNKNOWN);

export const asTaskSize = ({ vcpu, memoryMB }) =>
  [isKnown(vcpu) && asVcpu(vcpu), isKnown(memoryMB) && asMemory(memoryMB)].filter(Boolean).join(", ") || UNKNOWN;

// Without a line break between a number and its unit, within a duration, or after "a": "$4.10" and "a month".
export const unbroken = (text) => text.replace(/(\d) (?!a )|(\d[dhms]) (?=\d)|( a) /g, "$1$2$3\u00a0");
export const asBytes = (bytes) => (isKnown(bytes) ? asMemory(bytes / 1048576) : UNKNOWN);
export const asRate = (mbPerSecond) => (isKnown(mbPerSecond) ? `${Number(mbPerSecond.toPrecision(3))} MB/s` : UNKNOWN);
export function asPercent(percent) {
  if (!isKnown(percent)) return UNKNOWN;
  const size = Math.abs(percent);
  const sign = percent < 0 ? "-" : "";
  if (roundsUpToAll(size)) return `${sign}${almostAll(size)} %`;
  return `${sign}${asDecimal(size, size >= 1 ? 0 : firstDigit(size, 1))} %`;
}

// Less than 100 % never reads 100 %. What sums of parts lose by their binary digits is not less.
const roundsUpToAll = (percent) => roundHalfUp(percent) === 100 && scaled(percent, 6) < 100e6;
const almostAll = (percent) => (Math.min(scaled(percent, 1), 999) / 10).toFixed(1);

/** Returns the change from the old value: "+10 %", "-3 %", "12×"; "=" if both read the same; "" if the old one is 0. */
export function asChangeFrom(value, old, show) {
  if (show(value) === show(old)) return "=";
  if (!(old > 0)) return "";
  const percent = (100 * (value - old)) / old;
  if (percent >= 1000) return `${asWhole(roundHalfUp(value / old))}×`;
  if (value > 0 && value < old && roundsUpToAll(-percent)) return `-${almostAll(-percent)} %`;
  const rounded = roundHalfUp(Math.abs(percent));
  return rounded ? `${value < old ? "-" : "+"}${rounded} %` : "=";
}

// "saves 35 %" or "costs 100 % more": a negative saving is a cost.
export function asChange(savingPercent) {
  if (!isKnown(savingPercent)) return UNKNOWN;
  if (savingPercent === 0) return "costs the same";
  const percent = asPercent(Math.abs(savingPercent));
  return savingPercent > 0 ? `saves ${percent}` : `costs ${percent} more`;
}

export const asFactor = (min, max) => {
  if (!isKnown(max)) return UNKNOWN;
  const [least, most] = [min, max].map((factor) => asDecimal(factor, 2));
  return least === most ? least : `${least} to ${most}`;
};

/** Begins a text with a capital letter; "vCPU" keeps its own. */
export const upperFirst = (text) => (text.startsWith("vCPU") ? text : text.charAt(0).toUpperCase() + text.slice(1));

/** Returns a number of things: "1 run", "5 runs", "1,200 families". */
export const asCount = (count, one, several = `${one}s`) => `${asWhole(count)} ${count === 1 ? one : several}`;
export const asFamilies = (count) => asCount(count, "family", "families");

/** Returns the local time: "2026-11-20 06:00". */
export function asTime(ms) {
  if (!isKnown(ms)) return UNKNOWN;
  const date = new Date(ms);
  return `${dayOf(date)} ${twoDigits(date.getHours())}:${twoDigits(date.getMinutes())}`;
}

// Replaces control characters, and characters that change the direction of writing, by escapes.
export const escapeControls = (text) =>
  String(text).replace(
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu,
    (char) => `\\u{${char.codePointAt(0).toString(16)}}`,
  );

export const truncate = (text, maxLength) => {
  const characters = [...escapeControls(text)];
  return characters.length > maxLength ? `${characters.slice(0, maxLength - 1).join("")}…` : characters.join("");
};

/** Returns a name without its middle: the names of a workflow's families often begin alike. */
export function truncateMiddle(text, maxLength) {
  const characters = [...escapeControls(text)];
  if (characters.length <= maxLength) return characters.join("");
  const end = Math.floor((2 * maxLength) / 3);
  return `${characters.slice(0, maxLength - 1 - end).join("")}…${characters.slice(-end).join("")}`;
}

/** Returns a time on an axis, not rounded, without last parts of zero: "500 ms", "10 s", "15m", "1h 00m 10s", "7d". */
export function asExactDuration(ms) {
  if (ms < 1000) return `${ms} ms`;
  if (ms < MINUTE) return `${ms / 1000} s`;
  const [days, hours, minutes] = [ms / DAY, (ms % DAY) / HOUR, (ms % HOUR) / MINUTE].map(Math.floor);
  const seconds = ((ms % MINUTE) / 1000)
    .toFixed(3)
    .padStart(6, "0")
    .replace(/\.?0+$/, "");
  return `${days}d ${twoDigits(hours)}h ${twoDigits(minutes)}m ${seconds}s`
    .replace(/^(0+[dhm] )+/, "")
    .replace(/^0(?=\d)/, "")
    .replace(/( 00[hms])+$/, "");
}
