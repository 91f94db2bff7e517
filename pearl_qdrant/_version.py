"""The version, alone in a file that costs nothing to import."""

__version__ = "0.1.0"
