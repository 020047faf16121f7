// Call stacks as a tree: how often each function was seen below its callers, in a part of the run.

const WAITING = " [waiting]";
const MAX_DEPTH = 200;
const MIN_WIDTH_PERCENT = 0.15;

/** Returns the steps that overlap a time range; all without a range. */
export const stepsIn = (steps, range) =>
  range ? steps.filter(([start, length]) => start < range[1] && start + Math.max(length, 1) > range[0]) : steps;

function childOf(parent, name) {
  if (!parent.children.has(name)) parent.children.set(name, newNode(name, parent));
  return parent.children.get(name);
}

const newNode = (name, parent) => {
  const depth = parent ? parent.depth + 1 : 0;
  return { name, parent, depth, count: 0, waiting: 0, children: new Map() };
};

/** Makes the tree of all stacks in the steps. The root stands for all stacks. */
export function growTree(steps, { onlyRunning = false } = {}) {
  const root = newNode("all stacks");
  for (const [folded, count] of steps.flatMap(([, , stacks]) => Object.entries(stacks))) {
    const waits = folded.endsWith(WAITING);
    if (waits && onlyRunning) continue;
    const names = (waits ? folded.slice(0, -WAITING.length) : folded).split(";").slice(0, MAX_DEPTH);
    const counted = (node) => {
      node.count += count;
      node.waiting += waits ? count : 0;
      return node;
    };
    names.reduce((node, name) => counted(childOf(node, name)), counted(root));
  }
  return root;
}

export const pathOf = (node) => (node.parent ? [...pathOf(node.parent), node.name] : []);

/** Returns the node of a path, or the nearest caller that the tree has. */
export const nodeAt = (root, [name, ...rest]) =>
  root.children.has(name) ? nodeAt(root.children.get(name), rest) : root;

/**
 * Places the frames that a reader can see: { node, left, width } in percent, ordered by depth and place.
 *
 * The zoomed node and its callers have the whole width. `hidden` is the number of frames that are not placed; those
 * below them do not count.
 */
export function layOut(zoomed, maxFrames) {
  const frames = [];
  let hidden = 0;
  const scale = 100 / Math.max(zoomed.count, 1);
  const place = (node, from) => {
    frames.push({ node, left: from, width: node.count * scale });
    let left = from;
    for (const child of [...node.children.values()].sort((a, b) => b.count - a.count || (a.name < b.name ? -1 : 1))) {
      if (child.count * scale >= MIN_WIDTH_PERCENT) place(child, left);
      else hidden += 1;
      left += child.count * scale;
    }
  };
  for (let caller = zoomed.parent; caller; caller = caller.parent) frames.push({ node: caller, left: 0, width: 100 });
  place(zoomed, 0);
  // A caller comes before what it called, which is not wider.
  const widest = frames.sort((a, b) => b.width - a.width || a.node.depth - b.node.depth).slice(0, maxFrames);
  hidden += frames.length - widest.length;
  return { frames: widest.sort((a, b) => a.node.depth - b.node.depth || a.left - b.left), hidden };
}

/** Returns the number of stacks with a function on their stack that matches. */
export function countMatches(node, matches) {
  if (node.parent && matches(node)) return node.count;
  return [...node.children.values()].reduce((count, child) => count + countMatches(child, matches), 0);
}
