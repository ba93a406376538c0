"""The recording over time: lanes of threads and streams, counters, and what of them fits a page."""
