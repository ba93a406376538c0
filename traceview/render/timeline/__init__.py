"""The timeline as the page gets it: a document for the script, and a strip without scripts."""
