"""Traces of torch.profiler. `reader` takes as long to import as a small trace to read."""

USE_TRACE = (
    "pass a trace of torch.profiler (prof.export_chrome_trace), or an nsys SQLite export, from "
    "`traceview record` or `nsys export --type sqlite`"
)
