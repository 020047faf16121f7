// The form that selects runs.

import { content } from "#page/content.js";
import { byId, element } from "#page/elements.js";
import { asTime, truncateMiddle } from "#page/formats.js";
import { OUTCOMES } from "#page/outcomes.js";
import { familyOf } from "#page/run_values.js";
import { CHOICES, NO_FILTERS, PLACES, selection, writeAddress } from "#page/selection.js";
import { known } from "#page/statistics.js";

export function showFilters() {
  for (const name of [...CHOICES, "from", "to", "search"]) {
    const field = byId(name);
    // A value of the address that no run has stays visible, so that an empty page explains itself.
    const isListed = field.tagName !== "SELECT" || [...field.options].some(({ value }) => value === selection[name]);
    if (selection[name] && !isListed) {
      field.append(
        element("option", { value: selection[name], textContent: truncateMiddle(selection[name], MAX_LENGTH) }),
      );
      field.closest("label").hidden = false;
    }
    field.value = selection[name];
  }
  byId("clear").hidden = Object.keys(NO_FILTERS).every((name) => !selection[name]);
}

const MAX_LENGTH = 60;
const MAX_TAGS = 300;
const MAX_VALUES = 30_000;
const SEARCH_DELAY_MS = 120;

// A filter with fewer values than this is hidden.
const MIN_VALUES = { tag: 1, account: 2, region: 2, cluster: 2 };

function fillChoices() {
  const valuesOf = {
    family: content.runs.map(familyOf),
    ...Object.fromEntries(PLACES.map((name) => [name, known(content.runs, (run) => run[name])])),
    outcome: content.runs.map((run) => run.outcome),
    tag: content.runs.flatMap((run) => run.tags ?? []),
  };
  const texts = {
    family: "All families",
    account: "All accounts",
    region: "All Regions",
    cluster: "All clusters",
    outcome: "All outcomes",
    tag: "All tags",
  };
  for (const name of CHOICES) {
    const order =
      name === "outcome" ? (a, b) => OUTCOMES.indexOf(a) - OUTCOMES.indexOf(b) : (a, b) => a.localeCompare(b);
    const values = [...new Set(valuesOf[name])].sort(order).slice(0, name === "tag" ? MAX_TAGS : MAX_VALUES);
    byId(name).replaceChildren(
      element("option", { value: "", textContent: texts[name] }),
      ...values.map((value) => element("option", { value, textContent: truncateMiddle(value, MAX_LENGTH) })),
    );
    byId(name).closest("label").hidden = values.length < (MIN_VALUES[name] ?? 0);
  }
}

// Days with runs, newest first, to choose from.
function fillDays() {
  const days = new Set(known(content.runs, (run) => run.began).map((ms) => asTime(ms).slice(0, 10)));
  byId("days").replaceChildren(
    ...[...days]
      .sort()
      .reverse()
      .map((value) => element("option", { value })),
  );
}

/** Calls `onChange` after a filter has changed, and `onSearch` after the searched text has. */
export function startFilters(onChange, onSearch) {
  fillChoices();
  fillDays();
  const select = (name, value) => {
    if (selection[name] === value) return;
    selection[name] = value;
    writeAddress();
    showFilters();
    onChange();
  };
  for (const name of CHOICES) byId(name).onchange = ({ target }) => select(name, target.value);
  // A date is text: a browser's field for dates shows them as its language does. What is not whole yet has no message.
  for (const name of ["from", "to"]) {
    byId(name).oninput = ({ target }) => target.validity.valid && select(name, target.value);
    byId(name).onchange = ({ target }) => select(name, target.value);
  }
  let timer;
  byId("search").oninput = (event) => {
    selection.search = event.target.value;
    clearTimeout(timer);
    timer = setTimeout(() => {
      writeAddress();
      showFilters();
      onSearch();
    }, SEARCH_DELAY_MS);
  };
  byId("clear").onclick = () => {
    Object.assign(selection, NO_FILTERS);
    writeAddress();
    showFilters();
    onChange();
    byId("family").focus();
  };
  byId("filters").onsubmit = (event) => event.preventDefault();
}
