"""The version of GoQueue, in a module that everything may import and that imports nothing."""

__version__ = "0.1.0"
