"""JSON Schemas of all JSON outputs, derived from the same declarations as the outputs."""
