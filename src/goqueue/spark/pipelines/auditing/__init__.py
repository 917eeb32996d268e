"""The evidence and logic of ``audit``: the fate of every message by log, group journal, traces and dead letters."""
