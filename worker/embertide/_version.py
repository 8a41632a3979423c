"""The release. In a module apart, so that reading it imports nothing else of the package."""

__version__ = "0.1.0"
