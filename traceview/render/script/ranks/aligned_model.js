/** The blocks of the aligned timeline: the collectives of each rank, and the time between them. */

/**
 * A collective on one rank. Times in ns from the start of the window; -1 for what is unknown.
 * @typedef {object} Call
 * @property {number} start
 * @property {number} duration
 * @property {number} hidden under compute
 * @property {number} kind
 * @property {number} bytes
 * @property {number} wait
 * @property {number} event equal on all ranks that took part
 * @property {number} group
 * @property {number} last number of the rank that arrived last
 */

/**
 * The time of a rank before a collective, by activity.
 * @typedef {object} Between
 * @property {number} start
 * @property {number} duration
 * @property {number} work
 * @property {number} place
 * @property {number[][]} idle cause and time
 */

/**
 * @typedef {object} Rank
 * @property {number} rank
 * @property {string} why it is shown
 * @property {string} host
 * @property {number[]} steps when its steps begin or end
 * @property {Call[]} calls
 * @property {Between[]} between
 * @property {string[]} places
 */

/** What is selected: a block of a rank, by its place. @typedef {{rank: number, call: Call | null, between: Between | null}} Chosen */

/** The lists of traceview/render/ranks/aligned.py as objects. @param {any[]} data @returns {Rank[]} */
export function ranksOf(data) {
  return data.map((each) => ({
    ...each,
    calls: each.calls.map((/** @type {number[]} */ row) => {
      const [start, length, hidden, kind, bytes, wait, event, group, last] = row;
      return { start, duration: length, hidden, kind, bytes, wait, event, group, last };
    }),
    between: each.between.map((/** @type {number[]} */ row) => {
      const [start, length, work, place, ...causes] = row;
      const idle = [];
      for (let at = 0; at < causes.length; at += 2) idle.push([causes[at], causes[at + 1]]);
      return { start, duration: length, work, place, idle };
    }),
  }));
}

/** @param {{start: number, duration: number}} block @param {number} time */
const covers = (block, time) => block.start <= time && time < block.start + block.duration;

/**
 * The block at a time: a collective in the lower half of a row, else GPU activity.
 * @param {Rank[]} ranks
 * @param {{rank: number, lower: boolean}} row
 * @param {number} time
 * @returns {Chosen | null}
 */
export function blockAt(ranks, { rank, lower }, time) {
  const shown = ranks[rank];
  if (!shown) return null;
  const call = shown.calls.find((each) => covers(each, time)) ?? null;
  const between = shown.between.find((each) => covers(each, time)) ?? null;
  if (call && (lower || !between)) return { rank, call, between: null };
  return between ? { rank, call: null, between } : null;
}

/**
 * The collective before or after the selected one on its rank.
 * @param {Rank[]} ranks
 * @param {Chosen | null} chosen
 * @param {1 | -1} step
 * @returns {Chosen | null}
 */
export function neighbour(ranks, chosen, step) {
  const rank = chosen?.rank ?? 0;
  const { calls } = ranks[rank];
  const from = chosen?.call ? calls.indexOf(chosen.call) : chosen?.between ? nearest(calls, chosen.between.start) : -1;
  const call = calls[Math.min(Math.max(from + step, 0), calls.length - 1)];
  return call ? { rank, call, between: null } : null;
}

/**
 * The same collective on the next rank that took part, else the nearest one of the next rank.
 * @param {Rank[]} ranks
 * @param {Chosen | null} chosen
 * @param {1 | -1} step
 * @returns {Chosen | null}
 */
export function sameEvent(ranks, chosen, step) {
  const block = chosen?.call ?? chosen?.between;
  if (!chosen || !block) return neighbour(ranks, chosen, 1);
  const event = chosen.call?.event ?? -1;
  for (let rank = chosen.rank + step; event >= 0 && ranks[rank]; rank += step) {
    const call = ranks[rank].calls.find((each) => each.event === event);
    if (call) return { rank, call, between: null };
  }
  const rank = chosen.rank + step;
  const call = ranks[rank]?.calls[nearest(ranks[rank].calls, block.start)];
  return call ? { rank, call, between: null } : chosen;
}

/** @param {Call[]} calls @param {number} time */
function nearest(calls, time) {
  let best = 0;
  for (const [at, call] of calls.entries()) if (Math.abs(call.start - time) < Math.abs(calls[best].start - time)) best = at;
  return best;
}
