/** The script of every page: it adds to what the HTML already shows, and nothing needs it. */

import { mountClipboard } from "./clipboard.js";
import { mountCode } from "./code_lines.js";
import { mountFindings } from "./findings.js";
import { mountTables } from "./tables.js";

document.documentElement.classList.add("js");
const tables = mountTables(document);
mountClipboard(document);
mountCode(document);
mountFindings(document, tables, document.getElementById("timeline-lanes"));
