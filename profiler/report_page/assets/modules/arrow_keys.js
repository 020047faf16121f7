// Rows of links. Tab reaches one of them, the arrow keys, Home and End the others.

/** Connects the keys. `rowSelector` selects the rows, `data-at` of a link is its place in the row. */
export function startArrowKeys(place, rowSelector) {
  const linksOf = (row) => [...(row?.querySelectorAll("a") ?? [])];
  const rows = [...place.querySelectorAll(rowSelector)].filter((row) => row.querySelector("a"));
  let stop = linksOf(rows[0]).at(-1);
  if (!stop) return;
  stop.tabIndex = 0;
  place.addEventListener("focusin", ({ target }) => {
    if (target.tagName !== "A") return;
    stop.tabIndex = -1;
    stop = target;
    stop.tabIndex = 0;
  });
  place.addEventListener("keydown", (event) => {
    const { key, target, altKey, ctrlKey, metaKey } = event;
    if (target.tagName !== "A" || altKey || ctrlKey || metaKey) return;
    const at = rows.indexOf(target.closest(rowSelector));
    const links = linksOf(rows[at]);
    const nearest = (others) => {
      const distance = (one) => Math.abs(one.dataset.at - target.dataset.at);
      return others.length ? others.reduce((a, b) => (distance(b) < distance(a) ? b : a)) : undefined;
    };
    const next = {
      ArrowLeft: () => links[links.indexOf(target) - 1],
      ArrowRight: () => links[links.indexOf(target) + 1],
      ArrowUp: () => nearest(linksOf(rows[at - 1])),
      ArrowDown: () => nearest(linksOf(rows[at + 1])),
      Home: () => links[0],
      End: () => links.at(-1),
    }[key];
    if (!next) return;
    event.preventDefault();
    next()?.focus();
  });
}
