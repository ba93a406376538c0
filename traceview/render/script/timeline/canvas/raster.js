/** The rectangles of the lanes as pixels: thousands of them cost less than as calls of a canvas. */

export class Raster {
  constructor() {
    this.width = 0;
    this.height = 0;
    this.image = new ImageData(1, 1);
    this.pixels = new Uint32Array(1);
  }

  /** @param {number} width in pixels of the device @param {number} height */
  resize(width, height) {
    if (width === this.width && height === this.height) return;
    [this.width, this.height] = [width, height];
    this.image = new ImageData(Math.max(width, 1), Math.max(height, 1));
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  /** @param {number} color */
  clear(color) {
    this.pixels.fill(color);
  }

  /**
   * Fill a rectangle, clipped, with a colour as `pixelOf` gives it.
   * @param {number} left
   * @param {number} top
   * @param {number} right
   * @param {number} bottom
   * @param {number} color
   */
  fill(left, top, right, bottom, color) {
    const { width, pixels } = this;
    const first = left < 0 ? 0 : left;
    const last = right > width ? width : right;
    const end = bottom > this.height ? this.height : bottom;
    for (let y = top < 0 ? 0 : top; y < end; y++) {
      const row = y * width;
      if (last - first > 16) pixels.fill(color, row + first, row + last);
      else for (let x = first; x < last; x++) pixels[row + x] = color;
    }
  }

  /** @param {CanvasRenderingContext2D} pen @param {number} left @param {number} top */
  show(pen, left, top) {
    pen.putImageData(this.image, left, top);
  }
}

/** A colour in the order of bytes of an ImageData, mixed with what lies below it.
 * @param {string} color such as #2f6db3
 * @param {string} [below]
 * @param {number} [share] of the colour
 */
export function pixelOf(color, below = color, share = 1) {
  const [over, under] = [partsOf(color), partsOf(below)];
  const [red, green, blue] = over.map((part, at) => Math.round(part * share + under[at] * (1 - share)));
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** @param {string} color such as #2f6db3 or #888 */
export function partsOf(color) {
  const digits = color.length === 4 ? color.replace(/[^#]/g, "$&$&") : color;
  const value = parseInt(digits.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}
