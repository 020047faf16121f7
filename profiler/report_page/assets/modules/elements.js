// HTML elements. Text from records is only ever set as text, never as HTML.

import { asFamilies, escapeControls, isKnown } from "#page/formats.js";
import { endingOf, outcomeColour } from "#page/outcomes.js";
import { isHot } from "#page/run_values.js";

export function element(tag, properties = {}, ...children) {
  const { className, textContent, style, dataset, attributes, ...others } = properties;
  const created = document.createElement(tag);
  if (className) created.className = className;
  if (isKnown(textContent)) created.textContent = textContent;
  for (const [name, value] of Object.entries(style ?? {})) created.style.setProperty(name, value);
  for (const [name, value] of Object.entries(attributes ?? {})) created.setAttribute(name, value);
  Object.assign(created.dataset, dataset);
  for (const [name, value] of Object.entries(others)) created[name] = value;
  created.append(...children);
  return created;
}

export function svgElement(tag, attributes, ...children) {
  const created = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) created.setAttribute(name, value);
  created.append(...children);
  return created;
}

/** A name, or a sentence with names, that is broken between their words where there is no room: in no number. */
export function breakable(text) {
  const words = escapeControls(text).split(/(?<=[_./:])(?=\D)/);
  const made = document.createDocumentFragment();
  for (const [index, word] of words.entries()) made.append(...(index ? [element("wbr")] : []), word);
  return made;
}

/** Returns a text that breaks at its spaces alone: a date has hyphens. */
export function withWholeWords(text) {
  const made = document.createDocumentFragment();
  for (const [index, textContent] of text.split(" ").entries())
    made.append(...(index ? [" "] : []), element("span", { className: "whole", textContent }));
  return made;
}

export const byId = (id) => document.getElementById(id);

export const button = (textContent, onclick, properties = {}) =>
  element("button", { type: "button", textContent, onclick, ...properties });

export const NO_MATCH = "No run matches the filters.";
export const emptyNote = (textContent) => element("p", { className: "empty", textContent });

/** A text above a bar of "memory" or "cpu", if the percentage is known. Only memory must not be full. */
export function withBar(text, percent, tone) {
  const bar = () => {
    const style = { width: `${Math.min(percent, 100)}%`, "--tone": `var(--${isHot(percent, tone) ? "hot" : tone})` };
    return element("span", { className: "bar", attributes: { "aria-hidden": "true" } }, element("i", { style }));
  };
  return element("span", { textContent: text }, ...(isKnown(percent) ? [bar()] : []));
}

function cell(column, row) {
  return element("td", { className: column.className ?? "" }, column.show(row));
}

// Columns: { name, className, show(row) }, and for a table that sorts: { key, pick(row) }.
export function table(columns, rows, { sort, sorted, label } = {}) {
  const head = element("tr");
  for (const column of columns) {
    // A header without a text is none.
    const th = element(column.name ? "th" : "td", { className: column.className ?? "" });
    if (column.name) th.scope = "col";
    if (sort && column.key) {
      th.append(button(column.name, () => sort(column)));
      if (column.key === sorted?.key) th.setAttribute("aria-sort", sorted.descending ? "descending" : "ascending");
    } else {
      th.textContent = column.name;
    }
    head.append(th);
  }
  const body = element("tbody", {}, ...rows.map((row) => element("tr", {}, ...columns.map((one) => cell(one, row)))));
  const made = element("table", {}, element("thead", {}, head), body);
  if (label) made.setAttribute("aria-label", label);
  return made;
}

/** The table of the first rows, with a button that shows all. */
export function shortTable(columns, rows, { most, ...options }) {
  const made = table(columns, rows.slice(0, most), options);
  if (rows.length <= most) return [made];
  const showAll = () => {
    all.remove();
    made.replaceWith(table(columns, rows, options));
  };
  const all = button(`Show all ${asFamilies(rows.length)}`, showAll, { className: "quiet" });
  return [made, all];
}

export const outcomeCell = (run) =>
  element("span", {
    className: "outcome",
    textContent: endingOf(run),
    title: run.why ?? "",
    style: { "--dot": outcomeColour(run.outcome) },
  });

/** A count of what is bad: in the colour "oom" or "failure", unless it is 0. */
export const countCell = (count, tone) =>
  element("span", { className: count ? `bad ${tone}` : "", textContent: count });

// The page opens it in another tab.
export const link = (href, textContent) =>
  element("a", { href, textContent, target: "_blank", rel: "noopener noreferrer" });
