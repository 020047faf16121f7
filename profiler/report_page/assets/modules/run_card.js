// The card at the cursor: the time, and what all charts of a run show then. It never covers the cursor, and where there
// is no room beside the cursor, not the chart that is pointed at either.

import { isNarrow } from "#page/charts.js";
import { element } from "#page/elements.js";
import { escapeControls } from "#page/formats.js";

const DISTANCE = 12;
const MARGIN = 8;

const rowOf = ({ name, tone, texts }) =>
  element(
    "p",
    { style: { "--part": `var(--${tone})` } },
    element("span", { textContent: escapeControls(name) }),
    ...texts.map((textContent) => element("span", { textContent })),
  );

const header = (...names) => element("p", {}, ...names.map((textContent) => element("span", { textContent })));

/**
 * Returns where the card is: { left, top } in the place.
 *
 * `line` is the cursor's distance from the left, `pointerTop` that of the pointer from the top (undefined: the keyboard
 * moves the cursor). `chart` is the top and bottom of the chart that is pointed at, or else of the first one that the
 * reader sees, and `view` those of what the reader sees of the place.
 */
export function cardPosition({ width, height, line, pointerTop, chart, place, view, isBeside }) {
  const inside = (from, length, room) => Math.max(Math.min(from, room - length), 0);
  const [right, left] = [line + DISTANCE, line - DISTANCE - width];
  if (isBeside && (left >= 0 || right + width <= place.width)) {
    const isRight = line < place.width / 2 ? right + width <= place.width : left < 0;
    const wanted = pointerTop === undefined ? view.top + MARGIN : pointerTop - 2 * MARGIN;
    const top = Math.min(wanted, view.bottom - height - MARGIN);
    return { left: isRight ? right : left, top: inside(top, height, place.height) };
  }
  const isBelow = view.bottom - chart.bottom > chart.top - view.top;
  const isAboveAll = pointerTop === undefined && -view.top >= height;
  const top = isAboveAll ? -height : isBelow ? chart.bottom : chart.top - height;
  return { left: inside(line - width / 2, width, place.width), top };
}

export class RunCard {
  constructor() {
    this.element = element("div", { className: "card", hidden: true, attributes: { "aria-hidden": "true" } });
  }
  hide() {
    this.element.hidden = true;
  }
  /** Shows the values; the arguments of `cardPosition` without the card's own size are in `at`. */
  show(title, { readings, processes, hasOther }, at) {
    const tables = [
      [...(hasOther ? [header("", "this run", "other run")] : []), ...readings.map(rowOf)],
      processes.map(rowOf),
    ].filter((rows) => rows.length);
    this.element.hidden = false;
    this.element.replaceChildren(
      element("b", { textContent: title }),
      ...tables.map((rows) =>
        element("div", { style: { "--values": String(rows[0].childElementCount - 1) } }, ...rows),
      ),
    );
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const { left, top } = cardPosition({ ...at, width, height, isBeside: !isNarrow() });
    this.element.style.left = `${left}px`;
    this.element.style.top = `${top}px`;
  }
}
