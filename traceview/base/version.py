"""The version of traceview, also available in a checkout that is not installed."""

__version__ = "0.1.0"
