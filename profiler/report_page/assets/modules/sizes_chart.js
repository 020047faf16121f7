// The sizes of a family as a picture: how long a run would take and what it would cost at each of them.

import { drawPlot, isNarrow } from "#page/charts.js";
import { element } from "#page/elements.js";
import { asChange, asFactor, asTaskSize, asUsd, isKnown } from "#page/formats.js";
import { max, min } from "#page/statistics.js";
import { colour } from "#page/theme.js";
import { isSize, whyNot } from "#page/what_if_table.js";

const HEIGHT = 232;
const TOP = 62; // the title, and a line each for "recommended" and "current"
const EDGE = 1.2; // the room at the ends of an axis
const MAX_TICKS = 5;
// The first ones that are not too many are used.
const MONEY_STEPS = [[1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8], [1, 1.5, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]];
const MAX_TICKS_WITH_MEMORY = 5; // on a narrow screen

const hasFactor = (option) => isKnown(option.durationFactor?.max);
const hasUsd = (option) => option.usdPerRun > 0;
const isDrawn = (options) => options.length > 1;

// What the picture draws: undefined where fewer than two sizes have a known duration or cost.
function drawnOptions({ sizes }) {
  const places = sizes.map((option, at) => ({ option, at }));
  const timed = places.filter(({ option }) => hasFactor(option));
  const priced = places.filter(({ option }) => hasUsd(option));
  if (!isDrawn(timed) && !isDrawn(priced)) return undefined;
  return { timed: isDrawn(timed) ? timed : [], priced: isDrawn(priced) ? priced : [] };
}

export const hasSizesChart = (advice) => Boolean(drawnOptions(advice));

// A hollow point is a size that is too slow, or has too little memory.
const pointsOf = (places, numberOf, tone, yaxis) => ({
  type: "scatter",
  mode: "lines+markers",
  name: tone,
  x: places.map(({ at }) => at),
  y: places.map(({ option }) => numberOf(option)),
  yaxis,
  hoverinfo: "skip",
  line: { color: colour(tone), width: 1.8 },
  marker: {
    size: 8,
    color: places.map(({ option }) => colour(option.acceptable ? tone : "panel")),
    line: { color: colour(tone), width: 1.8 },
  },
});

function bandOf(timed) {
  const ends = [
    ...timed.map(({ at, option }) => [at, option.durationFactor.max]),
    ...timed.map(({ at, option }) => [at, option.durationFactor.min]).reverse(),
  ];
  return {
    type: "scatter",
    mode: "lines",
    name: "range of the duration",
    x: ends.map(([at]) => at),
    y: ends.map(([, factor]) => factor),
    yaxis: "y",
    hoverinfo: "skip",
    fill: "toself",
    fillcolor: `${colour("duration")}30`,
    line: { width: 0 },
  };
}

// Equal distances are equal ratios on both axes: half of the time, twice the money.
const logAxis = (least, most, tickvals, textOf, tone) => ({
  type: "log",
  range: [Math.log10(least), Math.log10(most)],
  tickvals,
  ticktext: tickvals.map(textOf),
  tickfont: { color: colour(tone) },
});

function durationAxis(timed) {
  const least = min([0.5, ...timed.map(({ option }) => option.durationFactor.min)]) / EDGE;
  const most = max([2, ...timed.map(({ option }) => option.durationFactor.max)]) * EDGE;
  const powers = Array.from({ length: 13 }, (_, at) => at - 6).filter(
    (power) => 2 ** power > least && 2 ** power < most,
  );
  const every = Math.ceil(powers.length / MAX_TICKS);
  const factors = powers.filter((power) => power % every === 0).map((power) => 2 ** power);
  return { ...logAxis(least, most, factors, (factor) => `${factor}×`, "duration"), gridcolor: colour("line") };
}

