"""The version, where a checkout that was never installed finds it too."""

__version__ = "0.1.0"
