"""The one place that holds the version number. Plain text, so that the launcher can read it without importing anything."""

__version__ = "0.1.0"