function moneyAxis(priced) {
  const usd = priced.map(({ option }) => option.usdPerRun);
  const [least, most] = [min(usd) / EDGE, max(usd) * EDGE];
  const decades = Array.from({ length: 12 }, (_, at) => 10 ** (at - 7));
  const within = (steps) =>
    decades.flatMap((decade) => steps.map((step) => step * decade)).filter((tick) => tick > least && tick < most);
  const ticks = MONEY_STEPS.map(within).find(({ length }) => length <= MAX_TICKS) ?? [];
  return { ...logAxis(least, most, ticks, asUsd, "money"), overlaying: "y", side: "right", showgrid: false };
}

const lineTexts = ({ timed, priced }) => [
  ...(timed.length ? [["duration", "times as long"]] : []),
  ...(priced.length ? [["money", "cost per run"]] : []),
];

const label = (text, more) => ({ text, xref: "x", yref: "paper", y: 1, yanchor: "bottom", showarrow: false, ...more });

// The current and the recommended size, as lines with their names.
function marksOf({ sizes, current, recommended }) {
  const marks = [
    {
      at: sizes.findIndex((option) => isSize(recommended, option)),
      text: "recommended",
      tone: "accent",
      dash: "solid",
    },
    { at: sizes.findIndex((option) => isSize(current, option)), text: "current", tone: "faint", dash: "dash" },
  ].filter(({ at }) => at >= 0);
  if (marks.length === 2 && marks[0].at === marks[1].at)
    marks.splice(0, 2, { ...marks[0], text: "current, recommended" });
  const anchorAt = (at) => (at === 0 ? "left" : at === sizes.length - 1 ? "right" : "center");
  return {
    shapes: marks.map(({ at, text, tone, dash }) => ({
      type: "line",
      name: text,
      x0: at,
      x1: at,
      xref: "x",
      y0: 0,
      y1: 1,
      yref: "paper",
      layer: "below",
      line: { color: colour(tone), width: 1.4, dash },
    })),
    annotations: marks.map(({ at, text, tone }, line) =>
      label(text, {
        x: at,
        xanchor: anchorAt(at),
        yshift: line ? 1 : 15,
        font: { size: 11, color: colour(tone) },
      }),
    ),
  };
}

/** Makes the figure of the sizes; undefined if too little is known. */
export function sizesFigure(advice) {
  const drawn = drawnOptions(advice);
  if (!drawn) return undefined;
  const { timed, priced } = drawn;
  const { sizes } = advice;
  const hasMemory = !isNarrow() || sizes.length <= MAX_TICKS_WITH_MEMORY;
  const tickOf = (option) =>
    hasMemory ? asTaskSize(option).replace(", ", "<br>") : asTaskSize({ vcpu: option.vcpu }).replace(" vCPU", "");
  const { shapes, annotations } = marksOf(advice);
  const mark = ([tone, text]) => `<span style="color:${colour(tone)}">\u25ac</span> ${text}`;
  const title = label(lineTexts(drawn).map(mark).join("  "), {
    x: 0,
    xref: "paper",
    xanchor: "left",
    yshift: 34,
    font: { size: 12.5, color: colour("text") },
  });
  const layout = {
    height: HEIGHT,
    margin: { l: 8, r: 8, t: TOP, b: 34 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("text"), size: 11, family: "system-ui, sans-serif" },
    showlegend: false,
    hovermode: false,
    dragmode: false,
    shapes,
    annotations: [title, ...annotations],
    xaxis: {
      range: [-0.35, sizes.length - 0.65],
      tickvals: sizes.map((_, at) => at),
      ticktext: sizes.map(tickOf),
      tickangle: 0,
      fixedrange: true,
      automargin: true,
      showgrid: false,
      zeroline: false,
      linecolor: colour("line"),
      ...(hasMemory ? {} : { title: { text: "vCPU", standoff: 4 } }),
    },
  };
  const fixed = { fixedrange: true, automargin: true, zeroline: false };
  if (timed.length) layout.yaxis = { ...durationAxis(timed), ...fixed };
  else layout.yaxis = { visible: false, fixedrange: true };
  if (priced.length) layout.yaxis2 = { ...moneyAxis(priced), ...fixed };
  return {
    traces: [
      ...(timed.length
        ? [bandOf(timed), pointsOf(timed, ({ durationFactor }) => durationFactor.max, "duration", "y")]
        : []),
      ...(priced.length ? [pointsOf(priced, ({ usdPerRun }) => usdPerRun, "money", "y2")] : []),
    ],
    layout,
  };
}

