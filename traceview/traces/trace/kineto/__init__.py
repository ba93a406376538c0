"""Traces of torch.profiler. Importing `reader` takes as long as reading a small trace."""

USE_TRACE = (
    "pass a trace of torch.profiler (prof.export_chrome_trace), or an nsys SQLite export, from "
    "`traceview record` or `nsys export --type sqlite`"
)
