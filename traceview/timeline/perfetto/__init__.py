"""Perfetto's trace format: the timeline as TrackEvent packets."""
