/** Numbers and text as traceview/render/timeline.py packs them. */

/** Of the characters from "!" on, "\"", "<" and "\\" are none of the 91. @param {number} code */
const digit = (code) => code - 33 - +(code > 34) - +(code > 60) - +(code > 92);

/** Two characters hold 13 bits, one at the end holds 6. @param {string} packed */
function bytesOf(packed) {
  const pairs = packed.length >> 1;
  const bytes = new Uint8Array((13 * pairs + 6 * (packed.length % 2)) >> 3);
  let [bits, held, filled] = [0, 0, 0];
  for (let at = 0; at < packed.length; at += 2) {
    const [low, high] = [digit(packed.charCodeAt(at)), digit(packed.charCodeAt(at + 1))];
    const width = at < 2 * pairs ? 13 : 6;
    bits = ((bits << width) | (width === 13 ? low + 91 * high : low)) & 0xfffff;
    for (held += width; held >= 8; held -= 8) bytes[filled++] = bits >> (held - 8);
  }
  return bytes;
}

/** @param {string} packed @returns {Promise<Uint8Array>} */
export async function inflated(packed) {
  const stream = new Blob([bytesOf(packed)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** @param {string} packed @returns {Promise<string>} */
export async function text(packed) {
  return new TextDecoder().decode(await inflated(packed));
}

/**
 * The lines of a text.
 * @param {{rows: number, data: string}} lines
 * @returns {Promise<string[]>}
 */
export async function texts({ rows, data }) {
  return rows ? (await text(data)).split("\n") : [];
}

/**
 * The numbers of byte planes, lowest bytes first.
 * @param {{rows: number, planes: number}} shape
 * @param {Uint8Array} bytes
 * @returns {any} Uint32Array, or Float64Array where four bytes are too few
 */
export function numbers({ rows, planes }, bytes) {
  const values = planes > 4 ? new Float64Array(rows) : new Uint32Array(rows);
  for (let plane = 0, weight = 1; plane < planes; plane++, weight *= 256) {
    const first = plane * rows;
    for (let row = 0; row < rows; row++) values[row] += bytes[first + row] * weight;
  }
  return values;
}

/** Numbers that were folded to be positive. @param {ArrayLike<number>} folded */
export function signed(folded) {
  const values = new Float64Array(folded.length);
  for (let row = 0; row < values.length; row++) {
    const value = folded[row];
    values[row] = value % 2 ? -(value + 1) / 2 : value / 2;
  }
  return values;
}
