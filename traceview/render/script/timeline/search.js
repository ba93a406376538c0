/** Search by name: which names hold the text, and the hit before or after a place. */

/** Any case, and `step 7` for `step_7`. @param {string} text */
const plain = (text) => text.toLowerCase().replaceAll("_", " ");

/**
 * @param {import("./model.js").Model} model
 * @param {string} wanted
 * @returns {Uint8Array} 1 for the names that hold the text
 */
export function namesWith(model, wanted) {
  const text = plain(wanted);
  const { texts, whole } = model.names;
  return Uint8Array.from(texts, (each, name) => Number(plain(each).includes(text) || plain(whole[name]).includes(text)));
}

/** The names that are the text and nothing else, or null. @param {import("./model.js").Model} model @param {string} wanted */
export function namesEqual(model, wanted) {
  const text = plain(wanted);
  const exact = Uint8Array.from(model.names.texts, (each) => Number(plain(each) === text));
  return exact.includes(1) ? exact : null;
}

/** The number of rows with these names. @param {import("./model.js").Model} model @param {Uint8Array} hits */
export function countOf(model, hits) {
  let total = 0;
  for (const { name } of model.tracks) {
    for (let row = 0; row < name.length; row++) total += hits[name[row]];
  }
  return total;
}

/**
 * The hits, in order of time; of more than `most` those that last longest.
 * @param {import("./model.js").Model} model
 * @param {Uint8Array} hits
 * @param {number} all how many there are
 * @param {number} most
 */
export function longestHits({ tracks }, hits, all, most) {
  const places = /** @type {{track: import("./model.js").Track, row: number}[]} */ ([]);
  /** @param {(track: import("./model.js").Track, row: number, ns: number) => void} act */
  const visit = (act) => {
    for (const track of tracks) {
      const { name, start, end } = track;
      for (let row = 0; row < name.length; row++) if (hits[name[row]]) act(track, row, end[row] - start[row]);
    }
  };
  const lengths = new Float64Array(all);
  let [at, least] = [0, 0];
  if (all > most) {
    visit((_track, _row, ns) => void (lengths[at++] = ns));
    least = lengths.sort()[all - most];
  }
  visit((track, row, ns) => void (ns > least && places.push({ track, row })));
  visit((track, row, ns) => void (ns === least && places.length < most && places.push({ track, row })));
  return places.sort((a, b) => a.track.start[a.row] - b.track.start[b.row] || a.track.offset + a.row - b.track.offset - b.row);
}

/**
 * The next hit in order of time, after or before a place; the first or last one beyond the ends.
 * @param {import("./model.js").Model} model
 * @param {Uint8Array} hits
 * @param {{time: number, number: number}} from start and number of the row to go on from
 * @param {1 | -1} step
 * @returns {{track: import("./model.js").Track, row: number} | null}
 */
export function nextHit(model, hits, from, step) {
  return nearest(model, hits, from, step) ?? nearest(model, hits, edge(step), step);
}

/** @param {1 | -1} step */
const edge = (step) => ({ time: -step * Infinity, number: -step * Infinity });

/**
 * @param {import("./model.js").Model} model
 * @param {Uint8Array} hits
 * @param {{time: number, number: number}} from
 * @param {1 | -1} step
 */
function nearest(model, hits, from, step) {
  let best = null;
  let [bestTime, bestNumber] = [Infinity, Infinity];
  for (const track of model.tracks) {
    const { start, name, offset } = track;
    let row = lowerBound(start, from.time) - (step > 0 ? 0 : -1);
    row = Math.min(Math.max(row, 0), start.length - 1);
    for (; row >= 0 && row < start.length; row += step) {
      const [time, number] = [start[row] * step, (offset + row) * step];
      if (time > bestTime) break;
      const beyond = time > from.time * step || (time === from.time * step && number > from.number * step);
      if (!beyond || !hits[name[row]]) continue;
      if (time < bestTime || number < bestNumber) {
        best = { track, row };
        [bestTime, bestNumber] = [time, number];
      }
      break;
    }
  }
  return best;
}

/** The first place whose time is not less. @param {Float64Array} start @param {number} time */
export function lowerBound(start, time) {
  let [low, high] = [0, start.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}
