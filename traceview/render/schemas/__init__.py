"""JSON Schemas of all JSON outputs, from what the outputs are made from."""
