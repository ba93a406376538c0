/** Numbers and text as traceview/render/timeline.py packs them. */

/** The digit of each character: from "!" on, without "\"", "<" and "\\". */
const DIGITS = Uint8Array.from({ length: 128 }, (_, code) => code - 33 - +(code > 34) - +(code > 60) - +(code > 92));

/** Two characters hold 13 bits, one at the end holds 6. @param {string} packed */
function bytesOf(packed) {
  const end = packed.length & ~1;
  const bytes = new Uint8Array((13 * (end >> 1) + 6 * (packed.length & 1)) >> 3);
  let [bits, held, filled] = [0, 0, 0];
  for (let at = 0; at < end; at += 2) {
    // Fewer than 8 bits are held, so 13 more fill one byte or two: a loop would take three times as long.
    bits = ((bits << 13) | (DIGITS[packed.charCodeAt(at)] + 91 * DIGITS[packed.charCodeAt(at + 1)])) & 0xfffff;
    bytes[filled++] = bits >> (held += 5);
    if (held >= 8) bytes[filled++] = bits >> (held -= 8);
  }
  if (filled < bytes.length) bytes[filled] = ((bits << 6) | DIGITS[packed.charCodeAt(end)]) >> (held - 2);
  return bytes;
}

/** @param {string} packed @returns {Promise<Uint8Array>} */
export async function inflated(packed) {
  const { readable, writable } = new DecompressionStream("deflate");
  const writer = writable.getWriter();
  // Not from a Blob, whose bytes go to the browser's process and back. Damage rejects the read as well.
  const written = Promise.all([writer.write(bytesOf(packed)), writer.close()]);
  const [bytes] = await Promise.all([new Response(readable).arrayBuffer(), written]);
  return new Uint8Array(bytes);
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
