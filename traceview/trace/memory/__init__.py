"""Memory that a report needs, estimated before a trace is read."""
