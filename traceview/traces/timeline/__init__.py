"""The recording over time: lanes of threads and streams, counters, reduced to fit a page."""
