/** Numbers and text as traceview/render/timeline.py packs them. */

/** The digit of each character: from "!" on, without "\"", "<" and "\\". */
const DIGITS = Uint8Array.from({ length: 128 }, (_, code) => code - 33 - +(code > 34) - +(code > 60) - +(code > 92));

/** Two characters hold 13 bits, one at the end holds 6. @param {string} packed */
function bytesOf(packed) {
  const pairs = packed.length >> 1;
  const bytes = new Uint8Array((13 * pairs + 6 * (packed.length % 2)) >> 3);
  let [bits, held, filled] = [0, 0, 0];
  for (let at = 0; at < packed.length; at += 2) {
    const [low, high] = [DIGITS[packed.charCodeAt(at)], DIGITS[packed.charCodeAt(at + 1)]];
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
  if (planes) values.set(bytes.subarray(0, rows));
  for (let plane = 1, weight = 256; plane < planes; plane++, weight *= 256) {
    const first = plane * rows;
    if (planes > 4) for (let row = 0; row < rows; row++) values[row] += bytes[first + row] * weight;
    else for (let row = 0; row < rows; row++) values[row] |= bytes[first + row] << (8 * plane);
  }
  return values;
}

/** Numbers that were folded to be positive. @param {Uint32Array | Float64Array} folded */
export function signed(folded) {
  const values = new Float64Array(folded.length);
  if (folded instanceof Uint32Array) {
    for (let row = 0; row < values.length; row++) values[row] = (folded[row] >>> 1) ^ -(folded[row] & 1);
    return values;
  }
  for (let row = 0; row < values.length; row++) {
    const value = folded[row];
    values[row] = value % 2 ? -(value + 1) / 2 : value / 2;
  }
  return values;
}
