// Light and dark theme, and the colours of page.css for the charts.

import { byId } from "#page/elements.js";

const root = () => document.documentElement;
const setTheme = (theme) => {
  root().dataset.theme = theme;
};

/** Returns the value of the custom property `--name`. */
export const colour = (name) => getComputedStyle(root()).getPropertyValue(`--${name}`).trim();

/** Whether the page is being printed. What is drawn must be ready without a pause. */
export const isOnPaper = () => Boolean(root().dataset?.paper);

/** Starts with the system's theme, follows its changes, and prints in light colours, as wide as A4. */
export function startThemes(onChange) {
  const change = (theme) => {
    setTheme(theme);
    onChange();
  };
  const darkQuery = matchMedia("(prefers-color-scheme: dark)");
  const systemTheme = () => (darkQuery.matches ? "dark" : "light");
  setTheme(systemTheme());
  darkQuery.addEventListener("change", () => change(systemTheme()));
  byId("theme").onclick = () => change(root().dataset.theme === "dark" ? "light" : "dark");
  let themeBeforePrint;
  window.addEventListener("beforeprint", () => {
    themeBeforePrint = root().dataset.theme;
    root().dataset.paper = "A4"; // page.css gives the page its width, and the charts are drawn for it
    change("light");
  });
  window.addEventListener("afterprint", () => {
    delete root().dataset.paper;
    change(themeBeforePrint);
  });
}
