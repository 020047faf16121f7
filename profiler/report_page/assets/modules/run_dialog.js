// The dialog that shows one run on top of the overview.

import { content, loadActivity, loadSeries, nameOf } from "#page/content.js";
import { byId, element } from "#page/elements.js";
import { asTime } from "#page/formats.js";
import { clearRunPage, drawRunPage } from "#page/run_page.js";
import { familyOf } from "#page/run_values.js";
import { formatAddress, selection, troubles, writeAddress } from "#page/selection.js";

/** Returns the whole address of a run, with the filters. A mere "#…" is a link that skips content. */
export const runAddress = (run) =>
  `${location.href.replace(/#.*/s, "")}#${formatAddress({ ...selection, run: nameOf(run) })}`;

/** A link that opens a run here, or where the reader asks for: in another tab or window. */
export function runLink(run, content, properties = {}) {
  const own = {
    href: runAddress(run),
    title: `${familyOf(run)}, ${asTime(run.began)}`,
    onclick: (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
      event.preventDefault();
      openRun(run);
    },
  };
  return element("a", { ...own, ...properties }, content);
}

async function openRun(run, { isNewPage = true } = {}) {
  const name = nameOf(run);
  selection.run = name;
  writeAddress({ isNewPage });
  showTroubles();
  const dialog = byId("detail");
  if (!dialog.open) dialog.showModal();
  await loadSeries();
  await loadActivity(run);
  if (selection.run !== name) return; // closed, or another run was opened
  drawRunPage(byId("detail-body"), run, { linkTo: runLink });
  dialog.scrollTop = 0;
  byId("run-title").focus();
}

function onClosed() {
  clearRunPage();
  if (!selection.run) return;
  selection.run = "";
  writeAddress();
}

const findRun = (name) => content.runs.find((run) => run.id === name || `${run.id}/${run.container}` === name);

/** States what the page cannot show of what the address asks for. */
export function showTroubles() {
  const sentences = troubles(selection, findRun);
  byId("troubles").hidden = !sentences.length;
  byId("troubles").textContent = sentences.join(" ");
}

/** Opens the run that the address names, or closes the dialog: after "back", or when a view was sent. */
export function showRunOfAddress() {
  const run = selection.run && findRun(selection.run);
  showTroubles();
  if (run) openRun(run, { isNewPage: false });
  else if (byId("detail").open) byId("detail").close();
}

export function startRunDialog() {
  const dialog = byId("detail");
  byId("close").onclick = () => dialog.close();
  dialog.onclose = onClosed;
  dialog.onclick = (event) => {
    if (event.target === dialog) dialog.close(); // outside its content
  };
}
