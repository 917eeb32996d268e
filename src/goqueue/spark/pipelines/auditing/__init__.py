"""Proving what became of every message: evidence from log, traces and dead letters."""
