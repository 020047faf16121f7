// The flame graph of a run's call stacks: a frame's width is its share of the stacks in the shown part of the run.
// The outermost functions are at the top. Frames are buttons: a click zooms, arrow keys go from frame to frame.

import { isNarrow } from "#page/charts.js";
import { content } from "#page/content.js";
import { button, element } from "#page/elements.js";
import { asCount, asDuration, asPercent, truncate } from "#page/formats.js";
import { countMatches, growTree, layOut, nodeAt, pathOf, stepsIn } from "#page/stack_tree.js";
import { known, max, min } from "#page/statistics.js";

const MAX_FRAMES = 1500;
const MAX_NAME_LENGTH = 200;
const HINT = "Point at a frame to read it. Click or Enter zooms, Escape shows all, arrow keys go from frame to frame.";

const nameOf = (node) => truncate(node.name, MAX_NAME_LENGTH);
const countOf = (count) => asCount(count, "stack");
const nodeOf = (event) => event.target.closest(".frame")?.node;
const status = () => element("span", { className: "note", attributes: { role: "status" } });

// Functions of one file have one colour.
function hueOf(name) {
  const file = /\((.*)\)$/.exec(name)?.[1] ?? name;
  return 8 + ([...file].reduce((hash, character) => (hash * 31 + character.codePointAt(0)) % 9973, 0) % 12) * 5;
}

