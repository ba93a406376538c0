/** The minimap: how busy the GPUs were over the whole recording, places like the one shown, and its window. */

import { walk } from "../tree.js";

const HEIGHT = 34;
const TICK = 8;

/**
 * Draw the map once; the window over it is an element that moves.
 * @param {HTMLCanvasElement} canvas
 * @param {import("../model.js").Model} model
 * @param {import("./colors.js").Colors} colors
 * @param {number} width in CSS pixels
 * @param {number} ratio
 * @param {Float64Array | undefined} marked times to mark by ticks
 */
export function drawMap(canvas, model, colors, width, ratio, marked) {
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(HEIGHT * ratio);
  canvas.style.height = `${HEIGHT}px`;
  const pen = canvas.getContext("2d");
  if (!pen) return;
  pen.fillStyle = colors.raised;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  const tracks = model.tracks.filter((each) => each.content === "operations" && each.lane.kind === "stream");
  const pixel = model.end / canvas.width;
  const busy = new Float64Array(canvas.width);
  const longest = new Float64Array(canvas.width);
  const kind = new Int32Array(canvas.width);
  for (const track of tracks) {
    walk(track, 0, Infinity, pixel, (start, end, time, row) => {
      const first = Math.max(Math.floor(start / pixel), 0);
      const last = Math.min(Math.floor(end / pixel), canvas.width - 1);
      for (let x = first; x <= last; x++) {
        const part = last > first ? time / (last - first + 1) : time;
        busy[x] += part;
        if (part <= longest[x]) continue;
        longest[x] = part;
        kind[x] = model.names.classes[track.name[row]];
      }
    });
  }
  const devices = new Set(tracks.map((track) => track.lane.device)).size || 1;
  for (let x = 0; x < canvas.width; x++) {
    if (!busy[x]) continue;
    const share = Math.min(busy[x] / pixel / devices, 1);
    const tall = Math.max(share * canvas.height, 1);
    pen.fillStyle = colors.fill[kind[x]];
    pen.fillRect(x, canvas.height - tall, 1, tall);
  }
  pen.fillStyle = colors.high;
  for (const time of marked ?? []) pen.fillRect(Math.floor(time / pixel), 0, Math.max(ratio, 1), TICK * ratio);
}