const durationText = ({ min: least, max: most }) =>
  least === 1 && most === 1 ? "as long as now" : `${asFactor(least, most)} times as long`;

/** Returns what a size means, as a sentence: "1 vCPU, 4 GB: 1 to 1.4 times as long, $0.12 per run, saves 31 %." */
export function sizeText(advice, option) {
  const isCurrent = isSize(advice.current, option);
  const words = [
    hasFactor(option) && durationText(option.durationFactor),
    hasUsd(option) && `${asUsd(option.usdPerRun)} per run`,
    !isCurrent && isKnown(option.savingPercent) && asChange(option.savingPercent),
    isCurrent && "current size",
    isSize(advice.recommended, option) && "recommended",
    whyNot(option),
  ];
  return `${asTaskSize(option)}: ${words.filter(Boolean).join(", ")}.`;
}

/** The picture with the size at the pointer, or at the arrow keys, in words. */
export class SizesChart {
  constructor(advice) {
    this.advice = advice;
    this.plot = element("div", { className: "chart" });
    this.line = element("div", { className: "size-cursor", hidden: true });
    this.shown = element("p", { className: "note size-text", attributes: { role: "status" } });
    this.place = element(
      "div",
      {
        className: "sizes-plot",
        tabIndex: 0,
        attributes: {
          role: "slider",
          "aria-label": "Duration and cost at each size. Arrow keys move between the sizes.",
          "aria-valuemin": "1",
          "aria-valuemax": String(advice.sizes.length),
        },
      },
      this.plot,
      this.line,
    );
    this.element = element("div", { className: "sizes-chart" }, this.place, this.shown);
    const chosen = advice.sizes.findIndex((option) => isSize(advice.recommended, option));
    this.select(Math.max(chosen, 0));
  }
  draw() {
    const { traces, layout } = sizesFigure(this.advice);
    drawPlot(this.plot, traces, layout);
    this.place.onpointermove = (event) => this.moveTo(event);
    this.place.onpointerdown = (event) => this.moveTo(event);
    this.place.onkeydown = (event) => this.onKey(event);
    this.place.onfocus = () => this.showLine();
    this.place.onblur = () => this.hideLine();
    this.place.onpointerleave = () => this.hideLine();
  }
  moveTo({ clientX }) {
    const axis = this.plot._fullLayout?.xaxis;
    if (!axis) return;
    const at = Math.round(axis.p2d(clientX - this.plot.getBoundingClientRect().left - axis._offset));
    this.select(Math.min(Math.max(at, 0), this.advice.sizes.length - 1));
    this.showLine();
  }
  onKey(event) {
    const last = this.advice.sizes.length - 1;
    const next = {
      ArrowLeft: this.at - 1,
      ArrowDown: this.at - 1,
      ArrowRight: this.at + 1,
      ArrowUp: this.at + 1,
      Home: 0,
      End: last,
    }[event.key];
    if (!isKnown(next)) return;
    event.preventDefault();
    this.select(Math.min(Math.max(next, 0), last));
    this.showLine();
  }
  select(at) {
    this.at = at;
    this.shown.textContent = sizeText(this.advice, this.advice.sizes[at]);
    this.place.setAttribute("aria-valuenow", String(at + 1));
    this.place.setAttribute("aria-valuetext", this.shown.textContent);
  }
  showLine() {
    const axis = this.plot._fullLayout?.xaxis;
    if (!axis) return;
    this.line.hidden = false;
    this.line.style.left = `${axis._offset + axis.d2p(this.at)}px`;
  }
  hideLine() {
    this.line.hidden = true;
  }
  remove() {
    window.Plotly?.purge(this.plot);
  }
}
