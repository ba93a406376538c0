/** Names shortened to the width of a bar. */

/** A name in snake_case or camelCase, with :: or spaces, has words that end here. */
const WORD_END = /(?=::|[\s_\-/(<,])|(?<=[a-z\d])(?=[A-Z])/;
/** `step_7`, `epoch_0/batch_5` and the like are known by the number. */
const NUMBERED = /(?:^|\/)[A-Za-z]+[\s_\-#]?(\d+)$/;
const FEWEST = 6;

/**
 * The text if it fits, else the number that it ends in, else its first words; empty rather than
 * pieces of words. A single long word is cut where the room ends.
 *
 * @param {string} text
 * @param {(text: string) => boolean} fits
 */
export function fitted(text, fits) {
  const begun = text.slice(0, 400);
  if (fits(begun)) return begun;
  const number = NUMBERED.exec(begun);
  if (number) return [`\u2026${number[0]}`, `\u2026${number[1]}`].find(fits) ?? "";
  const words = begun.split(WORD_END);
  const least = Math.min(text.length / 3, FEWEST);
  for (let count = words.length - 1; count > 0; count--) {
    const head = words.slice(0, count).join("");
    if (head.length < least) return "";
    if (fits(`${head}\u2026`)) return `${head}\u2026`;
  }
  if (words.length > 1) return "";
  for (let letters = begun.length - 1; letters >= 2 * FEWEST; letters--) {
    if (fits(`${begun.slice(0, letters)}\u2026`)) return `${begun.slice(0, letters)}\u2026`;
  }
  return "";
}
