/** The script of every page: it adds to what the HTML already shows, and nothing needs it. */

import { mountClipboard } from "./clipboard.js";
import { mountCode } from "./code_lines.js";
import { mountFindings } from "./findings.js";
import { mountTables } from "./tables.js";
import { mountPair } from "./timeline/pair.js";
import { mountTimeline } from "./timeline/timeline.js";

document.documentElement.classList.add("js");
const tables = mountTables(document);
mountClipboard(document);
mountCode(document);
const lanes = document.getElementById("timeline-lanes");
const data = document.getElementById("timeline-data");
const timeline = lanes && data && mountTimeline(lanes, JSON.parse(data.textContent ?? ""));
mountPair(document);
mountFindings(document, tables, timeline);
