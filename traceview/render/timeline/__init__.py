"""The timeline of a page: a document for the script, and a strip that needs no script."""
