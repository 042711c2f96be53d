"""The one place that holds Omnibus's version number. Plain text, so that the launcher and the packaging can read it without importing anything."""

__version__ = "0.1.0"
