"""GoQueue: one message system instead of two, a log and a queue over the same topics."""

__version__ = "0.1.0"