export class FlameGraph {
  constructor(steps, wholeRun) {
    Object.assign(this, { steps, wholeRun, onlyRunning: false, path: [], buttons: new Map() });
    this.text = element("p", { className: "note flame-text", textContent: HINT });
    [this.summary, this.found] = [status(), status()];
    this.place = element("div", {
      className: "flame",
      attributes: { role: "group" },
      onclick: (event) => this.zoomTo(nodeOf(event)),
      onkeydown: (event) => this.onKey(event),
      onpointerover: (event) => this.describe(nodeOf(event)),
      onpointerleave: () => this.describe(undefined),
    });
    this.place.addEventListener("focusin", (event) => this.setCurrent(nodeOf(event)));
    this.search = element("input", {
      type: "search",
      autocomplete: "off",
      spellcheck: false,
      placeholder: "function or file",
      oninput: () => this.markMatches(),
      onkeydown: (event) => this.onSearchKey(event),
    });
    const choose = (words, onlyRunning) => button(words, () => this.show({ onlyRunning }));
    this.choice = [choose("All", false), choose("Running only", true)];
    const attributes = { role: "group", "aria-label": "Threads" };
    this.controls = element(
      "div",
      { className: "controls" },
      element("span", { className: "choice", attributes }, ...this.choice),
      element("label", { className: "note" }, "Search ", this.search),
      this.found,
    );
    this.elements = [this.controls, this.summary, this.place, this.text];
    this.show();
  }
  /** Shows another time range (null: the whole run), or running threads only. */
  show({ range = this.range, onlyRunning = this.onlyRunning } = {}) {
    Object.assign(this, { range, onlyRunning });
    this.choice.forEach((one, at) => {
      one.setAttribute("aria-pressed", String(onlyRunning === (at === 1)));
    });
    this.shownSteps = stepsIn(this.steps, range);
    this.root = growTree(this.shownSteps, { onlyRunning });
    this.draw();
  }
  draw() {
    const zoomed = nodeAt(this.root, this.path);
    this.path = pathOf(zoomed);
    const { frames, hidden } = layOut(zoomed, MAX_FRAMES);
    this.frames = this.root.count ? frames : [];
    this.buttons = new Map(this.frames.map((frame) => [frame.node, this.frameOf(frame, zoomed)]));
    this.place.replaceChildren(...this.buttons.values());
    this.place.style.setProperty("--rows", String((this.frames.at(-1)?.node.depth ?? 0) + 1));
    this.summary.textContent = [
      this.root.count ? countOf(this.root.count) : "No stacks",
      this.onlyRunning && "of running threads",
      this.rangeText(),
      zoomed.parent && `(shown: ${nameOf(zoomed)}, ${this.shareOf(zoomed.count)})`,
      this.root.count > 0 && this.root.count < content.scale.minSamples && "(few: the shares are a matter of chance)",
      hidden > 0 && `(too narrow to draw: ${hidden === 1 ? "1 frame" : `${hidden} frames`})`,
    ]
      .filter(Boolean)
      .join(" ");
    this.place.setAttribute("aria-label", `Flame graph: ${this.summary.textContent}`);
    this.setCurrent(zoomed);
    this.markMatches();
  }
  // Samples are known for each step alone: a step that is only in part in the range counts in full.
  rangeText() {
    if (!this.range) return "in the whole run";
    const asRange = ([from, until]) =>
      `from +${asDuration(Math.max(from, 0))} to +${asDuration(Math.min(until, this.wholeRun))}`;
    const starts = known(this.shownSteps, ([start]) => start);
    const ends = known(this.shownSteps, ([start, length]) => start + length);
    const isInside = starts.every((start) => start >= this.range[0]) && ends.every((end) => end <= this.range[1]);
    return asRange(this.range) + (isInside ? "" : ` (of steps ${asRange([min(starts), max(ends)])})`);
  }
  shareOf(count) {
    return asPercent((100 * count) / Math.max(this.root.count, 1));
  }
  textOf(node) {
    const waiting = node.waiting === node.count ? ", waiting" : node.waiting ? `, ${node.waiting} of them waiting` : "";
    return `${nameOf(node)}: ${countOf(node.count)}, ${this.shareOf(node.count)}${waiting}`;
  }
  frameOf({ node, left, width }, zoomed) {
    const text = this.textOf(node);
    const kinds = { caller: node.depth < zoomed.depth, waits: node.waiting, narrow: width < (isNarrow() ? 8 : 2.5) };
    return button(nameOf(node), undefined, {
      className: ["frame", ...Object.keys(kinds).filter((kind) => kinds[kind])].join(" "),
      node,
      title: text,
      tabIndex: -1,
      attributes: { "aria-label": text },
      style: {
        left: `${left}%`,
        width: `${width}%`,
        "--row": String(node.depth),
        "--hue": String(hueOf(node.name)),
        "--waiting": `${(100 * node.waiting) / node.count}%`,
      },
    });
  }
  describe(node) {
    this.text.textContent = node ? this.textOf(node) : HINT;
  }
  // The Tab key goes to one frame.
  setCurrent(node) {
    for (const [one, tabIndex] of [
      [this.current, -1],
      [node, 0],
    ]) {
      if (this.buttons.has(one)) this.buttons.get(one).tabIndex = tabIndex;
    }
    this.current = node;
    if (this.buttons.get(node) === document.activeElement) this.describe(node);
  }
  zoomTo(node) {
    if (!node) return;
    this.path = pathOf(node);
    this.draw();
    this.buttons.get(this.current).focus();
  }
  onKey(event) {
    const at = this.frames.findIndex(({ node }) => node === this.current);
    const beside = (frame) => (frame?.node.depth === this.current.depth ? frame.node : undefined);
    const aims = {
      ArrowUp: () => this.current.parent,
      ArrowDown: () => this.frames.find(({ node }) => node.parent === this.current)?.node,
      ArrowLeft: () => beside(this.frames[at - 1]),
      ArrowRight: () => beside(this.frames[at + 1]),
      Home: () => this.root,
    };
    if (event.key === "Escape" && this.path.length) this.zoomTo(this.root);
    else if (event.key in aims) this.buttons.get(aims[event.key]())?.focus();
    else return; // if nothing is zoomed, Escape closes the dialog
    event.preventDefault();
  }
  onSearchKey(event) {
    if (event.key !== "Escape" || !this.search.value) return;
    event.preventDefault();
    this.search.value = "";
    this.markMatches();
  }
  markMatches() {
    const words = this.search.value.trim().toLowerCase();
    const matches = (node) => words !== "" && Boolean(node.parent) && node.name.toLowerCase().includes(words);
    for (const [node, one] of this.buttons) one.classList.toggle("match", matches(node));
    this.found.textContent = words ? `${this.shareOf(countMatches(this.root, matches))} of the stacks match` : "";
  }
}
