/** Levels of detail: for groups of 4, 16, 64 … rows, how long they were busy and the longest. */

const FEW = 4;
/** So many rows of a window are visited one by one: the first screen needs no tree. */
const ROW_BY_ROW = 4096;

/**
 * One entry per level; level 0 is of groups of FEW rows.
 * @typedef {{busy: Float64Array, longest: Int32Array, rows: number}[]} Tree
 */

/**
 * @param {{start: Float64Array, end: Float64Array, busy: ArrayLike<number> | null}} track
 * @returns {Tree}
 */
export function treeOf(track) {
  /** @param {number} row */
  const length = (row) => (track.busy ? track.busy[row] : track.end[row] - track.start[row]);
  /** @type {Tree} */
  const tree = [];
  let below = track.start.length;
  for (let rows = FEW; below > 1; rows *= FEW) {
    const under = tree[tree.length - 1];
    const nodes = Math.ceil(below / FEW);
    const busy = new Float64Array(nodes);
    const longest = new Int32Array(nodes);
    for (let node = 0; node < nodes; node++) {
      let best = -1;
      let most = -1;
      let total = 0;
      const last = Math.min((node + 1) * FEW, below);
      for (let at = node * FEW; at < last; at++) {
        const row = under ? under.longest[at] : at;
        const taken = length(row);
        total += under ? under.busy[at] : taken;
        if (taken <= most) continue;
        best = row;
        most = taken;
      }
      busy[node] = total;
      longest[node] = best;
    }
    tree.push({ busy, longest, rows });
    below = nodes;
  }
  return tree;
}

/**
 * Visit the part of a track in a window, in order: rows at least `least` long, and groups of
 * shorter rows that together span no more than `least`.
 * @param {import("./model.js").Track} track
 * @param {number} row the first to visit
 * @param {number} until
 * @param {number} least
 * @param {(start: number, end: number, busy: number, longest: number) => void} visit
 */
export function walk(track, row, until, least, visit) {
  const { start, end, busy } = track;
  const rows = start.length;
  const tree = start[row + ROW_BY_ROW] < until ? track.tree : [];
  while (row < rows && start[row] < until) {
    let level = -1;
    let last = row;
    while (level + 1 < tree.length) {
      const size = tree[level + 1].rows;
      if (row % size) break;
      const reach = Math.min(row + size, rows) - 1;
      if (end[reach] - start[row] > least) break;
      level++;
      last = reach;
    }
    if (level < 0) {
      visit(start[row], end[row], busy ? busy[row] : end[row] - start[row], row);
    } else {
      const node = row / tree[level].rows;
      visit(start[row], end[last], tree[level].busy[node], tree[level].longest[node]);
    }
    row = last + 1;
  }
}
