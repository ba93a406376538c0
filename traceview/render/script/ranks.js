/** The script of the page of a job: the tools of all pages, the heat map, the aligned timeline. */

import { mountClipboard } from "./clipboard.js";
import { mountFindings } from "./findings.js";
import { mountAligned } from "./ranks/aligned.js";
import { mountHeatMap } from "./ranks/heat_map.js";
import { mountTables } from "./tables.js";

document.documentElement.classList.add("js");
const tables = mountTables(document);
mountClipboard(document);
mountFindings(document, tables, null);

/**
 * @template Mounted
 * @param {string} name of the place and of its data
 * @param {string} place
 * @param {(within: HTMLElement, data: any) => Promise<Mounted>} mount
 * @returns {Promise<Mounted | null>} null on a page without it
 */
async function mounted(name, place, mount) {
  const within = document.getElementById(`${name}-${place}`);
  const data = document.getElementById(`${name}-data`);
  return within && data ? mount(within, JSON.parse(data.textContent ?? "")) : null;
}

const timeline = mounted("aligned", "ranks", mountAligned);
mounted("heat", "map", async (within, data) => mountHeatMap(within, data, await timeline));
