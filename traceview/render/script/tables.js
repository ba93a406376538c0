/** Tables of the page: what the script adds to them. */

/**
 * @param {Document} _page
 * @returns {import("./findings.js").Tables}
 */
export function mountTables(_page) {
  return {
    reveal(row) {
      for (let fold = row.closest("details"); fold; fold = fold.parentElement?.closest("details") ?? null) {
        fold.open = true;
      }
    },
  };
}
