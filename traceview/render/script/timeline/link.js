/** Deep links: the window and the selected row in the fragment of the address. */

/** @typedef {{from: number, to: number, select: number | null}} Place */

/** @param {string} fragment @returns {Place | null} null for a fragment that means something else */
export function placeOf(fragment) {
  const match = /^#t=(-?\d+)-(\d+)(?:&sel=(\d+))?$/.exec(fragment);
  if (!match) return null;
  const [from, to] = [Number(match[1]), Number(match[2])];
  return to > from ? { from, to, select: match[3] ? Number(match[3]) : null } : null;
}

/** The span on the recording's clock that a fragment asks for, as links of rows do. @param {string} fragment */
export function spanIn(fragment) {
  const match = /^#at=(\d+)-(\d+)$/.exec(fragment);
  return match ? [BigInt(match[1]), BigInt(match[2])] : null;
}

/** The name that a fragment asks for, as links of kernels do; empty for others. @param {string} fragment */
export function nameIn(fragment) {
  const match = /^#name=(.+)$/.exec(fragment);
  try {
    return match ? decodeURIComponent(match[1]) : "";
  } catch {
    return "";
  }
}

/** @param {Place} place */
export function fragmentOf({ from, to, select }) {
  const chosen = select === null ? "" : `&sel=${select}`;
  return `#t=${Math.round(from)}-${Math.round(to)}${chosen}`;
}
