/** Pointer, wheel and keyboard, turned into moves of the timeline. */

/**
 * @typedef {object} Moves
 * @property {(x: number, y: number) => void} point
 * @property {() => void} leave
 * @property {(x: number, y: number) => void} click
 * @property {(x: number, y: number) => void} enter zoom to what is there
 * @property {(pixels: number) => void} pan
 * @property {(factor: number, x: number) => void} zoom
 * @property {(from: number, to: number) => void} range of x, while it is drawn
 * @property {(key: string) => boolean} key whether the key means something
 * @property {(held: Set<string>, ms: number) => void} hold
 * @property {(y: number) => boolean} onRuler
 * @property {(x: number, y: number) => ((y: number) => void) | null} [carry] what moves with the pointer, such as a title
 */

const CLICK_PIXELS = 4;
const HELD = new Set(["w", "a", "s", "d"]);

/** @param {HTMLCanvasElement} canvas @param {Moves} moves */
export function listen(canvas, moves) {
  listenToPointers(canvas, moves);
  listenToWheel(canvas, moves);
  listenToKeys(canvas, moves);
}

/** @param {HTMLCanvasElement} canvas @param {Moves} moves */
function listenToPointers(canvas, moves) {
  const down = /** @type {Map<number, {x: number, y: number}>} */ (new Map());
  let from = /** @type {{x: number, y: number} | null} */ (null);
  let draws = false;
  let moved = false;
  let carried = /** @type {((y: number) => void) | null} */ (null);
  const at = (/** @type {MouseEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    canvas.setPointerCapture(event.pointerId);
    const place = at(event);
    down.set(event.pointerId, place);
    from = place;
    draws = event.shiftKey || moves.onRuler(place.y);
    moved = down.size > 1;
    carried = moves.carry?.(place.x, place.y) ?? null;
  });
  canvas.addEventListener("pointermove", (event) => {
    const place = at(event);
    const last = down.get(event.pointerId);
    if (!last) return moves.point(place.x, place.y);
    const before = spread(down);
    down.set(event.pointerId, place);
    if (down.size > 1) {
      const now = spread(down);
      if (before.length > 8 && now.length > 8) moves.zoom(before.length / now.length, now.middle);
      return moves.pan(before.middle - now.middle);
    }
    if (from && Math.hypot(place.x - from.x, place.y - from.y) > CLICK_PIXELS) moved = true;
    if (!moved || !from) return;
    if (carried) carried(place.y);
    else if (draws) moves.range(from.x, place.x);
    else moves.pan(last.x - place.x);
  });
  const up = (/** @type {PointerEvent} */ event) => {
    const place = down.get(event.pointerId);
    down.delete(event.pointerId);
    if (place && !moved && event.type === "pointerup") moves.click(place.x, place.y);
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => moves.leave());
  canvas.addEventListener("dblclick", (event) => {
    const place = at(event);
    moves.enter(place.x, place.y);
  });
}

/** Distance and middle of two fingers. @param {Map<number, {x: number, y: number}>} down */
function spread(down) {
  const [one, other] = [...down.values()];
  if (!other) return { length: 0, middle: one.x };
  return { length: Math.hypot(one.x - other.x, one.y - other.y), middle: (one.x + other.x) / 2 };
}

/** The page scrolls with the wheel alone, unless the lanes have been clicked on and fit the window.
 * @param {HTMLCanvasElement} canvas
 * @param {Moves} moves
 */
function listenToWheel(canvas, moves) {
  canvas.addEventListener(
    "wheel",
    (event) => {
      const scroll = canvas.parentElement;
      const fits = !scroll || scroll.scrollHeight <= scroll.clientHeight + 1;
      const zooms = event.ctrlKey || event.metaKey || (document.activeElement === canvas && fits && !event.shiftKey);
      const sideways = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
      if (zooms && event.deltaY) {
        event.preventDefault();
        const x = event.clientX - canvas.getBoundingClientRect().left;
        moves.zoom(Math.exp(Math.max(Math.min(event.deltaY, 200), -200) * 0.0025), x);
      } else if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
        event.preventDefault();
        moves.pan(sideways);
      }
    },
    { passive: false },
  );
}

/** @param {HTMLCanvasElement} canvas @param {Moves} moves */
function listenToKeys(canvas, moves) {
  const held = /** @type {Set<string>} */ (new Set());
  let last = 0;
  const step = (/** @type {number} */ now) => {
    if (!held.size) return;
    moves.hold(held, Math.min(now - last, 50));
    last = now;
    requestAnimationFrame(step);
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (HELD.has(key)) {
      if (!held.size) {
        last = performance.now() - 16;
        requestAnimationFrame(step);
      }
      held.add(key);
    } else if (!moves.key(key)) return;
    event.preventDefault();
  });
  canvas.addEventListener("keyup", (event) => held.delete(event.key.toLowerCase()));
  canvas.addEventListener("blur", () => held.clear());
}
